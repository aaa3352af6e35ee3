"""Built-in metric patterns, tested on the output of real frameworks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.frameworks.environments import environment
from tests.support import Allranks, answer

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(1800)]

DATA = """\
import torch
x = torch.randn(64, 8)
y = (x.sum(1) > 0).long()
"""
TRANSFORMERS = (
    DATA
    + """\
from transformers import Trainer, TrainingArguments
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
    def forward(self, x, labels):
        out = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(out, labels), "logits": out}
data = [{"x": a, "labels": b} for a, b in zip(x, y)]
how = TrainingArguments(
    "out", per_device_train_batch_size=8, num_train_epochs=2, logging_steps=4, use_cpu=True,
    eval_strategy="epoch", save_strategy="no", report_to=[])
Trainer(Model(), how, train_dataset=data, eval_dataset=data).train()
"""
)
LIGHTNING = (
    DATA
    + """\
import sys
import lightning
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
    def told(self, name, batch):
        loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
        self.log(name, loss, prog_bar=True)
        return loss
    def training_step(self, batch, index):
        return self.told("train_loss", batch)
    def validation_step(self, batch, index):
        return self.told("val_loss", batch)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 8)
bar = {"tqdm": TQDMProgressBar, "rich": RichProgressBar}[sys.argv[1]]()
lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[bar]
).fit(Model(), batches, batches)
"""
)
KERAS = """\
import keras, numpy
model = keras.Sequential([keras.layers.Dense(1, activation="sigmoid")])
model.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
x = numpy.random.randn(640, 8)
model.fit(x, (x.sum(1) > 0).astype(float), epochs=3, validation_split=0.2, batch_size=16)
"""


def metrics(allranks: Allranks, code: Path, env: str, name: str, text: str, *words: str):
    (code / "train.py").write_text(text)
    done = allranks(
        *("run", "--json", "-m", name, "--", "python", "train.py", *words),
        env={"VIRTUAL_ENV": str(environment(env))},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)["name"]
    return answer(allranks, "job", "metrics", job)


def steps(points) -> list[int]:
    return [point["step"] for point in points]


def test_the_transformers_trainer(shared, code):
    found = metrics(shared, code, "torch", "transformers", TRANSFORMERS)
    assert len(found["loss"]) == len(found["learning_rate"]) == 4
    assert len(found["eval_loss"]) == 2
    assert 0 < found["loss"][-1]["value"] < 5


def test_lightning_with_a_tqdm_bar(shared, code):
    found = metrics(shared, code, "torch", "lightning", LIGHTNING, "tqdm")
    assert steps(found["train_loss"]) == list(range(1, 17))
    assert steps(found["val_loss"])[-1] == 16
    assert len({point["value"] for point in found["train_loss"]}) > 10


def test_lightning_with_a_rich_bar_shows_only_the_end(shared, code):
    found = metrics(shared, code, "torch", "lightning", LIGHTNING, "rich")
    assert steps(found["train_loss"]) == [16]
    assert len(found["val_loss"]) == 1


def test_keras_logs_each_epoch_once(shared, code):
    found = metrics(shared, code, "tensorflow", "keras", KERAS)
    assert {name: steps(points) for name, points in found.items()} == {
        name: [1, 2, 3] for name in ("accuracy", "loss", "val_accuracy", "val_loss")
    }
