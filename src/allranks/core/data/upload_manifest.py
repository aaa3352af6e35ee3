"""The manifest of an upload: names, modes, hashes and links of a file or a folder. Pure.

It is JSON with sorted names, so that the same data has the same manifest, whose SHA-256 names the
upload. Names are texts with surrogates for bytes that are not UTF-8.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from allranks.errors import UsageError

# The most links that lead to one another; as the kernel's.
_MOST_LINKS = 40
# The folder of uploads in the server's own store, and in object stores.
FOLDER, STORED = "uploads", "allranks-uploads"
_OF = re.compile(rf"(?:^|/){FOLDER}/(?P<digest>[0-9a-f]{{64}})/files/")
_OF_STORED = re.compile(rf"(?:^|/){STORED}/[0-9a-f]+/(?P<digest>[0-9a-f]{{64}})/")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class File(NamedTuple):
    """``sha256`` is that of its content."""

    path: str
    size: int
    sha256: str
    executable: bool = False


class Link(NamedTuple):
    path: str
    target: str


class Manifest(NamedTuple):
    """What lies at ``name``. ``files`` of a single file: one whose path is empty. ``folders``:
    those with nothing in them."""

    name: str
    files: Sequence[File] = ()
    links: Sequence[Link] = ()
    folders: Sequence[str] = ()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def stored(self) -> tuple[list[File], list[str]]:
        """The files that an object store gets, where links to files become copies, and the paths
        of other links, which it cannot keep."""
        files, targets = {file.path: file for file in self.files}, dict(self.links)
        copies, lost = [], []
        for link in self.links:
            path = link.path
            for _ in range(_MOST_LINKS):
                if path not in targets:
                    break
                path = posixpath.normpath(posixpath.join(posixpath.dirname(path), targets[path]))
            if path in files:
                copies.append(files[path]._replace(path=link.path))
            else:
                lost.append(link.path)
        return [*self.files, *copies], lost

    def dump(self) -> bytes:
        lists = {key: sorted(getattr(self, key)) for key in ("files", "links", "folders")}
        return json.dumps({"name": self.name, **lists}, separators=(",", ":")).encode()

    @staticmethod
    def parse(text: bytes) -> Manifest:
        """Without the checks of ``load``. Raises ValueError, KeyError or TypeError."""
        data: dict[str, Any] = json.loads(text)
        files = [File(*item) for item in data["files"]]
        return Manifest(data["name"], files, [Link(*e) for e in data["links"]], data["folders"])

    @staticmethod
    def load(text: bytes) -> Manifest:
        """Raises UsageError for anything that would lie elsewhere, or twice."""
        try:
            made = Manifest.parse(text)
            files = made.files
            leaves = [file.path for file in files] + [link.path for link in made.links]
            names = [*leaves, *made.folders]
            single = len(names) == len(files) == 1 and not names[0]
            well = _is_path(made.name) and "/" not in made.name and len({*names}) == len(names)
            well = well and (single or all(map(_is_path, names)))
            # Nothing is placed through a link.
            well = well and {*leaves}.isdisjoint(above for item in names for above in _above(item))
            well = well and all(_is_file(file) for file in files)
            well = well and all(_is_inside(item) for item in made.links)
        except (ValueError, KeyError, TypeError):
            well = False
        if not well:
            raise UsageError("malformed manifest of an upload", hint="upload it with this version")
        return made


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def digests_in(document: Any) -> Iterator[str]:
    """The digests of the uploads in the server's own store that the paths and addresses in a
    document are in."""
    for text in _texts(document):
        if match := _OF.search(f"{text}/"):
            yield match["digest"]


def all_digests_in(document: Any) -> Iterator[str]:
    """The same of all uploads, also those in object stores."""
    yield from digests_in(document)
    for text in _texts(document):
        if match := _OF_STORED.search(f"{text}/"):
            yield match["digest"]


def _texts(document: Any) -> Iterator[str]:
    if isinstance(document, str):
        yield document
        return
    if isinstance(document, Mapping):
        document = document.values()
    elif not isinstance(document, list | tuple):
        return
    for item in document:
        yield from _texts(item)


def _is_file(file: File) -> bool:
    return (
        type(file.size) is int
        and file.size >= 0
        and type(file.executable) is bool
        and is_digest(file.sha256)
    )


def _is_inside(link: Link) -> bool:
    if not isinstance(link.target, str) or not link.target or "\0" in link.target:
        return False
    lands = posixpath.normpath(posixpath.join(posixpath.dirname(link.path), link.target))
    return not link.target.startswith("/") and lands.split("/")[0] != ".."


def _above(path: str) -> Iterator[str]:
    return accumulate(path.split("/")[:-1], "{}/{}".format)


def _is_path(path: object) -> bool:
    if not isinstance(path, str) or "\0" in path:
        return False
    return not any(step in ("", ".", "..") for step in path.split("/"))
