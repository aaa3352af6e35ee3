"""The local engine: nodes are agents on this machine, each with a loopback address of its own.

It keeps one folder a gang, so that a new server finds what an old one started, and one lock a node:
opened and locked here, inherited by the agent, held until its last process is dead. That is how
``poll`` knows, whoever's child the agent is by now, and with no process id to be confused about.
"""

from __future__ import annotations

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
from allranks.engines.base import MARKER, GangStatus, Handle, Host, Kind
from allranks.engines.local import fork_server
from allranks.engines.local.capacity import NOTHING, Capacity, need, this_machine
from allranks.engines.local.end_gang import end_gang
from allranks.engines.local.fork_server import ForkServer
from allranks.errors import EngineError, Refused
from allranks.plan.plan import Gang, pack
from allranks.settings import Home
from allranks.statuses import GangState

# Node 0 is 127.0.0.2: nothing that wrongly falls back to localhost meets a node by accident.
FIRST_ADDRESS = 2

# What agents find of the server's own environment, by how its names begin.
_HANDED_ON = re.compile(
    r"(?:PATH|HOME|LANG|XDG_RUNTIME_DIR|DOCKER_HOST|ALLRANKS_SYS_CLASS)$|APPTAINER_"
)

# Processes started without the nursery, held until they are reaped: an engine may be dropped while
# they run, and they outlive it on purpose.
_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}


class _Gang:
    """A gang of ours: its folder, and once started the GPUs it holds and the agents."""

    def __init__(self, gang: Gang, folder: Path, arrived: float, gpus: list[int] | None) -> None:
        self.gang, self.folder, self.arrived = gang, folder, arrived
        self.gpus = gpus
        self.pids: list[int] = []
        self.trouble = ""
        self.taken = ""

    @property
    def started(self) -> bool:
        return self.gpus is not None

    @property
    def turn(self) -> tuple[bool, float]:
        """Who waits is served in this order: spot ones after all others."""
        return self.gang.spot, self.arrived

    def dead_nodes(self) -> list[int]:
        return [
            n
            for n in range(self.gang.nodes)
            if not file_locks.is_held(self.folder / f"node-{n}.lock")
        ]


