"""The agent's life: hello, then attempts of setup, ready, go, run and drain, then bye."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from allranks.agent import ports
from allranks.agent.inbox import Inbox
from allranks.agent.keeper import end_descendants, has_children
from allranks.agent.link import Link, Tail
from allranks.agent.outbox import Outbox
from allranks.agent.ranks import Ended, Running, last_lines
from allranks.agent.setup import Work, collect, prepare
from allranks.errors import AllranksError
from allranks.events import Kind
from allranks.plan import distributions
from allranks.plan.plan import Place, Task
from allranks.settings import Clocks
from allranks.spec.expressions import fill_shell
from allranks.states import Reason

# Ranks that are to end for these reasons may have something to save first.
_GENTLE = (Reason.CANCELED, Reason.TIME_LIMIT, Reason.PREEMPTED)


class Where(NamedTuple):
    """What the engine tells an agent by environment; the token never stands on a command line."""

    url: str
    token: str
    launch: int
    node: int
    folder: Path
    address: str
    cpus: int

    @staticmethod
    def told(environ: dict[str, str]) -> Where:
        prefix = "ALLRANKS_AGENT_"
        return Where(
            environ[prefix + "URL"],
            environ[prefix + "TOKEN"],
            int(environ[prefix + "LAUNCH"]),
            int(environ[prefix + "NODE"]),
            Path(environ[prefix + "DIR"]),
            environ[prefix + "ADDRESS"],
            int(environ[prefix + "CPUS"]),
        )


class Leave(Exception):
    """The server wants nothing more of this agent, or has been away for too long."""


class Agent:
    def __init__(self, where: Where, patience: float) -> None:
        self._where = where
        self._patience = patience
        self._inbox = Inbox()
        where.folder.mkdir(parents=True, exist_ok=True)
        self._outbox = Outbox(where.folder, where.launch, where.node)
        self._link = Link(where.url, where.token, where.node, self._outbox, self._inbox)
        self._attempt = 1

    def run(self) -> int:
        signal.signal(signal.SIGTERM, lambda *_: self._inbox.preempt())
        told = self._link.hello(self._patience)
        if told is None:
            return 0
        self._task = Task.load(told["task"])
        self._clocks = Clocks(**told["clocks"])
        self._patience = self._clocks.patience
        self._attempt = self._link.attempt
        self._say(Kind.HELLO, pid=os.getpid())
        self._link.start()
        try:
            while True:
                self._one_attempt()
                self._attempt = self._next_attempt()
        except Leave:
            end_descendants()
        except Exception as error:
            end_descendants()
            self._ended(Reason.PLATFORM_ERROR, f"{type(error).__name__}: {error}")
            self._link.flush(self._patience)
            raise
        self._say(Kind.BYE)
        if self._link.flush(self._patience):
            shutil.rmtree(self._where.folder, ignore_errors=True)
        return 0

    def _one_attempt(self) -> None:
        folder = self._where.folder / f"attempt-{self._attempt}"
        held: list[Any] = []
        try:
            code = self._fetch_code(folder)
            work = prepare(self._task, folder, code, time.time())
            held = ports.hold(distributions.ports_needed(self._task, self._where.node))
        except (AllranksError, OSError) as error:
            self._ended(Reason.SETUP_FAILED, _sentence(error))
        else:
            place = Place(self._where.address, os.uname().nodename, ports.numbers(held))
            self._say(Kind.READY, **place._asdict())
            order = self._until_told()
            ports.release(held)
            if order["do"] == "go":
                self._run_ranks(work, folder, order)
            else:
                self._ended(Reason(order["why"]), "")
        finally:
            ports.release(held)
        if not self._link.flush(self._patience):
            raise Leave
        self._say(Kind.DRAINED)

    def _fetch_code(self, folder: Path) -> Path | None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if self._task.code is None:
            return None
        goal = folder / "code.tar"
        self._link.fetch_code(self._task.code, goal, self._patience)
        return goal

    def _until_told(self) -> dict[str, Any]:
        """Wait at the gate: the `go` or `stop` of this attempt."""
        while True:
            order = self._order()
            if order["do"] in ("go", "stop"):
                return order
            self._wait_a_while()

    def _next_attempt(self) -> int:
        while True:
            order = self._inbox.order
            if order["do"] == "leave":
                raise Leave
            if order["attempt"] > self._attempt:
                # Not only `prepare`: the order that follows it may already have taken its place.
                return int(order["attempt"])
            self._wait_a_while()

    def _wait_a_while(self) -> None:
        self._inbox.wait(1.0)
        if self._link.silent_for() > self._patience:
            raise Leave

    def _order(self) -> dict[str, Any]:
        """The order in force for this attempt; raises Leave when it is to leave."""
        if self._inbox.preempted:
            return {"do": "stop", "why": Reason.PREEMPTED}
        order = self._inbox.order
        if order["do"] == "leave":
            raise Leave
        return order if order["attempt"] == self._attempt else {"do": "wait"}

    # ------------------------------------------------------------ running

    def _run_ranks(self, work: Work, folder: Path, go: dict[str, Any]) -> None:
        running, logs = Running(), {}
        ranks = distributions.ranks_of(self._task, self._where.node)
        for rank in ranks:
            log = folder / f"rank-{rank.rank}.log"
            logs[rank.rank] = log
            try:
                command = self._command(work)
                running.start(rank, command, work.folder, self._env(rank, work, go), log)
            except (AllranksError, OSError, ValueError) as error:
                self._stop(running, Reason.PEER_FAILED)
                self._ended(Reason.SETUP_FAILED, _sentence(error), rank=rank.rank)
                return
            self._link.follow(Tail(self._attempt, rank.rank, log))
        self._say(Kind.STARTED, ranks=[rank.rank for rank in ranks])
        reason, first = self._watch(running)
        if self._where.node == 0:
            self._collect(work)
        if first is None:
            self._ended(reason, "")
        else:
            self._failed(first, last_lines(logs[first.rank.rank]))

    def _collect(self, work: Work) -> None:
        """Before the end is told: a job is not done until it has its outputs."""
        try:
            collect(self._task, work)
        except OSError as error:
            self._say(Kind.NOTE, message=f"not all outputs could be collected: {_sentence(error)}")

    def _watch(self, running: Running) -> tuple[Reason, Ended | None]:
        """Until no rank is left: why it ended, and the first failure if that was one of ours."""
        worked = False
        while running.ranks:
            self._inbox.wait(60.0, running.fds)
            ended = running.reap()
            for each in ended:
                self._rank_ended(each)
            failed = [each for each in ended if each.code]
            if failed:
                self._stop(running, Reason.PEER_FAILED)
                return Reason.RANK_EXITED, failed[0]
            order = self._order()
            if order["do"] == "stop" and running.ranks:
                why = Reason(order["why"])
                self._stop(running, why)
                return why, None
            if running.ranks and not worked and all(rank.service for rank in running.ranks):
                worked = True
                self._say(Kind.WORKED)
        self._end_rest()
        return Reason.DONE, None

    def _stop(self, running: Running, why: Reason) -> None:
        """SIGTERM, a grace, SIGKILL; then whatever the ranks left behind."""
        grace = self._clocks.grace if why in _GENTLE else self._clocks.peer_grace
        running.send(signal.SIGTERM)
        until = time.monotonic() + grace
        while running.ranks and time.monotonic() < until:
            self._inbox.wait(until - time.monotonic(), running.fds)
            for ended in running.reap():
                self._rank_ended(ended)
        running.send(signal.SIGKILL)
        while running.ranks:
            self._inbox.wait(0.05, running.fds)
            for ended in running.reap():
                self._rank_ended(ended)
        self._end_rest()

    def _end_rest(self) -> None:
        if has_children():
            end_descendants()

    def _command(self, work: Work) -> str:
        paths = {f"inputs.{each.name}" for each in self._task.inputs if each.text is None}
        paths |= {f"outputs.{each.name}" for each in self._task.outputs}
        return fill_shell(self._task.command, work.paths, paths)

    def _env(self, rank: distributions.Rank, work: Work, go: dict[str, Any]) -> dict[str, str]:
        task = self._task
        places = [Place.load(each) for each in go["places"]]
        local = len(distributions.ranks_of(task, rank.node))
        of_node = distributions.threads(self._where.cpus, local)
        of_node["ALLRANKS_ATTEMPT"] = str(self._attempt)
        of_node["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        if task.timeout is not None:
            of_node["ALLRANKS_DEADLINE"] = str(go["started"] + task.timeout)
        env = distributions.whole_environment(task, rank, places, work.paths, of_node)
        # Last, and never the user's: what is left of a dead gang is found by it.
        env["ALLRANKS_GANG"] = os.environ.get("ALLRANKS_GANG", "")
        return env

    # ------------------------------------------------------------ telling

    def _say(self, kind: Kind, rank: int | None = None, **data: Any) -> None:
        self._outbox.say(kind, self._attempt, rank=rank, **data)
        self._link.news()

    def _rank_ended(self, ended: Ended) -> None:
        self._say(Kind.RANK_ENDED, ended.rank.rank, code=ended.code, signal=ended.signal)

    def _failed(self, first: Ended, tail: list[str]) -> None:
        how = f"exited with code {first.code}"
        if first.signal:
            how = f"was ended by {first.signal}"
        message = f"rank {first.rank.rank} on node {self._where.node} {how}"
        if tail and not first.signal:
            message += f": {tail[-1]}"
        self._ended(
            Reason.RANK_KILLED if first.signal else Reason.RANK_EXITED,
            message,
            rank=first.rank.rank,
            code=first.code,
            signal=first.signal,
            failed_at=first.at,
            tail=tail,
        )

    def _ended(self, reason: Reason, message: str, rank: int | None = None, **data: Any) -> None:
        self._say(Kind.ENDED, rank, reason=reason, message=message, **data)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def run() -> int:
    """The whole life of an agent, told by its environment; its exit code."""
    try:
        where = Where.told(dict(os.environ))
    except (KeyError, ValueError) as error:
        print(f"allranks agent: {error} is missing or wrong: an engine starts me", file=sys.stderr)
        return 2
    patience = float(os.environ.get("ALLRANKS_AGENT_PATIENCE", "120"))
    return Agent(where, patience).run()
