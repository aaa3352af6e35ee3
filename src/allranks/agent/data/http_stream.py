"""Serve files of stores to this node's ranks over HTTP, without storing them on disk.

Anything that reads a URL can use them (WebDataset, fsspec, pandas, `curl`). Credentials stay in
this process, parts are read ahead, and lost connections to the store are retried unseen by the
reader.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

from allranks.agent.data import object_stores
from allranks.agent.data.file_entry import Changed, FileEntry
from allranks.agent.data.input_source import Source
from allranks.errors import AllranksError

# Size in bytes of a request to the store, requests ahead of each reader, and the most parts that
# all readers together hold in memory.
PART, READ_AHEAD, _MAX_PARTS = 4 << 20, 3, 64
# Concurrent requests for all readers together.
_MAX_REQUESTS = 32
# Attempts for each part, and the first delay between them.
_ATTEMPTS, _RETRY_SECONDS = 6, 0.5
# Bytes requested to test whether a server supports ranges; some ignore a range that ends at byte 0.
_PROBE_SIZE = 1024
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_SOCKETS = ("/proc/net/tcp", "/proc/net/tcp6")


class Streams:
    """Serves inputs on the loopback address, to processes of its own user only. The file descriptor
    ``statistics`` always has the reads, bytes and first failure of each input, as JSON."""

    def __init__(self, statistics: int) -> None:
        self._statistics, self._lock = statistics, threading.Lock()
        self._readers = 0
        self._served: dict[str, _Served] = {}
        self._pool = ThreadPoolExecutor(_MAX_REQUESTS)
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._pool.shutdown(cancel_futures=True)

    def add(self, source: Source) -> dict[str, Any]:
        """Serve an input. Returns the URL of the folder or file as ``path``, the number of
        ``files`` and their ``size`` in bytes. Raises AllranksError."""
        items, is_file = source.list_files()
        served = _Served(source, {item.name: item for item in items})
        # Fail here, not in a rank, if the site does not support ranges.
        largest = max(items, key=lambda item: item.size)
        if largest.size:
            self.part(served, largest, 0, min(largest.size, _PROBE_SIZE))
        name = source.request.name
        self._served[name] = served
        url = f"http://127.0.0.1:{self._server.server_port}/{_quoted(name)}"
        path = f"{url}/{_quoted(items[0].name)}" if is_file else url
        return {"path": path, "files": len(items), "size": sum(item.size for item in items)}

    def served(self, name: str) -> _Served | None:
        return self._served.get(name)

    def count(
        self, served: _Served, *, reads: int = 0, size: int = 0, failed: AllranksError | None = None
    ) -> None:
        """Add to the statistics of an input: responses begun, bytes sent, the first failure."""
        with self._lock:
            served.reads, served.size = served.reads + reads, served.size + size
            served.failed = served.failed or str(failed or "")
            statistics = [
                {"streamed": name, "reads": it.reads, "size": it.size, "failed": it.failed}
                for name, it in self._served.items()
            ]
            # The text never gets shorter, so overwriting is safe. A full disk does not stop
            # readers.
            with contextlib.suppress(OSError):
                os.pwrite(self._statistics, json.dumps(statistics).encode(), 0)

    def parts(self, served: _Served, item: FileEntry, start: int, end: int) -> Iterator[memoryview]:
        """Yield the bytes from ``start`` to ``end`` in order, reading ahead. Raises
        AllranksError."""
        requests: deque[Future[memoryview]] = deque()
        offsets = deque(range(start, end, PART))
        self._count_readers(1)
        try:
            while offsets or requests:
                ahead = max(1, min(READ_AHEAD, _MAX_PARTS // self._readers))
                while offsets and len(requests) < ahead:
                    at = offsets.popleft()
                    requests.append(
                        self._pool.submit(self.part, served, item, at, min(at + PART, end))
                    )
                yield requests.popleft().result()
        finally:
            self._count_readers(-1)
            for request in requests:
                request.cancel()

    def _count_readers(self, change: int) -> None:
        with self._lock:
            self._readers += change

    def part(self, served: _Served, item: FileEntry, start: int, end: int) -> memoryview:
        """Read a range of a file, with retries. Raises AllranksError."""
        number = 0
        while True:
            try:
                return served.source.read_range(item, start, end)
            except Changed:
                raise _error(
                    served,
                    f"{item.name!r} changed after the start of the job",
                    "use a location that nothing writes to while jobs read it",
                ) from None
            except object_stores.NO_RANGES:
                raise _error(
                    served,
                    "this site does not support range requests, which `mode: stream` needs",
                    "fetch the input before the start instead: `mode: ro_mount`",
                ) from None
            except object_stores.RETRYABLE as error:
                number += 1
                if number == _ATTEMPTS or object_stores.is_final(error):
                    raise served.source.explain(error) from None
                # Jitter: many readers may retry at the same time.
                time.sleep(_RETRY_SECONDS * 2 ** (number - 1) * random.uniform(0.5, 1.5))
            except FileNotFoundError:
                raise _error(
                    served,
                    f"{item.name!r} was deleted after the start of the job",
                    "use a location that nothing is deleted from while jobs read it",
                ) from None
            except (OSError, object_stores.STORE_ERRORS) as error:
                raise served.source.explain(error) from None


class _Served:
    """An input with its statistics: responses and bytes sent, and the first failure."""

    def __init__(self, source: Source, items: Mapping[str, FileEntry]) -> None:
        self.source, self.items = source, items
        self.reads, self.size, self.failed = 0, 0, ""


def _error(served: _Served, what: str, hint: str) -> AllranksError:
    return AllranksError(what, where=served.source.request.location, hint=hint)


class _Server(ThreadingHTTPServer):
    request_queue_size = 512  # many ranks may connect at the same time

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        super().__init__(("127.0.0.1", 0), _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Refuse other users of this machine, who can reach the loopback address too."""
        return _peer_uid(client_address, self.server_port) in (None, 0, os.getuid())

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # the reader disconnected
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "allranks", ""
    # Seconds between requests of a connection; reading a response may take longer.
    timeout = 600

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: ranks read thousands of files."""

    def _answer(self, body: bool) -> None:
        host = self.headers.get("Host") or f"127.0.0.1:{self.server.server_port}"
        if host.partition(":")[0] not in ("127.0.0.1", "localhost"):
            # DNS rebinding: a web page in the user's browser resolves its own name to this address.
            self._send_text(HTTPStatus.FORBIDDEN, f"this server is not {host}\n", body)
            return
        path = os.fsdecode(unquote_to_bytes(urlsplit(self.path).path))
        name, _, rest = path.strip("/").partition("/")
        served = self.server.streams.served(name)
        item = None if served is None else served.items.get(rest)
        if served is None:
            self._send_text(HTTPStatus.NOT_FOUND, f"no input {name!r}\n", body)
        elif not rest:
            urls = (f"http://{host}/{_quoted(name)}/{_quoted(n)}\n" for n in sorted(served.items))
            self._send_text(HTTPStatus.OK, "".join(urls), body)
        elif item is None:
            self._send_text(HTTPStatus.NOT_FOUND, f"the input {name} has no file {rest!r}\n", body)
        else:
            self._send_file(served, item, body)

    def _send_text(self, status: HTTPStatus, text: str, body: bool, **headers: str) -> None:
        data = text.encode(errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for header, value in headers.items():
            self.send_header(header.replace("_", "-"), value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def _send_file(self, served: _Served, item: FileEntry, body: bool) -> None:
        span = None
        if body and self.headers.get("If-Range") in (None, _etag(item)):
            span = _parse_range(self.headers.get("Range"), item.size)
        start, end = span or (0, item.size)
        if span and start >= end:
            text = f"{item.name!r} has {item.size} bytes\n"
            header = {"Content_Range": f"bytes */{item.size}"}
            self._send_text(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, text, body, **header)
            return
        streams = self.server.streams
        parts = streams.parts(served, item, start, end) if body else iter(())
        try:
            # Read a part before the headers, so that a failure can still be a status code.
            piece = next(parts, None)
        except AllranksError as error:
            streams.count(served, failed=error)
            self._send_text(HTTPStatus.BAD_GATEWAY, f"{error}\n", body)
            return
        self._send_headers(item, span)
        if not body:
            return
        streams.count(served, reads=1)
        self.connection.settimeout(None)
        try:
            while piece is not None:
                self.wfile.write(piece)
                streams.count(served, size=len(piece))
                piece = next(parts, None)
        except AllranksError as error:
            # Closing the connection early shows the reader that bytes are missing.
            self.close_connection = True
            streams.count(served, failed=error)
        self.connection.settimeout(self.timeout)

    def _send_headers(self, item: FileEntry, span: tuple[int, int] | None) -> None:
        start, end = span or (0, item.size)
        self.send_response(HTTPStatus.PARTIAL_CONTENT if span else HTTPStatus.OK)
        if span:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{item.size}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(end - start))
        self.send_header("ETag", _etag(item))
        self.send_header("Last-Modified", self.date_time_string(int(item.mtime)))
        self.end_headers()


def _quoted(name: str) -> str:
    return quote(os.fsencode(name))


def _etag(item: FileEntry) -> str:
    return item.tag if item.tag.startswith(('"', "W/")) else f'"{item.tag}"'


def _parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Start and end of a Range header; an empty range if it lies beyond the file. None if the
    header is to be ignored, such as one with several ranges."""
    match = _RANGE.fullmatch(header or "")
    if match is None or not any(match.groups()):
        return None
    first, last = match.groups()
    if not first:
        return max(0, size - int(last)), size
    if last and int(last) < int(first):
        return None
    return int(first), min(size, int(last) + 1) if last else size


def _peer_uid(address: tuple[str, int], port: int) -> int | None:
    """The user id of a connection's other end; -1 if it is closed, None if /proc/net is missing."""
    host = "".join(f"{int(number):02X}" for number in reversed(address[0].split(".")))
    ends = f"{host}:{address[1]:04X}", f"0100007F:{port:04X}"
    readable = False
    for path in _SOCKETS * 3:  # a table that changes while it is read may miss an entry
        with contextlib.suppress(OSError), open(path) as file:
            readable = True
            for line in file:
                fields = line.split()
                # An IPv4-mapped IPv6 address ends in the IPv4 address.
                if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]):
                    return int(fields[7])
    return -1 if readable else None
