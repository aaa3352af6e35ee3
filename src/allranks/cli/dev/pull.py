"""`allranks dev pull`: fetch what was changed in a session."""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from allranks.agent.inside.allranks_dev_files import digest
from allranks.cli.dev import notes
from allranks.cli.dev.changes import Changes, changes, is_path_below
from allranks.cli.dev.notes import Note
from allranks.cli.job.session_files import SKIPPED, listed_there, run_there
from allranks.cli.output import show
from allranks.core.amounts import counted, size_text
from allranks.core.data.state_manifest import stays_inside
from allranks.core.data.working_set import COLLECTED
from allranks.core.job.sessions import session_name
from allranks.errors import AllranksError, NotFound, UsageError
from allranks.sdk.transfer.write_files import beside, destination, replace_by_link
from allranks.snapshot import files
from allranks.snapshot.ignore import NEVER, excluded_by_user
from allranks.tars import CHUNK, Entry, stream_entries

# Folders whose files never come, whatever a node says: git runs what is in its own.
_STAY = frozenset(name.casefold() for name in (*NEVER, *SKIPPED))
# Bytes: a larger file that was not sent is named, and not fetched.
_LARGE = 256 << 20


def pull_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the session")
    folder = "the folder that they come into (the one that was sent)"
    parser.add_argument("-p", "--path", metavar="DIR", help=folder)
    force = "also files that were changed here meanwhile"
    parser.add_argument("--force", action="store_true", help=force)
    parser.add_argument("--dry-run", action="store_true", help="say what would come")


def pull(options: argparse.Namespace) -> int:
    """Fetch the files that were changed or made on the session's first node since they were sent.
    What git or .amlignore ignores stays there, and so does what was changed here, too: exit code 1.
    Nothing is removed."""
    name = session_name(options.name)
    session = notes.session_job(name)
    mark = notes.mark_of(session["spec"])
    note = notes.read(name, mark)
    if note is not None and note.in_place:
        return show.result(options, {"files": []}, f"{name} runs in {note.folder}: nothing to pull")
    if note is None and options.path is None:
        hint = f"name the folder: allranks dev pull {options.name} -p DIR"
        raise UsageError(f"{name} was not started from here", hint=hint)
    folder = Path(options.path if note is None or options.path is not None else note.folder)
    if not folder.is_dir():
        raise NotFound("the folder does not exist", where=str(folder), hint="name another: -p DIR")
    is_elsewhere = note is not None and str(folder.resolve()) != note.folder
    sent = {} if note is None or is_elsewhere else note.sent
    there, large = _there(name, sent, folder)
    refused = [path for path in there if why_not(folder, path, there[path])]
    there = {path: held for path, held in there.items() if path not in refused}
    here = _here(folder, {*there, *sent})
    compared = changes(sent, there, here)
    chosen = (*compared.take, *(compared.both if options.force else ()))
    came: dict[str, str] = {}
    try:
        if chosen and not options.dry_run:
            for path in _fetched(name, {path: here.get(path) for path in chosen}, folder):
                came[path] = digest(str(folder / path))
    finally:
        if (came or compared.same) and not is_elsewhere:
            agreed = {path: there[path] for path in compared.same}
            pulled = Note(str(folder.resolve()), False, {**sent, **agreed, **came})
            notes.write(name, mark, pulled)
    if options.dry_run:
        return _report(options, name, compared, refused, large, chosen)
    meanwhile = [path for path in chosen if path not in came]
    compared = compared._replace(both=(*compared.both, *meanwhile))
    return _report(options, name, compared, refused, large, [*came])


def _there(name: str, sent: Mapping[str, str], folder: Path) -> tuple[dict[str, str], list[str]]:
    """What is in the session, but for what is ignored here; and what is too large. Raises
    AllranksError if the session says something else."""
    request = {"sent": [*sent], "most": _LARGE, "skipped": [*NEVER, *SKIPPED]}
    listed, sizes = listed_there(name, request)
    by_git, by_user = files.rules_without_git(folder), excluded_by_user(folder)

    def comes(path: str) -> bool:
        ignored = by_git(path) or by_user(path) or path in COLLECTED or path.endswith(".pyc")
        return path in sent or not ignored

    held = {path: what for path, what in listed.items() if comes(path)}
    large = [f"{path} ({size_text(size)})" for path, size in sizes.items() if comes(path)]
    return held, large


