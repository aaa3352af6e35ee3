"""Upload a file or a folder of this machine: what of it the server has not got.

Content is named by its hash, so nothing is sent twice, and an upload that was cut goes on where it
ended. Nothing is written here but the cache of hashes.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeVar, cast

from allranks.api import routes
from allranks.core.amounts import counted, size_text
from allranks.core.data.upload_manifest import File, Link, Manifest
from allranks.core.shared_work import Interrupted, Shared, large_first
from allranks.core.transfer_progress import OnProgress, Progress, unheard
from allranks.errors import Conflict, MissingData, ServerError, UsageError
from allranks.http_client import Client, FilePart
from allranks.sdk.connection.reopened import Connection, Cut
from allranks.sdk.upload import stores
from allranks.sdk.upload.digests import Digests, changed, open_data
from allranks.sdk.upload.listing import Listing, Note, Source, list_data, too_large, unreadable
from allranks.store.files import same_data

if TYPE_CHECKING:
    from allranks.api.assets import WrittenPart

T = TypeVar("T")

MOST_BYTES = 2 << 30
# Files up to a size are sent in packs of at most so many bytes and files, others in pieces: larger
# ones while a piece takes less than so many seconds, as each waits for its answer. At 1 Gbit/s the
# largest takes one second.
_SMALL, _PACK, _FILES, _PIECE = 1 << 20, 4 << 20, 1000, 16 << 20
_LARGEST, _QUICK = 128 << 20, 2.0
# Hashes that are asked for at a time.
_ASKED = 20_000
# In seconds: the server makes links of all files.
_PATIENCE = 6 * 3600.0
# How often blobs are sent that are removed meanwhile.
_TRIES = 3


class Uploaded(NamedTuple):
    """``path`` is its address for jobs. ``sent``: bytes that the server had not got yet."""

    path: str
    files: int
    size: int
    sent: int
    is_file: bool


class _Blob(NamedTuple):
    """Content to be sent: a file, or ``data``. ``early`` is the name that its part may have."""

    digest: str
    size: int
    file: str = ""
    data: bytes = b""
    early: str = ""

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Raises UsageError."""
        if not self.file:
            yield io.BytesIO(self.data)
            return
        try:
            with open_data(self.file) as file, open(file, "rb", buffering=0, closefd=False) as raw:
                yield raw
        except FileNotFoundError:
            raise changed(self.file) from None
        except OSError as error:
            raise unreadable(error, Path(self.file)) from None


def upload(
    connect: Callable[[], Client],
    path: Path,
    *,
    datastore: str = "",
    allow_large: bool = False,
    note: Note = lambda sentence: None,
    progress: OnProgress = unheard,
) -> Uploaded:
    """Upload a file or a folder to the object store ``datastore`` (the default datastore, if it is
    one), else to the server's own store. ``note`` receives what is left out.

    Raises DataTooLarge unless ``allow_large``, NotFound, UsageError for data that cannot be read or
    changes meanwhile, ServerError for a full disk, Unreachable when the server stays away.
    """
    with _Sending(connect, progress) as sending:
        store = sending.ask(lambda client: stores.target(client, datastore))
        listing = list_data(path, note, progress, allow_large)
        digests = Digests(path)
        unread = sum(source.status.st_size for source in digests.unknown(listing))
        if unread > MOST_BYTES and not allow_large:
            raise too_large(
                path, f"{size_text(listing.size)} ({counted(len(listing.sources), 'file')})"
            )
        sending.name = listing.name
        if store is None:
            sending.send_unread(listing, digests)
        manifest = _manifest(listing, digests.of(listing, progress))
        text = manifest.dump()
        whole = _Blob(hashlib.sha256(text).hexdigest(), len(text), data=text)
        is_file = bool(listing.sources) and not listing.sources[0].path
        if store is not None:
            files = {s.path: s.file for s in listing.sources}
            straight = sending.ask(
                lambda client: stores.straight(client, store, text, files, note, progress)
            )
            if straight is not None:
                place, sent = straight
                return Uploaded(place, len(manifest.files), manifest.size, sent, is_file)
        request = {"manifest": whole.digest, "datastore": store and store["name"]}
        tries = total = 0
        while True:
            try:
                made = sending.ask(
                    lambda client: client.ask(
                        routes.create_upload, body=request, patience=_PATIENCE
                    )
                )
                if made["left"]:
                    total = max(total, made["left"])
                    what = f"{listing.name}: the server is sending it on"
                    progress(Progress(what, total - made["left"], total))
                    continue
                return Uploaded(made["path"], made["files"], made["size"], sending.sent, is_file)
            except MissingData:
                if tries == _TRIES:
                    raise
                tries += 1
                sending.send([_blob(f.sha256, s, digests) for f, s in _pairs(manifest, listing)])
                # The manifest last, so that it never refers to missing content.
                data = sending.sent
                sending.deliver([whole])
                sending.sent = data


