"""The files that real trackers wrote: wandb 0.31, torch 2.13, TensorFlow 2.21, trackio 0.43."""

import contextlib
import json
import math
import sqlite3
import struct
import zlib
from pathlib import Path

import pytest

from allranks.agent.trackers import readings
from allranks.agent.trackers.readings import Reader, Reading
from allranks.agent.trackers.tensorboard_files import EventFile
from allranks.agent.trackers.trackio_files import TrackioFile
from allranks.agent.trackers.wandb_files import WandbFile

FILES = Path(__file__).parent / "files"
WANDB = FILES / "run-x36e1ly4.wandb"
TORCH = FILES / "events.out.tfevents.torch"


def all_of(reader: Reader) -> Reading:
    parts = list(reader.read())
    parameters: dict[str, str] = {}
    for part in parts:
        parameters |= part.parameters
    points = [point for part in parts for point in part.points]
    images = [image for part in parts for image in part.images]
    return Reading(points, parameters, images, parts[-1].run if parts else "")


def values(found: Reading, name: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in found.points if point.name == name]


def test_a_run_of_wandb() -> None:
    reader = WandbFile(WANDB)
    found = all_of(reader)
    assert values(found, "loss") == [(step, 1 / (step + 1)) for step in range(5)]
    assert values(found, "nest.x") == [(step, step) for step in range(5)]
    assert values(found, "é😀 x")[0] == (0, 2.0)
    assert math.isnan(values(found, "nan")[0][1])
    assert values(found, "inf")[0][1] == math.inf
    assert values(found, "t")[0][1] == 1.0
    assert found.parameters == {"lr": "0.1", "opt.name": "adam", "opt.b": "[1, 2]", "late": "3"}
    assert (found.run, reader.project, reader.exit_code, reader.damage) == ("my run", "p", 0, "")
    # Only in the summary.
    (rest,) = reader.read(is_last=True)
    assert [(point.name, point.value) for point in rest.points] == [("best", 7.0)]
    assert not next(reader.read(is_last=True)).points


def test_images_of_wandb_are_files_beside_it(tmp_path: Path) -> None:
    file = tmp_path / WANDB.name
    file.write_bytes(WANDB.read_bytes())
    images = all_of(WandbFile(file)).images
    assert [(image.name, image.step) for image in images] == [
        ("img", 10),
        ("imgs", 10),
        ("imgs", 10),
    ]
    media = tmp_path / "files/media/images"
    assert images[0].source == media / "img_5_4a0945534329d26ce523.png"
    assert images[1].source == images[2].source == media / "imgs_5_4a0945534329d26ce523.png"


@pytest.mark.parametrize(("file", "reader"), [(WANDB, WandbFile), (TORCH, EventFile)])
def test_a_file_that_grows(
    file: Path, reader: type[WandbFile] | type[EventFile], tmp_path: Path
) -> None:
    """Whatever part of it is there, each point is found once, and a torn end is no damage."""
    data, growing = file.read_bytes(), tmp_path / file.name
    growing.touch()
    one, found = reader(growing), list[object]()
    for end in (*range(0, len(data), 97), len(data)):
        growing.write_bytes(data[:end])
        found += all_of(one).points
    assert found == all_of(reader(file)).points
    assert one.damage == ""


def chunk(body: bytes, kind: int = 1) -> bytes:
    return struct.pack("<IHB", zlib.crc32(bytes([kind]) + body), len(body), kind) + body


def field(number: int, body: bytes) -> bytes:
    size, length = len(body), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + body


def history(step: int, pad: int) -> bytes:
    row = {"_step": step, "loss": step, "_timestamp": 1.0, "pad": "x" * pad}
    items = (
        field(1, field(1, k.encode()) + b"\x82\x01" + field(1, json.dumps(v).encode())[1:])
        for k, v in row.items()
    )
    return field(2, b"".join(items))


def test_a_damaged_block_of_wandb_costs_only_itself(tmp_path: Path) -> None:
    file = tmp_path / "run-a.wandb"
    data = bytearray(struct.pack("<4sHB", b":W&B", 0xBEE1, 0))
    while len(data) < 4 << 15:
        body = history(len(data), 900)
        left = (1 << 15) - len(data) % (1 << 15)
        data += bytes(left) if left < len(body) + 7 else chunk(body)
    file.write_bytes(data)
    whole = all_of(WandbFile(file))
    data[40_000] ^= 1  # in the second of its blocks
    file.write_bytes(data)
    reader = WandbFile(file)
    found = all_of(reader)
    assert reader.damage.startswith("damaged at byte ")
    lost = {point.step // (1 << 15) for point in set(whole.points) - set(found.points)}
    assert lost == {1}


@pytest.mark.parametrize(
    "data", [b"", b"abc", b"no run at all", b":W&B\xe1\xbe\x00" + b"\xff" * 99]
)
def test_what_is_no_run(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "run-a.wandb"
    file.write_bytes(data)
    assert not all_of(WandbFile(file)).points


def test_scalars_images_and_parameters_of_torch() -> None:
    found = all_of(EventFile(TORCH))
    assert values(found, "loss") == [(0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3))]
    assert values(found, "d") == values(found, "n/new") == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert [(image.name, image.step, image.suffix) for image in found.images] == [
        ("img", 1, ".png"),
        ("imgs", 1, ".png"),
    ]
    assert found.parameters == {"x": "1"}  # the text `args`, as Trainer writes it
    hparams = all_of(EventFile(FILES / "events.out.tfevents.hparams"))
    assert hparams.parameters == {"lr": "0.1", "opt": "adam", "b": "1"}


def test_scalars_and_images_of_tensorflow() -> None:
    found = all_of(EventFile(FILES / "events.out.tfevents.tensorflow"))
    assert values(found, "loss") == [(0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3))]
    assert [image.name for image in found.images] == ["im", "im"]


