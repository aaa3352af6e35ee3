"""`allranks import runs`: runs of other trackers as jobs that ran elsewhere."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support import Allranks, answer

FILES = Path(__file__).parents[1] / "agent/trackers/files"
pytestmark = pytest.mark.medium


def test_runs_become_jobs_once(shared: Allranks, tmp_path: Path) -> None:
    (tmp_path / "wandb/run-1").mkdir(parents=True)
    shutil.copyfile(FILES / "run-x36e1ly4.wandb", tmp_path / "wandb/run-1/run-x36e1ly4.wandb")
    (tmp_path / "runs/a").mkdir(parents=True)
    shutil.copyfile(FILES / "events.out.tfevents.torch", tmp_path / "runs/a/events.out.tfevents.1")
    jobs = answer(shared, "import", "runs", tmp_path)["jobs"]
    assert [job["created"] for job in jobs] == [True, True]
    again = answer(shared, "import", "runs", tmp_path)["jobs"]
    assert [job["created"] for job in again] == [False, False]
    # A copy of a run is another one of its name: it keeps no other run out.
    shutil.copytree(tmp_path / "wandb", tmp_path / "copy/wandb")
    shutil.copytree(tmp_path / "runs/a", tmp_path / "copy/b")
    done = shared("import", "runs", tmp_path / "copy", "--json")
    assert done.returncode == 1, done.stderr
    copy, new = json.loads(done.stdout)["jobs"]
    assert (copy["created"], new["created"]) == (False, True)
    assert "another job is named" in copy["damage"]
    job = answer(shared, "job", "show", "wandb-x36e1ly4")
    assert (job["status"], job["compute"], job["display_name"]) == (
        "Completed",
        "elsewhere",
        "my run",
    )
    assert job["parameters"]["late"] == "3"
    assert job["started_at"].startswith("2026-11-26T10:09:52")
    points = json.loads(shared("job", "metrics", "wandb-x36e1ly4", "--json").stdout)["loss"]
    assert [(point["step"], point["value"]) for point in points] == [
        (step, 1 / (step + 1)) for step in range(5)
    ]


def test_files_that_were_cut(shared: Allranks, tmp_path: Path) -> None:
    whole = (FILES / "run-x36e1ly4.wandb").read_bytes()
    contents = {
        "empty": b"",
        "head": whole[:7],
        "half": whole[: len(whole) // 2],
        "none": b"x" * 99,
    }
    for name, data in contents.items():
        (tmp_path / f"run-cut-{name}.wandb").write_bytes(data)
    done = shared("import", "runs", tmp_path, "--json")
    assert done.returncode == 1, done.stderr
    jobs = {job["job"]: job for job in json.loads(done.stdout)["jobs"]}
    assert [name for name, job in jobs.items() if job["created"]] == ["wandb-cut-half"]
    assert "no W&B run" in jobs["wandb-cut-none"]["damage"]
    for name in ("empty", "head"):
        assert "empty" in jobs[f"wandb-cut-{name}"]["damage"]
        assert shared("job", "show", f"wandb-cut-{name}").returncode == 2
    half = answer(shared, "job", "show", "wandb-cut-half")
    assert half["status"] == "Failed"
    assert "its file has no end" in half["error"]["message"]
    assert answer(shared, "job", "metrics", "wandb-cut-half")["loss"]


def test_what_cannot_be_read_is_named_and_counts_as_no_job(shared, tmp_path):
    good = (FILES / "events.out.tfevents.torch").read_bytes()
    contents = {"junk": b"junk", "empty": b"", "noise": b"x" * 99, "good": good}
    for name, data in contents.items():
        folder = tmp_path / f"unread-{name}"
        folder.mkdir()
        (folder / "events.out.tfevents.1.host").write_bytes(data)
    (tmp_path / "unread-gone").mkdir()
    (tmp_path / "unread-gone/events.out.tfevents.1").symlink_to(tmp_path / "nowhere")
    (tmp_path / "run-unread.wandb").symlink_to(tmp_path / "nowhere")
    done = shared("import", "runs", tmp_path)
    assert done.returncode == 1, done.stderr
    assert "1 run imported, 5 left out; allranks job list shows them" in done.stdout
    empty = "events.out.tfevents.1.host: it is empty, or its first record is cut off or damaged"
    assert done.stderr.count(empty) == 3
    assert "events.out.tfevents.1: no such file or directory" in done.stderr
    again = shared("import", "runs", tmp_path)
    assert "0 runs imported, 1 were there, 5 left out" in again.stdout


def test_a_folder_without_runs(shared: Allranks, tmp_path: Path) -> None:
    done = shared("import", "runs", tmp_path)
    assert "there are no runs in" in done.stderr
    assert "hint:" in done.stderr
