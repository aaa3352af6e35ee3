"""`allranks state …`: state folders, whose checkpoints later attempts and jobs resume from."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from allranks.api import routes
from allranks.cli.output import show
from allranks.core.amounts import counted, size_text
from allranks.sdk.connection import find_server


def _name_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a state, or the job it belongs to")


def list_states_options(parser: argparse.ArgumentParser) -> None:
    own = "list the states of jobs without --state, by the job's name"
    parser.add_argument("--own", action="store_true", help=own)


def list_states(options: argparse.Namespace) -> int:
    states = find_server.ask(routes.list_states, own=options.own or None)
    rows = [
        (
            state["name"],
            str(state["version"] or "-"),
            str(state["files"]),
            size_text(state["size"]),
            show.moment(state["made_at"]),
            state["held_by"] or "-",
        )
        for state in states
    ]
    head = ("NAME", "VERSION", "FILES", "SIZE", "SAVED", "USED BY")
    empty = "no states yet\n\nhint: allranks run --state NAME -- COMMAND"
    return show.listing(options, states, head, rows, empty)


def show_state_options(parser: argparse.ArgumentParser) -> None:
    _name_option(parser)
    version = "list the files of that version (the current files)"
    parser.add_argument("--version", type=int, metavar="N", help=version)


def show_state(options: argparse.Namespace) -> int:
    """Print a state's versions, and its files with sizes and checksums."""
    state = find_server.ask(routes.show_state, options.name)
    entries = find_server.ask(routes.state_manifest, options.name, version=options.version)
    if options.json:
        show.as_json({**state, "entries": entries})
        return 0
    user = f", used by the job {state['held_by']}" if state["held_by"] else ""
    show.line(f"{state['name']}: {_size(state)}{user}")
    rows = [
        (
            str(version["version"]),
            show.moment(version["made_at"]),
            str(version["files"]),
            size_text(version["size"]),
            (f"{version['job']}, attempt {version['attempt']}: " if version["job"] else "")
            + version["why"],
        )
        for version in state["versions"]
    ]
    if rows:
        show.columns(("VERSION", "SAVED", "FILES", "SIZE", "WHY"), rows)
    if options.version is not None:
        print(f"files of version {options.version}:")
    for entry in entries:
        show.line(f"  {_entry(entry)}")
    return 0


def restore_options(parser: argparse.ArgumentParser) -> None:
    _name_option(parser)
    parser.add_argument(
        "--version", type=int, required=True, metavar="N", help="version to restore"
    )


def restore(options: argparse.Namespace) -> int:
    """Make a version the current one: the next job resumes from it."""
    body = {"version": options.version}
    state = find_server.ask(routes.restore_state, options.name, body=body)
    restored = f"{state['name']} is restored to version {options.version}: {_size(state)}"
    return show.result(options, state, restored)


def delete_options(parser: argparse.ArgumentParser) -> None:
    _name_option(parser)
    show.yes_option(parser.add_argument)


def delete(options: argparse.Namespace) -> int:
    """Delete a state with all its versions, for good."""
    if not show.may_destroy(options, f"delete the state {options.name} with all its versions"):
        return 1
    state = find_server.ask(routes.delete_state, options.name)
    return show.result(options, state, f"{state['name']} is deleted: {_size(state)}")


def _size(state: Mapping[str, Any]) -> str:
    return f"{counted(state['files'], 'file')}, {size_text(state['size'])}"


def _entry(each: Mapping[str, Any]) -> str:
    if each["what"] == "link":
        return f"{each['path']} -> {each['target']}"
    if each["what"] == "folder":
        return f"{each['path']}/"
    return f"{each['path']}  {size_text(each['size'])}  {each['sha256'][:12]}"
