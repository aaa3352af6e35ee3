"""Ways to fail that need no more than Python: ``python ways.py WAY``."""

import argparse
import ctypes
import errno
import json
import logging
import mmap
import os
import pickle
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
from concurrent.futures import ProcessPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


def eat_memory():
    held = []
    while True:
        held.append(bytearray(16 << 20))


def stop_at_breakpoint():
    breakpoint()
    print("after")


def ask_for_input():
    input("Continue? ")


def eat_a_lot():
    bytearray(1 << 50)


def eat_until_refused():
    rows = []
    for _ in range(10_000):
        rows.append(b"x" * (64 << 20))


def shoot_oneself():
    os.kill(os.getpid(), signal.SIGKILL)


def shoot_oneself_later():
    print("epoch 1 loss 0.4", flush=True)
    subprocess.Popen(["bash", "-c", f"sleep 0.3; kill -9 {os.getpid()}"])
    time.sleep(60)


def be_terminated():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)


def be_interrupted():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)


def pool_is_shot():
    with ProcessPoolExecutor(1) as pool:
        print(pool.submit(shoot_oneself).result())


def pool_eats_memory():
    with ProcessPoolExecutor(1) as pool:
        print(pool.submit(eat_memory).result())


def pool_raises():
    with ProcessPoolExecutor(1) as pool:
        print(pool.submit(pick_key).result())


def fill(path="full/data.bin"):
    with open(path, "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 65536)


def fill_shared():
    fill("/dev/shm/mine")


def shared_memory_bus():
    Path("/dev/shm/mine").touch()
    with open("/dev/shm/mine", "r+b") as file:
        file.truncate(64 << 20)
        with mmap.mmap(file.fileno(), 64 << 20) as held:
            held[:] = b"x" * (64 << 20)


def log_to_full():
    logging.basicConfig(filename="full/log", level=logging.INFO)
    json.dump(["x" * 4096] * 4096, open("full/metrics.json", "w"))


def bus_by_truncation():
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(1 << 20)
        held = mmap.mmap(file.fileno(), 1 << 20)
        file.truncate(0)
        print(held[4096])


def write_read_only():
    Path("fixed/out.txt").write_text("result")


def open_missing():
    with open("data/train.csv") as file:
        print(file.read())


def open_missing_translated():
    try:
        open("config.yaml")
    except FileNotFoundError as error:
        raise RuntimeError("could not load the configuration") from error


def open_missing_wrapped():
    try:
        open("config.yaml")
    except OSError:
        raise RuntimeError("could not load the configuration")


def fall_back_badly():
    try:
        import nosuchfastmodule
    except ImportError:
        print(1 / 0)


def fall_back_to_missing():
    try:
        import nosuchfastmodule
    except ImportError:
        open("slow.bin")


def not_allowed():
    Path("/root/secret.txt").read_text()


def not_allowed_to_write():
    Path("/etc/allranks-test.conf").write_text("x")


def open_too_many():
    held = [open("/dev/null") for _ in range(10_000)]
    print(len(held))


def sockets_too_many():
    held = [socket.socket() for _ in range(10_000)]
    print(len(held))


def threads_too_many():
    for _ in range(10_000):
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()


def processes_too_many():
    for _ in range(10_000):
        subprocess.Popen(["sleep", "5"])


def import_missing():
    import nosuchpackage.layers  # noqa: F401


def import_missing_name():
    from json import nosuchname  # noqa: F401


def import_circular():
    import circle_a  # noqa: F401


def import_broken_syntax():
    import bad_syntax  # noqa: F401


def missing_library():
    ctypes.CDLL("libcudart.so.12")


def wrong_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--model", choices=["small", "large"])
    parser.parse_args(sys.argv[2:])
    print("fine")


def start_missing_program():
    subprocess.run(["ffmpeg-nosuch", "-i", "x.mp4"], check=True)


def start_in_missing_folder():
    subprocess.run(["ls"], cwd="nosuch", check=True)


def start_failing_program():
    subprocess.run(["bash", "-c", "echo preparing; exit 4"], check=True)


def start_failing_python():
    subprocess.run([sys.executable, "ways.py", "pick_key"], check=True)


def loss_is_nan():
    loss = float("inf") - float("inf")
    for step in range(3):
        print(f"step {step} loss {loss}")
    if loss != loss:
        raise ValueError(f"loss is {loss} at step 2: stopping")


def loss_assertion():
    import math

    loss = float("nan")
    print("loss", loss)
    assert math.isfinite(loss)


def pick_key():
    settings = {"lr": 0.1}
    return settings["learning_rate"]


def wrong_type():
    return "epochs: " + 3


def plain_assertion():
    assert os.cpu_count() == -1, "the number of CPUs is odd"


def own_exception():
    class TrainingError(Exception):
        pass

    raise TrainingError("the teacher has left the room")


def deep():
    deep()


def group():
    raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])


