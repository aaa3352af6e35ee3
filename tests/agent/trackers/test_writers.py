"""Whose a tracker's file is, with real processes that have it open."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from allranks.agent.trackers.writers import Writers
from allranks.core.plan import Task

HOST = socket.gethostname()
OPEN = "import sys; file = open(sys.argv[1], 'w'); print(flush=True); sys.stdin.read()"
# What opens it is a child, as W&B's service is.
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {OPEN!r}, *sys.argv[1:]])"


@contextmanager
def writing(path: Path, program: str = OPEN) -> Iterator[int]:
    """A process that has the file open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-c", program, path]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        yield process.pid
        process.stdin.close()


def task(tmp_path: Path, **more: object) -> Task:
    return Task("j", "e", "c", record=str(tmp_path / "record"))._replace(**more)  # type: ignore[arg-type]


@pytest.mark.medium
@pytest.mark.parametrize("program", [OPEN, CHILD])
def test_two_ranks_in_one_folder(tmp_path: Path, program: str) -> None:
    """Nobody has looked at their processes before."""
    writers = Writers(task(tmp_path, procs=2), 0, tmp_path / "work")
    paths = [tmp_path / "work/wandb" / f"run-{rank}.wandb" for rank in range(2)]
    with ExitStack() as stack:
        pids = [stack.enter_context(writing(path, program)) for path in paths]
        writers.look(dict(enumerate(pids)))
        assert [writers.of(path, False) for path in paths] == [0, 1]


@pytest.mark.parametrize("name", ["run-1.wandb", f"events.out.tfevents.17.{HOST}.PID.0"])
def test_two_nodes_that_share_a_folder(tmp_path: Path, name: str) -> None:
    """The file of one is not the other's, also once it is closed."""
    shared = task(tmp_path, nodes=2)
    nodes = [Writers(shared, node, tmp_path / f"work{node}") for node in range(2)]
    path = tmp_path / "record/artifacts/outputs" / name
    with writing(path) as pid:
        path = path.with_name(name.replace("PID", str(pid)))
        nodes[0].look({})
        nodes[1].look({1: pid})
        assert [node.of(path, False) for node in nodes] == [None, 1]
    if "PID" in name:
        assert [node.of(path, True) for node in nodes] == [None, 1]


def test_what_nobody_has_open_is_the_first_nodes(tmp_path: Path) -> None:
    shared = task(tmp_path, nodes=2)
    nodes = [Writers(shared, node, tmp_path / f"work{node}") for node in range(2)]
    path = tmp_path / "record/artifacts/outputs/run-1.wandb"
    assert [node.of(path, False) for node in nodes] == [None, None]
    assert [node.of(path, True) for node in nodes] == [0, None]


def test_another_programs_run_in_a_folder_that_a_job_runs_in(tmp_path: Path) -> None:
    writers = Writers(task(tmp_path, in_place=True), 0, tmp_path)
    path = tmp_path / "wandb/run-1.wandb"
    with writing(path):
        writers.look({})
        assert [writers.of(path, is_last) for is_last in (False, True)] == [None, None]
    assert writers.of(path, True) == 0


def test_the_other_host_of_the_name(tmp_path: Path) -> None:
    writers = Writers(task(tmp_path, nodes=2), 0, tmp_path / "work")
    path = tmp_path / "record/artifacts/logs/events.out.tfevents.17.elsewhere.7.0"
    writers.see({0: [7]})
    assert writers.of(path, True) is None
