"""The files of a data asset in an object store, read for people who have no credentials for it.
Imports obstore."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.agent.data import object_stores
from allranks.agent.data.file_entry import Changed, FileEntry
from allranks.agent.data.input_request import InputRequest
from allranks.agent.data.input_source import Source
from allranks.core.data import addresses
from allranks.core.data.addresses import Account, Located
from allranks.errors import Conflict

_PIECE = 8 << 20


class StoredData:
    """The data at ``place``. All raise AllranksError for what the store refuses, and Conflict for
    objects that change while they are read."""

    def __init__(self, place: Located, account: Account) -> None:
        self._address = addresses.address(place.uri)._replace(store=account.store)
        self._source = Source(InputRequest(place.asset, place.uri, "", account, place.datastore))
        self._opened = object_stores.open_store(account, self._address)
        self.name = f"the data asset {place.asset}"

    def files(self) -> list[FileEntry]:
        return self._source.list_files()[0]

    def find(self, path: str) -> FileEntry | None:
        """The file of that name, or None. A single file has the last name of its key."""
        places = [addresses.within(self._address, path)]
        if path == self._address.key.rpartition("/")[2]:
            places.append(self._address)
        try:
            for place in places:
                if (one := object_stores.head(self._opened, place.key)) is not None:
                    return FileEntry(path, one.key, one.size, one.tag, one.mtime)
        except (OSError, object_stores.STORE_ERRORS) as error:
            raise self._source.explain(error) from None
        return None

    def read(self, file: FileEntry, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            stop = min(start + _PIECE, end)
            try:
                yield bytes(self._source.read_range(file, start, stop))
            except Changed:
                hint = "wait until it is written, then try again"
                raise Conflict("the object changed meanwhile", where=file.key, hint=hint) from None
            except (OSError, object_stores.STORE_ERRORS) as error:
                raise self._source.explain(error) from None
            start = stop
