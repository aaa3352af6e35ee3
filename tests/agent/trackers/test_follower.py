"""What is written for the record of trackers' files, and under which names."""

import json
import os
import shutil
from pathlib import Path

import pytest

from allranks.agent.processes.rank_processes import Members
from allranks.agent.trackers.follower import TrackerFiles
from allranks.agent.trackers.kept_images import FOLDER as IMAGES
from allranks.agent.trackers.names import Prefixes, image_path
from allranks.agent.trackers.readings import LARGEST_IMAGE
from allranks.core.plan import MetricTask, Task
from allranks.spec.fields.metric_formats import BUILTIN

FILES = Path(__file__).parent / "files"
TORCH = FILES / "events.out.tfevents.torch"


def write(folder: Path, pid: int = 1, number: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"events.out.tfevents.170000000{number}.host.{pid}.{number}").write_bytes(
        TORCH.read_bytes()
    )


def follow(tmp_path: Path, task: Task) -> TrackerFiles:
    (tmp_path / "work").mkdir(exist_ok=True)
    return TrackerFiles(task, 0, [tmp_path / "work"], tmp_path / "points")


def points(tmp_path: Path) -> list[list[object]]:
    lines = map(json.loads, (tmp_path / "points").read_text().splitlines())
    return [point for line in lines for point in line.get("points", ())]


def task(tmp_path: Path, **more: object) -> Task:
    return Task("j", "e", "c", record=str(tmp_path / "record"))._replace(**more)  # type: ignore[arg-type]


def test_points_parameters_and_images(tmp_path: Path) -> None:
    files = follow(tmp_path, task(tmp_path))
    write(tmp_path / "work/runs/a")
    files.finish()
    assert [point[:3] for point in points(tmp_path)][:3] == [
        ["loss", 0, 0],
        ["n/new", 0, 0],
        ["d", 0, 0],
    ]
    assert '{"parameters": {"x": "1"}}' in (tmp_path / "points").read_text()
    assert (tmp_path / "record" / IMAGES / "img/step_1.png").read_bytes().startswith(b"\x89PNG")
    assert not files.notes()


def test_files_of_an_earlier_attempt_are_not_read_again(tmp_path: Path) -> None:
    write(tmp_path / "work/runs/a")
    os.utime(next((tmp_path / "work/runs/a").iterdir()), (1, 1))
    files = follow(tmp_path, task(tmp_path))
    files.finish()
    assert not (tmp_path / "points").exists()


def test_two_ranks_that_write_to_one_folder(tmp_path: Path) -> None:
    """Their processes are in the names of the files."""
    files = follow(tmp_path, task(tmp_path, procs=2))
    files.see(Members({0: [101], 1: [102]}, []))
    write(tmp_path / "work/runs/a", pid=102)
    write(tmp_path / "work/runs/a", pid=101, number=1)
    files.finish()
    assert {(name, rank) for name, rank, *_ in points(tmp_path) if name == "loss"} == {
        ("loss", 0),
        ("loss", 1),
    }


def test_a_printed_metric_keeps_its_series(tmp_path: Path) -> None:
    printed = (MetricTask("loss", "loss (.*)"),)
    files = follow(tmp_path, task(tmp_path, procs=2, metrics=printed))
    files.see(Members({0: [101], 1: [102]}, []))
    write(tmp_path / "work/runs/a", pid=101)
    files.finish()
    assert {(name, rank) for name, rank, *_ in points(tmp_path) if "loss" in str(name)} == {
        ("loss/tensorboard", 0)
    }


def test_what_a_known_format_prints_keeps_its_series(tmp_path: Path) -> None:
    """It may have any name."""
    files = follow(tmp_path, task(tmp_path, metrics=(MetricTask("keras", BUILTIN),)))
    write(tmp_path / "work/runs/a")
    files.finish()
    assert {rank for _, rank, *_ in points(tmp_path)} == {None}


def test_wandb_beside_tensorboard(tmp_path: Path) -> None:
    """Of two trackers with one metric, the second one's carries the tracker's name."""
    files = follow(tmp_path, task(tmp_path))
    folder = tmp_path / "work/wandb/run-1"
    folder.mkdir(parents=True)
    shutil.copyfile(FILES / "run-x36e1ly4.wandb", folder / "run-x36e1ly4.wandb")
    write(tmp_path / "work/runs/a")
    files.finish()
    names = {str(name) for name, *_ in points(tmp_path)}
    assert {"loss", "best"} < names
    assert len(names & {"loss/wandb", "loss/tensorboard"}) == 1


def test_damage_is_told(tmp_path: Path) -> None:
    files = follow(tmp_path, task(tmp_path))
    folder = tmp_path / "work/wandb/run-1"
    folder.mkdir(parents=True)
    (folder / "run-a.wandb").write_bytes(b"no run at all")
    files.finish()
    assert "it is no W&B run" in files.notes()[0]["message"]


def test_an_image_of_wandb_that_is_too_large_or_missing_is_left_out(tmp_path: Path) -> None:
    files = follow(tmp_path, task(tmp_path))
    run = tmp_path / "work/wandb/run-1"
    media = run / "files/media/images"
    media.mkdir(parents=True)
    shutil.copy(FILES / "run-x36e1ly4.wandb", run)
    with (media / "imgs_5_4a0945534329d26ce523.png").open("wb") as large:
        large.truncate(LARGEST_IMAGE + 1)
    files.finish()
    assert [note["message"] for note in files.notes()] == [
        "1 image was left out: no such file or directory",
        "2 images were left out: each is larger than 10 MB; they are in the tracker's own files",
    ]


def test_runs_of_tensorboard_are_called_as_it_calls_them() -> None:
    prefixes = Prefixes()
    assert prefixes.of_folder(0, Path("/w/runs/a")) == ""
    assert prefixes.of_folder(0, Path("/w/runs/a/loss_train")) == "loss_train/"
    assert prefixes.of_folder(0, Path("/w/runs/a/1795688128.05")) == ""
    assert prefixes.of_folder(0, Path("/w/runs/b")) == "b/"
    assert prefixes.of_folder(0, Path("/w/logs/k/train")) == "train/"
    assert prefixes.of_folder(0, Path("/w/logs/k/validation")) == "validation/"
    assert prefixes.of_folder(1, Path("/w/runs/c")) == ""


def test_each_curve_of_add_scalars_has_a_name(tmp_path):
    """It writes a run for each below the writer's own, which may hold nothing."""
    (tmp_path / "a/loss_train").mkdir(parents=True)
    (tmp_path / "a/events.out.tfevents.1").touch()
    assert Prefixes().of_folder(0, tmp_path / "a/loss_train") == "loss_train/"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a/b c", "a/b c/step_1.png"),
        ("../../etc", "_/_/etc/step_1.png"),
        ("/x\n", "_/x_/step_1.png"),
        ("😀", "😀/step_1.png"),
        ("", "_/step_1.png"),
    ],
)
def test_the_path_of_an_image(name: str, path: str) -> None:
    assert image_path(name, 1, None, ".png") == path
    assert image_path(name, 1, 3, ".png").endswith("step_1_rank_3.png")


def test_names_of_300_letters_stay_apart() -> None:
    paths = {image_path("é" * 300 + end, 1, None, ".png") for end in "ab"}
    assert len(paths) == 2
    assert all(len(part.encode()) <= 100 for path in paths for part in path.split("/"))
