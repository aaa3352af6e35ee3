"""The route for garbage collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.api.server import FailedRemoval, GcAnswer, KeptPart, RemovedItem
from allranks.core.data import home_parts
from allranks.errors import Conflict, UsageError
from allranks.server.dependencies import JsonBody, Services, ServicesDep
from allranks.server.timestamps import iso_time

if TYPE_CHECKING:
    from allranks.server.storage.garbage_collection import Failed, Item
    from allranks.server.storage.stored_garbage import StoredUploads

# The largest age in seconds.
_MOST = 1e12


def clear(data: JsonBody, services: ServicesDep) -> GcAnswer:
    """Delete unreferenced data that was not used for ``older_than_seconds``; with ``jobs`` also
    jobs that ended so long ago; with ``dry_run`` only list it, and what is kept. Returns when
    done."""
    # lazy: 25 ms of a server's start
    from allranks.server.storage import inventory
    from allranks.server.storage.garbage_collection import (  # lazy: as above
        GarbageCollection,
        Options,
    )

    older_than, dry_run, jobs = _options(data)
    assets = (str(row.spec.get("path") or "") for row in services.data.versions())
    options = Options(older_than, dry_run, jobs, inventory.behind(services.home, assets))
    if not services.gc_lock.acquire(blocking=False):
        raise Conflict("garbage collection is already running", hint="wait until it is done")
    try:
        models, rest = services.models.versions.in_use, services.states.rest
        report = GarbageCollection(
            services.home,
            services.records,
            services.admission_lock,
            options,
            models,
            rest,
            services.kept_codes,
            services.kept_uploads,
            lambda: {row.name for row in services.endpoints.list()},
            {name: partial(_stored, services, name) for name in services.datastores.with_uploads()},
        ).run()
    finally:
        services.gc_lock.release()
    answer: GcAnswer = {
        "dry_run": dry_run,
        "bytes": sum(item.size for item in report.items),
        "items": [_item(each) for each in report.items],
        "failed": [_failed(each) for each in report.failed],
        "recent_jobs": len(report.recent_jobs),
    }
    if dry_run:
        sizes = _sizes(services.home.root)
        answer["kept"] = _kept(services.home.root, sizes, report.items)
        answer["home_bytes"] = sum(sizes.values())
    return answer


def _stored(services: Services, name: str) -> StoredUploads:
    from allranks.server.storage.stored_garbage import open_uploads  # lazy: obstore

    return open_uploads(services.datastores, name)


def _sizes(root: Path) -> Mapping[str, int]:
    from allranks.server.storage.inventory import disk_usage  # lazy: only for a dry run

    return disk_usage(root)


def _kept(root: Path, sizes: Mapping[str, int], items: Sequence[Item]) -> list[KeptPart]:
    """What is kept of a home with parts of these sizes."""
    paths = ((Path(item.path), item.size) for item in items)
    goes = [(p.relative_to(root).parts[0], n) for p, n in paths if p.is_relative_to(root)]
    return [
        {"kind": each.part.what, "bytes": each.size, "why": each.part.why}
        for each in home_parts.kept(sizes, goes)
    ]


def _options(data: dict[str, Any]) -> tuple[float, bool, bool]:
    """``older_than_seconds``, ``dry_run`` and ``jobs`` of the body. Raises UsageError."""
    keys = ("older_than_seconds", "dry_run", "jobs")
    if wrong := [key for key in data if key not in keys]:
        raise UsageError(f"unknown key {wrong[0]!r}", hint=f"use {', '.join(keys)}")
    seconds = data.get(keys[0])
    flags = [data.get(key, False) for key in keys[1:]]
    number = seconds if isinstance(seconds, int | float) else -1.0
    if isinstance(seconds, bool) or not 0 <= number <= _MOST:
        hint = "give seconds, 0 or more"
        raise UsageError(f"{seconds!r} is not a duration", where=keys[0], hint=hint)
    if not all(isinstance(flag, bool) for flag in flags):
        raise UsageError("not a boolean", where="dry_run, jobs", hint="give true or false")
    return float(number), flags[0], flags[1]


def _item(item: Item) -> RemovedItem:
    used = iso_time(item.used_at) if item.used_at else None
    return {
        "kind": str(item.kind),
        "name": _text(item.name),
        "path": _text(item.path),
        "why": item.why,
        "bytes": item.size,
        "used_at": used,
    }


def _failed(failed: Failed) -> FailedRemoval:
    return {"path": _text(failed.path), "message": failed.message}


def _text(name: str) -> str:
    """The name with bytes replaced that are not UTF-8."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
