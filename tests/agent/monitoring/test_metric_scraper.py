"""The scraper: every point once and in order, whatever the lines, however often it is killed."""

import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from allranks.agent.monitoring.metric_scraper import NAMES, Scraper
from allranks.agent.monitoring.metrics import Metrics
from allranks.core.plan import MetricTask, Task
from allranks.spec.fields.metric_formats import BUILTIN
from tests.support import until


def points_of(path: Path):
    told = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [point for each in told for point in each["points"]]


def scrape(folder: Path, logs: dict[int, bytes], *metrics: MetricTask, name: str = "m.jsonl"):
    """All that is found in these logs, and what is told of it."""
    paths = {rank: folder / f"rank {rank}.log" for rank in logs}
    for rank, text in logs.items():
        paths[rank].write_bytes(text)
    metrics = Metrics(Task("j", "e", "c", metrics=metrics), paths, folder / name)
    told = [each["message"] for each in metrics.finish()]
    return points_of(folder / name), told


def end(metrics: Metrics) -> None:
    """Kill its scraper, however far it is."""
    if metrics._child is not None:
        metrics._end(metrics._child)


def test_points_have_their_rank_step_and_time(tmp_path):
    logs = {0: b"loss 1\nloss 0.5\n", 1: b"loss 2\nacc 3 at 70"}
    wanted = [MetricTask("loss", r"loss (\S+)", None), MetricTask("acc", r"acc (\S+) at (\d+)", 1)]
    found, told = scrape(tmp_path, logs, *wanted)
    assert [point[:3] + point[4:] for point in sorted(found, key=lambda p: p[1])] == [
        ["loss", 0, None, 1.0],
        ["loss", 0, None, 0.5],
        ["loss", 1, None, 2.0],
        ["acc", 1, 70, 3.0],
    ]
    written = (tmp_path / "rank 0.log").stat().st_mtime
    assert all(abs(point[3] - written) < 5 for point in found)
    assert told == []


def test_bars_odd_bytes_and_endless_lines(tmp_path):
    text = b"loss 1\rloss 2\rloss \xff\x00\n" + b"x" * 100_000 + b"\n\x1b[1mloss\x1b[0m 3\nloss nan"
    found, told = scrape(tmp_path, {0: text}, MetricTask("loss", r"loss (\S+)"))
    assert [point[4] for point in found[:3]] == [1.0, 2.0, 3.0]
    assert math.isnan(found[3][4])
    assert told == ["the metric 'loss' found '\ufffd\\x00' where a number should be"] or (
        len(told) == 1 and "where a number should be" in told[0]
    )


def test_a_number_in_which_a_long_line_is_cut_is_none(tmp_path):
    text = b"loss 7 " + b"x" * 16_370 + b" loss 12345\n" + b"x" * 16_377 + b"loss 12345\n"
    found, told = scrape(tmp_path, {0: text + b"y" * 40_000}, MetricTask("n", r" loss (\d+)|y$"))
    assert (found, told[0]) == ([], "the metric 'n' matched no line that rank 0 printed")


def test_names_may_hold_anything_that_prints(tmp_path):
    wanted = [MetricTask("train/loss", r"loss (\S+)", None), MetricTask("../x/0", r"acc (\S+)")]
    found, told = scrape(tmp_path, {0: b"loss 1\nacc 2\n", 1: b"loss 3\n"}, *wanted)
    assert sorted(point[0] for point in found) == ["../x/0", "train/loss", "train/loss"]
    assert told == []


def test_a_step_that_is_none_is_told_and_counted(tmp_path):
    text = b"v 1 at 10\nv 2 at 1.5\nv 3 at x\nv 4 at 99999999999999999999\nv 5\n"
    found, told = scrape(tmp_path, {0: text}, MetricTask("v", r"v (\S+)(?: at (\S+))?"))
    assert [point[2] for point in found] == [10, None, None, None, None]
    assert told == ["the metric 'v' found '1.5' where its step should be; its steps are counted"]


def test_a_metric_that_matched_nothing_is_told(tmp_path):
    wanted = [MetricTask("loss", "loss (x)"), MetricTask("acc", "acc (x)", None)]
    assert scrape(tmp_path, {0: b"a\n", 1: b""}, *wanted)[1] == [
        "the metric 'loss' matched no line that rank 0 printed",
        "the metric 'acc' matched no line that any rank printed",
    ]


