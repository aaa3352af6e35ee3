"""Points in the record: each once and in order, however often and in what pieces they are sent."""

import json
import math
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.store.compaction import compact
from allranks.store.database import open_database
from allranks.store.jobs.records import Records
from allranks.store.metric_points import METRIC, RESOURCE, Point, Points, Source, number


@pytest.fixture
def database(where):
    engine = open_database(where)
    yield engine
    engine.dispose()


@pytest.fixture
def job(database):
    made = Records(database).create({}, Plan(Gang("j.1", 1, ()), Task("j", "e", "c"), Rules(), "x"))
    return made.id


def line(*points, **more):
    return json.dumps({"points": points, **more}).encode() + b"\n"


def values(points, job, kind=METRIC):
    return {
        (each.name, each.rank): [point.value for point in points.read(each)]
        for each in points.series(job, kind)
    }


def test_what_is_sent_twice_is_there_once(database, job):
    points, source = Points(database), Source(job, 1, 0, "metrics")
    first, second = line(["l", 0, 0, 1.0, 5]), line(["l", 0, 1, 2.0, 4], ["a", 1, 7, 2.0, 1])
    assert points.add_from_agent(source, 0, first) == len(first)
    assert points.add_from_agent(source, 0, first) == len(first)
    whole = len(first + second)
    assert points.add_from_agent(source, 0, first + second) == whole
    assert points.add_from_agent(source, len(first), second) == whole
    assert values(points, job) == {("l", 0): [5.0, 4.0], ("a", 1): [1.0]}
    assert [tuple(p) for p in points.read(points.series(job, METRIC)[1])] == [
        (0, 1.0, 5.0),
        (1, 2.0, 4.0),
    ]


def test_points_without_a_step_go_on_in_the_next_attempt(database, job):
    points = Points(database)

    def send(attempt: int, *rows: list[object], offset: int = 0) -> int:
        line = json.dumps({"points": [[*row, 1.0, 0.5] for row in rows]}).encode() + b"\n"
        return points.add_from_agent(Source(job, attempt, 0, "metrics"), offset, line)

    end = send(1, ["loss", 0, None], ["loss", 0, None], ["loss", 1, None], ["lr", 0, 40])
    send(1, ["loss", 0, None], ["lr", 0, None], offset=end)
    send(2, ["loss", 0, None], ["loss", 0, None], ["loss", 1, None], ["lr", 0, 5], ["new", 0, None])
    steps = {
        (one.attempt, one.name, one.rank): [point.step for point in points.read(one)]
        for one in points.series(job, METRIC)
    }
    assert steps == {
        (1, "loss", 0): [0, 1, 2],
        (1, "loss", 1): [0],
        (1, "lr", 0): [40, 41],
        (2, "loss", 0): [3, 4],
        (2, "loss", 1): [1],
        (2, "lr", 0): [5],
        (2, "new", 0): [0],
    }


def test_a_time_span(database, job):
    points = Points(database)
    rows = [["l", 0, n, 100.0 + n, n] for n in range(50)]
    points.add_from_agent(Source(job, 1, 0, "metrics"), 0, line(*rows))
    (one,) = points.series(job, METRIC)
    first, end = points.between(one, 110.0, 119.5)
    assert [p.step for p in points.read(one, first, until=end)] == [*range(10, 20)]
    assert [p.step for p in points.read(one, first, 5, end)] == [11, 13, 15, 17, 19]
    assert points.between(one, 500.0, 600.0) == (0, 0)
    assert [*points.read(one, 0, until=0)] == []


def test_a_hole_is_refused_with_the_size_there_is(database, job):
    points, source = Points(database), Source(job, 1, 0, "metrics")
    first = line(["l", 0, 0, 1.0, 5])
    points.add_from_agent(source, 0, first)
    assert points.add_from_agent(source, len(first) + 9, line(["l", 0, 9, 1.0, 9])) == len(first)
    assert values(points, job) == {("l", 0): [5.0]}


