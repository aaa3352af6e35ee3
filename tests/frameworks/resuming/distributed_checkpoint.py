import os

import pace
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

dist.init_process_group("gloo")
state = {"weight": torch.zeros(4), "step": torch.tensor(0)}
newest = max((int(name) for name in os.listdir("dcp")), default=0) if os.path.isdir("dcp") else 0
if newest:
    dcp.load(state, checkpoint_id=f"dcp/{newest}")
begun = int(state["step"])
assert begun == newest
for step in range(begun + 1, 6):
    state = {"weight": torch.ones(4) * step, "step": torch.tensor(step)}
    dcp.save(state, checkpoint_id=f"dcp/{step}")
    pace.step(step, begun)
dist.destroy_process_group()
