"""Start ranks from a process that has imported their modules: `programs/warm_server.py`.

On this machine such a server outlives jobs: the local engine names a folder for all of a home, with
the socket of a process that starts servers outside of the job (`ALLRANKS_WARM`). On a cluster, and
where that process does not answer, a server is the job's own and lives as long as the launch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import monotonic as clock
from typing import Any, NamedTuple

from allranks import file_locks, folder_trees
from allranks.agent import programs
from allranks.agent.environments.uv import Wait
from allranks.agent.launch.warm_connection import WarmConnection, WarmProcess
from allranks.agent.processes import keeper
from allranks.agent.processes.ranks import SHELL, Process, Running
from allranks.agent.programs.allranks_warm.wire import MESSAGE, connect, send
from allranks.core.distributions.topology import STARTS_RANKS
from allranks.core.environments import warm_start
from allranks.core.environments.warm_start import Call, Cold
from allranks.core.job import code_packages
from allranks.core.plan import Task

Say = Callable[[str], None]

# Seconds for a started server to listen, and for a connected one to import. A job's timeout may be
# shorter.
_LISTENING, _IMPORTING = 30.0, 600
# Seconds without a job after which a server ends. On a cluster it ends with the launch.
IDLE, NEVER = 900.0, 1e9
# Said by a server whose modules have changed on disk.
STALE = "stale"
# Seconds between two looks for the socket of a server that starts, and between two starts.
_PACE, _AGAIN = 0.01, 0.5
# Room in the server's command line for the words of ranks, see `_show_words` there.
_ROOM = 2048

_ASK = """
import json, sys
print(json.dumps({"executable": sys.executable, "prefix": sys.prefix,
    "exec_prefix": sys.exec_prefix, "path": sys.path[1:]}))
