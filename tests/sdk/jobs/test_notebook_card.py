"""A job as HTML for notebooks: well-formed, of text alone, and followed by a real kernel."""

from __future__ import annotations

import re
import shlex
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allranks.errors import UsageError
from allranks.sdk.jobs.notebook_card import card, metric_names
from allranks.sdk.jobs.notebook_chart import HEIGHT, WIDTH, chart
from allranks.sdk.jobs.notebook_watch import Output

JOB = {
    "name": "j<1>",
    "status": "Running",
    "status_reason": None,
    "ended_at": None,
    "nodes": 2,
    "processes": 4,
    "attempts": 2,
    "compute": "a&b",
    "error": None,
    "metrics": {"loss</td>/rank_1": 1.0, "acc": 2.0},
    "load": [
        {
            "node": 0,
            "cpu": 51.2,
            "memory": 2e9,
            "memory_total": 8e9,
            "gpus": [{"gpu": 1, "gpu_load": 97.0}],
            "node_load": {"cpu": 88.0, "memory": 5e9},
        }
    ],
}
METRIC = {
    "name": "loss</td>",
    "key": "loss</td>/rank_1",
    "attempt": 1,
    "rank": 1,
    "points": [[0, 1.0, 3], [1, 2.0, 2.5], [2, 3.0, "NaN"], [7, 4.0, "Infinity"]],
}


def text_of(html: str) -> str:
    return " ".join(ElementTree.fromstring(html).itertext())


def test_a_card_tells_how_the_job_stands():
    html = card(JOB, [METRIC], ["<script>alert(1)</script>", "rank 0 & 1"])
    told = text_of(html)
    for each in (
        "j<1>",
        "Running",
        "attempt 2",
        "2 × 2 ranks on a&b",
        "loss</td> Infinity at step 7",
        "and 1 metrics more",
    ):
        assert each in told
    assert "cpu 51 %, memory 2.0 GB of 8.0 GB, GPU 1 97 %, all of the node: cpu 88 %" in told
    assert "<script>alert(1)</script>" in told
    assert not re.search(r"<script|https?://", html.replace("&lt;", ""))


def test_what_failed_says_why():
    error = {"message": "rank 1 <died>", "hint": "look & see"}
    told = text_of(card({**JOB, "status": "Failed", "error": error}))
    assert "rank 1 <died>" in told
    assert "hint: look & see" in told


def test_the_lines_of_ranks_are_apart_and_bars_overwrite_their_own():
    output = Output()
    for rank, text in [(0, "a"), (1, "b\n\r10%"), (0, "c\r\n"), (1, "\r20%"), (1, "\r30%\r")]:
        output.add({"log": text, "rank": rank, "node": 0, "attempt": 1, "offset": 0})
    assert output.lines() == ["rank 1 | b", "rank 0 | ac", "rank 1 | 30%"]
    alone = Output()
    alone.add({"log": "x\n" * 20 + "y", "rank": 3, "node": 0, "attempt": 1, "offset": 0})
    assert alone.lines() == ["x"] * 11 + ["y"]


def test_attempts_are_one_curve_and_an_ended_job_uses_nothing():
    again = {**METRIC, "attempt": 2, "points": [[2, 5.0, 1.5], [8, 6.0, 1.25]]}
    error = {"message": "it died", "rank": 1}
    failed = {**JOB, "status": "Failed", "ended_at": "2026-01-01", "error": error}
    html = card(failed, [again, METRIC], ["bye"])
    (curve,) = (each.attrib["points"] for each in ElementTree.fromstring(html).iter("polyline"))
    assert len(curve.split()) == 4
    assert "loss</td> 1.25 at step 8" in text_of(html)
    assert "cpu" not in text_of(html)
    assert html.index("bye") < html.index("<svg")


def test_only_some_of_many_metrics_are_drawn():
    job = {**JOB, "metrics": {f"{each}/rank_0": 1.0 for each in range(20)}}
    assert metric_names(job) == [*map(str, range(8))]
    assert "and 19 metrics more" in text_of(card(job, [METRIC]))
    assert "<svg" not in card(JOB, [{**METRIC, "points": []}])


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.just("NaN")


@given(st.lists(st.lists(st.tuples(st.integers(-(2**53), 2**53), NUMBERS)), max_size=10))
@example([[(0, 1.7976931348623157e308), (1, -9.9792015476736e291)]])
def test_a_chart_is_well_formed_and_inside(series):
    several = [{"key": "<", "points": [(x, 0.0, y) for x, y in each]} for each in series]
    drawn = chart("a & b", several)
    if drawn:
        for each in ElementTree.fromstring(drawn).iter("polyline"):
            for pair in each.attrib["points"].split():
                x, y = map(float, pair.split(","))
                assert 0 <= x <= WIDTH
                assert 0 <= y <= HEIGHT


@pytest.mark.slow
def test_a_job_shows_itself(client_of, code):
    job = client_of(metrics={"loss": r"loss (\S+)"}, command="echo loss 1; echo loss 0.5")
    job.wait()
    assert "Completed" in text_of(job._repr_html_())
    assert "0.5" in text_of(job._repr_html_())
    with pytest.raises(UsageError, match="not a notebook"):
        job.watch()


@pytest.mark.slow
def test_the_card_of_a_failed_job_shows_the_rank_that_failed(client_of):
    script = "import os; r = os.environ['RANK']; print('hello of', r); assert r != '1', 'bad luck'"
    ranks = {"type": "pytorch", "process_count_per_instance": 3}
    job = client_of(command=f"python -c {shlex.quote(script)}", distribution=ranks)
    job.wait()
    told = text_of(job._repr_html_())
    assert "The last lines of rank 1:" in told
    assert "AssertionError: bad luck" in told.partition("The last lines")[2]
    assert "hello of 0" not in told
    assert "cause: " in told


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_job_without_output_is_redrawn_too(client_of, monkeypatch, tmp_path):
    """Its card said Queued until it ended."""
    end = tmp_path / "end"

    def update(html):
        if ">Running<" in html:
            end.touch()

    display = SimpleNamespace(HTML=str, display=lambda *_, **__: SimpleNamespace(update=update))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    job = client_of(command=f"until [ -e {shlex.quote(str(end))} ]; do sleep 0.05; done")
    job.watch(every=0.0)
    assert job.status == "Completed"


@pytest.fixture
def client_of(shared_home, monkeypatch, code):
    from allranks import Client, command
    from tests.support import environment

    for name in ("ALLRANKS_HOME", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, environment(shared_home)[name])
    return lambda **words: Client().jobs.create_or_update(command(**words))
