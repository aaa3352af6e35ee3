"""Synchronize one node's state folder with the server, in both directions.

Each round decides from three things only: the server's entries, the local files, and what both had
after the last exchange. An interrupted round therefore needs no recovery.
"""

from __future__ import annotations

import errno
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from typing import NamedTuple

from allranks.agent.state.torn_files import Deaths, Left, left, set_aside
from allranks.agent.state.transfer import Damaged, Ended, LocalChange, StateClient
from allranks.agent.state.tree import ChangedMeanwhile, FileState, Scan, Tree
from allranks.agent.state.writers import Writers
from allranks.core.amounts import size_text
from allranks.core.data import state_manifest, state_versions
from allranks.core.data.state_manifest import Entry, Here, Todo, todo
from allranks.errors import AllranksError, MissingCode

# Seconds between commits while contents are sent, and the most changes in one.
_COMMIT_SECONDS, _MOST_CHANGES = 1.0, 2000
# Rounds with incomplete files after which closed files count as complete, because some scripts
# never stop writing.
_MAX_WAITS = 4

Note = Callable[[str], None]


class Synced(NamedTuple):
    """A path's last synchronized state: the server's entry and the local file."""

    entry: Entry
    state: FileState


class Work(NamedTuple):
    """The paths to act on in a round. ``later``: a closed file is not complete yet; ``writing``: an
    open file is growing."""

    send: list[str]
    deleted: list[str]
    fetch: list[str]
    remove: list[str]
    later: bool
    writing: bool = False


