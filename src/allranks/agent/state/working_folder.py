"""The working set of a node on its way to and from the server: a third use of `Sync`, which only
this node changes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from allranks import folder_trees
from allranks.agent.data.complete_files import fingerprint
from allranks.agent.state.state_folder import Folder, State
from allranks.agent.state.sync import Note, Sync, Synced, Work
from allranks.agent.state.torn_files import Deaths
from allranks.agent.state.transfer import Damaged, StateClient
from allranks.agent.state.tree import ChangedMeanwhile, FileState, Scan, Tree
from allranks.agent.transport.identity import AgentIdentity
from allranks.agent.transport.link import ServerAddress
from allranks.core.data import node_changes, state_manifest, working_set
from allranks.core.data.node_changes import Change, NodeChanges
from allranks.core.data.state_manifest import Entry, own, stays_inside
from allranks.errors import NotFound, Unauthorized, Unreachable, Unsupported

_NAME = "the working folder"
# Inode, size and modification time of the files of the code, as they were laid out.
Listing = Mapping[str, tuple[int, int, int]]


def parts(node: int) -> tuple[str, str]:
    """The folders with the files of a node's working set and with what is said about it."""
    return f"{own(node)}/{working_set.FILES}", os.path.dirname(f"{own(node)}/{working_set.ABOUT}")


