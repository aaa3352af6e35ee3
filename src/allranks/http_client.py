"""The HTTP client of the CLI and agents: one connection, JSON, streams, typed errors.

Written on a bare socket because both start once per job: importing ``http.client`` takes 45 ms (its
e-mail parser), longer than everything else the agent imports. It supports only what our server
uses: HTTP/1.1, Content-Length or chunked bodies, no redirects.
"""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Generator, Iterable, Iterator
from io import BufferedReader
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, cast

from allranks.errors import ServerError, Unreachable, UsageError, from_body

if TYPE_CHECKING:
    from allranks.api.routes import Answer, Route

Body = bytes | BinaryIO | None

# Addresses with this prefix are folders, not URLs: see `agent.transport.mailbox`.
MAILBOX = "mailbox:"

# Bytes that a server may send: a body for memory, a line of a stream, its headers.
_LARGEST, _LONGEST_LINE, _LONGEST_HEAD = 1 << 30, 64 << 20, 1 << 18
# No count of a server is larger.
_COUNT = 1 << 63
# The most bytes of a body that are read at a time.
_SENT = 256 << 10


class FilePart(io.RawIOBase):
    """Bytes of a file, as the body of a request. What is missing of a file that became shorter is
    sent as zeros."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self.file, self.start, self.size, self._at = file, start, size, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (self.size if whence == 2 else 0)
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = self.size - self._at
        self.file.seek(self.start + self._at)
        data = self.file.read(left if size < 0 else min(size, left))
        if left and not data:
            data = bytes(min(left, _SENT))
        self._at += len(data)
        return data


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Into(Protocol):
    """Reads a body of ``size`` bytes, all of it unless it raises. An OSError is one of the
    connection."""

    size: int

    def read(self, file: io.BufferedIOBase) -> None: ...


class _Untrusted(ConnectionError):
    """The certificate of a server is not the one that is trusted."""


class Client:
    """A connection to the server at ``url``, opened on demand and reopened when it breaks.

    Not thread-safe. Every call raises Unreachable if the server does not answer, and the server's
    own exception if it refuses.
    """

    def __init__(
        self, url: str, token: str = "", *, timeout: float = 30.0, fingerprint: str = ""
    ) -> None:
        scheme, name, port = _parts(url)
        if fingerprint and scheme != "https":
            raise _not_a_url(url)
        self.url = url
        self._address = (name.strip("[]"), port)
        self._host = f"{name}:{port}"
        # Over TLS the certificate must match the fingerprint if there is one. Otherwise the usual
        # check of name and authority applies.
        self._secured, self._fingerprint = scheme == "https", fingerprint
        self.token = token
        self._timeout = timeout
        self._socket: socket.socket | None = None
        self._file: BufferedReader | None = None

    def ask(
        self,
        route: Route[Answer],
        *names: str,
        body: Any = None,
        patience: float | None = None,
        **query: object,
    ) -> Answer:
        """Call a route with a JSON body; returns its JSON reply, which may take ``patience``
        seconds."""
        answer: Answer = self.json(*route.at(*names, **query), body, timeout=patience)
        return answer

    def json(
        self, method: str, path: str, data: Any = None, *, timeout: float | None = None
    ) -> Any:
        """Call with a JSON body; returns the JSON reply."""
        body = None if data is None else json.dumps(data).encode()
        reply = self.call(method, path, body, timeout=timeout)
        try:
            return json.loads(reply.body or b"null")
        except (ValueError, RecursionError):
            raise not_ours(reply.status) from None

    def call(
        self,
        method: str,
        path: str,
        body: Body = None,
        *,
        timeout: float | None = None,
        into: Into | None = None,
    ) -> Reply:
        """One request and its complete reply. A ``body`` that is a file is sent from its start. A
        good reply of exactly the size of ``into`` is read by it; its body is empty, then."""
        reply, file = self._open(method, path, body, timeout)
        try:
            size = reply.headers.get("content-length")
            if into is not None and reply.status == 200 and size == str(into.size):
                self._read_into(into, file)
                return reply
            content = _whole(reply, file)
        except (OSError, ValueError) as error:
            self.close()
            broken = self.closed(f": {error}")
            broken.sent = True
            raise broken from None
        if reply.headers.get("connection", "").lower() == "close":
            self.close()
        return checked(reply._replace(body=content))

    def _read_into(self, into: Into, file: BufferedReader) -> None:
        done = False
        try:
            into.read(file)
            done = True
        finally:
            if not done:  # unread data would be taken for the next reply
                self.close()

    def stream(
        self, method: str, path: str, data: Any = None, *, timeout: float = 60.0
    ) -> Iterator[bytes]:
        """The lines of a reply as they arrive. Raises Unreachable if the connection breaks."""
        body = None if data is None else json.dumps(data).encode()
        reply, file = self._open(method, path, body, timeout)
        if reply.status >= 400:
            self._check(reply, file)
        try:
            yield from _lines(_body(reply, file))
        except (OSError, ValueError) as error:
            raise self.closed(f": {error}") from None
        finally:
            self.close()

    def download(self, path: str, *, timeout: float = 60.0) -> Iterator[bytes]:
        """The body of a GET in pieces."""
        _, pieces = self.part(path, timeout=timeout)
        yield from pieces

    def part(
        self, path: str, span: tuple[int, int] | None = None, *, timeout: float = 60.0
    ) -> tuple[Reply, Generator[bytes, None, None]]:
        """GET the bytes from ``span[0]`` up to ``span[1]``; returns the reply and its body in
        pieces. Status 206: the bytes that exist; 200: the whole file; 416: none exist, and the body
        is not ours."""
        more = f"range: bytes={span[0]}-{span[1] - 1}\r\n" if span else ""
        reply, file = self._open("GET", path, None, timeout, more)
        if reply.status >= 400 and reply.status != 416:
            self._check(reply, file)
        return reply, self._pieces(reply, file)

    def closed(self, why: str = "") -> Unreachable:
        """The error of a connection that broke."""
        hint = "see `allranks server status`, and try it again"
        return Unreachable(f"the server at {self.url} closed the connection{why}", hint=hint)

    def _check(self, reply: Reply, file: BufferedReader) -> None:
        """Raise the error of a server that refuses."""
        try:
            reply = reply._replace(body=_whole(reply, file))
        except (OSError, ValueError) as error:
            raise self.closed(f": {error}") from None
        checked(reply)

    def _pieces(self, reply: Reply, file: BufferedReader) -> Generator[bytes, None, None]:
        whole = False
        try:
            yield from _body(reply, file)
            whole = True
        except (OSError, ValueError) as error:
            raise self.closed(f": {error}") from None
        finally:
            if not whole:  # unread data would be taken for the next reply
                self.close()

    def reach(self) -> None:
        """Raises Unreachable if nothing replies. A reply counts, whatever it says; a connection
        does not: the kernel also accepts them for a process that is being killed."""
        reply, file = self._open("GET", "/healthz", None, None)
        for _ in self._pieces(reply, file):
            pass

    def upgrade(self, path: str, protocol: str, *, timeout: float = 60.0) -> socket.socket:
        """POST a request that turns its connection into one of ``protocol``; returns it, and is
        without one afterwards."""
        self.close()  # a kept connection has a buffer, which could hold the first bytes of it
        more = f"connection: upgrade\r\nupgrade: {protocol}\r\n"
        reply, file = self._open("POST", path, None, timeout, more, buffer=1)
        if reply.status != 101:
            with file:
                self._check(reply, file)
            hint = "check that it is an allranks server of this version: `allranks server status`"
            raise Unreachable(f"the server at {self.url} does not speak {protocol}", hint=hint)
        assert self._socket is not None
        upgraded, self._socket, self._file = self._socket, None, None
        return upgraded

    def beside(self, url: str, timeout: float) -> socket.socket:
        """A connection to another port of the same machine, checked as this one. Raises OSError."""
        return Client(url, fingerprint=self._fingerprint)._connected(timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._file = None

    def _open(
        self,
        method: str,
        path: str,
        body: Body,
        timeout: float | None,
        more: str = "",
        buffer: int = -1,
    ) -> tuple[Reply, BufferedReader]:
        """Send the request and read the reply up to its body. A kept connection that the server has
        closed is reopened: it had no answer, and all our calls may be repeated."""
        while True:
            fresh = self._socket is None
            try:
                if self._socket is None:
                    self._socket = self._connected(timeout or self._timeout)
                    self._file = cast(BufferedReader, self._socket.makefile("rb", buffer))
                return self._exchange(method, path, body, timeout or self._timeout, more)
            except (OSError, ValueError) as error:
                sent = self._socket is not None
                self.close()
                if fresh or isinstance(error, TimeoutError):
                    raise self._unreachable(error, sent) from None

    def _unreachable(self, error: Exception, sent: bool) -> Unreachable:
        hint = "see `allranks server status`"
        if not self._address[0].startswith(("127.", "localhost", "::1")):
            hint = "check the address, and on that machine `allranks server status`"
        if untrusted := isinstance(error, _Untrusted):
            hint = f"ask who runs it for the fingerprint, then: allranks login {self.url}"
        failure = Unreachable(f"no server answers at {self.url}: {_error_text(error)}", hint=hint)
        failure.sent, failure.untrusted = sent, untrusted
        return failure

    def _exchange(
        self, method: str, path: str, body: Body, timeout: float, more: str
    ) -> tuple[Reply, BufferedReader]:
        assert self._socket is not None
        assert self._file is not None
        self._socket.settimeout(timeout)
        size = _size(body)
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\n"
            f"authorization: Bearer {self.token}\r\n"
            f"content-length: {size}\r\ncontent-type: application/json\r\n{more}\r\n"
        )
        if body is None or isinstance(body, bytes):
            self._socket.sendall(head.encode("latin-1") + (body or b""))
        else:
            self._socket.sendall(head.encode("latin-1"))
            _send(self._socket, body)
        return _head(self._file), self._file

    def _connected(self, timeout: float) -> socket.socket:
        host, port = self._address
        # As bytes: for a text Python imports its codec of international names.
        name: Any = host.encode() if host.isascii() else host
        connection = socket.create_connection((name, port), timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._fingerprint:
            return _pinned(connection, self._fingerprint)
        return _vouched(connection, self._address[0]) if self._secured else connection


def host(url: str) -> str:
    """The host of a server's URL. Raises UsageError for an invalid URL."""
    return _parts(url)[1].strip("[]")