def _manifest(listing: Listing, digests: Mapping[str, str]) -> Manifest:
    files = [
        File(s.path, s.status.st_size, digests[s.path], bool(s.status.st_mode & stat.S_IXUSR))
        for s in listing.sources
    ]
    links = [Link(*link) for link in listing.links]
    return Manifest(listing.name, files, links, listing.folders)


def _blob(digest: str, source: Source, digests: Digests) -> _Blob:
    size = source.status.st_size
    early = digests.early_name(source) if size >= same_data.SAMPLED else ""
    return _Blob(digest, size, source.file, early=early)


def _pairs(manifest: Manifest, listing: Listing) -> Iterator[tuple[File, Source]]:
    return zip(manifest.files, listing.sources, strict=True)


class _Sending:
    """Sends blobs over a few connections, which are kept: far away a new one costs a round trip.
    ``sent``: the bytes so far."""

    def __init__(self, connect: Callable[[], Client], progress: OnProgress) -> None:
        self._connect, self._progress = connect, progress
        self._lock, self._one_at_a_time = threading.Lock(), threading.Lock()
        self._idle = list[Client]()
        self.name, self.sent = "", 0

    def __enter__(self) -> _Sending:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._idle:
            client.close()

    def ask(self, ask: Callable[[Client], T]) -> T:
        connection = self._connection(threading.Event())
        try:
            return connection.ask(ask)
        finally:
            self._release(connection)

    def send(self, blobs: Sequence[_Blob]) -> None:
        """Send those that the server lacks, each once."""
        by_digest = {blob.digest: blob for blob in blobs}
        self.deliver([by_digest[digest] for digest in self._missing([*by_digest])])

    def send_unread(self, listing: Listing, digests: Digests) -> None:
        """Send large files whose hashes are not known while they are read; of several that may be
        the same only one."""
        by_sample = dict[str, Source]()
        for source in digests.unknown(listing):
            if (size := source.status.st_size) >= same_data.SAMPLED:
                with contextlib.suppress(OSError):  # whoever reads it will say so
                    by_sample[same_data.sample(os.path.realpath(source.file), size)] = source

        def read(source: Source, count: Callable[[int], None]) -> _Blob:
            return _blob(digests.read(listing, source, count), source, digests)

        units = [
            _Unread(_blob("", source, digests), sample, partial(read, source))
            for sample, source in by_sample.items()
        ]
        self._share(units, sum(unit.blob.size for unit in units))

    def deliver(self, missing: Sequence[_Blob]) -> None:
        """Send what the server lacks."""
        units = [*large_first(missing, lambda blob: blob.size, _SMALL, _PACK, _FILES)]
        self._share(units, sum(blob.size for blob in missing))

    def _share(self, units: Sequence[_Unread | Sequence[_Blob]], total: int) -> None:
        done, stop = 0, threading.Event()

        def count(here: int, sent: int) -> None:
            nonlocal done
            if stop.is_set():
                raise Interrupted
            with self._lock:
                done += here
                self.sent += sent

        def report() -> None:
            self._progress(Progress(f"{self.name}: uploading", done, total, moved=self.sent))

        def sender() -> _Sender:
            return _Sender(self._connection(stop), count, self._release)

        Shared(units, stop).run(sender, report)

    def _missing(self, digests: Sequence[str]) -> Iterator[str]:
        for at in range(0, len(digests), _ASKED):
            some = digests[at : at + _ASKED]
            yield from self.ask(lambda client: client.ask(routes.missing_blobs, body=some))  # noqa: B023

    def _connection(self, stop: threading.Event) -> Connection:
        def connected() -> Client:
            with self._one_at_a_time:  # one of several connections starts a missing server
                return self._connect()

        with self._lock:
            client = self._idle.pop() if self._idle else None
        return Connection(connected, stop, "what was sent is kept", client)

    def _release(self, connection: Connection) -> None:
        client = connection.release()
        if client is not None:
            with self._lock:
                self._idle.append(client)


class _Unread(NamedTuple):
    """A blob whose digest is not known. ``read`` reads it, and returns it with its digest."""

    blob: _Blob
    sample: str
    read: Callable[[Callable[[int], None]], _Blob]