@pytest.mark.medium
def test_what_is_no_finite_number_comes_back_as_it_was(database, job):
    points = Points(database)
    points.add_from_agent(
        Source(job, 1, 0, "metrics"),
        0,
        line(
            *(["l", 0, n, 1.0, each] for n, each in enumerate([math.nan, math.inf, -math.inf, 2]))
        ),
    )
    found = values(points, job)["l", 0]
    assert math.isnan(found[0])
    assert found[1:] == [math.inf, -math.inf, 2.0]
    one = points.series(job, METRIC)
    assert points.extremes(one) == {one[0].id: (2.0, 2.0)}
    others = [one[0]._replace(id=one[0].id + n) for n in range(1, 260_000)]  # of many GPUs
    assert points.extremes([*others, one[0]]) == points.extremes(one)


def test_a_damaged_line_costs_only_itself(database, job):
    points, source = Points(database), Source(job, 1, 0, "metrics")
    data = b"".join(
        (b"{\n", b'{"points": 3}\n', b'{"points": [["l"]]}\n', b"[]\n", line(["l", 0, 0, 1.0, 5]))
    )
    # No calendar has that moment.
    data += b"".join(line(["l", 0, 1, at, 6]) for at in (-1.0, 1e300, float("nan")))
    assert points.add_from_agent(source, 0, data + b'{"poi') == len(data)
    assert values(points, job) == {("l", 0): [5.0]}
    used = b'{"at": 1e20, "points": [["cpu", null, null, 1.0]]}\n'
    assert points.add_from_agent(source._replace(name="resources"), 0, used) == len(used)
    assert points.newest(job, RESOURCE) == []


def test_a_point_that_the_database_has_no_room_for_costs_only_itself(database, job):
    points, source = Points(database), Source(job, 1, 0, "metrics")
    steps = (-(2**63) - 1, -(2**63), 2**63 - 1, 2**63, 10**400)
    data = line(*(["l", 0, step, 1.0, 5] for step in steps)) + line(["l", 0, 7, 1.0, 10**400])
    assert points.add_from_agent(source, 0, data + line(["l", 0, 8, 1.0, 6])) > len(data)
    (one,) = points.series(job, METRIC)
    assert [point.step for point in points.read(one)] == [-(2**63), 2**63 - 1, 8]
    points.add_metrics(job, 1, [("m", Point(2**63, 1.0, 5.0)), ("m", Point(9, 1.0, 5.0))])
    assert values(points, job)["m", None] == [5.0]


def test_resources_are_of_nodes_ranks_and_gpus(database, job):
    points = Points(database)
    rows = [["cpu", None, None, 50], ["cpu", None, 3, 99], ["gpu_load", 1, None, 7]]
    points.add_from_agent(Source(job, 1, 2, "resources"), 0, line(*rows, at=9.5))
    found = points.newest(job, RESOURCE)
    assert [(s.name, s.node, s.rank, s.gpu, p.at, p.value) for s, p in found] == [
        ("cpu", 2, None, None, 9.5, 50.0),
        ("cpu", 2, 3, None, 9.5, 99.0),
        ("gpu_load", 2, None, 1, 9.5, 7.0),
    ]
    assert points.series(job, METRIC) == []
    assert points.newest(job, RESOURCE, attempt=2) == []


@given(st.integers(1, 300), st.integers(1, 50), st.integers(0, 299))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.medium
def test_a_thinned_series_is_spread_and_has_the_last(tmp_path_factory, count, most, since):
    database = open_database(tmp_path_factory.mktemp("thin") / "db")
    made = Records(database).create({}, Plan(Gang("j.1", 1, ()), Task("j", "e", "c"), Rules(), "x"))
    points = Points(database)
    rows = [["l", 0, n, float(n), n] for n in range(count)]
    points.add_from_agent(Source(made.id, 1, 0, "metrics"), 0, line(*rows))
    one = points.series(made.id, METRIC)[0]
    found = [point.step for point in points.read(one, since, most)]
    wanted = range(min(since, count), count)
    assert set(found) <= set(wanted)
    assert found == sorted(found)
    assert found[-1:] == list(wanted[-1:])
    assert len(found) <= most + 1
    if len(wanted) <= most:
        assert found == list(wanted)
    database.dispose()


