"""`allranks job cp`: copy files into a running job, and out of it."""

from __future__ import annotations

import argparse
import contextlib
import os
import tarfile
import threading
from pathlib import Path
from typing import IO

from allranks.agent.archives.safe_extract import Extraction
from allranks.channel import Frame
from allranks.cli.job_names import JobReference, full_name
from allranks.cli.output import show
from allranks.core.data.working_set import COLLECTED
from allranks.errors import AllranksError, NotFound, UsageError
from allranks.sdk.jobs.channel import Channel, Follower, execute
from allranks.tars import Entry, stream_entries

# A link to a folder, as `outputs` is, is that folder; one to a file is that file. GNU's tar writes
# fractions of seconds in this format only; others do not know it.
_PACK = """cd "$1" || exit
exact=--format=posix; tar $exact --version >/dev/null 2>&1 || exact=
if [ -L "$2" ] && [ -d "$2" ]; then cd -- "$2" && exec tar $exact -cf - .; fi
if [ -L "$2" ]; then exec tar $exact -chf - -- "$2"; fi
exec tar $exact -cf - -- "$2" """
_UNPACK = 'mkdir -p -- "$1" && exec tar -xf - -C "$1"'
# tar's, if a file changed while it was read.
_CHANGED = 1
# Entries that cannot be written, after which the rest is not looked at.
_MOST_LEFT_OUT = 10_000
# Bytes of the other side's errors that are kept, and characters of the line that is shown.
_MOST_ERRORS, _LONGEST = 4096, 500


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
    left_out: list[str] = []
    if source is not None:
        count, left_out = _fetch(options, *source, Path(options.target), with_links=True)
    else:
        assert target is not None
        count = _send(options, Path(options.source), *target)
    notes = [f"left out: {show.several(left_out)}"] if left_out else []
    data = {"files": count, "left_out": left_out}
    return show.result(options, data, f"copied {count} file{'s' * (count != 1)}", *notes)


def _split(text: str) -> tuple[str, str] | None:
    """The job and the path in it; None for a path here."""
    name, colon, path = text.partition(":")
    if not colon or "/" in name:
        return None
    full, _ = full_name(JobReference(name))
    return full, path or "."


def _fetch(
    options: argparse.Namespace, name: str, path: str, target: Path, *, with_links: bool = False
) -> tuple[int, list[str]]:
    """Returns the number of files, and the links and special files that were left out.
    ``with_links``: bring the folders that `outputs` and `logs` of a working folder lead to."""
    folder, base = os.path.split(path.rstrip("/") or "/")
    into, named = (target, base) if target.is_dir() else (target.parent, target.name)
    if not into.is_dir():
        raise NotFound(f"the folder {into} does not exist", hint="create it first")
    words = ["sh", "-c", _PACK, "sh", folder or ".", base or "."]
    read, write = os.pipe()
    with open(read, "rb") as packed:
        unpacking = Unpacking(packed, f"{name}:{path}", into, base or ".", named if base else ".")
        with unpacking, open(write, "wb") as out:
            code, errors = _run(options, name, words, out, None)
    if code not in (0, _CHANGED):
        failed = (
            f"not all of {path!r} in {name} came" if unpacking.came else f"{name} has no {path!r}"
        )
        raise NotFound(f"{failed}: {errors or f'tar ended with {code}'}", hint=_hint(name))
    if unpacking.error is not None:
        raise unpacking.error
    if unpacking.refused:
        hint = "what was asked for and is not named here has been copied"
        refused = f"{name} sent what cannot be written: {show.several(unpacking.refused)}"
        raise AllranksError(refused, hint=hint)
    count, left_out = unpacking.count, unpacking.left_out
    for link in unpacking.job_folders:
        others = [f"{link!r} is a link that leads outside its folder"]
        with contextlib.suppress(NotFound):  # it leads to nothing
            if with_links:
                more, others = _fetch(options, name, f"{path}/{link}", into / unpacking.named)
                count += more
        left_out += others
    return count, left_out


