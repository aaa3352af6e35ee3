"""Data assets read straight from their object store, where this machine has credentials for it."""

from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.agent.data.file_entry import FileEntry
from allranks.api import routes
from allranks.core.data import addresses
from allranks.core.data.address_map import mapped
from allranks.core.data.addresses import Located
from allranks.http_client import Client, shaped
from allranks.sdk.transfer.fetch import Entry, Tally
from allranks.sdk.transfer.write_files import beside, checked, destination, is_there
from allranks.sdk.upload.stores import NO_STORES, own_account

if TYPE_CHECKING:
    from allranks.agent.data.stored_data import StoredData
    from allranks.api.assets import DataAnswer, DatastoreAnswer

_HEAD = "azureml://datastores/"
# Bytes of a request, and requests for one file at a time.
_PIECE, _AHEAD = 8 << 20, 4


def own_data(client: Client, asset: DataAnswer) -> StoredData | None:
    """The data of an asset in a datastore that this machine's own credentials may open; None: only
    the server's can."""
    path = mapped(asset["path"], shaped(client.ask(routes.show_data_map), {str: str}))
    name, separator, rest = path.removeprefix(_HEAD).partition("/paths/")
    if not path.startswith(_HEAD) or not separator or "/" in name:
        return None
    answer = client.ask(routes.list_datastores)
    stores: list[DatastoreAnswer] = shaped(answer, [{"name": str, "type": str}])
    store = next((s for s in stores if s["name"] == name and s["type"] not in NO_STORES), None)
    own = None if store is None else own_account(store)
    if own is None:
        return None
    from allranks.agent.data.stored_data import StoredData  # lazy: obstore

    account, root = own
    reference = f"{asset['name']}:{asset['version']}"
    return StoredData(Located(uri=str(addresses.within(root, rest)), asset=reference), account)


def entries(name: str, files: Sequence[FileEntry]) -> list[Entry]:
    """The files in a folder of that ``name``. The part of each has its tag in its name, so that
    only the same content is continued."""
    targets = [checked(f"{name}/{file.name}") for file in files]
    taken = {*targets}
    return [
        Entry(
            file.name,
            file.size,
            int(file.mtime * 1e9),
            target,
            beside(_tagged(target, file), taken),
        )
        for file, target in zip(files, targets, strict=True)
    ]


def _tagged(target: str, file: FileEntry) -> str:
    return f"{target}.{zlib.crc32(file.tag.encode()):08x}"


class StoreFetcher:
    """Downloads ``files`` by name into ``folder``, until ``stop``. Raises AllranksError,
    Interrupted."""

    def __init__(
        self,
        data: StoredData,
        files: Sequence[FileEntry],
        folder: Path,
        tally: Tally,
        stop: threading.Event,
    ) -> None:
        self._data, self._files = data, {file.name: file for file in files}
        self._folder, self._tally, self._stop = folder, tally, stop
        self._pool = ThreadPoolExecutor(_AHEAD)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def do(self, unit: Sequence[Entry]) -> None:
        for entry in unit:
            self._one(entry)

    def _one(self, entry: Entry) -> None:
        with destination(self._folder, entry.target, entry.part, self._stop) as file:
            if is_there(self._folder, entry.target, entry.size, entry.mtime_ns):
                file.cut()  # another process has downloaded it
                self._tally.add(entry.size, 0)
            else:
                if file.size > entry.size:
                    file.cut()
                self._tally.add(file.size, 0)
                for piece in self._pieces(self._files[entry.path], file.size):
                    file.write(piece)
                    self._tally.add(len(piece), len(piece))
                file.finish(entry.mtime_ns)
            self._tally.landed(entry)

    def _pieces(self, file: FileEntry, start: int) -> Iterator[bytes]:
        pending = deque[Future[bytes]]()
        for at in range(start, file.size, _PIECE):
            end = min(at + _PIECE, file.size)
            pending.append(self._pool.submit(b"".join, self._data.read(file, at, end)))
            if len(pending) == _AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
