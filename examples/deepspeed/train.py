"""DeepSpeed's ZeRO-1 on the CPU, by the variables of the ranks alone: no deepspeed launcher."""

import argparse
import json
import os

import deepspeed
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--micro-batch", type=int, default=60)
parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", "0")))
parser = deepspeed.add_config_arguments(parser)
options = parser.parse_args()

deepspeed.init_distributed("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x = torch.randn(240, 8)
y = x @ torch.arange(1.0, 9.0).unsqueeze(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 1))
config = options.deepspeed_config or {
    "train_micro_batch_size_per_gpu": options.micro_batch,
    "zero_optimization": {"stage": 1},
    "optimizer": {"type": "Adam", "params": {"lr": 0.05, "torch_adam": True}},
    "zero_force_ds_cpu_optimizer": False,
}
engine, _, _, _ = deepspeed.initialize(
    args=None, model=model, model_parameters=model.parameters(), config=config
)
losses, batch = [], engine.train_micro_batch_size_per_gpu()
for step in range(options.steps):
    begin = (step * world + rank) * batch % len(x)
    rows = [(begin + i) % len(x) for i in range(batch)]
    loss = torch.nn.functional.mse_loss(engine(x[rows]), y[rows])
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())

weights = torch.cat([p.detach().flatten() for p in engine.module.parameters()])
gathered = [torch.empty_like(weights) for _ in range(world)]
dist.all_gather(gathered, weights)
assert all(torch.allclose(each, weights) for each in gathered), "ranks differ"
engine.save_checkpoint("outputs/checkpoint")
print(
    f"rank {rank} of {world}, stage {engine.zero_optimization_stage()}: "
    f"loss {losses[0]:.3f} -> {losses[-1]:.3f}"
)
if rank == 0:
    result = {"ranks": world, "stage": engine.zero_optimization_stage()}
    result |= {"first": losses[0], "last": losses[-1]}
    with open("outputs/result.json", "w") as file:
        json.dump(result, file)
dist.destroy_process_group()
