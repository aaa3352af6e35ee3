"""Provide container images on a node: build them, pull them, or use those present."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from allranks.agent.environments.uv import Wait
from allranks.agent.processes.ranks import last_lines
from allranks.core.environments.container import FILE, TRACELESS
from allranks.core.plan import Container
from allranks.errors import AllranksError, NotFound, Passing

_LOCK_POLL_SECONDS = 0.2


def ensure(
    container: Container, folder: Path, log: Path, wait: Wait, say: Callable[[str], None]
) -> Container:
    """Build or pull the container's image if the node does not have it. Returns the container with
    the image to use. ``say`` receives the current activity, ``folder`` is for output of the engine,
    ``log`` for that of a build.

    Raises AllranksError with the engine's message, and what ``wait`` raises.
    """
    if shutil.which(container.engine) is None:
        raise _no_program(container)
    if container.engine in TRACELESS:
        return container._replace(image=_image_file(container, folder, wait, say))
    if container.context:
        say(f"builds the image of {container.context}")
        return container._replace(image=_build(container, folder / "image", log, wait))
    if not _is_present(container, folder, wait):
        say(f"pulls the image {container.image}")
        _pull(container, folder, wait, ["pull", "--quiet", container.image])
    return container


def _build(container: Container, id_file: Path, log: Path, wait: Wait) -> str:
    """Build the image from its context; the engine caches unchanged steps. Returns its id. Raises
    AllranksError with the engine's message; its whole output is in ``log``."""
    context = container.context
    file = container.dockerfile if "://" in context else os.path.join(context, container.dockerfile)
    # Named, so that `image prune` keeps it.
    name = hashlib.sha256(f"{context} {file}".encode()).hexdigest()[:16]
    argv = [container.engine, "build", "--iidfile", str(id_file)]
    argv += [
        "--tag",
        f"localhost/allranks:{name}",
        "--file",
        _quoted_for_list(container, file),
        context,
    ]
    log.parent.mkdir(exist_ok=True)
    with _exclusive(name, wait):
        code = _run(argv, log, wait)
    if code != 0:
        raise AllranksError(
            f"cannot build the image: {reason(last_lines(log))}",
            where=file,
            hint=f"the whole output is in {log}",
        )
    return id_file.read_text().strip()


def _quoted_for_list(container: Container, path: str) -> str:
    """The path, quoted for podman, which splits the option at commas."""
    if "podman" not in os.path.basename(container.engine) or not set(',"') & set(path):
        return path
    doubled = path.replace('"', '""')
    return f'"{doubled}"'


@contextlib.contextmanager
def _exclusive(name: str, wait: Wait) -> Iterator[None]:
    """Build an image once at a time on a machine: the others then find all steps cached, and get
    the same image."""
    path = Path(tempfile.gettempdir(), f"allranks-{os.geteuid()}-build-{name}")
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:  # another user's file: build without the lock
        yield
        return
    try:
        while not _try_lock(file):
            wait(None, 0.2)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(file)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_present(container: Container, folder: Path, wait: Wait) -> bool:
    argv = [container.engine, "image", "inspect", container.image]
    return _run(argv, folder / "inspect.log", wait) == 0


def identity(container: Container, folder: Path, wait: Wait) -> str:
    """A string that identifies the content of the container's image, which the node has. Raises
    AllranksError, and what ``wait`` raises."""
    if container.engine in TRACELESS:
        stat = os.stat(container.image)
        return f"{container.image} {stat.st_size} {stat.st_mtime_ns}"
    argv = [container.engine, "image", "inspect", "--format", "{{.Id}}", container.image]
    output = folder / "identity.log"
    code = _run(argv, output, wait)
    lines = last_lines(output)
    if code != 0 or not lines:
        hint = f"run it by hand on the node: {container.engine} image inspect {container.image}"
        message = f"cannot inspect the image {container.image!r}: {reason(lines)}"
        raise AllranksError(message, hint=hint)
    return lines[-1].strip().removeprefix("sha256:")