def _parts(url: str) -> tuple[str, str, int]:
    scheme, _, rest = url.partition("://")
    name, _, port = rest.rstrip("/").rpartition(":")
    if scheme not in ("http", "https") or not name or not port.isdigit() or {*name} & {*"/@ #?"}:
        raise _not_a_url(url)
    return scheme, name, int(port)


def _not_a_url(url: str) -> UsageError:
    return UsageError(f"{url!r} is not the URL of a server", hint="e.g. http://127.0.0.1:7070")


def fingerprint_of(url: str, timeout: float = 10.0) -> str:
    """The SHA-256 of the certificate that a server shows, which nothing vouches for; empty if it
    shows none."""
    scheme, name, port = _parts(url)
    try:
        plain = socket.create_connection((name.strip("[]"), port), timeout)
        secured, digest = _unchecked(plain)
    except OSError:
        return ""
    secured.close()
    return digest if scheme == "https" else ""


def _pinned(plain: socket.socket, fingerprint: str) -> socket.socket:
    """The connection over TLS, only to the owner of the certificate with this SHA-256."""
    secured, digest = _unchecked(plain)
    if digest != fingerprint:
        secured.close()
        raise _Untrusted("its certificate does not match the fingerprint")
    return secured


def _unchecked(plain: socket.socket) -> tuple[socket.socket, str]:
    """The connection over TLS, and the SHA-256 of the server's certificate."""
    import hashlib  # lazy: as ssl
    import ssl  # lazy: 20 ms, and on the server's own machine there is no TLS

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        secured = context.wrap_socket(plain)
    except OSError:
        plain.close()
        raise
    return secured, hashlib.sha256(secured.getpeercert(binary_form=True) or b"").hexdigest()