@pytest.mark.medium
@pytest.mark.parametrize("packed", [False, True])
def test_a_thinned_series_keeps_spikes_and_what_is_no_number(database, packed):
    """60,000 points with twenty spikes, NaNs and infinities: a chart's 4,000 have them all."""
    points = Points(database)
    numbers = [math.sin(n / 300) for n in range(60_000)]
    odd = {1500 + n * 2900: 50.0 for n in range(20)}
    odd |= {2222 + n * 2901: (math.nan, math.inf, -math.inf)[n % 3] for n in range(20)}
    for place, value in odd.items():
        numbers[place] = value
    plan = Plan(Gang("j.1", 1, ()), Task("j", "e", "c"), Rules(), "x")
    job = Records(database).create({}, plan, ended=True).id
    rows = [["l", 0, n, float(n), value] for n, value in enumerate(numbers)]
    points.add_from_agent(Source(job, 1, 0, "metrics"), 0, line(*rows))
    if packed:
        assert compact(database, -1.0, threading.Event(), 0) >= 60_000
    (one,) = points.series(job, METRIC)
    for since, most in ((0, 4000), (0, 1), (31_000, 300)):
        thinned = points.thinned(one, most, since)
        kept = {point.step: point.value for point in thinned}
        missing = {place for place in odd if place >= since} - {*kept} if most > 1 else {*()}
        assert not missing
        assert len(thinned) < most + 60
        assert thinned == sorted(thinned, key=lambda point: point.step)
        assert max(value for value in kept.values() if math.isfinite(value)) == 50.0
        assert (min(kept), max(kept)) == (since, 59_999)


@pytest.mark.medium
@pytest.mark.parametrize("packed", [False, True])
def test_shapes_of_many_series_take_few_statements(database, packed):
    points, plan = Points(database), Plan(Gang("j.1", 1, ()), Task("j", "e", "c"), Rules(), "x")
    job = Records(database).create({}, plan, ended=True).id
    lengths = [*range(1, 70), 1000, 1001, 5000]
    odd = {3: math.nan, 4: math.inf, 5: -math.inf}
    rows = [
        [f"m{k:04}", 0, n, float(n), odd.get(n, n / 3)]
        for k, length in enumerate(lengths)
        for n in range(length)
    ]
    points.add_from_agent(Source(job, 1, 0, "metrics"), 0, line(*rows))
    if packed:
        assert compact(database, -1.0, threading.Event(), 0) > 0
    series = points.series(job, METRIC)
    expected = [
        [(point.step, point.number) for point in points.read(one, most=32)] for one in series
    ]
    statements: list[str] = []
    event.listen(database, "before_cursor_execute", lambda *call: statements.append(call[2]))
    shapes = points.shapes(series, 32)
    assert [[(n, number(v)) for n, v in zip(*each, strict=True)] for each in shapes] == expected
    assert len(statements) < len(series) + 10


def test_several_senders_of_the_same_lines(database, job):
    points, source = Points(database), Source(job, 1, 0, "metrics")
    pieces = [line(["l", 0, n, 1.0, n]) for n in range(60)]

    def send() -> None:
        offset = 0
        for piece in pieces:
            points.add_from_agent(source, offset, piece)
            offset += len(piece)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert values(points, job) == {("l", 0): [float(n) for n in range(60)]}


def test_a_job_that_is_forgotten_takes_its_points_along(database, job):
    points, records = Points(database), Records(database)
    other = records.create({}, Plan(Gang("k.1", 1, ()), Task("k", "e", "c"), Rules(), "x"))
    for each in (job, other.id):
        points.add_from_agent(Source(each, 1, 0, "metrics"), 0, line(["l", 0, 0, 1.0, 5]))
    with database.begin() as connection:
        connection.exec_driver_sql("UPDATE jobs SET live = 0 WHERE name = 'j'")
    records.delete_job("j")
    assert points.series(job, METRIC) == []
    assert values(points, other.id) == {("l", 0): [5.0]}
    with database.begin() as connection:
        left = [
            connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()
            for table in ("points", "series", "feeds")
        ]
    assert left == [1, 1, 1]


