"""Linear regression by Horovod's DistributedOptimizer; the ranks' weights agree."""

import argparse
import json
import os

import horovod.torch as hvd
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--lr", type=float, default=0.1)
options = parser.parse_args()

hvd.init()
torch.manual_seed(0)
features = torch.randn(240, 8)
target = features @ torch.arange(1.0, 9.0).unsqueeze(1)
mine = slice(hvd.rank(), None, hvd.size())

torch.manual_seed(hvd.rank())  # different until they are broadcast
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)

for step in range(options.steps):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(features[mine]), target[mine])
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step == options.steps - 1:
        mean = hvd.allreduce(loss.detach(), name="loss").item()
        if hvd.rank() == 0:
            print(f"step {step}  loss {mean:.4f}", flush=True)

weights = model.weight.detach()
all_weights = hvd.allgather(weights, name="weights")
assert torch.allclose(all_weights, weights.expand_as(all_weights)), "ranks differ"
print(
    f"rank {hvd.rank()} of {hvd.size()}, local {hvd.local_rank()} of {hvd.local_size()}: "
    "weights agree"
)
if hvd.rank() == 0:
    os.makedirs("outputs", exist_ok=True)
    with open("outputs/result.json", "w") as file:
        json.dump({"loss": mean, "ranks": hvd.size(), "weights": weights[0].tolist()}, file)
hvd.shutdown()