"""


class WarmRanks(NamedTuple):
    """The ranks of a node that can start warm. ``variables`` are what the server's modules saw of
    the environment, ``loaded`` its top-level modules, ``interpreter`` how ``sys`` differs."""

    server: WarmConnection
    python: str
    variables: Mapping[str, str]
    loaded: frozenset[str]
    interpreter: Mapping[str, Any]

    def start(
        self, running: Running, process: Process, command: str, cwd: Path, env: Mapping[str, str]
    ) -> None:
        """Start a rank. Raises Cold if it has to start otherwise."""
        with _cold_if_it_fails("the rank cannot start warm"):
            self._start(running, process, command, cwd, env)

    def _start(
        self, running: Running, process: Process, command: str, cwd: Path, env: Mapping[str, str]
    ) -> None:
        folder, rest = warm_start.split_folder(command)
        work = Path(os.path.normpath(cwd / folder))  # as `cd` does
        call = warm_start.read_call(_words(rest, work, env))
        env = {**env, **call.variables}
        changed = {*self.variables.items()} ^ {*warm_start.import_time(env).items()}
        if names := {name for name, _ in changed} - {"PATH"}:
            raise Cold(f"{min(names)} differs between ranks")
        # What bash sets before it becomes the program.
        env |= {"PWD": str(work), "SHLVL": "0", "_": self.python}
        if folder:
            env["OLDPWD"] = str(cwd)
        with folder_trees.open_file(process.log, "ab") as log:
            message = {
                "cwd": str(work),
                "env": env,
                "words": call.words,
                "call": self._checked(call, work, env),
                "interpreter": self.interpreter,
            }
            pid, pidfd = self.server.fork(message, log.fileno())
        running.add(process, WarmProcess(self.server, pid), pidfd)

    def close(self) -> None:
        """End what the ranks left behind."""
        self.server.close()

    def _checked(self, call: Call, cwd: Path, env: Mapping[str, str]) -> dict[str, Any]:
        script = cwd / call.target if call.kind == "file" else cwd
        if call.kind == "file" and not _is_source(script):
            raise Cold(f"{call.target} is no script")
        folder = Path(os.path.realpath(script)).parent if call.kind == "file" else cwd
        for path in (folder, *_imported_from(env)):
            if (name := warm_start.own_module(os.listdir(path), self.loaded)) is not None:
                raise Cold(f"the job's {name} has the name of a module that is imported already")
        first = {"file": call.target, "module": "-m", "code": "-c"}[call.kind]
        return {"kind": call.kind, "target": call.target, "argv": [first, *call.arguments]}


def _imported_from(env: Mapping[str, str]) -> Iterator[Path]:
    """The folders of packages that came along with the code."""
    if file := env.get("ALLRANKS_IMPORTS"):
        for _, copy in code_packages.unpacked(Path(file).read_bytes()):
            yield from filter(Path.is_dir, (Path(copy), Path(copy, "src")))


@contextlib.contextmanager
def _cold_if_it_fails(what: str) -> Iterator[None]:
    """Turn an OSError into Cold: a cold start may succeed, or fail in a way that people know."""
    try:
        yield
    except OSError as error:
        raise Cold(f"{what}: {error.strerror or error}") from error


class Where(NamedTuple):
    """The folder of the agent, of the attempt, and the working folder."""

    agent: Path
    attempt: Path
    work: Path


def prepare(
    task: Task, command: str, env: Mapping[str, str], where: Where, wait: Wait, say: Say
) -> WarmRanks:
    """Connect to a server that has imported the modules of ``task.warm``, started if need be.

    ``env`` is a rank's environment as far as it is known; ``wait`` raises if the attempt is
    stopped. Raises Cold if the ranks cannot start warm.
    """
    if task.container is not None:
        raise Cold("they run in a container")
    if task.distribution in STARTS_RANKS:
        raise Cold(f"{task.distribution} starts them")
    folder, call = warm_start.read_command(command)
    env = {**env, **call.variables}
    python = shutil.which(call.python, path=env.get("PATH"))
    if python is None:
        raise Cold(f"there is no `{call.python}` on PATH")
    python = str(where.work / folder / python)
    own = str(where.attempt)
    in_layer = python.startswith(f"{where.attempt}/")
    interpreter = _interpreter(python, call.options, env) if in_layer else {}
    variables = warm_start.import_time(env)
    found_at = interpreter.get("path") or [python]
    program = programs.path_of("warm_server.py")
    identity = json.dumps(
        [
            task.warm,
            call.options,
            os.path.realpath(python),
            found_at,
            sorted(variables.items()),
            len(os.sched_getaffinity(0)),
            os.getuid(),
            program,
        ]
    )
    # A layer lies in the folder of its attempt and is otherwise the same in the next one.
    key = hashlib.sha256(identity.replace(own, "").encode()).hexdigest()[:24]
    most = _IMPORTING if task.timeout is None else min(_IMPORTING, task.timeout)
    servers = _Servers(where.agent, os.environ, wait, say, most)
    about = {"modules": task.warm, "key": key, "attempt": own}
    with _cold_if_it_fails("the warm server cannot be used"):
        connection, reply = servers.connect(about, [python, *call.options], variables)
        server = WarmConnection(connection)
        server.settle()
    return WarmRanks(server, python, variables, frozenset(reply["loaded"]), interpreter)


class _NotStarted(Exception):
    """The process that starts servers outside of jobs does not."""


class _Servers:
    """The warm servers that this agent may use."""

    def __init__(
        self, folder: Path, environ: Mapping[str, str], wait: Wait, say: Say, most: float
    ) -> None:
        shared = environ.get("ALLRANKS_WARM")
        self._shared = Path(shared) if shared else None
        self._own = folder / "warm"
        self._wait, self._say, self._most = wait, say, most

    def connect(
        self, about: Mapping[str, Any], python: list[str], env: Mapping[str, str]
    ) -> tuple[socket.socket, dict[str, Any]]:
        """A connection to a server, started if there is none, and its first answer. ``about`` are
        parameters of the server."""
        if self._shared is not None:
            with contextlib.suppress(_NotStarted):
                return self._connect(self._shared, about, python, env)
        return self._connect(self._own, about, python, env)

    def _connect(
        self, folder: Path, about: Mapping[str, Any], python: list[str], env: Mapping[str, str]
    ) -> tuple[socket.socket, dict[str, Any]]:
        own, key = folder == self._own, about["key"]
        idle = NEVER if own else IDLE
        request = {**about, "folder": str(folder), "idle": idle, "most": _IMPORTING + 1}
        program = programs.path_of("warm_server.py")
        argv = [*python, program, json.dumps(request) + " " * _ROOM]
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path, pid = folder / f"{key}.sock", None
        started, until = -_AGAIN, clock() + _LISTENING
        while True:
            connection = connect(str(path))
            if connection is not None:
                with contextlib.ExitStack() as unless_used:
                    unless_used.callback(connection.close)
                    try:
                        reply = _first_reply(connection, self._wait, self._most)
                    except Cold:
                        self._end_import(path.with_suffix(".lock"), pid)
                        raise
                    if reply is None and pid is not None:
                        raise Cold("the process that imports the modules has died")
                    if reply is not None and reply.get("refused") != STALE:
                        accepted = _accepted(reply)
                        if own:
                            # The one that was started may have been succeeded by another.
                            keeper.SPARED.add(accepted["server"])
                        unless_used.pop_all()
                        return connection, accepted
                pid = None
            elif (pid is None or not _lives(pid)) and clock() - started > _AGAIN:
                first, started = pid is None, clock()
                start = _start_below if own else self._start_outside
                pid = start(argv, env, folder / f"{key}.log")
                if first:
                    self._say(f"imports {', '.join(about['modules'])} once, for later ranks, too")
            if clock() > until:
                raise Cold("the warm server does not start", hint=f"see {path.with_suffix('.log')}")
            self._wait(None, _PACE)

    def _start_outside(self, argv: list[str], env: Mapping[str, str], log: Path) -> int:
        """Start a server of all jobs and return its process id. Raises _NotStarted: one that this
        agent started would end with it, and with that server the ranks of other jobs."""
        connection = connect(str(log.with_name("start.sock")))
        if connection is None:
            raise _NotStarted
        with connection:
            try:
                send(connection, {"argv": argv, "env": dict(env), "log": str(log)})
                self._wait(connection.fileno(), _LISTENING)
                return int(json.loads(connection.recv(MESSAGE, socket.MSG_DONTWAIT))["pid"])
            except (OSError, ValueError) as error:
                raise _NotStarted from error

    def _end_import(self, lock: Path, started: int | None) -> None:
        """Kill a server that has not answered in time, so that the next job imports anew. One that
        another job started may only be too slow for this job's timeout."""
        server = file_locks.holder(lock)
        if server is not None and (server == started or self._most == _IMPORTING):
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)


