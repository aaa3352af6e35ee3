"""One attempt's processes on one node: start, watch and stop them, and report how they ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks import clock
from allranks.agent.launch import pipes, start_ranks
from allranks.agent.launch.mpi_ranks import MpiRanks
from allranks.agent.launch.stage import Stage, StartedRanks
from allranks.agent.monitoring.failure_context import FailureContext
from allranks.agent.processes.hold import Hold
from allranks.agent.processes.keeper import children_left, end_descendants, not_ended
from allranks.agent.processes.ranks import Ended, Running, Started, last_lines
from allranks.agent.state.torn_files import Deaths
from allranks.agent.supervision import stop_ranks
from allranks.agent.transport.inbox import Inbox
from allranks.core.diagnosis import rank_failure
from allranks.core.distributions.topology import ranks_of, together
from allranks.errors import AllranksError, is_passing
from allranks.events import LEFTOVERS, Kind
from allranks.settings import Clocks
from allranks.statuses import Reason

if TYPE_CHECKING:
    from allranks.agent.monitoring.desync import Disagreement
    from allranks.agent.monitoring.other_jobs import OtherJob
    from allranks.api.agents import Assignment

# Seconds to wait for a failure on another node that explains why mpirun ended a rank.
_EXPLANATION = 3.0
# Seconds after the start in which another process may have taken a reserved port: ranks import
# modules first, which takes minutes on a shared disk.
_RACE = 300.0
# Seconds in which the agent's own SIGTERM may follow that of a rank.
_NOTICE = 0.5
# Failures of which there is something to see.
_HELD = (Reason.RANK_EXITED, Reason.RANK_KILLED, Reason.OUT_OF_MEMORY)
# Seconds before the node's time limit at which a hold ends, besides the grace.
_MARGIN = 5.0

Say = Callable[..., None]


class Attempt:
    """``order`` returns the server's current order, ``say`` records an event. ``end`` is when the
    node is taken away, if that is known."""

    def __init__(
        self,
        stage: Stage,
        inbox: Inbox,
        clocks: Clocks,
        order: Callable[[], Assignment],
        say: Say,
        end: float | None = None,
    ) -> None:
        self._stage, self._inbox, self._clocks = stage, inbox, clocks
        self._node_end = end
        self._hold: Hold | None = None
        # Called before the processes of a held attempt are stopped, and when it is held no more.
        self.before_stopping: Callable[[], None] = lambda: None
        self.when_released: Callable[[], None] = lambda: None
        self._order, self._say = order, say
        self._running = Running() if stage.container is None else stage.container.running()
        self._ranks = StartedRanks(self._running, {})
        self._end = _End(Reason.DONE)
        self._cut_at: float | None = None
        self._started = 0.0
        self._context = FailureContext()
        self._facts: Mapping[str, Any] = {}
        self._kept_end: _End | None = None
        self._disagreement: Disagreement | None = None
        # Until when the ranks are stopped where they are, after a failure on another node.
        self._stopped_until: float | None = None
        self._forced: tuple[Reason, Callable[[], _End]] | None = None
        # For whoever decides which files are complete.
        self.deaths = Deaths()

    def run(self, begun: Callable[[Mapping[int, Path]], None]) -> None:
        """Run all processes to their end. ``begun`` is called with each rank's log."""
        try:
            self._end = self._run(begun)
        finally:
            self._running.close()
            if self._stage.warm is not None:
                self._stage.warm.close()
            if self._hold is not None:
                self._hold.close()
            self._end_descendants()
            start_ranks.clean(self._stage)

    @property
    def reason(self) -> Reason:
        """Why it ended."""
        return self._end.reason

    def overrule(self, reason: Reason, message: str = "", hint: str = "") -> None:
        """Turn success into a failure that occurred afterwards; a failed attempt only gets a note.
        Has no effect after ``report_end``."""
        if self._end.reason is Reason.DONE:
            self._end = _End(reason, message, data={"hint": hint})
        elif message:
            self._say(Kind.NOTE, message=message)

    def report_end(self) -> None:
        """Report how it ended; only DRAINED follows."""
        end = self._end
        self._say(Kind.ENDED, end.rank, reason=end.reason, message=end.message, **end.data)

    @property
    def started(self) -> Mapping[int, Started]:
        """The ranks that have started here, and with what. Thread-safe."""
        return self._running.started

    def pids(self) -> dict[int, int]:
        """The first process of each running rank, except those in containers."""
        pids = self._running.pids()
        return pids if self._ranks.hosted is None else pids | self._ranks.hosted.pids()

    def exceed(self, held: int, most: int, rank: int | None) -> None:
        """End the attempt because the job holds ``held`` bytes of memory on this node, more than
        ``most``; ``rank`` holds the largest part. Callable from any thread."""
        self._force(Reason.OUT_OF_MEMORY, partial(self._too_large, held, most, rank))

    def met(self, other: OtherJob, rank: int | None) -> None:
        """End the attempt because ``rank`` joined the store of another job. Callable from any
        thread."""
        self._force(Reason.PORT_CONFLICT, partial(self._joined, other, rank))

    def _force(self, reason: Reason, end: Callable[[], _End]) -> None:
        self._forced = self._forced or (reason, end)
        self._inbox.wake()

    def _run(self, begun: Callable[[Mapping[int, Path]], None]) -> _End:
        try:
            if self._stage.task.on_failure is not None:
                self._hold = Hold(self._stage.folder)
            self._ranks = start_ranks.start(self._stage, self._running)
        except (AllranksError, OSError, ValueError) as error:
            self._stop(Reason.PEER_FAILED)
            hint = getattr(error, "hint", None) or ""
            data = {"hint": hint, "passing": is_passing(error)}
            return _End(Reason.SETUP_FAILED, sentence(error), data=data)
        begun(self._ranks.logs)
        ranks = [rank.rank for rank in ranks_of(self._stage.task, self._stage.node)]
        warm = self._ranks.warm
        self._say(Kind.STARTED, ranks=ranks, **({"warm": warm} if warm else {}))
        self._started = time.monotonic()
        return self._explained(*self._watch())

    # ------------------------------------------------------------ watching

    def _watch(self) -> tuple[Reason, Ended | None]:
        """Wait until no process is left. Return why, and the first failure if it was on this
        node."""
        worked, running, hosted = False, self._running, self._ranks.hosted
        asking = [] if self._hold is None else self._hold.fds
        while running.processes:
            if not worked and all(process.service for process in running.processes):
                worked = hosted is None or hosted.done()
                if worked:
                    self._say(Kind.WORKED)
            self._inbox.wait(
                running.pace if hosted is None else stop_ranks.MPI_POLL, [*running.fds, *asking]
            )
            self._context.look()
            if self._forced is not None:
                running.send(signal.SIGKILL)  # no grace: others need the memory, or the port
                self._stop(Reason.PEER_FAILED)
                return self._forced[0], None
            if waiting := self._waiting():
                self._keep(waiting)
                self._stop(Reason.PEER_FAILED)
                return Reason.RANK_EXITED, waiting
            if hosted is not None and (first := hosted.failure() or self._cut_short(hosted)):
                self._keep(first)
                self._stop(Reason.PEER_FAILED)
                return Reason.RANK_EXITED, first
            ended = running.reap()
            for end in ended:
                self._rank_ended(end)
            # A helper that ends while ranks run has failed, whatever its exit code.
            failed = [e for e in ended if e.code or (e.process.rank is None and e.process.service)]
            if failed and (why := self._node_taken(failed[0])):
                self._stop(why, failed[0].at)
                return why, None
            if failed:
                self._disagreement = self._compared(failed[0])
                self._keep(failed[0])
                self._stop(Reason.PEER_FAILED)
                return Reason.RANK_EXITED, failed[0]
            order = self._order()
            if order["do"] == "stop" and running.processes:
                why = Reason(order["why"])
                self._stop(why)
                return why, None
            if "hold" in order and self._stopped_until is None:
                self._stop_others()
                # Also without a server, which would hand on the end of the hold before.
                self._stopped_until = time.monotonic() + self._hold_seconds()
            if self._stopped_until is not None and time.monotonic() > self._stopped_until:
                self._stop(Reason.PEER_FAILED)
                return Reason.PEER_FAILED, None
            if "kill" in order:
                running.kill(order["kill"])
                if hosted is not None:
                    hosted.kill(order["kill"])
        self._end_rest()
        # MPICH's mpirun sometimes reports success although it had to kill ranks.
        return Reason.DONE, hosted.cut_short() if hosted is not None else None

    def _waiting(self) -> Ended | None:
        """A process that has failed and waits to be kept, as the end that it is about to have."""
        failed = None if self._hold is None else self._hold.failed()
        if failed is None:
            return None
        ranks = ranks_of(self._stage.task, self._stage.node)
        rank = next((rank for rank in ranks if rank.rank == failed.rank), None)
        return None if rank is None else Ended(self._stage.rank(rank), failed.code, clock.now())

    def _keep(self, first: Ended) -> None:
        """If the job asks for it, keep all as it is after the failure ``first``: until the server
        stops the attempt, the node is taken away, or the time for it is over."""
        hold, seconds = self._hold, self._hold_seconds()
        if hold is None or seconds <= 0 or self._order()["do"] == "stop":
            return
        self._look_at_facts()
        end = self._met_by(first) or self._failed(first)
        if end.reason not in _HELD:
            return
        self._kept_end = end
        self._say(
            Kind.HELD,
            end.rank,
            reason=end.reason,
            message=end.message,
            until=clock.now() + seconds,
            **end.data,
        )
        self._stop_others()
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self._forced is None:
            if self._order()["do"] == "stop":
                break
            self._inbox.wait(min(left, self._running.pace), [*self._running.fds, *hold.fds])
            for ended in self._running.reap():
                self._rank_ended(ended)
            hold.failed()
        self.when_released()  # a process with an open debugger does not end
        hold.let_go()
        until = time.monotonic() + self._clocks.grace
        while (left := until - time.monotonic()) > 0:
            if hold.ranks.isdisjoint(process.rank for process in self._running.processes):
                break
            self._inbox.wait(left, self._running.fds)
            for ended in self._running.reap():
                self._rank_ended(ended)

    def _hold_seconds(self) -> float:
        """How long a failure may be held from now on; not until a limit ends the attempt."""
        task, started = self._stage.task, self._order().get("started")
        ends = [clock.now() + (task.on_failure or 0.0)]
        if task.timeout is not None and started is not None:
            ends.append(started + task.timeout)
        if self._node_end is not None:
            ends.append(self._node_end - self._clocks.grace - _MARGIN)
        return min(ends) - clock.now()

    def _stop_others(self) -> None:
        """Stop the processes that have not failed, once."""
        if self._hold is not None and not self._hold.has_stopped:
            self.before_stopping()
            pids = self.pids()
            if self._stage.container is not None and not pids:
                from allranks.agent.monitoring.stacks import inside  # lazy: few jobs are held

                pids = inside(self._stage.node)[1]
            self._hold.stop_others(pids)

    def _look_at_facts(self) -> None:
        """Facts of the moment of the failure; later ones do not replace them."""
        if not self._facts:
            task = self._stage.task
            path = task.variables.get("PATH") or task.base.get("PATH", "")
            self._facts = self._context.now(self._stage.cwd, path)

    def _cut_short(self, hosted: MpiRanks) -> Ended | None:
        """A rank that mpirun ended some time ago, without a failure elsewhere that explains it."""
        ended = hosted.cut_short()
        now = time.monotonic()
        self._cut_at = None if ended is None else self._cut_at or now
        return ended if self._cut_at is not None and now - self._cut_at > _EXPLANATION else None

    def _node_taken(self, first: Ended) -> Reason | None:
        """Why the engine takes the node away, if that ended the rank: some engines signal all our
        processes at once, and the rank may end before the agent gets its signal."""
        until = time.monotonic() + (_NOTICE if first.signal == "SIGTERM" else 0.0)
        while self._inbox.taken is None and time.monotonic() < until:
            self._inbox.wait(until - time.monotonic())
        return self._inbox.taken

    def _compared(self, first: Ended) -> Disagreement | None:
        """In which collective the ranks disagreed, if that ended the first one."""
        rank = first.process.rank
        is_aborted = first.signal == "SIGABRT"
        if rank is None or (first.signal and not is_aborted):
            return None
        from allranks.agent.monitoring import desync  # lazy: few attempts fail

        there = {process.rank for process in self._running.processes}
        if self._ranks.hosted is not None:
            there |= self._ranks.hosted.alive().keys()
        ended = self.started.keys() - there
        words = last_lines(first.process.log) if is_aborted else None
        return desync.explain(self._stage.folder, rank, words, self.pids(), ended)

    def _stop(self, why: Reason, since: float | None = None) -> None:
        """Send SIGTERM, wait for the grace, send SIGKILL; then end what the ranks left behind."""
        self.deaths.begun = True
        running, hosted = self._running, self._ranks.hosted
        if why is Reason.PEER_FAILED:
            self._look_at_facts()
        if self._hold is not None:
            self._hold.close()  # what fails from now on is not kept
        if self._inbox.taken is why:
            # Reported at once, so that the ranks of all nodes get the same grace.
            at = since or clock.now()
            self._say(Kind.TAKEN, reason=why, failed_at=at, message=self._time_limit_message(why))
        grace = stop_ranks.grace(why, self._clocks)
        stop_ranks.write_deadline(self._stage.folder, grace, why)
        until = time.monotonic() + grace
        if hosted is not None and why in stop_ranks.GENTLE:
            stop_ranks.end_mpi_ranks(hosted, running, self._stage, self._inbox, until)
            until = time.monotonic() + self._clocks.peer_grace
        for ended in stop_ranks.end_ranks(running, self._inbox, until):
            self._rank_ended(ended)
        self._end_rest()

    def _end_rest(self) -> None:
        # Processes in a container end with it; our own children then supervise the container.
        if self._stage.container is None:
            self._end_descendants()

    def _end_descendants(self) -> None:
        if children_left() and (left := end_descendants()):
            self._say(Kind.NOTE, about=LEFTOVERS, message=not_ended(left))

    def _rank_ended(self, ended: Ended) -> None:
        if ended.signal is not None:
            self.deaths.kill(ended.at)
        if ended.process.rank is not None:
            how = {"code": ended.code, "signal": ended.signal, "ended_at": ended.at}
            if pipes.failed_behind_pipe(ended.process.log, ended.code):
                how["behind_pipe"] = True
            self._say(Kind.RANK_ENDED, ended.process.rank, **how)
            if ended.code == 0 and (code := pipes.hidden_code(ended.process.log)):
                message = (
                    f"the pipe in the command hid exit code {code} of rank {ended.process.rank}; "
                    "`set -o pipefail;` before it lets the job fail"
                )
                self._say(Kind.NOTE, about="pipe", message=message)

    # ------------------------------------------------------------ explaining

    def _explained(self, reason: Reason, first: Ended | None) -> _End:
        """How this node ended. Exit codes of mpirun's ranks take precedence over mpirun's own,
        which they cause; the server takes the earliest failure of all nodes."""
        if self._ranks.hosted is not None:
            for end in self._ranks.hosted.ended():
                self._rank_ended(end)
            if first is not None or reason is Reason.PEER_FAILED:
                first = self._ranks.hosted.failure() or first
        if self._forced is not None and reason is self._forced[0]:
            return self._forced[1]()
        if self._kept_end is not None:
            return self._kept_end
        failed = first is not None or reason is Reason.PEER_FAILED
        met = self._met_by(first) if failed else None
        if met is not None:
            return met
        if first is not None:
            return self._failed(first)
        return _End(reason, self._time_limit_message(reason))

    def _time_limit_message(self, why: Reason) -> str:
        """The message if the engine's time limit ended the job; for other reasons, empty."""
        by_engine = why is self._inbox.taken is Reason.TIME_LIMIT
        return "the job reached the time limit of the compute" if by_engine else ""

    def _too_large(self, held: int, most: int, rank: int | None) -> _End:
        """An end like that by the kernel's OOM killer."""
        from allranks.core.amounts import size_text  # lazy: few jobs exceed their memory

        message = f"the job held {size_text(held)} of memory on node {self._stage.node}, more than "
        message += f"the {size_text(most)} that it requested"
        number = signal.SIGKILL
        data: dict[str, Any] = {"code": 128 + number, "signal": number.name}
        data |= {"failed_at": clock.now(), "hint": "", "facts": dict(self._facts)}
        tail = [] if rank is None else last_lines(self._stage.folder / f"rank-{rank}.log")
        return _End(Reason.OUT_OF_MEMORY, message, rank, {**data, "tail": tail})

    def _joined(self, other: OtherJob, rank: int | None) -> _End:
        other.leave_note(self._stage.task.job)
        who = "a rank" if rank is None else f"rank {rank}"
        message = f"{who} on node {self._stage.node} joined the store of the job {other.job}"
        return _port_conflict(message, other.port, rank, clock.now())

    def _met_by(self, first: Ended | None) -> _End | None:
        """The end of this attempt, if another job of this host has its port, or joined its store a
        short time ago. That one does not come again, so the attempt may start again."""
        from allranks.agent.monitoring import other_jobs  # lazy: few attempts fail

        at = clock.now() if first is None else first.at
        rank = None if first is None else first.process.rank
        if (joined := other_jobs.joined_by(self._stage.folder, at)) is not None:
            message = f"a rank of the job {joined[0]} joined this job's store"
            return _port_conflict(message, joined[1], rank, at, passing=True)
        other = None if first is None else other_jobs.listening(last_lines(first.process.log))
        if first is None or other is None or not (other.is_store or together(self._stage.task)):
            return None
        other.leave_note(self._stage.task.job)
        message = f"{first.process.name} on node {self._stage.node} could not listen beside the job"
        return _port_conflict(f"{message} {other.job}", other.port, rank, at)

    def _failed(self, first: Ended) -> _End:
        process, node = first.process, self._stage.node
        tail = last_lines(process.log)
        taken = None
        # Later, the user's script itself listens twice on the port.
        if not first.signal and time.monotonic() - self._started < _RACE:
            taken = rank_failure.port_taken(tail, self._stage.places[node].ports)
        how = f"exited with code {first.code}"
        if first.signal:
            how = f"was ended by {first.signal}"
        name = f"{process.name} on node {node}" if process.rank is not None else process.name
        message = f"{name} {how}"
        if tail and not first.signal and (process.rank is not None or process.service):
            behind_pipe = pipes.failed_behind_pipe(process.log, first.code)
            message += rank_failure.last_words(tail, first.code, behind_pipe)
        disagreement = self._disagreement
        if disagreement is not None and disagreement.text:
            message += f"; {disagreement.text}"
        reason = rank_failure.reason(first.signal, self._facts)
        if taken is not None:
            reason = Reason.PORT_TAKEN
            message = f"{name} could not listen on port {taken}, which was free before"
        data: dict[str, Any] = {"code": first.code, "signal": first.signal, "failed_at": first.at}
        data |= {"tail": tail, "hint": "", "facts": dict(self._facts)}
        if disagreement is not None and disagreement.collective is not None:
            data["collective"] = disagreement.collective
        container = self._stage.container
        if container is not None and container.lost:
            message = f"the container of node {node} ended, with all processes in it"
            data["hint"] = f"look for the cause in {container.engine}'s log and `dmesg` of the node"
        return _End(reason, message, process.rank, data)


class _End(NamedTuple):
    """How the attempt ended on this node."""

    reason: Reason
    message: str = ""
    rank: int | None = None
    data: Mapping[str, Any] = {}


def _port_conflict(
    message: str, port: int, rank: int | None, at: float, *, passing: bool = False
) -> _End:
    message += f" on port {port}: both use this port on the same host"
    return _End(Reason.PORT_CONFLICT, message, rank, {"failed_at": at, "passing": passing})


def sentence(error: Exception) -> str:
    """The message of an error, for people."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)