def chatter_then_key():
    """Things that look like other failures, and are survived."""
    try:
        socket.socket().connect(("127.0.0.1", 1))
    except OSError:
        traceback.print_exc()
    print("CUDA out of memory, trying a smaller batch", file=sys.stderr)
    print("OSError: [Errno 98] Address already in use, trying the next port", file=sys.stderr)
    for step in range(40):
        print(f"step {step}: loss {1 / (step + 1)}", file=sys.stderr)
    pick_key()


def survived_then_shot():
    """A traceback that was survived, then a kill."""
    try:
        open("nosuch")
    except OSError:
        traceback.print_exc()
    shoot_oneself()


def survived_then_leaves():
    try:
        import nosuchpackage
    except ImportError:
        traceback.print_exc()
    for step in range(60):
        print("step", step, "done", flush=True)
    sys.exit(1)


def leaves_with_words():
    sys.exit("no GPU left on this planet")


def leaves_with_code():
    sys.exit(3)


def leaves_silently():
    os._exit(1)


def thread_dies_then_leaves():
    thread = threading.Thread(target=pick_key)
    thread.start()
    thread.join()
    sys.exit(5)


def logged_and_raised():
    try:
        pick_key()
    except KeyError:
        logging.exception("training failed")
        raise


def logged_and_left():
    try:
        open("weights.bin", "rb")
    except OSError:
        logging.exception("training failed")
        sys.exit(1)


def exit_handler_talks():
    import atexit

    atexit.register(lambda: print("closing the writer\nflushed 3 files", file=sys.stderr))
    open("weights.bin", "rb")


def segfault():
    ctypes.string_at(0)


def segfault_in_thread():
    thread = threading.Thread(target=ctypes.string_at, args=(0,))
    thread.start()
    thread.join()


def abort():
    os.abort()


def port_bound():
    first = socket.create_server(("127.0.0.1", 0))
    socket.create_server(first.getsockname())


def serve_twice():
    first = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    HTTPServer(("127.0.0.1", first.server_port), BaseHTTPRequestHandler)


def refused():
    urllib.request.urlopen("http://127.0.0.1:9/model.bin", timeout=5)


def refused_plainly():
    socket.create_connection(("127.0.0.1", 9), timeout=5)


def unresolved():
    urllib.request.urlopen("https://models.nosuch.invalid/model.bin", timeout=5)


def unresolved_plainly():
    socket.create_connection(("nosuch.invalid", 80), timeout=5)


def unreachable():
    socket.create_connection(("10.255.1.2", 80), timeout=3)


def _answering(code, context=None):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(code)
            self.end_headers()

        def log_message(self, *words):
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def forbidden(code=403):
    urllib.request.urlopen(f"http://127.0.0.1:{_answering(code)}/model.bin", timeout=5)


def unauthorized():
    forbidden(401)


def too_often():
    forbidden(429)


def gone_there():
    forbidden(404)


def untrusted():
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("cert.pem", "key.pem")
    urllib.request.urlopen(f"https://localhost:{_answering(200, context)}/", timeout=5)


def not_tls():
    urllib.request.urlopen(f"https://localhost:{_answering(200)}/", timeout=5)


def truncated_pickle():
    Path("half.pkl").write_bytes(pickle.dumps(list(range(10_000)))[:5000])
    with open("half.pkl", "rb") as file:
        pickle.load(file)


def empty_pickle():
    Path("empty.pkl").touch()
    with open("empty.pkl", "rb") as file:
        pickle.load(file)


def sleep_long():
    time.sleep(60)


def no_room_by_hand():
    raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/scratch/me/out.bin")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
