"""Train a small CNN on an image folder with PyTorch DDP (gloo, CPU).

Alone, under torchrun, or under any launcher that sets RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT:

    python train.py --data DIR
    torchrun --nproc-per-node 3 train.py --data DIR

Rank 0 writes OUT/model.pt (the weights) and OUT/metrics.json.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, by DDP, it would keep the process group for ever
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

RANK = int(os.environ.get("RANK", 0))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))


class ImageFolder(Dataset[tuple[Tensor, int]]):
    """ROOT/<label>/<image>.png as (1 x 32 x 32 floats in 0..1, label)."""

    def __init__(self, root: Path) -> None:
        self.files = sorted(root.glob("*/*.png"))
        if not self.files:
            raise SystemExit(f"no images in {root}/<label>/*.png")

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        with Image.open(self.files[i]) as image:
            pixels = np.array(image.convert("L"), dtype=np.float32) / 255
        return torch.from_numpy(pixels).unsqueeze(0), int(self.files[i].parent.name)


def small_cnn() -> nn.Module:
    def block(inputs: int, outputs: int) -> Iterator[nn.Module]:
        yield nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
        # Not BatchNorm: its running statistics would differ from rank to rank.
        yield nn.GroupNorm(4, outputs)
        yield nn.ReLU()

    return nn.Sequential(
        *block(1, 16), *block(16, 32), *block(32, 64), nn.Flatten(), nn.Linear(64 * 4 * 4, 10)
    )


def train_epoch(
    model: nn.Module, loader: DataLoader[tuple[Tensor, int]], optimizer: torch.optim.Optimizer
) -> tuple[float, float]:
    """One pass over this rank's share; the mean loss and images per second."""
    model.train()
    total, seen, started = 0.0, 0, time.perf_counter()
    for images, labels in loader:
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
        seen += len(labels)
    return total / seen, seen / (time.perf_counter() - started)


@torch.no_grad()
def validate(model: nn.Module, loader: DataLoader[tuple[Tensor, int]]) -> tuple[int, int]:
    """(right, all) over every rank's share; every rank gets the same answer."""
    model.eval()
    counts = torch.zeros(2, dtype=torch.int64)
    for images, labels in loader:
        counts += torch.tensor([(model(images).argmax(1) == labels).sum(), len(labels)])
    if WORLD_SIZE > 1:
        dist.all_reduce(counts)
    right, seen = counts.tolist()
    return right, seen


def write_beside(path: Path, write: Callable[[Path], object]) -> None:
    """No reader ever sees half a file, and a crash leaves the old one."""
    beside = path.with_name(path.name + ".new")
    write(beside)
    os.replace(beside, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and val/")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--out", type=Path, default=Path("./outputs"))
    args = parser.parse_args()

    if WORLD_SIZE > 1:
        torch.set_num_threads(1)  # ranks on one machine would fight over the cores
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = small_cnn()
    model = DistributedDataParallel(net) if WORLD_SIZE > 1 else net
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    train, val = ImageFolder(args.data / "train"), ImageFolder(args.data / "val")
    sampler = DistributedSampler(train, WORLD_SIZE, RANK, drop_last=True)
    train_loader = DataLoader(train, args.batch_size, sampler=sampler)
    # Not a DistributedSampler: it repeats or drops images to even out the shares, a wrong count.
    val_loader = DataLoader(Subset(val, range(RANK, len(val), WORLD_SIZE)), args.batch_size)

    history = []
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        loss, speed = train_epoch(model, train_loader, optimizer)
        head = f"epoch {epoch}/{args.epochs}"
        print(f"{head}  rank {RANK}  loss {loss:.4f}  {speed:.0f} images/s", flush=True)
        # The bare net: each rank evaluates its share alone, and shares may differ by a batch.
        right, seen = validate(net, val_loader)
        history.append({"epoch": epoch, "loss": loss, "accuracy": right / seen})
        if RANK == 0:
            print(f"{head}  validation accuracy {right / seen:.4f} ({right}/{seen})", flush=True)

    if RANK == 0:
        args.out.mkdir(parents=True, exist_ok=True)
        metrics = {**history[-1], "validated": seen, "ranks": WORLD_SIZE, "history": history}
        write_beside(args.out / "model.pt", lambda path: torch.save(net.state_dict(), path))
        write_beside(
            args.out / "metrics.json", lambda path: path.write_text(json.dumps(metrics, indent=2))
        )
    if WORLD_SIZE > 1:
        # Ends gloo's threads, as nothing else uses the group. One that still had to free a tensor
        # when Python exits would abort it: "terminate called without an active exception".
        del model
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
