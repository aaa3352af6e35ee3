"""Inputs as streams: files of stores, read by this node's ranks over HTTP while they come.

Whatever reads a URL can read them (WebDataset, fsspec, pandas, `curl`): credentials stay here,
parts are asked for ahead of the reader, and a connection that a store cuts is taken up again
without the reader's knowing. Nothing is kept on a disk.
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
from allranks.agent.data.file_entry import Changed, Item
from allranks.agent.data.input_source import Source
from allranks.errors import AllranksError
from allranks.masking import without_credentials

# What is asked for at once, and how many of those are under way for each reader, ahead of it; less
# than that where there are so many readers that all together would hold more parts than so many.
PART, AHEAD, _HELD = 4 << 20, 3, 64
# Requests under way for all readers together.
_REQUESTS = 32
# How often a part is asked for again, and how long the first wait is in seconds.
_TRIES, _PAUSE = 6, 0.5
# Bytes that are asked for to see whether parts can be had; there are servers that read a last byte
# of 0 as none.
_TRIED = 1024
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_SOCKETS = ("/proc/net/tcp", "/proc/net/tcp6")


class Streams:
    """Serves what it is given on the loopback address, to programs of its own user only. What was
    read of each, and what went wrong first, is at any time written in the file ``told``."""

    def __init__(self, told: int) -> None:
        self._told, self._lock = told, threading.Lock()
        self._readers = 0
        self._served: dict[str, _Served] = {}
        self._pool = ThreadPoolExecutor(_REQUESTS)
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._pool.shutdown(cancel_futures=True)

    def add(self, source: Source) -> dict[str, Any]:
        """What it has: the URL of the folder or of the file that it is, how many files of how many
        bytes. Raises AllranksError."""
        items, is_file = source.items()
        served = _Served(source, {item.name: item for item in items})
        # Whether parts can be had is found out here, not by a rank.
        largest = max(items, key=lambda item: item.size)
        if largest.size:
            self.part(served, largest, 0, min(largest.size, _TRIED))
        name = source.wanted.name
        self._served[name] = served
        url = f"http://127.0.0.1:{self._server.server_port}/{_quoted(name)}"
        path = f"{url}/{_quoted(items[0].name)}" if is_file else url
        return {"path": path, "files": len(items), "size": sum(item.size for item in items)}

    def served(self, name: str) -> _Served | None:
        return self._served.get(name)

    def count(
        self, served: _Served, *, reads: int = 0, size: int = 0, failed: AllranksError | None = None
    ) -> None:
        """Note answers begun, bytes sent, and why one has no more."""
        with self._lock:
            served.reads, served.size = served.reads + reads, served.size + size
            served.failed = served.failed or str(failed or "")
            told = [
                {"streamed": name, "reads": it.reads, "size": it.size, "failed": it.failed}
                for name, it in self._served.items()
            ]
            # It never gets shorter; on a full disk the readers come first.
            with contextlib.suppress(OSError):
                os.pwrite(self._told, json.dumps(told).encode(), 0)

    def parts(self, served: _Served, item: Item, start: int, end: int) -> Iterator[memoryview]:
        """The bytes from ``start`` to ``end``, in order. Raises AllranksError."""
        under_way: deque[Future[memoryview]] = deque()
        left = deque(range(start, end, PART))
        self._reading(1)
        try:
            while left or under_way:
                ahead = max(1, min(AHEAD, _HELD // self._readers))
                while left and len(under_way) < ahead:
                    at = left.popleft()
                    span = at, min(at + PART, end)
                    under_way.append(self._pool.submit(self.part, served, item, *span))
                yield under_way.popleft().result()
        finally:
            self._reading(-1)
            for each in under_way:
                each.cancel()

    def _reading(self, more: int) -> None:
        with self._lock:
            self._readers += more

    def part(self, served: _Served, item: Item, start: int, end: int) -> memoryview:
        """Some of a file, asked for as often as it may take. Raises AllranksError."""
        number = 0
        while True:
            try:
                return served.source.part(item, start, end)
            except Changed:
                raise _wrong(
                    served,
                    f"{item.name!r} changed after the start of the job",
                    "give the input a place that nobody writes to while jobs read it",
                ) from None
            except object_stores.NO_RANGES:
                raise _wrong(
                    served,
                    "this site gives no parts of a file, and a stream needs them",
                    "have it fetched before the start: `mode: ro_mount`",
                ) from None
            except object_stores.PASSING as error:
                number += 1
                if number == _TRIES or object_stores.is_final(error):
                    raise served.source.explained(error) from None
                # Not all at the same moment: there may be many readers.
                time.sleep(_PAUSE * 2 ** (number - 1) * random.uniform(0.5, 1.5))
            except FileNotFoundError:
                raise _wrong(
                    served,
                    f"{item.name!r} is gone since the start of the job",
                    "give the input a place that nobody takes things from while jobs read it",
                ) from None
            except (OSError, object_stores.SAID) as error:
                raise served.source.explained(error) from None


class _Served:
    """An input, and what was read of it: so many answers, so many bytes."""

    def __init__(self, source: Source, items: Mapping[str, Item]) -> None:
        self.source, self.items = source, items
        self.reads, self.size, self.failed = 0, 0, ""


def _wrong(served: _Served, what: str, hint: str) -> AllranksError:
    wanted = served.source.wanted
    return AllranksError(what, where=without_credentials(wanted.uri or wanted.source), hint=hint)


class _Server(ThreadingHTTPServer):
    # Many readers may begin at the same moment.
    request_queue_size = 512

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        super().__init__(("127.0.0.1", 0), _Answer)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Of a machine that several people use, the loopback address is everybody's."""
        return _user_of(client_address, self.server_port) in (None, 0, os.getuid())

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a reader that went away
            super().handle_error(request, client_address)


