"""The route that clears a home."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends

from allranks.errors import Conflict, UsageError
from allranks.server.clearing import Asked, Clearing, Failed, Item
from allranks.server.services import Services, services
from allranks.server.shown import when

With = Annotated[Services, Depends(services)]
router = APIRouter(prefix="/api/v1")
# Seconds: older than anything is.
_MOST = 1e12


@router.post("/gc")
def clear(data: Annotated[dict[str, Any], Body()], with_: With) -> dict[str, Any]:
    """Remove what nobody needs and was not used for ``older_than_seconds``; with ``dry_run`` tell
    only what that is, with ``jobs`` records of jobs that ended so long ago, too. Comes back when
    all is done."""
    asked = _asked(data)
    if not with_.clearing.acquire(blocking=False):
        raise Conflict("this home is being cleared already", hint="wait until that is done")
    try:
        report = Clearing(with_.home, with_.records, with_.coming, asked).run()
    finally:
        with_.clearing.release()
    return {
        "dry_run": asked.dry_run,
        "bytes": sum(item.size for item in report.items),
        "items": [_item(each) for each in report.items],
        "failed": [_failed(each) for each in report.failed],
    }


def _asked(data: dict[str, Any]) -> Asked:
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
    return Asked(float(number), *flags)


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
