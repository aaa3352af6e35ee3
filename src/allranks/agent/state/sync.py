"""One node's side of a state folder: what changes here goes to the server, and back.

Everything is decided anew at each look from three things: what the server has, what lies here, and
what both had when they last agreed. So nothing has to be remembered of a look that was broken off.
"""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from allranks.agent.state.transfer import SMALL, Changed, Damaged, Wire
from allranks.agent.state.tree import Seen, Sight, Torn, Tree
from allranks.errors import AllranksError, MissingCode
from allranks.plan.amounts import size_text
from allranks.plan.data import state_manifest
from allranks.plan.data.state_manifest import Entry, Here, Todo, todo

# A file that is open for writing counts as it is once it is unchanged for so many seconds: some
# keep what they have written open for good.
_AT_REST = 30.0
# So much, or so many things, are sent before the server is told that they are there.
_BATCH, _MANY = 64 << 20, 1000
# So many bytes of small files are kept as they were when they were looked at; and after so many
# looks at which something had to wait, what is closed is whole: a script may never stop to write.
_AT_HAND, _PATIENT = 32 << 20, 4

Note = Callable[[str], None]


class Agreed(NamedTuple):
    """What both have of a path: the server's entry, and how that lies here."""

    entry: Entry
    seen: Seen


class Work(NamedTuple):
    """What a look has found to do. ``later``: something is not whole yet, and not because somebody
    has it open; ``writing``: somebody has a file open and writes to it."""

    send: list[str]
    gone: list[str]
    fetch: list[str]
    remove: list[str]
    later: bool
    writing: bool = False


