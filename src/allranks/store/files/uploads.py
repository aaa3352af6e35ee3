"""Uploads: immutable files and folders of users, named by the hash of their manifest.

``FOLDER/DIGEST/files/NAME`` is the data, ``FOLDER/DIGEST/manifest.json`` says what it is. Its files
are links of blobs, so content that several uploads have is stored once. A new upload is made in a
temporary folder and renamed when complete.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path
from typing import Any

from allranks import folder_trees
from allranks.core.data.upload_manifest import File, Manifest, digests_in, is_digest
from allranks.errors import MissingData
from allranks.store.files.blobs import Blobs
from allranks.store.files.trees import TEMPORARY_PREFIX, copy_contents

_MANIFEST, _FILES = "manifest.json", "files"
# A file has as many links as it can have, the blobs are on another disk, or it has no links.
_NO_LINK = (errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP)


class Uploads:
    """The uploads of a home. ``folder`` need not exist."""

    def __init__(self, folder: Path, blobs: Blobs) -> None:
        self.folder, self._blobs = folder, blobs

    def has(self, digest: str) -> bool:
        return (self.folder / digest).is_dir()

    def make(self, digest: str) -> Manifest:
        """Make the upload whose manifest is the blob ``digest``, unless it is here. Raises
        MissingData if blobs are missing, UsageError for a malformed manifest, OSError."""
        there = self.folder / digest / _MANIFEST
        # After a restore, or on another disk, it is not among the blobs.
        if is_digest(digest) and self.touch(digest) and there.exists():
            return Manifest.load(there.read_bytes())
        if not self._blobs.has(digest):
            raise missing("the manifest")
        manifest = Manifest.load(self._blobs.path(digest).read_bytes())
        self.folder.mkdir(exist_ok=True, parents=True, mode=0o700)
        folder = self.folder / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        try:
            self._fill(folder, manifest)
            self._link(File(_MANIFEST, 0, digest), folder / _MANIFEST)
            try:
                folder.rename(self.folder / digest)
            except OSError:
                if not self.has(digest):  # else another request was faster
                    raise
        finally:
            folder_trees.remove(folder, ignore_errors=True)
        return manifest

    def touch(self, digest: str) -> bool:
        """Note that an upload is used now; whether it is here."""
        try:
            os.utime(self.folder / digest)
        except FileNotFoundError:
            return False
        return True

    def require(self, document: Any) -> None:
        """Note the use of the uploads whose paths or addresses are in a document. Raises
        MissingData for one that was removed."""
        for digest in {*digests_in(document)}:
            if not self.touch(digest):
                raise missing(str(self.folder / digest))

    def _fill(self, folder: Path, manifest: Manifest) -> None:
        top = folder / _FILES / manifest.name
        made = set[str]()

        def place(path: str) -> str:
            whole = f"{top}/{path}" if path else str(top)
            parent = whole.rpartition("/")[0]
            if parent not in made:
                folder_trees.make(parent)
                made.add(parent)
            return whole

        for file in manifest.files:
            self._link(file, place(file.path))
        for link in manifest.links:
            os.symlink(link.target, place(link.path))
        for path in manifest.folders:
            folder_trees.make(place(path))
        if not (manifest.files or manifest.links):
            folder_trees.make(top)

    def _link(self, file: File, path: str | Path) -> None:
        blob = self._blobs.path(file.sha256)
        try:
            if file.executable and not os.stat(blob).st_mode & stat.S_IXUSR:
                os.chmod(blob, 0o555)  # in all uploads that have this content
            os.link(blob, path)
        except FileNotFoundError:
            raise missing(file.path) from None
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            _copy(blob, path)


def _copy(blob: Path, path: str | Path) -> None:
    with blob.open("rb") as file, open(path, "xb") as copy:
        status = os.fstat(file.fileno())
        copy_contents(file, copy, status.st_size)
        os.utime(copy.fileno(), ns=(status.st_mtime_ns, status.st_mtime_ns))
        os.fchmod(copy.fileno(), stat.S_IMODE(status.st_mode))


def missing(what: str) -> MissingData:
    where = os.fsencode(what).decode(errors="replace")
    hint = "upload it: allranks data upload PATH"
    return MissingData("this data is not on the server", where=where, hint=hint)
