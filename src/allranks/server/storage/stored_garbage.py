"""Uploads in an object store, for garbage collection. Imports obstore."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import obstore

from allranks.agent.data import object_stores
from allranks.core.data import addresses
from allranks.core.data.addresses import Account, Address
from allranks.core.data.garbage_rules import Found, Job, Kind
from allranks.core.data.upload_manifest import is_digest
from allranks.server.assets.announced_uploads import AnnouncedUploads
from allranks.server.assets.datastores import Datastores, start


class Stored(NamedTuple):
    """An upload: its bytes and the keys of its objects; ``manifest`` is that which says that all
    others are there, whose time is that of the last upload of the same."""

    found: Found
    size: int
    manifest: str
    keys: list[str]


class StoredUploads:
    """The uploads of this home in the datastore ``name``. All raise AllranksError."""

    def __init__(
        self, name: str, account: Account, folder: Address, announced: AnnouncedUploads
    ) -> None:
        self.name, self._folder, self._announced = name, folder, announced
        self._opened = object_stores.open_store(account, folder)

    def list(self, jobs: Iterable[Job]) -> Iterator[Stored]:
        """Those that are there, also incomplete ones. A job has used its uploads until it ended."""
        used: dict[str, float] = {}
        for job in jobs:
            for digest in job.uploads:
                used[digest] = max(job.ended_at or job.created_at, used.get(digest, 0.0))
        objects: dict[str, list[object_stores.StoredObject]] = {}
        with self._explained():
            for item in object_stores.listing(self._opened, self._folder.key):
                name = item.key.removeprefix(f"{self._folder.key}/").split("/")[0]
                objects.setdefault(name.removesuffix(".json"), []).append(item)
        for digest in filter(is_digest, sorted(objects)):
            place = addresses.within(self._folder, digest)
            changed = max(item.mtime for item in objects[digest])
            yield Stored(
                Found(
                    Kind.STORED,
                    digest,
                    str(place),
                    max(changed, used.get(digest, 0.0)),
                    digest,
                ),
                sum(item.size for item in objects[digest]),
                f"{place.key}.json",
                [item.key for item in objects[digest]],
            )

    def is_used_again(self, upload: Stored) -> bool:
        """Whether the same was uploaded since it was listed, or may be on its way."""
        if self._announced.is_announced(upload.found.name):
            return True
        with self._explained():
            manifest = object_stores.head(self._opened, upload.manifest)
        return manifest is not None and manifest.mtime > upload.found.used

    def begin_removal(self, upload: Stored) -> bool:
        """False if the same is uploaded now; else ``remove`` follows, for which others wait."""
        return self._announced.begin_removal(upload.found.name)

    def remove(self, upload: Stored) -> None:
        """Without its manifest, which goes first, it counts as incomplete."""
        try:
            keys = [key for key in upload.keys if key != upload.manifest]
            with self._explained():
                for some in (upload.manifest, keys):
                    with contextlib.suppress(FileNotFoundError):
                        obstore.delete(self._opened, some)
        finally:
            self._announced.end_removal(upload.found.name)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, object_stores.STORE_ERRORS) as error:
            raise object_stores.explain(error, self._folder, self.name) from None


def open_uploads(datastores: Datastores, name: str) -> StoredUploads:
    """Raises AllranksError."""
    folder = addresses.within(start(datastores.get(name)), datastores.upload_folder(name))
    return StoredUploads(name, datastores.account(name), folder, datastores.announced)
