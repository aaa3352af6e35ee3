"""A node's container: one for each attempt, in which all user code runs.

The agent stays outside and talks to ``inside/room.sh``, the container's first process, through its
standard input and output. When the agent dies, that input closes and the container ends, without
help of a daemon.
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
from typing import NamedTuple

from allranks import folder_trees
from allranks.agent.environments import images
from allranks.agent.environments.uv import Wait
from allranks.agent.processes.keeper import has_watchers
from allranks.agent.processes.ranks import Ended, Process, Running, last_lines
from allranks.core.environments.container import LABEL, TRACELESS, Mount, mounts, words
from allranks.core.plan import Container, Task
from allranks.errors import AllranksError, Unsupported

_OURS = Path(__file__).absolute().parents[1]
_PROGRAM = _OURS / "inside" / "room.sh"
# Seconds for a container to end, and for its engine to clean up.
_END_SECONDS = 10.0
# Seconds between pings, and how many may go unanswered. A count rather than a time, because agent
# and container may be suspended together.
_PING_SECONDS, _MAX_UNANSWERED = 5.0, 6
# The first line of room.sh.
_READY_LINE = b"allranks is up\n"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Variables that bash does not let anyone set.
_BASH_VARIABLES = set(
    """_ BASHOPTS BASHPID BASH_ARGV0 BASH_COMMAND BASH_SUBSHELL BASH_VERSINFO DIRSTACK EPOCHREALTIME
    EPOCHSECONDS EUID FUNCNAME GROUPS LINENO PIPESTATUS PPID RANDOM SECONDS SHELLOPTS SRANDOM
    UID""".split()  # noqa: SIM905  # twenty-one lines say no more
)

# Kills what has an entry in its environment until nothing has. An image may have no programs for
# it but bash.
_END_MARKED = """\
while [ "$some" != 0 ]; do
    some=0
    for process in /proc/[0-9]*; do
        while IFS= read -r -d '' entry; do
            [ "$entry" = "$1" ] && kill -s KILL "${process#/proc/}" && some=1
        done <"$process/environ"
    done
