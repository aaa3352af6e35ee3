"""Where an input comes from: a place in a store, or a path of this node."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import obstore

from allranks.agent.data import local_files, object_stores
from allranks.agent.data.file_entry import Changed, Item, Report
from allranks.errors import AllranksError, NotFound
from allranks.masking import without_credentials
from allranks.plan.data import addresses
from allranks.plan.data.addresses import Account, Address

_NOTHING = "there is no file in the folder"


class Wanted(NamedTuple):
    """An input. ``uri``, which ``account`` opens, or a ``source`` of this machine; ``share``: which
    node's of how many; ``copy``: a folder to have links of its own in; ``unpack`` its archives."""

    name: str
    uri: str = ""
    source: str = ""
    account: Account | None = None
    datastore: str = ""
    share: tuple[int, int] | None = None
    unpack: bool = False
    copy: str = ""

    @staticmethod
    def load(data: Mapping[str, Any]) -> Wanted:
        """From plain JSON."""
        account, share = data["account"], data["share"]
        read = {"account": account and Account.load(account), "share": share and tuple(share)}
        return Wanted(**{**data, **read})


class Source:
    """Where an input comes from."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._place: Address | None = None
        if wanted.uri:
            assert wanted.account is not None
            read = addresses.address(wanted.uri)
            self._place = Address(wanted.account.store, read.key)
            self._opened = object_stores.open_store(wanted.account, read)

    def items(self) -> tuple[list[Item], bool]:
        """What there is, of this node's share; whether it is one file."""
        try:
            found, is_file = self._all()
        except (OSError, object_stores.SAID) as error:
            raise self.explained(error) from None
        if not found:
            raise self.explained(FileNotFoundError())
        for each in found:
            self._hold_to_name(each.name)
        if self.wanted.share is not None:
            mine, several = self.wanted.share
            found = sorted(found)[mine::several]
            if not found:
                raise NotFound(
                    f"the input {self.wanted.name} has fewer files than there are nodes",
                    where=self.wanted.uri or self.wanted.source,
                    hint="ask for fewer nodes, or leave out `sharded`",
                )
        return found, is_file

    def _all(self) -> tuple[list[Item], bool]:
        if self._place is None:
            return local_files.items(Path(self.wanted.source))
        key = self._place.key
        if self._place.store.kind == "https":
            # A site tells of what it has one by one.
            one = object_stores.look(self._opened, "")
            name = unquote(key.partition("?")[0]).rpartition("/")[2] or "data"
        else:
            if found := [*object_stores.listing(self._opened, key)]:
                return self._below(found, key), False
            one = object_stores.look(self._opened, key) if key else None
            name = key.rpartition("/")[2]
        if one is None:
            return [], False
        return [Item(name, one.key, one.size, one.tag, one.mtime)], True

    def _below(self, found: Sequence[object_stores.Found], key: str) -> list[Item]:
        """As files below a folder; an empty one that is a folder as well is what a console writes
        for that. Raises AllranksError for another."""
        start = len(key) + 1 if key else 0
        folders = set()
        for each in found:
            parts = each.key[start:].split("/")[:-1]
            folders |= {"/".join(parts[:n]) for n in range(1, len(parts) + 1)}
        items = []
        for each in found:
            name = each.key[start:]
            if name not in folders:
                items.append(Item(name, each.key, each.size, each.tag, each.mtime))
            elif each.size:
                raise AllranksError(
                    f"{name!r} of the input {self.wanted.name} is a file and a folder at once",
                    where=without_credentials(self.wanted.uri),
                    hint="no disk has such: rename one of the two in the store",
                )
        return items

    def _hold_to_name(self, name: str) -> None:
        """Raise AllranksError for one that would lie elsewhere, or nowhere."""
        steps = name.split("/")
        if "\0" in name or any(step in ("", ".", "..") for step in steps):
            raise AllranksError(
                f"{name!r} of the input {self.wanted.name} cannot be a file here",
                where=without_credentials(self.wanted.uri or self.wanted.source),
                hint="rename it in the store, or name another path",
            )

    def fetch(
        self, items: Sequence[Item], goal: Path, journal: Path, report: Report
    ) -> dict[str, int]:
        """Have all of them in ``goal``; their checksums by name. Raises as `fetch.fetch` does."""
        if self._place is None:
            return local_files.take(Path(self.wanted.source), items, goal, report)
        # lazy: asyncio, and most of it is there already
        from allranks.agent.data.download import fetch

        try:
            return fetch(self._opened, items, goal, journal, report)
        except object_stores.SAID as error:
            raise self.explained(error) from None

    def part(self, item: Item, start: int, end: int) -> memoryview:
        """The bytes of a file from ``start`` to ``end``. Raises Changed, OSError, and what a store
        raises."""
        if self._place is None:
            return local_files.part(item, start, end)
        try:
            answer = obstore.get(
                self._opened, item.key, options=object_stores.asking(item.tag, (start, end))
            )
            found = memoryview(answer.bytes())
        except object_stores.CHANGED as error:
            raise Changed(str(error)) from None
        if len(found) != end - start or object_stores.is_another(answer.meta, item):
            raise Changed(item.name)
        return found

    def explained(self, error: Exception) -> AllranksError:
        if self._place is None:
            number = getattr(error, "errno", None)
            what = f"it cannot be read: {os.strerror(number).lower()}" if number else _NOTHING
            hint = "look at its path, and who may read it"
            return NotFound(what, where=self.wanted.source, hint=hint)
        return object_stores.explained(error, self._place, self.wanted.datastore)
