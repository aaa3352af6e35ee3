"""What a task has left, in the folders of simple-sagemaker: logs, state, model and output."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from allranks.compat.ssm.task import KIND, SHARED_STATE, Task
from allranks.errors import NotFound
from allranks.sdk import Client, Job

_RECORDED = {"model": "model", "output": "data"}


def download(
    task: Task, job: Job, target: Path, kinds: Sequence[str], is_local_mode: bool = False
) -> None:
    """Write the logs below ``target``, and those ``kinds`` of `state`, `model` and `output`. Local
    mode has all of /opt/ml/output in the archive of a training task."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Client().jobs.download(job.name, name, all=False) / "artifacts"
        logs = sorted((folder / "user_logs").glob("std_log*"))
        (target / "logs").mkdir(exist_ok=True)
        for number in range(int(job.to_dict()["nodes"])):
            own = target / "logs" / f"logs{number}"
            own.write_bytes(logs[number].read_bytes() if number < len(logs) else b"")
        for kind in kinds:
            if kind == "state":
                _state(task, target / "state", Path(name))
            else:
                is_process = job.to_dict()["tags"].get(KIND) == "process"
                has_all = kind == "output" and is_local_mode and not is_process
                own = target / kind / ("data" if has_all else "")
                source = folder / _RECORDED[kind]
                own.mkdir(exist_ok=True, parents=True)
                if source.is_dir():
                    shutil.copytree(source, own, dirs_exist_ok=True, symlinks=True)


def _state(task: Task, target: Path, scratch: Path) -> None:
    target.mkdir(exist_ok=True)
    with contextlib.suppress(NotFound):
        Client().states.download(task.state, download_path=scratch / "states")
    source = scratch / "states" / task.state / SHARED_STATE
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True)