class Sync:
    """Of an attempt ``attempt``; ``note`` hears once of each thing that a person should know."""

    def __init__(self, tree: Tree, wire: Wire, node: int, note: Note) -> None:
        self.attempt = 1
        self._tree, self._wire, self._node, self._note = tree, wire, node, note
        self._revision = 0
        self._head: dict[str, Entry] = {}
        self._agreed: dict[str, Agreed] = {}
        self._before: dict[str, Seen] = {}
        # What is on its way to the server, which may be away for a while.
        self._hashed: dict[str, Agreed] = {}
        self._damaged: set[str] = set()
        # What may not be read, or not lie there, as long as nothing changes.
        self._refused: dict[str, Seen] = {}
        self._waited = 0
        # Since when a file that changed is open for writing.
        self._opened: dict[str, float] = {}
        self._told: set[str] = set()
        # The server has something that is no version yet, and would make one of it.
        self.due = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing, here and there, and never was."""
        return self._revision == 0 and not self._before

    def fetch_all(self) -> str:
        """Have all here that the server has; in words, how much that was. Raises AllranksError,
        OSError."""
        began, fetched = time.monotonic(), 0
        for _ in range(1 + state_manifest.KEPT):
            self._exchange([], same=False)
            sight = self._tree.look()
            work = self._work(sight, True)
            # No rank runs that could miss it, and it may be in the way of what comes.
            self._remove(work.remove, sight.seen)
            try:
                fetched += self._fetch(work.fetch, sight.seen, strict=True)
            except Damaged as error:
                version = self._wire.damaged(error.sha256)
                self._note(
                    f"a file of the state is damaged in the server's home: version {version}, which"
                    " is whole, holds instead"
                )
                continue
            self._before = dict(self._tree.look().seen)
            took = time.monotonic() - began
            size = sum(each.entry.size for each in self._agreed.values())
            what = f"{len(self._agreed)} things, {size_text(size)}"
            return f"the state is here: {what}, in {took:.1f} s" if fetched else ""
        raise AllranksError("the state cannot be fetched: one version after another is damaged")

    def look(self, *, ask: bool = False, end: bool = False) -> bool:
        """Do what there is to do now; whether anything was. ``ask``: also when nothing has changed
        here; ``end``: what is there is whole. Raises AllranksError, OSError, Torn."""
        sight = self._tree.look()
        self._tell(sight)
        work = self._work(sight, end)
        changes, torn = self._changes(work.send, sight.seen)
        sent = self._send(changes, [] if torn else work.gone)
        same = not (work.send or work.gone or work.later or work.writing)
        if ask or sent or (self.due and same):
            self._exchange([], same=same)
            work = self._work(sight, end)
        fetched = 0
        if not end:
            try:
                fetched = self._fetch(work.fetch, sight.seen, strict=False)
            except Damaged as error:
                self._damaged.add(error.sha256)
                self._once("a file of the state is damaged in the server's home: it is left out")
            self._remove(work.remove, sight.seen)
        self._before = sight.seen
        self._waited = self._waited + 1 if work.later or torn else 0
        if torn and end:
            raise Torn
        return bool(sent or fetched or (work.remove and not end) or work.later)

    def over(self) -> None:
        """Nothing changes here any more: tell the server so. Raises AllranksError."""
        self._exchange([], same=True, over=True)

    # ------------------------------------------------------------ what there is to do

    def _work(self, sight: Sight, end: bool) -> Work:
        seen, work = sight.seen, Work([], [], [], [], False)
        paths = {*self._head, *self._agreed}
        for path in sorted({*state_manifest.wants(paths, self._node), *seen}):
            if path in sight.odd or sight.is_hidden(path):
                continue
            head, agreed = self._head.get(path), self._agreed.get(path)
            here = Here.OTHER
            if path not in seen:
                here = Here.ABSENT
            elif agreed is not None and agreed.seen == seen[path]:
                here = Here.SAME
            mtime_ns = seen[path].mtime_ns if path in seen else 0
            what = todo(head, agreed.entry if agreed else None, here, mtime_ns)
            if what is Todo.FORGET:
                del self._agreed[path]
            elif what is Todo.SEND and not end and self._refused.get(path) == seen[path]:
                continue
            elif what in _LISTS:
                getattr(work, _LISTS[what]).append(path)
        return self._settled(work, seen, end)

    def _settled(self, work: Work, seen: Mapping[str, Seen], end: bool) -> Work:
        """Of what is to be sent only what is whole, and nothing that came after what is not: a file
        that points to another never arrives before it."""
        order = sorted(work.send, key=lambda path: (seen[path].ctime_ns, path))
        if end:
            return work._replace(send=order)
        hurry = self._waited >= _PATIENT
        open_ = {path for path in order if self._tree.is_written(path)}
        work = work._replace(writing=self._is_writing(open_, seen))
        for number, path in enumerate(order):
            if not self._is_whole(path, seen[path], path in open_, hurry):
                ready, rest = order[:number], order[number:]
                later = not open_.issuperset(rest)
                # What was removed may have been so because of what is not there yet.
                return work._replace(send=ready, gone=[] if later else work.gone, later=later)
        return work._replace(send=order)

    def _is_writing(self, open_: Set[str], seen: Mapping[str, Seen]) -> bool:
        """Whether one of these files grows, as the rest of a checkpoint does. One that goes on for
        longer is a log: it keeps no version from being made."""
        now = time.monotonic()
        self._opened = {path: self._opened.get(path, now) for path in open_}
        changed = (path for path in open_ if self._before.get(path) != seen[path])
        return any(now - self._opened[path] < _AT_REST for path in changed)

    def _is_whole(self, path: str, seen: Seen, is_open: bool, hurry: bool) -> bool:
        if seen.look is None:
            return True
        same = self._before.get(path) == seen
        if is_open:
            return same and time.time() - seen.mtime_ns / 1e9 > _AT_REST
        return same or hurry

    # ------------------------------------------------------------ up

    def _changes(
        self, paths: Sequence[str], seen: Mapping[str, Seen]
    ) -> tuple[list[Changed], bool]:
        """What there is to tell of these, in their order, up to the first that is written to just
        now, if one is. The small ones are read first: what names others often changes."""
        order = sorted(paths, key=lambda path: _size(seen[path]))
        found, torn, left = dict[str, Changed](), set[str](), _AT_HAND
        for path in order:
            try:
                change = self._changed(path, seen[path], left)
            except Torn:
                torn.add(path)
                continue
            except OSError as error:
                self._once(f"{path!r} of the state cannot be read: {error.strerror}")
                if isinstance(error, PermissionError):
                    self._refused[path] = seen[path]
                continue
            found[path] = change
            left -= len(change.data or b"")
        first = next((n for n, path in enumerate(paths) if path in torn), len(paths))
        told = []
        for path in paths[:first]:
            head, one = self._head.get(path), found.get(path)
            if one is not None and head is not None and one.entry.is_as(head):
                self._agreed[path] = Agreed(head, one.seen)
            elif one is not None:
                told.append(one)
        return told, bool(torn)

    def _changed(self, path: str, seen: Seen, left: int) -> Changed:
        """Raises Torn and OSError."""
        if seen.look is None or seen.what != "file":
            return Changed(path, seen, Entry(seen.what, mtime_ns=seen.mtime_ns, target=seen.target))
        if path in self._hashed and self._hashed[path].seen == seen:
            return Changed(path, seen, self._hashed[path].entry)
        sha256, data = self._wire.hash(self._tree, path, seen, seen.look.size <= min(SMALL, left))
        entry = Entry("file", sha256, seen.look.size, seen.mtime_ns, seen.mode)
        self._hashed[path] = Agreed(entry, seen)
        return Changed(path, seen, entry, data)

    def _send(self, changes: Sequence[Changed], gone: Sequence[str]) -> int:
        """Send in that order, a part at a time, what is gone last; how many the server took."""
        sent = 0
        for several in _batches(changes):
            there = self._wire.bring(self._tree, several)
            # What came after one that was written to meanwhile waits with it.
            first = next((n for n, each in enumerate(several) if each not in there), len(several))
            sent += self._exchange(there[:first], same=False)
            if first < len(several):
                return sent
        if gone:
            sent += self._exchange([], sorted(gone, reverse=True), same=False)
        return sent

    def _exchange(
        self,
        changes: Sequence[Changed],
        gone: Sequence[str] = (),
        *,
        same: bool,
        over: bool = False,
    ) -> int:
        """Tell the server, and learn what it has; of how many it took the word."""
        puts = [
            {"path": each.path, "base": self._base(each.path), "entry": list(each.entry)}
            for each in changes
        ]
        puts += [{"path": path, "base": self._base(path), "entry": None} for path in gone]
        told = {"attempt": self.attempt, "after": self._revision, "puts": puts}
        try:
            answer = self._wire.sync({**told, "same": same, "over": over})
        except MissingCode as error:  # it was there, but nothing else names it any more
            raise Torn(str(error)) from None
        done, by_path = answer["done"], {each.path: each for each in changes}
        if answer["entries"] is not None:
            self._head = state_manifest.load(answer["entries"])
        if done or answer["entries"] is not None:
            self._refused.clear()
        for path, seq in done.items():
            self._hashed.pop(path, None)
            if path in by_path:
                entry = by_path[path].entry._replace(seq=seq)
                self._head[path] = entry
                self._agreed[path] = Agreed(entry, by_path[path].seen)
            else:
                self._head.pop(path, None)
                self._agreed.pop(path, None)
        for path in by_path.keys() - done.keys():
            if answer["entries"] is None:
                self._refused[path] = by_path[path].seen
                self._once(
                    f"{path!r} is a folder here and none elsewhere, or below: it is not kept"
                )
        self._revision, self.due = answer["revision"], answer["due"]
        return len(done)

    def _base(self, path: str) -> int:
        return self._head[path].seq if path in self._head else 0

    # ------------------------------------------------------------ down

    def _fetch(self, paths: Sequence[str], seen: Mapping[str, Seen], strict: bool) -> int:
        """Have them here, in the order in which they came to the server; how many. ``strict``:
        raise the OSError of the first that cannot be written."""
        found = ((path, self._head[path]) for path in paths if not self._tree.is_written(path))
        entries = {path: entry for path, entry in found if entry.sha256 not in self._damaged}
        order = sorted(entries, key=lambda path: entries[path].seq)
        if order:  # what could not be put where it belongs, and is not what it is now
            self._tree.tidy(entry.sha256 for entry in self._head.values())
        self._wire.fetch(self._tree.coming, [entries[path] for path in order])
        left = Counter(entries[path].sha256 for path in order)
        done = 0
        for path in order:
            entry = entries[path]
            left[entry.sha256] -= 1
            try:
                lies = self._tree.put(path, entry, seen.get(path), left[entry.sha256] > 0)
            except Torn:
                continue  # somebody writes it: the next look decides who is newer
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.ENOTDIR):
                    continue  # what is in its way goes, and then it comes
                if strict or error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self._once(f"{path!r} of the state cannot be written here: {error.strerror}")
                continue
            self._agreed[path] = Agreed(entry, lies)
            done += 1
        return done

    def _remove(self, paths: Sequence[str], seen: Mapping[str, Seen]) -> None:
        for path in sorted(paths, reverse=True):
            try:
                self._tree.remove(path, seen[path])
            except Torn:
                continue
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    self._once(f"{path!r} of the state cannot be removed: {error.strerror}")
            # A folder that something new lies in is kept, and is new itself.
            self._agreed.pop(path, None)

    # ------------------------------------------------------------ telling

    def _tell(self, sight: Sight) -> None:
        for why in sorted(set(sight.odd.values())):
            paths = [path for path in sight.odd if sight.odd[path] == why]
            more = f" (and {len(paths) - 1} more such)" if len(paths) > 1 else ""
            self._once(f"{paths[0]!r} {why}: it is not kept{more}")
        for path, why in sight.blind.items():
            self._once(f"{path!r} of the state cannot be looked into: {why}")

    def _once(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            self._note(message)


_LISTS = {
    Todo.SEND: "send",
    Todo.SEND_GONE: "gone",
    Todo.FETCH: "fetch",
    Todo.REMOVE: "remove",
}


def _size(seen: Seen) -> int:
    return seen.look.size if seen.look else 0


def _batches(changes: Iterable[Changed]) -> Iterable[list[Changed]]:
    several, size = list[Changed](), 0
    for each in changes:
        several.append(each)
        size += each.entry.size
        if size > _BATCH or len(several) >= _MANY or each.entry.size > SMALL:
            yield several
            several, size = [], 0
    if several:
        yield several