class LocalEngine:
    """Agents as processes of this machine. ``folder`` is the engine's own, ``nodes`` where agents
    work. One engine a home: the server's lock sees to it."""

    name = "local"
    pace = 0.0

    def __init__(self, folder: Path, nodes: Path, capacity: Capacity | None = None) -> None:
        self._folder, self._nodes = folder, nodes
        self._capacity = capacity or this_machine()
        self._known: dict[str, _Gang] | None = None
        self._nursery = ForkServer()

    @property
    def _gangs(self) -> dict[str, _Gang]:
        """The gangs of this home; read from disk when first asked for, so that an engine made only
        to plan with touches nothing."""
        if self._known is None:
            self._known = {}
            for each in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
                self._remember(each)
        return self._known

    def admit(self, gang: Gang) -> None:
        if gang.options:
            raise Refused(
                f"{self.name} has no option {sorted(gang.options)[0]!r}",
                where=f"resources.properties.{self.name}",
                hint="it has `cpus` and `memory`, per node",
            )
        short = self._capacity.short_of(need(gang))
        if short:
            raise Refused(
                f"the job can never run on this machine: it needs {', '.join(short)}",
                where="resources",
                hint="ask for less: fewer nodes, processes, GPUs or CPUs, or less memory a node",
            )

    def render(self, gang: Gang) -> str:
        words = [json.dumps(word) if " " in word else word for word in gang.argv]
        return f"{gang.nodes} × {' '.join(words)}"

    def submit(self, gang: Gang) -> Handle:
        if gang.key not in self._gangs:
            self.admit(gang)
            folder = self._folder / gang.key
            folder.mkdir(parents=True, exist_ok=True)
            found = _Gang(gang, folder, time.time(), None)
            _write(folder / "gang.json", {"gang": pack(gang), "arrived": found.arrived})
            self._gangs[gang.key] = found
        self._start_what_fits()
        return Handle(gang.key, gang.key)

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, GangStatus]:
        self._start_what_fits()
        return {handle.key: self._seen(handle.key) for handle in handles}

    def stop(self, handle: Handle) -> None:
        gang = self._gangs.pop(handle.key, None)
        # A keeper that ended by itself has ended all below it. Of one that was killed, or that
        # another server started, this is not known: then every process is looked at.
        codes = [self._code(pid) for pid in gang.pids] if gang is not None else []
        well = [code for code in codes if code is not None and code >= 0]
        if gang is None or len(well) < gang.gang.nodes:
            end_gang(self.mark(handle.key), self._folder / handle.key)
        for pid in gang.pids if gang is not None else ():
            self._nursery.forget(pid)
            if pid in _CHILDREN:
                child = _CHILDREN.pop(pid)
                child.kill()  # for a moment of its exec it has no environment, and is not swept
                child.wait()
        shutil.rmtree(self._folder / handle.key, ignore_errors=True)

    def check(self, options: Mapping[str, Any]) -> None:
        """Its options are those of every engine, and what does not fit is told of a job."""

    def hosts(self, options: Mapping[str, Any]) -> Sequence[Host]:
        has, free = self._capacity, self._free()
        name = os.uname().nodename
        own = Host(name, f"127.0.0.{FIRST_ADDRESS}", "up", cpus=has.cpus, free_cpus=free.cpus)
        return [own._replace(gpus=has.gpus, free_gpus=free.gpus, memory=has.memory)]

    def stop_all(self) -> None:
        """End every gang of this home, for when its server is gone and could not see to it."""
        self._known = {}  # what is about to end is not to be taken up again first
        for folder in list(self._folder.glob("*/")):
            self.stop(Handle(folder.name))

    def mark(self, key: str) -> str:
        """What a gang's processes carry: two homes may have a job of the same name."""
        home = hashlib.sha256(os.path.realpath(self._folder).encode()).hexdigest()[:12]
        return f"{home}.{key}"

    def _seen(self, key: str) -> GangStatus:
        gang = self._gangs.get(key)
        if gang is None:
            return GangStatus(GangState.GONE, "it is not there")
        if not gang.started:
            return GangStatus(GangState.QUEUED, gang.trouble or self._waits_for(gang))
        dead = gang.dead_nodes()
        if len(dead) == gang.gang.nodes:
            return GangStatus(GangState.GONE, _last_words(gang.folder))
        return GangStatus(GangState.UP, lost=tuple(dead), taken=gang.taken)

    def _free(self) -> Capacity:
        free = self._capacity
        for gang in self._gangs.values():
            if self._lives(gang):
                free = free.minus(need(gang.gang))
        return free

    def _lives(self, gang: _Gang) -> bool:
        return gang.started and len(gang.dead_nodes()) < gang.gang.nodes

    def _start_what_fits(self) -> None:
        """Start waiting gangs in the order they came. What an earlier one waits for is kept for
        it: a stream of small jobs cannot starve a large one."""
        waiting = [gang for gang in self._gangs.values() if not gang.started]
        if not waiting:
            return
        free = self._free()
        for gang in sorted(waiting, key=lambda each: each.turn):
            if not free.short_of(need(gang.gang)):
                self._start(gang)
            elif not gang.gang.spot:
                free = free.plus(self._make_room(gang, free))
            free = free.minus(need(gang.gang))

    def _make_room(self, gang: _Gang, free: Capacity) -> Capacity:
        """What spot gangs are to give up for it: those that give way anyway, then the youngest.
        Nothing if it would not do."""
        spots = [each for each in self._gangs.values() if each.gang.spot and self._lives(each)]
        found, gives = NOTHING, list[_Gang]()
        for each in sorted(spots, key=lambda one: (not one.taken, -one.arrived)):
            if not free.plus(found).short_of(need(gang.gang)):
                break
            found = found.plus(need(each.gang))
            gives.append(each)
        if free.plus(found).short_of(need(gang.gang)):
            return NOTHING
        for each in gives:
            each.taken = f"{gang.gang.key.rpartition('.')[0]} waits for its place"
        return found

    def _waits_for(self, gang: _Gang) -> str:
        free = self._free()
        for other in self._gangs.values():
            if not other.started and other.turn < gang.turn:
                free = free.minus(need(other.gang))
        return f"waits for {' and '.join(free.short_of(need(gang.gang))) or 'its turn'}"

    def _start(self, gang: _Gang) -> None:
        each = gang.gang.gpus
        taken = {g for other in self._gangs.values() if other.started for g in self._holds(other)}
        free = [gpu for gpu in range(self._capacity.gpus) if gpu not in taken]
        gpus = free[: each * gang.gang.nodes]
        # Written before the first agent runs: a server that dies here finds a started gang, and
        # starts the agents that have no lock file yet.
        _write(
            gang.folder / "gang.json",
            {"gang": pack(gang.gang), "arrived": gang.arrived, "gpus": gpus},
        )
        gang.gpus = gpus
        try:
            self._start_agents(gang)
            gang.trouble = ""
        except EngineError as error:
            self._take_back(gang, error)

    def _take_back(self, gang: _Gang, error: EngineError) -> None:
        """All or none: end the agents that did start, and let the gang wait for the next try."""
        end_gang(self.mark(gang.gang.key), gang.folder)
        for node in range(gang.gang.nodes):
            (gang.folder / f"node-{node}.lock").unlink(missing_ok=True)
        gang.gpus, gang.pids, gang.trouble = None, [], error.message
        _write(gang.folder / "gang.json", {"gang": pack(gang.gang), "arrived": gang.arrived})

    def _start_agents(self, gang: _Gang) -> None:
        each = gang.gang.gpus
        for node in range(gang.gang.nodes):
            # One that has begun has an outbox; one that a dying server was about to start has not.
            begun = self._nodes / gang.gang.key / str(node) / "outbox.jsonl"
            lock = gang.folder / f"node-{node}.lock"
            if not lock.exists() or not (file_locks.is_held(lock) or begun.exists()):
                self._start_agent(gang, node, (gang.gpus or [])[node * each : (node + 1) * each])

    def _holds(self, gang: _Gang) -> list[int]:
        return gang.gpus or [] if self._lives(gang) else []

    def _start_agent(self, gang: _Gang, node: int, gpus: Sequence[int]) -> None:
        folder = self._nodes / gang.gang.key / str(node)
        folder.mkdir(parents=True, exist_ok=True)
        cpus = gang.gang.cpus or self._capacity.cpus / gang.gang.nodes
        env = {
            **{name: text for name, text in os.environ.items() if _HANDED_ON.match(name)},
            **gang.gang.env,
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
                return  # it runs: an earlier server of this home started it
            held.append(lock)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            held.append(os.open(gang.folder / f"node-{node}.log", flags, 0o600))
            gang.pids.append(self._start_process(gang.gang.argv, str(folder), env, *held))
        except OSError as error:
            raise EngineError(f"an agent could not be started: {error.strerror}") from error
        finally:
            for file in held:
                os.close(file)

    def _start_process(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], lock: int, log: int
    ) -> int:
        """Start it in ``cwd`` with nothing but ``env``, holding ``lock``; its process id."""
        if tuple(argv) == fork_server.ARGV:
            return self._nursery.fork(env, cwd, lock, log)
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
        return self._nursery.code(pid) if child is None else child.poll()

    def _remember(self, folder: Path) -> None:
        try:
            data = json.loads((folder / "gang.json").read_text())
        except (OSError, ValueError):
            # Died before it was written: it was never started, and will be submitted again.
            shutil.rmtree(folder, ignore_errors=True)
            return
        gang = Gang(**{**data["gang"], "argv": tuple(data["gang"]["argv"])})
        found = _Gang(gang, folder, data["arrived"], data.get("gpus"))
        self._gangs[gang.key] = found
        if found.started:
            self._start_agents(found)


def _make(home: Home, options: Mapping[str, Any]) -> LocalEngine:
    return LocalEngine(home.engines / LocalEngine.name, home.nodes)


KIND = Kind(
    LocalEngine.name,
    "this machine; each node is an address of its own",
    (),
    _make,
    lambda home: _make(home, {}).stop_all(),
    spot=(),
)


def _write(path: Path, data: Mapping[str, object]) -> None:
    beside = path.with_suffix(".new")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(data, file)
    beside.replace(path)


def _last_words(folder: Path) -> str:
    """The last line any agent printed: they are silent unless something is badly wrong."""
    for log in sorted(folder.glob("node-*.log")):
        lines = log.read_text(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        if said:
            return said[-1]
    return "its agents are gone"
