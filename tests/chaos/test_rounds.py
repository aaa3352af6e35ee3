"""Short jobs and what may befall them, drawn by seed; afterwards the record is held to the truth.

``pytest tests/chaos/test_rounds.py --rounds 500`` plays many, ``--first SEED --rounds 1`` that of
a seed again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
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
from allranks.sdk.connection import find_server
from tests.chaos.beneath import Arena, Lacking, disk, network
from tests.chaos.rounds import (
    COUNTED,
    ENDS,
    HARD,
    LAST_WORDS,
    SCRIPT,
    Known,
    Misfortune,
    Round,
    drawn,
    known,
)
from tests.chaos.test_kills import is_agent, is_child_of, of_launch
from tests.support import command_line, environment, leave_nothing, until

# So many jobs at once: one's killed server is the others', too.
TOGETHER = 3
LEASE = 2.0
CLOCKS = {"ALLRANKS_LEASE": str(LEASE), "ALLRANKS_TICK": "0.1"}
# Agents ask again after a third of it at the latest: a cut that is no longer is not noticed, though
# what was sent meanwhile is sent again ever less often.
SHORT = LEASE / 3
# What the command line may say while the server is not there, or has no room.
_AWAY = "no server answers|No space left|no space left|disk is full"
TERMINAL = ("Completed", "Failed", "Canceled")


@pytest.fixture
def arena(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arena]:
    """A home whose agents are lost soon; afterwards nothing of it may be running."""
    with contextlib.ExitStack() as stack:
        place, beneath = tmp_path / "ho'me x", dict[str, Any]()
        for name, made in (("disk", disk(place)), ("network", network())):
            try:
                beneath[name] = stack.enter_context(made)
            except Lacking as why:
                beneath[name] = None
                print(f"no {name} is to fail: {why}")
        home = place / "home"
        for name, value in environment(home).items():
            monkeypatch.setenv(name, value)
        for name, value in CLOCKS.items():
            monkeypatch.setenv(name, value)
        yield Arena(home, **beneath)
        leave_nothing(home)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.end_to_end
def test_rounds(arena: Arena, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    first, count = request.config.getoption("first"), request.config.getoption("rounds")
    began = time.monotonic()
    rounds = [drawn(seed).without(arena.lacking) for seed in range(first, first + count)]
    statuses = played(arena, tmp_path, rounds)
    print(f"{count} rounds in {time.monotonic() - began:.0f} s: {dict(statuses)}")
    assert sum(statuses.values()) == count


@pytest.mark.slow
def test_what_lies_beneath_fails(arena: Arena, tmp_path: Path) -> None:
    """Of each kind one, when ranks run; with attempts enough for all of them."""
    if arena.lacking:
        pytest.skip(f"this machine lets us have no {' and no '.join(sorted(arena.lacking))}")
    rounds = [
        Round(-number, 2, 1, 9, 60, 0.03, (Misfortune(0.3, what, pause),), at_work=True)
        for number, (what, pause) in enumerate(
            (("fill disk", 0.4), ("freeze disk", 1.0), ("cut node", 3.0)), start=1
        )
    ]
    assert played(arena, tmp_path, rounds) == {"Completed": 3}


def played(arena: Arena, folder: Path, rounds: list[Round]) -> Counter[str]:
    """How many ended how."""
    code, truth = folder / "code", folder / "truth"
    for each in (code, truth):
        each.mkdir(exist_ok=True)
    (code / "train.py").write_text(SCRIPT)
    with ThreadPoolExecutor(TOGETHER) as pool:
        return Counter(pool.map(lambda each: Game(arena, code, truth, each).play(), rounds))


class Game:
    """One round in a home."""

    def __init__(self, arena: Arena, code: Path, truth: Path, drawn: Round) -> None:
        self.arena, self.home, self.code, self.round = arena, arena.home, code, drawn
        self.name = f"round-{drawn.seed}"
        self.truth = truth / self.name
        self.dice = random.Random(-drawn.seed)
        self.happened: set[str] = set()

    def play(self) -> str:
        """How the job ended, once every promise was found kept."""
        try:
            self.truth.mkdir()
            with self.arena.joined(self.happened):
                upload = threading.Thread(target=self._upload)
                upload.start()
                self._submit()
                befall = threading.Thread(target=self._befall)
                befall.start()
                try:
                    job = self._ended()
                finally:
                    befall.join()
                    upload.join()
            self._hold(job)
            self._data_is_whole()
        except BaseException:
            print(f"seed {self.round.seed}: {self.round}, happened: {self.happened}")
            raise
        return str(job["status"])

    def _submit(self) -> None:
        one = self.round
        words = ["--detach", "--name", self.name, "-n", one.nodes, "-p", one.procs, "-q"]
        words += ["-d", "pytorch", "--max-attempts", one.attempts, "--metric-rank", "all"]
        words += ["-m", r"step=n=(\d+)"]
        if one.hold:
            words += ["--on-failure", f"hold={one.hold}s"]
        script = [sys.executable, "-S", "-E", "train.py", self.truth, one.lines, one.pace]
        allranks = command_line(self.home, self.code)
        said = allranks("run", *words, "--", *script, env=CLOCKS)
        while said.returncode:  # another round has killed the server; the job may have been made
            assert re.search(_AWAY, said.stderr), said.stderr
            if any(each["name"] == self.name for each in self._ask("GET", "?limit=99", jobs=True)):
                return
            said = allranks("run", *words, "--", *script, env=CLOCKS)

    def _upload(self) -> None:
        """Upload data while servers are killed and disks are full, as often as it takes."""
        if not self.round.upload:
            return
        self.data = self.truth.with_suffix(".data")
        self.data.write_bytes(random.Random(self.round.seed).randbytes(self.round.upload))
        words = ("data", "upload", self.data, "--name", f"data-{self.round.seed}")
        done = command_line(self.home, self.code)(*words, env=CLOCKS)
        while done.returncode:
            assert re.search(_AWAY, done.stderr), done.stderr
            done = command_line(self.home, self.code)(*words, env=CLOCKS)

    def _data_is_whole(self) -> None:
        if self.round.upload:
            target = self.truth.with_suffix(".got")
            allranks, name = command_line(self.home, self.code), f"data-{self.round.seed}"
            done = allranks("data", "download", name, "-p", target, env=CLOCKS)
            while done.returncode:
                assert re.search(_AWAY, done.stderr), done.stderr
                done = allranks("data", "download", name, "-p", target, env=CLOCKS)
            (got,) = (path for path in target.rglob("*") if path.is_file())
            assert got.read_bytes() == self.data.read_bytes()

    def _befall(self) -> None:
        if self.round.at_work:
            until(lambda: len([*self.truth.iterdir()]) == self.round.ranks)
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
        if misfortune.beneath:
            self._fail(verb, whom, misfortune)
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

    def _fail(self, verb: str, whom: str, misfortune: Misfortune) -> None:
        disk, network, seconds = self.arena.disk, self.arena.network, misfortune.pause
        if whom == "node":
            assert network is not None
            node, launch = self.dice.randrange(self.round.nodes), self._ask("GET")["launches"]
            if seconds > SHORT:
                self.happened.add(misfortune.what)
            network.cut(seconds, f"/agent/v1/{node}/", f"{launch}:{self.name}:")
            return
        harmless = verb == "cut" and seconds <= SHORT
        with self.arena.befalls_all("nothing" if harmless else misfortune.what):
            if verb == "cut":
                assert network is not None
                network.cut(seconds, "/agent/v1/")
            else:
                assert disk is not None
                (disk.fill if verb == "fill" else disk.freeze)(seconds)

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
            with contextlib.suppress(AllranksError), find_server.connect() as client:
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

        until(over, 300)
        return found

    # ------------------------------------------------------------ what always holds

    def _hold(self, job: Any) -> None:
        truth = sorted(known(self.truth))
        events = self._ask("GET", "/events")
        until(lambda: not self._alive(), 20)
        self._word_is_true(job, truth)
        self._lines_are_whole(job, truth)
        self._points_are_whole(job, truth, events)
        never_two(truth)
        resumed_from_what_was_kept(truth, gently=not self.happened & HARD)
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
        if job["error"]["reason"] in ("RANK_EXITED", "SETUP_FAILED"):
            # One that had no room for a word, and it was there again when its agent looked: that is
            # not known.
            rank = job["error"]["rank"]
            mute = LAST_WORDS not in log(job, job["attempts"], rank or 0, self.round.ranks)
            assert job["error"]["cause"] in ("DISK_FULL", "UNKNOWN" if mute else ""), job["error"]
        if not self.happened & COUNTED and self.round.attempts > 1:
            raise AssertionError(f"a loss ate the user's attempts: {job['error']}")

    def _lines_are_whole(self, job: Any, truth: list[Known]) -> None:
        """Every line that was printed is in the log once and in order, and none besides."""
        for each in truth:
            printed = log(job, each.attempt, each.rank, self.round.ranks)
            first, steps = each.numbers("resumed")[0], each.numbers("step")
            whole, rest = 0, printed
            while rest.startswith(
                line := f"{each.attempt} {each.rank} {first + whole} n={first + whole}\n"
            ):
                whole, rest = whole + 1, rest.removeprefix(line)
            if rest:
                assert "fill disk" in self.happened
                # There was room for some of a line, and perhaps for some of the last words.
                torn = rest.partition(LAST_WORDS)[0]
                assert line.startswith(torn) or LAST_WORDS.startswith(rest), rest
            # The last may have been printed, and its rank killed before it wrote that down.
            assert whole - len(steps) in (0, 1), (each.attempt, each.rank)

    def _points_are_whole(self, job: Any, truth: list[Known], events: list[Any]) -> None:
        """Every point once and in order; all of them where no agent was taken from them, and no
        disk was so full that this had to be told."""
        told_of = {
            e["attempt"] for e in events if "the disk is full" in e["data"].get("message", "")
        }
        told = self._ask("GET", "/metrics")["series"]
        of = {(s["attempt"], s["rank"]): [round(p[2]) for p in s["points"]] for s in told}
        assert len(of) == len(told)
        for each in truth:
            found = of.get((each.attempt, each.rank), [])
            printed = log(job, each.attempt, each.rank, self.round.ranks)
            wanted = [int(number) for number in re.findall(r" n=(\d+)", printed)]
            assert found == wanted[: len(found)]
            if not self.happened & HARD and each.attempt not in told_of:
                assert found == wanted


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
    ), "\n".join(map(str, events))
    starts = Counter((e["attempt"], e["node"]) for e in events if e["kind"] == "started")
    assert not starts or max(starts.values()) == 1


def log(job: Any, attempt: int, rank: int, ranks: int) -> str:
    name = "std_log.txt" if ranks == 1 else f"std_log_process_{rank}.txt"
    path = Path(job["folder"], "attempts", str(attempt), "user_logs", name)
    return path.read_text() if path.exists() else ""


def _parent(pid: int) -> int | None:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).ppid()
    return None


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