def test_an_event_of_50_megabytes_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1.host.1"
    value = field(1, b"picture") + field(4, b"")
    event = b"\x09" + struct.pack("<d", 1.0) + field(5, field(1, value))
    size = 50 << 20
    with file.open("wb") as target:
        target.write(struct.pack("<QI", size, 0) + event)
        target.truncate(12 + size + 4)
        target.seek(0, 2)
        target.write(TORCH.read_bytes())
    found = all_of(EventFile(file))
    assert [image.name for image in found.images if image.source is None] == ["picture"]
    assert len(values(found, "loss")) == 3


def test_a_database_of_trackio(tmp_path: Path) -> None:
    file = tmp_path / "p.db"
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.executescript(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp, run_name, step, metrics);"
            "CREATE TABLE configs (id INTEGER PRIMARY KEY, run_name, config);"
        )
        rows = [
            ("2026-11-26T10:10:09.5+00:00", "r", 0, '{"loss": 1.5, "n": {"x": 1}, "bad": "NaN"}'),
            ("2026-11-26T10:10:10.5+00:00", "r", 3, '{"loss": "Infinity", "text": "a"}'),
        ]
        database.executemany(
            "INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", rows
        )
        config = '{"lr": 0.1, "o": {"a": 1}, "_Username": null}'
        database.execute("INSERT INTO configs (run_name, config) VALUES ('r', ?)", [config])
    reader = TrackioFile(file)
    found = all_of(reader)
    assert values(found, "loss") == [(0, 1.5), (3, math.inf)]
    assert values(found, "n.x") == [(0, 1.0)]
    assert math.isnan(values(found, "bad")[0][1])
    assert found.parameters == {"lr": "0.1", "o.a": "1"}
    assert not all_of(reader).points
    # What an earlier attempt logged is in the record already.
    assert values(all_of(TrackioFile(file, since=1795687810.0)), "loss") == [(3, math.inf)]


def wandb_of(folder: Path, records: list[bytes]) -> WandbFile:
    """A run's file of records that are each shorter than a block."""
    file = folder / "run-x.wandb"
    file.write_bytes(struct.pack("<4sHB", b":W&B", 0xBEE1, 0) + b"".join(map(chunk, records)))
    return WandbFile(file)


def test_names_that_repeat_a_long_one_are_bounded(tmp_path: Path) -> None:
    """A row of 30 kB would have names of 15 MB."""
    leaves = json.dumps({f"{n:x}": 1 for n in range(3000)}).encode()
    row = field(1, field(1, b"k" * 4000) + b"\x82\x01" + field(1, leaves)[1:])
    reader = wandb_of(tmp_path, [field(2, row)])
    assert not all_of(reader).points
    row = field(1, field(1, b"k" * 990) + b"\x82\x01" + field(1, leaves)[1:])
    reader = wandb_of(tmp_path, [field(2, row)])
    assert len(all_of(reader).points) == 3000
    names = readings.short((f"{'k' * 900}.{n}", n) for n in range(10_000))
    with pytest.raises(ValueError, match="8 MB"):
        list(names)


def test_the_step_of_metrics_whose_names_begin_alike(tmp_path: Path) -> None:
    def row(step: int, **values: int) -> bytes:
        items = {"_step": step, **values}
        parts = [
            field(1, k.encode()) + b"\x82\x01" + field(1, b"%d" % v)[1:] for k, v in items.items()
        ]
        return field(2, b"".join(field(1, part) for part in parts))

    metrics = [field(2, b"val*") + field(4, b"epoch"), field(1, b"f1") + field(4, b"epoch")]
    metrics += [field(2, b"a*b*") + field(4, b"epoch"), field(2, b"loss") + field(4, b"epoch")]
    defined = [field(12, metric) for metric in metrics]
    reader = wandb_of(tmp_path, [*defined, row(9, epoch=2, val=1, values=1, f1=1, loss=1, axb=1)])
    steps = {point.name: point.step for point in all_of(reader).points}
    assert steps == {"epoch": 9, "val": 2, "values": 2, "f1": 2, "loss": 9, "axb": 9}
