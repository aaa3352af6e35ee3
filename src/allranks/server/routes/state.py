"""Routes for people's state folders: what there is, what was, and one in the place of the other.
Their contents are told of with the files of jobs."""

from __future__ import annotations

import contextlib
import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel

from allranks.errors import NotFound
from allranks.plan.data.state_manifest import Entries
from allranks.server.auth.roles import OWNER, Role, Who, hold_to, hold_to_own
from allranks.server.dependencies import Services, services
from allranks.server.http.request_limits import Count
from allranks.server.jobs.view import submitter
from allranks.server.timestamps import when
from allranks.store.files.state_folders import State, Version

With = Annotated[Services, Depends(services)]
router = APIRouter(prefix="/api/v1/states")


class Wanted(BaseModel):
    version: Count


@router.get("")
def list_states(with_: With, own: bool = False) -> list[dict[str, Any]]:
    """Those that have a name, or the ``own`` ones of jobs, by name."""
    return [_brief(with_, each) for each in with_.states.several(own)]


@router.get("/{state}")
def show(state: str, with_: With) -> dict[str, Any]:
    """One, with its versions, the newest first."""
    found = with_.states.settled(state)
    versions = [_version(each) for each in reversed(found.versions())]
    return {**_brief(with_, found), "versions": versions}


@router.get("/{state}/manifest")
def manifest(state: str, with_: With, version: Count | None = None) -> Response:
    """Everything in it now, or in a version, in the order in which it came: of a file its size and
    SHA-256; ``mtime_ns`` is that of the content as it lies here, 0 where it is gone."""
    found = with_.states.settled(state)
    entries = found.entries() if version is None else found.version(version).entries
    # By hand: a name that is not UTF-8 is written as the escapes that make it whole again.
    return Response(json.dumps(_files(found, entries)), media_type="application/json")


@router.post("/{state}/restore")
def restore(state: str, wanted: Wanted, with_: With, who: Who) -> dict[str, Any]:
    """Have what was in a version: it becomes the newest. That is for admins, and for whoever
    submitted the last job that had the state."""
    by = _submitter(with_, with_.states.last_job(state))
    hold_to_own(who, f"the last job that had {state}", by)
    with_.states.restore(state, wanted.version)
    return show(state, with_)


@router.delete("/{state}")
def delete(state: str, with_: With, who: Who) -> dict[str, Any]:
    """Take it away with all of its versions. That is for admins; a job's own is also for whoever
    submitted the job."""
    told = show(state, with_)
    if told["own"]:
        hold_to_own(who, state, _submitter(with_, state))
    else:
        hold_to(who, Role.ADMIN)
    with_.states.delete(state)
    return told


def _submitter(with_: Services, job: str) -> str:
    """Who submitted it; of a job that is not known the owner."""
    with contextlib.suppress(NotFound):
        return submitter(with_.records.get(job).spec)
    return OWNER.name


def _brief(with_: Services, state: State) -> dict[str, Any]:
    newest, entries, holder = state.newest(), state.entries(), with_.states.holder(state)
    return {
        "name": state.folder.name,
        "own": with_.states.is_own(state),
        "version": newest.number if newest else None,
        "made_at": when(newest.at) if newest else None,
        "held_by": holder.name if holder else None,
        "files": sum(each.what == "file" for each in entries.values()),
        "size": sum(each.size for each in entries.values()),
    }


def _version(version: Version) -> dict[str, Any]:
    written = max((e.mtime_ns for e in version.entries.values() if e.what == "file"), default=0)
    return {
        "version": version.number,
        "made_at": when(version.at),
        "written_at": when(written / 1e9) if written else None,
        "job": version.job or None,
        "attempt": version.attempt or None,
        "why": version.why,
        "files": version.files,
        "size": version.size,
    }


def _files(state: State, entries: Entries) -> list[dict[str, Any]]:
    found = []
    for path, each in sorted(entries.items(), key=lambda item: item[1].seq):
        told: dict[str, Any] = {"path": path, "what": each.what}
        if each.what == "link":
            told["target"] = each.target
        if each.what == "file":
            told |= {"size": each.size, "sha256": each.sha256, "mtime_ns": 0}
            with contextlib.suppress(OSError):
                told["mtime_ns"] = state.content(each.sha256).stat().st_mtime_ns
        found.append(told)
    return found
