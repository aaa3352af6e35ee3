# As https://github.com/pytorch/examples/tree/main/distributed/ddp-tutorial-series does it.
import os

import pace
import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, optimizer, save_every, snapshot_path):
        self.rank = int(os.environ["RANK"])
        self.model, self.optimizer = model, optimizer
        self.save_every, self.epochs_run = save_every, 0
        self.snapshot_path = snapshot_path
        if os.path.exists(snapshot_path):
            self._load_snapshot(snapshot_path)
        self.began = self.epochs_run
        self.model = DDP(self.model)

    def _load_snapshot(self, snapshot_path):
        snapshot = torch.load(snapshot_path)
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.epochs_run = snapshot["EPOCHS_RUN"]

    def _save_snapshot(self, epoch):
        snapshot = {"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch + 1}
        torch.save(snapshot, self.snapshot_path)

    def train(self, max_epochs):
        for epoch in range(self.epochs_run, max_epochs):
            self.model(torch.ones(4, 2)).sum().backward()
            self.optimizer.step()
            if self.rank == 0 and epoch % self.save_every == 0:
                self._save_snapshot(epoch)
            torch.distributed.barrier()
            pace.step(epoch + 1, self.began)


init_process_group("gloo")
model = torch.nn.Linear(2, 1)
Trainer(model, torch.optim.SGD(model.parameters(), lr=1e-3), 1, "snapshot.pt").train(5)
destroy_process_group()
