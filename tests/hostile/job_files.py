"""Files that a job wrote for its metrics: of W&B, TensorBoard, Trackio and MLflow, and its own."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from allranks.agent.monitoring.logged_lines import LoggedLines
from allranks.agent.monitoring.mlflow_files import MlflowFiles
from allranks.agent.trackers.follower import TrackerFiles
from allranks.core.metrics import metric_lines
from allranks.core.plan import Task
from tests.hostile.harness import Outcome, Place

TRIES = 150
SECRET = b"secret"
# JSON that stands where a number or a text should.
ODD = (
    "[1]",
    "1e400",
    "-1e400",
    "9" * 400,
    "9" * 5000,
    "null",
    '"x"',
    '"NaN"',
    "NaN",
    "{}",
    "-1",
    str(2**63),
    "1e300",
    "[" * 60_000,
    '{"a":' * 3000 + "1" + "}" * 3000,
    '"\\ud800"',
    "nul",
    "",
)


class Writer:
    """Writes honest points, of which ``steps`` remembers the steps, and hostile rows."""

    def __init__(self, chance: random.Random, place: Place, work: Path) -> None:
        self.chance, self.place, self.work = chance, place, work
        self.steps: list[int] = []
        # Whether something odd was written between the honest points.
        self.hostile, self.damaged = 0, False

    def rows(self) -> Iterator[tuple[int, str | None]]:
        """The steps of honest rows, and what is odd in hostile ones."""
        for step in range(self.chance.randint(2, 12)):
            if self.chance.random() < 0.4:
                self.hostile += 1
                yield 1000 + step, self.chance.choice(ODD)
            self.steps.append(step)
            yield step, None

    def image_path(self) -> str:
        """A path that a tracker's file names, most often not one of its images."""
        (self.work / "link").unlink(missing_ok=True)
        (self.work / "link").symlink_to(self.place.outside)
        secret = self.place.outside / "secret"
        return self.chance.choice(
            [
                str(secret),
                "../" * self.chance.randint(1, 8) + "outside/secret",
                str(self.work / "link" / "secret"),
                "media/link.png",
                "media/pipe.png",
                "/proc/self/environ",
                "/dev/zero",
                "a" * 5000,
                "a\0b",
                "\ud800",
                "",
                ".",
            ]
        )

    def media(self, folder: Path) -> None:
        """Links and a pipe where images should be."""
        folder.mkdir(parents=True)
        (folder / "link.png").symlink_to(self.place.outside / "secret")
        os.mkfifo(folder / "pipe.png")


def attempt(chance: random.Random, place: Place) -> Outcome:
    """Read what is written; fails if the secret is found, or a point is lost in silence. The goal
    is the job's: its working folder and its record."""
    record, work = place.goal / "record", place.goal / "work"
    for folder in (record, work):
        folder.mkdir()
    if chance.random() < 0.2:  # where images are put
        (record / "artifacts").symlink_to(place.outside)
    writer = Writer(chance, place, work)
    write = chance.choice([wandb, tensorboard, trackio, mlflow_folder, mlflow_database, own_lines])
    points, notes = _read(work, record, place.goal / "points", writer, write)
    told = "\n".join(str(note["message"]) for note in notes)
    seen = {step for step, value in points if value == 0.5}
    lost = {*writer.steps} - seen
    about = f"{write.__name__}: {writer.hostile} odd rows, lost {lost}, notes: {told[:300]!r}"
    assert not lost or told, about
    if not writer.damaged:
        assert not lost, about
    assert SECRET.decode() not in told, about
    for path in (place.goal / "points", *record.rglob("*")):
        if path.is_file() and not path.is_symlink():
            assert SECRET not in path.read_bytes(), path
    shutil.rmtree(work)
    if (record / "artifacts").is_symlink():
        (record / "artifacts").unlink()
    return Outcome(said=told)


