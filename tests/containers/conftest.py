"""A podman of the tests' own: its storage, its settings and an image, as a file as well."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.containers import image

# crun wants more of a machine than a virtual one in a container has.
RUNTIME = next((name for name in ("runc", "crun") if shutil.which(name)), None)
IMAGE = "localhost/trainer:1"
RECIPE = """\
Bootstrap: localimage
From: {root}
%environment
    export PATH={python}:/usr/bin:/bin FROM_IMAGE=yes
"""
# A machine that is itself confined may not hand on all that root has; our registry has no TLS.
APPTAINER = {"APPTAINER_DROP_CAPS": "CAP_SYS_RESOURCE", "APPTAINER_NOHTTPS": "true"}


class Podman(NamedTuple):
    """``folder`` goes first on PATH: what it has under the name is podman with its own storage."""

    folder: Path

    def __call__(self, *words: str, check: bool = True) -> str:
        argv = [str(self.folder / "podman"), *words]
        return subprocess.run(argv, check=check, capture_output=True, text=True).stdout.strip()

    def names(self) -> str:
        """Of all containers there are, those that ended too."""
        return self("ps", "--all", "--format={{.Names}} {{.Status}}")


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    if os.geteuid() != 0 or RUNTIME is None or shutil.which("podman") is None:
        pytest.skip("needs root and Debian's podman and runc")
    # Short: podman takes no longer path for its running state than 50 characters.
    folder = Path(tempfile.mkdtemp(prefix="podman-"))
    found = Podman(folder / "bin")
    found.folder.mkdir()
    write_program(found.folder, folder / "root", folder / "run")
    image.write(folder / "image.tar")
    path = f"ENV PATH={image.PYTHON}:/usr/bin:/bin"
    changes = ("--change", path, "--change", "ENV FROM_IMAGE=yes")
    found("import", *changes, str(folder / "image.tar"), IMAGE)
    yield found
    # Its layers are mounts, or a later look at the folder would be one into them.
    found("rm", "--all", "--force")
    found("rmi", "--all", "--force")
    shutil.rmtree(folder, ignore_errors=True)


def write_program(folder: Path, root: Path, run: Path, *more: str) -> None:
    """A podman of its own storage in ``folder``, and of the registries that a test says."""
    (folder / "containers.conf").write_text(
        f'[engine]\nruntime = "{RUNTIME}"\ncgroup_manager = "cgroupfs"\n'
        '[containers]\ndefault_ulimits = ["nofile=20000:20000", "nproc=8192:8192"]\n'
    )
    (folder / "registries.conf").write_text("unqualified-search-registries = []\n")
    program = folder / "podman"
    program.write_text(
        "#!/bin/sh\n"
        f"export CONTAINERS_CONF={folder}/containers.conf\n"
        f"export CONTAINERS_REGISTRIES_CONF={folder}/registries.conf\n"
        f'exec {shutil.which("podman")} --root {root} --runroot {run} {" ".join(more)} "$@"\n'
    )
    program.chmod(0o755)


@pytest.fixture(scope="session")
def image_file() -> Iterator[Path]:
    """The same image as one file, for apptainer."""
    if shutil.which("apptainer") is None:
        pytest.skip("needs apptainer")
    folder = Path(tempfile.mkdtemp(prefix="apptainer-"))
    image.write(folder / "image.tar")
    root = folder / "root"
    root.mkdir()
    subprocess.run(["tar", "xf", folder / "image.tar", "-C", root], check=True)
    (folder / "recipe").write_text(RECIPE.format(root=root, python=image.PYTHON))
    made = folder / "trainer.sif"
    fast = ("--mksquashfs-args", "-noI -noD -noF -noX")
    argv = ["apptainer", "build", *fast, made, folder / "recipe"]
    subprocess.run(argv, check=True, capture_output=True)
    yield made
    shutil.rmtree(folder, ignore_errors=True)
