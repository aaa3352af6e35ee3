"""Inputs as streams: files of stores, read by this node's ranks over HTTP while they come.

Whatever reads a URL can read them (WebDataset, fsspec, pandas, `curl`): credentials stay here,
parts are asked for ahead of the reader, and a connection that a store cuts is taken up again
without the reader's knowing. Nothing is kept on a disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from allranks.agent import objects
from allranks.agent.items import Changed, Item
from allranks.agent.source import Source
from allranks.errors import AllranksError
from allranks.masking import without_credentials

# What is asked for at once, and how many of those are under way for each reader, ahead of it.
PART, AHEAD = 4 << 20, 3
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
        url = f"http://127.0.0.1:{self._server.server_port}/{quote(name)}"
        path = f"{url}/{quote(items[0].name)}" if is_file else url
        return {"path": path, "files": len(items), "size": sum(item.size for item in items)}

    def served(self, name: str) -> _Served | None:
        return self._served.get(name)

    def count(self, served: _Served, size: int, failed: AllranksError | None = None) -> None:
        """Note an answer of so many bytes, and why it has no more."""
        with self._lock:
            served.reads, served.size = served.reads + 1, served.size + size
            served.failed = served.failed or str(failed or "")
            told = [
                {"streamed": name, "reads": it.reads, "size": it.size, "failed": it.failed}
                for name, it in self._served.items()
            ]
            # It never gets shorter.
            os.pwrite(self._told, json.dumps(told).encode(), 0)

    def parts(self, served: _Served, item: Item, start: int, end: int) -> Iterator[memoryview]:
        """The bytes from ``start`` to ``end``, in order. Raises AllranksError."""
        under_way: deque[Future[memoryview]] = deque()
        left = iter(range(start, end, PART))
        try:
            while True:
                for at in left:
                    span = at, min(at + PART, end)
                    under_way.append(self._pool.submit(self.part, served, item, *span))
                    if len(under_way) == AHEAD:
                        break
                if not under_way:
                    return
                yield under_way.popleft().result()
        finally:
            for each in under_way:
                each.cancel()

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
            except objects.NO_RANGES:
                raise _wrong(
                    served,
                    "this site gives no parts of a file, and a stream needs them",
                    "have it fetched before the start: `mode: ro_mount`",
                ) from None
            except objects.PASSING as error:
                number += 1
                if number == _TRIES or objects.is_final(error):
                    raise served.source.explained(error) from None
                time.sleep(_PAUSE * 2**number)
            except (OSError, objects.SAID) as error:
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
        """A reader that went away is no error."""


class _Answer(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "allranks", ""
    # Each waits for the next request of its reader: not for ever.
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
        name, _, rest = unquote(urlsplit(self.path).path).strip("/").partition("/")
        served = self.server.streams.served(name)
        item = None if served is None else served.items.get(rest)
        if served is None:
            self._say(HTTPStatus.NOT_FOUND, f"there is no input {name!r}\n", body)
        elif not rest:
            self._say(HTTPStatus.OK, self._listing(name, served), body)
        elif item is None:
            self._say(HTTPStatus.NOT_FOUND, f"the input {name} has no file {rest!r}\n", body)
        else:
            self._file(served, item, body)

    def _listing(self, name: str, served: _Served) -> str:
        host = self.headers.get("Host") or f"127.0.0.1:{self.server.server_port}"
        urls = (f"http://{host}/{quote(name)}/{quote(each)}\n" for each in sorted(served.items))
        return "".join(urls)

    def _say(self, status: HTTPStatus, text: str, body: bool, **headers: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for header, value in headers.items():
            self.send_header(header.replace("_", "-"), value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def _file(self, served: _Served, item: Item, body: bool) -> None:
        asked = self.headers.get("Range")
        if self.headers.get("If-Range") not in (None, _etag(item)):
            asked = None
        span = _span(asked, item.size)
        if span is None:
            whole = {"Content_Range": f"bytes */{item.size}"}
            said = f"{item.name!r} has {item.size} bytes\n"
            self._say(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, said, body, **whole)
            return
        streams = self.server.streams
        parts = streams.parts(served, item, *span) if body else iter(())
        try:
            # Before anything is said: what is wrong from the start can still be told.
            first = next(parts, memoryview(b""))
        except AllranksError as error:
            streams.count(served, 0, error)
            self._say(HTTPStatus.BAD_GATEWAY, f"{error}\n", body)
            return
        self._head(item, span, asked is not None)
        if not body:
            return
        sent = 0
        try:
            while first:
                self.wfile.write(first)
                sent += len(first)
                first = next(parts, memoryview(b""))
        except AllranksError as error:
            # The reader sees too few bytes.
            self.close_connection = True
            streams.count(served, sent, error)
        except OSError:  # it has had enough
            self.close_connection = True
            streams.count(served, sent)
        else:
            streams.count(served, sent)

    def _head(self, item: Item, span: tuple[int, int], is_part: bool) -> None:
        start, end = span
        self.send_response(HTTPStatus.PARTIAL_CONTENT if is_part else HTTPStatus.OK)
        if is_part:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{item.size}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(end - start))
        self.send_header("ETag", _etag(item))
        self.send_header("Last-Modified", self.date_time_string(int(item.mtime)))
        self.end_headers()


def _etag(item: Item) -> str:
    return item.tag if item.tag.startswith(('"', "W/")) else f'"{item.tag}"'


def _span(asked: str | None, size: int) -> tuple[int, int] | None:
    """The bytes that a header asks for, as start and end; None when there are none such. All, where
    it asks for several spans, as the standard allows."""
    found = _RANGE.fullmatch(asked or "")
    if found is None or not any(found.groups()):
        return 0, size
    first, last = found.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    return (start, end) if start < end else None


def _user_of(address: tuple[str, int], port: int) -> int | None:
    """Who has the other end of a connection to our ``port``; None where the kernel does not say."""
    host = "".join(f"{int(number):02X}" for number in reversed(address[0].split(".")))
    ends = f"{host}:{address[1]:04X}", f"0100007F:{port:04X}"
    for path in _SOCKETS:
        with contextlib.suppress(OSError), open(path) as file:
            for line in file:
                fields = line.split()
                # A socket of IPv6 that speaks to one of IPv4 has an address that ends in that.
                if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]):
                    return int(fields[7])
    return None
