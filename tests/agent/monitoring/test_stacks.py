"""Asking real processes where they are: they answer, live on, and no other takes harm."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allranks.agent import inside
from allranks.agent.monitoring import stacks
from allranks.core.diagnosis.stacks import Process, load
from tests.support import until

INSIDE = inside.__path__[0]
Start = Callable[..., int]

STUCK = """\
import os, threading, time
def stuck():
    print("up", flush=True)
    time.sleep(600)
threading.Thread(target=threading.Event().wait, name="writer", daemon=True).start()
stuck()
"""
FORKS = "import os, time\nif os.fork() == 0: print('up', flush=True)\ntime.sleep(600)"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started = []

    def begin(*words: str, env: dict[str, str] | None = None) -> int:
        found = {"PATH": os.environ["PATH"], "PYTHONPATH": INSIDE} | (env or {})
        process = subprocess.Popen(words, env=found, stdout=subprocess.PIPE, process_group=0)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()
        return process.pid

    yield begin
    dead = [process for process in started if process.poll() is not None]
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert not dead, "it was to live on"


def python(text: str, *flags: str) -> tuple[str, ...]:
    return (sys.executable, *flags, "-c", text)


def look(pid: int) -> list[Process]:
    return [load(each) for each in stacks.take(0, {0: pid})]


def test_a_process_tells_all_its_threads_again_and_again(start: Start):
    pid = start(*python(STUCK))
    for _ in range(5):
        (found,) = look(pid)
        assert [each.function for each in found.frames] == ["stuck", "<module>"]
        assert [each.name for each in found.threads] == ["writer"]
        assert (found.state, found.why) == ("S", "")
    assert found.silent == 0
    assert "python" in found.name


def test_a_forked_child_answers_for_itself(start: Start):
    pid = start(*python(FORKS))
    parent, child = look(pid)
    assert (parent.pid, parent.parent, child.parent) == (pid, None, pid)
    until(lambda: [each.frames[0].line for each in look(pid)] == [3, 3])  # it may still print


@pytest.mark.medium
def test_one_in_c_code_tells_where_and_that_it_has_not_run_python_since(start: Start):
    """sem_wait is a C call that goes on after a signal, as waits for peers do."""
    text = (
        "import ctypes\n"
        "nothing = ctypes.create_string_buffer(64)\n"
        "print('up', flush=True)\n"
        "ctypes.CDLL(None).sem_wait(nothing)\n"
    )
    pid = start(*python(text))
    until(lambda: look(pid)[0].frames[0].line == 4)
    look(pid)
    for _ in range(3):
        (found,) = look(pid)
        assert found.frames[0].line == 4
        assert found.silent > 0
        assert not found.threads


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("bash", "-c", "echo up; sleep 600 & wait"), "not a Python process"),
        (python(STUCK, "-I"), "not a Python process, or started with -I"),
    ],
)
def test_who_cannot_answer_is_not_asked(start: Start, words: tuple[str, ...], why: str):
    found = look(start(*words))
    assert all(each.why.startswith(why) and not each.frames for each in found)
    assert len(found) == 1


def test_one_that_has_become_another_program_takes_no_harm(start: Start):
    pid = start(
        *python(
            "import os; os.execvp('bash', ['bash', '-c', 'echo up; while :; do sleep 600; done'])"
        )
    )
    os.kill(pid, signal.SIGURG)  # as if it had happened between the look and the question
    assert look(pid)[0].why.startswith("not a Python process")


def test_one_that_closes_all_files_does_not_get_ours_into_its_own(start: Start, tmp_path: Path):
    mine = tmp_path / "mine"
    text = "import os, time; os.closerange(3, 300)\n"
    text += f"fds = [os.open({str(mine)!r}, os.O_RDWR | os.O_CREAT) for _ in range(250)]\n"
    pid = start(*python(text + "print('up', flush=True); time.sleep(600)"))
    assert look(pid)[0].frames == ()
    assert mine.read_bytes() == b""


def test_a_stopped_one_is_told_as_that(start: Start):
    pid = start(*python(STUCK))
    os.kill(pid, signal.SIGSTOP)
    until(lambda: stacks.state(pid) == "T")
    began = time.monotonic()
    assert look(pid)[0].why.startswith("stopped by a signal")
    assert time.monotonic() - began < 5
    os.kill(pid, signal.SIGCONT)
    until(lambda: look(pid)[0].frames)


def test_programs_see_nothing_of_it(tmp_path: Path):
    """Not in what they import, print, hand on or leave open."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.own = True")
    text = (
        "import os, sys, sitecustomize\n"
        "assert sys.own and sitecustomize.__file__.startswith(sys.argv[1]), sitecustomize\n"
        "assert all(int(each) < 10 or int(each) >= 200 for each in os.listdir('/proc/self/fd'))\n"
        "os.system('ls /proc/self/fd')\n"
    )
    env = {"PYTHONPATH": f"{INSIDE}:{tmp_path}", "PATH": os.environ["PATH"]}
    words = [*python(text, "-W", "error"), str(tmp_path)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(int, done.stdout.split())) < 10


@pytest.mark.medium
def test_threads_that_come_and_go_outlive_many_questions(start: Start):
    """All threads told from the signal itself would end this one by SIGSEGV within ten of them."""
    text = (
        "import threading\n"
        "def deep(n): return n and deep(n - 1)\n"
        "def work():\n"
        "    while True:\n"
        "        t = threading.Thread(target=deep, args=(300,)); t.start(); t.join()\n"
        "for _ in range(4): threading.Thread(target=work, daemon=True).start()\n"
        "print('up', flush=True)\n"
        "while True: deep(50)\n"
    )
    pid = start(*python(text))
    for _ in range(60):
        assert look(pid)[0].frames[-1].function == "<module>"