def _read(
    work: Path, record: Path, into: Path, writer: Writer, write: Callable[[Writer], bool]
) -> tuple[list[tuple[int, float]], list[dict[str, object]]]:
    """The recorded points, and the notes."""
    trackers = TrackerFiles(Task("j", "e", "c", record=str(record)), 0, [work], into)
    mlflow = MlflowFiles(work, into)
    writer.damaged = write(writer)
    mlflow.look(at_once=True)
    trackers.finish()
    notes = [*trackers.notes(), *mlflow.notes()]
    if write is own_lines:
        into = work / "logged.jsonl"
        lines = LoggedLines(into)
        lines.look(last=True)
        notes += lines.notes()
    points = []
    with contextlib.suppress(OSError):
        for line in into.read_bytes().split(b"\n"):
            points += [(row[0], row[2]) for _, row in metric_lines.read(line).points]
    return points, notes


def _spoiled(chance: random.Random, data: bytes) -> tuple[bytes, bool]:
    """The file of a tracker, in a few tries with something wrong in it."""
    if chance.random() < 0.75:
        return data, False
    at = chance.randrange(8, len(data))
    return chance.choice(
        [
            data[:at] + chance.randbytes(4) + data[at + 4 :],
            data[:at] + bytes(40_000) + data[at:],
            data + chance.randbytes(30),
            data[:at] + (2**52).to_bytes(8, "little") + data[at + 8 :],
        ]
    ), True


def _field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    data = b""
    while value > 127:
        data, value = data + bytes([value & 127 | 128]), value >> 7
    return data + bytes([value])


def wandb(writer: Writer) -> bool:
    run = writer.work / "wandb" / writer.chance.choice(["run-1", "run-\x1b[2J\n"])
    writer.media(run / "files" / "media")
    data = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
    for step, odd in writer.rows():
        row = {"_step": str(step), "loss": "0.5", "_timestamp": "1.0"}
        if odd is not None:
            row[writer.chance.choice([*row, "n" * 2000, "other"])] = odd
            kind = writer.chance.choice(["image-file", "images/separated"])
            image = {"_type": kind, "path": writer.image_path()}
            row["image"] = json.dumps({**image, "filenames": [image["path"]] * 3})
        items = b"".join(
            _field(1, _field(1, name.encode()) + _field(16, text.encode()))
            for name, text in row.items()
        )
        body = _field(2, items)
        if odd is not None and writer.chance.random() < 0.2:
            body = writer.chance.randbytes(40)
        data += _leveldb(body, len(data))
    data, is_damaged = _spoiled(writer.chance, data)
    (run / "run-1.wandb").write_bytes(data)
    if writer.chance.random() < 0.2:
        os.truncate(run / "run-1.wandb", 2**42)
    return is_damaged


def _leveldb(body: bytes, at: int) -> bytes:
    """A record as it is in a log of LevelDB, at that place."""
    out, first = b"", True
    while True:
        left = 32768 - (at + len(out)) % 32768
        if left < 7:
            out += bytes(left)
            continue
        part, body = body[: left - 7], body[left - 7 :]
        kind = (1 if first else 4) if not body else (2 if first else 3)
        out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
        first = False
        if not body:
            return out


def tensorboard(writer: Writer) -> bool:
    folder = writer.work / "runs"
    folder.mkdir()
    data = b""
    for step, odd in writer.rows():
        at, value = 1.0, _field(1, b"loss") + b"\x15" + struct.pack("<f", 0.5)
        if odd is not None:
            at = writer.chance.choice([float("nan"), float("inf"), -1.0, 1e300])
            step = writer.chance.choice([2**63, 2**64 - 1, step])
            if writer.chance.random() < 0.5:
                value = writer.chance.randbytes(30)
        event = b"\x09" + struct.pack("<d", at) + b"\x10" + _varint(step)
        event += _field(5, _field(1, value))
        head = struct.pack("<Q", len(event))
        data += head + struct.pack("<I", _crc(head)) + event + bytes(4)
    data, is_damaged = _spoiled(writer.chance, data)
    (folder / "events.out.tfevents.1.host.1.0").write_bytes(data)
    if writer.chance.random() < 0.2:
        os.truncate(folder / "events.out.tfevents.1.host.1.0", 2**42)
    (folder / "events.out.tfevents.2.host.1.0").symlink_to(writer.place.outside / "secret")
    os.mkfifo(folder / "events.out.tfevents.3.host.1.0")
    return is_damaged


