"""What the commands for data, environments and models share: files, names, versions, labels."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.cli.output import show
from allranks.cli.parser import option_of, with_option
from allranks.errors import NotFound, Problem, SpecError, UsageError
from allranks.sdk.connection import find_server

if TYPE_CHECKING:
    from allranks.api.common import Document

WHICH = "NAME, NAME:VERSION or NAME@LABEL"

# What deleting a version leaves.
_AFTER_DELETE = {
    "components": "pipelines that were submitted with it have a copy",
    "data": "the data itself stays in place",
    "environments": "jobs that use it keep running",
    "models": "`allranks gc` removes files that no other version uses",
}


_OPTIONS = {"name": "NAME"}

# Azure's keys of data, models and environments that have no effect.
IDLE = ("auto_delete_setting", "datastore", "inference_config", "os_type")


@contextmanager
def option_errors() -> Iterator[None]:
    """A SpecError raised in the block names options instead of keys."""
    try:
        yield
    except SpecError as error:
        raise SpecError([_by_option(problem) for problem in error.problems]) from None


@contextmanager
def definition(file: str | None, overrides: Sequence[str] = ()) -> Iterator[Document]:
    """The mapping in a YAML file, `-` for stdin; empty without a file; after ``a.b=c``
    overrides.

    A SpecError raised in the block gets the name of the file and the lines of its keys; without a
    file it names options instead.
    """
    if file is None and not overrides:
        with option_errors():
            yield {}
        return
    from allranks.spec.fields.problems import in_file  # lazy: imports the models
    from allranks.spec.fields.scalars import sendable  # lazy: as above
    from allranks.spec.yaml import load  # lazy: as above

    name = "stdin" if file == "-" else file
    text = load.content(Path(file)) if file else ""
    data, lines = load.read(text, file=name)
    for override in overrides:
        load.override_key(data, lines, override)
    if idle := [key for key in IDLE if key in data]:
        show.talk(f"note: no effect here: {', '.join(idle)}")
    with in_file(name, lines):
        yield sendable(data)


def _by_option(problem: Problem) -> Problem:
    key = problem.where or ""
    return with_option(problem, option_of(key, _OPTIONS)) if key.isidentifier() else problem


def given(options: argparse.Namespace, *keys: str) -> Document:
    """The options among ``keys`` that have a value. Raises UsageError for an empty path."""
    if "path" in keys and options.path == "":
        raise UsageError("--path is empty", hint="for the current folder: --path .")
    return {key: getattr(options, key) for key in keys if getattr(options, key) is not None}


def set_option(add: Callable[..., object]) -> None:
    what = "change a key of the file: description=…; repeat"
    add("--set", action="append", default=[], metavar="KEY=VALUE", help=what)


def list_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="list all its versions")


def which_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=WHICH)


def reference(asset: Mapping[str, Any]) -> str:
    return f"{asset['name']}:{asset['version']}"


def get(collection: str, name: str) -> Document:
    asset: Document = find_server.ask(_route("GET", collection), name)
    return asset


def _route(method: str, collection: str, rest: str = "") -> routes.Route[Any]:
    """The route of a version of an asset."""
    return routes.by_address(f"{method} /{collection}/{{reference}}{rest}")


def print_list(
    options: argparse.Namespace,
    collection: str,
    head: Sequence[str],
    row: Callable[[Mapping[str, Any]], Sequence[str]],
    usage: str,
) -> int:
    """Print the newest version of each asset, or all versions of ``options.name``.

    ``usage`` is the command that creates the first one. Raises NotFound for an unknown name.
    """
    versions = routes.by_address(f"GET /{collection}")
    assets = find_server.ask(versions, name=options.name or None)
    if options.name and not assets:
        raise _not_found(collection, options.name)
    empty = f"no {collection} yet\n\nhint: {usage}"
    return show.listing(options, assets, head, [row(asset) for asset in assets], empty)


def _not_found(collection: str, name: str) -> NotFound:
    from allranks.spec.fields.problems import nearest  # lazy: imports the models

    word = collection.removesuffix("s")
    newest = find_server.ask(routes.by_address(f"GET /{collection}"))
    names = {asset["name"] for asset in newest}
    hint = nearest(name, names) or f"`allranks {word} list` shows all names"
    return NotFound(f"no {word} named {name!r}", hint=hint)


def print_asset(asset: Mapping[str, Any]) -> None:
    """Print an asset as YAML, without empty fields."""
    from allranks.spec.fields.plain_words import written  # lazy: YAML

    text = written({k: v for k, v in asset.items() if v not in (None, [], {})})
    print("\n".join(show.safe_lines(text)), end="")


def print_created(
    options: argparse.Namespace, asset: Mapping[str, Any], about: str, usage: str
) -> int:
    """Report a version that was created or existed; ``usage`` is a job's option that uses it."""
    if not asset["created"]:
        return show.result(options, asset, f"{reference(asset)} already exists: {about}")
    hint = f"use it: allranks run {usage}"
    return show.result(options, asset, f"{reference(asset)} is created: {about}", hint)


# ---------------------------------------------------------------- label, delete


def _collection_option(parser: argparse.ArgumentParser) -> None:
    group = parser.prog.split()[1]
    parser.set_defaults(collection=group if group == "data" else f"{group}s")


def label_options(parser: argparse.ArgumentParser) -> None:
    _collection_option(parser)
    which_option(parser)
    parser.add_argument("labels", nargs="+", metavar="LABEL", help="labels to set")


def label(options: argparse.Namespace) -> int:
    """Point labels to a version: `azureml:NAME@LABEL` means it from now on."""
    labelling = _route("PUT", options.collection, "/labels")
    asset = find_server.ask(labelling, options.name, body={"labels": options.labels})
    labels = ", ".join(asset["labels"])
    return show.result(options, asset, f"{reference(asset)} is labelled {labels}")


def delete_options(parser: argparse.ArgumentParser) -> None:
    _collection_option(parser)
    parser.add_argument("name", metavar="NAME", help="NAME:VERSION")
    show.yes_option(parser.add_argument)


def delete(options: argparse.Namespace) -> int:
    if not show.may_destroy(options, f"delete {options.name}"):
        return 1
    asset = find_server.ask(_route("DELETE", options.collection), options.name)
    kept = _AFTER_DELETE[options.collection]
    return show.result(options, asset, f"{reference(asset)} is deleted; {kept}")
