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

from allranks.agent.environments import images
from allranks.agent.environments.uv import Wait
from allranks.agent.processes.keeper import has_watchers
from allranks.agent.processes.ranks import Ended, Process, Running, last_lines
from allranks.errors import AllranksError
from allranks.plan.environments.container import LABEL, TRACELESS, Mount, mounts, words
from allranks.plan.plan import Container, Task

_OURS = Path(__file__).absolute().parents[1]
_PROGRAM = _OURS / "inside" / "room.sh"
# How long a container that is to end may take to, and its program to clean up after it.
_PATIENCE = 10.0
# Seconds from one question whether it is there to the next, and how many of them may be unanswered.
# Not a time: agent and container may be suspended together.
_BEAT, _UNANSWERED = 5.0, 6
# The first process's first words.
_UP = b"allranks is up\n"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Variables that bash keeps for itself, and lets nobody set.
_BASHS = set(
    """_ BASHOPTS BASHPID BASH_ARGV0 BASH_COMMAND BASH_SUBSHELL BASH_VERSINFO DIRSTACK EPOCHREALTIME
    EPOCHSECONDS EUID FUNCNAME GROUPS LINENO PIPESTATUS PPID RANDOM SECONDS SHELLOPTS SRANDOM
    UID""".split()  # noqa: SIM905  # twenty-one lines say no more
)


class NodeContainer:
    """A container that is up. One thread uses it."""

    def __init__(
        self,
        argv: Sequence[str],
        name: str,
        folder: Path,
        wait: Wait,
        beside: subprocess.Popen[bytes] | None,
    ) -> None:
        """Start it, and return when it answers. Raises AllranksError with the program's own words
        if it does not, and what ``wait`` raises. ``beside`` is to have ended by its end, too."""
        self.name, self._folder, self.engine, self._beside = name, folder, argv[0], beside
        self._number, self._rest, self._until = 0, b"", float("inf")
        # Its program is gone, and with that all that was inside; ``lost``: not by our doing.
        self.over = self.lost = False
        self._asked, self._unanswered = time.monotonic(), 0
        self._closed = False
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
            while _UP not in self._rest and not self.over:
                wait(self.fd)
                self._read()
        except BaseException:
            self.close()
            raise
        # What stands before is of the image's BASH_ENV.
        _, up, self._rest = self._rest.partition(_UP)
        if not up:
            self.close(remove=True)
            raise _not_started(self.engine, last_lines(said))

    def ask(self, line: str, env: Mapping[str, str], wait: Wait) -> str:
        """What a line of bash prints inside. Before anything else is started."""
        log = self._folder / "asked.log"
        log.unlink(missing_ok=True)
        self.start(log, ["/bin/bash", "-c", line], self._folder, env)
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

    def kill(self, number: int) -> None:
        """End every process of that number's group."""
        self._tell(f"kill {number}")

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

    def close(self, remove: bool = False) -> None:
        """End it with all that runs inside, and leave nothing of it; to ``remove`` is what may have
        been started all the same."""
        if self._closed:
            return
        self._closed = True
        self._end()
        try:
            self._proc.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._kill()
            self._proc.wait()
        if (self._proc.returncode < 0 or remove) and self.engine not in TRACELESS:
            # Killed by whomever, its program has tidied nothing up.
            argv = [self.engine, "rm", "--force", self.name]
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        if self._proc.stdout is not None:
            self._proc.stdout.close()
        # What watches over a container may be ours by now, and still be tidying up.
        until = time.monotonic() + _PATIENCE
        beside = self._beside
        while ((beside and beside.poll() is None) or has_watchers()) and time.monotonic() < until:
            time.sleep(0.02)

    def _end(self) -> None:
        self._until = min(self._until, time.monotonic() + _PATIENCE)
        with contextlib.suppress(OSError):
            self._to.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._proc.pid, signal.SIGKILL)
        self._gone()

    def _gone(self) -> None:
        self.over, self.lost = True, self._until == float("inf")

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # it is gone: `ended` will tell
            self._to.write(line.encode() + b"\n")
            self._to.flush()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while not self.over:
                piece = os.read(self.fd, 1 << 16)
                self._rest += piece
                if not piece:
                    self._gone()


class Contained(Running):
    """The processes of a node whose ranks run in a room. What needs descriptors of ours is ours,
    and stays outside."""

    pace = _BEAT

    def __init__(self, room: NodeContainer) -> None:
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
            found += [Ended.of(each, -signal.SIGKILL) for each in self._inside.values()]
            self._inside.clear()
        return super().reap() + sorted(found, key=lambda ended: ended.signal is None)

    def send(self, number: signal.Signals) -> None:
        super().send(number)
        self._room.send(number)

    def kill(self, rank: int) -> None:
        super().kill(rank)
        for number, process in self._inside.items():
            if process.rank == rank:
                self._room.kill(number)

    def close(self) -> None:
        self._room.close()


