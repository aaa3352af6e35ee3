"""An engine whose nodes are those of a running job: its agents start the gang's agents.

What is to be on each node is part of the orders to its agent, which starts and ends what differs.
A guest runs in the session that it names, or in any launch of its parent that is free: which one is
in its record before a node hears of it. The record has all that a new server needs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allranks import clock
from allranks.core.job import sessions
from allranks.core.job.sessions import ENGINE, NEEDS, OPTION, PARENT, End, Guest
from allranks.core.lifecycle.decide import is_out
from allranks.core.plan import Gang
from allranks.engines.base import GangStatus, Handle, Host, Kind
from allranks.errors import AllranksError, Refused
from allranks.events import Kind as EventKind
from allranks.server.loop.wakeups import Wakeups
from allranks.statuses import TERMINAL, GangState, JobStatus, NodeState
from allranks.store.jobs.job_rows import COMMAND, JobRow
from allranks.store.jobs.records import Records

if TYPE_CHECKING:
    from allranks.api.agents import GuestOrder

_HINT = "`allranks dev list` lists the sessions that there are"


class SessionEngine:
    """The guests of all sessions. ``variables`` returns those of a job's agents. Thread-safe."""

    name = ENGINE
    pace = 0.0

    def __init__(
        self,
        records: Records,
        wakeups: Wakeups,
        variables: Callable[[JobRow], Mapping[str, str]],
    ) -> None:
        self._records, self._wakeups, self._variables = records, wakeups, variables
        # By the session that they name, or the parent, and by key, in the order of submission; None
        # before the record was read.
        self._guests: dict[str, dict[str, Guest]] | None = None
        # What the jobs of each parent and need wait for that have no launch, as of the last poll.
        self._why: dict[tuple[str, str], str] = {}
        # The most seconds that a job has taken on each launch. After a restart of the server it
        # counts as used, though nobody knows for how long.
        self._longest: dict[str, float] = {}
        # What agents have said of the guests on each session, launch and node: whether they live.
        self._reported: dict[tuple[str, int, int], Mapping[str, bool]] = {}
        self._lock = threading.RLock()

    # ------------------------------------------------------------ as an engine

    def admit(self, gang: Gang) -> None:
        if PARENT in gang.options:
            return  # the parent starts launches that fit
        name = gang.options[OPTION]
        row = self._session(name)
        if (end := sessions.end_of(name, None if row is None else row.record)) is not None:
            raise Refused(end.why, where="inside", hint=f"start another one; {_HINT}")
        assert row is not None
        if why := sessions.never_fits(gang, name, row.plan):
            hint = "ask for less, or start a larger session"
            raise Refused(why, where="inside", hint=hint)

    def render(self, gang: Gang) -> str:
        return f"{gang.nodes} × {' '.join(gang.argv)}, on the nodes of {_queue_of(gang)}"

    def submit(self, gang: Gang) -> Handle:
        self.admit(gang)
        with self._lock:
            guests = self._all().setdefault(_queue_of(gang), {})
            guests.setdefault(gang.key, _guest(gang))
        self._start_next(_queue_of(gang))
        return Handle(gang.key)

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, GangStatus]:
        ended = {handle.key for handle in handles if handle.ended}
        with self._lock:
            for guests in self._all().values():
                for key in ended & guests.keys():
                    self._note_time(guests[key])
                    guests[key] = guests[key]._replace(ended=True)
            self._forget_ended()
            for name in [*self._all()]:
                self._start_next(name)
            self._why = {}
            return {handle.key: self._status(handle.key) for handle in handles}

    def stop(self, handle: Handle) -> None:
        with self._lock:
            for name, guests in [*self._all().items()]:
                if (guest := guests.pop(handle.key, None)) is not None:
                    if not guests:
                        del self._all()[name]
                    self._wakeups.notify(guest.session)
                    self._start_next(name)

    def check(self, options: Mapping[str, Any]) -> None:
        """Nothing depends on options."""

    def hosts(self, options: Mapping[str, Any]) -> Sequence[Host]:
        return ()

    # ------------------------------------------------------------ for agents

    def orders(
        self, row: JobRow, node: int, reported: Mapping[str, bool] | None
    ) -> list[GuestOrder] | None:
        """What is to be on a node of that job, as its agent has ``reported`` what is there; None if
        that is the same, the job is no session, or the agent is of an older version."""
        if reported is None or row.spec.get("session") is None:
            return None
        place = (row.name, row.record.launch, node)
        if not reported and self._guests is not None and not self._at(row):
            self._reported.pop(place, None)
            return None
        with self._lock:
            self._reported[place] = reported
            due = {
                guest.key: guest
                for guest in self._at(row)
                if guest.started and guest.session == row.name and node < guest.nodes
            }
            if due.keys() == reported.keys():
                return None
        orders: list[GuestOrder] = []
        for guest in due.values():
            variables = dict(self._variables(self._records.get(guest.name)))
            orders.append({"key": guest.key, "env": variables, "gpus": guest.gpus})
        return orders

    def has_guests(self, name: str) -> bool:
        """Whether a job is in that session, or waits there."""
        with self._lock:
            return name in self._all()

    def end_unused(self, name: str) -> bool:
        """Cancel a launch of a parent unless a job has been given it; whether it was canceled."""
        with self._lock:
            row = self._records.get(name)
            if any(guest.session == name and not guest.ended for guest in self._at(row)):
                return False
            self._records.append(name, [row.event(EventKind.CANCEL_ASKED)])
            return True

    # ------------------------------------------------------------ inside

    def _at(self, session: JobRow) -> list[Guest]:
        """The guests that run on its nodes, or may."""
        guests = self._all()
        return [
            *guests.get(session.name, {}).values(),
            *guests.get(session.parent or "", {}).values(),
        ]

    def _all(self) -> dict[str, dict[str, Guest]]:
        if self._guests is None:
            self._guests = {}
            rows = [row for row in self._records.live() if _is_submitted(row)]
            for row in sorted(rows, key=lambda row: row.record.submitted_at or 0.0):
                gang = row.plan.gang._replace(key=row.key)
                called = any(node.state is not NodeState.ABSENT for node in row.record.nodes)
                started = called or row.record.gang is GangState.UP
                guest = _guest(gang)._replace(started=started)
                session = guest.session or row.record.ref
                guests = self._guests.setdefault(_queue_of(gang), {})
                guests[row.key] = guest._replace(session=session)
            running = (row for row in self._records.live() if row.record.went_at is not None)
            self._longest |= {row.name: 0.0 for row in running if (row.number or 0) < 0}
        return self._guests

    def _session(self, name: str) -> JobRow | None:
        try:
            return self._records.get(name)
        except AllranksError:
            return None

    def _start_next(self, name: str) -> None:
        with self._lock:
            guests = self._all().get(name, {})
            if all(guest.started for guest in guests.values()):
                return
            for row in self._sessions(name):
                if row.record.status is not JobStatus.RUNNING or row.record.canceled:
                    continue
                own = sessions.needs(row.plan)
                here = [
                    guest
                    for guest in guests.values()
                    if guest.session == row.name or (not guest.session and guest.needs == own)
                ]
                if (guest := sessions.next_guest(here)) is None:
                    continue
                if guest.session or self._assign(guest, row):
                    guests[guest.key] = guest._replace(started=True, session=row.name)
                    self._wakeups.notify(row.name)

    def _sessions(self, name: str) -> list[JobRow]:
        """The session of that name; of a parent its live launches, oldest first."""
        row = self._session(name)
        if row is None or row.type == COMMAND:
            return [] if row is None else [row]
        return [row for row in self._records.live() if is_launch_of(row, name)]

    def _assign(self, guest: Guest, launch: JobRow) -> bool:
        """Record that a job which waits runs on that launch. A launch with too little time left is
        ended instead, once the job before has sent its files, and the job waits on."""
        row = self._records.get(guest.name)
        if row.key != guest.key or row.record.status is not JobStatus.QUEUED:
            return False
        longest = self._longest.get(launch.name)
        if longest is not None and not sessions.has_time_left(
            launch.record, row.plan.rules, row.record.spent, longest, clock.now()
        ):
            if all(guest.session != launch.name for guest in self._at(launch)):
                self._records.append(launch.name, [launch.event(EventKind.CANCEL_ASKED)])
            return False
        data = {"state": GangState.UP, "why": "", "reason": None, "ref": launch.name}
        row = self._records.append(row.name, [row.event(EventKind.SEEN, data=data)])
        return row.record.ref == launch.name

    def _note_time(self, guest: Guest) -> None:
        went_at = self._records.get(guest.name).record.went_at
        if guest.session and not guest.ended and went_at is not None:
            before = self._longest.get(guest.session, 0.0)
            self._longest[guest.session] = max(before, clock.now() - went_at)

    def _end(self, name: str, guest: Guest, row: JobRow | None) -> End | None:
        """Why the guest cannot go on in its session."""
        record = None if row is None else row.record
        if name == guest.session:
            return sessions.end_of(name, record)
        began = self._records.get(guest.name).record.up_at
        return sessions.end_of_launch(guest.session, record, began, clock.now())

    def _status(self, key: str) -> GangStatus:
        matches = ((name, of) for name, of in self._all().items() if key in of)
        name, guests = next(matches, ("", {}))
        if not name:
            return GangStatus(GangState.UNKNOWN if self._lives_on(key) else GangState.GONE)
        guest = guests[key]
        if not guest.session:
            waiting = name, guest.needs
            if waiting not in self._why:
                self._why[waiting] = self._waits_for(*waiting)
            return GangStatus(GangState.QUEUED, self._why[waiting])
        row = self._session(guest.session)
        end = self._end(name, guest, row)
        dead = () if row is None else self._dead(row, guest)
        if end is not None and (row is None or not self._saves(row, guest, dead)):
            return GangStatus(GangState.GONE, end.why, reason=end.reason)
        if not guest.started:
            before = next((other for other in guests.values() if other.started), None)
            what = f"{before.name} to end" if before is not None else f"{name} to run"
            return GangStatus(GangState.QUEUED, f"waits for {what}, in {name}")
        if len(dead) == guest.nodes:
            return GangStatus(GangState.GONE, f"its agents in {guest.session} have ended")
        return GangStatus(GangState.UP, lost=dead, taken=end.why if end is not None else "")

    def _waits_for(self, parent: str, needs: str) -> str:
        """What a job waits for that has no launch yet."""
        for row in self._sessions(parent):
            if row.record.status is not JobStatus.RUNNING and sessions.needs(row.plan) == needs:
                return f"waits for {row.name}" + (f": {row.record.why}" if row.record.why else "")
        return f"waits for nodes of {parent}"

    def _dead(self, session: JobRow, guest: Guest) -> tuple[int, ...]:
        """The nodes of a guest whose agents have ended, as its session's agents have said."""
        name, launch = session.name, session.record.launch
        places = [(name, launch, node) for node in range(guest.nodes)]
        states = [self._reported.get(place, {}).get(guest.key) for place in places]
        return tuple(node for node, lives in enumerate(states) if lives is False)

    def _saves(self, session: JobRow, guest: Guest, dead: Sequence[int]) -> bool:
        """Whether a guest still has agents that save, in a session that ends."""
        if session.record.status in TERMINAL or not guest.started:
            return False
        nodes = self._records.get(guest.name).record.nodes
        return any(not is_out(nodes[node]) for node in range(guest.nodes) if node not in dead)

    def _lives_on(self, key: str) -> bool:
        """Whether a stopped guest lives, as a node has said whose session still has that launch."""
        places = [place for place, states in self._reported.items() if states.get(key)]
        for name, launch, node in places:
            row = self._session(name)
            if row is None or row.record.launch != launch or row.record.status in TERMINAL:
                del self._reported[name, launch, node]
        return any(place in self._reported for place in places)

    def _forget_ended(self) -> None:
        for name in {*self._longest, *(place[0] for place in self._reported)}:
            row = self._session(name)
            if row is None or row.record.status in TERMINAL:
                self._longest.pop(name, None)
                for place in [place for place in self._reported if place[0] == name]:
                    self._reported.pop(place, None)


