"""Answers with points: whole, in pieces, and what is no question."""

import asyncio
import base64
import contextlib
import json
import math
import sys
from collections import defaultdict
from types import SimpleNamespace

import httpx
import pytest

from allranks.core.plan import Gang, MetricTask, Plan, Rules, Task
from allranks.server.api.application import create_app
from allranks.server.api.routes import metrics
from allranks.server.auth.roles import OWNER, PERSON
from allranks.server.http.answer_cache import AnswerCache
from allranks.server.loop.live_views import LiveViews
from allranks.server.loop.wakeups import Wakeups
from allranks.statuses import JobStatus
from allranks.store.database import open_database
from allranks.store.jobs.records import Records
from allranks.store.metric_points import Points, Source

COUNT = 2 * metrics._PIECE + 7


# Of a metric, by rank.
VALUES = ([3.0, 2.0, 1.0], [0.0, 10.0, 20.0])


@pytest.fixture
def database(tmp_path):
    opened = open_database(tmp_path / "db")
    yield opened
    opened.dispose()


@pytest.fixture
def told(database):
    """Ask about a job that has ended, two ranks of which have told a metric."""
    records, points = Records(database), Points(database)
    task = Task("j", "e", "c", nodes=2, metrics=(MetricTask("speed", "(x)", None),))
    row = records.create({}, Plan(Gang("j.1", 2, ()), task, Rules(), "x"))
    for node in range(2):
        rows = [["speed", node, n, float(n), n if n else math.nan] for n in range(COUNT)]
        line = json.dumps({"points": rows}).encode() + b"\n"
        points.add_from_agent(Source(row.id, 1, node, "metrics"), 0, line)
    line = json.dumps({"at": 9.5, "points": [["cpu", None, None, 7]]}).encode() + b"\n"
    points.add_from_agent(Source(row.id, 1, 0, "resources"), 0, line)
    job = row.record._replace(status=JobStatus.COMPLETED)
    ended = row._replace(record=job)
    seen = SimpleNamespace(get=lambda name: ended, answering=lambda name: ended)
    people = create_app(lambda app: contextlib.nullcontext())
    people.state.services = SimpleNamespace(
        records=seen,
        points=points,
        wakeups=Wakeups(),
        live_views=LiveViews(),
        rank_answers=AnswerCache(),
    )

    async def app(scope, receive, send):
        await people({**scope, PERSON: OWNER}, receive, send)

    async def ask(path, data):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            method = "GET" if data is None else "POST"
            return await client.request(method, f"/api/v1/jobs/j/{path}", json=data)

    return lambda path, data=None: asyncio.run(ask(path, data))


def test_long_answers_are_whole(told):
    found = told("metrics").json()["series"]
    assert [each["key"] for each in found] == ["speed/rank_0", "speed/rank_1"]
    for each in found:
        assert each["length"] == len(each["points"]) == COUNT
        assert each["points"][:2] == [[0, 0.0, "NaN"], [1, 1.0, 1.0]]
        assert [point[0] for point in each["points"]] == list(range(COUNT))
    (few,) = told("metrics?most=3&metric=speed/rank_1").json()["series"]
    last = float(COUNT - 1)
    assert few["points"] == [[0, 0.0, "NaN"], [1, 1.0, 1.0], [COUNT - 1, last, last]]
    assert few["thinned"]
    assert not any(each["thinned"] for each in found)
    assert told("metrics?metric=x").json() == {"series": []}
    for query, ranks in (
        ("metric=x&metric=speed", [0, 1]),
        ("metric=speed/rank_1&metric=speed/rank_0", [0, 1]),
        ("metric=speed&rank=1&rank=7", [1]),
        ("rank=0&rank=1", [0, 1]),
    ):
        several = told(f"metrics?most=3&{query}").json()["series"]
        assert [each["rank"] for each in several] == ranks
    (cpu,) = told("resources").json()["series"]
    assert (cpu["name"], cpu["points"]) == ("cpu", [[9.5, 7.0]])


def test_a_summary_may_have_the_shape_of_the_mean_of_ranks(told, database):
    """A row of many ranks names their mean, so its sparkline must not be the first rank's."""
    rows = [["up", rank, n, 0.0, value] for rank in (0, 1) for n, value in enumerate(VALUES[rank])]
    data = json.dumps({"points": [*rows, ["up", 2, 0, 0.0, math.nan]]}).encode() + b"\n"
    for attempt in (2, 1):
        Points(database).add_from_agent(Source(1, attempt, 0, "logged"), 0, data)
    for query, shapes in (
        ("", 2 * [*VALUES, ["NaN"]]),
        ("?mean=true", [[], [], [], [1.5, 6.0, 10.5], [], []]),
        ("?shape=false", [[]] * 6),
    ):
        several = told(f"metrics/summary{query}").json()["series"]
        by_rank = {
            (one["attempt"], one["rank"]): one["shape"] for one in several if one["name"] == "up"
        }
        assert [by_rank[key] for key in sorted(by_rank)] == shapes
        assert [one["max"] for one in several if one["name"] == "speed"] == [COUNT - 1.0] * 2


