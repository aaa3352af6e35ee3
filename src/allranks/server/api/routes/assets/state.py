"""Routes for state folders: list, show, restore and delete. `job_files` has the routes for their
contents."""

from __future__ import annotations

import contextlib
import json
from typing import Annotated

from pydantic import BaseModel
from starlette.responses import Response

from allranks.api.assets import ShownState, StateAnswer, StateEntry, StateVersion
from allranks.api.routes import Role
from allranks.core.data.state_manifest import Entries
from allranks.errors import NotFound
from allranks.server.auth.roles import OWNER, Who, require_own, require_role
from allranks.server.dependencies import Services, ServicesDep
from allranks.server.http.content import Content
from allranks.server.http.request_limits import Count
from allranks.server.jobs.view import submitter
from allranks.server.timestamps import iso_time
from allranks.store.files.state_folders import State, Version


class RestoreRequest(BaseModel):
    version: Count


def list_states(services: ServicesDep, own: bool = False) -> list[StateAnswer]:
    """The named states, or with ``own`` those of jobs, by name."""
    return [_brief(services, each) for each in services.states.several(own)]


def show(state: str, services: ServicesDep) -> ShownState:
    """A state with its versions, the newest first."""
    folder = services.states.settled(state)
    versions = [_version(version) for version in reversed(folder.versions())]
    return {**_brief(services, folder), "versions": versions}


def manifest(
    state: str, services: ServicesDep, version: Count | None = None
) -> Annotated[Response, Content(list[StateEntry])]:
    """The current entries, or those of a version, in the order of creation."""
    folder = services.states.settled(state)
    entries = folder.entries() if version is None else folder.version(version).entries
    # Not JSONResponse: json.dumps escapes names that are not UTF-8 without loss.
    return Response(json.dumps(_files(folder, entries)), media_type="application/json")


def restore(state: str, body: RestoreRequest, services: ServicesDep, who: Who) -> ShownState:
    """Restore a version as the newest. For admins and the submitter of the last job that had the
    state."""
    by = _submitter(services, services.states.last_job(state))
    require_own(who, f"the last job that used {state}", by)
    services.states.restore(state, body.version)
    return show(state, services)


def delete(state: str, services: ServicesDep, who: Who) -> ShownState:
    """Delete a state with all its versions. For admins; a job's own state also for its
    submitter."""
    shown = show(state, services)
    if shown["own"]:
        require_own(who, state, _submitter(services, state))
    else:
        require_role(who, Role.ADMIN)
    services.states.delete(state)
    return shown


def _submitter(services: Services, job: str) -> str:
    """Who submitted the job; the home's owner if the job is unknown."""
    with contextlib.suppress(NotFound):
        return submitter(services.records.get(job).spec)
    return OWNER.name


def _brief(services: Services, state: State) -> StateAnswer:
    newest = state.newest()
    entries = state.entries()
    holder = services.states.holder(state)
    return {
        "name": state.folder.name,
        "own": services.states.is_own(state),
        "version": newest.number if newest else None,
        "made_at": iso_time(newest.at) if newest else None,
        "held_by": holder.name if holder else None,
        "files": sum(entry.what == "file" for entry in entries.values()),
        "size": sum(entry.size for entry in entries.values()),
    }


def _version(version: Version) -> StateVersion:
    written = max((e.mtime_ns for e in version.entries.values() if e.what == "file"), default=0)
    return {
        "version": version.number,
        "made_at": iso_time(version.at),
        "written_at": iso_time(written / 1e9) if written else None,
        "job": version.job or None,
        "attempt": version.attempt or None,
        "why": version.why,
        "torn": list(version.torn),
        "files": version.files,
        "size": version.size,
    }


def _files(state: State, entries: Entries) -> list[StateEntry]:
    files: list[StateEntry] = []
    for path, entry in sorted(entries.items(), key=lambda item: item[1].seq):
        shown: StateEntry = {"path": path, "what": entry.what}
        if entry.what == "link":
            shown["target"] = entry.target
        else:
            shown["written_ns"] = entry.mtime_ns
        if entry.what == "file":
            shown["size"] = entry.size
            shown["sha256"] = entry.sha256
            shown["mtime_ns"] = 0
            with contextlib.suppress(OSError):
                shown["mtime_ns"] = state.content(entry.sha256).stat().st_mtime_ns
        files.append(shown)
    return files