def _start_below(argv: list[str], env: Mapping[str, str], log: Path) -> int:
    """Start a server that ends with this agent, as everything below it. Return its process id."""
    with log.open("ab") as output:
        server = subprocess.Popen(
            argv,
            cwd="/",
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    keeper.SPARED.add(server.pid)
    server.returncode = 0  # the keeper's functions reap it
    return server.pid


def _first_reply(connection: socket.socket, wait: Wait, most: float) -> dict[str, Any] | None:
    """What the server says once it has imported; None if it has ended. Raises Cold after ``most``
    seconds."""
    wait(connection.fileno(), most)
    try:
        message = connection.recv(MESSAGE, socket.MSG_DONTWAIT)
    except BlockingIOError:
        of_job = ", the job's timeout" if most < _IMPORTING else ""
        raise Cold(f"importing takes longer than {most:g} seconds{of_job}") from None
    except ConnectionError:
        return None
    reply: dict[str, Any] | None = json.loads(message) if message else None
    return reply


def _accepted(reply: dict[str, Any]) -> dict[str, Any]:
    if "refused" in reply:
        raise Cold(reply["refused"])
    return reply


def _is_source(script: Path) -> bool:
    """Whether Python reads the file as text: it is no folder, no byte code and no archive."""
    return script.is_file() and script.suffix != ".pyc" and not zipfile.is_zipfile(script)


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] != b"Z"
    return False


def _words(command: str, cwd: Path, env: Mapping[str, str]) -> list[str]:
    """The words of a simple command, as bash makes them."""
    if not warm_start.expands(command):
        return shlex.split(command.replace("\\\n", " "))
    argv = [SHELL, "-c", f"printf '%s\\0' {command.strip()}"]
    done = subprocess.run(argv, cwd=cwd, env=dict(env), capture_output=True)
    if done.returncode or done.stderr:
        raise Cold("the shell cannot expand the command")
    return [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]


def _interpreter(python: str, options: tuple[str, ...], env: Mapping[str, str]) -> dict[str, Any]:
    """How ``sys`` of this Python says where it is."""
    done = subprocess.run([python, *options, "-c", _ASK], env=dict(env), capture_output=True)
    if done.returncode:
        raise Cold(f"{python} does not start")
    about: dict[str, Any] = json.loads(done.stdout)
    return about
