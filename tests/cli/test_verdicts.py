"""From what probes told to findings, one thing wrong at a time."""

from collections.abc import Callable
from typing import Any

import pytest

from allranks.cli.preflight.findings import BAD, NOTE, OK, Finding
from allranks.cli.preflight.probe_questions import ProbeAnswers, Question
from allranks.cli.preflight.verdicts import of_gang
from allranks.errors import Refused

Line = dict[str, Any]
Change = Callable[[dict[tuple[str, int], Line]], object]

QUESTION = Question(2, 1, 0, "none", {}, {}, (), "python")
JOB = {"name": "preflight-x", "status": "Completed"}


def lines() -> dict[tuple[str, int], Line]:
    """What two hosts tell when all is well."""
    found: dict[tuple[str, int], Line] = {}
    for node in (0, 1):
        interface = {"name": "eth0", "cidr": "10.0.0.0/24", "mtu": 9000, "speed": 100_000}
        variable = {"name": "GLOO_SOCKET_IFNAME", "value": "eth0", "why": "because"}
        told: dict[str, Line] = {
            "facts": {
                "host": f"host-{node}",
                "boot": str(node),
                "address": f"10.0.0.{node}",
                "python": "3.11.7",
                "executable": "/env/bin/python",
                "cpus": 8,
                "gpus": 0,
                "gpus_there": 0,
                "shm": 8 << 30,
                "files": 65536,
                "memlock": -1,
                "interface": interface,
                "ports": [],
                "down": [],
                "variables": [variable],
                "set": {},
            },
            "looked": {"paths": {}, "programs": [], "missing": [], "packages": {"torch": "2.3"}},
            "met": {"why": "", "present": [0, 1], "of": 2},
            "clock": {"ahead": 0.001 * node, "within": 0.0001},
            "links": {"links": {str(1 - node): {"why": "", "ms": 0.1, "mb_s": 1000.0}}},
            "sum": {"right": True, "why": ""},
        }
        for kind, data in told.items():
            found[kind, node] = {"preflight": kind, "node": node, **data}
    return found


def verdict(
    change: Change = lambda told: None, question: Question = QUESTION, **job: Any
) -> list[Finding]:
    told = lines()
    change(told)
    return list(of_gang(question, ProbeAnswers(tuple(told.values()), {**JOB, **job}, ended=True)))


def wrong(change: Change = lambda told: None, **options: Any) -> list[tuple[str, str, str]]:
    return [(f.what, f.state, f.found) for f in verdict(change, **options) if f.state != OK]


def test_all_is_well() -> None:
    found = verdict()
    assert [each for each in found if each.state != OK] == []
    assert {each.what for each in found} >= {"gang", "ports", "speed", "all-reduce", "variable"}
    assert "variable       GLOO_SOCKET_IFNAME=eth0  because" in "\n".join(
        f"{each.what:<14} {each.found}" for each in found
    )


@pytest.mark.parametrize(
    ("change", "what", "state", "found"),
    [
        (
            lambda t: t["links", 1]["links"].update({"0": {"why": "timed out"}}),
            "ports",
            BAD,
            "node 1 cannot reach node 0 at 10.0.0.0: timed out",
        ),
        (
            lambda t: t["looked", 1].update(packages={"torch": "2.4"}),
            "packages",
            BAD,
            "torch: 2.3 on node 0; 2.4 on node 1",
        ),
        (
            lambda t: t["looked", 1].update(packages={"torch": "2.3", "six": "1"}),
            "packages",
            NOTE,
            "six: none on node 0; 1 on node 1",
        ),
        (
            lambda t: t["facts", 1].update(python="3.12.1"),
            "python",
            BAD,
            "3.11.7 on node 0; 3.12.1 on node 1",
        ),
        (
            lambda t: t["facts", 1].update(python="3.11.9"),
            "python",
            NOTE,
            "3.11.7 on node 0; 3.11.9 on node 1",
        ),
        (
            lambda t: t["clock", 1].update(ahead=2.0),
            "clocks",
            NOTE,
            "node 1's clock is -2.0 s from node 0's",
        ),
        (
            lambda t: t["facts", 1].update(shm=64 << 20),
            "shared memory",
            NOTE,
            "/dev/shm has 64 MiB on node 1",
        ),
        (
            lambda t: t["facts", 0].update(files=256),
            "file limit",
            NOTE,
            "256 open files per process on node 0",
        ),
        (
            lambda t: t["sum", 1].update(right=False, why="timed out"),
            "all-reduce",
            BAD,
            "an all-reduce of a few numbers failed: node 1: timed out",
        ),
        (
            lambda t: t["links", 1]["links"]["0"].update(mb_s=3.0),
            "speed",
            NOTE,
            "3 MB/s from node 1 to node 0, the slowest; median 1,000",
        ),
        (
            lambda t: t["facts", 1].update(
                interface={**t["facts", 0]["interface"], "name": "ens1"}
            ),
            "network",
            NOTE,
            "eth0 on node 0; ens1 on node 1",
        ),
        (
            lambda t: t["met", 1].update(why="cannot reach node 0 at 10.0.0.0:1: timed out"),
            "meeting",
            BAD,
            "node 1 cannot reach node 0 at 10.0.0.0:1: timed out",
        ),
    ],
)
def test_one_thing_wrong(change: Change, what: str, state: str, found: str) -> None:
    assert wrong(change) == [(what, state, found)]


