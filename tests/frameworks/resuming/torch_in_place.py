import os

import pace
import torch

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.AdamW(model.parameters())
begun = 0
if os.path.exists("checkpoint.pt"):
    saved = torch.load("checkpoint.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    begun = saved["step"]
for step in range(begun + 1, 6):
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(saved, "checkpoint.pt")
    pace.step(step, begun)
