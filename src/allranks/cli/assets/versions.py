"""What `data`, `environment` and `model` have alike: things with a name, versions and labels."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from allranks.cli.output import show
from allranks.errors import NotFound
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import asset_path, versions_path

WHICH = "NAME, NAME:VERSION or NAME@LABEL"


def list_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="all versions of that one")


def which_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=WHICH)


def label_options(parser: argparse.ArgumentParser) -> None:
    which_option(parser)
    parser.add_argument("labels", nargs="+", metavar="LABEL", help="labels to set")


def delete_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="NAME:VERSION")


def whole(found: Mapping[str, Any]) -> str:
    return f"{found['name']}:{found['version']}"


def listed(kind: str, name: str | None) -> list[dict[str, Any]]:
    """The newest version of each, or all of the one of that name. Raises NotFound."""
    found: list[dict[str, Any]] = find_server.ask("GET", versions_path(kind, name))
    if name and not found:
        raise _none(kind, name)
    return found


def _none(kind: str, name: str) -> NotFound:
    from allranks.spec.fields.problems import nearest  # lazy: only where nothing is found

    word, known = kind.removesuffix("s"), {each["name"] for each in listed(kind, None)}
    hint = nearest(name, known) or f"`allranks {word} list` shows those there are"
    return NotFound(f"there is no {word} named {name!r}", hint=hint)


def got(kind: str, reference: str) -> dict[str, Any]:
    found: dict[str, Any] = find_server.ask("GET", asset_path(kind, reference))
    return found


def label(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Give labels to a version; what it is then."""
    address = asset_path(kind, options.name, "/labels")
    made: dict[str, Any] = find_server.ask("PUT", address, {"labels": options.labels})
    return made


def delete(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Forget a version; what it was."""
    gone: dict[str, Any] = find_server.ask("DELETE", asset_path(kind, options.name))
    return gone


def print_whole(found: Mapping[str, Any]) -> None:
    """All of it as YAML, without what there is nothing of."""
    from allranks.spec.fields.plain_words import written  # lazy: YAML

    kept = {key: value for key, value in found.items() if value not in (None, [], {})}
    print(written(kept), end="")


def made_word(made: Mapping[str, Any]) -> str:
    return "created" if made["created"] else "there already"


def tell(
    options: argparse.Namespace, made: Mapping[str, Any], word: str, about: str, then: str = ""
) -> int:
    """Say what became of it: that it is created, labelled, …"""
    if options.json:
        show.as_json(made)
    elif not options.quiet:
        show.talk(f"{whole(made)} is {word}: {about}")
        if word == "created":
            show.talk(then)
    return 0