def test_the_jobs_own_variable_is_worth_knowing() -> None:
    change: Change = lambda told: told["facts", 0]["set"].update(GLOO_SOCKET_IFNAME="x")  # noqa: E731
    assert wrong(change) == []
    found = wrong(change, question=QUESTION._replace(own={"GLOO_SOCKET_IFNAME": "x"}))
    said = "GLOO_SOCKET_IFNAME=x is set by the job instead of eth0"
    assert found == [("variable", NOTE, said)]


def test_infiniband_wants_locked_memory_and_to_be_everywhere() -> None:
    def one_port(told: dict[tuple[str, int], Line]) -> None:
        told["facts", 1].update(ports=[["mlx5_0:1", "InfiniBand", 400.0]], memlock=65536)

    assert [each[:2] for each in wrong(one_port)] == [("locked memory", BAD), ("InfiniBand", BAD)]


def test_a_silent_node_is_named_with_what_it_was_last_seen_doing() -> None:
    def silent(told: dict[tuple[str, int], Line]) -> None:
        for kind, node in list(told):
            if node == 1:
                del told[kind, node]

    states = [{"node": 0, "state": "RUNNING"}, {"node": 1, "state": "SETUP"}]
    found = wrong(silent, status="Preparing", node_states=states)
    assert found[0] == ("gang", BAD, "node 1 does not answer: still preparing")
    made = wrong(silent, question=QUESTION._replace(current=False), node_states=states)
    assert made[0][1] == NOTE  # an environment that is made for the first time takes minutes
    queued = wrong(lambda told: told.clear(), status="Queued", status_reason="waits for 2 nodes")
    assert queued == [("gang", NOTE, "the compute has no free capacity: waits for 2 nodes")]


def test_a_gang_that_failed_or_was_never_made() -> None:
    error = {"message": "rank 0 on node 0 exited with code 127", "hint": "look"}
    empty: Change = lambda told: told.clear()  # noqa: E731
    assert wrong(empty, error=error, exit_code=127) == [("gang", BAD, error["message"])]
    without = QUESTION._replace(python=None)
    ((what, state, _),) = wrong(empty, question=without, error=error, exit_code=127)
    assert (what, state) == ("gang", NOTE)
    (finding,) = of_gang(
        QUESTION, ProbeAnswers(error=Refused("it never fits", hint="ask for less"))
    )
    assert (finding.state, finding.found, finding.hint) == (BAD, "it never fits", "ask for less")
    (finding,) = of_gang(QUESTION, ProbeAnswers())
    assert finding.found == "the server did not answer within the time limit"


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("Kubernetes: 0/3 nodes are available: 3 Insufficient cpu.", "try again later"),
        (
            "Kubernetes: 0/3 nodes are available: 3 node(s) didn't match Pod's node "
            "affinity/selector. preemption: 0/3 nodes are available",
            "with the labels that it asks for",
        ),
        (
            "Kubernetes: 0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match Pod's "
            "node affinity/selector.",
            "try again later",
        ),
    ],
)
def test_a_gang_that_waits_says_for_what(reason: str, hint: str) -> None:
    job = {"name": "p", "status": "Queued", "status_reason": reason}
    (finding,) = of_gang(QUESTION, ProbeAnswers(job=job))
    assert (finding.state, hint in finding.hint) == (NOTE, True)


def test_missing_modules_and_launchers() -> None:
    place = {"file": "train.py", "line": 1, "needed": True}
    question = QUESTION._replace(modules={"torch": place}, kind="mpi", programs=("mpirun",))
    change: Change = lambda told: told["looked", 1].update(missing=["torch"])  # noqa: E731
    found = wrong(change, question=question)
    assert [each[:2] for each in found] == [("modules", BAD), ("launcher", BAD)]
    assert found[0][2].endswith("imports torch, which node 1 does not have")
    assert "mpirun is not on the PATH of the job's environment on node 0" in found[1][2]


def test_room_for_ranks_and_gpus() -> None:
    question = QUESTION._replace(procs=9, gpus=2)
    found = wrong(question=question)
    assert found[0] == ("CPUs", NOTE, "9 ranks share the 8 CPUs of host-0")
    assert found[1] == ("GPUs", NOTE, "9 ranks of a node share 2 GPUs")
    unused = wrong(lambda told: told["facts", 0].update(gpus_there=8))
    assert unused[0][:2] == ("GPUs", NOTE)


def test_inputs_a_node_cannot_read_and_a_disk_that_hangs() -> None:
    question = QUESTION._replace(paths={"inputs.data": "/data"})

    def unreadable(told: dict[tuple[str, int], Line]) -> None:
        told["looked", 0].update(paths={"inputs.data": ""})
        told["looked", 1].update(paths={"inputs.data": "permission denied"})

    found = wrong(unreadable, question=question)
    said = "inputs.data: node 1 cannot read /data: permission denied"
    assert found == [("inputs", BAD, said)]
    hanging = wrong(lambda told: told.pop(("looked", 1)), question=question)
    assert hanging == [("inputs", NOTE, "node 1 did not finish checking inputs and packages")]
