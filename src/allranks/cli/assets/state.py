"""`allranks state …`: what jobs go on from, and what it was before."""

from __future__ import annotations

import argparse
from typing import Any

from allranks.cli.output import show
from allranks.plan.amounts import counted, size_text
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import state_path

_WHICH = "a state, or a job for its own"


def list_states_options(parser: argparse.ArgumentParser) -> None:
    own = "those of jobs that name none, by the job's name"
    parser.add_argument("--own", action="store_true", help=own)


def list_states(options: argparse.Namespace) -> int:
    found = find_server.ask("GET", "/api/v1/states" + ("?own=true" if options.own else ""))
    if options.json:
        show.as_json(found)
        return 0
    if not found:
        show.talk("no states yet; `allranks run --state NAME -- COMMAND` keeps one")
        return 0
    rows = [
        (
            each["name"],
            str(each["version"] or "-"),
            str(each["files"]),
            size_text(each["size"]),
            _when(each["made_at"]),
            each["held_by"] or "-",
        )
        for each in found
    ]
    show.columns(("NAME", "VERSION", "FILES", "SIZE", "MADE", "HELD BY"), rows)
    return 0


def show_state_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=_WHICH)
    version = "what was in that version (what is in it now)"
    parser.add_argument("--version", type=int, metavar="N", help=version)


def show_state(options: argparse.Namespace) -> int:
    """Its versions, and everything in it with sizes and checksums, the newest last."""
    found = find_server.ask("GET", state_path(options.name))
    query = "" if options.version is None else f"?version={options.version}"
    listing = find_server.ask("GET", state_path(options.name, f"/manifest{query}"))
    if options.json:
        show.as_json({**found, "entries": listing})
        return 0
    held = f", the job {found['held_by']} has it" if found["held_by"] else ""
    print(f"{found['name']}: {counted(found['files'], 'file')}, {size_text(found['size'])}{held}")
    rows = [
        (
            str(each["version"]),
            _when(each["made_at"]),
            str(each["files"]),
            size_text(each["size"]),
            _by(each),
        )
        for each in found["versions"]
    ]
    if rows:
        show.columns(("VERSION", "MADE", "FILES", "SIZE", "WHY"), rows)
    if options.version is not None:
        print(f"in version {options.version}:")
    for each in listing:
        show.line(f"  {_entry(each)}")
    return 0


def restore_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=_WHICH)
    parser.add_argument(
        "--version", type=int, required=True, metavar="N", help="version to restore"
    )


def restore(options: argparse.Namespace) -> int:
    """Have what was in a version: the next job goes on from there."""
    where, data = state_path(options.name, "/restore"), {"version": options.version}
    found = find_server.ask("POST", where, data)
    return _told(options, found, f"is as version {options.version} again")


def delete_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=_WHICH)


def delete(options: argparse.Namespace) -> int:
    """Remove it with all its versions: there is no way back."""
    return _told(options, find_server.ask("DELETE", state_path(options.name)), "is gone")


def _told(options: argparse.Namespace, found: dict[str, Any], word: str) -> int:
    if options.json:
        show.as_json(found)
    elif not options.quiet:
        files = f"{counted(found['files'], 'file')}, {size_text(found['size'])}"
        show.talk(f"{found['name']} {word}: {files}")
    return 0


def _when(made_at: str | None) -> str:
    return (made_at or "-")[:19].replace("T", " ")


def _by(version: dict[str, Any]) -> str:
    by = f"{version['job']}, attempt {version['attempt']}: " if version["job"] else ""
    return by + str(version["why"])


def _entry(each: dict[str, Any]) -> str:
    if each["what"] == "link":
        return f"{each['path']} -> {each['target']}"
    if each["what"] == "folder":
        return f"{each['path']}/"
    return f"{each['path']}  {size_text(each['size'])}  {each['sha256'][:12]}"
