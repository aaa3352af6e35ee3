"""`allranks model …`: what training left, by name and version, and where it comes from."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.cli.assets import versions
from allranks.cli.job_names import JobReference
from allranks.cli.output import show
from allranks.cli.output.progress_line import ProgressLine
from allranks.errors import SpecError, UsageError
from allranks.plan.amounts import counted, size_text
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import asset_path

_KIND = "models"


def register_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="its name (the file's)")
    add = parser.add_argument
    add("-f", "--file", metavar="FILE", help="a model's YAML")
    add("-j", "--job", type=JobReference, metavar="JOB", help="the job that left it")
    path = "of what the job left: outputs/model.pt, outputs.NAME/…; without --job of this machine"
    add("--path", metavar="PATH", help=path)
    add("--version", metavar="V", help="its version (the next number)")
    add("--type", metavar="TYPE", help="custom_model, mlflow_model, triton_model (what it is)")
    add("--flavor", metavar="WORD", help="pytorch, tensorflow, onnx, … (what its files say)")
    add("--description", metavar="TEXT", help="a description to show with it")
    add("--tag", action="append", default=[], metavar="K=V", help="a tag; repeat")
    add("--property", action="append", default=[], metavar="K=V", help="a property; repeat")
    label = "a label for it, its alias; repeat"
    add("--label", "--alias", action="append", default=[], metavar="LABEL", help=label)


def register(options: argparse.Namespace) -> int:
    """Add a version of a model: its files are the record's own from then on."""
    from allranks.sdk.assets.register_model import register  # lazy: no other command sends models

    data: dict[str, Any] = {}
    lines: dict[str, int] = {}
    base = Path()
    if options.file is not None:
        from allranks.spec.fields.scalars import sendable  # lazy: as above
        from allranks.spec.yaml import load  # lazy: reads YAML

        data, lines = load.read(load.content(Path(options.file)), file=options.file)
        data = sendable(data)
        base = Path(options.file).parent
    keys = ("name", "job", "path", "version", "type", "description")
    data |= {key: getattr(options, key) for key in keys if getattr(options, key) is not None}
    if options.path is not None:
        if not options.path:
            raise UsageError("--path names nothing", hint="a folder as it is: --path .")
        base = Path()
    if options.flavor is not None:
        data["flavors"] = {options.flavor: {}}
    for key, words in (("tags", options.tag), ("properties", options.property)):
        if words:
            data[key] = {**(data.get(key) or {}), **dict(_pair(word) for word in words)}
    line = ProgressLine(options.quiet or options.json)
    try:
        with find_server.connect() as client:
            made = register(client, data, base.absolute(), options.label, line.report)
    except SpecError as error:
        from allranks.spec.fields.problems import placed  # lazy: as above

        raise SpecError([placed(p, lines) for p in error.problems], file=options.file) from None
    finally:
        line.clear()
    return _told(options, made, versions.made_word(made))


list_models_options = versions.list_option


def list_models(options: argparse.Namespace) -> int:
    found = versions.listed(_KIND, options.name)
    if options.json:
        show.as_json(found)
        return 0
    if not found:
        show.talk("no models yet; `allranks model register NAME --job JOB --path outputs/…`")
        return 0
    head = ("NAME", "VERSION", "LABELS", "FLAVOR", "SIZE", "JOB")
    show.columns(head, [_row(each) for each in found])
    return 0


def _row(each: Mapping[str, Any]) -> tuple[str, ...]:
    labels, flavors = " ".join(each["labels"]), " ".join(each.get("flavors") or ())
    size, job = size_text(each["size"]), each.get("job") or ""
    return each["name"], each["version"], labels, flavors, size, job


show_model_options = versions.which_option


def show_model(options: argparse.Namespace) -> int:
    """A model with its files and their checksums, and what was run to make it."""
    found = versions.got(_KIND, options.name)
    manifest = find_server.ask("GET", asset_path(_KIND, versions.whole(found), "/manifest"))
    found["files"] = [{key: each[key] for key in ("path", "size", "sha256")} for each in manifest]
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
    """Forget a version; its files go with the next `allranks gc`, unless another has them."""
    return _told(options, versions.delete(_KIND, options), "forgotten")


def _told(options: argparse.Namespace, made: Mapping[str, Any], word: str) -> int:
    files = counted(made["files"], "file")
    about = f"{files}, {size_text(made['size'])}"
    then = f"a job's input: allranks run -i model=azureml:{versions.whole(made)} -- COMMAND"
    return versions.tell(options, made, word, about, then)


def _pair(word: str) -> tuple[str, str]:
    key, given, value = word.partition("=")
    if not given or not key:
        raise UsageError(f"{word!r} is no KEY=VALUE", hint="as in --tag data=birds")
    return key, value
