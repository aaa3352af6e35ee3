"""Ways to fail with PyTorch and NumPy: ``python torch_ways.py WAY``; several ranks where it says so."""

import datetime
import os
import sys
import time
import zipfile
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

RANK = int(os.environ.get("RANK", 0))


def begin(seconds=60):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))


def everyone_adds():
    total = torch.ones(1)
    dist.all_reduce(total)
    return total


class Rows(Dataset):
    def __init__(self, row):
        self.row = row

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return self.row(index)


def load(row, workers=1, **more):
    for _ in DataLoader(Rows(row), batch_size=8, num_workers=workers, **more):
        pass


# ---------------------------------------------------------------- one rank


def numpy_huge():
    numpy.ones((1 << 20, 1 << 23))


def torch_huge():
    torch.empty(1 << 46)


def _hungry(index):
    held = []
    while True:
        held.append(torch.ones(4 << 20))


def loader_eats_memory():
    load(_hungry)


def _large(index):
    return torch.ones(1 << 20)


def loader_fills_shared_memory():
    load(_large, workers=2)


def _raises(index):
    return {"a": 1}["b"]


def loader_raises():
    load(_raises)


def _missing(index):
    return Path(f"images/{index}.jpg").read_bytes()


def loader_misses_file():
    load(_missing)


def _shot(index):
    os.kill(os.getpid(), 9)


def loader_is_shot():
    load(_shot)


def _segfaults(index):
    import ctypes

    ctypes.string_at(0)


def loader_segfaults():
    load(_segfaults)


def _uneven(index):
    return torch.ones(index + 1)


def loader_uneven():
    load(_uneven)


def save_to_full():
    torch.save({"w": torch.ones(8 << 20)}, "full/model.pt")


def save_array_to_full():
    numpy.save("full/rows.npy", numpy.ones(8 << 20))


def load_missing():
    torch.load("checkpoints/last.pt")


def load_array_missing():
    numpy.load("features.npy")


def _model():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def state_of_another():
    _model().load_state_dict(nn.Linear(4, 2).state_dict())


def state_of_ddp():
    torch.save({f"module.{k}": v for k, v in _model().state_dict().items()}, "m.pt")
    _model().load_state_dict(torch.load("m.pt"))


def state_of_other_size():
    wide = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    _model().load_state_dict(wide.state_dict())


def state_of_other_optimizer():
    one = torch.optim.Adam(nn.Linear(4, 2).parameters())
    two = torch.optim.Adam(_model().parameters())
    two.load_state_dict(one.state_dict())


def half_checkpoint():
    torch.save(_model().state_dict(), "m.pt")
    data = Path("m.pt").read_bytes()
    Path("m.pt").write_bytes(data[: len(data) // 2])
    torch.load("m.pt")


def empty_checkpoint():
    Path("m.pt").touch()
    torch.load("m.pt")


def half_old_checkpoint():
    torch.save(_model().state_dict(), "m.pt", _use_new_zipfile_serialization=False)
    data = Path("m.pt").read_bytes()
    Path("m.pt").write_bytes(data[: len(data) - 100])
    torch.load("m.pt")


def text_as_checkpoint():
    Path("m.pt").write_text("<html>404: not found</html>")
    torch.load("m.pt")


def half_archive():
    numpy.savez("a.npz", x=numpy.ones(1000))
    data = Path("a.npz").read_bytes()
    Path("a.npz").write_bytes(data[:500])
    zipfile.ZipFile("a.npz")


def empty_array():
    Path("a.npy").touch()
    numpy.load("a.npy")


class Own:
    pass


def refused_checkpoint():
    torch.save({"args": Own()}, "m.pt")
    torch.load("m.pt")


def to_gpu():
    torch.zeros(3).cuda()


def set_gpu():
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))


def other_backend():
    dist.init_process_group("mpi")


def gpu_backend():
    dist.init_process_group("nccl")
    everyone_adds()


def wrong_shapes():
    _model()(torch.ones(3, 5))


