"""FSDP2 with a distributed checkpoint: trains, saves, loads into a fresh model and goes on.

Every rank holds a shard. What they learn together is what one process learns from all the data.
On GPUs it uses NCCL, and each rank the GPU of its LOCAL_RANK; without GPUs, gloo.
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

FEATURES, ROWS = 16, 240
# A GPU for each rank of the node, or none for any.
GPU = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if GPU else torch.device("cpu")


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, FEATURES, generator=generator)
    y = torch.tanh(x @ torch.randn(FEATURES, 1, generator=generator))
    return x.to(DEVICE), y.to(DEVICE)


def build(mesh) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    ).to(DEVICE)
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(model, optimizer, steps: int) -> float:
    x, y = data()
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x[mine]), y[mine])
        loss.backward()
        optimizer.step()
    mean = loss.detach()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def state(model, optimizer) -> dict:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--checkpoint", default="outputs/checkpoint")
    options = parser.parse_args()

    if GPU:
        torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl" if GPU else "gloo")
    mesh = init_device_mesh(DEVICE.type, (dist.get_world_size(),))
    model, optimizer = build(mesh)
    first = train(model, optimizer, options.steps // 2)
    dcp.save(state(model, optimizer), checkpoint_id=options.checkpoint)

    # As a job that starts again would: nothing but the checkpoint goes over.
    model, optimizer = build(mesh)
    loaded = state(model, optimizer)
    dcp.load(loaded, checkpoint_id=options.checkpoint)
    set_state_dict(
        model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"]
    )
    last = train(model, optimizer, options.steps - options.steps // 2)

    weights = {
        name: value.full_tensor().flatten().tolist() for name, value in model.state_dict().items()
    }
    shard = next(model.parameters()).to_local().numel()
    print(
        f"rank {dist.get_rank()}: loss {first:.4f} -> {last:.4f}, "
        f"{shard} numbers of the first layer here"
    )
    if dist.get_rank() == 0:
        result = {"ranks": dist.get_world_size(), "first": first, "last": last, "weights": weights}
        result["backend"] = dist.get_backend()
        os.makedirs("outputs", exist_ok=True)
        with open("outputs/result.json", "w") as file:
            json.dump(result, file)
    dist.destroy_process_group()


main()
