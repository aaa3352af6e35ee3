"""The real TensorBoard on a running job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.environments import environment as made
from tests.support import CLI, Allranks, environment, until

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(600)]

JOB = """
import os, sys, time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

def log(folder, tag):
    writer = EventFileWriter(folder)
    for step in range(3):
        value = Summary.Value(tag=tag, simple_value=1 / (step + 1))
        writer.add_event(Event(step=step, wall_time=step + 1.0, summary=Summary(value=[value])))
    writer.close()

log("logs/run1", "loss")
log(os.environ["SSM_TENSORBOARD_DIR"], "accuracy")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
log("outputs/tb", "late")
"""


def tags(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}data/plugin/scalars/tags", timeout=20) as answer:
        found: dict[str, Any] = json.load(answer)
    return {run: [*series] for run, series in found.items()}


def test_tensorboard(shared: Allranks, shared_home: Path, code: Path) -> None:
    folder = made("tensorboard")
    env = {"VIRTUAL_ENV": str(folder)}
    (code / "train.py").write_text(JOB)
    words = ("run", "--detach", "-q", "--", "python", "train.py", code / "go on")
    name = shared(*words, env=env).stdout.strip()
    process = subprocess.Popen(
        [sys.executable, "-c", CLI, "job", "tensorboard", name],
        env=environment(shared_home) | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    first = {"logs/run1": ["loss"], "tensorboard": ["accuracy"]}
    until(lambda: tags(url) == first)
    (code / "go on").touch()
    until(lambda: tags(url) == {**first, "outputs/tb": ["late"]})
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert shared("job", "wait", name).returncode == 0
