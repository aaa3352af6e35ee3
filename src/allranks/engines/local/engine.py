"""The local engine: each node is an agent on this machine with its own loopback address.

Each gang has a folder, so that a restarted server finds it, and a lock file per node. The engine
takes the lock, the agent inherits it and holds it until its last process is dead. ``poll`` reads
the locks, so it depends neither on who the agent's parent is nor on reused process ids.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from allranks import file_locks
from allranks.core.packing import pack, unpack
from allranks.core.plan import Gang
from allranks.engines.base import MARKER, GangStatus, Handle, Host, Kind
from allranks.engines.local import fork_server, warm_processes
from allranks.engines.local.capacity import Capacity, need, this_machine
from allranks.engines.local.end_gang import end_gang
from allranks.engines.local.queue import Entry, turns
from allranks.engines.options import Option, Type
from allranks.errors import Refused
from allranks.settings import Home
from allranks.statuses import GangState

# Node 0 is 127.0.0.2, so that a program that wrongly falls back to localhost reaches no node.
FIRST_ADDRESS = 2

# The server's own variables that agents inherit.
_HANDED_ON = re.compile(
    r"(?:PATH|HOME|LANG|XDG_RUNTIME_DIR|DOCKER_HOST|ALLRANKS_SYS_CLASS)$|APPTAINER_"
)

_MAX_RANKS = Option(
    "max_ranks",
    "ranks that run at once before other jobs wait, 0 for any number (its CPUs)",
    Type.COUNT,
    live=True,
)

# Processes started without the fork server, until they are reaped. They outlive the engine object.
_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}


class _Gang:
    """A gang and its folder; once started, also its GPUs and its agents."""

    def __init__(self, gang: Gang, folder: Path, arrived: float, gpus: list[int] | None) -> None:
        self.gang, self.folder, self.arrived = gang, folder, arrived
        self._locks = [folder / f"node-{node}.lock" for node in range(gang.nodes)]
        self.gpus = gpus
        self.pids: list[int] = []
        self.trouble = ""
        self.taken = ""
        self.ended = False
        self.entry: Entry | None = None

    @property
    def started(self) -> bool:
        return self.gpus is not None

    def dead_nodes(self) -> list[int]:
        return [node for node, lock in enumerate(self._locks) if not file_locks.is_held(lock)]


class LocalEngine:
    """Agents as processes of this machine. ``folder`` is the engine's own, ``nodes`` that of the
    agents. A home has one engine at a time, because the server holds a lock."""

    name = "local"
    pace = 0.0

    def __init__(self, folder: Path, nodes: Path, capacity: Capacity | None = None) -> None:
        self._folder, self._nodes = folder, nodes
        self._capacity = capacity or this_machine()
        own = os.environ.get("ALLRANKS_MAX_RANKS", "")
        self._most = int(own) if own.isdecimal() else int(self._capacity.cpus)
        self._known: dict[str, _Gang] | None = None
        # Why each gang in the queue waits, as of the last look.
        self._waits: Mapping[str, str] = {}
        # Servers of imported modules, which outlive jobs: see agent/launch/warm_ranks.py.
        self._home = Home(nodes.parent)
        self._warm = self._home.warm
        self._fork_server = fork_server.of(self._home)

    @property
    def _gangs(self) -> dict[str, _Gang]:
        """The gangs of this home, read on first use: an engine made only to plan reads nothing."""
        if self._known is None:
            self._known = {}
            for folder in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
                self._load(folder)
        return self._known

    def _all(self) -> list[_Gang]:
        """The gangs of now: requests look at them while a loop starts and ends some."""
        return [*self._gangs.values()]

    def prepare(self) -> None:
        self._fork_server.start()

    def admit(self, gang: Gang) -> None:
        if unknown := sorted(gang.options.keys() - {_MAX_RANKS.name}):
            raise Refused(
                f"unknown option {unknown[0]!r} of {self.name}",
                where=f"resources.properties.{self.name}",
                hint="options: `cpus` and `memory`, per node, and `max_ranks`",
            )
        missing = self._capacity.missing(need(gang))
        if missing:
            raise Refused(
                f"the job can never run on this machine: it needs {', '.join(missing)}",
                where="resources",
                hint="request fewer nodes, processes, GPUs or CPUs, or less memory per node",
            )

    def render(self, gang: Gang) -> str:
        arguments = [json.dumps(word) if " " in word else word for word in gang.argv]
        return f"{gang.nodes} × {' '.join(arguments)}"

    def submit(self, gang: Gang) -> Handle:
        if gang.key not in self._gangs:
            self.admit(gang)
            folder = self._folder / gang.key
            folder.mkdir(parents=True, exist_ok=True)
            self._gangs[gang.key] = _Gang(gang, folder, time.time(), None)
        waiting = self._gangs[gang.key]
        if not waiting.started:
            waiting.gang, waiting.entry = waiting.gang._replace(options=gang.options), None
        self._start_what_fits()
        if not self._gangs[gang.key].started:  # else it was saved as it started
            self._save(self._gangs[gang.key])
        return Handle(gang.key, gang.key)

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, GangStatus]:
        for handle in handles:
            if handle.key in self._gangs:
                self._gangs[handle.key].ended = handle.ended
        self._start_what_fits()
        return {handle.key: self._status(handle.key) for handle in handles}

    def stop(self, handle: Handle) -> Sequence[str]:
        gang = self._gangs.pop(handle.key, None)
        pids = gang.pids if gang is not None else []
        # A keeper that exited by itself has ended everything below it. If one was killed, or was
        # started by another server, all processes of the machine are searched.
        codes = [self._code(pid) for pid in pids]
        exited = [code for code in codes if code is not None and code >= 0]
        left: list[str] = []
        # A server of imported modules ends its ranks a moment after the agent has ended.
        if gang is None or (
            gang.started and (len(exited) < gang.gang.nodes or len(gang.dead_nodes()) < len(exited))
        ):
            left = end_gang(self.mark(handle.key), self._folder / handle.key)
        for pid in pids:
            self._fork_server.forget(pid)
            if pid in _CHILDREN:
                child = _CHILDREN.pop(pid)
                child.kill()  # during its exec it has no environment, so the search misses it
                child.wait()
        shutil.rmtree(self._folder / handle.key, ignore_errors=True)
        return left

    def check(self, options: Mapping[str, Any]) -> None:
        """Accept everything: `cpus` and `memory` are checked when a job is submitted."""

    def hosts(self, options: Mapping[str, Any]) -> Sequence[Host]:
        running = self._running()
        total, free = self._capacity, self._free(running)
        # A rank needs a CPU, whether or not its job names one.
        entries = [self._entry(gang) for gang in running]
        busy = sum(max(entry.need.cpus, entry.ranks) for entry in entries)
        return [
            Host(
                os.uname().nodename,
                f"127.0.0.{FIRST_ADDRESS}",
                "up",
                cpus=total.cpus,
                free_cpus=max(0.0, total.cpus - busy),
                gpus=total.gpus,
                free_gpus=free.gpus,
                memory=total.memory,
            )
        ]

    def stop_all(self) -> list[str]:
        """End every gang of this home, whose server is gone, and its warm servers. Return what
        could not be ended."""
        self._known = {}  # do not resume gangs that are about to end
        left: list[str] = []
        for folder in list(self._folder.glob("*/")):
            if _only_waits(folder):
                shutil.rmtree(folder, ignore_errors=True)  # without a search for its processes
            else:
                left += self.stop(Handle(folder.name))
        warm_processes.remove(self._warm)
        return left

    def mark(self, key: str) -> str:
        """Return the marker of a gang's processes, unique even if two homes share a job name."""
        home = hashlib.sha256(os.path.realpath(self._folder).encode()).hexdigest()[:12]
        return f"{home}.{key}"

    def _status(self, key: str) -> GangStatus:
        gang = self._gangs.get(key)
        if gang is None:
            return GangStatus(GangState.GONE, "the gang does not exist")
        if not gang.started:
            return GangStatus(GangState.QUEUED, gang.trouble or self._waits[key])
        dead = gang.dead_nodes()
        if len(dead) == gang.gang.nodes:
            return GangStatus(GangState.GONE, _last_line(gang.folder))
        return GangStatus(GangState.UP, lost=tuple(dead), taken=gang.taken)

    def _free(self, running: Sequence[_Gang]) -> Capacity:
        free = self._capacity
        if any(gang.gang.memory for gang in self._all()):
            free = free.minus(Capacity(0, 0, 0.0, warm_processes.memory(self._warm), 0))
        for gang in running:
            free = free.minus(need(gang.gang))
        return free

    def _running(self) -> list[_Gang]:
        return [gang for gang in self._all() if self._lives(gang)]

    def _lives(self, gang: _Gang) -> bool:
        return gang.started and len(gang.dead_nodes()) < gang.gang.nodes

    def _start_what_fits(self) -> None:
        """Start the waiting gangs whose turn it is, and tell spot gangs to give way to others."""
        waiting = [gang for gang in self._all() if not gang.started]
        self._waits = {}
        if not waiting:
            return
        running = self._running()
        free = self._free(running)
        needs = [self._entry(gang).need for gang in waiting]
        warm_processes.make_room(self._warm, free, needs)
        decision = turns(free, map(self._entry, running), map(self._entry, waiting))
        self._waits = decision.waits
        for key in decision.start:
            self._start(self._gangs[key])
        for key, to in decision.preempt.items():
            self._gangs[key].taken = f"{to.rpartition('.')[0]} waits in the queue"

    def _entry(self, gang: _Gang) -> Entry:
        if gang.entry is None:  # once: a burst of jobs asks for each a hundred times
            plan = gang.gang
            most = int(plan.options.get(_MAX_RANKS.name, self._most))
            entry = Entry(plan.key, need(plan), gang.arrived, plan.ranks, most, plan.fixed_ports)
            gang.entry = entry._replace(spot=plan.spot)
        if gang.ended:
            return gang.entry._replace(ranks=0, ports=(), preempted=bool(gang.taken))
        return gang.entry._replace(preempted=True) if gang.taken else gang.entry

    def _start(self, gang: _Gang) -> None:
        count = gang.gang.gpus
        taken = {g for other in self._all() if other.started for g in self._holds(other)}
        free = [gpu for gpu in range(self._capacity.gpus) if gpu not in taken]
        gpus = free[: count * gang.gang.nodes]
        gang.gpus = gpus
        # Saved before the first agent runs: if the server dies here, the next one finds a started
        # gang and starts the agents that have no lock file yet.
        try:
            self._save(gang)
            self._start_agents(gang)
            gang.trouble = ""
        except OSError as error:
            self._undo_start(gang, f"an agent could not be started: {error.strerror}")

    def _undo_start(self, gang: _Gang, trouble: str) -> None:
        """All or none: end the agents that did start, and queue the gang for the next try."""
        end_gang(self.mark(gang.gang.key), gang.folder)
        for node in range(gang.gang.nodes):
            (gang.folder / f"node-{node}.lock").unlink(missing_ok=True)
        gang.gpus, gang.pids, gang.trouble = None, [], trouble
        # On a full disk it stays saved as started: then the next server starts its agents.
        with contextlib.suppress(OSError):
            self._save(gang)

    def _start_agents(self, gang: _Gang) -> None:
        count = gang.gang.gpus
        for node in range(gang.gang.nodes):
            # An agent that has run has an outbox; one that a dying server did not start has none.
            outbox = self._nodes / gang.gang.key / str(node) / "outbox.jsonl"
            lock = gang.folder / f"node-{node}.lock"
            if not lock.exists() or not (file_locks.is_held(lock) or outbox.exists()):
                self._start_agent(gang, node, (gang.gpus or [])[node * count : (node + 1) * count])

    def _holds(self, gang: _Gang) -> list[int]:
        return gang.gpus if gang.gpus and self._lives(gang) else []

    def _start_agent(self, gang: _Gang, node: int, gpus: Sequence[int]) -> None:
        folder = self._nodes / gang.gang.key / str(node)
        folder.mkdir(parents=True, exist_ok=True)
        cpus = gang.gang.cpus or self._capacity.cpus / gang.gang.nodes
        env = {
            **{name: text for name, text in os.environ.items() if _HANDED_ON.match(name)},
            **gang.gang.env,
            **fork_server.variables(self._home),
            "ALLRANKS_WARM": str(self._warm),
            "ALLRANKS_AGENT_MEMORY": str(gang.gang.memory or ""),
            MARKER: self.mark(gang.gang.key),
            "ALLRANKS_AGENT_NODE": str(node),
            "ALLRANKS_AGENT_DIR": str(folder),
            "ALLRANKS_AGENT_ADDRESS": f"127.0.0.{FIRST_ADDRESS + node}",
            "ALLRANKS_AGENT_CPUS": str(max(1, int(cpus))),
            "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in gpus),
        }
        held: list[int] = []
        try:
            lock = file_locks.take(gang.folder / f"node-{node}.lock")
            if lock is None:
                return  # an earlier server of this home started it, and it runs
            held.append(lock)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            held.append(os.open(gang.folder / f"node-{node}.log", flags, 0o600))
            gang.pids.append(self._start_process(gang.gang.argv, str(folder), env, *held))
        finally:
            for file in held:
                os.close(file)

    def _start_process(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], lock: int, log: int
    ) -> int:
        """Start it with only ``env`` as environment, holding ``lock``. Return its process id."""
        if tuple(argv) == fork_server.ARGV:
            return self._fork_server.fork(env, cwd, lock, log)
        child = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[lock],
            start_new_session=True,
        )
        _CHILDREN[child.pid] = child
        return child.pid

    def _code(self, pid: int) -> int | None:
        child = _CHILDREN.get(pid)
        return self._fork_server.code(pid) if child is None else child.poll()

    def _load(self, folder: Path) -> None:
        try:
            data = json.loads((folder / "gang.json").read_text())
        except (OSError, ValueError):
            # The server died before writing it: it never started, and is submitted again.
            shutil.rmtree(folder, ignore_errors=True)
            return
        plan = unpack(Gang, data["gang"])
        gang = self._gangs[plan.key] = _Gang(plan, folder, data["arrived"], data["gpus"])
        if gang.started:
            self._start_agents(gang)

    @staticmethod
    def _save(gang: _Gang) -> None:
        data = {"gang": pack(gang.gang), "arrived": gang.arrived, "gpus": gang.gpus}
        path = gang.folder / "gang.json"
        temporary = path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with open(os.open(temporary, flags, 0o600), "w") as file:
            file.write(json.dumps(data))  # `dump` has no fast encoder
        temporary.replace(path)


def _make(home: Home, options: Mapping[str, Any]) -> LocalEngine:
    return LocalEngine(home.engines / LocalEngine.name, home.nodes)


KIND = Kind(
    LocalEngine.name,
    "this machine; each node has its own address",
    (_MAX_RANKS,),
    _make,
    lambda home: _make(home, {}).stop_all(),
    spot=(),
    prepare=lambda engine: engine.prepare(),
)


def _only_waits(folder: Path) -> bool:
    """Whether the gang of that folder is in the queue and has never started an agent."""
    try:
        return json.loads((folder / "gang.json").read_text())["gpus"] is None
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _last_line(folder: Path) -> str:
    """The last line of the first agent's log that is not empty: agents print only if they fail."""
    for log in sorted(folder.glob("node-*.log")):
        lines = [line.strip() for line in log.read_text(errors="replace").split("\n")]
        if printed := list(filter(None, lines)):
            return printed[-1]
    return "its agents have ended"
