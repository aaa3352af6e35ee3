"""The commands, files and programs of the README and the tutorial do what these say."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.cli.commands import COMMANDS
from tests.support import CLI, Allranks, environment

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
# The pages of the reference are not committed: the site's build writes them.
GENERATED = re.findall(r'^    "(\S+\.md)": "', (ROOT / "docs" / "generate.py").read_text(), re.M)

TRAIN = """
import argparse, os
parser = argparse.ArgumentParser()
for name in ("--data", "--out", "--lr"):
    parser.add_argument(name)
given = parser.parse_args()
assert not given.data or os.path.isdir(given.data), given.data
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
if given.out and os.environ["RANK"] == "0":
    open(os.path.join(given.out, "model.pt"), "w").write("weights")
"""

TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
# Steps that need a network, a cluster or minutes; the rehearsal has tests of its own.
ELSEWHERE = ("pip install", "python3 -m venv", "gpu", "--rehearse", "server stop")


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def commands() -> list[str]:
    text = "".join(blocks("bash")).replace("\\\n", " ")
    lines = (re.sub(r"\s{2,}#.*", "", line) for line in text.splitlines())
    return [line for line in lines if line.startswith("allranks ") and "server stop" not in line]


@pytest.fixture
def project(code: Path, shared_home: Path) -> Path:
    """A folder with what the README supposes: train.py, src/, images/, and `allranks` on PATH."""
    for folder in ("src", "images", "bin"):
        (code / folder).mkdir()
    for folder in (code, code / "src"):
        (folder / "train.py").write_text(TRAIN)
    shim = code / "bin" / "allranks"
    shim.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -c '{CLI}' \"$@\"\n")
    shim.chmod(0o755)
    return code


def run(project: Path, home: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    env = environment(home)
    env["PATH"] = f"{project / 'bin'}:{env['PATH']}"
    return subprocess.run(argv, cwd=project, env=env, capture_output=True, text=True, timeout=200)


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
@pytest.mark.end_to_end
def test_command(project: Path, shared_home: Path, shared: Allranks, command: str) -> None:
    if " - " in f"{command} ":
        shared("run", "-n", 2, "--", "echo", "hello")
    done = run(project, shared_home, "bash", "-c", command)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_named_output_is_downloaded(project: Path, home: Path) -> None:
    (run_line,) = [line for line in commands() if " -o model " in line]
    (download,) = [line for line in commands() if line.startswith("allranks job download")]
    done = run(project, home, "bash", "-ec", f"{run_line}\n{download}")
    assert done.returncode == 0, done.stderr
    assert (project / "results/named-outputs/model/model.pt").read_text() == "weights"


@pytest.mark.slow
def test_the_page_on_models(project: Path, home: Path) -> None:
    first = blocks("bash", (ROOT / "docs" / "how-to" / "models.md").read_text())[0]
    done = run(project, home, "bash", "-ec", first)
    assert done.returncode == 0, done.stderr
    assert (project / "here" / "birds" / "model.pt").read_text() == "weights\n"


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(1200)
def test_the_tutorial(project: Path, home: Path) -> None:
    (script,), (job_file,) = blocks("python", TUTORIAL), blocks("yaml", TUTORIAL)
    (project / "train.py").write_text(script)
    (project / "job.yml").write_text(job_file)
    printed = ""
    for line in "".join(blocks("bash", TUTORIAL)).splitlines():
        command = re.sub(r"\s{2,}#.*", "", line)
        if any(word in command for word in ELSEWHERE):
            continue
        done = run(project, home, "bash", "-c", command)
        crashes = "crash_at=4" in command and "max_attempts" not in command
        assert done.returncode == (1 if crashes else 0), f"{command}\n{done.stdout}{done.stderr}"
        printed += done.stdout + done.stderr
    assert "error: rank 1 on node 1 exited with code 1" in printed
    assert re.search(r"^rank 0 continues after epoch [34]$", printed, re.MULTILINE)
    assert (project / "results" / "artifacts" / "outputs" / "model.pt").exists()
    (place,) = re.findall(r"hint: check (train\.py:\d+)", TUTORIAL)
    assert f"check {place}" in printed


@pytest.mark.slow
def test_the_job_file(project: Path, shared_home: Path) -> None:
    (yaml,) = blocks("yaml")
    (project / "job.yml").write_text(yaml)
    done = run(project, shared_home, "allranks", "job", "create", "-f", "job.yml", "--stream")
    assert sorted(done.stdout.splitlines()) == [f"rank {r} of 3" for r in range(3)], done.stderr


@pytest.mark.slow
@pytest.mark.end_to_end
def test_the_program(project: Path, shared_home: Path) -> None:
    (program,) = blocks("python")
    done = run(project, shared_home, sys.executable, "-c", program)
    assert sorted(done.stdout.splitlines()) == [f"rank {r} of 3" for r in range(3)], done.stderr


def test_every_link_leads_somewhere() -> None:
    for page in PAGES:
        for goal in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            generated = re.fullmatch(r"(?:\.\./)?reference/(\S+)", goal)
            found = generated[1] in GENERATED if generated else os.path.exists(page.parent / goal)
            assert found, f"{page.name}: {goal}"


def test_every_command_that_is_named_exists() -> None:
    for page in PAGES:
        for group, name in re.findall(r"allranks (job|server) ([a-z-]+)", page.read_text()):
            assert f"{group} {name}" in COMMANDS, f"{page.name}: allranks {group} {name}"
