"""State folders, for Python programs: what jobs go on from, and what it was before."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any, NamedTuple

from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import state_path
from allranks.sdk.transfer.download import download_state


class StateVersion(NamedTuple):
    """What was in a state once: of which attempt of which job, and why it was kept; ``written_at``
    is when its newest file was, None where it has none."""

    version: int
    made_at: str
    written_at: str | None
    job: str | None
    attempt: int | None
    why: str
    files: int
    size: int


class StateFolder(NamedTuple):
    """A state as it is now. ``own``: it is a job's, of the job's name; ``held_by``: the job that
    has it, if one has; ``versions`` are told by ``get`` alone, the newest first."""

    name: str
    own: bool
    version: int | None
    made_at: str | None
    held_by: str | None
    files: int
    size: int
    versions: tuple[StateVersion, ...] = ()


class States:
    """The operations on state folders; all raise AllranksError, with a hint. The name of a job is
    the name of its own."""

    def list(self, own: bool = False) -> builtins.list[StateFolder]:
        """Those that have a name, or the ``own`` ones of jobs."""
        found = find_server.ask("GET", "/api/v1/states" + ("?own=true" if own else ""))
        return [_told(each) for each in found]

    def get(self, name: str) -> StateFolder:
        return _told(find_server.ask("GET", state_path(name)))

    def entries(self, name: str, version: int | None = None) -> builtins.list[dict[str, Any]]:
        """Everything in it now, or in a version, the newest last: "path", "what" ("file", "folder",
        "link"), "size" and "sha256" of files, "target" of links."""
        query = "" if version is None else f"?version={version}"
        found: builtins.list[dict[str, Any]] = find_server.ask(
            "GET", state_path(name, f"/manifest{query}")
        )
        return found

    def restore(self, name: str, version: int) -> StateFolder:
        """Have what was in a version: the next job goes on from there."""
        return _told(find_server.ask("POST", state_path(name, "/restore"), {"version": version}))

    def download(
        self, name: str, version: int | None = None, download_path: str | Path = "."
    ) -> Path:
        """Fetch its files into a folder of its name in ``download_path``, held against their
        checksums; the folder. What is there already is not fetched again."""
        download_state(find_server.connect, name, Path(download_path), version)
        return Path(download_path, name)

    def delete(self, name: str) -> None:
        """Remove it with all its versions: there is no way back."""
        find_server.ask("DELETE", state_path(name))


def _told(told: dict[str, Any]) -> StateFolder:
    versions = tuple(StateVersion(**each) for each in told.get("versions", ()))
    return StateFolder(**{**told, "versions": versions})