class WorkTree(Tree):
    """The working folder of a node, of which ``scan`` sees the working set: what differs from the
    code as it was ``laid_out``. Above ``limit`` bytes it sees no files."""

    def __init__(self, root: Path, node: int, laid_out: Listing, limit: int) -> None:
        super().__init__(root, parts(node))
        self._limit = limit
        self._code_folders = working_set.folders_above(laid_out)
        self.set_laid_out(laid_out)
        self._prefix = f"{own(node)}/{working_set.FILES}/"
        self._part = root / own(node)
        self._about = self._part / working_set.ABOUT

    def set_laid_out(self, files: Listing, absent: Iterable[str] = ()) -> None:
        """Change what was laid out, between attempts: the code, and other nodes' files; ``absent``:
        other nodes removed it."""
        self._laid_out, self._absent = files, frozenset(absent)
        self._folders = working_set.folders_above(files)

    def tell_changes(self, launch: int, attempt: int, removed: Iterable[str]) -> NodeChanges:
        """Write down what this node's ranks have changed so far, as an attempt begins. ``removed``:
        what else they removed before. Raises OSError."""
        scan, gone, folders = self._look()
        start, before = len(self._prefix), read_changes(self._part)
        there = {
            path[start:]: Change(0, file.what, *_size_and_time(file), file.target)
            for path, file in scan.files.items()
            if file.what != "folder"
        }
        folder = self.root / self.parts[0]
        absent = {
            path
            for path in {*gone, *before.paths, *removed} - self._absent
            if not path.endswith("/") and not os.path.lexists(folder / path)
        }
        size = sum(file.size for file in scan.files.values())
        paths = node_changes.changes_since(before, there, absent)
        made = NodeChanges(launch, attempt, paths, size if size > self._limit else 0, folders)
        self.write_changes(made)
        return made

    def write_changes(self, changes: NodeChanges) -> None:
        """Write down changes of this node. Raises OSError."""
        replace_file(self._part / working_set.CHANGES, changes.dump())

    def scan(self) -> Scan:
        """The working set. Raises OSError if what the files do not say cannot be written."""
        scan, removed, _ = self._look()
        size = sum(file.size for file in scan.files.values())
        over = size if size > self._limit else 0
        about = working_set.About(removed, str(self.root / self.parts[0]), over)
        self._write(about, needed=bool(removed or over))
        if over:
            scan.files.clear()
        self._scan_folder(self.parts[1], scan)
        return scan

    def current(self) -> tuple[list[working_set.SetFile], int]:
        """The files of the set, and how many paths of the code were removed."""
        scan, removed, _ = self._look()
        files = [
            working_set.SetFile(path[len(self._prefix) :], file.size, file.mtime_ns / 1e9)
            for path, file in scan.files.items()
            if file.what == "file"
        ]
        return files, len(removed)

    def _look(self) -> tuple[Scan, tuple[str, ...], dict[str, int]]:
        """The working set, what was removed, and the times of all folders."""
        every = Scan({}, {}, {})
        self._scan_folder(self.parts[0], every)
        self._shorten_links(every)
        start = len(self._prefix)
        carried = {p: f for p, f in every.files.items() if working_set.is_carried(p[start:])}
        mine = {
            path[start:]
            for path, file in carried.items()
            if file.what != "folder" and not self._is_laid_out(path[start:], file)
        }
        # Those of other nodes' files alone are theirs.
        not_mine = self._code_folders | (self._folders - working_set.folders_above(mine))
        times = {p[start:]: f.mtime_ns for p, f in carried.items() if f.what == "folder"}
        mine |= times.keys() - not_mine
        files = {path: file for path, file in carried.items() if path[start:] in mine}
        unsupported = {
            path: why
            for path, why in every.unsupported.items()
            if working_set.is_carried(path[start:])
        }
        return Scan(files, every.unreadable, unsupported), self._removed(every), times

    def _is_laid_out(self, path: str, file: FileState) -> bool:
        fingerprint = file.fingerprint
        return fingerprint is not None and self._laid_out.get(path) == (
            fingerprint.inode,
            fingerprint.size,
            fingerprint.mtime,
        )

    def _removed(self, every: Scan) -> tuple[str, ...]:
        def is_gone(path: str) -> bool:
            full = self._prefix + path
            listed = full in every.files or full in every.unsupported or full in every.unreadable
            return working_set.is_carried(path) and not listed and not every.is_hidden(full)

        files = [path for path in self._laid_out if is_gone(path)]
        folders = [f"{path}/" for path in self._folders if is_gone(path)]
        return tuple(sorted(files + folders))

    def _shorten_links(self, every: Scan) -> None:
        """Absolute links to places inside the working folder lead there from its next place, too:
        scripts write `latest -> /…/step-5`."""
        top = f"{self.root / self.parts[0]}/"
        for path in [*every.unsupported]:
            with contextlib.suppress(OSError):
                target = os.readlink(self.root / path)
                if not target.startswith(top):
                    continue
                target = os.path.relpath(target, os.path.dirname(self.root / path))
                if stays_inside(path, target):
                    status = os.lstat(self.root / path)
                    del every.unsupported[path]
                    every.files[path] = FileState("link", 0, fingerprint(status), target)

    def _write(self, about: working_set.About, *, needed: bool) -> None:
        data = about.dump()
        with contextlib.suppress(FileNotFoundError):
            if self._about.read_bytes() == data:
                return
            needed = True
        if needed:
            replace_file(self._about, data)


def read_changes(part: Path) -> NodeChanges:
    """The changes that a part with a working set tells of. Raises ValueError and OSError."""
    try:
        with folder_trees.open_file(part / working_set.CHANGES, below=part) as file:
            return NodeChanges.load(file.read(node_changes.MOST))
    except FileNotFoundError:
        return NodeChanges()


def _size_and_time(file: FileState) -> tuple[int, int]:
    return (file.size, file.mtime_ns) if file.what == "file" else (0, 0)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file about a working set, which other nodes may read meanwhile. The job can write
    there, too: no link is followed below the folder with the nodes' parts. Raises OSError."""
    root, beside = path.parents[2], path.parents[1] / "about.new"
    above, name = folder_trees.open_parent(root, str(path.relative_to(root)), make=True)
    try:
        with folder_trees.open_file(beside, "wb", root) as file:
            file.write(data)
        os.replace(beside, name, dst_dir_fd=above)
    finally:
        os.close(above)


