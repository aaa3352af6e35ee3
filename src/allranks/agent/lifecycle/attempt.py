"""One attempt's processes on one node: start them, watch them, stop them, say how it ended."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from allranks import clock
from allranks.agent.launch import start_ranks
from allranks.agent.launch.mpi_ranks import MpiRanks, is_listening
from allranks.agent.launch.start_ranks import Launch, Stage
from allranks.agent.monitoring.failure_context import FailureContext
from allranks.agent.processes.keeper import end_descendants, has_children, has_others
from allranks.agent.processes.ranks import Ended, Running, last_lines
from allranks.agent.transport.inbox import Inbox
from allranks.errors import AllranksError, is_passing
from allranks.events import Kind
from allranks.plan.diagnosis import rank_failure
from allranks.plan.distributions import variables
from allranks.plan.distributions.topology import ranks_of
from allranks.settings import Clocks
from allranks.statuses import Reason

# Ranks that are to end for these reasons may have something to save first.
_GENTLE = (Reason.CANCELED, Reason.TIME_LIMIT, Reason.PREEMPTED)
# How often ranks that mpirun has started, and no descriptor tells of, are looked at. mpirun itself
# takes seconds to end the others after a failure, and sometimes does not.
_LOOK = 0.1
# How long a rank that mpirun has ended may be explained by a failure on another node.
_EXPLAINED = 3.0

# How long after the start a port of the node's may be found taken by somebody else: imports come
# first, and take minutes on a shared disk.
_RACE = 300.0

# How long after a rank was ended by SIGTERM the agent may get its own.
_NOTICE = 0.5

Say = Callable[..., None]


class Attempt:
    """``order`` gives the server's order in force, ``say`` tells it an event."""

    def __init__(
        self,
        stage: Stage,
        inbox: Inbox,
        clocks: Clocks,
        order: Callable[[], dict[str, Any]],
        say: Say,
    ) -> None:
        self._stage, self._inbox, self._clocks = stage, inbox, clocks
        self._order, self._say = order, say
        self._running = Running() if stage.room is None else stage.room.running()
        self._launch = Launch(self._running, {})
        self._end = _End(Reason.DONE)
        self._cut_at: float | None = None
        self._started = 0.0
        self._circumstances = FailureContext()
        self._facts: Mapping[str, Any] = {}
        self._exceeded: Callable[[], _End] | None = None

    def run(self, begun: Callable[[Mapping[int, Path]], None]) -> None:
        """From the start to the last process's end; ``begun`` hears which rank prints where."""
        try:
            self._end = self._run(begun)
        finally:
            self._running.close()
            if has_children():
                end_descendants()
            start_ranks.clean(self._stage)

    @property
    def reason(self) -> Reason:
        """Why it ended, once it has."""
        return self._end.reason

    def overrule(self, reason: Reason, message: str = "", hint: str = "") -> None:
        """What came after the end and spoils it; of one that has failed it is only a note. Once it
        is told it stays as it is."""
        if self._end.reason is Reason.DONE:
            self._end = _End(reason, message, data={"hint": hint})
        elif message:
            self._say(Kind.NOTE, message=message)

    def tell(self) -> None:
        """Say how it ended: the last event of the attempt but that everything is handed in."""
        end = self._end
        self._say(Kind.ENDED, end.rank, reason=end.reason, message=end.message, **end.data)

    def pids(self) -> dict[int, int]:
        """The first process of each rank that runs, as this node numbers it; none of those in a
        container."""
        found = self._running.pids()
        return found if self._launch.hosted is None else found | self._launch.hosted.pids()

    def exceed(self, held: int, most: int, rank: int | None) -> None:
        """The job holds more memory on this node than it may, ``rank`` the most of it: end it. From
        any thread."""
        self._exceeded = partial(self._too_large, held, most, rank)
        self._inbox.wake()

    def _run(self, begun: Callable[[Mapping[int, Path]], None]) -> _End:
        try:
            self._launch = start_ranks.start(self._stage, self._running)
        except (AllranksError, OSError, ValueError) as error:
            self._stop(Reason.PEER_FAILED)
            hint = getattr(error, "hint", None) or ""
            data = {"hint": hint, "passing": is_passing(error)}
            return _End(Reason.SETUP_FAILED, sentence(error), data=data)
        begun(self._launch.logs)
        mine = [rank.rank for rank in ranks_of(self._stage.task, self._stage.node)]
        self._say(Kind.STARTED, ranks=mine)
        self._started = time.monotonic()
        return self._explained(*self._watch())

    # ------------------------------------------------------------ watching

    def _watch(self) -> tuple[Reason, Ended | None]:
        """Until nothing is left: why it ended, and the first failure if that was one of ours."""
        worked, running, hosted = False, self._running, self._launch.hosted
        while running.processes:
            if not worked and all(each.service for each in running.processes):
                worked = hosted is None or hosted.done()
                if worked:
                    self._say(Kind.WORKED)
            self._inbox.wait(running.pace if hosted is None else _LOOK, running.fds)
            self._circumstances.look()
            if self._exceeded is not None:
                running.send(signal.SIGKILL)  # what it holds is not its own to keep for a while
                self._stop(Reason.PEER_FAILED)
                return Reason.OUT_OF_MEMORY, None
            if hosted is not None and (first := hosted.failure() or self._cut_short(hosted)):
                self._stop(Reason.PEER_FAILED)
                return Reason.RANK_EXITED, first
            ended = running.reap()
            for each in ended:
                self._rank_ended(each)
            # A helper has no end of its own: one that is gone while ranks need it has failed.
            failed = [e for e in ended if e.code or (e.process.rank is None and e.process.service)]
            if failed and (why := self._taken_away(failed[0])):
                self._stop(why, failed[0].at)
                return why, None
            if failed:
                self._stop(Reason.PEER_FAILED)
                return Reason.RANK_EXITED, failed[0]
            order = self._order()
            if order["do"] == "stop" and running.processes:
                why = Reason(order["why"])
                self._stop(why)
                return why, None
            if "kill" in order:
                running.kill(order["kill"])
                if hosted is not None:
                    hosted.kill(order["kill"])
        self._end_rest()
        # MPICH's mpirun now and then takes ranks that it had to end for a success.
        return Reason.DONE, hosted.cut_short() if hosted is not None else None

    def _cut_short(self, hosted: MpiRanks) -> Ended | None:
        """A rank that mpirun has ended, and no failure elsewhere has followed that explains it."""
        found, now = hosted.cut_short(), time.monotonic()
        self._cut_at = None if found is None else self._cut_at or now
        return found if self._cut_at is not None and now - self._cut_at > _EXPLAINED else None

    def _taken_away(self, first: Ended) -> Reason | None:
        """Why the engine takes the node away, if that is what ended the rank: some signal every
        process of ours at once, and the rank may be the first to be gone."""
        until = time.monotonic() + (_NOTICE if first.signal == "SIGTERM" else 0.0)
        while self._inbox.taken is None and time.monotonic() < until:
            self._inbox.wait(until - time.monotonic())
        return self._inbox.taken

    def _stop(self, why: Reason, since: float | None = None) -> None:
        """SIGTERM, a grace, SIGKILL; then whatever the ranks left behind."""
        running, hosted = self._running, self._launch.hosted
        if why is Reason.PEER_FAILED:
            task = self._stage.task
            path = task.variables.get("PATH") or task.base.get("PATH", "")
            self._facts = self._circumstances.now(self._stage.cwd, path)
        grace = self._clocks.grace if why in _GENTLE else self._clocks.peer_grace
        if self._inbox.taken is why:
            # At once, so that the ranks of all nodes have their grace, and the same.
            at = since or clock.now()
            self._say(Kind.TAKEN, reason=why, failed_at=at, message=self._told(why))
        self._write_deadline(grace, why)
        until = time.monotonic() + grace
        if hosted is not None and why in _GENTLE:
            self._let_end(hosted, until)
            until = time.monotonic() + self._clocks.peer_grace
        running.send(signal.SIGTERM)
        while running.processes and time.monotonic() < until:
            self._inbox.wait(until - time.monotonic(), running.fds)
            for ended in running.reap():
                self._rank_ended(ended)
        running.send(signal.SIGKILL)
        while running.processes:
            self._inbox.wait(0.05, running.fds)
            for ended in running.reap():
                self._rank_ended(ended)
        self._end_rest()

    def _write_deadline(self, grace: float, why: Reason) -> None:
        """For ranks that would know, when they get SIGTERM, how long they have, and why."""
        path = self._stage.folder / variables.DEADLINE
        with contextlib.suppress(OSError):  # a full disk keeps nobody from ending
            path.with_suffix(".new").write_text(f"{time.time() + grace:.3f} {why}\n")
            path.with_suffix(".new").replace(path)

    def _let_end(self, hosted: MpiRanks, until: float) -> None:
        """Give mpirun's ranks their time: it would leave none to the others once one has ended, or
        one of its daemons. So nobody touches those before all nodes are done; a node that is says
        so by no longer listening."""

        def wait_while(fact: Callable[[], object]) -> None:
            while fact() and time.monotonic() < until:
                self._inbox.wait(_LOOK)

        hosted.send(signal.SIGTERM)
        wait_while(hosted.alive)
        if self._stage.node == 0:
            others = self._stage.places[1:]
            wait_while(lambda: any(is_listening(each.address, each.ports[0]) for each in others))
        else:
            self._running.send(signal.SIGHUP)
            others_left = has_others if self._stage.room is None else bool
            wait_while(lambda: self._running.reap() or self._running.processes or others_left())

    def _end_rest(self) -> None:
        # What is left of a room's is inside, and ends with it; what is below us watches over that.
        if self._stage.room is None and has_children():
            end_descendants()

    def _rank_ended(self, ended: Ended) -> None:
        if ended.process.rank is not None:
            how = {"code": ended.code, "signal": ended.signal, "ended_at": ended.at}
            self._say(Kind.RANK_ENDED, ended.process.rank, **how)

    # ------------------------------------------------------------ explaining

    def _explained(self, reason: Reason, first: Ended | None) -> _End:
        """How this node ended. What mpirun's ranks have left written counts before mpirun's own
        end, which follows from it; the server takes the earliest of all nodes."""
        if self._launch.hosted is not None:
            for each in self._launch.hosted.ended():
                self._rank_ended(each)
            if first is not None or reason is Reason.PEER_FAILED:
                first = self._launch.hosted.failure() or first
        if reason is Reason.OUT_OF_MEMORY and self._exceeded is not None:
            return self._exceeded()
        if first is not None:
            return self._failed(first)
        return _End(reason, self._told(reason))

    def _told(self, why: Reason) -> str:
        """A sentence, where the reason alone does not say it."""
        told = why is self._inbox.taken is Reason.TIME_LIMIT
        return "the time that the compute gives a job is over" if told else ""

    def _too_large(self, held: int, most: int, rank: int | None) -> _End:
        """As the kernel would have ended it."""
        from allranks.plan.amounts import size_text  # lazy: nearly no job comes to this

        message = f"the job held {size_text(held)} of memory on node {self._stage.node}, more than "
        message += f"the {size_text(most)} that it asked for"
        number = signal.SIGKILL
        data: dict[str, Any] = {"code": 128 + number, "signal": number.name}
        data |= {"failed_at": clock.now(), "hint": "", "facts": dict(self._facts)}
        tail = [] if rank is None else last_lines(self._stage.folder / f"rank-{rank}.log")
        return _End(Reason.OUT_OF_MEMORY, message, rank, {**data, "tail": tail})

    def _failed(self, first: Ended) -> _End:
        process, node = first.process, self._stage.node
        tail = last_lines(process.log)
        taken = None
        # Later it is a script of the user's that listens once more, and not a race that was lost.
        if not first.signal and time.monotonic() - self._started < _RACE:
            taken = rank_failure.port_taken(tail, self._stage.places[node].ports)
        how = f"exited with code {first.code}"
        if first.signal:
            how = f"was ended by {first.signal}"
        who = f"{process.name} on node {node}" if process.rank is not None else process.name
        message = f"{who} {how}"
        if tail and not first.signal and process.rank is not None:
            said = rank_failure.error_line(tail, first.code)
            message += f": {said}" if said else ""
        reason = rank_failure.reason(first.signal, self._facts)
        if taken is not None:
            reason = Reason.PORT_TAKEN
            message = f"{who} could not listen on port {taken}, which was free when it was chosen"
        data: dict[str, Any] = {"code": first.code, "signal": first.signal, "failed_at": first.at}
        data |= {"tail": tail, "hint": "", "facts": dict(self._facts)}
        room = self._stage.room
        if room is not None and room.lost:
            message = f"the container of node {node} is gone, with all that ran inside"
            data["hint"] = f"{room.engine}'s own log, or `dmesg` on the node, may say who ended it"
        return _End(reason, message, process.rank, data)


class _End(NamedTuple):
    """How the attempt ended on this node."""

    reason: Reason
    message: str = ""
    rank: int | None = None
    data: Mapping[str, Any] = {}


def sentence(error: Exception) -> str:
    """What a person is told of an error."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)
