"""The route that clears a home."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Body, Depends

from allranks.errors import Conflict, UsageError
from allranks.plan.data import home_parts
from allranks.server.dependencies import Services, services
from allranks.server.timestamps import when

if TYPE_CHECKING:
    from allranks.server.storage.garbage_collection import Failed, Item

With = Annotated[Services, Depends(services)]
router = APIRouter(prefix="/api/v1")
# Seconds: older than anything is.
_MOST = 1e12


@router.post("/gc")
def clear(data: Annotated[dict[str, Any], Body()], with_: With) -> dict[str, Any]:
    """Remove what nobody needs and was not used for ``older_than_seconds``; with ``dry_run`` tell
    only what that is, and what stays; with ``jobs`` records of jobs that ended so long ago, too.
    Comes back when all is done."""
    # lazy: 25 ms that no start of a server should take
    from allranks.server.storage import inventory
    from allranks.server.storage.garbage_collection import Asked, Clearing  # lazy: as above

    older_than, dry_run, jobs = _asked(data)
    assets = (str(row.spec.get("path") or "") for row in with_.data.versions())
    asked = Asked(older_than, dry_run, jobs, inventory.behind(with_.home, assets))
    if not with_.clearing.acquire(blocking=False):
        raise Conflict("this home is being cleared already", hint="wait until that is done")
    try:
        models, rest = with_.models.versions.in_use, with_.states.rest
        report = Clearing(with_.home, with_.records, with_.coming, asked, models, rest).run()
    finally:
        with_.clearing.release()
    told = {
        "dry_run": dry_run,
        "bytes": sum(item.size for item in report.items),
        "items": [_item(each) for each in report.items],
        "failed": [_failed(each) for each in report.failed],
    }
    return told | (_whole(with_.home.root, report.items) if dry_run else {})


def _whole(root: Path, items: Sequence[Item]) -> dict[str, Any]:
    """What stays, and how large the home is: all that goes, and all that stays."""
    from allranks.server.storage.disk_usage import sizes  # lazy: only a dry run adds it all up

    paths = ((Path(item.path), item.size) for item in items)
    goes = [(p.relative_to(root).parts[0], n) for p, n in paths if p.is_relative_to(root)]
    found = sizes(root)
    stays = [
        {"kind": each.part.what, "bytes": each.size, "why": each.part.why}
        for each in home_parts.kept(found, goes)
    ]
    return {"kept": stays, "home_bytes": sum(found.values())}


def _asked(data: dict[str, Any]) -> tuple[float, bool, bool]:
    """The age, whether it is a dry run, whether records of jobs go, too. Raises UsageError."""
    known = ("older_than_seconds", "dry_run", "jobs")
    if wrong := [key for key in data if key not in known]:
        raise UsageError(f"{wrong[0]!r} is not known here", hint=f"known are {', '.join(known)}")
    seconds, flags = data.get(known[0]), [data.get(key, False) for key in known[1:]]
    number = seconds if isinstance(seconds, int | float) else -1.0
    if isinstance(seconds, bool) or not 0 <= number <= _MOST:
        hint = "a number of seconds, 0 or more"
        raise UsageError(f"{seconds!r} is no time", where=known[0], hint=hint)
    if not all(isinstance(each, bool) for each in flags):
        raise UsageError("yes or no was asked", where="dry_run, jobs", hint="true or false")
    return float(number), flags[0], flags[1]


def _item(item: Item) -> dict[str, Any]:
    used = when(item.used_at) if item.used_at else None
    return {
        "kind": str(item.kind),
        "name": _text(item.name),
        "path": _text(item.path),
        "why": item.why,
        "bytes": item.size,
        "used_at": used,
    }


def _failed(failed: Failed) -> dict[str, Any]:
    return {"path": _text(failed.path), "message": failed.message}


def _text(name: str) -> str:
    """A name that is not UTF-8 cannot be sent as it is."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