def _vouched(plain: socket.socket, name: str) -> socket.socket:
    """The connection over TLS, with the usual check of name and authority."""
    import ssl  # lazy: as above

    try:
        return ssl.create_default_context().wrap_socket(plain, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        plain.close()
        message = f"its certificate is not trusted: {error.verify_message.lower()}"
        raise _Untrusted(message) from None
    except OSError:
        plain.close()
        raise


def _size(body: Body) -> int:
    if body is None or isinstance(body, bytes):
        return len(body or b"")
    size = body.seek(0, 2)
    body.seek(0)
    return size


def _send(connection: socket.socket, body: BinaryIO) -> None:
    """Send a file, in the kernel where it can; else in larger pieces than `sendfile` takes."""
    if type(connection) is socket.socket:
        if isinstance(body, FilePart):
            body.seek(connection.sendfile(body.file, body.start, body.size) if body.size else 0)
        elif hasattr(body, "fileno"):
            connection.sendfile(body)
            return
    while piece := body.read(_SENT):
        connection.sendall(piece)


def _error_text(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def _head(file: BufferedReader) -> Reply:
    line = file.readline(65536)
    if not line:
        raise ConnectionResetError("the server closed the connection")
    parts = line.split(None, 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
        raise ValueError("the answer is not HTTP")
    headers, size = dict[str, str](), 0
    while (line := file.readline(65536)) not in (b"\r\n", b"\n", b""):
        size += len(line)
        if size > _LONGEST_HEAD:
            raise ValueError("the answer's headers are too long")
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return Reply(int(parts[1]), headers, b"")


def _body(reply: Reply, file: BufferedReader) -> Iterator[bytes]:
    if reply.headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int(file.readline(1024) or b"x", 16):
            yield _exactly(file, size)
            file.readline()
        file.readline()
        return
    left = _length(reply)
    while left:
        # Yield what has arrived: do not wait for the rest on a slow connection.
        piece = file.read1(min(left, 1 << 20))
        if not piece:
            raise ConnectionResetError("the server closed the connection")
        left -= len(piece)
        yield piece


def _whole(reply: Reply, file: BufferedReader) -> bytes:
    """The body at once: of one whose size is known nothing is copied."""
    if reply.headers.get("transfer-encoding", "").lower() == "chunked":
        whole = bytearray()
        for piece in _body(reply, file):
            whole += piece
            if len(whole) > _LARGEST:
                raise ValueError("the answer is too large")
        return bytes(whole)
    return _exactly(file, _length(reply))


def _length(reply: Reply) -> int:
    """Of the body. Raises ValueError."""
    text = reply.headers.get("content-length", "0")
    if not text.isdecimal():
        raise ValueError("the answer is not HTTP")
    return int(text)


def fill(file: io.BufferedIOBase, into: memoryview) -> None:
    """Read all of it. Raises ConnectionResetError."""
    if file.readinto(into) < len(into):
        raise ConnectionResetError("the server closed the connection")


def _exactly(file: BufferedReader, size: int) -> bytes:
    if not 0 <= size <= _LARGEST:
        raise ValueError("the answer is too large")
    data = file.read(size)
    if len(data) < size:
        raise ConnectionResetError("the server closed the connection")
    return data


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
        if len(rest) > _LONGEST_LINE:
            raise ValueError("a line of the answer is too long")
    if rest:
        yield rest


def checked(reply: Reply) -> Reply:
    """Return the reply, or raise the server's error if it is one."""
    if reply.status < 400:
        return reply
    try:
        error = from_body(json.loads(reply.body))
        str(error)  # raises for a place that is no text
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise not_ours(reply.status) from None
    raise error


def shaped(answer: Any, shape: Any) -> Any:
    """The answer of a server, if it is like ``shape``: a type, a list of one shape, or a dict of
    shapes by key, or one for all keys (`{str: int}`). Raises ServerError."""
    if not _is_shaped(answer, shape):
        raise not_ours(200)
    return answer


def _is_shaped(answer: Any, shape: Any) -> bool:
    if isinstance(shape, list):
        return isinstance(answer, list) and all(_is_shaped(each, shape[0]) for each in answer)
    if isinstance(shape, dict):
        if not isinstance(answer, dict):
            return False
        each = shape.get(str)
        shapes = shape if each is None else dict.fromkeys(answer, each)
        return all(key in answer and _is_shaped(answer[key], shapes[key]) for key in shapes)
    if shape is int and not (isinstance(answer, int) and -_COUNT <= answer < _COUNT):
        return False
    return isinstance(answer, shape)


def not_ours(status: int) -> ServerError:
    hint = "check that it is an allranks server: `allranks server status`"
    message = f"the server answered {status}, as no allranks server does"
    return ServerError(message, hint=hint)
