"""A script as `torchrun` starts it: DDP by the variables that it sets for each of its ranks."""

import json
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the process group: examples/digits/train.py says why
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x = torch.randn(240, 8)
y = x @ torch.arange(1.0, 9.0).unsqueeze(1)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(40):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x[rank::world]), y[rank::world])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

gradient = model.module.weight.grad
gathered = [torch.empty_like(gradient) for _ in range(world)]
dist.all_gather(gathered, gradient)
assert all(torch.equal(each, gradient) for each in gathered), "gradients differ"
print(
    f"rank {rank} of {world}, local {os.environ['LOCAL_RANK']}: {losses[0]:.3f} -> {losses[-1]:.3f}"
)
if rank == 0:
    os.makedirs("outputs", exist_ok=True)
    result = {"ranks": world, "first": losses[0], "last": losses[-1]}
    result["weights"] = model.module.weight.flatten().tolist()
    with open("outputs/result.json", "w") as file:
        json.dump(result, file)
del model, loss
dist.destroy_process_group()
