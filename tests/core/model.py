"""Every interleaving of the real ``decide``, ``fold`` and ``order`` with a dishonest world.

A state is a job record and a world: what the engine really did, what each agent really does, what
each has said that the server has not heard. From every state every possible next thing is tried,
good and bad; ``explore`` checks the promises of docs/design/state-machine.md in each of them.

Time is abstract: a limit may run out at any moment, times in the record are kept only as far as
their order decides (the first failure). Equal nodes are interchangeable: states are sorted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, combinations
from typing import Any, NamedTuple

from allranks.core.attempt_end import Failure
from allranks.core.lifecycle import decide as policy
from allranks.core.lifecycle import fold as fold_module
from allranks.core.lifecycle import retry
from allranks.core.lifecycle.agent_orders import brief, places
from allranks.core.lifecycle.decide import Clock, Effect, Job, Node, Step
from allranks.core.lifecycle.retry import Spent
from allranks.core.plan import Place, Rules
from allranks.events import Event, Kind
from allranks.statuses import (
    TERMINAL,
    VERDICTS,
    Blame,
    GangState,
    JobStatus,
    NodeState,
    Reason,
    RetryOn,
)


def order(job: Job, node: int, launch: int, attempt: int) -> dict[str, Any]:
    """What the agent of ``node`` gets in its order and, to start, with it."""
    data: dict[str, Any] = {**brief(job, node, launch, attempt)}
    return {**data, "places": places(job)} if data["do"] == "go" else data


FOREVER = 1e9
LONG = 1e3
PLACE = Place("10.0.0.1", "host", (7000,))
TOLD = {"address": PLACE.address, "host": PLACE.host, "ports": PLACE.ports}
# Endings that no later failure changes.
SETTLED = (Reason.DONE, Reason.CANCELED, Reason.TIME_LIMIT)
TWICE = Rules(nodes=2, max_attempts=2)
RUNS = ("run", "serve", "going")
HUNG = Failure(Reason.HANG, 0, 0)
ALIVE = ("setup", "gate", *RUNS, "drain", "done", "exited")


class Say(NamedTuple):
    """An event an agent has put in its outbox; ``attempt`` counts back from the job's."""

    kind: Kind
    attempt: int
    reason: Reason | None = None
    at: int = 0


class Agent(NamedTuple):
    """What a node really does. ``off`` → setup → gate → run (→ serve) → drain → exited → bye, or
    dead; ``going`` instead of run while it is taken away and its ranks have their grace; ``done``
    instead of drain on the only node of a job, which leaves without an order.
    ``order`` is what it fetched and has not looked at; ``lag`` how far its attempt is
    behind the job's; ``cut``: it can reach nobody, nor be reached; ``ghost``: it was cut off when
    its gang was ended, and lives on."""

    phase: str = "off"
    lag: int = 0
    cut: bool = False
    ghost: bool = False
    order: tuple[str, Any] | None = None
    outbox: tuple[Say, ...] = ()


class World(NamedTuple):
    """``gang`` of the current launch: none, queued, up, gone. ``late``: a submit that a dead
    server left in flight."""

    agents: tuple[Agent, ...]
    gang: str = "none"
    late: bool = False


State = tuple[Job, World]


class Edge(NamedTuple):
    """``fair``: needs no bad luck and nobody's help. ``server``: the server and engine alone."""

    label: str
    state: State
    fair: bool = True
    server: bool = False


class Broken(AssertionError):
    """A promise that does not hold, with the way that leads there."""