def test_what_a_script_tells_again_is_there_once(database, job):
    points = Points(database)
    told = [("loss", Point(n, n / 10, value)) for n, value in enumerate((0.5, math.nan, math.inf))]
    points.add_metrics(job, 1, [*told, told[0]])
    points.add_metrics(job, 1, told[1:])
    points.add_metrics(job, 1, [("loss", Point(0, 0.0, 0.25)), told[2]])
    found = values(points, job)["loss", None]
    assert [found[0], *found[2:]] == [0.5, math.inf, 0.25]
    assert math.isnan(found[1])
    later = [("loss", Point(n, n / 10, 1.0)) for n in range(3, 1300)]
    points.add_metrics(job, 1, later + later[:1])
    points.add_metrics(job, 1, later[:1] + later[-1:])
    assert len(values(points, job)["loss", None]) == 4 + len(later)
    points.add_metrics(job, 2, told[:1])
    assert [each.attempt for each in points.series(job, METRIC)] == [1, 2]


def test_a_line_of_many_series_takes_few_statements(database, job):
    points, source = Points(database), Source(job, 1, 0, "resources")
    rows = [["cpu", None, rank, 50.0] for rank in range(40)]
    whole = points.add_from_agent(source, 0, line(*rows, at=1.0))
    told: list[str] = []
    event.listen(database, "before_cursor_execute", lambda *given: told.append(given[2]))
    points.add_from_agent(source, whole, line(*rows, at=2.0))
    words = [each.split()[0] for each in told]
    assert [each for each in words if each in ("INSERT", "UPDATE")] == [
        "UPDATE",
        "INSERT",
        "UPDATE",
    ]
    assert words.count("SELECT") <= 3
    assert values(points, job, RESOURCE) == {("cpu", rank): [50.0, 50.0] for rank in range(40)}


def test_series_of_a_node_are_found_without_those_of_other_nodes(tmp_path):
    engine = open_database(tmp_path / "db")
    where = ("job_id", "kind", "attempt", "node")
    query = f"SELECT id FROM series WHERE {' AND '.join(f'{each} = 1' for each in where)}"
    with engine.connect() as connection:
        (plan,) = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}").all()
    assert "job_id=? AND kind=? AND attempt=? AND node=?" in plan[3]
    engine.dispose()


def test_long_names_stay_two(database, job):
    points, long = Points(database), "r" * 254
    points.add_metrics(job, 1, [(f"{long}/{each}", Point(1, 1.0, 0.5)) for each in "ab"])
    points.add_from_agent(Source(job, 1, 0, "metrics"), 0, line([f"{long}/a", 0, 1, 1.0, 5]))
    found = points.series(job, METRIC)
    assert [each.length for each in found] == [1] * 3
    assert all(len(each.name) <= 255 for each in found)
    assert len({each.name for each in found}) == 2


@pytest.mark.parametrize("in_one", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_points_after_a_restart_replace_those_from_its_step_on(database, job, in_one, packed):
    """As TensorBoard's `purge_step`: steps before it stay, in order and once."""
    points, source = Points(database), Source(job, 1, 0, "trackers")
    first = b"".join(line(["l", 0, n, 1.0 + n, n]) for n in (0, 1, 5, 2, 9))
    first += line(["gone", 0, 3, 1.0, 3], ["l", 1, 7, 1.0, 7])
    second = line(["l", 0, 3, 20.0, None], ["gone", 0, 3, 20.0, None], ["new", 0, 3, 20.0, None])
    second += line(["l", 0, 3, 21.0, 30], ["l", 0, 4, 22.0, 40])
    if in_one:
        points.add_from_agent(source, 0, first + second)
    else:
        points.add_from_agent(source, 0, first)
        if packed:
            ended = "UPDATE jobs SET live = 0, ended_at = 1.0"
            with database.begin() as connection:
                connection.exec_driver_sql(ended)
            assert compact(database, 0.0, threading.Event(), pause=0.0)
        points.add_from_agent(source, len(first), second)
    assert points.add_from_agent(source, 0, first + second) == len(first + second)
    assert values(points, job) == {("l", 0): [0.0, 1.0, 2.0, 30.0, 40.0], ("l", 1): [7.0]}
    newest = {(one.name, one.rank): last.value for one, last in points.newest(job, METRIC)}
    assert newest == {("l", 0): 40.0, ("l", 1): 7.0}
