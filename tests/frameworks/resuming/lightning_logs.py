import glob
import os

from lightning.pytorch.loggers import CSVLogger
from lightning_parts import Module, data, trainer

found = sorted(glob.glob("lightning_logs/version_*/checkpoints/*.ckpt"), key=os.path.getmtime)
newest = found[-1] if found else None
trainer(logger=CSVLogger(".")).fit(Module(), data(), ckpt_path=newest)
