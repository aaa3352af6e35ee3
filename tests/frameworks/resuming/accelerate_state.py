import os

import pace
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

settings = ProjectConfiguration(".", automatic_checkpoint_naming=True, total_limit=2)
accelerator = Accelerator(cpu=True, project_config=settings)
model = torch.nn.Linear(2, 1)
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
begun = 0
if os.path.isdir("checkpoints") and os.listdir("checkpoints"):
    newest = max(os.listdir("checkpoints"), key=lambda name: int(name.rpartition("_")[2]))
    accelerator.load_state(os.path.join("checkpoints", newest))
    begun = int(newest.rpartition("_")[2]) + 1
    settings.iteration = begun
for step in range(begun + 1, 6):
    accelerator.backward(model(torch.ones(2)).sum())
    optimizer.step()
    accelerator.save_state()
    pace.step(step, begun)
