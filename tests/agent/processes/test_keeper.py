"""Nothing outlives an agent, however it dies."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from allranks.agent.programs.allranks_warm import processes
from tests import reforking
from tests.support import until

PROGRAM = textwrap.dedent(
    """
    import os, subprocess, sys, time
    from allranks.agent.processes.keeper import keep
    code = keep()
    if code is not None:
        sys.exit(code)
    far = "setsid env -i sleep 999 & setsid bash -c 'sleep 999 & wait' & wait"
    subprocess.Popen(["bash", "-c", far])
    print(os.getpid(), flush=True)
    EXIT
    """
)


def start(ending: str) -> tuple[subprocess.Popen[str], int]:
    program = PROGRAM.replace("EXIT", ending)
    keeper = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert keeper.stdout is not None
    return keeper, int(keeper.stdout.readline())


def sleepers(agent: int) -> list[psutil.Process]:
    below = psutil.Process(agent).children(recursive=True)
    return [process for process in below if process.name() == "sleep"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_agent_started_is_ended(number):
    keeper, agent = start("time.sleep(60)")
    until(lambda: len(sleepers(agent)) == 2)
    left = sleepers(agent)
    os.kill(agent, number)
    assert keeper.wait(10) != 0
    keeper.stdout.close()
    assert not any(process.is_running() for process in left)


def test_a_killed_keeper_takes_its_agent_along():
    keeper, agent = start("time.sleep(60)")
    until(lambda: len(sleepers(agent)) == 2)
    process, left = psutil.Process(agent), sleepers(agent)
    keeper.kill()
    keeper.wait()
    keeper.stdout.close()
    until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
    for each in left:
        each.kill()


@pytest.mark.parametrize(("ending", "code"), [("", 0), ("sys.exit(3)", 3), ("os.abort()", 250)])
def test_the_keeper_ends_as_its_agent_does(ending, code):
    keeper, _ = start(ending)
    keeper.stdout.close()
    assert keeper.wait(10) == code


@pytest.mark.slow
def test_processes_that_fork_again_and_again_are_ended_on_a_busy_machine():
    """In sessions of their own, every 20 ms, with SIGTERM ignored."""
    program = reforking.PROGRAM.format(chains=3)
    mark = f"REFORKING={os.getpid()}"
    ending = f"os.environ.update([{mark.split('=')!r}]); subprocess.Popen([sys.executable, '-c', "
    ending += f"{program!r}]).wait(); time.sleep(0.1); sys.exit(3)"
    with reforking.busy_machine(6):
        keeper, _ = start(ending)
        keeper.stdout.close()
        assert keeper.wait(30) == 3
    assert not [process for process in psutil.process_iter() if has_mark(process.pid, mark)]


def has_mark(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def test_what_cannot_be_ended_is_named():
    program = textwrap.dedent(
        """
        import subprocess
        from allranks.agent.processes import keeper
        keeper._send = lambda pid, number: None  # as to a process that waits for a dead disk
        sleep = subprocess.Popen(["sleep", "99"])
        print(sleep.pid, keeper.not_ended(keeper.end_descendants(seconds=0.05)))
        sleep.kill()
        sleep.wait()
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    pid, _, sentence = done.stdout.strip().partition(" ")
    assert sentence == f"could not end {pid} (sleep)"


@pytest.mark.parametrize("lists", [True, False])
def test_descendants_are_those_that_psutil_finds(lists, monkeypatch):
    monkeypatch.setattr(processes, "_LISTS_CHILDREN", lists)
    shell = subprocess.Popen(["bash", "-c", "(sleep 99 & setsid sleep 98) & wait"])
    try:
        until(lambda: len(sleepers(shell.pid)) == 2)
        below = psutil.Process(shell.pid).children(recursive=True)
        assert {*processes.below(shell.pid)} == {each.pid for each in below}
    finally:
        for each in (*psutil.Process(shell.pid).children(recursive=True), shell):
            each.kill()
        shell.wait()


def test_the_agent_is_small(tmp_path: Path):
    """In resident memory: it is taken from the user's node. The bar is 40 MB."""
    script = (
        "import allranks.agent.lifecycle.main; print(open('/proc/self/statm').read().split()[1])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert int(done.stdout) * os.sysconf("SC_PAGE_SIZE") < 40 << 20


def test_what_reads_metrics_is_no_process_of_the_jobs():
    program = textwrap.dedent(
        """
        import subprocess, sys
        from allranks.agent.processes.keeper import has_others
        argv = [sys.executable, "-P", "-m", "allranks.agent.monitoring.metric_scraper"]
        ours = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        # An exec closes the pipe that Popen waits for a moment before the process has its words.
        while b"metric_scraper" not in open(f"/proc/{ours.pid}/cmdline", "rb").read():
            pass
        alone = has_others()
        other = subprocess.Popen(["sleep", "99"])
        beside = has_others()
        other.kill()
        other.wait()
        ours.kill()
        ours.wait()
        ours.stdin.close()
        print(alone, beside, has_others())
        """
    )
    argv = [sys.executable, "-c", program]
    said = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["False", "True", "False"]
