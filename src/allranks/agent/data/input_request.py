"""An input to provide, and what all its sources have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from allranks.agent.data.file_entry import FileEntry
from allranks.core.data.addresses import Account
from allranks.errors import AllranksError, NotFound
from allranks.masking import without_credentials

# A step that is empty, `.` or `..`, or a NUL.
_NO_PATH = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)|\0")


class InputRequest(NamedTuple):
    """An input to provide, from ``uri`` (opened with ``account``) or from the path ``source``.

    ``share``: this node's index and the number of nodes, for sharded inputs. ``copy``: a folder of
    the job to hard-link the files into. ``unpack``: extract its archives.
    """

    name: str
    uri: str = ""
    source: str = ""
    account: Account | None = None
    datastore: str = ""
    share: tuple[int, int] | None = None
    unpack: bool = False
    copy: str = ""

    @property
    def location(self) -> str:
        """The URI or path, without credentials."""
        return without_credentials(self.uri or self.source)

    def own_share(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        """Of all files of the input those that this node gets. Raises AllranksError."""
        for entry in entries:
            self._check_name(entry.name)
        if self.share is None:
            return [*entries]
        index, nodes = self.share
        own = sorted(entries)[index::nodes]
        if not own:
            raise NotFound(
                f"the input {self.name} has fewer files than the job has nodes",
                where=self.location,
                hint="use fewer nodes, or remove `sharded`",
            )
        return own

    def _check_name(self, name: str) -> None:
        """Raise AllranksError for a name that is not a path below the input's folder."""
        if _NO_PATH.search(name):
            raise AllranksError(
                f"{name!r} of the input {self.name} is not a valid file name on this node",
                where=self.location,
                hint="rename it in the store, or use another path",
            )