def test_all_ranks_of_a_metric_in_one_answer(told):
    (found,) = told("metrics/ranks?metric=speed&most=100").json()["attempts"]
    assert len(found["places"]) == len(found["times"]) <= 100
    assert found["greatest"][-1] == COUNT - 1
    assert found["odd"] == [[0, 0, "NaN"], [0, 1, "NaN"]]
    assert [(each["node"], each["rank"]) for each in found["tracks"]] == [(0, 0), (1, 1)]
    assert found["tracks"][0]["cells"] == []
    (all_of_it,) = told("metrics/ranks?metric=speed&cells=true").json()["attempts"]
    assert len(all_of_it["tracks"][0]["cells"]) == len(all_of_it["columns"])
    for _ in range(2):  # the second time it is not computed again
        (drawn,) = told("metrics/ranks?metric=speed&heat=true").json()["attempts"]
        shades = [*base64.b64decode(drawn["heat"]["shades"])]
        assert len(shades) == 2 * len(drawn["columns"])
        assert shades[: len(drawn["columns"])] == sorted(shades[len(drawn["columns"]) :])
        assert drawn["places"] == []
    (part,) = told("metrics/ranks?metric=speed&heat=true&low=3&high=5").json()["attempts"]
    assert part["columns"] == [3, 4, 5]
    (part,) = told("metrics/ranks?metric=speed&begin=5&end=7").json()["attempts"]
    assert (part["places"], part["times"]) == ([5, 6, 7], [5.0, 6.0, 7.0])
    (cpu,) = told("metrics/ranks?metric=cpu&kind=resource").json()["attempts"]
    assert (cpu["places"], cpu["mean"]) == ([9.5], [7.0])
    assert told("metrics/ranks?metric=x").status_code == 404
    assert told("metrics/ranks?metric=speed&begin=1e9").json() == {"attempts": []}


def test_the_largest_numbers_of_ranks_give_json(told, database):
    largest = sys.float_info.max
    rows = [["vast", r, n, 0.0, largest * (-1) ** (n + r // 2)] for n in range(3) for r in range(4)]
    data = json.dumps({"points": rows}).encode() + b"\n"
    Points(database).add_from_agent(Source(1, 1, 0, "logged"), 0, data)
    for query in ("metrics/ranks?metric=vast", "metrics/ranks?metric=vast&heat=true"):
        assert "Infinity" not in told(query).text
        assert "NaN" not in told(query).text


def test_who_follows_gets_a_part_at_a_time_and_each_point_once(told, monkeypatch):
    monkeypatch.setattr(metrics, "_AT_ONCE", 1500)
    positions, steps, largest = defaultdict(int), defaultdict(list), 0
    while True:
        said = told("metrics/follow", {"positions": positions}).json()
        if not said["series"]:
            break
        largest = max(largest, sum(len(each["points"]) for each in said["series"]))
        for each in said["series"]:
            positions[str(each["id"])] += len(each["points"])
            steps[each["key"]] += [point[0] for point in each["points"]]
    assert said["ended"]
    assert largest == 1500
    assert steps == {f"speed/rank_{rank}": list(range(COUNT)) for rank in range(2)}


def test_what_is_no_question_is_told(told):
    for path in ("metrics", "resources"):
        assert told(f"{path}?most=0").status_code == 400
    for positions in ([1], {"a": 1}, {"1": -1}, 3):
        data = {"positions": positions}
        assert told("metrics/follow", data).status_code == 400


def loaded(tmp_path, points):
    """The load of a job of one node, of which these points were told."""
    database = open_database(tmp_path / "load")
    records, kept = Records(database), Points(database)
    row = records.create({}, Plan(Gang("k.1", 1, ()), Task("k", "e", "c"), Rules(), "x"))
    line = json.dumps({"at": 9.5, "points": points}).encode() + b"\n"
    kept.add_from_agent(Source(row.id, 1, 0, "resources"), 0, line)
    row = row._replace(record=row.record._replace(attempt=1))
    (found,) = metrics.measured(row, SimpleNamespace(points=kept, live_views=LiveViews()))["load"]
    database.dispose()
    return found


def test_what_a_job_uses_is_told_beside_what_its_node_does(tmp_path):
    own = [["cpu", None, None, 5], ["memory", None, None, 10], ["cpu", None, 3, 40]]
    of_node = [["node_cpu", None, None, 90], ["node_memory", None, None, 70]]
    found = loaded(tmp_path, [*own, *of_node, ["net_in", None, None, 8]])
    assert (found["node"], found["cpu"], found["memory"], found["net_in"]) == (0, 5, 10, 8)
    assert found["node_load"] == {"cpu": 90, "memory": 70, "net_in": 8}
    assert found["ranks"] == [{"rank": 3, "cpu": 40}]