@dataclass
class Model:
    """What is explored, and which faults the world has in store."""

    nodes: int = 2
    rules: Rules = TWICE
    services: bool = False
    races: bool = False
    setups: bool = False
    preempts: bool = False
    cuts: bool = True
    twice: bool = True
    crashes: bool = True
    salvage: bool = True
    timeout: bool = True
    hangs: bool = False
    backlog: int = 9
    decide: Callable[[Job, Rules, Clock], Step | None] = policy.decide
    folds: Callable[[Job, Event], Job] = fold_module.fold
    order: Callable[[Job, int, int, int], dict[str, Any]] = order
    _steps: dict[Any, list[tuple[str, Step, bool]]] = field(default_factory=dict)

    def fold(self, job: Job, event: Event) -> Job:
        return self.folds(job, event)

    # ------------------------------------------------------------ one state

    def start(self) -> State:
        return policy.new(self.nodes), World((Agent(),) * self.nodes)

    def tidy(self, job: Job, world: World) -> State:
        """The one representative of all states that differ only in times, numbers and names."""
        then = job.then
        settled = then is not None and then.purpose == "finish" and then.reason in SETTLED
        order: tuple[float, ...] = ()
        if not settled:
            told = {n.at for n in job.nodes} | {s.at for a in world.agents for s in a.outbox}
            told |= {job.hung.at} if job.hung else set()
            order = tuple(sorted(told - {0}))
        pairs = [_tidy(n, a, order, settled) for n, a in zip(job.nodes, world.agents, strict=True)]
        if self.nodes > 1:
            pairs.sort(key=_by_name)
        if job.status in TERMINAL:
            self._after_the_end(job, world)
            return policy.new(self.nodes)._replace(status=job.status), self.start()[1]
        closing = job.status is JobStatus.FINALIZING
        if then is not None and then.purpose == "finish":
            # Counts and a cancel say nothing any more.
            job = job._replace(canceled=True, spent=Spent())
        hello = closing or all(n.state is not NodeState.ABSENT for n in job.nodes)
        at = float((0, *order).index(job.hung.at)) if job.hung and order else 0.0
        job = job._replace(
            nodes=tuple(node for node, _ in pairs),
            hung=job.hung and HUNG._replace(at=at),
            why="",
            launch=1,
            attempt=1,
            submitted_at=None,
            spent=job.spent._replace(row=0),
            previous=None,
            went_at=None,
            started_at=None if job.started_at is None or not self.timeout else 0.0,
            up_at=None if job.up_at is None or hello else 0.0,
            closing_at=0.0 if closing else None,
            stopped_at=None if job.stopped_at is None else 0.0,
            not_before=0.0,
        )
        return job, world._replace(agents=tuple(agent for _, agent in pairs))

    # ------------------------------------------------------------ all that can happen next

    def edges(self, state: State) -> Iterator[Edge]:
        job, world = state
        if job.status in TERMINAL:
            return
        yield from self._decided(job, world)
        yield from self._engine(job, world)
        if not job.canceled:
            asked = self.fold(job, Event(Kind.CANCEL_ASKED, 0.0, job.launch, job.attempt))
            yield Edge("user: cancel", self.tidy(asked, world), fair=False)
        for which in (None, *range(self.nodes)) if self.preempts else ():
            word = Event(Kind.PREEMPT_ASKED, self._now(job, world), job.launch, job.attempt, which)
            asked = self.fold(job, word)
            if asked != job:
                yield Edge(f"user: preempt {which}", self.tidy(asked, world), fair=False)
        for index in range(self.nodes):
            yield from self._agent(job, world, index)
        if world.late:
            yield from self._late(job, world)
        self._fenced(job, world)

    def clocks(self, job: Job, world: World) -> Iterator[tuple[str, Rules, Clock, bool]]:
        """Every combination of limits that may have run out, and whether bad luck is needed."""
        can = [
            f"silent {i}" for i in range(self.nodes) if job.nodes[i].state is not NodeState.ABSENT
        ]
        can.append("grace") if job.status is JobStatus.FINALIZING else can.append("hello")
        can.append("again") if job.stopped_at is not None else None
        can.append("waited") if job.then is not None and job.then.purpose == "regroup" else None
        can.append("timeout") if job.started_at is not None and self.timeout else None
        can.append("missed") if job.gone is Reason.SETUP_FAILED else None
        can.append("hung") if job.status is JobStatus.RUNNING and self.hangs else None
        for due in chain.from_iterable(combinations(can, n) for n in range(len(can) + 1)):
            silent = frozenset(i for i in range(self.nodes) if f"silent {i}" in due)
            clock = Clock(
                now=LONG if "waited" in due else policy.STOP_AGAIN if "again" in due else 0.0,
                silent=silent,
                hello=-FOREVER if "hello" in due else FOREVER,
                grace=-FOREVER if "grace" in due else FOREVER,
                missed="missed" in due,
                hung=HUNG if "hung" in due else None,
            )
            rules = self.rules._replace(timeout=-1.0 if "timeout" in due else FOREVER)
            fair = not {"timeout", "hung", "missed"} & {*due} and all(
                _silent(world.agents[i]) for i in silent
            )
            if "hello" in due:
                absent = [i for i, n in enumerate(job.nodes) if n.state is NodeState.ABSENT]
                fair = fair and any(_silent(world.agents[i]) for i in absent)
            yield " ".join(due), rules, clock, fair

    def _decided(self, job: Job, world: World) -> Iterator[Edge]:
        key = (job, tuple(_silent(agent) for agent in world.agents))
        if key not in self._steps:
            self._steps[key] = list(self._all_decided(job, world))
        for label, step, fair in self._steps[key]:
            for how, after in self._take(job, world, step):
                good = fair and not how.startswith("crash")
                yield Edge(f"{label} {how}", after, good, good)

    def _all_decided(self, job: Job, world: World) -> Iterator[tuple[str, Step, bool]]:
        found: dict[Any, tuple[str, Step, bool]] = {}
        for due, rules, clock, fair in self.clocks(job, world):
            step = self.decide(job, rules, clock)
            if step is None:
                continue
            same = (step.event, step.effect, step.node, str(step.data))
            if same not in found or (fair and not found[same][2]):
                found[same] = (f"decide: {step.event} {dict(step.data)} [{due}]", step, fair)
        yield from found.values()

    def _take(self, job: Job, world: World, step: Step) -> Iterator[tuple[str, State]]:
        """The effect, then the record; or only the effect, when the server dies in between or the
        record has changed meanwhile."""
        if step.effect is Effect.SUBMIT:
            check(not job.canceled, "nothing is submitted after a cancel", (job, world))
            if world.gang == "none" and not world.late and self.crashes:
                message = {"message": "too many nodes"}
                yield "refused", self._write(job, world, Event(Kind.REFUSED, 0.0, data=message))
                yield "crash, in flight", self.tidy(job, world._replace(late=True))
            took = world._replace(gang="queued" if world.gang == "none" else world.gang)
            if self.crashes:
                yield "crash", self.tidy(job, took)
            yield "done", self._write(job, took, Event(step.event, 0.0))
        elif step.effect is Effect.STOP:
            stopped = self._gone(world)
            if self.crashes:
                yield "crash", self.tidy(job, stopped)
                yield "slow", self._write(job, world, Event(step.event, 0.0))
            yield "done", self._write(job, stopped, Event(step.event, 0.0))
        else:
            data = dict(step.data)
            if step.event is Kind.FINISHED:
                data = {"status": self._finished(job, world)}
            self._allowed(job, world, step)
            event = Event(step.event, self._now(job, world), node=step.node, data=data)
            yield "done", self._write(job, world, event)

    def _write(self, job: Job, world: World, event: Event) -> State:
        after = self.fold(job, event._replace(launch=job.launch, attempt=job.attempt))
        if after.attempt > job.attempt:
            check(not job.canceled, "no attempt after a cancel", (job, world))
            self._counted(job, after, world)
        if after.launch > job.launch:
            # What is late or could not be reached lives on, fenced from now: see `_fenced`.
            world = World((Agent(),) * self.nodes)
        elif after.attempt > job.attempt:
            agents = tuple(
                a._replace(
                    lag=a.lag + 1, outbox=tuple(s._replace(attempt=s.attempt + 1) for s in a.outbox)
                )
                for a in world.agents
            )
            world = world._replace(agents=agents)
        return self.tidy(after, world)

    def _engine(self, job: Job, world: World) -> Iterator[Edge]:
        agents = world.agents
        if world.gang == "queued":
            yield Edge("engine: starts", self.tidy(job, world._replace(gang="up")))
            yield Edge("engine: drops", self.tidy(job, world._replace(gang="gone")), fair=False)
        if world.gang == "up":
            over = all(a.phase in ("dead", "bye") for a in agents)
            yield Edge("engine: takes away", self.tidy(job, self._gone(world)), over, over)
        if job.status is JobStatus.NOT_STARTED or job.gang is GangState.GONE:
            return
        # The poll. No answer is no event. A gang that is not there yet may be taken for gone.
        state = {"queued": GangState.QUEUED, "up": GangState.UP}.get(world.gang, GangState.GONE)
        if state is not job.gang:
            reasons = [None, Reason.SETUP_FAILED] if state is GangState.GONE else [None]
            for reason in reasons:
                data = {"state": state, "why": "", "reason": reason}
                seen = Event(Kind.SEEN, 0.0, job.launch, job.attempt, data=data)
                told = self.tidy(self.fold(job, seen), world)
                yield Edge(f"seen: {state} {reason or ''}", told, fair=reason is None, server=True)
        if state is GangState.UP:
            for i, agent in enumerate(agents):
                node = job.nodes[i]
                if agent.phase == "dead" and not node.left and node.state is not NodeState.LOST:
                    event = Event(Kind.LOST, self._now(job, world), node=i, data={"why": "dead"})
                    # Not every engine can tell: no way out may need it.
                    told = self._write(job, world, event)
                    yield Edge(f"seen: {i} dead", told, fair=False, server=True)
                    yield from self._salvaged(job, world, i)
        if state is GangState.GONE:
            for i in range(self.nodes):
                yield from self._salvaged(job, world, i)

    def _salvaged(self, job: Job, world: World, i: int) -> Iterator[Edge]:
        """What a dead agent had not sent is found on a shared disk."""
        if not self.salvage:
            return
        if world.agents[i].outbox and world.agents[i].phase in ("dead", "bye"):
            after = self._heard(job, i, world.agents[i])
            told = self.tidy(after, self._put(world, i, outbox=()))
            yield Edge(f"salvage {i}", told, fair=False)

    def _late(self, job: Job, world: World) -> Iterator[Edge]:
        landed = world._replace(late=False)
        if world.gang == "none" and job.gang is not GangState.GONE:
            yield Edge("late submit lands", self.tidy(job, landed._replace(gang="queued")))
        else:
            yield Edge("late submit lands: fenced", (job, landed))
        yield Edge("late submit never lands", self.tidy(job, landed))

    # ----------------------------------------------------- agents, as agent/lifecycle/main.py is

    def _agent(self, job: Job, world: World, i: int) -> Iterator[Edge]:
        agent = world.agents[i]
        phase = agent.phase
        if phase == "off":
            if world.gang == "up":
                yield from self._hello(job, world, i)
            return
        name = f"agent {i}:"
        if phase in ALIVE:
            dead = self._dead(world, i)
            yield Edge(f"{name} dies", self.tidy(job, dead), fair=False)
            if self.cuts and not agent.cut:
                yield Edge(f"{name} cut off", self.tidy(job, self._put(world, i, cut=True)), False)
        if agent.cut:
            yield Edge(f"{name} heals", self.tidy(job, self._put(world, i, cut=False)))
            if phase in ("gate", "exited", "drain", "done"):
                bye = self._say(
                    job, world, i, "bye", Say(Kind.BYE, agent.lag, at=self._now(job, world))
                )
                # Its last word gets through in the end, is found on its disk, or is lost.
                told = self._heard(job, i, bye.agents[i])
                for after in (
                    self.tidy(told, self._put(bye, i, phase="dead", outbox=())),
                    self.tidy(job, self._dead(bye, i)),
                ):
                    yield Edge(f"{name} out of patience", after, fair=False)
        elif agent.outbox:
            heard = self._heard(job, i, agent)
            yield Edge(f"{name} is heard", self.tidy(heard, self._put(world, i, outbox=())))
            if self.twice and heard is not job:
                again = self._heard(heard, i, agent)
                check(again == heard, "said twice is said once", (job, world), again)
                yield Edge(f"{name} is heard, unacknowledged", self.tidy(heard, world), fair=False)
        if len(agent.outbox) < self.backlog:
            yield from self._acts(job, world, i)
        if not agent.cut and phase in ("gate", "run", "serve", "exited"):
            told = self._asks(job, i, agent)
            if told[0] == "go" and not agent.order:
                yield Edge(f"{name} fetches go", self.tidy(job, self._put(world, i, order=told)))
            elif told[0] not in ("go", "wait") and len(agent.outbox) < self.backlog:
                yield from self._obeys(job, world, i, *told)

    def _asks(self, job: Job, i: int, agent: Agent) -> tuple[str, Any]:
        told = self.order(job, i, job.launch, job.attempt - agent.lag)
        return told["do"], told.get("why", None)

    def _hello(self, job: Job, world: World, i: int) -> Iterator[Edge]:
        if job.nodes[i].state is NodeState.LOST:
            yield Edge(f"agent {i}: refused", self.tidy(job, self._put(world, i, phase="dead")))
            return
        agent = Agent("setup", outbox=(Say(Kind.HELLO, 0),))
        yield Edge(f"agent {i}: hello", self.tidy(job, self._put(world, i, **agent._asdict())))
        dead = self._put(world, i, phase="dead")
        yield Edge(f"agent {i}: never comes up", self.tidy(job, dead), fair=False)

    def _acts(self, job: Job, world: World, i: int) -> Iterator[Edge]:
        agent, name = world.agents[i], f"agent {i}:"
        phase = agent.phase
        lag, now = agent.lag, self._now(job, world)

        def ended(reason: Reason, label: str, fair: bool = True, to: str = "drain") -> Edge:
            say = Say(Kind.ENDED, lag, reason, now)
            return Edge(f"{name} {label}", self.tidy(job, self._say(job, world, i, to, say)), fair)

        def goes(to: str, kind: Kind, label: str) -> Edge:
            said = self._say(job, world, i, to, Say(kind, lag))
            return Edge(f"{name} {label}", self.tidy(job, said))

        if phase == "setup":
            yield goes("gate", Kind.READY, "is ready")
            why = Reason.SETUP_FAILED if self.setups else Reason.RANK_EXITED
            yield ended(why, "cannot prepare", fair=False)
        if phase == "gate" or phase == "going":
            yield ended(Reason.PREEMPTED, "is preempted", fair=phase == "going")
        if phase in ("run", "serve"):
            say = Say(Kind.TAKEN, agent.lag, Reason.PREEMPTED, self._now(job, world))
            going = self._say(job, world, i, "going", say)
            yield Edge(f"{name} is taken", self.tidy(job, going), fair=False)
        if phase == "gate" and agent.order:
            yield goes("run", Kind.STARTED, "goes")
        if phase == "run":
            yield ended(Reason.RANK_EXITED, "fails", fair=False)
            if self.races:
                # One that passes goes on like a port that was taken.
                yield ended(Reason.PORT_TAKEN, "loses its port", fair=False)
                yield ended(Reason.PORT_CONFLICT, "meets another job", fair=False)
            if self.services:
                yield goes("serve", Kind.WORKED, "worked")
            else:
                alone = self.nodes == 1
                yield ended(Reason.DONE, "is done", to="done" if alone else "drain")
        if phase == "serve":
            yield ended(Reason.RANK_EXITED, "fails to serve", fair=False)
        if phase == "drain" and not agent.outbox and not agent.cut:
            yield goes("exited", Kind.DRAINED, "drained")

        if phase == "done":  # nothing can follow: it leaves without an order
            world = self._say(job, world, i, "bye", Say(Kind.DRAINED, lag))
            bye = self._say(job, world, i, "bye", Say(Kind.BYE, lag, at=now))
            yield Edge(f"{name} drained, and leaves", self.tidy(job, bye))

    def _obeys(self, job: Job, world: World, i: int, do: str, why: Any) -> Iterator[Edge]:
        """Orders that stand once given: to fetch one and look at it later is to fetch it later."""
        agent, name = world.agents[i], f"agent {i}:"
        at_work = agent.phase in ("gate", *RUNS)
        if do == "leave":
            bye = self._say(
                job, world, i, "bye", Say(Kind.BYE, agent.lag, at=self._now(job, world))
            )
            yield Edge(f"{name} leaves", self.tidy(job, bye))
        elif do == "stop" and at_work:
            say = Say(Kind.ENDED, agent.lag, Reason(why), self._now(job, world))
            yield Edge(
                f"{name} stops, {why}", self.tidy(job, self._say(job, world, i, "drain", say))
            )
        elif do == "prepare" and agent.phase == "exited":
            again = self._put(world, i, phase="setup", order=None, lag=0)
            yield Edge(f"{name} prepares again", self.tidy(job, again))

    def _say(self, job: Job, world: World, i: int, phase: str, say: Say) -> World:
        # An order that was fetched is overtaken by what the agent does, but never `go` by silence.
        outbox = (*world.agents[i].outbox, say)
        return self._put(world, i, phase=phase, order=None, outbox=outbox)

    def _heard(self, job: Job, i: int, agent: Agent) -> Job:
        for number, say in enumerate(agent.outbox, 1):
            data: dict[str, Any] = dict(TOLD) if say.kind is Kind.READY else {}
            if say.kind in (Kind.ENDED, Kind.TAKEN):
                passing = say.reason is Reason.SETUP_FAILED
                data = {"reason": say.reason, "failed_at": say.at, "passing": passing}
            job = self.fold(
                job,
                Event(
                    say.kind,
                    say.at or self._now(job, None),
                    job.launch,
                    job.attempt - say.attempt,
                    i,
                    seq=number,
                    data=data,
                ),
            )
        return job

    def _dead(self, world: World, i: int) -> World:
        """What it said and had not sent is on its disk, for who can read that."""
        return self._put(world, i, phase="dead", **({} if self.salvage else {"outbox": ()}))

    def _put(self, world: World, i: int, **changes: Any) -> World:
        agents = world.agents
        changed = agents[i]._replace(**changes)
        return world._replace(agents=(*agents[:i], changed, *agents[i + 1 :]))

    def _gone(self, world: World) -> World:
        """Every process is dead but those the engine cannot reach either."""
        agents = tuple(
            a._replace(ghost=a.ghost or a.phase in ALIVE)
            if a.cut or a.ghost or a.phase in ("dead", "bye")
            else Agent("dead", outbox=a.outbox if self.salvage else ())
            for a in world.agents
        )
        return world._replace(gang="none" if world.gang == "none" else "gone", agents=agents)

    def _now(self, job: Job, world: World | None) -> int:
        told = [int(n.at) for n in job.nodes] + [int(job.hung.at) if job.hung else 0]
        told += [s.at for a in (world.agents if world else ()) for s in a.outbox]
        return max(told) + 1

    # ------------------------------------------------------------ promises

    def _allowed(self, job: Job, world: World, step: Step) -> None:
        state = (job, world)
        if step.event is Kind.GO:
            ready = all(
                n.state is NodeState.READY and n.attempt == job.attempt and not n.left
                for n in job.nodes
            )
            check(ready, "GO only to a full gang, all ready in this attempt", state)
            check(not job.canceled, "no GO after a cancel", state)
        if step.event in (Kind.FINISHED, Kind.RELAUNCHED):
            left = all(n.left for n in job.nodes)
            check(left or world.gang in ("none", "gone"), "the end waits for GONE or BYE", state)
            for agent in world.agents:
                alive = agent.phase in ALIVE and not (agent.cut or agent.ghost)
                check(not alive, "nothing of a launch outlives it", state)
        if step.data.get("reason") is Reason.DONE:
            worked = all(n.worked or n.reason is Reason.DONE for n in job.nodes)
            check(worked, "Completed only when every worker is done", state)
        if step.data.get("purpose") == "finish":
            again = VERDICTS[step.data["reason"]].retry == "user" and "user" in self.rules.on
            used = job.spent.user + 1 >= self.rules.max_attempts
            check(not again or used, "no attempt of the user's is withheld", state)
        if step.event is Kind.REGROUPED:
            here = all(n.state is NodeState.EXITED and not n.left for n in job.nodes)
            check(here and job.gang is not GangState.GONE, "a regroup needs all its nodes", state)
            runs = any(a.phase in RUNS for a in world.agents)
            check(not runs, "a regroup waits for the ranks", state)

    def _fenced(self, job: Job, world: World) -> None:
        """Agents of another launch, and those written off, are told to leave and not heard."""
        state = (job, world)
        told = self.order(job, 0, job.launch - 1, 1)["do"]
        check(told == "leave", "an agent of an old launch is told to leave", state, told)
        for kind in (Kind.READY, Kind.BYE):
            said = Event(kind, 0.0, job.launch - 1, job.attempt, 0, seq=99, data=TOLD)
            check(self.fold(job, said) is job, "an old launch is not heard", state)
        for i, node in enumerate(job.nodes):
            if node.state is NodeState.LOST:
                told = self.order(job, i, job.launch, job.attempt)["do"]
                check(told == "leave", "a node written off is told to leave", state, told)

    def _counted(self, job: Job, after: Job, world: World) -> None:
        state = (job, world)
        assert job.then is not None
        reasons = {n.reason for n in job.nodes if n.reason} | {Reason.NODE_LOST}
        possible = {VERDICTS[reason].retry for reason in reasons | {job.then.reason}}
        check(after.spent.user < self.rules.max_attempts, "max_attempts holds", state)
        for cause in RetryOn:
            most = retry.left(self.rules, Spent(), cause)
            check(after.spent.on(cause) <= most, "each cause has its limit", state, cause)
        more = [cause for cause in RetryOn if after.spent.on(cause) > job.spent.on(cause)]
        grown = sum(after.spent._replace(row=0)) - sum(job.spent._replace(row=0))
        check(len(more) == grown == 1, "an attempt is counted once", state)
        check(more[0] in possible, "what befell the job does not eat another budget", state)
        of_user = [n for n in job.nodes if n.reason and VERDICTS[n.reason].blame is Blame.USER]
        eaten = more[0] in (RetryOn.USER, RetryOn.HANG)
        check(
            not eaten or bool(of_user or job.hung), "a loss does not eat the user's attempts", state
        )

    def _finished(self, job: Job, world: World) -> JobStatus:
        state, cause = (job, world), policy.outcome(job)
        status = VERDICTS[cause.reason].outcome
        if status is JobStatus.COMPLETED:
            done = job.then is not None and job.then.reason is Reason.DONE
            check(done, "Completed is decided while all are done, never later", state)
        if status is JobStatus.FAILED and cause.reason is not Reason.TIME_LIMIT:
            check(cause.reason is not Reason.PEER_FAILED, "the cause is never PEER_FAILED", state)
            first = earliest(job)
            if first is not None:
                check(cause.reason is first, f"the cause is the earliest, {first}", state, cause)
        return status

    def inspect(self, state: State) -> None:
        """What must hold in every state."""
        job, world = state
        runs = {a.lag for a in world.agents if a.phase in RUNS and not (a.cut or a.ghost)}
        check(len(runs) <= 1, "ranks of two attempts never run at once", state)
        live = job.status not in TERMINAL | {JobStatus.FINALIZING, JobStatus.NOT_STARTED}
        if live and all(n.worked or n.reason is Reason.DONE for n in job.nodes):
            step = self.decide(job, self.rules, Clock(now=0.0, hello=FOREVER, grace=FOREVER))
            done = step is not None and step.data.get("reason") is Reason.DONE
            check(done, "all nodes done is Completed, whatever else is told", state, step)

    def _after_the_end(self, job: Job, world: World) -> None:
        state = (job, world)
        kinds = [Event(Kind.CANCEL_ASKED, 0.0), Event(Kind.SEEN, 0.0, data={"state": "up"})]
        for event in (*kinds, Event(Kind.LOST, 0.0, node=0), Event(Kind.CLOSING, 0.0)):
            check(self.fold(job, event) is job, "terminal is never left", state, event)
        for i, agent in enumerate(world.agents):
            check(self._heard(job, i, agent) is job, "terminal is never left", state)
            told = self.order(job, i, job.launch, job.attempt - agent.lag)
            check(told["do"] == "leave", "who comes after the end is told to leave", state, told)
        check(self.decide(job, self.rules, Clock(now=FOREVER)) is None, "the end is the end", state)


