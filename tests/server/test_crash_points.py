"""A server that is killed at every single point of a job's life: before each statement by which it
changes the database, each commit, and before and after each thing it does at the engine.

The real loop, record and rules on a real database file; a life with a failure, another attempt in
the same launch, a lost node, and another launch. After each kill a new server opens the file.
"""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event as database_event

from allranks.core.lifecycle import decide, retry
from allranks.core.lifecycle.agent_orders import accepted
from allranks.core.lifecycle.fold import fold
from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.engines.base import GangStatus, Handle
from allranks.events import FROM_AGENTS, Event, Kind
from allranks.server.assets.state_folders import States
from allranks.server.ending.endings import Endings
from allranks.server.loop.heartbeats import Heartbeats
from allranks.server.loop.reconcile import Loop
from allranks.server.loop.wakeups import Wakeups
from allranks.settings import Clocks, Home, make
from allranks.statuses import TERMINAL, GangState, JobStatus, Reason
from allranks.store.database import open_database
from allranks.store.jobs.records import Records
from allranks.store.metric_points import Points
from tests.core.model import order

NODES = 2
PLACE = {"address": "10.0.0.1", "host": "a", "ports": [7000]}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another attempt waits for nothing: it is not what is tested here."""
    monkeypatch.setattr(retry, "wait", lambda *_: 0.0)


class Killed(BaseException):
    """What no handler of the product catches."""


class Fuse:
    """Kills whoever passes it for the n-th time."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, *_: object) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1


class Agent:
    """A node's agent, which outlives servers: what it says is kept until it was acknowledged."""

    def __init__(self, launch: int, node: int) -> None:
        self.launch, self.node, self.attempt = launch, node, 1
        self.said: list[Event] = []
        self.heard = 0
        self.phase = "new"

    def say(self, kind: Kind, **data: object) -> None:
        seq = len(self.said) + 1
        told = Event(kind, float(seq), self.launch, self.attempt, self.node, seq=seq, data=data)
        self.said.append(told)

    def act(self, job: decide.Job) -> None:
        told = order(job, self.node, self.launch, self.attempt)
        do = told["do"]
        if self.phase == "new":
            self.attempt = job.attempt  # as the answer to its hello says
            self.say(Kind.HELLO)
            self.ready()
        elif do == "leave" and self.phase != "left":
            self.say(Kind.BYE)
            self.phase = "left"
        elif self.phase == "gate" and do == "go":
            self.say(Kind.STARTED)
            self.phase = "runs"
        elif self.phase in ("gate", "runs") and do == "stop":
            self.ended(Reason(told["why"]))
        elif self.phase == "runs" and (self.launch, self.attempt, self.node) == (1, 1, 1):
            self.ended(Reason.RANK_EXITED)
        elif self.phase == "runs" and (self.launch, self.attempt, self.node) == (1, 2, 0):
            self.phase = "dead"
        elif self.phase == "runs" and self.launch == 2:
            self.ended(Reason.DONE)
        elif self.phase == "over" and do == "prepare":
            self.attempt = told["attempt"]
            self.ready()

    def ready(self) -> None:
        self.say(Kind.READY, **PLACE)
        self.phase = "gate"

    def ended(self, reason: Reason) -> None:
        self.say(Kind.ENDED, reason=reason)
        self.say(Kind.DRAINED)
        self.phase = "over"


class World:
    """The cluster and its agents: they do not notice that a server dies."""

    name, pace = "fake", 0.0

    def __init__(self) -> None:
        self.gangs: dict[str, list[Agent]] = {}
        self.started: Counter[str] = Counter()
        self.fuse = Fuse(-1)

    def submit(self, gang: Gang) -> Handle:
        self.fuse()
        if gang.key not in self.gangs:
            self.started[gang.key] += 1
            launch = int(gang.key.rpartition(".")[2])
            self.gangs[gang.key] = [Agent(launch, node) for node in range(gang.nodes)]
        self.fuse()
        return Handle(gang.key, "17")

    def poll(self, handles: Any) -> dict[str, GangStatus]:
        self.fuse()
        return {handle.key: self.seen(handle.key) for handle in handles}

    def seen(self, key: str) -> GangStatus:
        agents = self.gangs.get(key)
        if agents is None or all(agent.phase in ("left", "dead") for agent in agents):
            return GangStatus(GangState.GONE)
        return GangStatus(GangState.UP, lost=tuple(a.node for a in agents if a.phase == "dead"))

    def stop(self, handle: Handle) -> None:
        self.fuse()
        for agent in self.gangs.get(handle.key, []):
            agent.phase = "dead"
        self.fuse()


