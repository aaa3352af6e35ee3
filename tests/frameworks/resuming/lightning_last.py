from lightning.pytorch.callbacks import ModelCheckpoint
from lightning_parts import Module, data, trainer

saves = ModelCheckpoint(dirpath="checkpoints", save_last=True)
trainer(callbacks=[saves], logger=False).fit(Module(), data(), ckpt_path="last")