def earliest(job: Job) -> Reason | None:
    """The first thing that went wrong, worked out in another way than ``failure`` does."""
    found = []
    for node in job.nodes:
        if node.reason not in (None, Reason.DONE, Reason.PEER_FAILED):
            found.append((node.at, node.reason))
        elif node.reason is None and (node.left or node.state is NodeState.LOST):
            found.append((node.at, Reason.NODE_LOST))
    if job.hung is not None:
        found.append((job.hung.at, Reason.HANG))
    assert len({at for at, _ in found}) == len(set(found)), found
    return min(found)[1] if found else None


@cache
def _tidy(node: Node, agent: Agent, order: tuple[float, ...], settled: bool) -> tuple[Node, Agent]:
    if settled:
        # How it ends is decided: what more goes wrong, and when, says nothing.
        node = node._replace(reason=None, at=0, worked=False)
        outbox = tuple(s._replace(at=0, reason=s.reason and Reason.DONE) for s in agent.outbox)
        agent = agent._replace(outbox=outbox)
    rank = {at: float(i) for i, at in enumerate((0, *order))}
    if node.left or node.state is NodeState.LOST:
        # It is not heard any more, so it is all one what it says, and in which attempt.
        agent = agent._replace(outbox=(), lag=0)
    if agent.phase == "bye" and not agent.outbox:
        agent = Agent("dead")
    if agent.phase in ("dead", "bye"):
        agent = Agent(agent.phase, outbox=agent.outbox)
    outbox = tuple(s._replace(at=int(rank[s.at]), attempt=min(s.attempt, 1)) for s in agent.outbox)
    node = node._replace(
        at=rank[node.at],
        seq=min(node.seq, len(outbox)),
        place=None,
        message="",
        attempt=node.attempt and 1,
    )
    return node, agent._replace(outbox=outbox, lag=min(agent.lag, 1))


