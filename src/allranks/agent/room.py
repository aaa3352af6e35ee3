"""A node's container: one for an attempt, in which all that is the user's runs.

The agent stays outside and speaks with ``inside/room.sh``, the container's first process, through
its standard input and output. When the agent is gone, that input is closed, by the kernel or by
whoever holds it, and nothing of the container is left: no daemon has to be told.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from allranks.agent.keeper import has_children
from allranks.agent.ranks import Ended, Process, Running, last_lines
from allranks.errors import AllranksError, NotFound
from allranks.plan.container import LABEL, mounts, words
from allranks.plan.plan import Container, Task

_OURS = Path(__file__).absolute().parent
_PROGRAM = _OURS / "inside" / "room.sh"
# How long a container that is to end may take to, and its program to clean up after it.
_PATIENCE = 10.0
# Seconds from one question whether it is there to the next, and how many of them may be unanswered.
# Not a time: agent and container may be suspended together.
_BEAT, _UNANSWERED = 5.0, 6
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Waits until the descriptor is readable; raises what ends the waiting.
Wait = Callable[[int], None]


class Room:
    """A container that is up. One thread uses it."""

    def __init__(self, argv: Sequence[str], name: str, folder: Path, wait: Wait) -> None:
        """Start it, and return when it answers. Raises AllranksError with the program's own words
        if it does not, and what ``wait`` raises."""
        self.name, self._folder, self._engine = name, folder, argv[0]
        self._number, self._rest, self._until = 0, b"", float("inf")
        # Its program is gone, and with that all that was inside.
        self.over = False
        self._asked, self._unanswered = time.monotonic(), 0
        said = folder / "container.log"
        with said.open("ab") as log:
            self._proc = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, process_group=0
            )
        assert self._proc.stdin is not None
        assert self._proc.stdout is not None
        self._to, self.fd = self._proc.stdin, self._proc.stdout.fileno()
        os.set_blocking(self.fd, False)
        try:
            while not self._rest.startswith(b"up\n") and not self.over:
                wait(self.fd)
                self._read()
        except BaseException:
            self.close()
            raise
        if not self._rest.startswith(b"up\n"):
            self.close()
            raise _not_started(self._engine, last_lines(said))
        self._rest = self._rest.removeprefix(b"up\n")

    @property
    def code(self) -> int:
        """What those inside ended with that did not say so themselves, once it is over."""
        if self._until < float("inf"):  # we have ended it
            return 128 + signal.SIGKILL
        return self._proc.wait() or 255

    def ask(self, line: str, wait: Wait) -> str:
        """What a line of bash prints inside. Before anything else is started."""
        log = self._folder / "asked.log"
        self.start(log, ["/bin/bash", "-c", line], self._folder, {})
        while not self.ended() and not self.over:
            wait(self.fd)
        return log.read_text(errors="replace") if log.exists() else ""

    def start(self, log: Path, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> int:
        """Start ``argv`` inside, ``env`` laid over the image's own; its number."""
        self._number += 1
        path = self._folder / f"{self._number}.sh"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(_script(log, argv, cwd, env))
        self._tell(f"start {self._number}")
        return self._number

    def send(self, number: signal.Signals) -> None:
        """Signal every process inside; SIGKILL ends the container."""
        if number is signal.SIGKILL:
            self._end()
        else:
            self._tell(number.name.removeprefix("SIG"))

    def ended(self) -> list[tuple[int, int]]:
        """Number and exit code of those that ended since the last call; of one that is told twice
        the first counts."""
        if time.monotonic() > self._until or self._unanswered > _UNANSWERED:
            self._kill()
        self._read()
        whole, newline, self._rest = self._rest.rpartition(b"\n")
        lines = [line.split() for line in (whole + newline).splitlines()]
        if lines:
            self._unanswered = 0
        elif time.monotonic() - self._asked > _BEAT:
            self._asked, self._unanswered = time.monotonic(), self._unanswered + 1
            self._tell("beat")
        return [(int(line[1]), int(line[2])) for line in lines if line[:1] == [b"ended"]]

    def running(self) -> Running:
        """What starts and watches processes inside."""
        return Contained(self)

    def close(self) -> None:
        """End it with all that runs inside, and leave nothing of it."""
        self._end()
        try:
            self._proc.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._kill()
            self._proc.wait()
        if self._proc.returncode < 0:
            # Killed by whomever, its program has tidied nothing up.
            remove = [self._engine, "rm", "--force", self.name]
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(remove, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        if self._proc.stdout is not None:
            self._proc.stdout.close()

    def _end(self) -> None:
        self._until = min(self._until, time.monotonic() + _PATIENCE)
        with contextlib.suppress(OSError):
            self._to.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._proc.pid, signal.SIGKILL)
        self.over = True

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # it is gone: `ended` will tell
            self._to.write(line.encode() + b"\n")
            self._to.flush()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while not self.over:
                piece = os.read(self.fd, 1 << 16)
                self._rest += piece
                self.over = not piece


