"""Train a small CNN with DDP in mixed precision: float16 on GPUs, bfloat16 on CPUs.

One rank takes one GPU, that of its LOCAL_RANK. Alone, under torchrun, or under any launcher that
sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the process group: examples/digits/train.py says why
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

RANK, WORLD_SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))
CLASSES = 10


def images(count: int, side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Noise with a brighter stripe, whose place is the label; made where it is used."""
    generator = torch.Generator().manual_seed(RANK)
    pixels = torch.rand(count, 3, side, side, generator=generator)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    wide = side // CLASSES
    for image, label in zip(pixels, labels, strict=True):
        image[:, label * wide : (label + 1) * wide] += 0.5
    return pixels.to(device), labels.to(device)


def small_cnn(width: int) -> nn.Module:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
        return [conv, nn.GroupNorm(4, outputs), nn.ReLU()]

    return nn.Sequential(
        *block(3, width),
        *block(width, 2 * width),
        *block(2 * width, 4 * width),
        nn.AdaptiveAvgPool2d((CLASSES, 1)),
        nn.Flatten(),
        nn.Linear(4 * width * CLASSES, CLASSES),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--images", type=int, default=640, help="of each rank")
    parser.add_argument("--side", type=int, default=40, help="pixels")
    parser.add_argument("--width", type=int, default=8, help="channels of the first layer")
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    parser.add_argument("--out", type=Path, default=Path("outputs"))
    args = parser.parse_args()

    # A GPU for each rank of the node, or none for any.
    gpu = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    device = torch.device("cuda", LOCAL_RANK) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)  # ranks on one machine would fight over the cores
    # bfloat16 has the range of float32: no loss becomes zero, and nothing has to be scaled.
    dtype = torch.float16 if gpu else torch.bfloat16
    scaler = torch.amp.GradScaler(device.type, enabled=gpu)

    dist.init_process_group("nccl" if gpu else "gloo")
    torch.manual_seed(0)
    net = small_cnn(args.width).to(device)
    model = DistributedDataParallel(net, device_ids=[LOCAL_RANK] if gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    pixels, labels = images(args.images, args.side, device)

    losses = []
    for epoch in range(1, args.epochs + 1):
        began, total = time.perf_counter(), torch.zeros((), device=device)
        for batch in torch.arange(args.images, device=device).split(args.batch_size):
            with torch.autocast(device.type, dtype=dtype):
                loss = cross_entropy(model(pixels[batch]), labels[batch])
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.detach() * len(batch)
        mean = total / args.images
        mean = mean.item()  # waits for the GPU: the time below is that of the work
        speed = args.images / (time.perf_counter() - began)
        losses.append(mean)
        print(
            f"epoch {epoch}/{args.epochs}  rank {RANK}  loss {mean:.4f}  {speed:.0f} images/s",
            flush=True,
        )
    if RANK == 0:
        args.out.mkdir(parents=True, exist_ok=True)
        told = {
            "ranks": WORLD_SIZE,
            "device": torch.cuda.get_device_name(device) if gpu else "cpu",
            "dtype": str(dtype).removeprefix("torch."),
            "first": losses[0],
            "last": losses[-1],
        }
        (args.out / "result.json").write_text(json.dumps(told))
        torch.save(net.state_dict(), args.out / "model.pt")
    del model, loss
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