@cache
def _name(value: Node | Agent) -> str:
    return repr(value)


def _by_name(pair: tuple[Node, Agent]) -> tuple[str, str]:
    return _name(pair[0]), _name(pair[1])


def _silent(agent: Agent) -> bool:
    return agent.cut or agent.phase in ("dead", "bye")


def check(holds: bool, promise: str, state: State, *more: Any) -> None:
    if not holds:
        raise Broken(promise, *more, state)


# ---------------------------------------------------------------- the search


class Found(NamedTuple):
    states: int
    edges: int
    endings: int


def explore(model: Model, most: int = 2_000_000) -> Found:
    """Visit every state; raises Broken with the shortest way to the first broken promise."""
    start = model.start()
    number = {start: 0}
    states = [start]
    came: list[tuple[int, str]] = [(0, "start")]
    back_fair: list[list[int]] = [[]]
    back_server: list[list[int]] = [[]]
    edges = 0
    queue = deque([0])
    while queue:
        here = queue.popleft()
        state = states[here]
        try:
            model.inspect(state)
            for edge in model.edges(state):
                edges += 1
                there = number.get(edge.state)
                if there is None:
                    there = number[edge.state] = len(states)
                    assert there < most, "the state space is larger than it should be"
                    states.append(edge.state)
                    came.append((here, edge.label))
                    back_fair.append([])
                    back_server.append([])
                    queue.append(there)
                if edge.fair:
                    back_fair[there].append(here)
                if edge.server:
                    back_server[there].append(here)
        except Broken as broken:
            raise Broken(*broken.args, "\n".join(_way(came, here))) from None
    ends = [i for i, (job, _) in enumerate(states) if job.status in TERMINAL]
    _all_reach(states, came, ends, back_fair, lambda job, world: True, "no state is stuck")
    fresh = [i for i, (job, _) in enumerate(states) if job.status is JobStatus.NOT_STARTED]
    alone = "with all dead the server ends it alone, or starts anew"
    _all_reach(states, came, ends + fresh, back_server, _is_over, alone)
    return Found(len(states), edges, len(ends))


def _is_over(job: Job, world: World) -> bool:
    dead = all(a.phase in ("dead", "bye") or (a.phase == "off") for a in world.agents)
    submitted = job.status is not JobStatus.NOT_STARTED
    return dead and world.gang in ("none", "gone") and not world.late and submitted


def _all_reach(
    states: list[State],
    came: list[tuple[int, str]],
    ends: list[int],
    back: list[list[int]],
    which: Callable[[Job, World], bool],
    promise: str,
) -> None:
    good = set(ends)
    queue = deque(ends)
    while queue:
        for before in back[queue.popleft()]:
            if before not in good:
                good.add(before)
                queue.append(before)
    for i, (job, world) in enumerate(states):
        if which(job, world) and i not in good:
            raise Broken(promise, (job, world), "\n".join(_way(came, i)))


def _way(came: list[tuple[int, str]], to: int) -> list[str]:
    steps = []
    while to:
        to, label = came[to]
        steps.append(label)
    return steps[::-1]