class Contained(Running):
    """The processes of a node whose ranks run in a room. What needs descriptors of ours is ours,
    and stays outside."""

    pace = _BEAT

    def __init__(self, room: Room) -> None:
        super().__init__()
        self._room = room
        self._inside: dict[int, Process] = {}

    def start(
        self,
        process: Process,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        fds: Sequence[int] = (),
    ) -> None:
        if fds:
            super().start(process, argv, cwd, env, fds)
        else:
            process.log.touch(0o600)
            self._inside[self._room.start(process.log, argv, cwd, env)] = process

    @property
    def fds(self) -> list[int]:
        return super().fds + ([self._room.fd] if self._inside else [])

    @property
    def processes(self) -> list[Process]:
        return super().processes + list(self._inside.values())

    def reap(self) -> list[Ended]:
        found = [
            Ended.of(self._inside.pop(number), code)
            for number, code in self._room.ended()
            if number in self._inside
        ]
        if self._room.over:
            found += [Ended.of(each, self._room.code) for each in self._inside.values()]
            self._inside.clear()
        return super().reap() + sorted(found, key=lambda ended: ended.signal is None)

    def send(self, number: signal.Signals) -> None:
        super().send(number)
        self._room.send(number)

    def close(self) -> None:
        self._room.close()
        # What watches over a container may be ours by now, and still be tidying up.
        until = time.monotonic() + _PATIENCE
        while has_children() and time.monotonic() < until:
            time.sleep(0.02)


def open_room(task: Task, name: str, folder: Path, wait: Wait) -> Room:
    """The container of the attempt in ``folder``; its image is fetched if the node has not got it.

    Raises AllranksError with the program's words if there is none to be had, and what ``wait``
    raises. ``task`` has a container.
    """
    container = task.container
    assert container is not None
    given = mounts(task, str(folder), str(_OURS))
    own = folder / "container"
    own.mkdir()
    fetch(container, own, wait)
    _tidy_up(container)
    root = os.geteuid() == 0 or container.engine != "docker"
    argv = words(
        container,
        re.sub(r"[^A-Za-z0-9_.-]", "-", name),
        given,
        [str(_PROGRAM), str(own)],
        user="0:0" if root else f"{os.geteuid()}:{os.getegid()}",
        env={} if root else _who(own),
        gpus=task.gpus > 0,
    )
    return Room(argv, name, own, wait)


def has(container: Container) -> bool:
    """Whether the node has the image. Raises NotFound without the program that would."""
    try:
        return _run(container, "image", "inspect", container.image).returncode == 0
    except FileNotFoundError:
        raise NotFound(
            f"there is no `{container.engine}` on the PATH of this node",
            hint="install it there, or name a compute whose nodes have it",
        ) from None


def fetch(container: Container, folder: Path, wait: Wait) -> None:
    """Have the image on this node. Raises AllranksError with the program's words if it cannot."""
    if has(container):
        return
    said = folder / "pull.log"
    with said.open("ab") as log:
        proc = subprocess.Popen(
            [container.engine, "pull", "--quiet", container.image],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
        )
    ended = os.pidfd_open(proc.pid)
    try:
        wait(ended)
    finally:
        os.close(ended)
        if proc.poll() is None:
            os.killpg(proc.pid, signal.SIGKILL)
            proc.wait()
    if proc.returncode:
        why = _reason(last_lines(said))
        raise NotFound(f"the image {container.image!r} cannot be had: {why}", hint=_hint(why))


def _tidy_up(container: Container) -> None:
    """Have what killed agents have left removed: it has ended, and only its name is still known.
    Nobody waits for that."""
    which = ["--filter", f"label={LABEL}", "--filter", "until=10m"]
    subprocess.Popen(
        [container.engine, "container", "prune", "--force", *which],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _who(folder: Path) -> dict[str, str]:
    """Of one whom the image has no name and no home for, which libraries ask about."""
    name = pwd.getpwuid(os.geteuid()).pw_name
    return {"HOME": str(folder), "USER": name, "LOGNAME": name}


def _script(log: Path, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> str:
    """What becomes the process. Variables stand in this file, which nobody else reads, and not on
    a command line; but for those that are no names to a shell."""
    odd = [f"{key}={value}" for key, value in env.items() if not _NAME.fullmatch(key)]
    lines = [f"exec >>{shlex.quote(str(log))} 2>&1"]
    lines += [f"export {key}={shlex.quote(env[key])}" for key in env if _NAME.fullmatch(key)]
    lines.append(f"cd {shlex.quote(str(cwd))} || exit 126")
    lines.append(f"exec {shlex.join([*(['env', *odd] if odd else []), *argv])}")
    return "\n".join(lines) + "\n"


def _run(container: Container, *more: str) -> subprocess.CompletedProcess[Any]:
    argv = [container.engine, *more]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True)


def _reason(lines: Sequence[str]) -> str:
    """The last thing the program said, without its own name and marks."""
    said = [line for line in lines if not line.startswith(("See '", "Run '"))]
    text = said[-1] if said else "it did not say why"
    return re.sub(r"^((Error|error|docker|podman)( response from daemon)?: )+", "", text).strip()


# What programs say of an image they cannot fetch, and what helps.
_HINTS = (
    (r"short-name|unqualified", "give its registry as well, as in docker.io/library/python:3.11"),
    (r"unauthorized|denied|authentication", "log in on the nodes first; a name may be wrong, too"),
    (r"not found|unknown|no such|404", "look at the name and the tag after the colon"),
    (r"dial|lookup|timeout|refused|unreachable|TLS", "the nodes do not reach the registry: have "
     "the image loaded on them before"),
)  # fmt: skip


def _hint(why: str) -> str:
    found = (hint for pattern, hint in _HINTS if re.search(pattern, why, re.IGNORECASE))
    return next(found, "try it there by hand: its program's `pull`")


def _not_started(engine: str, lines: Sequence[str]) -> AllranksError:
    why = _reason(lines)
    hint = "resources.docker_args are handed on to it as they are"
    if "/bin/bash" in why:
        hint = "commands of jobs are bash's: the image needs a /bin/bash"
    return AllranksError(f"{engine} cannot start the container: {why}", hint=hint)
