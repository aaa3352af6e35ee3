import argparse
import os

import mlflow
import torch
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
args = parser.parse_args()
torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(args.epochs):
    loss = model(torch.ones(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if os.environ["RANK"] == "0":
        mlflow.log_metric("loss", loss.item(), step=epoch)
# A rank that leaves while another still works sometimes aborts in gloo.
torch.distributed.barrier()
torch.distributed.destroy_process_group()
