"""What every Python of an MPI job runs first: a rank that fails does not wait in MPI_Finalize."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.agent import inside, programs

INSIDE = Path(inside.__path__[0])
# In place of MPI_Finalize: what a Python that ends still does after all that the script wanted.
FINALIZE = """
import os
class World:
    def __del__(self, write=os.write):
        write(1, b"waits for the others")
world = World()
"""
MAIN = "def main():\n  {}\n  return 0\nif __name__ == '__main__': sys.exit(main())"


def python(tmp_path: Path, script: str, mpi: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run the script in an environment that has a sitecustomize of its own."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.own = True")
    package = tmp_path / ("mpi4py" if mpi else "other")
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "MPI.py").write_text(FINALIZE)
    loads = f"import sys, atexit, {package.name}.MPI\nassert sys.own"
    (tmp_path / "script.py").write_text(f"{loads}\n{script}\n")
    env = {"PYTHONPATH": f"{INSIDE}:{tmp_path}", "PATH": os.defpath}
    env["ALLRANKS_LEAVING"] = programs.path_of("mpi_exit.py")
    words = [sys.executable, str(tmp_path / "script.py")]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("raise RuntimeError('no')", 1),
        ("sys.exit(3)", 3),
        ("sys.exit('no')", 1),
        (MAIN.format("sys.exit(4)"), 4),
        (MAIN.format("return 5"), 5),
    ],
)
def test_a_failed_rank_leaves_at_once_and_says_all_it_had_to(
    tmp_path: Path, script: str, code: int
):
    said = "atexit.register(print, 'mine', end='')\nprint('before', end=' ')\n"
    done = python(tmp_path, said + script)
    assert done.returncode == code
    assert done.stdout == "before mine"
    assert ("no" in done.stderr) is ("no" in script)


@pytest.mark.parametrize(
    "script",
    [
        "pass",
        "sys.exit()",
        "sys.exit(0)",
        MAIN.format("pass"),
        "try: sys.exit(3)\nexcept SystemExit: pass",
        MAIN.format("\n  try: sys.exit(3)\n  except SystemExit: pass"),
        "import threading\nt = threading.Thread(target=sys.exit, args=[3]); t.start(); t.join()",
    ],
)
def test_one_that_succeeds_waits(tmp_path: Path, script: str):
    done = python(tmp_path, script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "waits for the others", "")


def test_without_mpi_nothing_is_different(tmp_path: Path):
    done = python(tmp_path, "sys.exit(3)", mpi=False)
    assert (done.returncode, done.stdout) == (3, "waits for the others")


# `threading` tells the number of the first thread of before the fork, which a warm rank comes from.
FORKED = """
import os, sys, threading
sys.path.insert(0, sys.argv[1])
import allranks_profile as profile
threading.main_thread().native_id
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
asked, scheduled = [], profile._scheduled
def recorded(number):
    asked.append(number)
    assert os.path.exists("/proc/self/task/%d" % number)
    return scheduled(number)
profile._scheduled = recorded
answer = profile._sample(0.03, 100)
assert os.getpid() in asked
assert all(len(thread["waited"]) == len(thread["at"]) for thread in answer["threads"])
"""


def test_the_waiting_of_a_forked_rank_is_its_own():
    words = [sys.executable, "-c", FORKED, str(INSIDE)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
