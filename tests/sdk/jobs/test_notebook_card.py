"""A job as HTML for notebooks: well-formed, of text alone, and followed by a real kernel."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allranks.errors import UsageError
from allranks.sdk.jobs.notebook_card import card, line

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
METRIC = {"key": "loss</td>", "last": [7, 1.0, "NaN"], "shape": [3, 2, "NaN", 1, 0.5]}


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
        "loss</td>",
        "NaN",
        "step 7",
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


def test_many_metrics_are_counted():
    assert "and 12 metrics more" in text_of(card(JOB, [METRIC] * 20))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.just("NaN"), max_size=40))
@example([1.7976931348623157e308, -9.9792015476736e291])
def test_a_line_is_well_formed_and_inside(values):
    drawn = line(values)
    if drawn:
        for each in ElementTree.fromstring(drawn):
            for pair in each.attrib["points"].split():
                x, y = map(float, pair.split(","))
                assert 0 <= x <= 150
                assert 0 <= y <= 26


@pytest.mark.slow
def test_a_job_shows_itself(client_of, code):
    job = client_of(metrics={"loss": r"loss (\S+)"}, command="echo loss 1; echo loss 0.5")
    job.wait()
    assert "Completed" in text_of(job._repr_html_())
    assert "0.5" in text_of(job._repr_html_())
    with pytest.raises(UsageError, match="not a notebook"):
        job.watch()


@pytest.fixture
def client_of(shared_home, monkeypatch, code):
    from allranks import Client, command
    from tests.support import environment

    for name in ("ALLRANKS_HOME", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, environment(shared_home)[name])
    return lambda **words: Client().jobs.create_or_update(command(**words))
