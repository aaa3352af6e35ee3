"""`allranks component …`: steps of pipelines, with names, versions and code."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.api import routes
from allranks.cli.assets import versions
from allranks.cli.assets.versions import reference
from allranks.cli.output import show
from allranks.cli.output.sending import confirm_large_code, sending
from allranks.cli.run_options import take
from allranks.sdk.connection import find_server


def create_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="its name (the file's)")
    add = parser.add_argument
    add("-f", "--file", required=True, metavar="FILE", help="the component's YAML; - is stdin")
    add("--version", metavar="V", help="its version (the file's, or the next number)")
    add("--label", action="append", default=[], metavar="LABEL", help="a label for it; repeat")
    versions.set_option(add)
    take(add, "--allow-large-code")


def create(options: argparse.Namespace) -> int:
    """Create a version of a component from its file, with its code."""
    # lazy: read YAML and import the models
    from allranks.sdk.submit.pipeline import prepare_component
    from allranks.sdk.submit.send import send
    from allranks.spec.fields.problems import in_file
    from allranks.spec.fields.scalars import sendable
    from allranks.spec.pipeline.component import parse_component
    from allranks.spec.yaml import load

    file = Path(options.file)
    data, lines = load.read(load.content(file), file=options.file)
    for override in options.set:
        load.override_key(data, lines, override)
    data = sendable({**data, **versions.given(options, "name", "version")})
    parse_component(data, lines, options.file)
    with sending(options) as (line, note), in_file(options.file, lines):
        made, snapshots = confirm_large_code(
            options,
            lambda allow: prepare_component(data, file.absolute().parent, note, allow, line.report),
        )
        to = routes.create_component.at(label=options.label)
        component = send(find_server.connect(), made, snapshots, line.report, to=to)
    name = reference(component)
    if not component["created"]:
        return show.result(options, component, f"{name} already exists: {about(component)}")
    hint = f"use it in a step: component: azureml:{name}"
    return show.result(options, component, f"{name} is created: {about(component)}", hint)


list_components_options = versions.list_option


def list_components(options: argparse.Namespace) -> int:
    head = ("NAME", "VERSION", "TYPE", "LABELS", "ABOUT")
    return versions.print_list(
        options, "components", head, _row, "allranks component create -f FILE"
    )


def _row(component: Mapping[str, Any]) -> tuple[str, ...]:
    labels = " ".join(component["labels"])
    return component["name"], component["version"], component["type"], labels, about(component)


def about(component: Mapping[str, Any]) -> str:
    """Its description, or its inputs and outputs."""
    if component.get("description"):
        return str(component["description"])
    inputs, outputs = (", ".join(component.get(key) or ()) for key in ("inputs", "outputs"))
    return f"{inputs or 'nothing'} -> {outputs or 'nothing'}"


show_component_options = versions.which_option


def show_component(options: argparse.Namespace) -> int:
    component = versions.get("components", options.name)
    if options.json:
        show.as_json(component)
    else:
        versions.print_asset(component)
    return 0
