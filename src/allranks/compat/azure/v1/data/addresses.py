"""Where files of datasets are: addresses, and their place on this machine."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import urlopen

from allranks.api import routes
from allranks.compat.azure.v1.data.datastore import DataReference, Datastore
from allranks.compat.azure.v1.exceptions import UserErrorException, not_there
from allranks.sdk.connection import find_server


def address(path: Any) -> tuple[str, str]:
    """Where files are, and whether that is a file or a folder."""
    several = path if isinstance(path, list) else [path]
    uris = [_uri(each) for each in several]
    if len(uris) == 1:
        plain = uris[0].rstrip("*").rstrip("/") if uris[0].endswith("*") else uris[0]
        if "*" in plain:
            plain = plain[: plain.index("*")].rpartition("/")[0]
            return plain, "uri_folder"
        name = plain.rpartition("/")[2]
        return plain, "uri_file" if "." in name and plain == uris[0] else "uri_folder"
    return _gathered(uris), "uri_folder"


def _uri(path: Any) -> str:
    if isinstance(path, tuple):
        return str(path[0].uri(path[1] if len(path) > 1 else ""))
    if isinstance(path, DataReference):
        return path.datastore.uri(path.path_on_datastore)
    text = os.fspath(path) if isinstance(path, os.PathLike) else str(path)
    return text if "://" in text else str(Path(text).absolute())


def _gathered(addresses: Sequence[str]) -> str:
    """A folder of the default datastore with a copy of several files: an input is one address."""
    digest = hashlib.sha256("\n".join(addresses).encode()).hexdigest()[:12]
    own = f"datasets/{digest}"
    folder = Datastore().folder / own
    for each in addresses:
        target = folder / Path(urlparse(each).path).name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            _fetch(each, target)
    return Datastore().uri(own)


def _fetch(address: str, target: Path) -> None:
    place = _mapped(address)
    if place.startswith(("http://", "https://")):
        part = target.with_name(f"{target.name}.part")
        try:
            with urlopen(place, timeout=60) as answer, part.open("wb") as file:
                shutil.copyfileobj(answer, file)
        except OSError as error:
            hint = (
                f"or have a copy elsewhere: allranks data map {address.rpartition('/')[0]}/ FOLDER/"
            )
            raise UserErrorException(f"{address} cannot be read: {error}", hint=hint) from None
        part.rename(target)
    else:
        shutil.copyfile(local(place), target)


def _mapped(address: str) -> str:
    """The address by the server's map of prefixes; the longest one counts."""
    table = find_server.ask(routes.show_data_map)
    for prefix in sorted(table, key=len, reverse=True):
        if address.startswith(prefix):
            return str(table[prefix]) + address[len(prefix) :]
    return address


def local(path: str) -> Path:
    """The path on this machine. Raises NotThere for what is elsewhere."""
    place = _mapped(path).removeprefix("file://")
    if place.startswith("azureml://datastores/"):
        name, _, rest = place.removeprefix("azureml://datastores/").partition("/paths/")
        return Datastore(None, name).folder / rest
    if place.startswith(("http://", "https://")):
        return local(f"{_gathered([place])}/{Path(urlparse(place).path).name}")
    if "://" in place:
        not_there(f"reading {path} on this machine", "give it to a job as an input")
    if not Path(place).exists():
        raise UserErrorException(f"{place} not found", hint="upload it first")
    return Path(place)
