"""`allranks job tensorboard`: TensorBoard on what a job has logged."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from allranks.cli.job_names import job_argument
from allranks.cli.output import show
from allranks.errors import AllranksError, NotFound, UsageError
from allranks.plan.job.services import SHOWN
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import job_path
from allranks.sdk.submit.current_environment import current
from allranks.sdk.transfer.download import download
from allranks.statuses import TERMINAL

_HOST, _PORT = "127.0.0.1", 6006
_START, _LOOK, _END = 60.0, 0.1, 5.0


def tensorboard_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    port = f"where it listens on this machine ({_PORT}, or another that is free)"
    parser.add_argument("--port", type=int, metavar="P", help=port)


def tensorboard(options: argparse.Namespace) -> int:
    """Start the TensorBoard of the environment in front on what a job writes to ./logs, ./outputs
    and $SSM_TENSORBOARD_DIR; Ctrl-C ends it."""
    program = _program()
    with find_server.connect() as client:
        job = client.json("GET", job_path(options.name))
    # What ends this command from outside is to end TensorBoard, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="allranks-tensorboard-") as made:
        artifacts = _artifacts(job, Path(made))
        _expect_events(job, artifacts)
        # Links, so that only these folders are read, under short names, as they grow.
        logs = Path(made, "logs")
        logs.mkdir()
        for name in SHOWN:
            (logs / name).symlink_to(artifacts / name)
        port = _free(options.port)
        url = f"http://{_HOST}:{port}/"
        words = [*program, "--logdir", str(logs), "--host", _HOST, "--port", str(port)]
        with _running(words, Path(made, "said")) as process:
            _wait_until_it_answers(process, port, Path(made, "said"))
            if options.json:
                show.as_line({"url": url, "folder": str(artifacts)})
            else:
                show.line(url)
                if not options.quiet:
                    show.talk(f"TensorBoard shows {job['name']} there; Ctrl-C ends it")
            process.wait()
            raise _ended(process, Path(made, "said"))


def _program() -> list[str]:
    """How TensorBoard is started here. Raises NotFound."""
    path = current()["PATH"]
    found = shutil.which("tensorboard", path=path)
    if found is not None:
        return [found]
    python = shutil.which("python", path=path) or shutil.which("python3", path=path)
    if python is not None:
        ask = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('tensorboard'))"
        if subprocess.run([python, "-c", ask], stderr=subprocess.DEVNULL).returncode == 0:
            return [python, "-m", "tensorboard.main"]
    hint = f"install it there: {python or 'python3'} -m pip install tensorboard"
    raise NotFound("the environment in front has no TensorBoard", hint=hint)


def _artifacts(job: dict[str, Any], made: Path) -> Path:
    """Where the job's artifacts are on this machine: the record, or a copy of what it has now."""
    folder = Path(job["folder"])
    # It may not be there yet; then that of all jobs says whose disk this is, unless the server is
    # another machine's, where a home may have the same path.
    own_server = "ALLRANKS_SERVER" not in os.environ
    if any(os.access(each, os.R_OK | os.X_OK) for each in (folder, *[folder.parent] * own_server)):
        return folder / "artifacts"
    for name in SHOWN:
        with contextlib.suppress(NotFound):  # it has written nothing there
            download(find_server.connect, job["name"], made, paths=[name])
    if job["status"] not in TERMINAL:
        show.talk("note: the job runs elsewhere: this is what it has logged by now")
    return made / "artifacts"


def _expect_events(job: dict[str, Any], artifacts: Path) -> None:
    """Raises NotFound when a job has ended without a file that TensorBoard reads."""
    if job["status"] not in TERMINAL:
        return
    if not any(any((artifacts / name).rglob("*tfevents*")) for name in SHOWN):
        hint = "write event files below ./logs or ./outputs, or to $SSM_TENSORBOARD_DIR"
        raise NotFound(f"{job['name']} left nothing that TensorBoard reads", hint=hint)


def _free(wanted: int | None) -> int:
    """The port, or without one the usual, or any that is free. Raises UsageError."""
    for port in (_PORT, 0) if wanted is None else (wanted,):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((_HOST, port))
                return int(tried.getsockname()[1])
            except (OSError, OverflowError):
                continue
    hint = "leave --port out: then one that is free is taken"
    raise UsageError(f"the port {wanted} cannot be taken", where="--port", hint=hint)


@contextlib.contextmanager
def _running(words: list[str], said: Path) -> Iterator[subprocess.Popen[bytes]]:
    with said.open("wb") as log:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        except OSError as error:
            hint = "does it run by hand: tensorboard --version"
            raise AllranksError(
                f"TensorBoard cannot be started: {error.strerror}", where=words[0], hint=hint
            ) from None
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, said: Path) -> None:
    until = time.monotonic() + _START
    while time.monotonic() < until:
        if process.poll() is not None:
            raise _ended(process, said)
        with contextlib.suppress(OSError), socket.create_connection((_HOST, port), _LOOK):
            return
        time.sleep(_LOOK)
    hint = "try it by hand: tensorboard --logdir FOLDER"
    raise AllranksError(f"TensorBoard does not answer after {_START:g} s", hint=hint)


def _ended(process: subprocess.Popen[bytes], said: Path) -> AllranksError:
    lines = said.read_text(errors="replace").strip().splitlines()
    why = f": {lines[-1]}" if lines else ""
    hint = "does it run by hand: tensorboard --version"
    return AllranksError(f"TensorBoard ended with code {process.returncode}{why}", hint=hint)
