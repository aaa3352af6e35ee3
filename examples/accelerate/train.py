"""Hugging Face accelerate: the same lines on one process and on many."""

import json
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
set_seed(3)
x = torch.randn(240, 8)
y = x @ torch.arange(1.0, 9.0).unsqueeze(1)
model = torch.nn.Linear(8, 1)
model, optimizer, loader = accelerator.prepare(
    model,
    torch.optim.SGD(model.parameters(), lr=0.1),
    DataLoader(TensorDataset(x, y), batch_size=20),
)

losses = []
for _ in range(5):
    for features, target in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(features), target)
        accelerator.backward(loss)
        optimizer.step()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())

weights = accelerator.unwrap_model(model).weight.detach()
together = accelerator.gather(weights)
assert torch.allclose(together, weights.expand_as(together)), "ranks differ"
print(
    f"rank {accelerator.process_index} of {accelerator.num_processes}: "
    f"loss {losses[0]:.3f} -> {losses[-1]:.3f}"
)
if accelerator.is_main_process:
    os.makedirs("outputs", exist_ok=True)
    with open("outputs/result.json", "w") as file:
        json.dump(
            {"ranks": accelerator.num_processes, "first": losses[0], "last": losses[-1]}, file
        )
accelerator.end_training()
