"""`allranks job cp`: copy files into a running job, and out of it."""

from __future__ import annotations

import argparse
import os
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

from allranks.channel import Frame
from allranks.cli.job_names import JobReference, full_name
from allranks.cli.output import show
from allranks.errors import AllranksError, NotFound, UsageError
from allranks.sdk.jobs.channel import Channel, Follower, execute

# A link to a folder, as `outputs` is, is that folder.
_PACK = """cd "$1" || exit
if [ -L "$2" ] && [ -d "$2" ]; then cd -- "$2" && exec tar -cf - .; fi
exec tar -cf - -- "$2" """
_UNPACK = 'mkdir -p -- "$1" && exec tar -xf - -C "$1"'
# tar's, if a file changed while it was read.
_CHANGED = 1


def cp_options(parser: argparse.ArgumentParser) -> None:
    path = "a file or folder: NAME:PATH in a job, from the rank's working folder on, or PATH here"
    parser.add_argument("source", metavar="SOURCE", help=path)
    parser.add_argument("target", metavar="DEST", help="the same; a folder keeps the name")
    parser.add_argument("--rank", type=int, metavar="R", help="the rank whose node it is (0)")
    parser.add_argument("--node", type=int, metavar="N", help="a node: its first rank")


def cp(options: argparse.Namespace) -> int:
    """Copy a file or folder of a running job here, or from here into it. For ended jobs: `job
    download`."""
    source = None if os.path.exists(options.source) else _split(options.source)
    target = _split(options.target)
    if (source is None) == (target is None):
        hint = "allranks job cp NAME:PATH DEST, or allranks job cp SOURCE NAME:PATH"
        many = "only one of the two may" if source else "one of the two must"
        raise UsageError(f"{many} be in a job, NAME:PATH", hint=hint)
    if source is not None:
        count = _fetch(options, *source, Path(options.target))
    else:
        assert target is not None
        count = _send(options, Path(options.source), *target)
    return show.result(options, {"files": count}, f"copied {count} file{'s' * (count != 1)}")


def _split(text: str) -> tuple[str, str] | None:
    """The job and the path in it; None for a path here."""
    name, colon, path = text.partition(":")
    if not colon or "/" in name:
        return None
    full, _ = full_name(JobReference(name))
    return full, path or "."


def _fetch(options: argparse.Namespace, name: str, path: str, target: Path) -> int:
    folder, base = os.path.split(path.rstrip("/") or "/")
    into, named = (target, base) if target.is_dir() else (target.parent, target.name)
    if not into.is_dir():
        raise NotFound(f"the folder {into} does not exist", hint="create it first")
    words = ["sh", "-c", _PACK, "sh", folder or ".", base or "."]
    read, write = os.pipe()
    with open(read, "rb") as packed:
        unpacking = _Unpacking(packed, into, base or ".", named if base else "")
        with unpacking, open(write, "wb") as out:
            code, errors = _run(options, name, words, out, None)
    if code not in (0, _CHANGED) or not unpacking.count:
        raise NotFound(f"{name} has no {path!r}: {errors or 'it is empty'}", hint=_hint(name))
    return unpacking.count


class _Tar(threading.Thread):
    """Packs or unpacks in a thread, up to the end of a `with`, which raises ``error``."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.error = 0, None  # type: int, AllranksError | None

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.join()
        if kind is None and self.error is not None:
            raise self.error


class _Unpacking(_Tar):
    """Unpacks a stream. ``base`` becomes ``named`` in the folder."""

    def __init__(self, packed: IO[bytes], into: Path, base: str, named: str) -> None:
        super().__init__()
        self._packed, self._into, self._base, self._named = packed, into, base, named

    def run(self) -> None:
        try:
            with tarfile.open(fileobj=self._packed, mode="r|") as tar:
                for member in tar:
                    self._unpack(tar, member)
        except tarfile.ReadError:
            pass  # nothing came: tar says why
        except (OSError, tarfile.TarError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.error = AllranksError(f"cannot write: {reason}", where=str(self._into))
        while self._packed.read(1 << 20):
            pass

    def _unpack(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        if self._named:
            member.name = self._renamed(member.name)
        if self._named and member.islnk():
            member.linkname = self._renamed(member.linkname)
        try:
            tar.extract(member, self._into, filter="data")
        except tarfile.FilterError as error:
            show.talk(f"left out: {error}")
            return
        self.count += not member.isdir()

    def _renamed(self, path: str) -> str:
        """Of a linked folder paths begin with `.`, else with ``base``."""
        begin = "." if path == "." or path.startswith("./") else self._base
        return self._named + path[len(begin) :]


def _send(options: argparse.Namespace, source: Path, name: str, path: str) -> int:
    if not source.exists():
        raise NotFound(f"{source} does not exist", hint="check the path")
    is_folder = path.endswith("/") or _is_folder(options, name, path)
    folder, base = (path, source.absolute().name) if is_folder else os.path.split(path)
    words = ["sh", "-c", _UNPACK, "sh", folder or "."]
    read, write = os.pipe()
    packing = _Packing(open(write, "wb"), source, base)  # noqa: SIM115  # closed by the thread
    with packing, open(read, "rb"):
        code, errors = _run(options, name, words, sys.stdout.buffer, read)
    if code:
        raise AllranksError(f"cannot write {path!r} in {name}: {errors}", hint=_hint(name))
    return packing.count


def _is_folder(options: argparse.Namespace, name: str, path: str) -> bool:
    words = ["test", "-d", path]
    return execute(name, words, rank=options.rank, node=options.node).exit_code == 0


class _Packing(_Tar):
    """Packs a file or folder into a stream."""

    def __init__(self, out: IO[bytes], source: Path, base: str) -> None:
        super().__init__()
        self._out, self._source, self._base = out, source, base

    def run(self) -> None:
        try:
            with self._out, tarfile.open(fileobj=self._out, mode="w|") as tar:
                tar.add(self._source, self._base, filter=self._counted)
        except BrokenPipeError:
            pass  # the other side has failed, and says why
        except OSError as error:
            reason = error.strerror or str(error)
            self.error = AllranksError(f"cannot read: {reason}", where=str(self._source))

    def _counted(self, member: tarfile.TarInfo) -> tarfile.TarInfo:
        self.count += not member.isdir()
        return member


def _run(
    options: argparse.Namespace, name: str, words: list[str], out: IO[bytes], stdin: int | None
) -> tuple[int, str]:
    """Run the command in the job; returns its exit code and the first line of its errors."""
    errors = bytearray()
    channel = Channel(name, options.rank, options.node, command=words)
    if stdin is None:
        channel.connection.send(Frame.EOF)
    write: Callable[[bytes], object] = out.write

    def take(kind: Frame, data: bytes) -> None:
        if kind is Frame.OUT:
            write(data)
        elif kind is Frame.ERR:
            errors.extend(data[-4096:])

    code = Follower(channel, take, stdin).run()
    lines = errors.decode(errors="replace").strip().splitlines()
    return code, lines[0] if lines else ""


def _hint(name: str) -> str:
    return f"look around there: allranks job shell {name}"
