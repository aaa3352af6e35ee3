"""Which gangs of the local queue start: all decisions are pure."""

from hypothesis import given
from hypothesis import strategies as st

from allranks.engines.local.capacity import Capacity
from allranks.engines.local.queue import Entry, turns

MACHINE = Capacity(nodes=64, gpus=2, cpus=4.0, memory=1 << 30)


def entry(name: str, arrived: float = 0.0, nodes: int = 1, **fields) -> Entry:
    fields = {"need": Capacity(nodes, 0, 0.0, 0, 1), "ranks": 1, "most": 2, **fields}
    return Entry(f"{name}.1", arrived=arrived, **fields)


def test_three_hundred_jobs_start_one_a_cpu_in_order():
    jobs = [entry(f"j{i}", i) for i in range(300)]
    decision = turns(MACHINE, [], reversed(jobs))
    assert decision.start == ["j0.1", "j1.1"]
    # Only the first in line names a job: a change of the text is an event.
    why = "waits for {} to end (`max_ranks` of the compute: 2)"
    assert decision.waits.pop("j2.1") == why.format("the job j0 and others")
    assert set(decision.waits.values()) == {why.format("running ranks")}
    next_one = turns(MACHINE, [jobs[1]], jobs[2:])
    assert next_one.start == ["j2.1"]


def test_a_job_of_any_size_starts_on_an_idle_machine():
    large, small = entry("large", 0, ranks=16), entry("small", 1)
    assert turns(MACHINE, [], [large, small]).start == ["large.1"]
    assert turns(MACHINE, [large], [small]).start == []


def test_ranks_that_run_are_at_most_the_limit_and_small_jobs_do_not_overtake():
    one, two, small = entry("one", most=4), entry("two", 1, ranks=4, most=4), entry("s", 2, most=4)
    decision = turns(MACHINE, [one], [small, two])
    assert (decision.start, [*decision.waits]) == ([], ["two.1", "s.1"])
    assert turns(MACHINE, [], [two, small]).start == ["two.1"]


def test_ranks_are_not_reserved_for_a_job_that_waits_for_a_gpu():
    gpu = entry("gpu", 1, ranks=4, most=4, need=Capacity(1, 3, 0.0, 0, 4))
    assert turns(MACHINE, [], [gpu, entry("s", 2, most=4)]).start == ["s.1"]


def test_the_first_in_line_says_who_holds_what_it_needs():
    one = Capacity(1, 1, 0.0, 0, 1)
    running = [entry("a", 1, need=one), entry("b", 0, need=one), entry("c", 0, ranks=0)]
    free = MACHINE.minus(Capacity(2, 2, 0.0, 0, 2))
    waiting = [entry("first", 2, need=one, most=0), entry("second", 3, need=one, most=0)]
    assert turns(free, running, waiting).waits == {
        "first.1": "waits for 1 GPU (0 available), held by the job b and others",
        "second.1": "waits for 1 GPU (0 available)",
    }
    alone = turns(MACHINE, [entry("a", most=1)], [entry("x", 1, most=1)])
    assert alone.waits["x.1"].startswith("waits for the job a to end (")


def test_no_limit():
    several = [entry(f"j{i}", i, most=0) for i in range(50)]
    assert len(turns(MACHINE, [], several).start) == 50


def test_what_a_rank_submits_waits_for_no_rank_and_for_no_job_in_the_queue():
    parents = [entry("a"), entry("b")]
    crowd = [entry(f"c{i}", i, need=Capacity(40, 0, 0.0, 0, 1), most=0) for i in range(5)]
    child = entry("child", 99, ranks=0)
    decision = turns(MACHINE, parents, [*crowd, child])
    assert decision.start[0] == "child.1"
    assert "child.1" not in decision.waits


def test_one_port_one_job():
    user = entry("user", ports=(29500,), most=0)
    same, other = entry("same", 1, ports=(29400, 29500), most=0), entry("other", 2, ports=(1,))
    decision = turns(MACHINE, [user], [same, other])
    assert decision.waits == {"same.1": "waits for port 29500, which the job user uses"}
    assert decision.start == ["other.1"]
    assert turns(MACHINE, [], [user, same]).start == ["user.1"], "also if both come at once"


def test_nothing_is_reserved_for_a_job_that_waits_for_a_port():
    gpu = Capacity(1, 2, 0.0, 0, 1)
    user, same = entry("user", ports=(5,)), entry("same", 1, ports=(5,), need=gpu)
    decision = turns(MACHINE, [user], [same, entry("other", 2, need=gpu, most=0)])
    assert decision.start == ["other.1"]


def test_two_waiting_gangs_are_given_different_spot_gangs():
    one = Capacity(1, 1, 0.0, 0, 1)
    spots = [entry(f"s{i}", i, need=one, spot=True) for i in range(2)]
    free = MACHINE.minus(Capacity(2, 2, 0.0, 0, 2))
    waiting = [entry(f"w{i}", 9 + i, need=one, most=0) for i in range(2)]
    assert turns(free, spots, waiting).preempt == {"s1.1": "w0.1", "s0.1": "w1.1"}


entries = st.lists(
    st.builds(
        lambda arrived, ranks, most, port, cpus, spot: entry(
            "x",
            arrived,
            ranks=ranks,
            most=most,
            ports=port,
            need=Capacity(1, 0, cpus, 0, 1),
            spot=spot,
        ),
        st.integers(0, 9),
        st.integers(0, 3),
        st.integers(0, 4),
        st.sampled_from([(), (1,), (1, 2)]),
        st.sampled_from([0.0, 1.0, 4.0]),
        st.booleans(),
    ),
    max_size=12,
).map(lambda found: [one._replace(key=f"j{i}.1") for i, one in enumerate(found)])


@given(entries, entries)
def test_whatever_waits_and_runs(running, waiting):
    running = [one._replace(key="r" + one.key) for one in running]
    free = MACHINE
    for one in running:
        free = free.minus(one.need)
    decision = turns(free, running, waiting)
    started = [one for key in decision.start for one in waiting if one.key == key]
    assert {*decision.start, *decision.waits} == {one.key for one in waiting}
    assert not {*decision.start} & decision.waits.keys()
    ranks = sum(one.ranks for one in running)
    ports = [port for one in running for port in one.ports]
    for one in started:
        fits = not one.most or ranks + one.ranks <= one.most
        assert fits or not one.ranks or not ranks, "at most so many ranks run"
        assert not {*one.ports} & {*ports}, "a port is used once"
        ranks, ports = ranks + one.ranks, [*ports, *one.ports]
    assert not free.missing(_sum(started)), "what starts fits"
    if waiting and not running:
        assert started, "something starts on an idle machine"


def _sum(several: list[Entry]) -> Capacity:
    needs = Capacity(0, 0, 0.0, 0, 0)
    for one in several:
        needs = needs.plus(one.need)
    return needs
