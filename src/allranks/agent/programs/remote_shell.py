"""A replacement of ssh and pdsh for launchers: run a shell command on a node of the same job.

One file, standard library only. The agent of a node starts ``remote.py serve FD`` with a bound
socket, or in the node's container ``remote.py listen ADDRESS PORT``, which binds one. mpirun or
DeepSpeed's launcher starts ``remote.py ssh|pdsh TABLE WORDS…``. All share a secret made for this
attempt from the agents' token; it is proven and never sent.

Wire, after TCP: 32 random bytes from the server; 32 bytes HMAC-SHA256 of them and the text's
length and text; then frames of one letter, four bytes of length and content: ``o`` and ``e`` output
and errors, ``x`` exit code. The text is the caller's working folder, a NUL, and the command. Each
node has its own copy of that folder, and paths into it are replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable

HANDSHAKE = 10.0
MOST_TEXT = 1 << 20
# Separates the folders of the caller that have other paths here.
BETWEEN = b"\x1f"
# Seconds that a node may take until it listens.
PATIENCE = 30.0
SECRET = "ALLRANKS_REMOTE_SECRET"
# The folder of these programs on the user's PATH; unset for mpirun, which calls them by path.
STAND_INS = "ALLRANKS_STAND_INS"


def secret(token: str, attempt: int) -> str:
    """The secret of an attempt, the same on all its nodes. It does not reveal the token."""
    return hmac.new(token.encode(), f"remote {attempt}".encode(), hashlib.sha256).hexdigest()


# ---------------------------------------------------------------- the server


def serve(listener: socket.socket, key: bytes) -> None:
    """Serve until ended, with a process for each caller. After SIGHUP or SIGTERM no new callers are
    accepted, and it ends after the last one; SIGTERM is passed on to their commands."""
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, _ignore)
    listener.listen(64)
    listener.setblocking(False)
    while True:
        ready, _, _ = select.select([listener.fileno(), woken], [], [])
        if woken in ready:
            break
        with contextlib.suppress(OSError):  # the caller has disconnected, or there are too many
            _admit(listener, key)
        _reap(os.WNOHANG)
    listener.close()
    _reap(0)


def _bound(address: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    return listener


def _admit(listener: socket.socket, key: bytes) -> None:
    caller, _ = listener.accept()
    if os.fork() == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        listener.close()
        with contextlib.suppress(OSError):  # the caller is gone
            _answer(caller, key)
        os._exit(0)
    caller.close()


def _ignore(number: int, frame: object) -> None:
    """A handler instead of SIG_IGN, which children would inherit."""


def _reap(flags: int) -> None:
    """Reap processes of callers; without flags, wait for all of them."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, flags)[0]:
            pass


def _answer(caller: socket.socket, key: bytes) -> None:
    caller.settimeout(HANDSHAKE)
    nonce = os.urandom(32)
    caller.sendall(nonce)
    proof = _exactly(caller, 32)
    size = _number(_exactly(caller, 4))
    text = _exactly(caller, size) if size <= MOST_TEXT else b""
    if not hmac.compare_digest(proof, _proof(key, nonce, text)):
        return
    caller.settimeout(None)
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    theirs, _, line = text.partition(b"\0")
    # The paths of the working folder and of the environment, on the caller's node and on this one.
    ours = (os.getcwdb(), os.environb.get(b"VIRTUAL_ENV", b""))
    for there, here in zip(theirs.split(BETWEEN), ours, strict=False):
        line = line.replace(there, here) if there and here else line
    child = subprocess.Popen(
        ["/bin/bash", "-c", line],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    signal.signal(signal.SIGTERM, lambda number, frame: _end(child.pid))
    _relay(child, caller)
    code = child.wait()
    _send(caller, b"x", str(code if code >= 0 else 128 - code).encode())


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)


def _relay(child: subprocess.Popen[bytes], caller: socket.socket) -> None:
    """Forward output until the child has ended. A daemon that it left may keep the pipes open."""
    assert child.stdout is not None
    assert child.stderr is not None
    pipes = {child.stdout.fileno(): b"o", child.stderr.fileno(): b"e"}
    ended = os.pidfd_open(child.pid)
    while True:
        ready, _, _ = select.select([ended, *pipes], [], [])
        for pipe in set(ready) - {ended}:
            piece = os.read(pipe, 1 << 16)
            if piece:
                _send(caller, pipes[pipe], piece)
            else:
                del pipes[pipe]
        if ready == [ended]:
            return


# ---------------------------------------------------------------- the client


class Table:
    """The nodes of the job that a launcher can reach: ``nodes`` has address and port by name."""

    def __init__(self, path: str) -> None:
        with open(path) as file:
            fields = json.load(file)
        self.nodes: dict[str, tuple[str, int]] = fields["nodes"]
        self._key: bytes = fields["secret"].encode()
        self._work: str = fields.get("work", "")

    def call(self, name: str, line: str, write: Callable[[int, bytes], object]) -> int:
        """Run ``line`` on the node. ``write`` gets a descriptor, 1 or 2, and a piece of output."""
        address, port = self.nodes[name]
        text = f"{self._work}\0{line}".encode(errors="surrogateescape")
        try:
            return call(address, port, self._key, text, write)
        except OSError as error:
            return _fail(f"{name} at {address}:{port} does not answer: {error}")


