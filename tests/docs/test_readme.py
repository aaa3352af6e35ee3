"""The README's commands, file and program do what it says, as they stand there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.cli.commands import COMMANDS
from allranks.settings import Clocks
from tests.support import CLI, Allranks, environment

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]

TRAIN = """
import argparse, os
parser = argparse.ArgumentParser()
for name in ("--data", "--out", "--lr"):
    parser.add_argument(name)
given = parser.parse_args()
assert os.path.isdir(given.data), given.data
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
if given.out and os.environ["RANK"] == "0":
    open(os.path.join(given.out, "model.pt"), "w").write("weights")
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    text = "".join(blocks("bash")).replace("\\\n", " ")
    lines = (re.sub(r"\s{2,}#.*", "", line) for line in text.splitlines())
    return [line for line in lines if line.startswith("allranks ") and "server stop" not in line]


@pytest.fixture
def project(code: Path, shared_home: Path) -> Path:
    """A folder with what the README supposes: src/train.py, images/, and `allranks` on PATH."""
    for folder in ("src", "images", "bin"):
        (code / folder).mkdir()
    (code / "src" / "train.py").write_text(TRAIN)
    shim = code / "bin" / "allranks"
    shim.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -c '{CLI}' \"$@\"\n")
    shim.chmod(0o755)
    return code


def run(project: Path, home: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    env = environment(home)
    env["PATH"] = f"{project / 'bin'}:{env['PATH']}"
    return subprocess.run(argv, cwd=project, env=env, capture_output=True, text=True, timeout=100)


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_command(project: Path, shared_home: Path, shared: Allranks, command: str) -> None:
    if "NAME" in command:
        shared("run", "--name", "readme", "-n", 2, "--", "true")
    expected = 7 if "exit 7" in command else 0
    done = run(project, shared_home, "bash", "-c", command.replace("NAME", "readme"))
    assert done.returncode == expected, done.stdout + done.stderr


@pytest.mark.slow
def test_what_a_job_left_becomes_a_model(project: Path, shared_home: Path) -> None:
    (train,) = (line for line in commands() if " -o model " in line)
    found = re.search(r"^allranks model register .*$", README, re.MULTILINE)
    assert found is not None
    done = run(project, shared_home, "bash", "-c", train.replace("run ", "run --name readme-o ", 1))
    assert done.returncode == 0, done.stderr
    line = found[0].replace("JOB", "readme-o")
    done = run(project, shared_home, "bash", "-c", line)
    assert done.returncode == 0, done.stderr
    address = line.split()[-1]
    listed = run(project, shared_home, "allranks", "job", "files", "readme-o")
    assert address in listed.stdout.split()
    done = run(project, shared_home, "allranks", "model", "download", "birds")
    assert (project / "birds" / "model.pt").read_text() == "weights", done.stderr


@pytest.mark.slow
def test_the_job_file(project: Path, shared_home: Path) -> None:
    (yaml,) = blocks("yaml")
    (project / "job.yml").write_text(yaml)
    done = run(project, shared_home, "allranks", "job", "create", "-f", "job.yml", "--stream")
    assert sorted(done.stdout.splitlines()) == [f"rank {r} of 3" for r in range(3)], done.stderr


@pytest.mark.slow
def test_the_program(project: Path, shared_home: Path) -> None:
    (program,) = blocks("python")
    done = run(project, shared_home, sys.executable, "-c", program)
    assert sorted(done.stdout.splitlines()) == [f"rank {r} of 3" for r in range(3)], done.stderr


def test_every_link_leads_somewhere() -> None:
    for page in PAGES:
        for goal in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert os.path.exists(page.parent / goal), f"{page.name}: {goal}"


def test_every_command_that_is_named_exists() -> None:
    for page in PAGES:
        for group, name in re.findall(r"allranks (job|server) ([a-z]+)", page.read_text()):
            assert f"{group} {name}" in COMMANDS, f"{page.name}: allranks {group} {name}"


def test_every_clock_is_documented() -> None:
    page = (ROOT / "docs" / "server.md").read_text()
    assert all(f"`ALLRANKS_{name.upper()}`" in page for name in Clocks._fields)
