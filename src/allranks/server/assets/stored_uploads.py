"""Put uploads whose content is here into an object store. Imports obstore."""

from __future__ import annotations

import hashlib
from functools import partial

from allranks.agent.data.file_entry import Changed
from allranks.agent.data.put_files import StoredUpload, contents
from allranks.core.data import addresses
from allranks.core.data.upload_manifest import Manifest
from allranks.server.assets.datastores import Datastores, start
from allranks.store.files.blobs import Blobs
from allranks.store.files.uploads import missing

# For so long files are begun in a request, so that its sender can show how far it is.
_SECONDS = 3.0


def put(datastores: Datastores, blobs: Blobs, name: str, digest: str) -> tuple[Manifest, int]:
    """The upload's manifest, and the bytes that are not in the datastore yet. Raises MissingData
    for blobs that are not here, NotFound, UsageError, and AllranksError where the store refuses."""
    made = datastores.get(name)
    folder = addresses.within(start(made), datastores.upload_folder(made.name))
    blob = blobs.path(digest)
    upload = StoredUpload(datastores.account(made.name), folder, digest, made.name)
    announce = partial(datastores.announced.announce, digest)
    announce()
    kept = upload.manifest()
    if kept is not None and hashlib.sha256(kept).hexdigest() == digest:
        manifest = Manifest.load(kept)
        if upload.has(contents(manifest, lambda file: ""), kept):
            return manifest, 0
    if not blob.exists():
        raise missing("the manifest")
    text = blob.read_bytes()
    manifest = Manifest.load(text)
    files = contents(manifest, lambda file: str(blobs.path(file.sha256)))
    for content in files:
        if not blobs.has(content.sha256):
            raise missing(content.path)
    try:
        return manifest, upload.put(files, text, seconds=_SECONDS, announce=announce)
    except (FileNotFoundError, Changed):
        raise missing(digest) from None
