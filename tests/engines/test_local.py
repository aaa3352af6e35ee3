"""The local engine's own: what it counts, whom it lets wait, what it finds after a crash."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from allranks.core.plan import Gang
from allranks.engines import agent_bundle
from allranks.engines.base import MARKER, Handle
from allranks.engines.local.capacity import Capacity
from allranks.engines.local.end_gang import end_gang, marked
from allranks.engines.local.engine import LocalEngine
from allranks.engines.local.fork_server import ForkServer
from allranks.errors import Refused
from allranks.settings import Home
from allranks.statuses import GangState
from tests import reforking
from tests.engines.processes import kill
from tests.support import until

# These gangs' processes carry the marker themselves; none was forked by the fork server.
NOWHERE = Path("/nowhere")
MACHINE = Capacity(nodes=4, gpus=2, cpus=2.0, memory=1 << 30)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    made = LocalEngine(tmp_path / "engine", tmp_path / "nodes", MACHINE)
    yield made
    for folder in (tmp_path / "engine").glob("*"):
        kill(made, folder.name)
        made.stop(Handle(folder.name))


def gang(name: str, script: str = "import time; time.sleep(60)", nodes: int = 1, **needs) -> Gang:
    key = f"{os.getpid()}-{name}.1"
    return Gang(key, nodes, (sys.executable, "-c", script), {MARKER: key}, **needs)


def environ(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text()
    except OSError:  # it ended since it was counted
        return ""


def seen(engine: LocalEngine, one: Gang):
    return engine.poll([Handle(one.key)])[one.key]


@pytest.mark.medium
def test_the_fork_server_is_started_once_before_the_first_agent(tmp_path):
    with contextlib.closing(ForkServer(Home(tmp_path))) as server:
        threads = [threading.Thread(target=server.start) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert server._process is not None
        mine = psutil.Process(server._process.pid)
        # Just after exec the kernel has no command line of it.
        until(lambda: mine.cmdline())
        others = [each for each in psutil.Process().children() if each != mine]
        living = [each for each in others if each.status() != psutil.STATUS_ZOMBIE]
        assert not any("allranks.agent.fork_server" in each.cmdline() for each in living)
    assert not mine.is_running()


@pytest.mark.medium
def test_a_fork_server_that_died_starts_again_from_the_code_of_its_server(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/opt/obstore")
    with contextlib.closing(ForkServer(Home(tmp_path))) as server:
        paths = []
        for _ in range(2):
            server.start()
            assert server._process is not None
            pid = server._process.pid
            until(lambda pid=pid: "PYTHONPATH" in environ(pid))
            paths += [line for line in environ(pid).split("\0") if line.startswith("PYTHONPATH=")]
            os.kill(pid, signal.SIGKILL)
            server.close()
            # Another version is installed.
            monkeypatch.setattr(
                agent_bundle, "sources", lambda: iter([("other.py", Path(__file__))])
            )
        assert paths[0] == paths[1]
        assert str(tmp_path / "pinned") in paths[0]
        assert paths[0].endswith(":/opt/obstore"), "as the server's own"


@pytest.mark.parametrize(
    ("needs", "word"),
    [
        ({"nodes": 5}, "5 nodes"),
        ({"gpus": 3}, "3 GPUs"),
        ({"nodes": 2, "gpus": 2}, "4 GPUs"),
        ({"cpus": 2.5}, "2.5 CPUs"),
        ({"memory": 1 << 31}, "bytes of memory"),
        ({"nodes": 4, "processes": 129}, "516 processes"),
    ],
)
def test_never_fits(engine, needs, word):
    with pytest.raises(Refused, match=word):
        engine.admit(gang("big", **needs))


def test_an_option_it_does_not_have_is_refused_by_name(engine):
    with pytest.raises(Refused, match="partition"):
        engine.admit(gang("o", options={"partition": "x"}))


def test_gpus_are_counted_and_given_to_one_gang_each(engine, tmp_path):
    first, second = gang("a", gpus=1), gang("b", gpus=1)
    third = gang("c", gpus=2)
    for each in (first, second, third):
        engine.submit(each)
    assert [seen(engine, each).state for each in (first, second, third)] == [
        GangState.UP,
        GangState.UP,
        GangState.QUEUED,
    ]
    assert "waits for 2 GPUs (0 available)" in seen(engine, third).why
    marks = [engine.mark(each.key) for each in (first, second)]
    until(lambda: all(marked(each, NOWHERE) for each in marks))  # between fork and exec: none
    env = [environ(marked(each, NOWHERE)[0]) for each in marks]
    assert ["CUDA_VISIBLE_DEVICES=0" in env[0], "CUDA_VISIBLE_DEVICES=1" in env[1]] == [True, True]
    engine.stop(Handle(first.key))
    engine.stop(Handle(second.key))
    assert seen(engine, third).state is GangState.UP


def test_gangs_that_name_no_cpus_share_them(engine):
    several = [gang(f"s{i}") for i in range(4)]
    for each in several:
        engine.submit(each)
    assert all(seen(engine, each).state is GangState.UP for each in several)
    late = gang("late")
    engine.submit(late)
    assert seen(engine, late).state is GangState.QUEUED, "there are only four nodes"


def test_a_large_gang_is_not_starved_by_small_ones(engine):
    running = gang("running", cpus=1)
    large, small = gang("large", cpus=2), gang("small", cpus=1)
    free = gang("free")
    for each in (running, large, small, free):
        engine.submit(each)
    assert seen(engine, large).state is GangState.QUEUED
    assert seen(engine, small).state is GangState.QUEUED, "the free CPU is kept for the large one"
    assert seen(engine, free).state is GangState.UP, "what it does not ask for it does not wait for"
    engine.stop(Handle(running.key))
    assert seen(engine, large).state is GangState.UP


@pytest.mark.medium
def test_spot_gangs_give_way_and_are_served_last(engine):
    old, young = (gang(name, cpus=1, spot=True) for name in ("old", "young"))
    for each in (old, young):
        engine.submit(each)
    large = gang("large", cpus=1)
    engine.submit(large)
    assert seen(engine, young).taken.endswith("-large waits in the queue")
    assert (seen(engine, old).state, seen(engine, old).taken) == (GangState.UP, "")
    late = gang("late", cpus=1, spot=True)
    engine.submit(late)
    assert seen(engine, old).taken == "", "a spot gang takes no place of another"
    engine.stop(Handle(young.key))
    assert seen(engine, large).state is GangState.UP
    engine.stop(Handle(large.key))
    assert seen(engine, late).state is GangState.UP


def test_nobody_gives_way_for_what_would_not_fit_then_either(engine):
    fixed, spot = gang("fixed", cpus=1), gang("spot", cpus=1, spot=True)
    for each in (fixed, spot, gang("large", cpus=2)):
        engine.submit(each)
    assert (seen(engine, spot).state, seen(engine, spot).taken) == (GangState.UP, "")


def test_each_node_has_an_address_and_a_share_of_the_cpus(engine):
    pair = gang("pair", nodes=2)
    engine.submit(pair)
    mark = engine.mark(pair.key)
    until(lambda: len(marked(mark, NOWHERE)) == 2)
    environs = [environ(pid) for pid in marked(mark, NOWHERE)]
    for node in range(2):
        mine = [env for env in environs if f"ALLRANKS_AGENT_NODE={node}\0" in env]
        assert len(mine) == 1
        assert f"ALLRANKS_AGENT_ADDRESS=127.0.0.{2 + node}\0" in mine[0]
        assert "ALLRANKS_AGENT_CPUS=1\0" in mine[0]


def test_a_dead_node_is_told_and_then_the_whole_gang(engine):
    pair = gang("dying", nodes=2)
    engine.submit(pair)
    mark = engine.mark(pair.key)
    until(lambda: len(marked(mark, NOWHERE)) == 2)  # between fork and exec: without its mark
    first, second = sorted(marked(mark, NOWHERE))
    os.kill(first, signal.SIGKILL)
    until(lambda: len(seen(engine, pair).lost) == 1)
    assert seen(engine, pair).state is GangState.UP
    os.kill(second, signal.SIGKILL)
    until(lambda: seen(engine, pair).state is GangState.GONE)


def test_the_last_words_of_an_agent_that_could_not_start(engine):
    broken = gang("broken", "raise SystemExit('no module named allranks')")
    engine.submit(broken)
    until(lambda: seen(engine, broken).state is GangState.GONE)
    assert seen(engine, broken).why == "no module named allranks"


def test_an_agent_that_cannot_be_started_is_tried_again_all_or_none(engine, tmp_path):
    """The second node's fails: the first is ended, the gang waits, and says why."""
    python = tmp_path / "python"
    nowhere = gang("nowhere", nodes=2)._replace(
        argv=(str(python), "-c", "import time; time.sleep(60)")
    )
    engine.submit(nowhere)
    assert seen(engine, nowhere).state is GangState.QUEUED
    assert "could not be started" in seen(engine, nowhere).why
    assert marked(engine.mark(nowhere.key), NOWHERE) == []
    python.symlink_to(sys.executable)
    assert seen(engine, nowhere).state is GangState.UP


