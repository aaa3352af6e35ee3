"""How many GPUs a job gets: by what it says, its instance type, its compute, its processes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.job import instance_types
from allranks.core.job.gpu_allocation import Request, available, choose

COUNTS = st.integers(0, 16)
REQUESTS = st.builds(
    Request,
    requested=st.none() | COUNTS,
    instance_type=st.none() | st.sampled_from(["Standard_NC24rs_v3", "ml.m5.large", "ours", "?"]),
    sizes=st.dictionaries(st.just("ours"), COUNTS),
    options=st.none() | COUNTS,
    default=st.none() | COUNTS,
    hosts=st.none() | st.lists(COUNTS, max_size=5),
    shared=st.booleans(),
    nodes=st.integers(1, 8),
    processes=st.none() | st.integers(1, 32),
)


@given(REQUESTS)
def test_what_holds_of_every_choice(request: Request) -> None:
    made = choose(request)
    assert made.per_node >= 0
    if request.requested is not None:
        assert made == (request.requested, "", "")
        return
    if request.options is not None:
        assert made.per_node == request.options
        assert bool(made.reason) == bool(made.per_node)
        return
    has = available(request)
    size = request.instance_type and instance_types.gpus(request.instance_type, request.sizes)
    if request.default is None and has is not None:
        assert made.per_node <= has
    if size is None and request.default is not None:
        assert made.per_node == request.default
    if size is None and request.default is None and request.processes is not None:
        assert made.per_node <= request.processes
    if made.per_node:
        assert f"{made.per_node} per node" in made.reason
        assert "\n" not in made.reason
    if not any(request.hosts or ()) and not request.default and size is None and has is not None:
        assert made.reason == "", "a compute without GPUs is not talked about"
    assert bool(made.note) == (request.instance_type is not None and size is None)


@given(REQUESTS, st.integers(1, 32))
def test_more_processes_never_get_fewer(request: Request, processes: int) -> None:
    more = (request.processes or 1) + processes
    few = choose(request._replace(processes=request.processes or 1)).per_node
    assert choose(request._replace(processes=more)).per_node >= few


@pytest.mark.parametrize(
    ("request_", "count", "said"),
    [
        (Request(hosts=(8,)), 1, "1 per node, one per process (a node has 8)"),
        (Request(hosts=(8, 8), nodes=2, processes=4), 4, "--gpus 0 for none"),
        (Request(hosts=(2,), processes=4), 2, "2 per node for 4 processes"),
        (Request(hosts=(8,), processes=None), 8, "all it has"),
        (Request(hosts=(8, 8, 0, 0), nodes=2), 1, "a node has 8"),
        (Request(hosts=(8, 8, 0, 0), nodes=3), 0, "3 nodes need one each"),
        (Request(hosts=(4,), shared=True, nodes=2, processes=4), 2, "all a node has"),
        (Request(hosts=(0,)), 0, ""),
        (Request(hosts=()), 0, ""),
        (Request(hosts=None), 0, "does not report"),
        (Request(hosts=(8,), default=4, processes=2), 4, "the default of the compute"),
        (Request(hosts=(8,), default=0), 0, "the default of the compute"),
        (Request(requested=0, hosts=(8,)), 0, ""),
        (Request(requested=3, hosts=(8,), instance_type="Standard_NC6s_v3"), 3, ""),
        (Request(hosts=(8,), instance_type="standard_nc24rs_V3", default=2), 4, "has"),
        (Request(hosts=(2,), instance_type="ml.p3.16xlarge"), 2, "a node here has 2"),
        (Request(hosts=(0,), instance_type="Standard_ND40rs_v2"), 0, "Standard_ND40rs_v2 has 8"),
        (Request(hosts=(8,), instance_type="Standard_DS3_v2"), 0, "as Standard_DS3_v2 has none"),
        (Request(hosts=None, instance_type="g5.12xlarge"), 4, "as g5.12xlarge has"),
        (Request(hosts=(8,), instance_type="big", sizes={"BIG": 2}), 2, "as big has"),
        (Request(hosts=(8,), instance_type="big", processes=3), 3, "one per process"),
    ],
)
def test_what_is_taken_and_why(request_: Request, count: int, said: str) -> None:
    made = choose(request_)
    assert made.per_node == count
    assert said in made.reason
    assert bool(made.reason) == bool(said)


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("Standard_NC6s_v3", 1),
        ("NC24rs_v3", 4),
        ("STANDARD_ND40RS_V2", 8),
        ("Standard_NC24ads_A100_v4", 1),
        ("Standard_ND96asr_v4", 8),
        ("Standard_ND96isr_H100_v5", 8),
        ("Standard_DS3_v2", 0),
        ("Standard_D2", 0),
        ("Standard_HB120rs_v3", 0),
        ("ml.p3.2xlarge", 1),
        ("p3.8xlarge", 4),
        ("p3.16xlarge", 8),
        ("p4d.24xlarge", 8),
        ("p5.48xlarge", 8),
        ("ml.g4dn.xlarge", 1),
        ("ml.g5.48xlarge", 8),
        ("ml.m5.large", 0),
        ("c5.18xlarge", 0),
        ("ml.t3.medium", 0),
        ("a100x8", None),
        ("dgx", None),
        ("Standard_NX999", None),
        ("local_gpu", None),
        ("", None),
    ],
)
def test_sizes_of_clouds(size: str, count: int | None) -> None:
    assert instance_types.gpus(size, {}) == count


def test_what_a_site_says_counts_first() -> None:
    own = {"NC6S_V3": 7, "dgx": 8, "Standard_D2": 1}
    assert instance_types.gpus("Standard_NC6s_v3", own) == 7
    assert instance_types.gpus("dgx", own) == 8
    assert instance_types.gpus("standard_d2", own) == 1


def test_what_the_options_of_slurm_ask_for_counts_before_an_instance_type():
    assert choose(Request(options=4, instance_type="Standard_NC6s_v3")).per_node == 4
    assert choose(Request(options=0, instance_type="Standard_NC6s_v3")) == (0, "", "")
    assert choose(Request(requested=2, options=4)).per_node == 2


def test_sizes_with_rdma_in_their_cloud():
    with_rdma = ("Standard_ND40rs_v2", "HC44rs", "standard_nd96isr_h100_v5", "ml.p4d.24xlarge")
    assert all(map(instance_types.has_rdma, with_rdma))
    without = ("Standard_NC6s_v3", "NC24ads_A100_v4", "ml.g5.xlarge", "mine", "")
    assert not any(map(instance_types.has_rdma, without))
