"""`allranks model …`: trained models with names, versions and lineage."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.api import routes
from allranks.cli.assets import versions
from allranks.cli.job_names import JobReference
from allranks.cli.output import show
from allranks.cli.output.progress_line import ProgressLine
from allranks.core.amounts import counted, size_text
from allranks.errors import UsageError
from allranks.sdk.connection import find_server


def register_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="its name (the file's)")
    add = parser.add_argument
    add("-f", "--file", metavar="FILE", help="a model's YAML; - is stdin")
    add("-j", "--job", type=JobReference, metavar="JOB", help="the job that wrote it")
    path = "in the job's record: outputs/model.pt, outputs.NAME/…; without --job a local path"
    add("--path", metavar="PATH", help=path)
    add("--version", metavar="V", help="its version (the next number)")
    add("--type", metavar="TYPE", help="custom_model, mlflow_model or triton_model (detected)")
    add("--flavor", metavar="NAME", help="pytorch, tensorflow, onnx, … (guessed from its files)")
    add("--description", metavar="TEXT", help="a description to show with it")
    add("--tag", action="append", default=[], metavar="K=V", help="a tag; repeat")
    add("--property", action="append", default=[], metavar="K=V", help="a property; repeat")
    label = "a label (an alias in MLflow); repeat"
    add("--label", "--alias", action="append", default=[], metavar="LABEL", help=label)
    versions.set_option(add)


def register(options: argparse.Namespace) -> int:
    """Create a version of a model. The server keeps a copy of its files."""
    from allranks.sdk.assets.register_model import register  # lazy: no other command sends models

    line = ProgressLine(options.quiet or options.json)
    with versions.definition(options.file, options.set) as data:
        keys = ("name", "job", "path", "version", "type", "description")
        data |= versions.given(options, *keys)
        if options.flavor is not None:
            data["flavors"] = {options.flavor: {}}
        for key, option, texts in (
            ("tags", "--tag", options.tag),
            ("properties", "--property", options.property),
        ):
            if texts:
                data[key] = {**(data.get(key) or {}), **dict(_pair(text, option) for text in texts)}
        base = Path(options.file or "").parent if options.path is None else Path()
        try:
            with find_server.connect() as client:
                model = register(client, data, base.absolute(), options.label, line.report)
        finally:
            line.clear()
    about = f"{counted(model['files'], 'file')}, {size_text(model['size'])}"
    usage = f"-i model=azureml:{versions.reference(model)} -- COMMAND"
    return versions.print_created(options, model, about, usage)


def _pair(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(
            f"{text!r} is not KEY=VALUE", where=option, hint=f"as in {option} data=birds"
        )
    return key, value


list_models_options = versions.list_option


def list_models(options: argparse.Namespace) -> int:
    head = ("NAME", "VERSION", "LABELS", "FLAVOR", "SIZE", "JOB")
    usage = "allranks model register NAME --job JOB --path outputs/…"
    return versions.print_list(options, "models", head, _row, usage)


def _row(model: Mapping[str, Any]) -> tuple[str, ...]:
    labels = " ".join(model["labels"])
    flavors = " ".join(model.get("flavors") or ())
    size = size_text(model["size"])
    job = model.get("job") or ""
    return model["name"], model["version"], labels, flavors, size, job


show_model_options = versions.which_option


def show_model(options: argparse.Namespace) -> int:
    """Print a model with the checksums of its files and its lineage."""
    model = versions.get("models", options.name)
    manifest = find_server.ask(routes.model_manifest, versions.reference(model))
    model["files"] = [{key: each[key] for key in ("path", "size", "sha256")} for each in manifest]
    show.as_json(model) if options.json else versions.print_asset(model)
    return 0
