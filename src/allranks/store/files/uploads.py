"""Uploads: immutable files and folders of users, named by the hash of their manifest.

``FOLDER/DIGEST/files/NAME`` is the data, ``FOLDER/DIGEST/manifest.json`` says what it is. Its files
are links of blobs, so content that several uploads have is stored once. A new upload is made in a
temporary folder and renamed when complete.

Jobs read it in place. Its files and folders are read-only, which does not stop a job of root:
``times.json`` has the times of the files, so that a change is noticed at the next use.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any

from allranks import folder_trees
from allranks.core.data.upload_manifest import File, Manifest, digests_in, is_digest
from allranks.core.data.working_set import folders_above
from allranks.errors import MissingData
from allranks.store.files.blobs import Blobs
from allranks.store.files.changes import Change, Stored, file_hash, first_change
from allranks.store.files.trees import TEMPORARY_PREFIX, copy_contents

_MANIFEST, _FILES, _TIMES = "manifest.json", "files", "times.json"
# A file has as many links as it can have, the blobs are on another disk, or it has no links.
_NO_LINK = (errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP)


class Uploads:
    """The uploads of a home. ``folder`` need not exist."""

    def __init__(self, folder: Path, blobs: Blobs) -> None:
        self.folder, self._blobs = folder, blobs

    def has(self, digest: str) -> bool:
        return (self.folder / digest).is_dir()

    def make(self, digest: str) -> Manifest:
        """Make the upload whose manifest is the blob ``digest``, unless it is here and nobody has
        changed it. Raises MissingData if blobs are missing, UsageError for a malformed manifest,
        OSError."""
        there = self.folder / digest / _MANIFEST
        # After a restore, or on another disk, it is not among the blobs.
        if is_digest(digest) and self.touch(digest) and there.exists():
            content = there.read_bytes()
            if hashlib.sha256(content).hexdigest() == digest:
                manifest = Manifest.parse(content)
                if self._change(digest, manifest) is None:
                    return manifest
                self._discard(digest, manifest)
            else:
                self._discard(digest, Manifest("", [File(_MANIFEST, 0, digest)]))
        if not self._blobs.has(digest):
            raise missing("the manifest")
        manifest = Manifest.load(self._blobs.path(digest).read_bytes())
        self.folder.mkdir(exist_ok=True, parents=True, mode=0o700)
        folder = self.folder / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        try:
            self._fill(folder, manifest)
            self._link(File(_MANIFEST, 0, digest), folder / _MANIFEST)
            top = folder / _FILES / manifest.name
            times = [os.stat(_path(top, file.path)).st_mtime_ns for file in manifest.files]
            (folder / _TIMES).write_text(json.dumps(times))
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

    def require_unchanged(self, document: Any) -> None:
        """As ``require``; also raises MissingData for one whose files were changed. Takes a second
        for 100,000 files."""
        self.require(document)
        for digest in {*digests_in(document)}:
            folder = self.folder / digest
            content = b""
            with contextlib.suppress(OSError):
                content = (folder / _MANIFEST).read_bytes()
            is_own = hashlib.sha256(content).hexdigest() == digest
            manifest = Manifest.parse(content) if is_own else Manifest("")
            change = self._change(digest, manifest) if is_own else Change(folder, _MANIFEST)
            if change:
                message = f"this data was changed after its upload: {change}"
                hint = "upload it again, from where it came: allranks data upload PATH"
                raise MissingData(message, where=str(folder / _FILES / manifest.name), hint=hint)

    def _change(self, digest: str, manifest: Manifest) -> Change | None:
        """What differs in an upload from what its manifest says."""
        folder = self.folder / digest
        top = folder / _FILES / manifest.name
        stored = {file.path: Stored(file.size, file.sha256) for file in manifest.files}
        stored |= {link.path: Stored(target=link.target) for link in manifest.links}
        stored |= {path: Stored() for path in _folders(manifest)}
        try:
            times = json.loads((folder / _TIMES).read_text())
            pairs = zip(manifest.files, times, strict=True)
            return first_change(top, stored, {file.path: time for file, time in pairs})
        except (ValueError, TypeError):
            return Change(folder, _TIMES)
        except OSError as error:
            return Change(folder, os.path.relpath(error.filename or folder / _TIMES, folder))

    def _discard(self, digest: str, manifest: Manifest) -> None:
        """Remove a changed upload, and blobs that are no longer what their names say."""
        folder = self.folder / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        (self.folder / digest).rename(folder)
        folder_trees.remove(folder, ignore_errors=True)
        for content in {file.sha256 for file in manifest.files}:
            blob = self._blobs.path(content)
            if blob.exists() and file_hash(blob) != content:
                blob.unlink()

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
        if os.path.isdir(top):
            for path in ("", *_folders(manifest)):
                os.chmod(_path(top, path), 0o555)

    def _link(self, file: File, path: str | Path) -> None:
        blob = self._blobs.name(file.sha256)
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


def _path(top: Path, path: str) -> str:
    """A path in an upload; that of a single file is empty."""
    return f"{top}/{path}" if path else str(top)


def _folders(manifest: Manifest) -> set[str]:
    """The folders below an upload's own."""
    folders = {path for path in manifest.folders if path}
    leaves = [*(file.path for file in manifest.files), *(link.path for link in manifest.links)]
    return folders | {*folders_above([*leaves, *folders])}


def _copy(blob: str, path: str | Path) -> None:
    with open(blob, "rb") as file, open(path, "xb") as copy:
        status = os.fstat(file.fileno())
        copy_contents(file, copy, status.st_size)
        os.utime(copy.fileno(), ns=(status.st_mtime_ns, status.st_mtime_ns))
        os.fchmod(copy.fileno(), stat.S_IMODE(status.st_mode))


def missing(what: str) -> MissingData:
    where = os.fsencode(what).decode(errors="replace")
    hint = "upload it: allranks data upload PATH"
    return MissingData("this data is not on the server", where=where, hint=hint)