def test_a_gang_waits_while_the_disk_cannot_take_its_folders(engine, tmp_path):
    """Not one that was started and whose agents have ended: that would be a lost node."""
    nodes = tmp_path / "nodes"
    nodes.touch()  # nobody, not even root, makes a folder below it
    waiting = gang("waiting", nodes=2)
    engine.submit(waiting)
    assert seen(engine, waiting).state is GangState.QUEUED
    assert seen(engine, waiting).why == "an agent could not be started: Not a directory"
    nodes.unlink()
    assert seen(engine, waiting).state is GangState.UP


def test_two_homes_may_have_a_job_of_the_same_name(engine, tmp_path):
    other = LocalEngine(tmp_path / "other" / "engine", tmp_path / "other" / "nodes", MACHINE)
    same = gang("same")
    engine.submit(same)
    other.submit(same)
    other.stop(Handle(same.key))
    assert seen(engine, same).state is GangState.UP
    assert len(marked(engine.mark(same.key), NOWHERE)) == 1


def test_agents_a_dead_server_did_not_get_to_are_started_by_the_next(engine, tmp_path):
    """It had written that the gang starts, and died before the second agent."""
    pair = gang("half", nodes=2)
    engine.submit(pair)

    def second() -> list[int]:
        return [p for p in marked(engine.mark(pair.key), NOWHERE) if "AGENT_NODE=1\0" in environ(p)]

    until(second)  # a process has its environment a moment after it is there
    (tmp_path / "engine" / pair.key / "node-1.lock").unlink()
    os.kill(second()[0], signal.SIGKILL)
    successor = LocalEngine(tmp_path / "engine", tmp_path / "nodes", MACHINE)
    assert seen(successor, pair).state is GangState.UP
    until(lambda: len(marked(engine.mark(pair.key), NOWHERE)) == 2)
    assert seen(successor, pair).lost == ()