class Server:
    """One process' worth of server, that dies when its fuse has burnt down."""

    def __init__(self, home: Home, world: World, fuse: Fuse) -> None:
        self.world, world.fuse = world, fuse
        self.engine = open_database(home.database)
        database_event.listen(self.engine, "before_cursor_execute", self.changes)
        database_event.listen(self.engine, "commit", fuse)
        self.records = Records(self.engine)
        shared: Any = SimpleNamespace(
            home=home,
            records=self.records,
            points=Points(self.engine),
            clusters=SimpleNamespace(
                engine=lambda cluster: world,
                kind_of=lambda name: SimpleNamespace(options=(), queue=lambda gang: ""),
                options_now=lambda plan, spec: plan.gang.options,
            ),
            agent_variables=type(
                "A", (), {"reachable": lambda *_: True, "__call__": lambda *_: {}}
            )(),
            wakeups=Wakeups(),
            heartbeats=Heartbeats(60.0),
            clocks=Clocks(),
            data=None,
            hangs=SimpleNamespace(check=lambda row: None, forget=lambda row: None),
            states=States(home, self.records),
            working_folders=SimpleNamespace(
                set_aside=lambda *_, **__: None, drop_sent=lambda name: None
            ),
        )
        self.endings = Endings(home, self.records, shared.data, shared.working_folders)
        self.loop = Loop(SimpleNamespace(kind="fake"), shared, self.endings)  # type: ignore[arg-type]

    def changes(self, _: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.startswith(("INSERT", "UPDATE", "DELETE")):
            self.world.fuse()

    def tick(self) -> bool:
        """What the loop's thread does in a tick, and then what agents do; whether it is over."""
        rows = self.records.live()
        self.loop._statuses._next_poll = (
            0.0  # ticks here take no time, and polls rest in proportion
        )
        self.loop._statuses.poll(rows)
        for row in rows:
            self.loop._advance(self.records.get(row.name))
        self.endings.look(set())
        self.loop._take_outcomes()
        self.loop._clean()
        job = self.records.get("j").record
        for agents in list(self.world.gangs.values()):
            for agent in agents:
                if agent.phase not in ("dead", "left"):
                    agent.act(job)
                self.hear(agent)
        return job.status in TERMINAL

    def hear(self, agent: Agent) -> None:
        rest = agent.said[agent.heard :]
        said = accepted(self.records.get("j").record, agent.node, agent.launch, rest)
        if said and agent.phase != "dead":
            self.records.append("j", said)
            agent.heard = said[-1].seq


def live(home: Home, world: World, fuse: Fuse) -> bool:
    """Serve until the job is over, or the server is killed; whether it is over."""
    server = None
    try:
        server = Server(home, world, fuse)
        for _ in range(200):
            if server.tick():
                return True
        raise AssertionError("the job is stuck")
    except Killed:
        return False
    finally:
        if server is not None:
            server.engine.dispose()


def begin(root: Path) -> tuple[Home, World]:
    home = Home(root)
    make(home)
    engine = open_database(home.database)
    task, rules = Task("j", "ex", "true", NODES), Rules(NODES, max_attempts=2)
    Records(engine).create({}, Plan(Gang("j.1", NODES, ("agent",)), task, rules, "fake"))
    engine.dispose()
    return home, World()


def hold(home: Home, world: World) -> None:
    """Nothing is lost, nothing is twice, and the record is what its events say."""
    engine = open_database(home.database)
    records = Records(engine)
    row, events = records.get("j"), [told.event for told in records.events("j")]
    engine.dispose()
    assert row.record.status is JobStatus.COMPLETED
    assert (row.record.launch, row.record.attempt) == (2, 3)
    assert world.started == {"j.1": 1, "j.2": 1}
    job = decide.new(NODES)
    for event in events:
        job = fold(job, event)
    assert job == row.record
    for agents in world.gangs.values():
        for agent in agents:
            mine = (agent.launch, agent.node)
            told = [e.seq for e in events if (e.launch, e.node) == mine and e.kind in FROM_AGENTS]
            assert told == sorted(set(told)), "once each, in order"
            if agent.phase == "left" and agent.launch == 2:
                assert told == [event.seq for event in agent.said[: len(told)]]
    once = Counter(e.kind for e in events if e.kind not in FROM_AGENTS)
    assert once[Kind.FINISHED] == once[Kind.REGROUPED] == once[Kind.RELAUNCHED] == 1
    assert once[Kind.SUBMITTED] == 2
    assert once[Kind.GO] == 3


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.end_to_end
def test_killed_once_at_every_point(tmp_path: Path):
    number, over = 0, False
    while not over:
        home, world = begin(tmp_path / str(number))
        over = live(home, world, Fuse(number))
        if not over:
            assert live(home, world, Fuse(-1))
        hold(home, world)
        number += 1
    assert number > 60


@pytest.mark.parametrize("every", [7, 9, 12, 17, 23, 31])
def test_killed_again_and_again(tmp_path: Path, every: int):
    """Each server lives a little longer than the one before, or none would come anywhere."""
    home, world = begin(tmp_path)
    servers = 0
    while not live(home, world, Fuse(every + servers // 3)):
        servers += 1
        assert servers < 500
    assert servers > 3
    hold(home, world)
