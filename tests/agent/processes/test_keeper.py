"""Nothing outlives an agent, however it dies."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

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
