import os

import pace
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels=None):
        loss = self.layer(x).sum()
        return {"loss": loss, "logits": loss}


class Steps(TrainerCallback):
    begun = None

    def on_save(self, args, state, control, **_):
        begun = int(last.rpartition("-")[2]) if last else 0
        pace.step(state.global_step, begun)


arguments = TrainingArguments(
    "out",
    max_steps=5,
    save_steps=1,
    save_total_limit=2,
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
    per_device_train_batch_size=1,
)
rows = [{"x": torch.ones(2), "labels": torch.ones(1)}] * 8
last = get_last_checkpoint("out") if os.path.isdir("out") else None
Trainer(Model(), arguments, train_dataset=rows, callbacks=[Steps()]).train(
    resume_from_checkpoint=last
)
