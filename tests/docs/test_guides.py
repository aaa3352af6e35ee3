"""The guides do what they say: every file is saved, every line run; on a real Slurm, too."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster, cluster
from tests.frameworks.environments import environment as framework
from tests.support import CLI, environment

__all__ = ["cluster"]
pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(1800)]
GUIDES = Path(__file__).parents[2] / "docs" / "guides"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
ON_SLURM = re.compile(r"\n## The same (?:job|line) on Slurm\n.*", re.DOTALL)


def saved(page: str, folder: Path) -> None:
    """Write the files of a page: each block of code after a line that names its file."""
    for found in BLOCK.finditer(page):
        if found[1] in ("python", "yaml"):
            name = re.findall(r"`([\w/.]+\.(?:py|yml))`", page[: found.start()])[-1]
            file = folder / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(found[2])


def lines(text: str) -> list[str]:
    several = "".join(found[2] for found in BLOCK.finditer(text) if found[1] == "bash")
    return several.strip().splitlines()


def ran(folder: Path, home: Path, python: Path, line: str, more: Mapping[str, str]) -> str:
    shim = folder / "bin" / "allranks"
    shim.parent.mkdir(exist_ok=True)
    shim.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -c '{CLI}' \"$@\"\n")
    shim.chmod(0o755)
    env = {**environment(home), "VIRTUAL_ENV": str(python), **more}
    env["PATH"] = f"{shim.parent}:{python / 'bin'}:{env['PATH']}"
    argv = ["bash", "-c", line]
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


SAYS = {
    "distributed-gpu": ("torch", ["rank 3 of 4 on cpu", "loss"]),
    "pytorch-to-onnx": ("onnx", ["registered points 1", "classes [1, 0]"]),
    "one-ssm-line": ("torch", ["host 1 of 2 read ['b.txt']", "model.pt"]),
    "horovod-mpi": ("horovod", ["rank 3 of 4, local 1, loss 0.0"]),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(e, marks=[pytest.mark.horovod] * e.startswith("horovod")) for e in SAYS],
)
def test_a_guide(name: str, code: Path, home: Path) -> None:
    page, (env, said) = (GUIDES / f"{name}.md").read_text(), SAYS[name]
    saved(page, code)
    here = lines(ON_SLURM.sub("", page))
    printed = "".join(ran(code, home, framework(env), line, {}) for line in here)
    for each in said:
        assert each in printed


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["distributed-gpu", "one-ssm-line"])
def test_a_guide_on_slurm(name: str, code: Path, home: Path, cluster: Cluster) -> None:
    page, (env, said) = (GUIDES / f"{name}.md").read_text(), SAYS[name]
    found = ON_SLURM.search(page)
    assert found is not None
    saved(page, code)
    (code / "data").mkdir(exist_ok=True)
    for each in ("a", "b"):
        (code / "data" / f"{each}.txt").write_text(each)
    conf = {"SLURM_CONF": cluster.env["SLURM_CONF"]}
    printed = "".join(ran(code, home, framework(env), line, conf) for line in lines(found[0]))
    assert said[0] in printed


def test_every_guide_is_tested_and_ends_on_slurm() -> None:
    assert {each.stem for each in GUIDES.glob("*.md")} == SAYS.keys()
    for each in GUIDES.glob("*.md"):
        assert ON_SLURM.search(each.read_text())
