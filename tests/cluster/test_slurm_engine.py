"""What every engine promises, of Slurm's on a real cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from allranks.core.plan import Gang
from allranks.engines.base import MARKER, Handle
from allranks.engines.slurm import engine as slurm
from allranks.engines.slurm.engine import KIND, SlurmEngine
from allranks.errors import EngineError, Refused
from tests.cluster.conftest import Cluster
from tests.cluster.test_slurm import ready
from tests.engines.contract import Case, Contract, sleeper
from tests.support import until

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(800)]


@pytest.fixture
def engine(cluster: Cluster, tmp_path: Path) -> SlurmEngine:
    ready(cluster)
    return SlurmEngine(tmp_path / "engine", tmp_path / "no'des", cluster.env["SLURM_CONF"])


@pytest.fixture
def gang(tmp_path: Path) -> Gang:
    return sleeper(f"{tmp_path.name}.1")._replace(options={"partition": "main"})


class TestSlurm(Contract):
    @pytest.fixture
    def case(
        self, cluster: Cluster, engine: SlurmEngine, gang: Gang, tmp_path: Path
    ) -> Iterator[Case]:
        def again() -> SlurmEngine:
            conf = cluster.env["SLURM_CONF"]
            return SlurmEngine(tmp_path / "engine", tmp_path / "no'des", conf)

        # The batch script itself carries the mark too, and what it waits with.
        case = Case(engine, gang, again, lambda: sleepers(gang.key), room=3, seconds=40)
        yield case
        engine.stop(Handle(gang.key))
        case.is_gone()


def sleepers(key: str) -> list[int]:
    """The agents of the gang, on whatever host."""
    found = []
    for process in psutil.process_iter():
        try:
            # Below a node's shell it says which node, too.
            mark = process.environ().get(MARKER, "")
            marked = mark.rpartition(".")[0].endswith(f".{key}")
            if marked and "time.sleep(60)" in " ".join(process.cmdline()):
                found.append((process.pid, process.name()))
        except psutil.Error:
            continue
    return sorted(pid for pid, name in found if name.startswith("python"))


def test_two_homes_may_have_a_job_of_the_same_name(engine, gang, cluster, tmp_path):
    other = SlurmEngine(tmp_path / "other", tmp_path / "others", cluster.env["SLURM_CONF"])
    ours, theirs = engine.submit(gang), other.submit(gang)
    assert ours.ref != theirs.ref
    engine.stop(ours)
    until(lambda: engine.poll([ours])[gang.key].state == "gone")
    until(lambda: other.poll([theirs])[gang.key].state == "up")
    other.stop(theirs)


def test_what_slurm_has_forgotten_is_found_in_the_log_of_completed_jobs(engine, gang, cluster):
    # The record of a job that the controller no longer has: as after MinJobAge.
    told = engine._from_accounting([Handle(gang.key)])[gang.key]
    assert (told.state, told.reason) == ("gone", None)
    done = gang._replace(argv=("/bin/false",))
    handle = engine.submit(done)
    until(lambda: engine.poll([handle])[gang.key].state == "gone", 40)
    assert engine._from_accounting([handle])[gang.key].why == "Slurm: its script failed"
    # A number that Slurm gave out again, or another home's job of that name, is not ours.
    for other in (Handle(gang.key, "1000000"), Handle("other.1", handle.ref)):
        assert "no longer in the queue" in engine._from_accounting([other])[other.key].why


def test_the_last_words_of_agents_that_cannot_start_are_told(engine, gang):
    handle = engine.submit(gang._replace(argv=("/no/such/python", "-m", "x")))
    until(lambda: engine.poll([handle])[gang.key].state == "gone", 40)
    assert "/no/such/python" in engine.poll([handle])[gang.key].why


def test_resources_that_no_node_has_are_refused_in_words(engine, gang):
    with pytest.raises(Refused) as caught:
        engine.admit(gang._replace(cpus=64))
    assert "2 nodes with 64 CPUs" in caught.value.message
    assert caught.value.hint


def test_more_processes_than_cpus_are_refused_with_the_key_that_helps(engine, gang):
    with pytest.raises(Refused, match=r"2 nodes with 8 CPUs each, 0 available") as caught:
        engine.admit(gang._replace(processes=8))
    hint = str(caught.value.hint)
    assert "each of the 8 processes of a node gets a CPU, and the largest host has 4" in hint
    assert "-p 4" in hint
    assert "resources.properties.slurm.cpus=4" in hint
    engine.admit(gang._replace(processes=8, cpus=4))
    with pytest.raises(Refused) as caught:
        engine.admit(gang._replace(cpus=64))
    assert "the largest host has 4 CPUs: lower `cpus` of the compute" in str(caught.value.hint)


def test_what_a_controller_refuses_that_has_just_started_is_asked_again(engine, gang, monkeypatch):
    # A refusal that says nothing of what the hosts have, though all are in good order.
    gang = gang._replace(options={"partition": "main", "extra": ["--tmp=999999"]})
    monkeypatch.setattr(slurm, "_SETTLING", math.inf)
    engine.admit(gang)
    with pytest.raises(EngineError, match="configuration is not available"):
        engine.submit(gang)
    monkeypatch.setattr(slurm, "_SETTLING", 0.0)
    for ask in (engine.admit, engine.submit):
        with pytest.raises(Refused, match="configuration is not available"):
            ask(gang)


@pytest.mark.parametrize(
    "extra", ["--comment=x", "--array=0-3", "-J x", "--wait", "--export=NONE", "not an option"]
)
def test_what_a_gang_is_known_by_is_not_to_be_changed(engine, gang, extra):
    with pytest.raises(Refused) as caught:
        engine.admit(gang._replace(options={"partition": "main", "extra": [extra]}))
    assert repr(extra) in caught.value.message


def test_strange_jobs_of_the_same_user_do_no_harm(engine, gang, cluster):
    handle = engine.submit(gang)
    strange = ("--hold", "-o", "/dev/null", "--wrap", "true", "--comment")
    cluster.slurm("sbatch", *strange, "a|b|c|d|e\nf|g|h|i|j|k")
    cluster.slurm("sbatch", *strange, b"\xff\xfe".decode(errors="surrogateescape"))
    cluster.slurm("sbatch", *strange, "x", "--array=1-3")
    until(lambda: engine.poll([handle])[gang.key].state == "up")
    engine.stop(handle)
    cluster.slurm("scancel", "--state=PENDING", "--user=root")


def test_every_option_is_one_slurm_takes(engine, gang):
    options = {
        "partition": "main",
        "time": "1-00:00:00",
        "exclusive": True,
        "extra": ["--mail-type=NONE", "--nice=10"],
        "prologue": ["export A='b c'"],
        "warning": 90,
        "requeue": True,
        "gres": "",
    }
    engine.check(options)
    text = engine.render(gang._replace(options=options, memory=1 << 30))
    for line in ("--time=1-00:00:00", "--exclusive", "--nice=10", "--mem=1024M", "B:TERM@90"):
        assert line in text
    assert {option.name for option in KIND.options} >= options.keys()


def test_a_list_of_hosts_in_extra_is_checked_with_as_many_nodes(engine):
    engine.check({"partition": "main", "extra": ["--nodelist=n1,n2"]})
    with pytest.raises(Refused, match="Invalid node name"):
        engine.check({"partition": "main", "extra": ["--nodelist=n1,nosuch"]})


def test_replicas_run_on_different_hosts_where_others_are_free(
    engine, gang, cluster, tmp_path, monkeypatch
):
    handles = list[Handle]()

    def start(number: int, apart: str = "far/blue", *extra: str) -> str:
        """Submit one; the host that runs it."""
        key = gang.key.replace(".1", f".{number}")
        options = {**gang.options, "extra": extra}
        one = gang._replace(key=key, nodes=1, apart=apart, options=options)
        handles.append(engine.submit(one))
        until(lambda: host_of(handles[-1]), 30)
        return host_of(handles[-1])

    def host_of(handle: Handle) -> str:
        return cluster.slurm("squeue", "-h", "-t", "R", "-j", handle.ref, "-o", "%N")

    try:
        first = start(2)
        assert {first, start(3), start(4)} == {"n1", "n2", "n3"}
        # Where each host has one, and for others, all hosts are as good.
        assert start(5) in ("n1", "n2", "n3")
        assert start(6, "far/green") == first
        third = next(host for host in ("n3", "n2") if host != first)
        (left,) = {"n1", "n2", "n3"} - {first, third}
        assert start(9, "far/green", f"--exclude={third}") == left
        alone = start(10, "far/red")
        third, left = sorted({"n1", "n2", "n3"} - {alone})
        (tmp_path / "hosts").write_text(f"{third}\n")
        assert start(11, "far/red", f"--exclude={tmp_path}/hosts") == left
        for handle in handles:
            engine.stop(handle)
        until(lambda: not cluster.slurm("squeue", "-h"), 60)
        # It does not wait for a host that others have, but for one that it would get at once.
        words = ("sbatch", "--parsable", "-N2", "--exclusive", "--time=5", "--output=/dev/null")
        busy = cluster.slurm(*words, "--wrap", "sleep 600")
        until(lambda: host_of(Handle("", busy)), 30)
        last = start(7)
        assert start(8) == last
        monkeypatch.setattr(slurm, "_MOST_WAIT", 600)
        full = next(host for host in ("n1", "n2") if host != last)
        late = gang._replace(key="late.1", nodes=1, apart="far/blue")
        late = late._replace(options={**gang.options, "extra": [f"--exclude={full}"]})
        handles.append(engine.submit(late))
        until(lambda: engine.poll(handles)["late.1"].why, 30)
        assert not host_of(handles[-1])
        monkeypatch.setattr(slurm, "_MOST_WAIT", 0)
        until(lambda: engine.poll(handles) and host_of(handles[-1]) == last, 60)
        assert f"ExcNodeList={full}" in cluster.slurm("scontrol", "show", "job", handles[-1].ref)
    finally:
        for handle in handles:
            engine.stop(handle)
        cluster.slurm("scancel", "--user=root")