class _Sender:
    """Sends blobs over one connection; ``count`` receives the bytes that are there now, and those
    that were sent, ``release`` the connection in the end."""

    def __init__(
        self,
        connection: Connection,
        count: Callable[[int, int], None],
        release: Callable[[Connection], None],
    ) -> None:
        self._connection, self._count, self._release = connection, count, release

    def close(self) -> None:
        self._release(self._connection)

    def do(self, unit: _Unread | Sequence[_Blob]) -> None:
        if isinstance(unit, _Unread):
            self._unread(unit)
        elif unit[0].size > _SMALL:
            self._large(unit[0])
        else:
            self._pack(unit)

    def _pack(self, blobs: Sequence[_Blob]) -> None:
        contents = []
        for blob in blobs:
            with blob.open() as file:
                contents.append(file.read(blob.size) if blob.size else b"")
        head = json.dumps([[blob.digest, blob.size] for blob in blobs]).encode()
        body = b"".join([head, b"\n", *contents])
        to = routes.put_pack.at()
        try:
            self._connection.ask(lambda client: client.call(*to, body, timeout=600))
        except UsageError:  # the server has hashed something else
            for blob, content in zip(blobs, contents, strict=True):
                if hashlib.sha256(content).hexdigest() != blob.digest:
                    raise changed(blob.file) from None
            raise
        size = sum(blob.size for blob in blobs)
        self._connection.hear()
        self._count(size, size)

    def _unread(self, unit: _Unread) -> None:
        """Send a blob while it is read; from when its digest is known on as any other."""
        is_over = threading.Event()

        def count(_: int) -> None:
            if is_over.is_set():
                raise Interrupted
            self._count(0, 0)

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(unit.read, count)
            try:
                early, size, sample = unit.blob.early, unit.blob.size, unit.sample
                part = self._connection.ask(
                    lambda client: client.ask(routes.blob_part, early, size=size, sample=sample)
                )
                blob = unit.blob._replace(digest=early, early="")
                counted = 0
                if not part["alike"]:  # else nothing of it may have to be sent
                    with blob.open() as file:
                        counted = self._pieces(blob, file, 0, reading)
                self._large(reading.result(), counted)
            finally:
                is_over.set()

    def _large(self, blob: _Blob, counted: int = 0) -> None:
        with blob.open() as file:
            for _ in range(2):
                try:
                    self._pieces(blob, file, counted)
                    return
                except UsageError:
                    # The server has something else. Damaged on its way, or here?
                    if not _matches(blob, file):
                        break
        raise changed(blob.file)

    def _pieces(
        self, blob: _Blob, file: BinaryIO, counted: int = 0, reading: Future[_Blob] | None = None
    ) -> int:
        """Send a blob from where the server is: all of it, or while it is ``reading``. Returns the
        bytes that are counted. Raises UsageError if its content differs."""
        at, most = self._at(blob), _PIECE
        last = blob.size if reading is None else blob.size - 1
        while at is not None:
            self._count(at - counted, 0)
            counted = at
            if reading is not None and (reading.done() or at == last):
                return counted
            start, end = _extent(file, at, last, most)
            began = time.monotonic()
            try:
                complete = self._put(blob, file, start, end)
            except Conflict:  # another upload of the same is ahead
                at = self._at(blob)
                continue
            except Cut:  # go on from what has arrived, in pieces that this link lets pass
                at, most = self._at(blob), _SMALL
                self._connection.hear(at != counted)
                continue
            self._connection.hear()
            self._count(end - at, end - start)
            if complete:
                return blob.size
            is_quick = time.monotonic() - began < _QUICK
            most = min(2 * most, _LARGEST) if is_quick else min(most, _PIECE)
            counted = at = end
        self._count(blob.size - counted, 0)
        return blob.size

    def _at(self, blob: _Blob) -> int | None:
        """Where to go on; None if the blob is there. Raises ServerError for a full disk."""
        route = routes.adopt_part if blob.early else routes.blob_part
        part = self._connection.ask(
            lambda client: client.ask(route, blob.digest, early=blob.early or None)
        )
        size = part["size"]
        if size is None:
            return None
        if part["free"] < blob.size - size:
            raise ServerError(
                f"the server's disk is full: {size_text(blob.size - size)} are to be uploaded, and "
                f"it has {size_text(part['free'])}",
                where=blob.file or None,
                hint="free space there (allranks gc), then run the same command again",
            )
        return size

    def _put(self, blob: _Blob, file: BinaryIO, start: int, end: int) -> bool:
        """Send a piece once; whether the blob is complete. Raises Conflict and Cut."""
        to = routes.put_part.at(blob.digest, offset=start, size=blob.size)
        piece = cast(BinaryIO, FilePart(file, start, end - start))
        answer = self._connection.ask_once(lambda client: client.call(*to, piece, timeout=600.0))
        written: WrittenPart = json.loads(answer.body)
        return written["complete"]


def _extent(file: BinaryIO, at: int, size: int, most: int) -> tuple[int, int]:
    """The next piece that is not a hole; at the end of the file an empty one."""
    start = at
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        number = file.fileno()
        status = os.fstat(number)
        if status.st_blocks * 512 < status.st_size:
            try:
                start = min(os.lseek(number, at, os.SEEK_DATA), size)
            except OSError:  # nothing but a hole
                start = size
            hole = os.lseek(number, start, os.SEEK_HOLE) if start < size else size
            return start, min(start + most, hole, size)
    return start, min(start + most, size)


def _matches(blob: _Blob, file: BinaryIO) -> bool:
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest() == blob.digest
