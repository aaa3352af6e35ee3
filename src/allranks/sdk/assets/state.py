"""State folders and their versions, for Python programs."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.api import routes
from allranks.sdk.connection import find_server
from allranks.sdk.transfer.download import download_state

if TYPE_CHECKING:
    from allranks.api.assets import ShownState, StateAnswer, StateEntry


class StateVersion(NamedTuple):
    """A version of a state: the job and attempt that wrote it, and why it was kept. ``written_at``
    is the time of its newest file, None without files; ``torn`` names incomplete files, whose rank
    was killed."""

    version: int
    made_at: str
    written_at: str | None
    job: str | None
    attempt: int | None
    why: str
    files: int
    size: int
    torn: Sequence[str] = ()


class StateFolder(NamedTuple):
    """A state folder. ``own``: it belongs to the job of that name. ``held_by``: the job that uses
    it now, if any. ``versions`` are filled by ``get`` only, newest first."""

    name: str
    own: bool
    version: int | None
    made_at: str | None
    held_by: str | None
    files: int
    size: int
    versions: tuple[StateVersion, ...] = ()


class States:
    """Operations on state folders. All raise AllranksError with a hint. A job's own state has the
    job's name."""

    def list(self, own: bool = False) -> builtins.list[StateFolder]:
        """The named states, or with ``own`` those of jobs."""
        listing = find_server.ask(routes.list_states, own=own or None)
        return [_folder(each) for each in listing]

    def get(self, name: str) -> StateFolder:
        return _folder(find_server.ask(routes.show_state, name))

    def entries(self, name: str, version: int | None = None) -> builtins.list[StateEntry]:
        """The entries of the state or of a version, newest last: "path", "what" ("file", "folder",
        "link"), "size" and "sha256" of files, "target" of links."""
        return find_server.ask(routes.state_manifest, name, version=version)

    def restore(self, name: str, version: int) -> StateFolder:
        """Restore a version; the next job continues from it."""
        return _folder(find_server.ask(routes.restore_state, name, body={"version": version}))

    def download(
        self, name: str, version: int | None = None, download_path: str | Path = "."
    ) -> Path:
        """Download its files into a folder of its name in ``download_path`` and verify their
        checksums; returns the folder. Existing files are not downloaded again."""
        download_state(find_server.connect, name, Path(download_path), version)
        return Path(download_path, name)

    def delete(self, name: str) -> None:
        """Permanently delete it with all versions."""
        find_server.ask(routes.delete_state, name)


def _folder(answer: StateAnswer | ShownState) -> StateFolder:
    keys: Mapping[str, Any] = answer
    versions = tuple(StateVersion(**version) for version in keys.get("versions", ()))
    return StateFolder(**{**keys, "versions": versions})