class WorkSync(Sync):
    """Sends a working set. It fetches complete files in place of torn ones only: a file that only
    the server has was removed."""

    def __init__(
        self, tree: WorkTree, wire: StateClient, node: int, note: Note, known: bool
    ) -> None:
        super().__init__(tree, wire, node, note, _NAME, sends=True)
        # The files to send in this round.
        self._to_send: dict[str, FileState] = {}
        # None: an earlier agent's report may be there.
        self._reported: list[str] | None = None if known else []
        # What only the server has is removed there, even if no rank writes anything.
        self.due = known

    def sync_once(self, *, ask: bool = False, end: bool = False) -> bool:
        changed = super().sync_once(ask=ask, end=end)
        unfinished = sorted(self._shown(path) for path in self._to_send if self._waits(path))
        if unfinished != self._reported:
            self._client.report_unfinished(unfinished)
            self._reported = unfinished
        return changed

    # ------------------------------------------------------------ torn files

    def find_torn(self) -> None:
        if self.writers.deaths.killed is not None:
            with contextlib.suppress(OSError):  # a full disk
                super().find_torn()

    def _may_be_torn(self, path: str) -> bool:
        # A log begins anew in each attempt, and is shorter then.
        return working_set.may_be_checkpoint(self._shown(path))

    def _shown(self, path: str) -> str:
        return path.split("/", 2)[2]

    def _put_back(self, torn: Mapping[str, Synced]) -> set[str]:
        with contextlib.suppress(Damaged, OSError):  # a full disk
            self._tree.downloads.mkdir(exist_ok=True)
            self._fetch([*torn], {path: synced.state for path, synced in torn.items()}, strict=True)
        return {path for path in torn if self._synced[path].entry.seq == -1}

    # ------------------------------------------------------------ decisions

    def _waits(self, path: str) -> bool:
        """Whether a file to send was not sent, because it was being written."""
        synced, state = self._synced.get(path), self._to_send[path]
        return (synced is None or synced.state != state) and path not in self._unsendable

    def _work(self, scan: Scan, end: bool) -> Work:
        work = super()._work(scan, end)
        waits = work.later or work.writing
        deleted = [] if waits else [*work.deleted, *work.fetch]
        send = [path for path in work.send if path not in self._torn]
        return work._replace(send=send, deleted=deleted, fetch=[], remove=[])

    def _only_complete(self, work: Work, states: Mapping[str, FileState], end: bool) -> Work:
        # Written by this thread, so it is complete. Last: a file of the code may have been removed
        # because of one that is not complete yet. First: the files are changed since then.
        named = {path: path.partition("/")[2] for path in work.send}
        about = [path for path in work.send if named[path] == working_set.ABOUT]
        changes = [path for path in work.send if named[path] == working_set.CHANGES]
        files = [path for path in work.send if path not in (*about, *changes)]
        self._to_send = {path: states[path] for path in files}
        ready = super()._only_complete(work._replace(send=files), states, end)
        waits = ready.later or ready.writing
        return ready._replace(send=[*changes, *ready.send, *(() if waits else about)])

    def _is_sent(self, entry: Entry, head: Entry) -> bool:
        # The time tells whether a file was changed since an attempt began.
        return super()._is_sent(entry, head) and entry.mtime_ns == head.mtime_ns


