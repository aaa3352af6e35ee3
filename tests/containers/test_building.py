"""Images that are made of a folder, on the nodes, when a job begins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.containers.conftest import IMAGE
from tests.containers.test_containers import here
from tests.support import Allranks

__all__ = ["here"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(800)]
ENVIRONMENT = {"build": {"path": "./my image", "dockerfile_path": "docker/File"}}


@pytest.fixture
def context(code: Path) -> Path:
    found = code / "my image"
    (found / "docker").mkdir(parents=True)
    run = 'RUN ["/bin/bash", "-c", "echo >>/word"]'
    text = f"FROM {IMAGE}\nCOPY word /word\n{run}\nENV MADE=here\n"
    (found / "docker/File").write_text(text)
    (found / "word").write_text("first")
    return found


def submit(here: Allranks, code: Path, environment: object, *words: object) -> str:
    spec = {"type": "command", "environment": environment, "resources": {"instance_count": 2}}
    spec["command"] = 'echo "$(</word) $MADE $FROM_IMAGE"'
    (code / "job.yml").write_text(json.dumps(spec))
    done = here("job", "create", "-f", "job.yml", "--stream", *words, timeout=200)
    return done.stdout if done.returncode == 0 else done.stderr


def test_it_is_made_once_and_again_when_its_folder_has_changed(
    here: Allranks, code: Path, context: Path
) -> None:
    assert submit(here, code, ENVIRONMENT, "--name", "one") == "first here yes\n" * 2
    told = json.loads(here("job", "events", "one", "--json").stdout)
    assert f"builds the image of {context}" in {each["data"].get("doing") for each in told}
    record = Path(json.loads(here("job", "show", "one", "--json").stdout)["folder"])
    logs = [each.read_text() for each in (record / "build-logs").iterdir()]
    assert len(logs) == 2
    assert all("COPY word" in log for log in logs)
    (context / "word").write_text("second")
    assert submit(here, code, ENVIRONMENT) == "second here yes\n" * 2


def test_nodes_of_a_machine_have_the_very_same_image(
    here: Allranks, code: Path, context: Path
) -> None:
    """Though what a step does is another thing each time."""
    run = 'RUN ["/bin/bash", "-c", "echo $EPOCHREALTIME >/word; sleep 1"]'
    (context / "docker/File").write_text(f"FROM {IMAGE}\n{run}\n")
    first, second = submit(here, code, ENVIRONMENT).splitlines()
    assert first == second


@pytest.mark.parametrize("name", ["a,b", 'the "first" one', "it's", "a:b $x"])
def test_folders_and_files_of_any_name(
    here: Allranks, code: Path, context: Path, name: str
) -> None:
    folder = context.rename(code / name)
    (folder / "docker/File").rename(folder / "docker" / name)
    build = {"path": f"./{name}", "dockerfile_path": f"docker/{name}"}
    assert submit(here, code, {"build": build}) == "first here yes\n" * 2


def test_a_dry_run_says_of_what(here: Allranks, code: Path, context: Path) -> None:
    (code / "job.yml").write_text(json.dumps({"command": "x", "environment": ENVIRONMENT}))
    done = here("job", "create", "-f", "job.yml", "--dry-run", "--json")
    assert f"<the image of {context}>" in json.loads(done.stdout)["container"]


def test_one_with_a_name(here: Allranks, code: Path, context: Path) -> None:
    (context / "env.yml").write_text(json.dumps({
        "name": "made", "build": {"path": ".", "dockerfile_path": "docker/File"}}))  # fmt: skip
    done = here("environment", "create", "-f", context / "env.yml")
    assert done.returncode == 0, done.stderr
    assert submit(here, code, "azureml:made@latest") == "first here yes\n" * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"FROM {IMAGE}\nCOPY nothing /word\n", "nothing"),
        ("FROM localhost/nowhere:1\n", "nowhere"),
        (f"FROM {IMAGE}\nWRONG word\n", "WRONG"),
    ],
)
def test_what_cannot_be_built(
    here: Allranks, code: Path, context: Path, text: str, said: str
) -> None:
    (context / "docker/File").write_text(text)
    told = submit(here, code, ENVIRONMENT)
    assert f"error: {context}/docker/File: cannot build the image: " in told
    assert said in told
    assert "build-logs" in told


def test_what_is_not_there(here: Allranks, code: Path, context: Path) -> None:
    told = submit(here, code, {"build": {"path": "./my image"}})
    assert "job.yml" in told
    assert "'Dockerfile' not found in" in told
    assert "not found" in submit(here, code, {"build": {"path": "./none"}})


def test_on_a_compute_that_runs_no_containers(
    allranks: Allranks, code: Path, context: Path
) -> None:
    told = submit(allranks, code, ENVIRONMENT)
    assert "the compute 'local' runs no containers and builds no images" in told
    assert "allranks compute update local --container" in told
