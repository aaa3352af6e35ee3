"""The Ray engine on a real Ray: three hosts that live and die alone, and one that scales itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.core.plan import Gang
from allranks.engines.base import MARKER, Handle
from allranks.engines.ray.engine import RayEngine
from allranks.errors import EngineError, Refused
from allranks.statuses import GangState, Reason
from tests.cluster import ray_bed
from tests.cluster.conftest import number_of
from tests.cluster.ray_bed import CPUS, RayBed
from tests.engines.contract import Case, Contract, sleeper
from tests.support import until

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.ray, pytest.mark.timeout(800)]
SECONDS = 60.0


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[RayBed]:
    with ray_bed.static(tmp_path_factory.mktemp("ray"), number_of("ray", worker_id)) as found:
        yield found


def engine_of(bed: RayBed, folder: Path) -> RayEngine:
    return RayEngine(folder / "engine", folder / "nodes", bed.options)


@pytest.fixture
def case(bed: RayBed, tmp_path: Path) -> Iterator[Case]:
    gang = sleeper(f"{tmp_path.name}.1")
    engine = engine_of(bed, tmp_path)
    found = Case(
        engine,
        gang,
        lambda: engine_of(bed, tmp_path),
        lambda: bed.processes(f"{MARKER}={engine.mark(gang.key)}"),
        of_node=2,  # a tether and what it holds
        room=3,
        seconds=SECONDS,
    )
    yield found
    engine.stop(Handle(gang.key))
    found.is_gone()


def says(case: Case, script: str, **needs: object) -> Gang:
    """The gang with three nodes whose agents run that."""
    return case.gang._replace(**{"nodes": 3, "argv": (sys.executable, "-c", script), **needs})


class TestTheRayEngine(Contract):
    """All that the contract says."""


@pytest.mark.end_to_end
def test_it_is_placed_on_hosts_of_its_own_and_told_what_an_agent_is_told(
    case: Case, bed: RayBed, tmp_path: Path
):
    script = (
        "import json, os, socket; here = dict(os.environ, HOST=socket.gethostname()); "
        "json.dump(here, open('told', 'w'))"
    )
    secret = "a ${HOME} $PATH 'x"
    case.engine.submit(says(case, script, env={"ALLRANKS_AGENT_TOKEN": secret}))
    case.is_gone()
    told = [
        json.loads((tmp_path / "nodes" / case.gang.key / str(node) / "told").read_text())
        for node in range(3)
    ]
    assert {each["HOST"] for each in told} == {"n1", "n2", "n3"}
    for node, each in enumerate(told):
        assert each["ALLRANKS_AGENT_ADDRESS"] == bed.address(each["HOST"])
        assert each["ALLRANKS_AGENT_NODE"] == str(node)
        assert each["ALLRANKS_AGENT_DIR"].endswith(f"{case.gang.key}/{node}")
        assert each["ALLRANKS_AGENT_CPUS"] == "1"
        assert each["ALLRANKS_AGENT_TOKEN"] == secret
        assert each["CUDA_VISIBLE_DEVICES"] == ""
        assert not [name for name in each if name.startswith("RAY_")]


def test_agents_are_sent_along_and_need_no_shared_code(case: Case):
    agents = (sys.executable, "-P", "-m", "allranks.agent")
    case.engine.submit(case.gang._replace(argv=agents, env={}))
    handle = Handle(case.gang.key)
    until(lambda: case.state() is GangState.GONE, SECONDS)
    assert "'ALLRANKS_AGENT_URL' is missing" in case.engine.poll([handle])[handle.key].why


def test_a_killed_host_is_noticed_and_the_others_go_on(case: Case, bed: RayBed):
    case.engine.submit(says(case, "import time; time.sleep(120)"))
    until(lambda: case.state() is GangState.UP, SECONDS)
    bed.cluster("kill-host", "n3")
    try:
        handle = Handle(case.gang.key)
        until(lambda: case.engine.poll([handle])[handle.key].lost, SECONDS)
        seen = case.engine.poll([handle])[handle.key]
        assert seen.state is GangState.UP
        assert len(seen.lost) == 1
        # A gang is up when Ray says so; its processes are a moment later.
        until(lambda: len({line.split()[0] for line in case.processes()}) == 2, SECONDS)

        def is_ready() -> bool:
            return {host.name: host for host in case.engine.hosts(bed.options)}["n3"].ready

        until(lambda: not is_ready(), SECONDS)
        # A host that is down may be up tomorrow: what only it could take is not refused for that.
        case.engine.admit(case.gang._replace(nodes=3))
        case.engine.stop(handle)
        case.is_gone()
    finally:
        bed.heal("n3")
    assert [host.name for host in case.engine.hosts(bed.options)] == ["n1", "n2", "n3"]


def test_agents_that_end_by_themselves_end_the_gang(case: Case):
    case.engine.submit(says(case, "pass"))
    until(lambda: case.state() is GangState.GONE, SECONDS)
    seen = case.engine.poll([Handle(case.gang.key)])[case.gang.key]
    assert seen.why == "its agents have ended"


def test_a_folder_that_nodes_cannot_have_is_told_and_not_tried_again(case: Case, tmp_path: Path):
    (tmp_path / "nodes").write_text("not a folder")
    options = {**case.gang.options, "shared_home": "yes"}
    case.engine.submit(case.gang._replace(options=options))
    until(lambda: case.state() is GangState.GONE, SECONDS)
    seen = case.engine.poll([Handle(case.gang.key)])[case.gang.key]
    assert "Not a directory" in seen.why
    assert seen.reason is Reason.GANG_REFUSED


@pytest.mark.parametrize("killed", ["ray::AllranksNode", "allranks_on_ray.py"])
def test_nothing_outlives_the_actor_or_the_driver(case: Case, bed: RayBed, killed: str):
    stubborn = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, lambda *_: None);"
        "subprocess.Popen(['sleep', '120'], start_new_session=True); print('up', flush=True)\n"
        "while True: time.sleep(1)"
    )
    case.engine.submit(says(case, stubborn))
    until(lambda: case.state() is GangState.UP, SECONDS)
    until(lambda: len(case.processes()) == 9, SECONDS)  # a tether, its agent and its sleep
    for host in ("n1", "n2", "n3"):
        for line in bed.cluster("exec", host, "ps", "-Aww", "-o", "pid=,args=").splitlines():
            if killed in line:
                bed.cluster("exec", host, "kill", "-9", line.split()[0], check=False)
    try:
        until(lambda: not case.processes(), SECONDS)
    except AssertionError:
        # What is left, for whoever has to find out why.
        for host in ("n1", "n2", "n3"):
            print(host, bed.cluster("exec", host, "ps", "-Aww", "-o", "pid,ppid,args"))
        raise
    until(lambda: case.state() is GangState.GONE, SECONDS)


def test_a_busy_cluster_is_waited_for_in_words(case: Case, bed: RayBed, tmp_path: Path):
    case.engine.submit(says(case, "import time; time.sleep(120)", cpus=float(CPUS)))
    until(lambda: case.state() is GangState.UP, SECONDS)

    def free() -> set[float]:
        return {host.free_cpus for host in case.engine.hosts(bed.options)}

    until(lambda: free() == {0.0}, SECONDS)  # Ray counts every five seconds
    second = Handle(f"{case.gang.key}-second")
    case.engine.submit(case.gang._replace(key=second.key))
    waits = "waits for 2 nodes with 1 CPU each to be free, and to start"
    until(lambda: case.engine.poll([second])[second.key].why == waits, SECONDS)
    case.engine.stop(Handle(case.gang.key))
    until(lambda: case.state(second.key) is GangState.UP, SECONDS)
    case.engine.stop(second)
    until(lambda: case.state(second.key) is GangState.GONE, SECONDS)


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ({"nodes": 4}, "4 nodes with 1 CPU each, 3 available"),
        ({"cpus": 64.0}, "2 nodes with 64 CPUs each, 0 available"),
        ({"gpus": 1}, "2 nodes with 1 CPU and 1 GPU each, 0 available"),
        ({"options": {"resources": ["TPU=4"]}}, "2 nodes with 1 CPU and 4 TPU each, 0 available"),
    ],
)
def test_what_the_cluster_has_not_is_refused_in_words(case: Case, needs: dict, said: str):
    with pytest.raises(Refused) as caught:
        case.engine.admit(case.gang._replace(**needs))
    assert said in caught.value.message


class TestWhoAnswersThere:
    def test_ray_does(self, case: Case, bed: RayBed):
        case.engine.check(bed.options)

    def test_not_to_a_wrong_token_and_not_to_none(self, case: Case, bed: RayBed, tmp_path: Path):
        wrong = tmp_path / "wrong"
        wrong.write_text("wrong")
        for options, said in (
            ({**bed.options, "token_file": str(wrong)}, "rejects the token"),
            ({"address": bed.options["address"]}, "requires a token"),
            ({**bed.options, "token_file": str(tmp_path / "none")}, "no such file"),
        ):
            engine = RayEngine(tmp_path / "engine", tmp_path / "nodes", options)
            with pytest.raises(Refused, match=said) as caught:
                engine.check(options)
            assert caught.value.hint
            with pytest.raises(EngineError) as submitting:
                engine.submit(case.gang)
            assert not isinstance(submitting.value, Refused)
            assert engine.poll([Handle("a.1")])["a.1"].state is GangState.UNKNOWN

    def test_not_rays_other_doors(self, case: Case, bed: RayBed):
        with pytest.raises(EngineError):
            case.engine.check({**bed.options, "address": f"{bed.address('n1')}:6379"})


def test_a_cluster_that_scales_itself_is_waited_for_and_shrinks_again(
    tmp_path_factory: pytest.TempPathFactory, worker_id: str, tmp_path: Path
):
    folder = tmp_path_factory.mktemp("scaled")
    with ray_bed.autoscaled(folder, number_of("scaled", worker_id)) as bed:
        engine = engine_of(bed, tmp_path)
        gang = sleeper("scaled.1")._replace(nodes=3)
        handle = engine.submit(gang)
        seen = []

        def is_up() -> bool:
            seen.append(engine.poll([handle])[handle.key])
            return seen[-1].state is GangState.UP

        until(is_up, 90)
        waits = "waits for 3 nodes with 1 CPU each: 0 available"
        assert waits in [each.why for each in seen if each.state is GangState.PROVISIONING]
        assert len(bed.alive()) == 4
        engine.stop(handle)
        until(lambda: engine.poll([handle])[handle.key].state is GangState.GONE, SECONDS)
        until(lambda: len(bed.alive()) == 1, SECONDS)


def test_replicas_run_on_different_hosts_where_others_are_free(case: Case, tmp_path: Path):
    script = "import socket, time; open('host', 'w').write(socket.gethostname()); time.sleep(60)"
    gangs = [
        says(case, script, key=case.gang.key.replace(".1", f".{n}"), nodes=1, apart="far/blue")
        for n in (2, 3, 4)
    ]
    try:
        for gang in gangs:
            case.engine.submit(gang)
        files = [tmp_path / "nodes" / gang.key / "0" / "host" for gang in gangs]
        until(lambda: all(file.exists() and file.read_text() for file in files), SECONDS)
        assert len({file.read_text() for file in files}) == 3
    finally:
        for gang in gangs:
            case.engine.stop(Handle(gang.key))