@pytest.mark.medium
@pytest.mark.parametrize("little", [0, 1 << 20], ids=["by a process", "by the agent"])
def test_a_pattern_that_explodes_is_broken_off_and_then_dropped(tmp_path, monkeypatch, little):
    monkeypatch.setattr("allranks.agent.monitoring.metrics._LITTLE", little)
    text = (b"a" * 60 + b"b\nloss 1\n") * 6
    wanted = [MetricTask("evil", "^(a+)+$"), MetricTask("loss", r"loss (\S+)")]
    found, told = scrape(tmp_path, {0: text}, *wanted)
    assert [point[0] for point in found] == ["loss"] * 6
    assert len(told) == 1
    assert told[0].startswith("the metric 'evil' was turned off: its pattern took too long")


@pytest.mark.medium
def test_one_slow_line_is_left_out(tmp_path):
    found, told = scrape(tmp_path, {0: b"a" * 60 + b"b\naaa\n"}, MetricTask("n", "^((?:a+)+)$"))
    assert found == []
    assert "1 line was skipped for the metric 'n'" in told[0]


@pytest.mark.medium
def test_slow_metrics_have_a_time_of_their_own(tmp_path):
    """Each takes a part of what one may take, all of them several times as much."""
    text = (b"x" * 1500 + b"\n") * 40 + b"loss acc: 1\n"
    wanted = [MetricTask(f"m{n}", r".*loss.*acc: (\S+)") for n in range(12)]
    found, told = scrape(tmp_path, {0: text}, *wanted)
    assert sorted(point[0] for point in found) == sorted(each.name for each in wanted)
    assert told == []


def test_names_that_never_end_are_bounded_and_told(tmp_path):
    text = b"".join(b"{'a_%d': 0.5, 'loss': 0.1}\n" % n for n in range(2 * NAMES))
    wanted = [MetricTask("transformers", BUILTIN), MetricTask("acc", r"a_(\d+)")]
    found, told = scrape(tmp_path, {0: text}, *wanted)
    assert len({point[0] for point in found}) in (NAMES, NAMES + 1)
    assert sum(point[0] == "loss" for point in found) == 2 * NAMES
    assert sum(point[0] == "acc" for point in found) == 2 * NAMES
    assert told == ["the metric 'transformers' found more than 500 names: only the first are kept"]


def test_ranks_of_other_nodes_need_no_scraper(tmp_path):
    metrics = Metrics(
        Task("j", "e", "c", metrics=(MetricTask("m", "(x)", 5),)),
        {0: tmp_path / "log"},
        tmp_path / "m",
    )
    assert metrics.finish() == []
    assert not (tmp_path / "m").exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_moment_it_finds_every_point_once(tmp_path, seed):
    dice = random.Random(seed)
    log, into = tmp_path / "log", tmp_path / "m.jsonl"
    log.touch()
    task = Task("j", "e", "c", metrics=(MetricTask("n", r"n (\d+)"),))
    total, written = 30_000, 0
    with log.open("ab", buffering=0) as file:
        while written < total:
            metrics = Metrics(task, {0: log}, into)
            metrics.begin()
            more = min(total - written, dice.randrange(5000))
            file.write(b"".join(b"n %d\n" % n for n in range(written, written + more)))
            written += more
            size = into.stat().st_size if into.exists() else 0
            if more and dice.random() < 0.5:  # in the middle of its work, not before it
                until(lambda size=size: into.exists() and into.stat().st_size > size)
            end(metrics)
    Metrics(task, {0: log}, into).finish()
    found = points_of(into)
    assert [point[4] for point in found] == [float(n) for n in range(total)]
    assert {point[2] for point in found} == {None}  # the server counts them


def test_what_was_torn_off_is_written_again(tmp_path):
    log, into = tmp_path / "log", tmp_path / "m.jsonl"
    log.write_text("n 1\nn 2\n")
    task = Task("j", "e", "c", metrics=(MetricTask("n", r"n (\d+)"),))
    Metrics(task, {0: log}, into).finish()
    with into.open("ab") as file:
        file.write(b'{"points": [["n", 0, 2, 1.0')
    with log.open("a") as file:
        file.write("n 3\n")
    Metrics(task, {0: log}, into).finish()
    assert [point[4] for point in points_of(into)] == [1.0, 2.0, 3.0]


def test_a_short_job_costs_no_process_and_a_long_log_one(tmp_path, monkeypatch):
    started = []

    class Counted(subprocess.Popen):
        def __init__(self, *words, **more):
            started.append(words)
            super().__init__(*words, **more)

    monkeypatch.setattr(subprocess, "Popen", Counted)
    before = signal.getsignal(signal.SIGPROF), signal.getitimer(signal.ITIMER_PROF)
    found, told = scrape(tmp_path, {0: b"n 1\nn 2"}, MetricTask("n", r"n (\d+)"))
    assert ([point[4] for point in found], told, started) == ([1.0, 2.0], [], [])
    assert before == (signal.getsignal(signal.SIGPROF), signal.getitimer(signal.ITIMER_PROF))
    text = b"x\n" * 200_000 + b"n 3"
    found, told = scrape(tmp_path, {0: text}, MetricTask("n", r"n (\d+)"), name="long")
    assert ([point[4] for point in found], told, len(started)) == ([3.0], [], 1)


