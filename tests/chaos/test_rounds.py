"""Short jobs and what may befall them, drawn by seed; afterwards the record is held to the truth.

``pytest tests/chaos/test_rounds.py --rounds 500`` plays many, ``--first SEED --rounds 1`` that of
a seed again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from allranks.errors import AllranksError
from allranks.sdk import finding
from tests.chaos.rounds import ENDS, SCRIPT, Known, Misfortune, Round, drawn, known
from tests.chaos.test_kills import is_agent, is_child_of, of_launch
from tests.support import command_line, environment, leave_nothing, until

# So many jobs at once: one's killed server is the others', too.
TOGETHER = 3
LEASE = 2.0
TERMINAL = ("Completed", "Failed", "Canceled")


@pytest.fixture
def arena(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home whose agents are lost soon; afterwards nothing of it may be running."""
    home = tmp_path / "ho'me x"
    for name, value in environment(home).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ALLRANKS_LEASE", str(LEASE))
    monkeypatch.setenv("ALLRANKS_TICK", "0.1")
    yield home
    leave_nothing(home)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_rounds(arena: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    first, count = request.config.getoption("first"), request.config.getoption("rounds")
    code, truth = tmp_path / "code", tmp_path / "truth"
    code.mkdir()
    truth.mkdir()
    (code / "train.py").write_text(SCRIPT)
    began = time.monotonic()
    with ThreadPoolExecutor(TOGETHER) as pool:
        rounds = [drawn(seed) for seed in range(first, first + count)]
        ended = list(pool.map(lambda each: Game(arena, code, truth, each).play(), rounds))
    statuses = Counter(ended)
    print(f"{count} rounds in {time.monotonic() - began:.0f} s: {dict(statuses)}")
    assert sum(statuses.values()) == count


class Game:
    """One round in a home."""

    def __init__(self, home: Path, code: Path, truth: Path, drawn: Round) -> None:
        self.home, self.code, self.round = home, code, drawn
        self.name = f"round-{drawn.seed}"
        self.truth = truth / self.name
        self.dice = random.Random(-drawn.seed)
        self.happened: set[str] = set()

    def play(self) -> str:
        """How the job ended, once every promise was found kept."""
        try:
            self.truth.mkdir()
            self._submit()
            befall = threading.Thread(target=self._befall)
            befall.start()
            job = self._ended()
            befall.join()
            self._hold(job)
        except BaseException:
            print(f"seed {self.round.seed}: {self.round}, happened: {self.happened}")
            raise
        return str(job["status"])

    def _submit(self) -> None:
        one = self.round
        words = ["--detach", "--name", self.name, "-n", one.nodes, "-p", one.procs, "-q"]
        words += ["-d", "pytorch", "--max-attempts", one.attempts, "--metric-rank", "all"]
        words += ["-m", r"step=n=(\d+)"]
        script = [sys.executable, "-S", "-E", "train.py", self.truth, one.lines, one.pace]
        said = command_line(self.home, self.code)("run", *words, "--", *script)
        while said.returncode:  # another round has killed the server; the job may have been made
            assert "no server answers" in said.stderr, said.stderr
            if any(each["name"] == self.name for each in self._ask("GET", "?limit=99", jobs=True)):
                return
            said = command_line(self.home, self.code)("run", *words, "--", *script)

    def _befall(self) -> None:
        began = time.monotonic()
        threads = []
        for each in sorted(self.round.misfortunes):
            until(lambda each=each: time.monotonic() - began >= each.after)
            threads.append(threading.Thread(target=self._strike, args=(each,)))
            threads[-1].start()
        for thread in threads:
            thread.join()

    def _strike(self, misfortune: Misfortune) -> None:
        verb, _, whom = misfortune.what.partition(" ")
        if verb == "nothing":
            return
        if verb == "cancel":
            self._ask("POST", "/cancel")
            self.happened.add("cancel")
            return
        victims = self._victims("keeper" if verb == "take" else whom)
        if victims:
            # Before: what it does to the job may be seen before this thread goes on.
            self.happened.add(misfortune.what)
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "take": signal.SIGTERM}[verb]
        _send(victims, number)
        if verb == "stop":
            time.sleep(misfortune.pause)
            _send(victims, signal.SIGCONT)

    def _victims(self, whom: str) -> list[int]:
        if whom == "server":
            with contextlib.suppress(OSError, ValueError):
                return [json.loads((self.home / "server.json").read_text())["pid"]]
            return []
        everyone = self._alive()
        agents = [pid for pid in everyone if is_agent(pid)]
        keepers = [pid for pid in agents if _parent(pid) not in agents]
        found = {
            "gang": everyone,
            "keeper": keepers,
            "agent": [pid for pid in agents if pid not in keepers],
            "rank": [pid for pid in everyone if is_child_of(pid, agents)],
        }[whom]
        return found if whom == "gang" or not found else [self.dice.choice(found)]

    def _alive(self) -> list[int]:
        """What runs of any launch of it."""
        launches = range(1, 12)
        return sorted({p for n in launches for p in of_launch(self.home, self.name, n)})

    def _ask(self, method: str, path: str = "", *, jobs: bool = False) -> Any:
        """The server's answer; one that was killed is started again, as any command does."""
        for _ in range(60):
            with contextlib.suppress(AllranksError), finding.connect() as client:
                where = "" if jobs else f"/{self.name}"
                return client.json(method, f"/api/v1/jobs{where}{path}")
            time.sleep(0.5)
        raise AssertionError("no server answers")

    def _ended(self) -> Any:
        found: Any = None

        def over() -> bool:
            nonlocal found
            found = self._ask("GET")
            return found["status"] in TERMINAL

        until(over, 120)
        return found

    # ------------------------------------------------------------ what always holds

    def _hold(self, job: Any) -> None:
        truth = sorted(known(self.truth))
        events = self._ask("GET", "/events")
        until(lambda: not self._alive(), 20)
        self._word_is_true(job, truth)
        self._lines_are_whole(job, truth)
        self._points_are_whole(job, truth)
        never_two(truth)
        resumed_from_what_was_kept(truth, gently=not self.happened & _HARD)
        numbered_once(events)

    def _word_is_true(self, job: Any, truth: list[Known]) -> None:
        """Completed is what was done; and what was not is told with one of its causes."""
        last = [each for each in truth if each.attempt == job["attempts"]]
        done = [each for each in last if each.numbers("done")]
        if job["status"] == "Completed":
            assert len(done) == self.round.ranks
            assert job["error"] is None
            return
        causes = set().union(*(ENDS.get(each, set()) for each in self.happened))
        assert job["error"]["reason"] in causes or "cancel" in self.happened, job["error"]
        assert self.happened & ENDS.keys(), "nothing happened that ends a job"
        if job["status"] == "Canceled":
            assert "cancel" in self.happened
        if not self.happened & {"kill rank", "cancel"} and self.round.attempts > 1:
            raise AssertionError(f"a loss ate the user's attempts: {job['error']}")

    def _lines_are_whole(self, job: Any, truth: list[Known]) -> None:
        """Every line that was printed is in the log once and in order, and none besides."""
        for each in truth:
            printed = log(job, each.attempt, each.rank, self.round.ranks)
            first, steps = each.numbers("resumed")[0], each.numbers("step")
            wanted = [
                f"{each.attempt} {each.rank} {n} n={n}" for n in range(first, first + len(printed))
            ]
            assert printed == wanted
            # The last may have been printed, and its rank killed before it wrote that down.
            assert len(printed) - len(steps) in (0, 1), (each.attempt, each.rank)

    def _points_are_whole(self, job: Any, truth: list[Known]) -> None:
        """Every point once and in order; all of them where no agent was taken from them."""
        told = self._ask("GET", "/metrics")["series"]
        of = {(s["attempt"], s["rank"]): [round(p[2]) for p in s["points"]] for s in told}
        assert len(of) == len(told)
        for each in truth:
            found = of.get((each.attempt, each.rank), [])
            printed = log(job, each.attempt, each.rank, self.round.ranks)
            wanted = [int(line.rpartition("=")[2]) for line in printed]
            assert found == wanted[: len(found)]
            if not self.happened & _HARD:
                assert found == wanted


