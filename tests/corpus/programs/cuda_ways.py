"""Ways to fail on an NVIDIA GPU: ``python cuda_ways.py WAY``; two ranks where it says so."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

RANK = int(os.environ.get("RANK", 0))


def exhaust():
    held = []
    while True:
        held.append(torch.ones(1 << 30, dtype=torch.uint8, device="cuda"))


def exhaust_limited():
    torch.cuda.set_per_process_memory_fraction(0.01)
    exhaust()


def exhaust_backward():
    model = nn.Sequential(*[nn.Linear(1 << 14, 1 << 14) for _ in range(12)]).cuda()
    torch.cuda.set_per_process_memory_fraction(0.2)
    while True:
        model(torch.ones(1 << 17, 1 << 14, device="cuda")).sum().backward()


def one_exhausts():
    dist.init_process_group("gloo")
    if RANK == 1:
        exhaust()
    total = torch.ones(1)
    dist.all_reduce(total)


def wrong_labels():
    output = torch.randn(8, 10, device="cuda", requires_grad=True)
    loss = nn.functional.cross_entropy(output, torch.full((8,), 10, device="cuda"))
    loss.backward()
    print(loss.item())


def wrong_token():
    table = nn.Embedding(100, 16).cuda()
    print(table(torch.tensor([5, 100], device="cuda")).sum().item())


def nan_probabilities():
    odds = torch.full((4, 8), float("nan"), device="cuda")
    print(torch.multinomial(odds, 1).tolist())


def wild_pointer():
    import cupy

    kernel = cupy.RawKernel(
        'extern "C" __global__ void wild(float *x) { x[1UL << 44] = 1; }', "wild"
    )
    kernel((1,), (1,), (cupy.zeros(4, dtype=cupy.float32),))
    torch.ones(3, device="cuda").sum().item()


def wild_triton():
    import wild_kernel

    wild_kernel.run()


def not_there():
    torch.cuda.set_device(3)


def each_its_own():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    dist.barrier()


def share_one():
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    dist.all_reduce(torch.ones(3, device="cuda"))
    torch.cuda.synchronize()


class OnGpu(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.ones(3, device="cuda") * index


def loader_on_gpu():
    torch.ones(1, device="cuda")
    for batch in DataLoader(OnGpu(), num_workers=1):
        print(batch)


def two_devices():
    nn.Linear(4, 4).cuda()(torch.ones(2, 4))


def load_saved_there():
    torch.save({"weight": torch.ones(3, device="cuda")}, "there.pt")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.execv(sys.executable, [sys.executable, "-c", "import torch; torch.load('there.pt')"])


def jax_exhausts():
    import jax.numpy

    jax.numpy.ones(1 << 37).block_until_ready()


def cupy_exhausts():
    import cupy

    cupy.ones(1 << 40, dtype=cupy.uint8)


def jax_without():
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["JAX_PLATFORMS"] = "cuda"
    import jax

    print(jax.devices())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