def open_container(
    task: Task,
    name: str,
    folder: Path,
    wait: Wait,
    say: Callable[[str], None],
    more: Callable[[Container], Sequence[Mount]] = lambda container: (),
    *,
    host: str = "",
) -> NodeContainer:
    """The container of the attempt in ``folder``. Its image is made, or fetched if the node has not
    got it; ``say`` is told then. ``more`` returns further mounts, once the image is there;
    ``host`` is the container's name as a host, if not the node's.

    Raises AllranksError with the program's words if there is none to be had, and what ``wait``
    raises. ``task`` has a container.
    """
    container = task.container
    assert container is not None
    own = folder / "container"
    own.mkdir()
    log = Path(task.record, "build-logs", f"{name}.log")
    container = images.ensure(container, own, log, wait, say)
    given = [*mounts(task, str(folder), str(_OURS)), Mount(str(folder.parent / "state"), True)]
    given += more(container)
    tidying = _tidy_up(container)
    return start_room(container, name, own, given, wait, tidying, gpus=task.gpus > 0, host=host)


def start_room(
    container: Container,
    name: str,
    own: Path,
    given: Sequence[Mount],
    wait: Wait,
    beside: subprocess.Popen[bytes] | None = None,
    *,
    gpus: bool = False,
    host: str = "",
) -> NodeContainer:
    """Start a container of an image that is there. ``own`` is an empty folder for its program, and
    among the mounts, as are the programs of allranks. Raises as ``open_room``."""
    root = os.geteuid() == 0 or container.engine != "docker"
    argv = words(
        container,
        re.sub(r"[^A-Za-z0-9_.-]", "-", name),
        given,
        [str(_PROGRAM), str(own)],
        user="0:0" if root else f"{os.geteuid()}:{os.getegid()}",
        env={} if root else _who(own),
        gpus=gpus,
        home=str(own),
        host=host,
    )
    return NodeContainer(argv, name, own, wait, beside)


# What has ended and kept its name; and, where no daemon watches, what podman believes to run though
# all that would have told it otherwise was killed at once.
_TIDY = """\
"$0" container prune --force --filter label=LABEL --filter until=10m
[ "$0" = podman ] || exit 0
podman ps --filter label=LABEL --filter status=running --format '{{.ID}} {{.Pid}}' |
    while read -r id pid; do
        # The first time, podman waits in vain for who would tell it the end, and notes one.
        if [ "$pid" -gt 0 ] && ! grep -q '^State:.[^ZX]' "/proc/$pid/status"; then
            podman rm --force "$id" || podman rm --force "$id"
        fi
    done
""".replace("LABEL", LABEL)


def _tidy_up(container: Container) -> subprocess.Popen[bytes] | None:
    """Have what killed agents have left behind removed, meanwhile; None where nothing can be."""
    if container.engine in TRACELESS:
        return None
    return subprocess.Popen(
        ["/bin/sh", "-c", _TIDY, container.engine],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _who(folder: Path) -> dict[str, str]:
    """Of one whom the image has no name and no home for, which libraries ask about."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = str(os.geteuid())
    return {"HOME": str(folder), "USER": name, "LOGNAME": name}


def _script(log: Path, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> str:
    """What becomes the process. Variables stand in this file, which nobody else reads, and not on
    a command line; but for those that a shell does not take."""
    plain = {key for key in env if _NAME.fullmatch(key) and key not in _BASHS}
    odd = [f"{key}={value}" for key, value in env.items() if key not in plain]
    lines = [f"exec >>{shlex.quote(str(log))} 2>&1"]
    lines += [f"export {key}={shlex.quote(env[key])}" for key in env if key in plain]
    # Every Python inside tells where it is when asked (inside/sitecustomize.py).
    lines.append(
        f"export PYTHONPATH={shlex.quote(str(_OURS / 'inside'))}${{PYTHONPATH:+:$PYTHONPATH}}"
    )
    lines.append(f"cd {shlex.quote(str(cwd))} || exit 126")
    lines.append(f"exec {shlex.join([*(['env', *odd] if odd else []), *argv])}")
    return "\n".join(lines) + "\n"


def _not_started(engine: str, lines: Sequence[str]) -> AllranksError:
    why = images.reason(lines)
    verb = "exec" if engine in TRACELESS else "run"
    hint = f"try it there by hand: {engine} {verb} IMAGE true; resources.docker_args go to it, too"
    if "/bin/bash" in why:
        hint = "commands of jobs are bash's: the image needs a /bin/bash"
    return AllranksError(f"{engine} cannot start the container: {why}", hint=hint)