@pytest.mark.parametrize("damage", [b"{\n", b"\xff\n", b"[1]\n", b'{"read": 1}\n'])
def test_what_it_has_written_is_damaged(tmp_path, damage):
    (tmp_path / "m.jsonl").write_bytes(damage)
    metrics = Metrics(
        Task("j", "e", "c", metrics=(MetricTask("n", r"n (\d+)"),)),
        {0: tmp_path / "log"},
        tmp_path / "m.jsonl",
    )
    (told,) = metrics.finish()
    assert told["message"].startswith("some metrics could not be read from the logs: ")


@pytest.mark.parametrize("end", ["/dev/zero", "pipe"])
def test_a_log_that_has_become_endless_is_left(tmp_path, end):
    os.mkfifo(tmp_path / "pipe")
    log = tmp_path / "log"
    log.symlink_to(tmp_path / end)  # an absolute path stays what it is
    task = Task("j", "e", "c", metrics=(MetricTask("n", r"n (\d+)"),))
    (told,) = Metrics(task, {0: log}, tmp_path / "m").finish()
    assert told["missed"] == "n"


def test_a_truncated_log_does_not_count_against_another(tmp_path):
    (tmp_path / "a").write_bytes(b"n 1\n" * 100)
    (tmp_path / "b").write_bytes(b"n 1\n" * 10)
    request = {
        "metrics": [{"name": "n", "pattern": r"n (\d+)", "rank": None}],
        "logs": {0: str(tmp_path / "a"), 1: str(tmp_path / "b")},
        "into": str(tmp_path / "m"),
    }
    with contextlib.closing(Scraper(request)) as scraper:
        assert scraper.unread() == 440
        assert scraper.read_rest() == ""
        (tmp_path / "a").write_bytes(b"")
        (tmp_path / "b").write_bytes(b"n 1\n" * 20)
        assert scraper.unread() == 40


def test_steps_between_two_looks_are_no_stair(tmp_path):
    """Lines have no times: those that a look finds came one by one since the look before."""
    log = tmp_path / "log"
    log.write_bytes(b"n 1\n")
    request = {
        "metrics": [{"name": "n", "pattern": r"n (\d+)", "rank": None}],
        "logs": {0: str(log)},
        "into": str(tmp_path / "m"),
    }
    with contextlib.closing(Scraper(request)) as scraper:
        assert scraper.look()
        first = time.time()
        log.write_bytes(b"n 1\n" * 11)
        os.utime(log, (first + 10, first + 10))
        assert scraper.look()
    times = [point[3] for point in points_of(tmp_path / "m")][1:]
    pauses = [two - one for one, two in pairwise(times)]
    assert (len(times), times[-1]) == (10, pytest.approx(first + 10, abs=0.1))
    assert pauses == pytest.approx([1.0] * 9, abs=0.1)


def test_a_process_that_starts_when_the_ranks_end_is_ended(tmp_path, monkeypatch):
    log = tmp_path / "log"
    log.write_text("n 1\n")
    metrics = Metrics(
        Task("j", "e", "c", metrics=(MetricTask("n", r"n (\d+)"),)), {0: log}, tmp_path / "m"
    )
    start = metrics._start
    begun, may_go_on = threading.Event(), threading.Event()

    def slow_start():
        begun.set()
        may_go_on.wait(60)
        return start()

    monkeypatch.setattr(metrics, "_start", slow_start)
    starting = threading.Thread(target=metrics.begin)
    starting.start()
    begun.wait(60)
    threading.Timer(0.1, may_go_on.set).start()
    assert metrics.finish() == []
    assert metrics._child is not None
    assert metrics._child.returncode is not None
    starting.join()
    assert [point[4] for point in points_of(tmp_path / "m")] == [1.0]


def test_a_scraper_imports_little():
    line = "import sys; import allranks.agent.monitoring.metric_scraper; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert not {"pydantic", "mlflow", "asyncio", "subprocess"} & set(said.stdout.split())


def test_its_parent_gone_it_ends(tmp_path):
    log = tmp_path / "log"
    log.write_text("n 1\n")
    metrics = Metrics(
        Task("j", "e", "c", metrics=(MetricTask("n", r"n (\d+)"),)), {0: log}, tmp_path / "m"
    )
    metrics.begin()
    assert metrics._child is not None
    pid = metrics._child.pid
    assert metrics._child.stdin is not None
    metrics._child.stdin.close()
    metrics._child.wait(timeout=120)
    end(metrics)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert points_of(tmp_path / "m")[0][4] == 1.0
