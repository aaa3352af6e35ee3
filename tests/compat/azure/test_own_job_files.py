"""Job files in the manner of Azure's public ones complete unchanged, after one `data map`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import Allranks, command_line

JOBS = Path(__file__).parent / "jobs"
FILES = sorted(
    each.name for each in JOBS.glob("*.yml") if each.name not in ("component.yml", "conda.yml")
)
# What installs packages takes minutes.
INSTALLING = ("curated", "hello-iris-mount", "hello-notebook", "pipeline-", "sweep-")
MAPPED = "https://azuremlexamples.blob.core.windows.net/datasets/"


@pytest.fixture
def mapped(home: Path, tmp_path: Path) -> Allranks:
    run = command_line(home, JOBS)
    rows = [
        f"{5 + at},{3 + number / 50},{1 + 2 * at},{0.2 + at},{name}"
        for at, name in enumerate(("setosa", "versicolor", "virginica"))
        for number in range(20)
    ]
    data = tmp_path / "data sets"
    data.mkdir()
    head = "sepal_length,sepal_width,petal_length,petal_width,species"
    (data / "iris.csv").write_text("\n".join([head, *rows]) + "\n")
    assert run("data", "map", MAPPED, f"{data}/").returncode == 0
    return run


def fail(run: Allranks, files: list[str]) -> dict[str, str]:
    """What the files' jobs said that did not complete."""

    def one(file: str) -> str:
        done = run("job", "create", "-f", file, "--stream", timeout=900)
        return done.stderr if done.returncode else ""

    with ThreadPoolExecutor(2) as pool:
        said = dict(zip(files, pool.map(one, files), strict=True))
    return {file: text for file, text in said.items() if text}


def test_there_are_fifty() -> None:
    assert len(FILES) >= 50


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_those_that_need_no_packages(mapped: Allranks) -> None:
    assert fail(mapped, [each for each in FILES if not each.startswith(INSTALLING)]) == {}


@pytest.mark.heavy
@pytest.mark.frameworks
@pytest.mark.timeout(1800)
def test_those_that_install_packages(mapped: Allranks) -> None:
    files = [each for each in FILES if each.startswith(INSTALLING)]
    assert fail(mapped, files) == {}
    for metric in ("accuracy", "loss", "train-mlogloss"):
        assert metric in mapped("job", "list", "--json").stdout
