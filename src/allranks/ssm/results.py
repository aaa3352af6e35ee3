"""What a task has left, in the folders of simple-sagemaker: logs, state, model and output."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from allranks.errors import NotFound
from allranks.sdk import Client, Job
from allranks.ssm.task import SHARED_STATE, Task

_RECORDED = {"model": "model", "output": "data"}


def download(
    task: Task, job: Job, goal: Path, wanted: Sequence[str], is_local_mode: bool = False
) -> None:
    """Write the logs below ``goal``, and those ``wanted`` of `state`, `model` and `output`. In
    local mode the output is in ``goal`` itself."""
    goal.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Client().jobs.download(job.name, name, all=False) / "artifacts"
        logs = sorted((folder / "user_logs").glob("std_log*"))
        (goal / "logs").mkdir(exist_ok=True)
        for number in range(int(job.to_dict()["nodes"])):
            own = goal / "logs" / f"logs{number}"
            own.write_bytes(logs[number].read_bytes() if number < len(logs) else b"")
        for kind in wanted:
            if kind == "state":
                _state(task, goal / "state", Path(name))
            else:
                own = goal if kind == "output" and is_local_mode else goal / kind
                source = folder / _RECORDED[kind]
                own.mkdir(exist_ok=True)
                if source.is_dir():
                    shutil.copytree(source, own, dirs_exist_ok=True, symlinks=True)


def _state(task: Task, goal: Path, scratch: Path) -> None:
    goal.mkdir(exist_ok=True)
    with contextlib.suppress(NotFound):
        Client().states.download(task.state, download_path=scratch / "states")
    found = scratch / "states" / task.state / SHARED_STATE
    if found.is_dir():
        shutil.copytree(found, goal, dirs_exist_ok=True, symlinks=True)