def test_a_gang_that_was_not_wholly_written_was_never_there(tmp_path):
    (tmp_path / "engine" / "torn.1").mkdir(parents=True)
    (tmp_path / "engine" / "torn.1" / "gang.json").write_text('{"gang": ')
    engine = LocalEngine(tmp_path / "engine", tmp_path / "nodes", MACHINE)
    assert engine.poll([Handle("torn.1")])["torn.1"].state is GangState.GONE
    assert not (tmp_path / "engine" / "torn.1").exists()


def test_a_queue_survives_the_server(engine, tmp_path):
    first, second = gang("q1", gpus=2), gang("q2", gpus=2)
    engine.submit(first)
    engine.submit(second)
    successor = LocalEngine(tmp_path / "engine", tmp_path / "nodes", MACHINE)
    assert seen(successor, second).state is GangState.QUEUED
    successor.stop(Handle(first.key))
    assert seen(successor, second).state is GangState.UP
    written = json.loads((tmp_path / "engine" / second.key / "gang.json").read_text())
    assert written["gpus"] == [0, 1]


def test_the_clean_up_finds_what_moved_away(tmp_path):
    key = f"swept-{os.getpid()}.1"
    subprocess.run(
        ["bash", "-c", "setsid sleep 100 & setsid bash -c 'setsid sleep 100 & exec sleep 100' &"],
        env={**os.environ, MARKER: key},
    )
    until(lambda: len(marked(key, NOWHERE)) == 3)
    end_gang(key, NOWHERE)
    assert marked(key, NOWHERE) == []


@pytest.mark.slow
def test_a_gang_without_keeper_that_forks_again_and_again_is_ended(tmp_path):
    key = f"reforking-{os.getpid()}.1"
    program = [sys.executable, "-c", reforking.PROGRAM.format(chains=3)]
    with reforking.busy_machine(6):
        subprocess.run(program, env={**os.environ, MARKER: key}, check=True)
        assert end_gang(key, NOWHERE, seconds=20.0) == []
        for _ in range(5):
            assert marked(key, NOWHERE) == []


