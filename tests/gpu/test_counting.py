"""Jobs get GPUs of their own, and no more than there are."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gpu.conftest import DEVICES, driver
from tests.support import Allranks, answer, until

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

PRINT = "import os; print('visible:', os.environ['CUDA_VISIBLE_DEVICES'])"
Script = Callable[..., str]
SCORE = """
import os
def init(): pass
def run(data): return os.environ["CUDA_VISIBLE_DEVICES"]
"""
# A folder of the real devices, with two files more; then the command.
DEV = """
old=$1
shift
mount --rbind /dev "$old"
mount -t tmpfs tmpfs /dev
for each in "$old"/*; do
    goal=/dev/$(basename "$each")
    if [ -L "$each" ]; then cp -P "$each" "$goal"
    elif [ -d "$each" ]; then mkdir "$goal" && mount --rbind "$each" "$goal"
    else touch "$goal" && mount --bind "$each" "$goal"; fi
done
touch /dev/nvidia0 /dev/nvidia1
exec "$@"
"""


def visible(output: str) -> list[list[str]]:
    lines = [line for line in output.splitlines() if "visible:" in line]
    return [line.partition("visible:")[2].replace(" ", "").split(",") for line in lines]


def test_each_rank_sees_the_gpus_of_its_node(gpus: list[str], script: Script) -> None:
    count = len(gpus)
    found = visible(script(PRINT, "-p", str(count), "--gpus", str(count), "-d", "pytorch"))
    assert found == [[str(n) for n in range(count)]] * count


def test_nodes_on_one_machine_share_no_gpu(gpus: list[str], script: Script) -> None:
    if len(gpus) < 2:
        pytest.skip("needs two GPUs, one for each node")
    found = visible(script(PRINT, "-n", "2", "--gpus", "1"))
    assert sorted(found) == [["0"], ["1"]]


def test_a_job_without_gpus_sees_none(gpus: list[str], script: Script) -> None:
    assert visible(script(PRINT, "--gpus", "0")) == [[""]]


def test_more_gpus_than_there_are_are_refused(gpus: list[str], allranks: Allranks) -> None:
    done = allranks("run", "--gpus", len(gpus) + 1, "--", "true")
    assert done.returncode != 0
    assert f"({len(gpus)} available)" in done.stderr


def test_a_job_waits_until_the_gpus_are_free(
    gpus: list[str], allranks: Allranks, code: Path
) -> None:
    go = code / "go"
    wait = f"while [ ! -e {shlex.quote(str(go))} ]; do sleep 0.05; done"
    every = ("run", "--detach", "--json", "--gpus", str(len(gpus)), "--")
    first = json.loads(allranks(*every, "bash", "-c", wait).stdout)["name"]
    until(lambda: status(allranks, first) == "Running")
    second = json.loads(allranks(*every, "true").stdout)["name"]
    assert answer(allranks, "job", "show", second)["status"] in ("Queued", "NotStarted")
    go.touch()
    assert allranks("job", "wait", second).returncode == 0
    ended, started = (answer(allranks, "job", "show", name) for name in (first, second))
    assert ended["ended_at"] <= started["started_at"]


def test_replicas_have_gpus_and_an_update_says_that_it_waits(
    gpus: list[str], allranks: Allranks, code: Path
) -> None:
    (code / "src").mkdir()
    (code / "src" / "score.py").write_text(SCORE)
    (code / "weights").write_text("1")
    assert allranks("model", "create", "counter", "--path", "weights").returncode == 0
    deploy = ("model", "deploy", "counter", "--script", "score.py", "--code", "src", "--gpus")
    every = ",".join(str(number) for number in range(len(gpus)))
    none = allranks(*deploy, 0, "--name", "none")
    assert none.returncode == 0, none.stdout + none.stderr
    assert allranks(*deploy, len(gpus), "--name", "all").returncode == 0
    assert scored(allranks, "none") == ""
    assert scored(allranks, "all") == every
    refused = allranks(*deploy, len(gpus) + 1, "--name", "more")
    assert refused.returncode != 0
    assert f"({len(gpus)} available)" in refused.stderr
    # All GPUs are the old replica's until the new one answers.
    assert allranks(*deploy, len(gpus), "--name", "all", "--no-wait").returncode == 0
    show = ("deployment", "show", "default", "-e", "all")
    until(lambda: "(0 available)" in str(answer(allranks, *show)["replicas"][-1]["reason"]))
    assert scored(allranks, "all") == every
    back = allranks("deployment", "update", "default", "-e", "all", "--rollback")
    assert back.returncode == 0, back.stdout + back.stderr
    assert scored(allranks, "all") == every


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root, unshare")
@pytest.mark.skipif(bool(driver()), reason="there are GPUs here, or files for them")
@pytest.mark.timeout(400)
def test_all_of_this_with_files_for_devices(tmp_path: Path) -> None:
    """A /dev of its own with files for two GPUs: all but CUDA is as on a machine that has them."""
    argv = ["unshare", "--mount", "--propagation", "private", "bash", "-euc", DEV]
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not files"]
    env = {**os.environ, DEVICES: "2", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [*argv, "bash", str(tmp_path), *tests, __file__],
        cwd=Path(__file__).parents[2],
        env={name: value for name, value in env.items() if not name.startswith("PYTEST_XDIST")},
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def status(allranks: Allranks, name: str) -> str:
    return str(answer(allranks, "job", "show", name)["status"])


def scored(allranks: Allranks, endpoint: str) -> object:
    done = allranks("endpoint", "invoke", endpoint, "--data", "{}")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)
