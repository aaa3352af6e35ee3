"""`allranks component …`: steps of pipelines, with names and versions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from allranks.cli.assets import versions
from allranks.cli.output import show

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