# What takes from a node what only it had.
_HARD = {"kill agent", "kill keeper", "kill gang", "stop agent", "take away"}


def never_two(truth: list[Known]) -> None:
    """No rank of an attempt ran when one of the next had begun."""
    by_attempt: dict[int, list[Known]] = {}
    for each in truth:
        by_attempt.setdefault(each.attempt, []).append(each)
    for (_, before), (_, after) in pairwise(sorted(by_attempt.items())):
        assert max(each.last for each in before) < min(each.begun for each in after)


def resumed_from_what_was_kept(truth: list[Known], *, gently: bool) -> None:
    """An attempt begins with the newest that was kept, or, after a loss, with an older one."""
    kept, whole = [0], 0
    for attempt in sorted({each.attempt for each in truth}):
        here = sorted(each for each in truth if each.attempt == attempt)
        resumed = {each.rank: each.numbers("resumed")[0] for each in here}
        assert resumed.get(0, 0) in kept
        if gently and 0 in resumed:
            assert resumed[0] >= whole
        kept += [n for each in here for n in each.numbers("keeps")]
        whole = max([whole, *(n for each in here for n in each.numbers("kept"))])
        # Rank 0, which keeps it, may be ahead of the others when they look.
        assert set(resumed.values()) <= set(kept)


def numbered_once(events: list[Any]) -> None:
    kinds = Counter(each["kind"] for each in events)
    assert (kinds["created"], kinds["finished"]) == (1, 1)
    assert (
        kinds["submitted"] == kinds["relaunched"] + 1 or kinds["submitted"] == kinds["relaunched"]
    )
    starts = Counter((e["attempt"], e["node"]) for e in events if e["kind"] == "started")
    assert not starts or max(starts.values()) == 1


def log(job: Any, attempt: int, rank: int, ranks: int) -> list[str]:
    name = "std_log.txt" if ranks == 1 else f"std_log_process_{rank}.txt"
    path = Path(job["folder"], "attempts", str(attempt), "user_logs", name)
    return path.read_text().splitlines() if path.exists() else []


def _parent(pid: int) -> int | None:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).ppid()
    return None


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