def call(
    address: str, port: int, key: bytes, text: bytes, write: Callable[[int, bytes], object]
) -> int:
    """Run ``text`` on that node; returns its exit code. Raises OSError."""
    with _connected(address, port) as server:
        nonce = _exactly(server, 32)
        server.sendall(_proof(key, nonce, text) + struct.pack("!I", len(text)) + text)
        while True:
            kind = _exactly(server, 1)
            size = _number(_exactly(server, 4))
            content = _exactly(server, size)
            if kind == b"x":
                return int(content)
            write(1 if kind == b"o" else 2, content)


def _connected(address: str, port: int) -> socket.socket:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            connection = socket.create_connection((address, port), timeout=HANDSHAKE)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return connection


def ssh(table: Table, words: list[str]) -> int:
    """Act like ssh. For hosts that are not nodes of the job, run the real ssh."""
    rest = words
    while rest and rest[0].startswith("-"):
        # ssh's flags are ignored. These have a value, which may be the next word.
        rest = rest[2:] if rest[0][1:] in tuple("bcDEeFIiJLlmOopQRSWw") else rest[1:]
    name = rest[0] if rest else ""
    if name not in table.nodes:
        return _real("ssh", words, f"{name!r} is not a node of this job")
    return table.call(name, " ".join(rest[1:]), _write)


def pdsh(table: Table, words: list[str]) -> int:
    """Act like pdsh: run the command on all hosts of ``-w`` at once, with the host's name before
    each line of output. The exit code is the largest one with ``-S``, else 0."""
    import getopt  # lazy: only here, and it brings gettext

    try:
        flags, line = getopt.getopt(words, "SNbqw:x:f:l:R:t:u:")
    except getopt.GetoptError as error:
        return _fail(f"pdsh: {error}; the job's own pdsh knows only -w, -x, -S and -N")
    options = dict(flags)
    left_out = options.get("-x", "").split(",")
    names = [name for name in options.get("-w", "").split(",") if name not in left_out]
    strangers = [name for name in names if name not in table.nodes]
    if strangers or not line:
        why = f"{strangers[0]!r} is not a node of this job" if strangers else "no command"
        return _real("pdsh", words, why)
    codes = [0] * len(names)

    def on(number: int, name: str) -> None:
        output = _Lines("" if "-N" in options else f"{name}: ")
        filled = " ".join(line).replace("%n", str(number)).replace("%h", name)
        codes[number] = table.call(name, filled, output.write)
        output.close()

    callers = [threading.Thread(target=on, args=args, daemon=True) for args in enumerate(names)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for name, code in zip(names, codes, strict=True):
        if code:
            _fail(f"pdsh: {name}: exit code {code}")
    return max(codes) if "-S" in options else 0


class _Lines:
    """Writes the output of one host in complete lines with its name before them."""

    def __init__(self, before: str) -> None:
        self._before = before.encode()
        self._begun = {1: b"", 2: b""}

    def write(self, fd: int, piece: bytes) -> None:
        *lines, self._begun[fd] = (self._begun[fd] + piece).split(b"\n")
        if lines:
            _write(fd, b"".join(self._before + line + b"\n" for line in lines))

    def close(self) -> None:
        for fd, rest in self._begun.items():
            if rest:
                _write(fd, self._before + rest + b"\n")


def _write(fd: int, content: bytes) -> None:
    while content:
        content = content[os.write(fd, content) :]


def _real(program: str, words: list[str], why: str) -> int:
    """Run the system's program that the user would have found on PATH."""
    mine = os.environ.get(STAND_INS)
    for folder in os.environ.get("PATH", os.defpath).split(":") if mine else ():
        path = os.path.join(folder, program)
        if folder not in ("", mine) and os.access(path, os.X_OK):
            os.execv(path, [program, *words])
    return _fail(f"{why}; only the job's nodes can be reached")


def _fail(sentence: str) -> int:
    print(f"allranks: {sentence}", file=sys.stderr)
    return 255


# ---------------------------------------------------------------- the wire


def _proof(key: bytes, nonce: bytes, text: bytes) -> bytes:
    return hmac.new(key, nonce + struct.pack("!I", len(text)) + text, hashlib.sha256).digest()


def _send(to: socket.socket, kind: bytes, content: bytes) -> None:
    to.sendall(kind + struct.pack("!I", len(content)) + content)


def _number(packed: bytes) -> int:
    number: int = struct.unpack("!I", packed)[0]
    return number


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = source.recv(size - len(data))
        if not piece:
            raise ConnectionError("the connection was closed; the secret may differ")
        data += piece
    return data


def main() -> int:
    program, argument, *words = sys.argv[1:]
    if program in ("serve", "listen"):
        bound = _bound(argument, int(words[0])) if words else socket.socket(fileno=int(argument))
        serve(bound, os.environ.pop(SECRET).encode())
        return 0
    return (pdsh if program == "pdsh" else ssh)(Table(argument), words)


if __name__ == "__main__":
    sys.exit(main())
