"""`allranks datastore …`: places for data, by name, and what opens them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.cli.output import show
from allranks.errors import SpecError, UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import asset_path

_DATASTORES = "/api/v1/datastores"
_TYPES = "file, s3, gcs, azure_blob, azure_data_lake_gen2 or https"
_KEYS = {
    "path": ("PATH", "the folder, of file"),
    "bucket": ("NAME", "the bucket, of s3 and gcs"),
    "account_name": ("NAME", "the storage account, of Azure's"),
    "container_name": ("NAME", "the container, of azure_blob"),
    "filesystem": ("NAME", "the file system, of azure_data_lake_gen2"),
    "url": ("URL", "the site, of https"),
    "prefix": ("PATH", "what all names in it begin with"),
    "endpoint": ("URL", "where it is asked, if not at its provider's own place"),
    "region": ("NAME", "the region, of s3"),
    "description": ("TEXT", "a description to show with it"),
}
# The variables by which people say who they are to each kind of store.
_VARIABLES: Mapping[str, Mapping[str, str]] = {
    "s3": {
        "AWS_ACCESS_KEY_ID": "access_key_id",
        "AWS_SECRET_ACCESS_KEY": "secret_access_key",
        "AWS_SESSION_TOKEN": "session_token",
    },
    "azure": {
        "AZURE_STORAGE_KEY": "account_key",
        "AZURE_STORAGE_SAS_TOKEN": "sas_token",
        "AZURE_TENANT_ID": "tenant_id",
        "AZURE_CLIENT_ID": "client_id",
        "AZURE_CLIENT_SECRET": "client_secret",
    },
    "gcs": {"GOOGLE_APPLICATION_CREDENTIALS": "service_account_key"},
    "https": {"ALLRANKS_HTTPS_USERNAME": "username", "ALLRANKS_HTTPS_PASSWORD": "password"},
}


def create_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="its name (the file's)")
    add = parser.add_argument
    add("-f", "--file", metavar="FILE", help="a datastore's YAML; credentials may stand in it")
    add("--type", metavar="TYPE", help=_TYPES)
    for key, (metavar, text) in _KEYS.items():
        add(f"--{key.replace('_', '-')}", metavar=metavar, help=text)
    add(
        "--credentials-from-env",
        action="store_true",
        help="take those of this shell: AWS_ACCESS_KEY_ID, AZURE_STORAGE_KEY, … (the nodes' own)",
    )
    add("--credentials", metavar="FILE", help="YAML or JSON with them; - for standard input")
    add("--replace", action="store_true", help="in the place of the one of that name")


def create(options: argparse.Namespace) -> int:
    """Name a place for data. Its credentials are kept by the server, and never shown again."""
    from allranks.spec.fields.problems import placed  # lazy: as above
    from allranks.spec.yaml import load  # lazy: reads YAML

    data: dict[str, Any] = {}
    lines: dict[str, int] = {}
    if options.file is not None:
        data, lines = load.read(load.content(Path(options.file)), file=options.file)
    given = {key: getattr(options, key) for key in ("name", "type", *_KEYS)}
    data |= {key: value for key, value in given.items() if value is not None}
    if isinstance(data.get("path"), str) and options.file is None:
        data["path"] = os.path.abspath(os.path.expanduser(data["path"]))
    if options.credentials is not None:
        data["credentials"] = _read(options.credentials)
    if options.credentials_from_env:
        data["credentials"] = _of_shell(str(data.get("type") or ""), os.environ)
    query = "?replace=true" if options.replace else ""
    try:
        made = find_server.connect().json("POST", _DATASTORES + query, data)
    except SpecError as error:
        raise SpecError([placed(p, lines) for p in error.problems], file=options.file) from None
    if options.json:
        show.as_json(made)
    elif not options.quiet:
        show.talk(f"{made['name']} is {made['uri']}, opened by {_opened_by(made)}")
        show.talk(f"a path in it: azureml://datastores/{made['name']}/paths/PATH")
    return 0


def list_datastores_options(parser: argparse.ArgumentParser) -> None:
    """Nothing more."""


def list_datastores(options: argparse.Namespace) -> int:
    found = find_server.connect().json("GET", _DATASTORES)
    if options.json:
        show.as_json(found)
        return 0
    rows = [(e["name"], e["type"], e["uri"], _opened_by(e)) for e in found]
    show.columns(("NAME", "TYPE", "WHERE", "OPENED BY"), rows)
    return 0


def _name_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the datastore")


show_datastore_options = delete_options = _name_option


def show_datastore(options: argparse.Namespace) -> int:
    found = find_server.connect().json("GET", _path(options.name))
    if options.json:
        show.as_json(found)
        return 0
    from allranks.spec.fields.plain_words import written  # lazy: YAML

    print(written({**found, "credentials": _opened_by(found)}), end="")
    return 0


def delete(options: argparse.Namespace) -> int:
    """Forget a datastore and its credentials; what is in it stays."""
    gone = find_server.connect().json("DELETE", _path(options.name))
    if options.json:
        show.as_json(gone)
    elif not options.quiet:
        show.talk(f"{gone['name']} is forgotten; what is at {gone['uri']} stays")
    return 0


def _opened_by(found: Mapping[str, Any]) -> str:
    if found["type"] == "file":
        return "every node that has the folder"
    return ", ".join(found["credentials"]) or "what nodes have of their own"


def _of_shell(kind: str, environ: Mapping[str, str]) -> dict[str, str]:
    plain = kind.lower().replace("-", "_")
    known = _VARIABLES.get("azure" if "azure" in plain else plain)
    if known is None:
        hint = f"say which with --type: {_TYPES}"
        raise UsageError(f"a datastore of type {kind!r} has no credentials", hint=hint)
    found = {theirs: environ[name] for name, theirs in known.items() if environ.get(name)}
    if not found:
        hint = f"one of {', '.join(known)}"
        raise UsageError("this shell has no credentials", where="--credentials-from-env", hint=hint)
    if "service_account_key" in found:
        found["service_account_key"] = Path(found["service_account_key"]).read_text()
    return found


def _read(file: str) -> dict[str, Any]:
    from allranks.spec.yaml import load  # lazy: reads YAML

    text = sys.stdin.read() if file == "-" else load.content(Path(file))
    found, _ = load.read(text, file=file)
    return found


def _path(name: str) -> str:
    return asset_path("datastores", name)
