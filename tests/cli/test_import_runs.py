"""`allranks import runs`: runs of other trackers as jobs that ran elsewhere."""

import contextlib
import json
import shutil
import sqlite3
import struct
from pathlib import Path

import pytest

from tests.agent.trackers.test_files import chunk, field
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


def rows_of(*rows: dict[str, object]) -> list[bytes]:
    """W&B's records of its history."""
    return [
        field(
            2,
            b"".join(
                field(1, field(1, key.encode()) + b"\x82\x01" + field(1, text.encode())[1:])
                for key, text in ((key, json.dumps(value)) for key, value in row.items())
            ),
        )
        for row in rows
    ]


def write_wandb(folder: Path, run: str, records: list[bytes], code: int) -> None:
    # A run's and an exit's fields are beyond 15: their tags have two bytes.
    about = field(1, run.encode()) + field(3, b"p") + b"\x8a\x01" + field(1, b"\x08\x01")[1:]
    begun, ended = (
        b"\x8a\x01" + field(1, about)[1:],
        b"\x92\x01" + field(1, bytes([8, code]))[1:],
    )
    folder.mkdir(parents=True)
    head = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
    data = b"".join(map(chunk, (begun, *records, ended)))
    (folder / f"run-{run}.wandb").write_bytes(head + data)


def part_of_a_run(folder: Path, steps: range, code: int) -> None:
    """Of W&B's run `again`, which was resumed."""
    rows = (
        {"_step": step, "loss": 100 * steps.start + step, "_timestamp": 1.0 + step}
        for step in steps
    )
    write_wandb(folder, "again", rows_of(*rows), code)


def test_parts_of_a_resumed_run_of_wandb_are_attempts_of_one_job(shared, tmp_path):
    part_of_a_run(tmp_path / "wandb/offline-run-20261128_100000-again", range(10), 1)
    answer(shared, "import", "runs", tmp_path)
    first = answer(shared, "job", "show", "wandb-again")
    assert (first["status"], first["exit_code"], first["attempts"]) == ("Failed", 1, 1)
    # The second part comes later, from a run that was online.
    part_of_a_run(tmp_path / "wandb/run-20261128_110000-again", range(5, 15), 0)
    for _ in range(2):  # twice is once
        (job,) = answer(shared, "import", "runs", tmp_path)["jobs"]
        assert (job["points"], job["created"], job["damage"]) == (20, False, "")
        both = answer(shared, "job", "show", "wandb-again")
        assert (both["status"], both["exit_code"], both["attempts"]) == ("Completed", 0, 2)
        points = json.loads(shared("job", "metrics", "wandb-again", "--json").stdout)["loss"]
        values = [(point["attempt"], point["step"], point["value"]) for point in points]
        assert values == [(1, n, n) for n in range(10)] + [(2, n, 500 + n) for n in range(5, 15)]