def wrong_labels():
    nn.functional.cross_entropy(torch.ones(4, 3), torch.tensor([0, 1, 2, 7]))


def anomaly():
    with torch.autograd.set_detect_anomaly(True):
        x = torch.zeros(1, requires_grad=True)
        (torch.sqrt(x) * 0).sum().backward()


def loss_check():
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e12)
    for _ in range(50):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        assert torch.isfinite(loss), "diverged"
        loss.backward()
        optimizer.step()


def loss_raise():
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e12)
    for step in range(50):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        if not torch.isfinite(loss):
            raise RuntimeError(f"Loss is nan or infinite at step {step}")
        loss.backward()
        optimizer.step()


def _child(rank, what):
    if what == "raise":
        return {"lr": 1}["momentum"]
    if what == "missing":
        return open("child.bin")
    os.kill(os.getpid(), {"shot": 9, "segfault": 11}[what])
    return None


def spawn(what="raise"):
    torch.multiprocessing.spawn(_child, args=(what,), nprocs=2)


def spawn_missing():
    spawn("missing")


def spawn_shot():
    spawn("shot")


def spawn_segfault():
    spawn("segfault")


# ---------------------------------------------------------------- several ranks


def one_misses_module():
    if RANK == 0:
        import nosuchpackage  # noqa: F401
    begin()
    everyone_adds()


def one_misses_module_later():
    begin()
    everyone_adds()
    if RANK == 0:
        import nosuchpackage  # noqa: F401
    everyone_adds()


def one_raises():
    begin()
    everyone_adds()
    if RANK == 1:
        raise ValueError("rank 1 has no data left")
    everyone_adds()


def one_raises_slowly():
    """Its connections are gone before it is."""
    begin()
    everyone_adds()
    if RANK == 1:
        import atexit

        def slowly():
            dist.destroy_process_group()
            time.sleep(1.5)

        atexit.register(slowly)
        open("shard-1.bin")
    everyone_adds()


def one_is_shot():
    begin()
    everyone_adds()
    if RANK == 1:
        os.kill(os.getpid(), 9)
    everyone_adds()


def one_segfaults():
    begin()
    everyone_adds()
    if RANK == 1:
        import ctypes

        ctypes.string_at(0)
    everyone_adds()


def one_eats_memory():
    begin()
    everyone_adds()
    if RANK == 1:
        _hungry(0)
    everyone_adds()


def one_leaves():
    begin()
    everyone_adds()
    if RANK == 1:
        os._exit(0)
    everyone_adds()


def one_leaves_with_code():
    begin()
    everyone_adds()
    if RANK == 1:
        os._exit(7)
    everyone_adds()


def one_sleeps():
    begin(3)
    everyone_adds()
    if RANK == 1:
        time.sleep(20)
    everyone_adds()


def one_is_late():
    if RANK == 1:
        time.sleep(20)
    begin(3)


def one_more_element():
    begin()
    everyone_adds()
    dist.all_reduce(torch.ones(4 + 4 * RANK))


def one_other_operation():
    begin()
    everyone_adds()
    if RANK == 1:
        dist.broadcast(torch.ones(4), 0)
    else:
        dist.all_reduce(torch.ones(4))


def one_other_model():
    begin()
    nn.parallel.DistributedDataParallel(nn.Linear(4, 2 + RANK))


def all_miss_module():
    import nosuchpackage  # noqa: F401


def nobody_there():
    dist.TCPStore("127.0.0.1", 9, 2, False, timeout=datetime.timedelta(seconds=2))


def store_port_taken():
    import socket

    held = socket.create_server(("0.0.0.0", 0))
    dist.TCPStore("127.0.0.1", held.getsockname()[1], 1, True, use_libuv=True)


def init_port_taken():
    import socket

    held = socket.create_server(("0.0.0.0", 0))
    port = held.getsockname()[1]
    dist.init_process_group("gloo", init_method=f"tcp://0.0.0.0:{port}", rank=0, world_size=1)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
