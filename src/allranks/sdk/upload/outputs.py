"""Outputs that are to be in folders of this machine, which the server does not see."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.sdk.connection import find_server
from allranks.sdk.upload.inputs import unproven


def apart(spec: Mapping[str, Any], base: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The job without the relative paths of outputs at which a server elsewhere sees nothing of
    this machine: these go to the record. And these folders by the outputs' names. An absolute path
    is one of the nodes."""
    folders: dict[str, str] = {}
    if not (spec.get("outputs") and find_server.of_another_home()):
        return dict(spec), folders
    for name, value in spec["outputs"].items():
        path = value.get("path") if isinstance(value, Mapping) else None
        if isinstance(path, str) and not os.path.isabs(path) and ":" not in path.split("/")[0]:
            folders[name] = str((base / Path(path).expanduser()).absolute())
    if not folders:
        return dict(spec), {}
    above = {folder: _existing(folder) for folder in folders.values()}
    with find_server.connect() as client:
        unseen = {*unproven(client, sorted({*above.values()}))}
    folders = {name: folder for name, folder in folders.items() if above[folder] in unseen}
    outputs = {
        name: {key: item for key, item in value.items() if key != "path"}
        if name in folders
        else value
        for name, value in spec["outputs"].items()
    }
    return {**spec, "outputs": outputs}, folders


def notes(job: str, folders: Mapping[str, str]) -> list[str]:
    """How to get outputs that are not in these folders."""
    return [
        f"the server does not see {folder}; to get the output: "
        f"allranks job download {job} --output-name {name} -p DIR"
        for name, folder in folders.items()
    ]


def _existing(folder: str) -> str:
    """The innermost folder that exists."""
    path = Path(folder)
    return str(next(item for item in (path, *path.parents) if item.is_dir()))