class _Tar(threading.Thread):
    """Packs or unpacks in a thread, up to the end of a `with`; ``error`` is why it failed."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.error = 0, None  # type: int, AllranksError | None

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self.join()


class Unpacking(_Tar):
    """Unpacks a stream that any program may have written. ``base``, which was asked for, becomes
    ``named`` in the folder ``into``, and nothing else is written. ``came``: whether anything was
    asked for. ``refused`` and ``left_out`` say which entries were not written and why; the latter
    are links and special files, which honest jobs have, too."""

    def __init__(self, packed: IO[bytes], source: str, into: Path, base: str, named: str) -> None:
        super().__init__()
        self._packed, self._source = packed, source
        self._into, self._base, self.named = into, base, named
        self._roots: dict[Path, Extraction] = {}
        self.came = False
        self.refused: list[str] = []
        self.left_out: list[str] = []
        # Links of these names, which each working folder has to folders of the job.
        self.job_folders: list[str] = []

    def run(self) -> None:
        try:
            for entry in stream_entries(self._source, self._packed):
                self._unpack(entry)
        except AllranksError as error:
            self.error = error
        except OSError as error:
            reason = error.strerror or str(error)
            self.error = AllranksError(f"cannot write: {reason}", where=str(self._into))
        except Exception as error:  # no stream ends without a word
            self.error = AllranksError(f"cannot be unpacked: {error!r}", where=self._source)
        finally:
            for root in reversed(self._roots.values()):
                root.close()
        while self._packed.read(1 << 20):
            pass

    def _unpack(self, entry: Entry) -> None:
        try:
            self._put(entry)
        except AllranksError as error:
            below = self._below(entry.name)
            if entry.kind == "link" and below in COLLECTED and below not in self.job_folders:
                self.job_folders.append(below)
                return
            is_plain = entry.kind in ("link", "other") and below is not None
            (self.left_out if is_plain else self.refused).append(error.message)
            if len(self.left_out) + len(self.refused) > _MOST_LEFT_OUT:
                raise
        else:
            self.count += entry.kind != "folder"
            self.came = True

    def _put(self, entry: Entry) -> None:
        """A single file is written into the folder, all else below the folder of its name, which no
        link leads out of."""
        name = self._below(entry.name)
        target = self._below(entry.target) if entry.kind == "hard link" else entry.target
        if name is None or target is None:
            raise AllranksError(f"{entry.name!r} was not asked for")
        is_single = not name and entry.kind != "folder"
        if is_single and entry.kind != "file":
            kind = "pipe or another special file" if entry.kind == "other" else entry.kind
            raise AllranksError(f"{entry.name!r} is a {kind}, not a file")
        root = self._into if is_single else self._into / self.named
        if root not in self._roots:
            root.mkdir(exist_ok=True)
            self._roots[root] = Extraction(Path(self._source), root)
        renamed = entry._replace(name=self.named if is_single else name, target=target)
        self._roots[root].put(renamed)

    def _below(self, path: str) -> str | None:
        """The path in what was asked for, None for any other. Of a linked folder paths begin with
        `.`, else with ``base``."""
        first, _, rest = path.partition("/")
        if first not in (".", self._base) or ".." in path.split("/"):
            return None
        return rest.strip("/")


def _send(options: argparse.Namespace, source: Path, name: str, path: str) -> int:
    if not source.exists():
        raise NotFound(f"{source} does not exist", hint="check the path")
    is_folder = path.endswith("/") or _is_folder(options, name, path)
    folder, base = (path, source.absolute().name) if is_folder else os.path.split(path)
    words = ["sh", "-c", _UNPACK, "sh", folder or "."]
    read, write = os.pipe()
    packing = _Packing(open(write, "wb"), source, base)  # noqa: SIM115  # closed by the thread
    with packing, open(read, "rb"):
        code, errors = _run(options, name, words, None, read)
    if packing.error is not None:
        raise packing.error
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
    options: argparse.Namespace,
    name: str,
    words: list[str],
    out: IO[bytes] | None,
    stdin: int | None,
) -> tuple[int, str]:
    """Run the command in the job; returns its exit code and the first line of its errors. Its
    output goes to ``out``."""
    errors = bytearray()
    channel = Channel(name, options.rank, options.node, command=words)
    if stdin is None:
        channel.connection.send(Frame.EOF)

    def take(kind: Frame, data: bytes) -> None:
        if kind is Frame.OUT and out is not None:
            out.write(data)
        elif kind is Frame.ERR and len(errors) < _MOST_ERRORS:
            errors.extend(data[:_MOST_ERRORS])

    code = Follower(channel, take, stdin).run()
    lines = errors.decode(errors="replace").strip().splitlines()
    return code, lines[0][:_LONGEST] if lines else ""


def _hint(name: str) -> str:
    return f"look around there: allranks job shell {name}"
