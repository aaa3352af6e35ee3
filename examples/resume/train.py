"""Train a small network with DDP; go on from the last checkpoint in ALLRANKS_STATE_DIR.

On GPUs it uses NCCL, and each rank the GPU of its LOCAL_RANK; without GPUs, gloo.

Rank 0 writes one after every epoch, first the checkpoint, then `latest`, which names it; each by a
rename, so that nobody ever sees half of one. KILL_AT=N has rank 1 kill itself in epoch N, once.
"""

import argparse
import hashlib
import json
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the process group: examples/digits/train.py says why
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STATE = Path(os.environ.get("ALLRANKS_STATE_DIR", "state"))
RANK, WORLD_SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
# A GPU for each rank of the node, or none for any.
GPU = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if GPU else torch.device("cpu")


def write_beside(path: Path, write) -> None:
    beside = path.with_name(path.name + ".new")
    write(beside)
    os.replace(beside, path)


def save(epoch: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    name = f"epoch-{epoch}.pt"
    held = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    # Every rank draws the same numbers: those of one stand for all.
    held["random"] = torch.get_rng_state()
    if GPU:
        held["random_gpu"] = torch.cuda.get_rng_state(DEVICE)
    write_beside(STATE / name, lambda path: torch.save(held, path))
    write_beside(STATE / "latest", lambda path: path.write_text(name))
    for old in sorted(STATE.glob("epoch-*.pt"), key=lambda path: path.stat().st_mtime)[:-2]:
        old.unlink()


def load(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The epochs that are done."""
    STATE.mkdir(exist_ok=True)
    if not (STATE / "latest").exists():
        return 0
    file = STATE / (STATE / "latest").read_text()
    held = torch.load(file, weights_only=True, map_location="cpu")
    model.load_state_dict(held["model"])
    optimizer.load_state_dict(held["optimizer"])
    torch.set_rng_state(held["random"])
    if GPU:
        torch.cuda.set_rng_state(held["random_gpu"], DEVICE)
    return held["epoch"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("outputs"))
    args = parser.parse_args()

    torch.set_num_threads(1)
    if GPU:
        torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl" if GPU else "gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    net.to(DEVICE)
    wanted = torch.randn(20, 1)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    done = load(net, optimizer)
    print(f"rank {RANK} begins after epoch {done}", flush=True)
    loss = torch.tensor(0.0)
    for epoch in range(done + 1, args.epochs + 1):
        for step in range(50):
            inputs = torch.randn(32 * WORLD_SIZE, 20)[RANK::WORLD_SIZE]
            labels = (inputs @ wanted).to(DEVICE)
            loss = nn.functional.mse_loss(model(inputs.to(DEVICE)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            killed = epoch == int(os.environ.get("KILL_AT", 0)) and step == 25 and RANK == 1
            if killed and os.environ.get("ALLRANKS_ATTEMPT", "1") == "1":
                os.kill(os.getpid(), signal.SIGKILL)
        if RANK == 0:
            print(f"epoch {epoch} loss {loss.item():.5f}", flush=True)
            save(epoch, net, optimizer)
    if RANK == 0:
        args.out.mkdir(exist_ok=True)
        weights = b"".join(each.cpu().numpy().tobytes() for each in net.state_dict().values())
        told = {
            "sha256": hashlib.sha256(weights).hexdigest(),
            "began_after": done,
            "loss": loss.item(),
        }
        (args.out / "result.json").write_text(json.dumps(told))
        torch.save(net.state_dict(), args.out / "model.pt")
    del model, loss
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
