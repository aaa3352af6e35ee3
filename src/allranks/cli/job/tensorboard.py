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
from typing import TYPE_CHECKING

from allranks import folder_trees, settings
from allranks.api import routes
from allranks.cli.job_names import job_argument
from allranks.cli.output import show
from allranks.core.job.services import SHOWN
from allranks.errors import AllranksError, NotFound, UsageError
from allranks.sdk.connection import contexts, find_server
from allranks.sdk.jobs.files import job_files
from allranks.sdk.submit.current_environment import current
from allranks.sdk.transfer.download import download
from allranks.statuses import TERMINAL

if TYPE_CHECKING:
    from allranks.api.jobs import JobRecord

_HOST, _PORT = "127.0.0.1", 6006
# Where Trainer and Lightning write in the working folder without a setting.
_OF_LIBRARIES = ("runs", "lightning_logs")
_START, _LOOK, _END = 60.0, 0.1, 5.0


def tensorboard_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    port = f"the port to listen on ({_PORT}, or another free one)"
    parser.add_argument("--port", type=int, metavar="P", help=port)


def tensorboard(options: argparse.Namespace) -> int:
    """Start the current environment's TensorBoard on a job's ./logs, ./outputs,
    $SSM_TENSORBOARD_DIR and working folders; Ctrl-C stops it."""
    program = _program()
    job = find_server.ask(routes.show_job, options.name)
    # Signals that end this command also end TensorBoard.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="allranks-tensorboard-") as made:
        artifacts = _artifacts(job, Path(made))
        _expect_events(job, artifacts)
        # Links, so that TensorBoard reads only these folders, with short names.
        logs = Path(made, "logs")
        logs.mkdir()
        for name in SHOWN:
            (logs / name).symlink_to(artifacts / name)
        for name, folder in _in_working_folders(job, artifacts).items():
            (logs / name).symlink_to(folder)
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
                    show.talk(f"TensorBoard shows {job['name']}; Ctrl-C stops it")
            process.wait()
            raise _ended(process, Path(made, "said"))


def _program() -> list[str]:
    """The command that starts TensorBoard. Raises NotFound."""
    path = current()["PATH"]
    program = shutil.which("tensorboard", path=path)
    if program is not None:
        return [program]
    python = shutil.which("python", path=path) or shutil.which("python3", path=path)
    if python is not None:
        ask = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('tensorboard'))"
        if subprocess.run([python, "-c", ask], stderr=subprocess.DEVNULL).returncode == 0:
            return [python, "-m", "tensorboard.main"]
    hint = f"install it there: {python or 'python3'} -m pip install tensorboard"
    raise NotFound("the current environment has no TensorBoard", hint=hint)


def _artifacts(job: JobRecord, made: Path) -> Path:
    """The job's artifacts on this machine: its record, or a copy."""
    folder = Path(job["folder"])
    # The record may not exist yet; then the folder of all jobs shows whether the server is on this
    # machine.
    own_server = contexts.chosen() is None
    if any(os.access(each, os.R_OK | os.X_OK) for each in (folder, *[folder.parent] * own_server)):
        return folder / "artifacts"
    for name in SHOWN:
        with contextlib.suppress(NotFound):  # it has written nothing there
            download(find_server.connect, job["name"], made, paths=[name])
    with find_server.connect() as client:
        files = [file.path for file in job_files(client, job["name"]) if "tfevents" in file.path]
    if kept := [path for path in files if path.startswith("work/")]:
        download(find_server.connect, job["name"], made, paths=kept)
    if job["status"] not in TERMINAL:
        show.talk("note: the job runs on another machine; this shows what it has logged so far")
    return made / "artifacts"


def _in_working_folders(job: JobRecord, artifacts: Path) -> dict[str, Path]:
    """Folders of working folders that have event files, or that a library may yet write, by a name
    for each: those of nodes on this machine while the job runs, then those that were kept."""
    works = [artifacts / "work"]
    later = () if job["status"] in TERMINAL else _OF_LIBRARIES
    if job["status"] not in TERMINAL:
        works = sorted(settings.home().nodes.glob(f"{job['name']}.*/*/working/*/work"))
    folders: dict[str, Path] = {}
    for number, work in enumerate(works):
        names = {*later, *(path.name for path in work.glob("*") if _has_events(path))}
        before = "" if len(works) == 1 else f"{number}-"
        folders |= {f"{before}{name}": work / name for name in sorted(names - {*SHOWN})}
    return folders


def _has_events(folder: Path) -> bool:
    # Links lead to what is shown already, such as outputs.
    return (
        folder.is_dir()
        and not folder.is_symlink()
        and any("tfevents" in os.path.basename(file) for file in folder_trees.files(folder))
    )


def _expect_events(job: JobRecord, artifacts: Path) -> None:
    """Raises NotFound if a job has ended without event files."""
    if job["status"] not in TERMINAL:
        return
    if not any(_has_events(artifacts / name) for name in (*SHOWN, "work")):
        hint = "write event files below the working folder, or to $SSM_TENSORBOARD_DIR"
        raise NotFound(f"{job['name']} has no TensorBoard event files", hint=hint)


def _free(requested: int | None) -> int:
    """The given port, or the default, or any free one. Raises UsageError."""
    for port in (_PORT, 0) if requested is None else (requested,):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((_HOST, port))
                return int(tried.getsockname()[1])
            except (OSError, OverflowError):
                continue
    hint = "leave out --port to use a free one"
    raise UsageError(f"the port {requested} cannot be used", where="--port", hint=hint)


@contextlib.contextmanager
def _running(words: list[str], log_file: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log_file.open("wb") as log:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        except OSError as error:
            hint = "check that it works: tensorboard --version"
            raise AllranksError(
                f"TensorBoard does not start: {error.strerror}", where=words[0], hint=hint
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


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, log_file: Path) -> None:
    until = time.monotonic() + _START
    while time.monotonic() < until:
        if process.poll() is not None:
            raise _ended(process, log_file)
        with contextlib.suppress(OSError), socket.create_connection((_HOST, port), _LOOK):
            return
        time.sleep(_LOOK)
    hint = "try it by hand: tensorboard --logdir FOLDER"
    raise AllranksError(f"TensorBoard does not answer after {_START:g} s", hint=hint)


def _ended(process: subprocess.Popen[bytes], log_file: Path) -> AllranksError:
    lines = log_file.read_text(errors="replace").strip().splitlines()
    why = f": {lines[-1]}" if lines else ""
    hint = "check that it works: tensorboard --version"
    return AllranksError(f"TensorBoard ended with code {process.returncode}{why}", hint=hint)
