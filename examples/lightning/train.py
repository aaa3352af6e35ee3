"""A LightningModule on several nodes: the Trainer finds its ranks in the environment."""

import json
import os

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

NODES, PROCS = int(os.environ["AZUREML_NODE_COUNT"]), int(os.environ["LOCAL_WORLD_SIZE"])


class Regression(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.losses = []

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("loss", loss, sync_dist=True)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


L.seed_everything(7)
x = torch.randn(240, 8)
y = x @ torch.arange(1.0, 9.0).unsqueeze(1)
model = Regression()
trainer = L.Trainer(
    accelerator="cpu",
    strategy="ddp",
    devices=PROCS,
    num_nodes=NODES,
    max_epochs=5,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(model, DataLoader(TensorDataset(x, y), batch_size=20))

weights = model.layer.weight.detach()
together = trainer.strategy.all_gather(weights)
assert torch.allclose(together, weights.expand_as(together)), "ranks differ"
print(
    f"rank {trainer.global_rank} of {trainer.world_size}: "
    f"loss {model.losses[0]:.3f} -> {model.losses[-1]:.3f}"
)
if trainer.is_global_zero:
    os.makedirs("outputs", exist_ok=True)
    result = {"ranks": trainer.world_size, "first": model.losses[0], "last": model.losses[-1]}
    with open("outputs/result.json", "w") as file:
        json.dump(result, file)
