"""Images of containers, had on a node: made of a folder, fetched, or there already."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from allranks.agent.environments.uv import Wait
from allranks.agent.processes.ranks import last_lines
from allranks.errors import AllranksError, NotFound, Passing
from allranks.plan.environments.container import FILE, TRACELESS
from allranks.plan.plan import Container

# Seconds between two looks whether another node of this machine has built the image.
_AGAIN = 0.2


def ensure(
    container: Container, folder: Path, log: Path, wait: Wait, say: Callable[[str], None]
) -> Container:
    """The container with an image that the node has; ``say`` is told what that takes, ``folder`` is
    for what its program says, and ``log`` for what it says while it makes one.

    Raises AllranksError with the program's words if there is none to be had, and what ``wait``
    raises.
    """
    if shutil.which(container.engine) is None:
        raise _no_program(container)
    if container.engine in TRACELESS:
        return container._replace(image=_file(container, folder, wait, say))
    if container.context:
        say(f"builds the image of {container.context}")
        return container._replace(image=_build(container, folder / "image", log, wait))
    if not _has(container, folder, wait):
        say(f"pulls the image {container.image}")
        _pull(container, folder, wait, ["pull", "--quiet", container.image])
    return container


def _build(container: Container, told: Path, log: Path, wait: Wait) -> str:
    """The image that its context makes. What of it has not changed since, its program has kept.
    Raises AllranksError with the program's words, all of which are in ``log``."""
    context = container.context
    file = container.dockerfile if "://" in context else os.path.join(context, container.dockerfile)
    # With a name, or whoever tidies up would take it for a leftover.
    name = hashlib.sha256(f"{context} {file}".encode()).hexdigest()[:16]
    argv = [container.engine, "build", "--iidfile", str(told)]
    argv += ["--tag", f"localhost/allranks:{name}", "--file", _listed(container, file), context]
    log.parent.mkdir(exist_ok=True)
    with _alone(name, wait):
        code = _run(argv, log, wait)
    if code != 0:
        raise AllranksError(
            f"the image cannot be built: {reason(last_lines(log))}",
            where=file,
            hint=f"all that was said is in {log}",
        )
    return told.read_text().strip()


def _listed(container: Container, path: str) -> str:
    """The path as the program takes it: podman reads a list with commas."""
    if "podman" not in os.path.basename(container.engine) or not set(',"') & set(path):
        return path
    doubled = path.replace('"', '""')
    return f'"{doubled}"'


@contextlib.contextmanager
def _alone(name: str, wait: Wait) -> Iterator[None]:
    """One at a time builds an image on a machine: the others find each step done, and have the very
    same image."""
    path = Path(tempfile.gettempdir(), f"allranks-{os.geteuid()}-build-{name}")
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:  # another user's of that name: it was only to be better
        yield
        return
    try:
        while not _locked(file):
            wait(None, _AGAIN)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(file)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _has(container: Container, folder: Path, wait: Wait) -> bool:
    argv = [container.engine, "image", "inspect", container.image]
    return _run(argv, folder / "inspect.log", wait) == 0


def identity(container: Container, folder: Path, wait: Wait) -> str:
    """What tells the container's image from every other, of the same name too. The node has it.
    Raises AllranksError, and what ``wait`` raises."""
    if container.engine in TRACELESS:
        about = os.stat(container.image)
        return f"{container.image} {about.st_size} {about.st_mtime_ns}"
    argv = [container.engine, "image", "inspect", "--format", "{{.Id}}", container.image]
    said = folder / "identity.log"
    code, lines = _run(argv, said, wait), last_lines(said)
    if code != 0 or not lines:
        hint = f"try it there by hand: {container.engine} image inspect {container.image}"
        message = f"the image {container.image!r} cannot be inspected: {reason(lines)}"
        raise AllranksError(message, hint=hint)
    return lines[-1].strip().removeprefix("sha256:")


def _no_program(container: Container) -> NotFound:
    return NotFound(
        f"there is no `{container.engine}` on the PATH of this node",
        hint="install it there, or name a compute whose nodes have it",
    )


def _file(container: Container, folder: Path, wait: Wait, say: Callable[[str], None]) -> str:
    """The image as a file: the one that is named, or what the node made of it when it was first
    asked for, beside what the program itself keeps."""
    image = container.image
    if image.startswith("/"):
        if not os.path.isfile(image):
            hint = "it has to be on a disk that every node sees"
            raise NotFound(f"there is no image {image} on this node", hint=hint)
        return image
    kept = os.environ.get("APPTAINER_CACHEDIR") or Path.home() / ".apptainer" / "cache"
    name = hashlib.sha256(image.encode()).hexdigest()[:16]
    made = Path(kept, "allranks", f"{name}{FILE}")
    if not made.exists():
        say(f"pulls the image {image}")
        made.parent.mkdir(parents=True, exist_ok=True)
        with _alone(name, wait), tempfile.TemporaryDirectory(dir=made.parent) as beside:
            if not made.exists():
                coming = Path(beside, made.name)
                _pull(container, folder, wait, ["--nocolor", "pull", str(coming), _address(image)])
                coming.rename(made)
    return str(made)


def _address(image: str) -> str:
    return image if "://" in image else f"docker://{image}"


def _pull(container: Container, folder: Path, wait: Wait, words: Sequence[str]) -> None:
    said = folder / "pull.log"
    # What it unpacks on its way goes however that ends.
    with tempfile.TemporaryDirectory(prefix="allranks-pull-", ignore_cleanup_errors=True) as beside:
        code = _run([container.engine, *words], said, wait, APPTAINER_TMPDIR=beside)
    if code != 0:
        why = reason(last_lines(said))
        kind = Passing if re.search(_NO_NETWORK, why, re.IGNORECASE) else NotFound
        raise kind(f"the image {container.image!r} cannot be had: {why}", hint=_hint(why))


def _run(argv: Sequence[str], said: Path, wait: Wait, **env: str) -> int:
    """Its exit code; it is ended if ``wait`` raises."""
    with said.open("ab") as log:
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
    """The last thing the program said, without its colours, its own name and marks."""
    plain = (re.sub(r"\x1b\[[\d;]*m", "", line).strip() for line in lines)
    said = [line for line in plain if line and not line.startswith(("See '", "Run '"))]
    text = said[-1] if said else "it did not say why"
    return re.sub(
        r"^((Error|ERROR|error|docker|podman|FATAL)( response from daemon)?\s*:\s+)+", "", text
    )


_NO_NETWORK = r"dial|lookup|timeout|refused|unreachable|TLS"
# What programs say of an image they cannot fetch, and what helps.
_HINTS = (
    (_NO_NETWORK, "the nodes do not reach the registry: have the image loaded on them before"),
    (r"daemon|docker\.sock", "is the daemon running on the nodes, and are you in its group?"),
    (r"short-name|unqualified", "give its registry as well, as in docker.io/library/python:3.11"),
    (r"unauthorized|denied|authentication", "log in on the nodes first; a name may be wrong, too"),
    (r"not found|unknown|no such|404", "look at the name and the tag after the colon"),
)


def _hint(why: str) -> str:
    found = (hint for pattern, hint in _HINTS if re.search(pattern, why, re.IGNORECASE))
    return next(found, "try it there by hand: its program's `pull`")