def session_kind(engine: SessionEngine) -> Kind:
    """The declaration of the engine, which no compute can have."""
    return Kind(ENGINE, "the nodes of a job that runs", (), lambda home, options: engine)


def parse_report(text: str) -> dict[str, bool]:
    """What an agent says of its guests: `KEY:1,KEY:0`."""
    pairs = (state.rpartition(":") for state in text.split(",") if state)
    return {key: lives == "1" for key, _, lives in pairs}


def is_launch_of(row: JobRow, parent: str) -> bool:
    """Whether a job keeps nodes for the children of that parent."""
    return row.parent == parent and row.number is not None and row.number < 0


def _queue_of(gang: Gang) -> str:
    """The job in whose queue it waits: the session that it names, or its parent."""
    return str(gang.options.get(OPTION) or gang.options[PARENT])


def _guest(gang: Gang) -> Guest:
    name, session = gang.key.rpartition(".")[0], gang.options.get(OPTION, "")
    needs = gang.options.get(NEEDS, "")
    return Guest(name, gang.key, gang.nodes, gang.gpus, session, needs=needs)


def _is_submitted(row: JobRow) -> bool:
    job = row.record
    return (
        row.type == COMMAND
        and row.plan.engine == ENGINE
        and job.submitted_at is not None
        and job.gang is not GangState.GONE
        and job.stopped_at is None
    )