def test_what_a_run_that_goes_on_logs_is_added_once(shared, tmp_path):
    part_of_a_run(tmp_path / "more/wandb/offline-run-20261128_100000-again", range(30), 0)
    file = tmp_path / "more/wandb/offline-run-20261128_100000-again/run-more.wandb"
    whole = file.with_name("run-again.wandb").read_bytes()
    file.with_name("run-again.wandb").rename(file)
    for size, status in ((len(whole) // 2, "Failed"), (len(whole), "Completed")):
        file.write_bytes(whole[:size])
        answer(shared, "import", "runs", tmp_path / "more")
        job = answer(shared, "job", "show", "wandb-more")
        assert (job["status"], job["attempts"]) == (status, 1)
        assert bool(job["error"]) == (status == "Failed")
    points = json.loads(shared("job", "metrics", "wandb-more", "--json").stdout)["loss"]
    assert [point["value"] for point in points] == [*range(30)]


def board(folder: Path, number: int, at: float, steps: range, purge: bool = False) -> None:
    """A file of TensorBoard's, written after those with a lower number."""

    def event(step: int, at: float, body: bytes) -> bytes:
        data = b"\x09" + struct.pack("<d", at) + bytes([0x10, step]) + body
        return struct.pack("<QI", len(data), 0) + data + bytes(4)

    data = event(steps.start, at, field(7, b"\x08\x01")) if purge else b""
    for step in steps:
        value = b"\x15" + struct.pack("<f", 100 * number + step)
        data += event(step, at + step, field(5, field(1, field(1, b"loss") + value)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"events.out.tfevents.{number}.host").write_bytes(data)


def test_steps_that_tensorboard_drops_after_a_restart(shared, tmp_path):
    root = tmp_path / "restarted"
    board(root, 0, 1000.0, range(8))
    board(root / "train", 0, 1000.5, range(8))
    for steps in (range(8), range(5, 10)):
        (job,) = answer(shared, "import", "runs", tmp_path)["jobs"]
        metrics = json.loads(shared("job", "metrics", job["job"], "--json").stdout)
        expected = [*range(steps.start if steps.start else 8)]
        expected += [100 + step for step in steps if steps.start]
        assert [point["value"] for point in metrics["loss"]] == expected
        assert [point["value"] for point in metrics["train/loss"]] == [*range(8)]
        board(root, 1, 2000.0, range(5, 10), purge=True)


PNG = b"\x89PNG\r\n\x1a\n" + bytes(50)


def test_images_come_along_and_lead_nowhere_else(shared, tmp_path, code):
    folder = tmp_path / "wandb/offline-run-1-seen"
    (tmp_path / "secret.png").write_bytes(PNG)
    names = ["a.png", "b.png", "../../../secret.png", "link.png", str(tmp_path / "secret.png")]
    looks = {"_type": "images/separated", "filenames": names}
    write_wandb(folder, "seen", rows_of({"_step": 1, "look": looks}), 0)
    (folder / "files").mkdir()
    (folder / "files/a.png").write_bytes(PNG + b"a")
    (folder / "files/b.png").write_bytes(PNG + b"b")
    (folder / "files/link.png").symlink_to(tmp_path / "secret.png")
    board(tmp_path / "board", 0, 1000.0, range(1))
    value = field(1, b"sample") + field(4, field(4, PNG))
    event = b"\x09" + struct.pack("<d", 1.0) + bytes([0x10, 3]) + field(5, field(1, value))
    with (tmp_path / "board/events.out.tfevents.0.host").open("ab") as file:
        file.write(struct.pack("<QI", len(event), 0) + event + bytes(4))
    for _ in range(2):  # the second time they are there
        done = shared("import", "runs", tmp_path, "--json")
        wandb, board_ = json.loads(done.stdout)["jobs"]
        assert (wandb["images"], board_["images"]) == (2, 1), done.stderr
        assert "2 images were left out: not a path below the folder" in done.stderr
        assert "1 image was left out: too many levels of symbolic links" in done.stderr
    for job in wandb, board_:
        place = f"got/{job['job']}"
        assert shared("job", "download", job["job"], "--all", "-p", place).returncode == 0
    kept = {path.name: path.read_bytes() for path in (code / "got").rglob("*.png")}
    assert kept == {"step_1.png": PNG + b"a", "step_1_1.png": PNG + b"b", "step_3.png": PNG}


def test_runs_of_a_database_of_trackio(shared, tmp_path):
    (tmp_path / "p.lock").touch()
    with contextlib.closing(sqlite3.connect(tmp_path / "p.db")) as database, database:
        database.executescript(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp, run_name, step, metrics);"
            "CREATE TABLE configs (id INTEGER PRIMARY KEY, run_name, config);"
        )
        at = "2026-11-28T10:00:00+00:00"
        rows = [(at, name, step, b'{"loss": %d}' % step) for name in "ab" for step in range(3)]
        insert = "INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)"
        database.executemany(insert, rows)
        database.execute("INSERT INTO configs (run_name, config) VALUES ('b', '{\"lr\": 1}')")
    jobs = answer(shared, "import", "runs", tmp_path)["jobs"]
    assert [job["points"] for job in jobs] == [3, 3]
    job = answer(shared, "job", "show", jobs[1]["job"])
    assert (job["display_name"], job["parameters"]) == ("b", {"lr": "1"})


def test_a_run_of_many_megabytes(shared, tmp_path):
    folder = tmp_path / "large"
    board(folder, 0, 1000.0, range(100))
    file = folder / "events.out.tfevents.0.host"
    file.write_bytes(file.read_bytes() * 400)
    (job,) = answer(shared, "import", "runs", tmp_path)["jobs"]
    assert (job["points"], job["damage"]) == (40_000, "")


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
