"""Uploads to object stores: straight from this machine, if it has credentials of its own for the
store's provider."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.agent.data.file_entry import Changed
from allranks.api import routes
from allranks.core.data import addresses
from allranks.core.data.addresses import Account, Address
from allranks.core.data.upload_manifest import Manifest
from allranks.core.transfer_progress import OnProgress, Progress
from allranks.errors import AllranksError, UsageError
from allranks.http_client import Client
from allranks.sdk.upload.digests import changed
from allranks.sdk.upload.listing import Note, unreadable

if TYPE_CHECKING:
    from allranks.api.assets import DatastoreAnswer, UploadFolder

NO_STORES = ("file", "https")
# By provider: the variables that say who asks, and files below the home of the user.
_OWN: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "s3": (
        ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SHARED_CREDENTIALS_FILE"),
        (".aws/credentials",),
    ),
    "azure": (
        ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_CLIENT_ID"),
        (),
    ),
    "gcs": (
        ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_SERVICE_ACCOUNT"),
        (".config/gcloud/application_default_credentials.json",),
    ),
}


def target(client: Client, name: str) -> DatastoreAnswer | None:
    """The object store that an upload goes to: of that ``name``, or the default datastore; None:
    the server's own store. Raises NotFound, UsageError for a datastore that is no object store."""
    stores = client.ask(routes.list_datastores)
    fit = [store for store in stores if (store["name"] == name if name else store["default"])]
    if name == "default" or (fit and not name and fit[0]["type"] in NO_STORES):
        return None
    if not fit:  # the server says which there are
        answer = client.ask(routes.show_datastore, name)
        fit = [answer]
    if fit[0]["type"] in NO_STORES:
        hint = "name an object store (allranks datastore list), or `default`: the server's own"
        raise UsageError(f"the datastore {name!r} takes no uploads", hint=hint)
    return fit[0]


def own_account(store: DatastoreAnswer) -> tuple[Account, Address] | None:
    """What opens the store with this machine's own credentials, and where its paths begin. None
    without such credentials, and where the server could learn them: only S3's are never sent."""
    place = addresses.address(store["uri"])
    kind, endpoint = place.store.kind, store.get("endpoint", "")
    if kind not in _OWN or (kind != "s3" and endpoint not in ("", "core.windows.net")):
        return None
    variables, files = _OWN[kind]
    home = Path(os.environ.get("HOME", "/nonexistent"))
    if not any(map(os.environ.get, variables)) and not any((home / f).exists() for f in files):
        return None
    made = place.store._replace(region=store.get("region", ""))
    return Account(made._replace(endpoint=endpoint) if kind == "s3" else made), place


def straight(
    client: Client,
    store: DatastoreAnswer,
    text: bytes,
    files: Mapping[str, str],
    note: Note,
    progress: OnProgress,
) -> tuple[str, int] | None:
    """Upload from here what has the manifest ``text``; its address for jobs, and the bytes sent.
    None, told to ``note``, if only the server can. ``files`` are those of this disk by their paths
    in the manifest. Raises UsageError."""
    manifest, digest = Manifest.load(text), hashlib.sha256(text).hexdigest()
    stored, lost = manifest.stored()
    if not stored:
        hint = "stores keep no empty folders"
        raise UsageError(f"{manifest.name} has no files to upload", hint=hint)
    if lost:
        note(
            f"{lost[0]} and {len(lost)} links in all lead to no file; the store keeps none of them"
        )
    own, name = own_account(store), store["name"]
    if own is None:
        note(f"this machine has no credentials of its own for {name}: it goes through the server")
        return None
    from allranks.agent.data.put_files import StoredUpload, contents  # lazy: obstore

    sent = 0

    def report(done: int, total: int) -> None:
        nonlocal sent
        sent = done
        progress(Progress(f"{manifest.name}: uploading to {name}", done, total, moved=done))

    def announce() -> UploadFolder:
        return client.ask(routes.receive_uploads, name, digest=digest)

    made = announce()
    account, root = own
    folder = addresses.within(root, made["folder"])
    by_content = {file.sha256: files[file.path] for file in manifest.files}
    try:
        here = contents(manifest, lambda file: by_content[file.sha256])
        StoredUpload(account, folder, digest, "").put(here, text, report, announce=announce)
        path = f"{made['folder']}/{digest}/{manifest.name}"
        return f"azureml://datastores/{name}/paths/{path}", sent
    except Changed as error:
        raise changed(str(error)) from None
    except OSError as error:
        raise unreadable(error, Path(error.filename or manifest.name)) from None
    except UsageError:
        raise
    except AllranksError as error:
        note(f"{error.message}: it goes through the server")
        return None