def _here(folder: Path, names: Iterable[str]) -> dict[str, str]:
    held = {}
    for path in names:
        with suppress(OSError, ValueError):
            if (folder / path).is_file() or (folder / path).is_symlink():  # no pipe, which waits
                held[path] = digest(str(folder / path))
    return held


def why_not(folder: Path, name: str, held: str) -> str:
    """Why that file of a session may not be written here; empty if it may."""
    if not is_path_below(name):
        return "its name leads out of the folder"
    if any(part.casefold() in _STAY for part in name.split("/")):
        return "it belongs to git or to a cache"
    if held.startswith("->") and not stays_inside(f"./{name}", held[2:]):
        return "it is a link that leads out of the folder"
    target, above = folder / name, [folder / path for path in Path(name).parents][:-1]
    try:
        if any(path.is_symlink() or (path.exists() and not path.is_dir()) for path in above):
            return "it lies behind a link or a file here"
        return "it is a folder here" if target.is_dir() and not target.is_symlink() else ""
    except (OSError, ValueError):
        return "its name cannot be that of a file"


def _fetched(name: str, chosen: Mapping[str, str | None], folder: Path) -> Iterator[str]:
    """Fetch these files, and yield each that has come; not one that holds something else here than
    it did when they were ``chosen``. Raises AllranksError, for a full disk, too: each file is
    whole, the old or the new one."""
    try:
        with tempfile.TemporaryFile(dir=folder) as packed:
            run_there(name, "pack", [*chosen], packed)
            packed.seek(0)
            yield from placed(stream_entries(f"what {name} sent", packed), chosen, folder)
    except OSError as error:
        hint = f"make room or correct it, then again: allranks dev pull {name}"
        raise AllranksError(
            f"not all files could be written: {error.strerror}", where=str(folder), hint=hint
        ) from None


def placed(
    entries: Iterable[Entry], chosen: Mapping[str, str | None], folder: Path
) -> Iterator[str]:
    """Write those of the entries that were ``chosen``, and yield their names."""
    for entry in entries:
        path = entry.name
        if path not in chosen or _here(folder, [path]).get(path) != chosen[path]:
            continue
        if why := why_not(folder, path, f"->{entry.target}" if entry.kind == "link" else ""):
            raise AllranksError(f"{path!r} was not written: {why}", where=str(folder))
        if entry.kind == "link":
            replace_by_link(folder, path, entry.target)
        elif entry.kind == "file" and entry.pieces is None:
            with destination(folder, path, beside(path, chosen), threading.Event()) as file:
                file.cut()
                while file.size < entry.size:
                    file.write(entry.read(min(entry.size - file.size, CHUNK)))
                file.finish(None, mode=0o755 if entry.mode & 0o100 else 0o644)
        else:
            continue
        yield path


def _report(
    options: argparse.Namespace,
    name: str,
    compared: Changes,
    refused: Sequence[str],
    large: Sequence[str],
    came: Sequence[str],
) -> int:
    left = [path for path in compared.both if path not in came]
    if options.json:
        data = {"files": [*came], "left": [*left], "refused": [*refused], "large": [*large]}
        show.as_json({**data, "removed_there": [*compared.gone]})
        return 1 if left else 0
    for path in came:
        show.line(path)
    if options.quiet:
        return 1 if left else 0
    does = "would come" if options.dry_run else "came"
    show.talk(f"{counted(len(came), 'file')} {does} from {name}")
    about = {
        "changed in both places, and left as they are here": left,
        "overwritten here, where they had been changed, too": [*{*compared.both} & {*came}],
        "left out, because they lead out of the folder or to git's, or where one is here": refused,
        "left out as large; `allranks job cp` fetches them": large,
        "removed there, and kept here": compared.gone,
    }
    for what, names in about.items():
        if names:
            show.talk(f"{what}: {show.several(names)}")
    if left:
        show.talk(
            f"\nhint: --force takes those of {name}; to compare: allranks job cp {name}:FILE DIR"
        )
    return 1 if left else 0