def start_line(container: Container, folder: Path, wait: Wait) -> str:
    """A line of shell that starts what the container's image does by itself; empty if nobody says
    so. Raises what ``wait`` raises."""
    if container.engine in TRACELESS:
        return ""
    output = folder / "config.log"
    argv = [container.engine, "image", "inspect", "--format", "{{json .Config}}", container.image]
    if _run(argv, output, wait) != 0:
        return ""
    config = json.loads(last_lines(output)[-1])
    program = [*(config.get("Entrypoint") or []), *(config.get("Cmd") or [])]
    if not program:
        return ""
    return f"cd {shlex.quote(config.get('WorkingDir') or '/')} && exec {shlex.join(program)}"


def _no_program(container: Container) -> NotFound:
    return NotFound(
        f"`{container.engine}` not found on the PATH of this node",
        hint="install it on the node, or use a compute whose nodes have it",
    )


def _image_file(container: Container, folder: Path, wait: Wait, say: Callable[[str], None]) -> str:
    """The image as a file: the given one, or one pulled to apptainer's cache."""
    image = container.image
    if image.startswith("/"):
        if not os.path.isfile(image):
            hint = "put it on a disk that every node has mounted"
            raise NotFound(f"image {image} not found on this node", hint=hint)
        return image
    cache = os.environ.get("APPTAINER_CACHEDIR") or Path.home() / ".apptainer" / "cache"
    name = hashlib.sha256(image.encode()).hexdigest()[:16]
    file = Path(cache, "allranks", f"{name}{FILE}")
    if not file.exists():
        say(f"pulls the image {image}")
        file.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive(name, wait), tempfile.TemporaryDirectory(dir=file.parent) as temporary:
            if not file.exists():
                download = Path(temporary, file.name)
                address = image if "://" in image else f"docker://{image}"
                _pull(container, folder, wait, ["--nocolor", "pull", str(download), address])
                download.rename(file)
    return str(file)


def _pull(container: Container, folder: Path, wait: Wait, arguments: Sequence[str]) -> None:
    log = folder / "pull.log"
    # Apptainer unpacks here, and leaves it behind when it is killed.
    with tempfile.TemporaryDirectory(
        prefix="allranks-pull-", ignore_cleanup_errors=True
    ) as temporary:
        code = _run([container.engine, *arguments], log, wait, APPTAINER_TMPDIR=temporary)
    if code != 0:
        why = reason(last_lines(log))
        kind = Passing if re.search(_NO_NETWORK, why, re.IGNORECASE) else NotFound
        raise kind(f"cannot pull the image {container.image!r}: {why}", hint=_hint(why))


def _run(argv: Sequence[str], output: Path, wait: Wait, **env: str) -> int:
    """Run a program and return its exit code; kill it if ``wait`` raises."""
    with output.open("ab") as log:
        proc = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
            env={**os.environ, **env},
        )
    ended = os.pidfd_open(proc.pid)
    try:
        wait(ended)
    finally:
        os.close(ended)
        if proc.poll() is None:
            os.killpg(proc.pid, signal.SIGKILL)
            proc.wait()
    return proc.returncode


def reason(lines: Sequence[str]) -> str:
    """The last message of a container engine, without colours and prefixes."""
    plain = (re.sub(r"\x1b\[[\d;]*m", "", line).strip() for line in lines)
    messages = [line for line in plain if line and not line.startswith(("See '", "Run '"))]
    text = messages[-1] if messages else "no error message"
    return re.sub(
        r"^((Error|ERROR|error|docker|podman|FATAL)( response from daemon)?\s*:\s+)+", "", text
    )


_NO_NETWORK = r"dial|lookup|timeout|refused|unreachable|TLS"
# Patterns of errors of `pull`, and hints.
_HINTS = (
    (_NO_NETWORK, "the nodes cannot reach the registry: load the image on them beforehand"),
    (
        r"daemon|docker\.sock",
        "check that the daemon runs on the nodes and that you are in its group",
    ),
    (r"short-name|unqualified", "include the registry, as in docker.io/library/python:3.11"),
    (r"unauthorized|denied|authentication", "log in on the nodes, or check the image's name"),
    (r"not found|unknown|no such|404", "check the name and the tag after the colon"),
)


def _hint(why: str) -> str:
    hints = (hint for pattern, hint in _HINTS if re.search(pattern, why, re.IGNORECASE))
    return next(hints, "run the engine's `pull` by hand on the node")
