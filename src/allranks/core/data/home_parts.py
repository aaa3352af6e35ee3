"""The parts of a home, and why what is in them stays when it is cleared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Part(NamedTuple):
    what: str
    why: str


class Kept(NamedTuple):
    """What of a part stays, in bytes."""

    part: Part
    size: int


# By the name of the folder in the home.
PARTS: Mapping[str, Part] = {
    "jobs": Part("jobs", "records of jobs; add --jobs to remove old ones"),
    "blobs": Part("code", "of recorded jobs, or sent within the last hour"),
    "environments": Part("environments", "used recently, or by a live job"),
    "code": Part("checkouts", "used recently"),
    "nodes": Part("working folders", "of live jobs, or changed within the last hour"),
    "cache": Part("cached data", "used recently, or since the oldest live job was submitted"),
    "pinned": Part("copies of the agent's code", "of this server, or of a running job"),
    "models": Part("models", "of model versions: allranks model delete"),
    "states": Part("states", "of jobs, or named: allranks state delete"),
    "mlflow": Part("MLflow", "runs and their files: delete them in MLflow, then `mlflow gc`"),
    "data": Part(
        "datastore",
        "files of the default datastore: uploads of assets or used recently, and all others",
    ),
    "engines": Part("engines", "notes of engines about their jobs"),
}
_DATABASE = Part("database", "the database")
_LOGS = Part("server logs", "logs of the server")
_OTHER = Part("other", "settings, keys and other files of the home")


def part_of(name: str) -> Part:
    """The part that a file or folder of the home belongs to."""
    if name in PARTS:
        return PARTS[name]
    if name.startswith("allranks.db"):
        return _DATABASE
    return _LOGS if name.endswith(".log") else _OTHER


def kept(sizes: Mapping[str, int], goes: Iterable[tuple[str, int]]) -> list[Kept]:
    """What stays of a home whose files and folders have these sizes, when of those of each name
    so many bytes go; the largest first."""
    totals: dict[Part, int] = {}
    for name, size in (*sizes.items(), *((name, -size) for name, size in goes)):
        part = part_of(name)
        totals[part] = totals.get(part, 0) + size
    rows = [Kept(part, size) for part, size in totals.items() if size > 0]
    return sorted(rows, key=lambda row: -row.size)
