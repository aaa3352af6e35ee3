"""`allranks datastore …`: named places for data, with the credentials that open them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.api import routes
from allranks.cli.assets import versions
from allranks.cli.output import show
from allranks.errors import UsageError
from allranks.sdk.connection import find_server

_TYPES = "file, s3, gcs, azure_blob, azure_data_lake_gen2 or https"
_KEYS = {
    "path": ("PATH", "file: the folder"),
    "bucket": ("NAME", "s3, gcs: the bucket"),
    "account_name": ("NAME", "azure_blob, azure_data_lake_gen2: the storage account"),
    "container_name": ("NAME", "azure_blob: the container"),
    "filesystem": ("NAME", "azure_data_lake_gen2: the file system"),
    "url": ("URL", "https: the site"),
    "prefix": ("PATH", "prefix of all paths in it"),
    "endpoint": ("URL", "address of the service (the provider's own)"),
    "region": ("NAME", "s3: the region"),
    "description": ("TEXT", "a description to show with it"),
}
# Environment variables that hold credentials, and the keys they become.
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
    add("-f", "--file", metavar="FILE", help="a datastore's YAML, with or without credentials")
    add("--type", metavar="TYPE", help=_TYPES)
    for key, (metavar, text) in _KEYS.items():
        add(f"--{key.replace('_', '-')}", metavar=metavar, help=text)
    shell = "take credentials from this shell: AWS_ACCESS_KEY_ID, AZURE_STORAGE_KEY, …"
    add = parser.add_mutually_exclusive_group().add_argument
    add("--credentials-from-env", action="store_true", help=f"{shell} (the nodes' own)")
    add("--credentials", metavar="FILE", help="credentials as YAML or JSON; - is stdin")
    parser.add_argument("--replace", action="store_true", help="replace the datastore of that name")


def create(options: argparse.Namespace) -> int:
    """Create a datastore. The server keeps its credentials and never shows them."""
    with versions.definition(options.file) as data:
        data |= versions.given(options, "name", "type", *_KEYS)
        if isinstance(data.get("path"), str) and options.file is None:
            data["path"] = os.path.abspath(os.path.expanduser(data["path"]))
        if options.credentials is not None:
            with versions.definition(options.credentials) as credentials:
                data["credentials"] = credentials
        if options.credentials_from_env:
            data["credentials"] = _credentials_of_shell(str(data.get("type") or ""))
        replace = options.replace or None
        store = find_server.ask(routes.create_datastore, body=data, replace=replace)
    opened = f"{store['name']} is created: {store['uri']}, credentials: {_credentials(store)}"
    usage = f"a path in it: azureml://datastores/{store['name']}/paths/PATH"
    return show.result(options, store, opened, usage)


def list_datastores_options(parser: argparse.ArgumentParser) -> None:
    """No options."""


def list_datastores(options: argparse.Namespace) -> int:
    stores = find_server.ask(routes.list_datastores)
    rows = [
        (e["name"], "yes" if e["default"] else "", e["type"], e["uri"], _credentials(e))
        for e in stores
    ]
    head = ("NAME", "DEFAULT", "TYPE", "URI", "CREDENTIALS")
    return show.listing(options, stores, head, rows)


def _name_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the datastore")


show_datastore_options = set_default_options = _name_option


def delete_options(parser: argparse.ArgumentParser) -> None:
    _name_option(parser)
    show.yes_option(parser.add_argument)


def show_datastore(options: argparse.Namespace) -> int:
    store = find_server.ask(routes.show_datastore, options.name)
    if options.json:
        show.as_json(store)
    else:
        versions.print_asset({**store, "credentials": _credentials(store)})
    return 0


def set_default(options: argparse.Namespace) -> int:
    """Choose the default datastore: where uploads go, and what `${{default_datastore}}` and
    `workspaceblobstore` mean. `default` is the server's own store."""
    store = find_server.ask(routes.set_default_datastore, options.name)
    return show.result(options, store, f"{store['name']} is the default datastore: {store['uri']}")


def delete(options: argparse.Namespace) -> int:
    """Delete a datastore and its credentials, not the data in it."""
    if not show.may_destroy(options, f"delete the datastore {options.name} and its credentials"):
        return 1
    store = find_server.ask(routes.delete_datastore, options.name)
    deleted = f"{store['name']} is deleted; the data at {store['uri']} stays in place"
    return show.result(options, store, deleted)


def _credentials(store: Mapping[str, Any]) -> str:
    if store["type"] == "file":
        return "none needed"
    return ", ".join(store["credentials"]) or "the nodes' own"


def _credentials_of_shell(kind: str) -> dict[str, str]:
    normal = kind.lower().replace("-", "_")
    variables = _VARIABLES.get("azure" if "azure" in normal else normal)
    if variables is None:
        hint = f"name another type with --type: {_TYPES}"
        raise UsageError(f"a datastore of type {kind!r} has no credentials", hint=hint)
    credentials = {key: os.environ[name] for name, key in variables.items() if os.environ.get(name)}
    if not credentials:
        hint = f"set one of {', '.join(variables)}"
        raise UsageError(
            "this shell has no credentials for it", where="--credentials-from-env", hint=hint
        )
    if "service_account_key" in credentials:
        credentials["service_account_key"] = Path(credentials["service_account_key"]).read_text()
    return credentials
