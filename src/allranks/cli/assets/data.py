"""`allranks data …`: data assets with names and versions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.cli.assets import versions
from allranks.cli.output import show
from allranks.cli.output.sending import confirm_large_data, sending
from allranks.cli.run_options import take
from allranks.sdk.connection import find_server

if TYPE_CHECKING:
    from allranks.api.assets import CreatedData
    from allranks.api.common import Document
    from allranks.sdk.submit.data import When


def create_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="its name (the file's)")
    add = parser.add_argument
    add("-f", "--file", metavar="FILE", help="a data asset's YAML; - is stdin")
    add("--path", metavar="PATH|URI", help="where the data is")
    add("--type", metavar="TYPE", help="uri_file, uri_folder or mltable (what the path is)")
    add("--version", metavar="V", help="its version (the next number)")
    add("--description", metavar="TEXT", help="a description to show with it")
    add("--label", action="append", default=[], metavar="LABEL", help="a label for it; repeat")
    no_upload = "register the path as it is, also if the server cannot see it"
    add("--no-upload", action="store_true", help=no_upload)
    take(add, "--allow-large-data")
    versions.set_option(add)


def create(options: argparse.Namespace) -> int:
    """Create a version of a data asset. Local data is uploaded if the server cannot see it."""
    from allranks.sdk.submit.data import When  # lazy: few commands upload data

    with versions.definition(options.file, options.set) as data:
        data |= versions.given(options, "name", "path", "type", "version", "description")
        base = Path(options.file or "").parent if options.path is None else Path()
        when = When.NEVER if options.no_upload else When.UNSEEN
        return _created(options, data, base.absolute(), when)


def upload_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="a file or a folder of this machine")
    add = parser.add_argument
    add("--name", metavar="NAME", help="the name of the data asset (that of the path)")
    add("--version", metavar="V", help="its version (the next number)")
    add("--description", metavar="TEXT", help="a description to show with it")
    add("--label", action="append", default=[], metavar="LABEL", help="a label for it; repeat")
    add("--datastore", metavar="NAME", help="an object store for the data (the default datastore)")
    take(add, "--allow-large-data")


def upload(options: argparse.Namespace) -> int:
    """Upload a file or a folder and create a version of a data asset of it. What the server has
    already is not sent again; after an interruption the same command goes on."""
    from allranks.sdk.submit.data import When, name_of  # lazy: as above

    data = versions.given(options, "name", "path", "version", "description")
    data.setdefault("name", name_of(Path(options.path)))
    return _created(options, data, Path().absolute(), When.ALWAYS)


def _created(options: argparse.Namespace, data: Document, base: Path, when: When) -> int:
    from allranks.sdk.submit.data import create_data  # lazy: as above
    from allranks.sdk.upload.inputs import How  # lazy: as above

    with sending(options) as (line, note):

        def made(allow: bool) -> CreatedData:
            how = How(allow, note, line.report, getattr(options, "datastore", None) or "")
            return create_data(data, base, options.label, how, when)

        try:
            asset = confirm_large_data(options, made)
        except KeyboardInterrupt:
            line.clear()
            show.talk("\ninterrupted; what was sent is kept: run the same command again")
            return 130
    usage = f"-i NAME=azureml:{versions.reference(asset)} -- COMMAND"
    return versions.print_created(options, asset, asset["path"], usage)


list_data_options = versions.list_option


def list_data(options: argparse.Namespace) -> int:
    head = ("NAME", "VERSION", "LABELS", "TYPE", "PATH")
    return versions.print_list(options, "data", head, _row, "allranks data create NAME --path PATH")


def _row(asset: Mapping[str, Any]) -> tuple[str, ...]:
    labels = " ".join(asset["labels"])
    return asset["name"], asset["version"], labels, asset["type"], asset["path"]


show_data_options = versions.which_option


def show_data(options: argparse.Namespace) -> int:
    asset = versions.get("data", options.name)
    show.as_json(asset) if options.json else versions.print_asset(asset)
    return 0


def map_prefix_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    prefix = "the start of URIs or paths: s3://old/, azureml://datastores/old/paths/, /mnt/data"
    add("prefix", nargs="?", metavar="PREFIX", help=prefix)
    add("target", nargs="?", metavar="TARGET", help="what replaces it (removes the mapping)")


def map_prefix(options: argparse.Namespace) -> int:
    """Map a URI prefix to another location; without one, print the mappings."""
    if options.prefix is not None:
        entry = {options.prefix: options.target}
        find_server.ask(routes.map_data, body=entry)
        means = f"maps to {options.target}" if options.target else "is no longer mapped"
        return show.result(options, entry, f"{options.prefix} {means}")
    mappings = find_server.ask(routes.show_data_map)
    return show.listing(options, mappings, ("PREFIX", "TARGET"), [*mappings.items()])
