"""What scripts log with the real trackers is in the job's record, without a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.frameworks.environments import environment as made
from tests.support import Allranks

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(1800)]

BY_HAND = {
    "wandb": """
import wandb
with wandb.init(project="p", config={"lr": 0.1}) as run:
    for i in range(3): run.log({"loss": i})
""",
    "tensorboard": """
from torch.utils.tensorboard import SummaryWriter
with SummaryWriter() as writer:
    for i in range(3): writer.add_scalar("loss", i, i)
    writer.add_text("args", '{"lr": 0.1}')
""",
    "trackio": """
import trackio
trackio.init(project="p", config={"lr": 0.1})
for i in range(3): trackio.log({"loss": i})
trackio.finish()
""",
    "mlflow": """
import mlflow
mlflow.log_param("lr", 0.1)
for i in range(3): mlflow.log_metric("loss", i, step=i)
""",
}
TRAINER = """
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 16
model = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_positions=8, n_embd=8, n_layer=1, n_head=1))
args = TrainingArguments("out", report_to=sys.argv[1], logging_steps=1, max_steps=3,
    use_cpu=True, save_strategy="no", disable_tqdm=True, learning_rate=0.25)
Trainer(model, args, train_dataset=rows).train()
"""


def record(
    allranks: Allranks, code: Path, program: str, *words: str
) -> tuple[list[float], str, list[int]]:
    """The points of the loss, the learning rate, and the steps."""
    (code / "train.py").write_text(program)
    python = made("trackers") / "bin/python"
    done = allranks("run", "-q", "--detach", "--", python, "train.py", *words)
    name = done.stdout.strip()
    allranks("job", "wait", name)
    series = json.loads(allranks("job", "metrics", name, "--json").stdout)
    parameters = json.loads(allranks("job", "show", name, "--json").stdout)["parameters"]
    loss = series.get("loss") or series["train/loss"]
    rate = parameters.get("lr") or parameters["learning_rate"]
    return [point["value"] for point in loss], rate, [point["step"] for point in loss]


@pytest.mark.parametrize("tracker", BY_HAND)
def test_by_hand(tracker: str, shared: Allranks, code: Path) -> None:
    assert record(shared, code, BY_HAND[tracker]) == ([0.0, 1.0, 2.0], "0.1", [0, 1, 2])


@pytest.mark.parametrize("tracker", BY_HAND)
def test_through_the_trainer(tracker: str, shared: Allranks, code: Path) -> None:
    losses, rate, steps = record(shared, code, TRAINER, tracker)
    assert (len(losses), rate, steps) == (3, "0.25", [1, 2, 3])


def test_no_package_of_ours_stands_in(shared: Allranks, code: Path) -> None:
    (code / "train.py").write_text("import wandb\n")
    failed = shared("run", "--", "python", "train.py")
    assert "No module named 'wandb'" in failed.stdout + failed.stderr