done 2>/dev/null
"""


class NodeContainer:
    """A running container. Not thread-safe."""

    def __init__(
        self,
        argv: Sequence[str],
        name: str,
        folder: Path,
        wait: Wait,
        cleanup: subprocess.Popen[bytes] | None,
    ) -> None:
        """Start the container and wait until it answers. ``cleanup``: a clean-up process to wait
        for when closing. Raises AllranksError with the engine's message, and what ``wait``
        raises."""
        self.name, self._folder, self.engine, self._cleanup = name, folder, argv[0], cleanup
        self._count, self._rest, self._until = 0, b"", float("inf")
        # Whether the container has ended; ``lost``: without our ending it.
        self.over = self.lost = False
        self._pinged_at, self._unanswered = time.monotonic(), 0
        self._closed = False
        log_path = folder / "container.log"
        with log_path.open("ab") as log:
            self._proc = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, process_group=0
            )
        assert self._proc.stdin is not None
        assert self._proc.stdout is not None
        self._to, self.fd = self._proc.stdin, self._proc.stdout.fileno()
        os.set_blocking(self.fd, False)
        try:
            while _READY_LINE not in self._rest and not self.over:
                wait(self.fd)
                self._read()
        except BaseException:
            self.close()
            raise
        # The image's BASH_ENV may print lines before it.
        _, up, self._rest = self._rest.partition(_READY_LINE)
        if not up:
            self.close(remove=True)
            raise _not_started(self.engine, last_lines(log_path))

    def ask(self, line: str, env: Mapping[str, str], wait: Wait) -> str:
        """Run a line of bash and return its output. Call it before starting anything else."""
        log = self._folder / "asked.log"
        log.unlink(missing_ok=True)
        self.start(log, ["/bin/bash", "-c", line], self._folder, env)
        while not self.ended() and not self.over:
            wait(self.fd)
        return folder_trees.read_file(log).decode(errors="replace") if log.exists() else ""

    def start(self, log: Path, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> int:
        """Start a process with ``env`` added to the image's variables. Returns its number."""
        self._count += 1
        path = self._folder / f"{self._count}.sh"
        _write_private(path, _script(f"exec >>{shlex.quote(str(log))} 2>&1", argv, cwd, env))
        self._write(f"start {self._count}")
        return self._count

    def entering(
        self, number: int, argv: Sequence[str], cwd: Path, env: Mapping[str, str], terminal: bool
    ) -> Entering:
        """How to run a program inside, beside the ranks. Thread-safe. Raises Unsupported, OSError.

        It is the engine's process: killing its client does not end it, so it carries a variable."""
        if self.engine in TRACELESS:
            hint = "use the node's files, or a compute with podman or docker"
            raise Unsupported(f"{self.engine} runs no second program in a container", hint=hint)
        path = self._folder / f"channel-{number}.sh"
        _write_private(path, _script("", argv, cwd, env))
        mark = f"ALLRANKS_CHANNEL={number}"
        into = ["exec", "--interactive", *["--tty"] * terminal, f"--env={mark}", self.name]
        end = ["exec", self.name, "/bin/bash", "-c", _END_MARKED, "bash", mark]
        return Entering(
            [self.engine, *into, "/bin/bash", str(path)], [self.engine, *end], str(path)
        )

    def send(self, number: signal.Signals) -> None:
        """Send a signal to every process; SIGKILL ends the container."""
        if number is signal.SIGKILL:
            self._end()
        else:
            self._write(number.name.removeprefix("SIG"))

    def kill(self, number: int) -> None:
        """Kill the process group of that number."""
        self._write(f"kill {number}")

    def ended(self) -> list[tuple[int, int]]:
        """Number and exit code of the processes that ended since the last call. A process may be
        reported twice; the first exit code counts."""
        if time.monotonic() > self._until or self._unanswered > _MAX_UNANSWERED:
            self._kill()
        self._read()
        complete, _, self._rest = self._rest.rpartition(b"\n")
        lines = [line.split() for line in complete.splitlines()]
        if lines:
            self._unanswered = 0
        elif time.monotonic() - self._pinged_at > _PING_SECONDS:
            self._pinged_at, self._unanswered = time.monotonic(), self._unanswered + 1
            self._write("beat")
        return [(int(line[1]), int(line[2])) for line in lines if line[:1] == [b"ended"]]

    def running(self) -> Running:
        """Process management for ranks inside the container."""
        return Contained(self)

    def close(self, remove: bool = False) -> None:
        """End the container and its processes. ``remove``: also remove it from the engine, in case
        it was started although it never answered."""
        if self._closed:
            return
        self._closed = True
        self._end()
        try:
            self._proc.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
            self._proc.wait()
        if (self._proc.returncode < 0 or remove) and self.engine not in TRACELESS:
            # The engine's client was killed and has not removed the container.
            argv = [self.engine, "rm", "--force", self.name]
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        if self._proc.stdout is not None:
            self._proc.stdout.close()
        # The container's monitor process may be our child by now, and still be cleaning up.
        until = time.monotonic() + _END_SECONDS
        cleanup = self._cleanup
        while ((cleanup and cleanup.poll() is None) or has_watchers()) and time.monotonic() < until:
            time.sleep(0.02)

    def _end(self) -> None:
        self._until = min(self._until, time.monotonic() + _END_SECONDS)
        with contextlib.suppress(OSError):
            self._to.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._proc.pid, signal.SIGKILL)
        self._set_over()

    def _set_over(self) -> None:
        self.over, self.lost = True, self._until == float("inf")

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the container has ended: see `ended`
            self._to.write(line.encode() + b"\n")
            self._to.flush()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while not self.over:
                piece = os.read(self.fd, 1 << 16)
                self._rest += piece
                if not piece:
                    self._set_over()


class Contained(Running):
    """The processes of a node whose ranks run in a container. Processes that inherit descriptors of
    the agent run outside."""

    pace = _PING_SECONDS

    def __init__(self, container: NodeContainer) -> None:
        super().__init__()
        self._container = container
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
            with folder_trees.open_file(process.log, "ab") as log:
                os.fchmod(log.fileno(), 0o600)
            self._inside[self._container.start(process.log, argv, cwd, env)] = process

    @property
    def fds(self) -> list[int]:
        return super().fds + ([self._container.fd] if self._inside else [])

    @property
    def processes(self) -> list[Process]:
        return super().processes + list(self._inside.values())

    def reap(self) -> list[Ended]:
        ended = [
            Ended.of(self._inside.pop(number), code)
            for number, code in self._container.ended()
            if number in self._inside
        ]
        if self._container.over:
            ended += [Ended.of(process, -signal.SIGKILL) for process in self._inside.values()]
            self._inside.clear()
        return super().reap() + sorted(ended, key=lambda end: end.signal is None)

    def send(self, number: signal.Signals) -> None:
        super().send(number)
        self._container.send(number)

    def kill(self, rank: int) -> None:
        super().kill(rank)
        for number, process in self._inside.items():
            if process.rank == rank:
                self._container.kill(number)

    def close(self) -> None:
        self._container.close()


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
    """Start the container of the attempt in ``folder``; first build or pull its image if the node
    does not have it. ``say`` receives the current activity. ``more`` returns further mounts once
    the image is present. ``host``: a host name, if not the node's.

    Raises AllranksError with the engine's message, and what ``wait`` raises.
    """
    container = task.container
    assert container is not None
    own = folder / "container"
    own.mkdir()
    log = Path(task.record, "build-logs", f"{name}.log")
    container = images.ensure(container, own, log, wait, say)
    mounted = [*mounts(task, str(folder), str(_OURS)), *more(container)]
    cleanup = _start_cleanup(container)
    return start_container(
        container, name, own, mounted, wait, cleanup, gpus=task.gpus > 0, host=host
    )