@pytest.mark.medium
def test_a_keeper_ends_what_is_below_it_when_its_gang_is_ended(tmp_path):
    """It is killed last, so that orphans are its children instead of those of init."""
    key = f"kept-{os.getpid()}.1"
    lock = tmp_path / "node-0.lock"
    keeper = (
        "import os, sys, time; from allranks.agent.processes.keeper import keep; code = keep(); "
        "code is None and (os.system('setsid env -i sleep 99 &'), time.sleep(99)); sys.exit(code)"
    )
    with lock.open("w") as held:
        argv = [sys.executable, "-c", keeper]
        fds = (held.fileno(),)
        node = subprocess.Popen(argv, env={**os.environ, MARKER: key}, pass_fds=fds)
    until(lambda: len(psutil.Process(node.pid).children(recursive=True)) == 2)
    below = psutil.Process(node.pid).children(recursive=True)
    assert end_gang(key, tmp_path) == []
    assert node.wait() == 256 - signal.SIGKILL  # it ended by itself, as its agent did
    assert not any(each.is_running() for each in below)


@pytest.mark.medium
def test_what_cannot_be_ended_is_listed(engine, monkeypatch):
    one = gang("stuck")
    engine.submit(one)
    until(lambda: len(marked(engine.mark(one.key), NOWHERE)) == 1)
    (pid,) = marked(engine.mark(one.key), NOWHERE)
    named = f"{pid} ({psutil.Process(pid).name()})"
    monkeypatch.setattr(os, "kill", lambda *_: None)  # as if it waited for a dead disk
    assert end_gang(engine.mark(one.key), NOWHERE, 0.05) == [named]
    monkeypatch.undo()
    assert engine.stop(Handle(one.key)) == []


_HOLDER = """
import fcntl, os, sys, time
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
held = b"x" * (200 << 20)
os.write(lock, b"%d" % os.getpid())
time.sleep(60)
"""


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[subprocess.Popen]:
    """A process that holds 200 MB, as a server of imported modules does."""
    lock = tmp_path / "warm" / "k.lock"
    lock.parent.mkdir()
    made = subprocess.Popen([sys.executable, "-c", _HOLDER, str(lock)])
    until(lambda: lock.exists() and lock.read_text())
    yield made
    made.kill()
    made.wait()


@pytest.mark.medium
def test_warm_servers_make_room_for_a_gang(engine: LocalEngine, warm: subprocess.Popen):
    engine.submit(gang("large", memory=900 << 20))
    assert warm.wait() == -signal.SIGKILL


@pytest.mark.medium
def test_warm_servers_stay_while_a_gang_waits_for_another(
    engine: LocalEngine, warm: subprocess.Popen
):
    engine.submit(gang("runs", memory=600 << 20))
    waits = gang("waits", memory=700 << 20)
    engine.submit(waits)
    assert seen(engine, waits).state is GangState.QUEUED
    with pytest.raises(subprocess.TimeoutExpired):
        warm.wait(0.2)


def test_a_gang_starts_once_ranks_have_ended_though_their_agents_still_live(engine):
    first, second, third, child = (gang(name, ranks=1) for name in ("a", "b", "c", "d"))
    for each in (first, second, third):
        engine.submit(each)
    why = f"waits for the job {first.key.rpartition('.')[0]} and others to end (`max_ranks` of the"
    assert seen(engine, third).why == f"{why} compute: 2)"
    assert engine.hosts({})[0].free_cpus == 0
    engine.submit(child._replace(ranks=0))
    assert seen(engine, child).state is GangState.UP
    engine.poll([Handle(first.key, ended=True)])
    assert seen(engine, third).state is GangState.UP
    assert engine.hosts({})[0].free_cpus == 0
    unlimited = gang("e", ranks=1, options={"max_ranks": 0})
    engine.stop(Handle(first.key))
    engine.submit(unlimited)
    assert seen(engine, unlimited).state is GangState.UP


def test_a_gang_that_waits_follows_the_limit_that_holds_now(engine, tmp_path):
    first, second = gang("a", ranks=1), gang("b", ranks=4)
    engine.submit(first)
    engine.submit(second)
    engine.submit(second._replace(options={"max_ranks": 3}))
    assert seen(engine, second).why.endswith(": 3)")
    again = LocalEngine(tmp_path / "engine", tmp_path / "nodes", MACHINE)
    assert seen(again, second).why.endswith(": 3)")
    engine.submit(second._replace(options={"max_ranks": 5}))
    assert seen(engine, second).state is GangState.UP


def test_a_port_that_two_gangs_fix_is_used_by_one_at_a_time_also_after_a_restart(engine, tmp_path):
    first, second = (gang(name, fixed_ports=(29500,)) for name in ("a", "b"))
    for each in (first, second):
        engine.submit(each)
    again = LocalEngine(tmp_path / "engine", tmp_path / "nodes", MACHINE)
    job = first.key.removesuffix(".1")
    assert seen(again, second).why == f"waits for port 29500, which the job {job} uses"
    again.stop(Handle(first.key))
    assert seen(again, second).state is GangState.UP
