"""`allranks data …`: data with names and versions, wherever it lies."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.cli.assets import versions
from allranks.cli.output import show
from allranks.errors import SpecError
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import labelled
from allranks.sdk.submit.submission import placed_data

_KIND, _DATA = "data", "/api/v1/data"


def create_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="its name (the file's)")
    add = parser.add_argument
    add("-f", "--file", metavar="FILE", help="a data asset's YAML")
    add("--path", metavar="PATH|URI", help="where it lies")
    add("--type", metavar="TYPE", help="uri_file, uri_folder or mltable (what the path is)")
    add("--version", metavar="V", help="its version (the next number)")
    add("--description", metavar="TEXT", help="a description to show with it")
    add("--label", action="append", default=[], metavar="LABEL", help="a label for it; repeat")


def create(options: argparse.Namespace) -> int:
    """Add a version of a data asset; the data stays where it lies."""
    data: dict[str, Any] = {}
    lines: dict[str, int] = {}
    base = Path()
    if options.file is not None:
        from allranks.spec.fields.scalars import sendable  # lazy: as above
        from allranks.spec.yaml import load  # lazy: reads YAML

        data, lines = load.read(load.content(Path(options.file)), file=options.file)
        data = sendable(data)
        base = Path(options.file).parent
    keys = ("name", "path", "type", "version", "description")
    data |= {key: getattr(options, key) for key in keys if getattr(options, key) is not None}
    if options.path is not None:
        base = Path()
    address = labelled(_DATA, options.label)
    try:
        made = find_server.ask("POST", address, placed_data(data, base.absolute()))
    except SpecError as error:
        from allranks.spec.fields.problems import placed  # lazy: as above

        raise SpecError([placed(p, lines) for p in error.problems], file=options.file) from None
    return _told(options, made, versions.made_word(made))


list_data_options = versions.list_option


def list_data(options: argparse.Namespace) -> int:
    found = versions.listed(_KIND, options.name)
    if options.json:
        show.as_json(found)
        return 0
    if not found:
        show.talk("no data yet; `allranks data create NAME --path PATH` names some")
        return 0
    rows = [(e["name"], e["version"], " ".join(e["labels"]), e["type"], e["path"]) for e in found]
    show.columns(("NAME", "VERSION", "LABELS", "TYPE", "PATH"), rows)
    return 0


show_data_options = versions.which_option


def show_data(options: argparse.Namespace) -> int:
    found = versions.got(_KIND, options.name)
    if options.json:
        show.as_json(found)
    else:
        versions.print_whole(found)
    return 0


label_options = versions.label_options


def label(options: argparse.Namespace) -> int:
    """Give labels to a version: `azureml:NAME@LABEL` means it from now on."""
    made = versions.label(_KIND, options)
    return _told(options, made, f"labelled {', '.join(made['labels'])}")


delete_options = versions.delete_options


def delete(options: argparse.Namespace) -> int:
    """Forget a version; the data itself stays where it lies."""
    return _told(options, versions.delete(_KIND, options), "forgotten")


def stand_for_options(parser: argparse.ArgumentParser) -> None:
    asked = "what addresses begin with: s3://old/, azureml://datastores/old/paths/, /mnt/data"
    parser.add_argument("asked", nargs="?", metavar="BEGINNING", help=asked)
    taken = "what is taken in its place; left out: no longer anything else"
    parser.add_argument("taken", nargs="?", metavar="TAKEN", help=taken)


def stand_for(options: argparse.Namespace) -> int:
    """Send the addresses that begin so somewhere else; alone: show all that was said."""
    client = find_server.connect()
    if options.asked is not None:
        client.json("PUT", f"{_DATA}/map", {options.asked: options.taken})
        if not options.quiet and not options.json:
            said = f"is now {options.taken}" if options.taken else "means itself"
            show.talk(f"{options.asked} {said}")
        return 0
    found = client.json("GET", f"{_DATA}/map")
    if options.json:
        show.as_json(found)
    else:
        show.columns(("BEGINNING", "TAKEN"), [*found.items()])
    return 0


def _told(options: argparse.Namespace, made: Mapping[str, Any], word: str) -> int:
    then = f"a job's input: allranks run -i NAME=azureml:{versions.whole(made)} -- COMMAND"
    return versions.tell(options, made, word, made["path"], then)