def start_container(
    container: Container,
    name: str,
    own: Path,
    mounted: Sequence[Mount],
    wait: Wait,
    cleanup: subprocess.Popen[bytes] | None = None,
    *,
    gpus: bool = False,
    host: str = "",
) -> NodeContainer:
    """Start a container of an image that the node has. ``own``: an empty folder for room.sh, which
    is among ``mounted``, as is the code of allranks. Raises as ``NodeContainer``."""
    root = os.geteuid() == 0 or container.engine != "docker"
    argv = words(
        container,
        re.sub(r"[^A-Za-z0-9_.-]", "-", name),
        mounted,
        [str(_PROGRAM), str(own)],
        user="0:0" if root else f"{os.geteuid()}:{os.getegid()}",
        env={} if root else _user_variables(own),
        gpus=gpus,
        home=str(own),
        host=host,
    )
    return NodeContainer(argv, name, own, wait, cleanup)


# Removes ended containers; and, as podman has no daemon, those it believes to be running because
# their monitors were killed.
_CLEANUP = """\
"$0" container prune --force --filter label=LABEL --filter until=10m
[ "$0" = podman ] || exit 0
podman ps --filter label=LABEL --filter status=running --format '{{.ID}} {{.Pid}}' |
    while read -r id pid; do
        # The first attempt times out waiting for the monitor and records the end.
        if [ "$pid" -gt 0 ] && ! grep -q '^State:.[^ZX]' "/proc/$pid/status"; then
            podman rm --force "$id" || podman rm --force "$id"
        fi
    done
""".replace("LABEL", LABEL)


def _start_cleanup(container: Container) -> subprocess.Popen[bytes] | None:
    """Start to remove containers that killed agents left; None if the engine keeps none."""
    if container.engine in TRACELESS:
        return None
    return subprocess.Popen(
        ["/bin/sh", "-c", _CLEANUP, container.engine],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _user_variables(folder: Path) -> dict[str, str]:
    """Variables that libraries expect, for a user that the image does not have."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = str(os.geteuid())
    return {"HOME": str(folder), "USER": name, "LOGNAME": name}


class Entering(NamedTuple):
    """``argv`` starts a program inside, which is in ``script``; ``end`` kills what it has left."""

    argv: list[str]
    end: list[str]
    script: str


def _script(redirect: str, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> str:
    """A script that becomes the process. Variables are set in this private file, not on a command
    line, except for those that bash cannot set."""
    plain = {key for key in env if _NAME.fullmatch(key) and key not in _BASH_VARIABLES}
    others = [f"{key}={value}" for key, value in env.items() if key not in plain]
    lines = [redirect]
    lines += [f"export {key}={shlex.quote(env[key])}" for key in env if key in plain]
    # Makes every Python inside print its stack on request (inside/sitecustomize.py).
    lines.append(
        f"export PYTHONPATH={shlex.quote(str(_OURS / 'inside'))}${{PYTHONPATH:+:$PYTHONPATH}}"
    )
    lines.append(f"cd {shlex.quote(str(cwd))} || exit 126")
    lines.append(f"exec {shlex.join([*(['env', *others] if others else []), *argv])}")
    return "\n".join(lines) + "\n"


def _write_private(path: Path, text: str) -> None:
    """Write a file in a folder that the container can write to, too."""
    with folder_trees.open_file(path, "wb", path.parents[1]) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(os.fsencode(text))


def _not_started(engine: str, lines: Sequence[str]) -> AllranksError:
    reason = images.reason(lines)
    verb = "exec" if engine in TRACELESS else "run"
    hint = f"run it by hand on the node, with resources.docker_args: {engine} {verb} IMAGE true"
    if "/bin/bash" in reason:
        hint = "the image needs /bin/bash, which runs the job's command"
    return AllranksError(f"{engine} cannot start the container: {reason}", hint=hint)