def _crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for bit in (byte >> place & 1 for byte in data for place in range(8)):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 ^ bit else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def trackio(writer: Writer) -> bool:
    folder = writer.work / "trackio"
    writer.media(folder / "media")
    (folder / "p.lock").touch()
    chance = writer.chance
    with contextlib.closing(sqlite3.connect(folder / "p.db")) as database, database:
        database.executescript(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp, run_name, step, metrics);"
            "CREATE TABLE configs (id INTEGER PRIMARY KEY, run_name, config);"
        )
        for step, odd in writer.rows():
            row: list[object] = ["2099-01-01T00:00:00+00:00", "r", step, '{"loss": 0.5}']
            if odd is not None:
                image = {"_type": "trackio.image", "file_path": writer.image_path()}
                row[3] = f'{{"loss": {odd}, "image": {json.dumps(image)}}}'
                row[chance.choice([0, 1, 2])] = chance.choice([odd, None, b"\xff", 1e308, 2**62])
            database.execute(
                "INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", row
            )
            if odd is not None:
                database.execute("INSERT INTO configs (run_name, config) VALUES (?, ?)", ["r", odd])
    return _spoiled_database(writer, folder / "p.db")


def _spoiled_database(writer: Writer, path: Path) -> bool:
    which = writer.chance.randrange(12)
    if which == 0:
        path.with_name(f"{path.name}-wal").symlink_to(writer.place.outside / "secret")
    elif which == 1:
        path.write_bytes(path.read_bytes()[:5000] + writer.chance.randbytes(3000))
    elif which == 2:
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.executescript(
                "ALTER TABLE metrics RENAME TO old; CREATE VIEW metrics AS WITH RECURSIVE "
                "n(rowid) AS (SELECT 1 UNION ALL SELECT rowid + 1 FROM n) "
                "SELECT rowid, rowid AS id, 'x' AS timestamp, 'r' AS run_name, 'r' AS run_uuid, "
                "0 AS step, 'x' AS metrics, 'k' AS key, 0 AS value, 0 AS is_nan FROM n"
            )
    return which <= 2


def mlflow_folder(writer: Writer) -> bool:
    run = writer.work / "mlruns" / "0" / "r"
    for name in ("metrics", "params", "tags"):
        (run / name).mkdir(parents=True)
    (run / "meta.yaml").write_text("start_time: 1\n")
    (run / "params" / "link").symlink_to(writer.place.outside / "secret")
    (run / "metrics" / "link").symlink_to(writer.place.outside / "secret")
    (run / "params" / "folder").symlink_to(writer.place.outside)
    os.mkfifo(run / "params" / "pipe")
    os.mkfifo(run / "metrics" / "pipe")
    with (run / "metrics" / "loss").open("wb") as file:
        for step, odd in writer.rows():
            words = [b"1000", b"0.5", str(step).encode()]
            if odd is not None:
                words[writer.chance.randrange(3)] = odd.encode()
            file.write(b" ".join(words) + b"\n")
    return False


def mlflow_database(writer: Writer) -> bool:
    path = writer.work / "mlflow.db"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.executescript(
            "CREATE TABLE runs (run_uuid, name, start_time, end_time);"
            "CREATE TABLE tags (run_uuid, key); CREATE TABLE params (run_uuid, key, value);"
            "CREATE TABLE metrics (run_uuid, key, value, timestamp, step, is_nan);"
            "INSERT INTO runs VALUES ('r', 'run', 1, 0)"
        )
        for step, odd in writer.rows():
            row: list[object] = ["r", "loss", 0.5, 1000, step, 0]
            if odd is not None:
                row[writer.chance.choice([2, 3, 4])] = writer.chance.choice([odd, b"\xff", None])
                database.execute("INSERT INTO runs VALUES (?, ?, ?, ?)", [odd, odd, odd, odd])
                database.execute("INSERT INTO params VALUES ('r', 'x', ?)", [odd])
            database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", row)
    return _spoiled_database(writer, path)


def own_lines(writer: Writer) -> bool:
    path = writer.work / "logged.jsonl"
    if writer.chance.random() < 0.2:
        path.symlink_to(writer.place.outside / "secret")
        return True
    with path.open("wb") as file:
        for step, odd in writer.rows():
            words = ['"loss"', "null", str(step), "1.0", "0.5"]
            if odd is not None:
                words[writer.chance.randrange(1, 5)] = odd
            file.write(f'{{"points": [[{", ".join(words)}]]}}\n'.encode())
    return False
