"""Which metrics tell of steps that a later attempt may do anew."""

from __future__ import annotations

from allranks.sdk.jobs.goodput_facts import trails


def series(name, attempt, *steps, rank=0):
    return {
        "name": name,
        "attempt": attempt,
        "rank": rank,
        "points": [[step, 10.0 + n, 0.5] for n, step in enumerate(steps)],
    }


def names(spec, *several):
    return [(each.name, each.attempt) for each in trails({"spec": spec}, several)]


def test_steps_that_were_only_counted_say_nothing():
    counted = (series("loss", 1, 0, 1, 2), series("loss", 2, 0, 1))
    assert names({"metrics": {"loss": r"loss (\S+)"}}, *counted) == []
    assert names({}, *counted) == []
    assert names({}, series("from mlflow", 1, 0, 0, 0, rank=None)) == []


def test_unless_the_pattern_reads_them():
    told = [("loss", 1), ("loss", 2)]
    counted = (series("loss", 1, 0, 1, 2), series("loss", 2, 0, 1))
    for pattern in (r"loss (\S+) at (\d+)", r"(?P<step>\d+) loss (?P<value>\S+)"):
        assert names({"metrics": {"loss": pattern}}, *counted) == told
        assert names({"metrics": {"loss": {"pattern": pattern}}}, *counted) == told
    assert names({"metrics": {"keras": {"rank": "all"}}}, *counted) == told
    only_a_value = r"(x) loss (?P<value>\S+)"
    assert names({"metrics": {"loss": only_a_value}}, *counted) == []


def test_or_they_are_no_count():
    assert names({}, series("loss", 1, 0, 1, 2), series("loss", 2, 2, 3)) == [
        ("loss", 1),
        ("loss", 2),
    ]
    assert names({}, series("empty", 1)) == []
