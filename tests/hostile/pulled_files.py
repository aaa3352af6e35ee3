"""`allranks dev pull`: what runs on a session's node lists files and packs them."""

from __future__ import annotations

import io
import random
import tarfile

from allranks.agent.archives.read import stream_entries
from allranks.agent.inside.allranks_dev_files import digest
from allranks.cli.dev.pull import placed, why_not
from allranks.cli.output import show
from allranks.errors import AllranksError
from tests.hostile import names
from tests.hostile.harness import Outcome, Place

TRIES = 60


def attempt(chance: random.Random, place: Place) -> Outcome:
    (place.goal / "train.py").write_bytes(b"mine")
    (place.goal / "mine").symlink_to("train.py")
    honest = {"train.py": b"changed", "new/made.txt": chance.randbytes(chance.choice([0, 9000]))}
    hostile = names.hostile_entries(chance, "new", place, chance.randint(0, 8))
    hostile += [_git(), _link(chance, place)] if chance.random() < 0.3 else []
    listed = {**dict.fromkeys(honest, ""), **{each.name: _held(each) for each in hostile}}
    refused = {path for path, held in listed.items() if why_not(place.goal, path, held)}
    chosen: dict[str, str | None] = dict.fromkeys([path for path in listed if path not in refused])
    if "train.py" in chosen:
        chosen["train.py"] = digest(str(place.goal / "train.py"))
    data, is_intact = names.spoiled(chance, names.packed(chance, honest, hostile))
    if chance.random() < 0.25:
        data, is_intact = names.odd_headers(chance) + data, False
    came, said = [], sorted(refused)
    try:
        for path in placed(stream_entries("it", io.BytesIO(data)), chosen, place.goal):
            came.append(path)
    except AllranksError as error:
        said.append(str(error))
    said += [path for path in chosen if path not in came]
    assert not (place.goal / ".git").exists()
    assert (place.goal / "train.py").read_bytes() in (b"mine", b"changed") or not is_intact
    return Outcome(honest if is_intact else {}, "\n".join(map(show.one_line, said)))


def _held(entry: tarfile.TarInfo) -> str:
    return f"->{entry.linkname}" if entry.type == tarfile.SYMTYPE else "0" * 64


def _git() -> tarfile.TarInfo:
    return tarfile.TarInfo(".GIT/hooks/post-checkout")


def _link(chance: random.Random, place: Place) -> tarfile.TarInfo:
    made = tarfile.TarInfo("mine")
    made.type, made.linkname = tarfile.SYMTYPE, names.target(chance, "new", place)
    return made