class WorkState(State):
    """Sends the working set of a node while its ranks run, and the rest at the end, unless the
    server takes the folder from this disk then (``is_taken``)."""

    def __init__(
        self,
        tree: WorkTree,
        where: AgentIdentity,
        server: ServerAddress,
        pace: float,
        known: bool,
        is_taken: bool,
        note: Note,
        warn: Note,
    ) -> None:
        folder = Folder(tree.root, tree.parts, "work", _NAME, True)
        super().__init__(folder, where, server, True, pace, known, note, warn)
        self._tree, self._sync = tree, WorkSync(tree, self._client, where.node, note, known)
        self._is_taken = is_taken

    def go_on(self, attempt: int, deaths: Deaths) -> None:
        """Start to send, in a thread, what the ranks of that attempt write."""
        self.stop()
        self._sync.attempt = attempt
        self.start(deaths)

    def tell(self, attempt: int, wait: Callable[[float], None]) -> None:
        """Send all that there is before the ranks of that attempt start: other nodes wait for it.
        Raises AllranksError, OSError, and what ``wait`` raises."""
        self.stop()
        self._sync.attempt = attempt
        self._client.go_on = lambda: wait(0.0)
        while True:
            try:
                while self._sync.sync_once(end=True):
                    pass
                return
            except (Unreachable, ChangedMeanwhile):
                wait(0.5)

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def end(
        self,
        attempt: int,
        grace: float,
        order: Callable[[], Mapping[str, object]],
        wait: Callable[[float], None],
    ) -> None:
        """Put complete files in place of torn ones and send the rest after the ranks have ended,
        for at most ``grace`` seconds."""
        self._sync.attempt = attempt
        self.finish(False, grace, order, wait)

    def _save(self) -> bool:
        if not self._is_taken:
            return super()._save()
        self._send_torn()
        return True


def earlier(where: AgentIdentity, server: ServerAddress, note: Note) -> tuple[State, Path]:
    """What fetches a working set from the server when it begins, and the folder that then has its
    parts."""
    root = where.folder / "earlier"
    folder = Folder(root, parts(where.node), "work", _NAME, False)
    return State(folder, where, server, True, 1.0, True, note), root / own(where.node)


class OtherSet(State):
    """The working set of another ``node``, as the server has it in that attempt. ``wait`` sleeps
    for some seconds and may raise."""

    def __init__(
        self,
        where: AgentIdentity,
        server: ServerAddress,
        node: int,
        attempt: int,
        wait: Callable[[float], None],
        note: Note,
    ) -> None:
        name = f"{_NAME} of node {node}"
        folder = Folder(where.folder / "others", parts(node), f"work/of/{node}", name, False)
        super().__init__(folder, where, server, True, 1.0, True, note)
        self._of, self._files = node, parts(node)[0]
        self._chosen = _Chosen(self._tree, self._client, node, note, name)
        self._chosen.attempt, self._wait = attempt, wait
        self._client.go_on = lambda: wait(0.0)
        self._tree.make()

    def changes(self) -> NodeChanges:
        """What the node has told of itself last. Raises Unsupported if the server keeps it from
        other nodes, AllranksError, ValueError, OSError, and what ``wait`` raises."""
        self._fetch([f"{own(self._of)}/{working_set.CHANGES}"])
        return read_changes(self.root / own(self._of))

    def fetch(self, paths: Iterable[str]) -> Path:
        """The folder that then has these files. Raises as ``changes``."""
        self._fetch([f"{self._files}/{path}" for path in paths])
        return self.root / self._files

    def _fetch(self, paths: list[str]) -> None:
        self._chosen.paths = {
            place for path in paths for place in (path, *state_manifest.above(path))
        }
        while True:
            try:
                self._chosen.fetch_all()
                return
            except (Unreachable, Unauthorized):  # or that node is lost, which ends this attempt
                self._wait(0.5)
            except NotFound:
                if not self._moves():
                    raise

    def _moves(self) -> bool:
        try:
            return self._chosen.moves()
        except NotFound as error:  # 0.1.0 has no such route
            raise Unsupported(error.message, hint=error.hint) from None


class _Chosen(Sync):
    """Fetches only some ``paths``."""

    paths: Collection[str] = ()

    def moves(self) -> bool:
        """Whether its node has sent something since this looked: a content that was replaced is
        gone. Raises AllranksError."""
        before = self._revision
        self._exchange([], same=False)
        return self._revision != before

    def _work(self, scan: Scan, end: bool) -> Work:
        work = super()._work(scan, end)
        return Work([], [], [path for path in work.fetch if path in self.paths], [], False)
