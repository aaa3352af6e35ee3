"""The names that users may rely on: of commands, keys, variables, routes, Python, reasons."""

import importlib
import sys
from pathlib import Path
from typing import Any

import allranks
from allranks.api.routes import PREFIX, ROUTES
from allranks.cli.commands import COMMANDS
from allranks.cli.parser import parser_of
from allranks.core.diagnosis.causes import TABLE
from allranks.spec.environment_variables import CLOCKS, RANK, USER
from allranks.statuses import JobStatus, Reason

DOCS = Path(__file__).parents[2] / "docs"
FILES = ("JOB", "SWEEP", "PIPELINE", "COMPONENT", "SCHEDULE", "ENDPOINT", "DEPLOYMENT")
FILES += ("BATCH_ENDPOINT", "BATCH_DEPLOYMENT")


def names() -> dict[str, list[str]]:
    """All of them, by what they are names of."""
    commands = {
        f"options of {name}": [
            option for action in parser_of(name)._actions for option in action.option_strings
        ]
        for name in COMMANDS
    }
    files = {
        f"keys of files: {kind}": [
            f"{place}: {key}"
            for place, models in places.items()
            for model in models
            for key in keys(model)
        ]
        for kind, places in file_kinds().items()
    }
    return {
        **commands,
        **files,
        "commands": [*COMMANDS],
        "variables for users": [*USER, *CLOCKS],
        "variables of ranks": [name for group in RANK.values() for name in group],
        "routes": [row.address.replace(" ", f" {PREFIX}") for row in ROUTES],
        "names in Python": [*allranks.__all__],
        "statuses": [*JobStatus],
        "reasons": [*Reason],
        "causes": [*TABLE],
    }


def file_kinds() -> dict[str, Any]:
    sys.path.insert(0, str(DOCS))
    try:
        module = importlib.import_module("file_keys")
    finally:
        sys.path.remove(str(DOCS))
    assets = {kind: {"": (model,)} for kind, model in module.ASSETS.items()}
    return {**{kind: getattr(module, kind) for kind in FILES}, **assets}


def keys(model: Any) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]