class Sync:
    """Synchronizes ``tree`` through ``wire``. ``note`` receives each message for the record
    once. ``name``: what messages call the folder. ``sends``: while ranks run nobody else changes
    it, so what lies here holds over what the server has, even if that was restored from a
    backup."""

    def __init__(
        self,
        tree: Tree,
        wire: StateClient,
        node: int,
        note: Note,
        name: str = "the state folder",
        sends: bool = False,
    ) -> None:
        self.attempt = 1
        self._name, self._sends = name, sends
        self._tree, self._client, self._node, self._note = tree, wire, node, note
        self._revision = 0
        # That before the server added other nodes' files.
        self._was = 0
        self._head: dict[str, Entry] = {}
        self._synced: dict[str, Synced] = {}
        self._last_scan: dict[str, FileState] = {}
        # Hashed files that the server has not accepted yet.
        self._unsent: dict[str, LocalChange] = {}
        self._damaged: set[str] = set()
        # Files that cannot be read, or that the server rejected, until they change.
        self._unsendable: dict[str, FileState] = {}
        self._waited = 0
        self.writers = Writers(tree)
        # Files in part, with the complete ones of the server in their place.
        self._torn: dict[str, Synced] = {}
        # Torn files that had no complete one before them, until they are told.
        self._incomplete: list[str] = []
        self._noted: set[str] = set()
        # Whether the server had other entries than expected: it was restored from a backup.
        self._surprised = False
        # Whether the server has changes that are not part of a version yet.
        self.due = False
        # Whether the server has changed what lies here since: it has other nodes' files.
        self._yields = False

    def uneven(self, sizes: Set[int]) -> list[str]:
        """What to say of files that were not written together, see ``uneven_sets``."""
        return state_manifest.uneven_sets(self._head, sizes)

    @property
    def is_empty(self) -> bool:
        """Whether the state has never had any files."""
        return self._revision == 0 and not self._last_scan

    def begin_attempt(self, deaths: Deaths, watch: bool = True) -> None:
        """Ranks start; ``deaths`` will be those of them."""
        self.writers.begin_attempt(deaths, watch)
        self._torn = {}
        self._incomplete = []

    def fetch_all(self) -> str:
        """Fetch all files from the server. Returns a summary, or '' if there was nothing to fetch.
        Raises AllranksError, OSError."""
        began, fetched = time.monotonic(), 0
        for _ in range(1 + state_versions.KEPT):
            before = self._revision
            self._exchange([], same=False)
            self._yields = self._was >= before  # else it was restored from a backup
            scan = self._tree.scan()
            work = self._work(scan, True)
            self._yields = False
            # No rank is running, and removed files may be in the way of new ones.
            self._remove(work.remove, scan.files)
            # All nodes begin with the same times.
            times = [path for path in work.send if self._is_only_time(path, scan.files)]
            fetch = work.fetch + ([] if self._sends else times)
            try:
                fetched += self._fetch(fetch, scan.files, strict=True)
            except Damaged as error:
                version = self._client.report_damaged(error.sha256)
                self._note(
                    "a file of the state is damaged in the server's home; using the intact version "
                    f"{version} instead"
                )
                continue
            self._last_scan = dict(self._tree.scan().files)
            took = time.monotonic() - began
            size = sum(synced.entry.size for synced in self._synced.values())
            amount = f"{len(self._synced)} entries, {size_text(size)}"
            return f"fetched {self._name}: {amount}, in {took:.1f} s" if fetched else ""
        hint = "check the disk of the server's home; allranks state list JOB shows the versions"
        raise AllranksError(f"cannot fetch {self._name}: all its versions are damaged", hint=hint)

    def sync_once(self, *, ask: bool = False, end: bool = False) -> bool:
        """Run one round. Returns whether there was anything to do. ``ask``: contact the server even
        without local changes; ``end``: all local files are complete. Raises AllranksError, OSError,
        ChangedMeanwhile."""
        self._surprised = False
        scan = self._tree.scan()
        self._note_unsupported(scan)
        work = self._work(scan, end)
        sent, torn = self._send(work.send, scan.files, work.deleted)
        changed = [path for path in work.send if not self._is_only_time(path, scan.files)]
        same = not (changed or work.deleted or work.later or work.writing)
        if ask or sent or (self.due and same):
            self._exchange([], same=same)
            work = self._work(scan, end)
        fetched = 0
        if not end:
            try:
                fetched = self._fetch(work.fetch, scan.files, strict=False)
            except Damaged as error:
                self._damaged.add(error.sha256)
                self._note_once("a file of the state is damaged in the server's home; skipping it")
            self._remove(work.remove, scan.files)
        self._last_scan = scan.files
        self._waited = self._waited + 1 if work.later or torn else 0
        if torn and end:
            raise ChangedMeanwhile
        if end:
            return bool(sent or self._surprised)
        return bool(sent or fetched or work.remove or work.later)

    def complete(self) -> bool:
        """Report to the server that no more changes follow. False if another round is needed,
        because it lacks something. Raises AllranksError."""
        self._exchange([], same=True, over=True)
        return not self._surprised

    # ------------------------------------------------------------ torn files

    def find_torn(self) -> None:
        """Set files aside that a killed rank has left in part, where the server has the complete
        ones before them: the next attempt gets those."""
        files = self._tree.scan().files
        changed = dict[str, Left]()
        for path in self.writers.suspects(files):
            before = self._head.get(path)
            synced = self._synced.get(path)
            state = files[path]
            is_new = synced is None or synced.state != state
            if not is_new or not self._may_be_torn(path):
                continue
            has_before = before is not None and before.what == "file"
            with suppress(OSError, ChangedMeanwhile), self._tree.reading(path, state) as file:
                what = left(path, file, before if before is not None else Entry("file"))
                if has_before:
                    changed[path] = what
                elif what is Left.TORN:
                    self._incomplete.append(path)
        self._torn = {
            path: Synced(self._head[path], files[path]) for path in sorted(set_aside(changed))
        }
        for path, (before, state) in self._torn.items():
            # As if the server had a newer one: it is fetched when the next attempt begins.
            self._synced[path] = Synced(before._replace(seq=-1), state)

    def send_torn(self) -> list[str]:
        """Save them in a version of their own. Returns messages that name both, and torn files that
        had no complete one before them. Raises AllranksError, OSError."""
        messages = [
            f"{self._shown(path)!r} was being written when a rank was killed: it is incomplete, "
            "and no complete one was saved before it"
            for path in self._incomplete
        ]
        torn = {path: state for path, (_, state) in self._torn.items()}
        ended = Ended()
        self._client.upload(self._tree, torn, self._unsent, ended)
        for change in ended.values():
            if isinstance(change, Exception):
                raise change
        if not ended:
            self._incomplete = []
            return messages
        entries = [(path, self._unsent[path].entry) for path in torn]
        place = self._client.keep_torn(self.attempt, entries)
        still_torn = self._put_back(self._torn)
        for path, (before, state) in self._torn.items():
            age = (state.mtime_ns - before.mtime_ns) / 1e9
            what = f"({size_text(before.size)}, written {age:.0f} s earlier)"
            kept = f"{self._name} keeps the complete file before it {what}"
            lost = f"the complete file before it {what} could not be put back"
            messages.append(
                f"{self._shown(path)!r}, or a file beside it, was being written when a rank was "
                f"killed: {lost if path in still_torn else kept}; {place} has the newer one "
                f"({size_text(state.size)})"
            )
        self._torn = {}
        self._incomplete = []
        return messages

    def _may_be_torn(self, path: str) -> bool:
        """Whether a file that a killed rank may have left in part is examined: a log is not."""
        return True

    def _shown(self, path: str) -> str:
        """A path as messages name it."""
        return path

    def _put_back(self, torn: Mapping[str, Synced]) -> set[str]:
        """Put the complete files in the place of torn ones, if no later ``fetch_all`` does. Return
        the paths at which the torn file had to stay."""
        return set()

    # ------------------------------------------------------------ decisions

    def _work(self, scan: Scan, end: bool) -> Work:
        files, work = scan.files, Work([], [], [], [], False)
        paths = {*self._head, *self._synced}
        for path in sorted({*state_manifest.wants(paths, self._node), *files}):
            if path in scan.unsupported or scan.is_hidden(path):
                continue
            head = self._head.get(path)
            synced = self._synced.get(path)
            here = Here.OTHER
            if path not in files:
                here = Here.ABSENT
            elif synced is not None and _is_same(synced.state, files[path], head):
                here = Here.SAME
            state = files.get(path, FileState("file"))
            base = synced.entry if synced else None
            action = todo(head, base, here, state.mtime_ns, state.what)
            yields = here is Here.ABSENT or (here is Here.SAME and self._yields)
            if self._sends and action is not Todo.NOTHING and not yields:
                action = Todo.SEND
            if action is Todo.FORGET:
                del self._synced[path]
            elif action is Todo.SEND and not end and self._unsendable.get(path) == files[path]:
                continue
            elif action in _LISTS:
                getattr(work, _LISTS[action]).append(path)
        return self._only_complete(work, files, end)

    def _only_complete(self, work: Work, states: Mapping[str, FileState], end: bool) -> Work:
        """Send complete files only, and nothing changed after an incomplete one, so that a file
        that refers to another never arrives before it."""
        order = sorted(work.send, key=lambda path: (states[path].ctime_ns, path))
        if end:
            return work._replace(send=order)
        hurry = self._waited >= _MAX_WAITS
        open_ = self.writers.look(order, states)
        work = work._replace(writing=self._is_writing(open_, states))
        for number, path in enumerate(order):
            unchanged = self._last_scan.get(path) == states[path] or (hurry and path not in open_)
            if not self.writers.is_complete(path, states[path], unchanged):
                ready, rest = order[:number], order[number:]
                later = not open_.issuperset(rest)
                # A file may have been deleted because of one that is not complete yet.
                return work._replace(send=ready, deleted=[] if later else work.deleted, later=later)
        return work._replace(send=order)

    def _is_writing(self, open_: Set[str], states: Mapping[str, FileState]) -> bool:
        """Whether an open file is growing, such as part of a checkpoint. A file that grows for long
        is a log, and does not delay a version."""
        changed = (path for path in open_ if self._last_scan.get(path) != states[path])
        return any(self.writers.opened_lately(path) for path in changed)

    # ------------------------------------------------------------ up

    def _send(
        self, paths: Sequence[str], states: Mapping[str, FileState], deleted: Sequence[str]
    ) -> tuple[int, bool]:
        """Send what lies at these paths: contents as it comes, entries in order, up to the first
        file that is written to meanwhile; deletions last. Returns how many the server accepted, and
        whether there is such a file."""
        pending, ended = deque(paths), Ended()
        sent, torn, due = 0, False, time.monotonic() + _COMMIT_SECONDS

        def commit() -> bool:
            nonlocal sent, torn, due
            changes, is_torn = self._ready(pending, states, ended)
            if changes:
                sent += self._exchange(changes, same=False)
            torn, due = torn or is_torn, time.monotonic() + _COMMIT_SECONDS
            return bool(changes)

        def progress() -> None:
            if time.monotonic() >= due:
                commit()

        files = {path: states[path] for path in paths if states[path].what == "file"}
        self._client.upload(self._tree, files, self._unsent, ended, progress)
        while commit():
            pass
        if deleted and not torn:
            sent += self._exchange([], sorted(deleted, reverse=True), same=False)
        return sent, torn

    def _ready(
        self,
        pending: deque[str],
        states: Mapping[str, FileState],
        ended: Ended,
    ) -> tuple[list[LocalChange], bool]:
        """Take the changes off ``pending`` whose contents the server has; and whether a file is
        being written to, for which all later ones wait."""
        changes = list[LocalChange]()
        while pending and len(changes) < _MOST_CHANGES:
            path, state = pending[0], states[pending[0]]
            change = ended.get(path) if state.what == "file" else _no_file(path, state)
            if change is None:
                break
            pending.popleft()
            if isinstance(change, ChangedMeanwhile):
                pending.clear()
                return changes, True
            if isinstance(change, OSError):
                self._note_once(f"cannot read {path!r} of {self._name}: {change.strerror}")
                if isinstance(change, PermissionError):
                    self._unsendable[path] = state
            elif isinstance(change, LocalChange):
                head = self._head.get(path)
                if head is not None and self._is_sent(change.entry, head):
                    self._synced[path] = Synced(head, state)
                else:
                    changes.append(change)
        return changes, False

    def _is_sent(self, entry: Entry, head: Entry) -> bool:
        """Whether the server has that entry; of a folder with that time."""
        return entry.is_as(head) and (entry.what != "folder" or entry.mtime_ns == head.mtime_ns)

    def _is_only_time(self, path: str, states: Mapping[str, FileState]) -> bool:
        """Whether no more than the time of a folder may differ from the server's."""
        return states[path].what == "folder" and state_manifest.is_folder(
            self._head.get(path, Entry("file"))
        )

    def _exchange(
        self,
        changes: Sequence[LocalChange],
        deleted: Sequence[str] = (),
        *,
        same: bool,
        over: bool = False,
    ) -> int:
        """Send changes to the server and receive its entries. Returns how many were accepted."""
        puts = [
            {"path": change.path, "base": self._base(change.path), "entry": list(change.entry)}
            for change in changes
        ]
        puts += [{"path": path, "base": self._base(path), "entry": None} for path in deleted]
        request = {
            "attempt": self.attempt,
            "after": self._revision,
            "puts": puts,
            "same": same,
            "over": over,
        }
        try:
            answer = self._client.sync(request)
        except MissingCode as error:  # the content was garbage-collected since the upload
            raise ChangedMeanwhile(str(error)) from None
        done, by_path = answer["done"], {change.path: change for change in changes}
        if answer["entries"] is not None:
            self._head = state_manifest.load(answer["entries"])
            # Another node's changes of a state are none.
            self._surprised |= self._sends or len(done) < len(puts)
        if done or answer["entries"] is not None:
            self._unsendable.clear()
        for path, seq in done.items():
            self._unsent.pop(path, None)
            if path in by_path:
                entry = by_path[path].entry._replace(seq=seq)
                self._head[path] = entry
                self._synced[path] = Synced(entry, by_path[path].state)
            else:
                self._head.pop(path, None)
                self._synced.pop(path, None)
        for path in by_path.keys() - done.keys():
            if answer["entries"] is None:
                self._unsendable[path] = by_path[path].state
                self._note_once(
                    f"{path!r} is not saved: in its place is another node's file or folder, or a "
                    "link; or it is a link that leaves its output"
                )
        self._revision, self.due = answer["revision"], answer["due"]
        self._was = answer.get("was", self._revision)
        return len(done)

    def _base(self, path: str) -> int:
        return self._head[path].seq if path in self._head else 0

    # ------------------------------------------------------------ down

    def _fetch(self, paths: Sequence[str], states: Mapping[str, FileState], strict: bool) -> int:
        """Fetch folders, then files in the order in which the server received them. Returns how
        many. ``strict``: raise the OSError of the first that cannot be written."""
        entries = {
            path: self._head[path]
            for path in paths
            if not self._tree.is_open(path) and self._head[path].sha256 not in self._damaged
        }
        folders = sorted(path for path in entries if entries[path].what == "folder")
        files = sorted(entries.keys() - {*folders}, key=lambda path: entries[path].seq)
        order = folders + files
        if order:  # delete downloads that are outdated
            self._tree.clean_downloads(entry.sha256 for entry in self._head.values())
        self._client.fetch(self._tree.downloads, [entries[path] for path in order])
        uses = Counter(entries[path].sha256 for path in order)
        done = 0
        for path in order:
            entry = entries[path]
            uses[entry.sha256] -= 1
            try:
                file = self._tree.put(path, entry, states.get(path), uses[entry.sha256] > 0)
            except ChangedMeanwhile:
                continue  # written to meanwhile: the next round decides which is newer
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.ENOTDIR):
                    continue  # the next round tries again, once the obstacle is removed
                if strict or error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self._note_once(f"cannot write {path!r} of {self._name}: {error.strerror}")
                continue
            self._synced[path] = Synced(entry, file)
            done += 1
        return done

    def _remove(self, paths: Sequence[str], states: Mapping[str, FileState]) -> None:
        for path in sorted(paths, reverse=True):
            try:
                self._tree.remove(path, states[path])
            except ChangedMeanwhile:
                continue
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.ENOTDIR):
                    self._note_once(f"cannot remove {path!r} of {self._name}: {error.strerror}")
            # A folder with new files stays, and counts as new itself.
            self._synced.pop(path, None)

    # ------------------------------------------------------------ notes

    def _note_unsupported(self, scan: Scan) -> None:
        for reason in sorted(set(scan.unsupported.values())):
            paths = [path for path in scan.unsupported if scan.unsupported[path] == reason]
            more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
            self._note_once(f"{paths[0]!r} {reason}: not saved{more}")
        for path, reason in scan.unreadable.items():
            self._note_once(f"cannot read {path!r} of {self._name}: {reason}")

    def _note_once(self, message: str) -> None:
        if message not in self._noted:
            self._noted.add(message)
            self._note(message)


def _is_same(before: FileState, now: FileState, head: Entry | None) -> bool:
    """Whether it lies there as it was synchronized; of a folder that others removed, whatever its
    time is: it changes as its files go."""
    is_folder = before.what == now.what == "folder"
    return before == now or (is_folder and head is None)


def _no_file(path: str, state: FileState) -> LocalChange:
    entry = Entry(state.what, mtime_ns=state.mtime_ns, target=state.target)
    return LocalChange(path, state, entry)


_LISTS = {
    Todo.SEND: "send",
    Todo.SEND_GONE: "deleted",
    Todo.FETCH: "fetch",
    Todo.REMOVE: "remove",
}