class _Answer(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "allranks", ""
    # For the next request of a reader; how long one takes for what it asked for is its business.
    timeout = 600

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, format: str, *args: object) -> None:
        """Ranks read thousands of files."""

    def _answer(self, body: bool) -> None:
        host = self.headers.get("Host") or f"127.0.0.1:{self.server.server_port}"
        if host.partition(":")[0] not in ("127.0.0.1", "localhost"):
            # A page of somebody else's in the user's browser, by a name that leads here.
            self._say(HTTPStatus.FORBIDDEN, f"this is not {host}\n", body)
            return
        path = os.fsdecode(unquote_to_bytes(urlsplit(self.path).path))
        name, _, rest = path.strip("/").partition("/")
        served = self.server.streams.served(name)
        item = None if served is None else served.items.get(rest)
        if served is None:
            self._say(HTTPStatus.NOT_FOUND, f"there is no input {name!r}\n", body)
        elif not rest:
            urls = (f"http://{host}/{_quoted(name)}/{_quoted(n)}\n" for n in sorted(served.items))
            self._say(HTTPStatus.OK, "".join(urls), body)
        elif item is None:
            self._say(HTTPStatus.NOT_FOUND, f"the input {name} has no file {rest!r}\n", body)
        else:
            self._file(served, item, body)

    def _say(self, status: HTTPStatus, text: str, body: bool, **headers: str) -> None:
        data = text.encode(errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for header, value in headers.items():
            self.send_header(header.replace("_", "-"), value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def _file(self, served: _Served, item: Item, body: bool) -> None:
        span = None
        if body and self.headers.get("If-Range") in (None, _etag(item)):
            span = _span(self.headers.get("Range"), item.size)
        start, end = span or (0, item.size)
        if span and start >= end:
            whole = {"Content_Range": f"bytes */{item.size}"}
            said = f"{item.name!r} has {item.size} bytes\n"
            self._say(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, said, body, **whole)
            return
        streams = self.server.streams
        parts = streams.parts(served, item, start, end) if body else iter(())
        try:
            # Before anything is said: what is wrong from the start can still be told.
            piece = next(parts, None)
        except AllranksError as error:
            streams.count(served, failed=error)
            self._say(HTTPStatus.BAD_GATEWAY, f"{error}\n", body)
            return
        self._head(item, span)
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
            # The reader sees too few bytes.
            self.close_connection = True
            streams.count(served, failed=error)
        self.connection.settimeout(self.timeout)

    def _head(self, item: Item, span: tuple[int, int] | None) -> None:
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


def _etag(item: Item) -> str:
    return item.tag if item.tag.startswith(('"', "W/")) else f'"{item.tag}"'


def _span(asked: str | None, size: int) -> tuple[int, int] | None:
    """The bytes that a header asks for, as start and end; empty when there are none such. None when
    it counts for nothing, as one of several spans does: all is the answer then."""
    found = _RANGE.fullmatch(asked or "")
    if found is None or not any(found.groups()):
        return None
    first, last = found.groups()
    if not first:
        return max(0, size - int(last)), size
    if last and int(last) < int(first):
        return None
    return int(first), min(size, int(last) + 1) if last else size


def _user_of(address: tuple[str, int], port: int) -> int | None:
    """Who has the other end of a connection to our ``port``: -1 for nobody any more, None where the
    kernel does not say."""
    host = "".join(f"{int(number):02X}" for number in reversed(address[0].split(".")))
    ends = f"{host}:{address[1]:04X}", f"0100007F:{port:04X}"
    known = False
    for path in _SOCKETS * 3:  # others come and go while it is read, and may hide one
        with contextlib.suppress(OSError), open(path) as file:
            known = True
            for line in file:
                fields = line.split()
                # A socket of IPv6 that speaks to one of IPv4 has an address that ends in that.
                if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]):
                    return int(fields[7])
    return -1 if known else None
