"""In place of ssh for mpirun: run a line of shell on another node of the same job, through it.

One file, two programs, standard library only: started as ``remote.py serve FD`` by the agent of a
node, which hands it a bound socket, and as ``remote.py TABLE [-flags] NODE WORDS…`` by mpirun. Both
hold a secret made for this attempt from the agents' token; it is proven, never sent.

Wire, after TCP: 32 random bytes from the server; 32 bytes HMAC-SHA256 of them and the text's
length and text; then frames of one letter, four bytes of length and content: ``o`` output, ``x``
exit code.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time

HANDSHAKE = 10.0
MOST_TEXT = 1 << 20
# How long a node that has just been told to start may take to listen.
PATIENCE = 30.0
SECRET = "ALLRANKS_REMOTE_SECRET"


def secret(token: str, attempt: int) -> str:
    """The secret of an attempt, the same on all its nodes; it says nothing of the token."""
    return hmac.new(token.encode(), f"remote {attempt}".encode(), hashlib.sha256).hexdigest()


# ---------------------------------------------------------------- the node's side


def serve(fd: int, key: bytes) -> None:
    """Answer until ended. Each caller gets a process of its own. After SIGHUP no new ones are
    answered, and it ends with the last."""
    signal.signal(signal.SIGHUP, _no_more)
    listener = socket.socket(fileno=fd)
    listener.listen(64)
    while True:
        try:
            caller, _ = listener.accept()
        except InterruptedError:
            listener.close()
            break
        if os.fork() == 0:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            listener.close()
            with contextlib.suppress(OSError):  # the caller is gone
                _answer(caller, key)
            os._exit(0)
        caller.close()
        _reap(os.WNOHANG)
    _reap(0)


def _no_more(number: int, frame: object) -> None:
    raise InterruptedError


def _reap(flags: int) -> None:
    """Callers that are gone; with no flags, all of them."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, flags)[0]:
            pass


def _answer(caller: socket.socket, key: bytes) -> None:
    caller.settimeout(HANDSHAKE)
    nonce = os.urandom(32)
    caller.sendall(nonce)
    proof, size = _exactly(caller, 32), _number(_exactly(caller, 4))
    text = _exactly(caller, size) if size <= MOST_TEXT else b""
    if not hmac.compare_digest(proof, _proof(key, nonce, text)):
        return
    caller.settimeout(None)
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    read, write = os.pipe()
    child = subprocess.Popen(
        ["/bin/bash", "-c", os.fsdecode(text)],
        stdin=subprocess.DEVNULL,
        stdout=write,
        stderr=write,
        start_new_session=True,
    )
    os.close(write)
    _relay(read, child, caller)
    code = child.wait()
    _send(caller, b"x", str(code if code >= 0 else 128 - code).encode())


def _relay(read: int, child: subprocess.Popen[bytes], caller: socket.socket) -> None:
    """Hand output on until the child has ended: a daemon it left behind may keep the pipe open."""
    ended = os.pidfd_open(child.pid)
    while True:
        ready, _, _ = select.select([read, ended], [], [])
        if read in ready:
            piece = os.read(read, 1 << 16)
            if not piece:
                return
            _send(caller, b"o", piece)
        elif ended in ready:
            return


# ---------------------------------------------------------------- mpirun's side


def call(address: str, port: int, key: bytes, text: bytes) -> int:
    """Run ``text`` there, its output on our stderr; its exit code. Raises OSError."""
    with _connected(address, port) as server:
        nonce = _exactly(server, 32)
        server.sendall(_proof(key, nonce, text) + struct.pack("!I", len(text)) + text)
        while True:
            kind, size = _exactly(server, 1), _number(_exactly(server, 4))
            content = _exactly(server, size)
            if kind == b"x":
                return int(content)
            os.write(2, content)


def _connected(address: str, port: int) -> socket.socket:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            found = socket.create_connection((address, port), timeout=HANDSHAKE)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            found.settimeout(None)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return found


def client(table: str, words: list[str]) -> int:
    """What ssh would do with ``words``; flags before the host are ssh's own, and none is needed."""
    with open(table) as file:
        told = json.load(file)
    while words and words[0].startswith("-"):
        words = words[1:]
    name, text = words[0] if words else "", " ".join(words[1:])
    if name not in told["nodes"]:
        return _fail(f"{name!r} is not a node of this job, whose other nodes are the only ones")
    address, port = told["nodes"][name]
    try:
        return call(address, port, told["secret"].encode(), text.encode(errors="surrogateescape"))
    except OSError as error:
        return _fail(f"{name} at {address}:{port} does not answer: {error}")


def _fail(sentence: str) -> int:
    print(f"allranks: {sentence}", file=sys.stderr)
    return 255


# ---------------------------------------------------------------- the wire


def _proof(key: bytes, nonce: bytes, text: bytes) -> bytes:
    return hmac.new(key, nonce + struct.pack("!I", len(text)) + text, hashlib.sha256).digest()


def _send(to: socket.socket, kind: bytes, content: bytes) -> None:
    to.sendall(kind + struct.pack("!I", len(content)) + content)


def _number(packed: bytes) -> int:
    found: int = struct.unpack("!I", packed)[0]
    return found


def _exactly(source: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = source.recv(size - len(found))
        if not piece:
            raise ConnectionError("the connection was closed: the secret may differ")
        found += piece
    return found


def main() -> int:
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]), os.environ.pop(SECRET).encode())
        return 0
    return client(sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
