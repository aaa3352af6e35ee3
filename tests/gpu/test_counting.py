"""Jobs get GPUs of their own, and no more than there are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import Allranks, answer, until

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

PRINT = "import os; print('visible:', os.environ['CUDA_VISIBLE_DEVICES'])"
Script = Callable[..., str]


def visible(output: str) -> list[list[str]]:
    lines = [line for line in output.splitlines() if "visible:" in line]
    return [line.partition("visible:")[2].replace(" ", "").split(",") for line in lines]


def test_each_rank_sees_the_gpus_of_its_node(gpus: list[str], script: Script) -> None:
    count = len(gpus)
    found = visible(script(PRINT, "-p", str(count), "--gpus", str(count), "-d", "pytorch"))
    assert found == [[str(n) for n in range(count)]] * count


def test_nodes_on_one_machine_share_no_gpu(two: int, script: Script) -> None:
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
    wait = f"while [ ! -e {str(go)!r} ]; do sleep 0.05; done"
    every = ("run", "--detach", "--json", "--gpus", str(len(gpus)), "--")
    first = json.loads(allranks(*every, "bash", "-c", wait.replace("'", '"')).stdout)["name"]
    until(lambda: status(allranks, first) == "Running")
    second = json.loads(allranks(*every, "true").stdout)["name"]
    assert answer(allranks, "job", "show", second)["status"] in ("Queued", "NotStarted")
    go.touch()
    assert allranks("job", "wait", second).returncode == 0
    ended, started = (answer(allranks, "job", "show", name) for name in (first, second))
    assert ended["ended_at"] <= started["started_at"]


def status(allranks: Allranks, name: str) -> str:
    return str(answer(allranks, "job", "show", name)["status"])
