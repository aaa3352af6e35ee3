"""The source of an input: an address in a store, or a path on this node."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import obstore

from allranks.agent.data import local_files, object_stores
from allranks.agent.data.file_entry import Changed, FileEntry, Report
from allranks.agent.data.input_request import InputRequest
from allranks.core.data import addresses
from allranks.core.data.addresses import Address
from allranks.errors import AllranksError, NotFound, Passing


class Source:
    """Lists and reads the files of an input. Raises AllranksError if its store cannot be opened."""

    def __init__(self, request: InputRequest) -> None:
        self.request = request
        self._address: Address | None = None
        if request.uri:
            assert request.account is not None
            address = addresses.address(request.uri)
            self._address = Address(request.account.store, address.key)
            self._opened = object_stores.open_store(request.account, address)

    def list_files(self) -> tuple[list[FileEntry], bool]:
        """List this node's share of the files. The second value tells whether the input is a single
        file. Raises AllranksError."""
        try:
            entries, is_file = self._list_all()
        except (OSError, object_stores.STORE_ERRORS) as error:
            entries, is_file = self._list_public(error)
        if not entries:
            raise self.explain(FileNotFoundError())
        return self.request.own_share(entries), is_file

    def _list_all(self) -> tuple[list[FileEntry], bool]:
        if self._address is None:
            return local_files.list_files(Path(self.request.source))
        key = self._address.key
        if self._address.store.kind == "https":
            # HTTP sites have no listing; the URL is one file.
            one = object_stores.head(self._opened, "")
            name = unquote(key.partition("?")[0]).rpartition("/")[2] or "data"
        else:
            if objects := [*object_stores.listing(self._opened, key)]:
                return self._entries_below(objects, key), False
            one = object_stores.head(self._opened, key) if key else None
            name = key.rpartition("/")[2]
        if one is None:
            return [], False
        return [FileEntry(name, one.key, one.size, one.tag, one.mtime)], True

    def _list_public(self, refused: Exception) -> tuple[list[FileEntry], bool]:
        """List what is ``refused`` to this node without credentials: it may be public. Raises
        AllranksError."""
        account, address = self.request.account, self._address
        own = account is None or account.credentials or account.store.kind == "https"
        if address is None or account is None or own or not object_stores.may_be_public(refused):
            raise self.explain(refused) from None
        self._opened = object_stores.open_store(account, address, public=True)
        try:
            # A container may let its objects be read, and not listed.
            one = object_stores.head(self._opened, address.key) if address.key else None
            if one is None:
                return self._list_all()
        except (OSError, object_stores.STORE_ERRORS) as error:
            away = isinstance(self.explain(error), Passing) and not object_stores.is_final(error)
            raise self.explain(error if away else refused) from None
        name = address.key.rpartition("/")[2]
        return [FileEntry(name, one.key, one.size, one.tag, one.mtime)], True

    def _entries_below(
        self, objects: Sequence[object_stores.StoredObject], key: str
    ) -> list[FileEntry]:
        """Objects as files below a folder. Skips the empty objects with which consoles mark
        folders. Raises AllranksError if a name is a file and a folder."""
        start = len(key) + 1 if key else 0
        folders = set()
        for folder in {item.key[start:].rpartition("/")[0] for item in objects} - {""}:
            parts = folder.split("/")
            folders |= {"/".join(parts[:n]) for n in range(1, len(parts) + 1)}
        entries = []
        for item in objects:
            name = item.key[start:]
            if name not in folders:
                entries.append(FileEntry(name, item.key, item.size, item.tag, item.mtime))
            elif item.size:
                raise AllranksError(
                    f"{name!r} of the input {self.request.name} is both a file and a folder",
                    where=self.request.location,
                    hint="a file system cannot hold both: rename one of them in the store",
                )
        return entries

    def fetch(
        self, items: Sequence[FileEntry], folder: Path, journal: Path, report: Report
    ) -> dict[str, int]:
        """Copy all files to ``folder``. Returns their checksums by name. Raises Changed, OSError
        and AllranksError."""
        if self._address is None:
            return local_files.copy_files(items, folder, report)
        # lazy: asyncio, unused when everything is cached
        from allranks.agent.data.download import fetch

        try:
            return fetch(self._opened, items, folder, journal, report)
        except object_stores.STORE_ERRORS as error:
            raise self.explain(error) from None

    def read_range(self, item: FileEntry, start: int, end: int) -> memoryview:
        """Read the bytes of a file from ``start`` to ``end``. Raises Changed, OSError and the
        store's exceptions."""
        if self._address is None:
            return local_files.read_range(item, start, end)
        try:
            options = object_stores.get_options(item.tag, (start, end))
            answer = obstore.get(self._opened, item.key, options=options)
            data = memoryview(answer.bytes())
        except object_stores.CHANGED as error:
            raise Changed(str(error)) from None
        if len(data) != end - start or object_stores.is_different(answer.meta, item):
            raise Changed(item.name)
        return data

    def explain(self, error: Exception) -> AllranksError:
        """The error to show for an exception of the store or the file system."""
        if self._address is None:
            number = getattr(error, "errno", None)
            reason = os.strerror(number).lower() if number else "no file in the folder"
            return NotFound(
                f"cannot read the input {self.request.name}: {reason}",
                where=self.request.source,
                hint="check the path and its permissions",
            )
        return object_stores.explain(error, self._address, self.request.datastore)
