"""The working folder of a node: the code, and what earlier attempts left.

It is laid out beside its place and renamed, so that a folder in its place is complete. While its
agent lives it stays where it is. The server takes it from the folder of an ended agent on its own
disk; others send the working set.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from allranks import folder_trees
from allranks.agent.lifecycle import output_disks
from allranks.agent.lifecycle.agent_calls import AgentCalls
from allranks.agent.lifecycle.collect_files import Listing, listing
from allranks.agent.lifecycle.other_nodes import OtherNodes
from allranks.agent.lifecycle.other_nodes_files import bring, copies_of, lacking
from allranks.agent.lifecycle.parts import Part, Run
from allranks.agent.lifecycle.prepare import LaidOut, prepare, set_packages_aside, unpack
from allranks.agent.state.working_folder import WorkState, WorkTree, earlier, replace_file
from allranks.core.amounts import size_text
from allranks.core.data import node_changes, working_set
from allranks.core.data.node_changes import NodeChanges
from allranks.core.data.state_manifest import own
from allranks.core.data.working_set import ABOUT, CHANGES, FILES, About, Held
from allranks.core.lifecycle.phases import Phase
from allranks.core.plan import Task
from allranks.errors import AllranksError, NotFound

if TYPE_CHECKING:
    from allranks.agent.channel.channel_opener import ChannelOpener

_HINT = "write checkpoints to ALLRANKS_STATE_DIR, start from zero with --fresh-work"
_RAISE = ", or raise ALLRANKS_WORK_LIMIT of the server"


class WorkingFolder(Part):
    """``held``: what the server has of this node's working set."""

    phase = Phase.STATE

    def __init__(self, task: Task, calls: AgentCalls, held: Held) -> None:
        self._task, self._where = task, calls.where
        self._held, self._calls = held, calls
        self._root = self._where.folder / "working"
        self._own = self._root / own(self._where.node)
        self.laid_out = LaidOut(Path(task.in_place) if task.in_place else self._own / FILES)
        self._tree: WorkTree | None = None
        self._sender: WorkState | None = None
        # What the code has, and what was removed before this agent began.
        self._code: Listing = {}
        self._removed: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return self.laid_out.folder

    @property
    def stays(self) -> bool:
        """Whether it is laid out already, by an earlier attempt of this agent."""
        return self._tree is not None and not self._task.fresh_work

    @property
    def goes_on(self) -> int:
        """The bytes of it that the next attempt and a restart get; -1: none of it."""
        return -1 if self._task.fresh_work or self._task.in_place else self._held.limit

    @cached_property
    def is_collected(self) -> bool:
        """Whether the server takes it from this disk, so that it has to stay there."""
        home = Path(self._task.record).parent.parent
        is_there = (home / "nodes") in self._where.folder.parents
        return is_there and not (self._task.sends_files or self._task.in_place)

    def begin(self, run: Run) -> None:
        """Lay it out, unless it stays."""
        attempt = run.number
        if self._task.in_place:
            if not self.folder.is_dir():
                hint = "leave --in-place out, or use a folder on a disk that every node has mounted"
                message = "folder not found on this node"
                raise NotFound(message, where=self._task.in_place, hint=hint)
            return
        if self.stays:
            self.folder.mkdir(exist_ok=True)  # a rank may have removed it
        else:
            self._lay_out(attempt, run.code)
        if self._task.fresh_work:
            return
        if attempt == 1 and not self._task.continues:
            return
        assert self._tree is not None
        files, removed = self._tree.current()
        mine = self._tree.tell_changes(self._where.launch, attempt, self._removed)
        self._removed = ()
        come, apart = self._bring(mine) if self._task.nodes > 1 else ({}, ())
        if attempt > 1 or come or apart:
            self._note(working_set.sentence(attempt, files, removed, come, apart))

    def _bring(self, mine: NodeChanges) -> tuple[dict[int, list[str]], tuple[str, ...]]:
        """Bring what other nodes' ranks have changed. All nodes are here and no rank runs, because
        the gate opens later. Return the paths by node, and those that stay apart."""
        assert self._tree is not None
        calls = self._calls
        nodes = OtherNodes(
            self._task, self._where, calls.server, self.is_collected, calls.pause, self._note
        )
        with contextlib.closing(nodes):
            changes = nodes.changes(mine, lambda: self._send(mine.attempt), calls.doing)
            merge = node_changes.others(self._where.node, changes)
            plan = {path: changes[node].paths[path] for path, node in merge.from_node.items()}
            to_bring = lacking(plan, self._own)
            from_node = {path: merge.from_node[path] for path in to_bring}
            sizes = [sum(change.size for change in to_bring.values())]
            sizes += (changes[node].over for node in from_node.values())
            self._require_bound(mine.attempt, sizes)
            folders = nodes.folders(from_node)
            left_out = bring(plan, folders, self._own)
            folder_trees.set_times(self.folder, node_changes.folder_times(changes.values()))
        kept = mine.without(plan.keys() - set(left_out)).keeping(merge.apart)
        self._tree.write_changes(kept)
        copies = copies_of(self._own)
        absent = [path for path in copies if copies[path] is None]
        files = {path: file for path, file in {**self._code, **copies}.items() if file is not None}
        self.laid_out = self.laid_out._replace(files=files)
        self._tree.set_laid_out(files, absent)
        if left_out:
            self._note(working_set.in_the_way_sentence(left_out))
        come = dict[int, list[str]]()
        for path, node in merge.from_node.items():
            if path in copies:
                come.setdefault(node, []).append(path)
        return come, merge.apart

    def _require_bound(self, attempt: int, sizes: Iterable[int]) -> None:
        """Refuse to go on with a part."""
        if (size := max(sizes)) > self._held.limit:
            raise AllranksError(
                f"attempt {attempt} cannot continue: other nodes have {size_text(size)} of new "
                f"files, more than the bound of {size_text(self._held.limit)}",
                hint=_HINT + _RAISE,
            )

    def _send(self, attempt: int) -> None:
        self._sender = self._sender or self._new_sender()
        self._sender.tell(attempt, self._calls.pause)

    def _lay_out(self, attempt: int, code: Path | None) -> None:
        beside = self._own / f"{FILES}.new"
        for folder in (beside, self.folder):
            folder_trees.remove(folder, ignore_errors=True)
        beside.mkdir(parents=True)
        if code is not None:
            unpack(code, beside)
        imports = set_packages_aside(beside, self.folder, self._own / "packages")
        self.laid_out = LaidOut(self.folder, listing(beside), imports)
        if self._held.form and not self._task.fresh_work:
            source = self._earlier(attempt)
            if too_long := lay_over(source, beside, self.folder):
                self._note(working_set.too_long_sentence(too_long))
            self._removed = _about(source).removed
            with contextlib.suppress(FileNotFoundError):
                replace_file(self._own / CHANGES, (source / CHANGES).read_bytes())
            self._note_unfinished(attempt, source)
        set_code_times(beside, self.laid_out.files)
        beside.rename(self.folder)
        self._drop_earlier()
        self._code = self.laid_out.files
        self._tree = WorkTree(self._root, self._where.node, self.laid_out.files, self._held.limit)

    def _earlier(self, attempt: int) -> Path:
        """The folder with the parts of what the server holds."""
        if self._held.form == "folder":
            source = self._recorded
        else:
            state, source = earlier(self._where, self._calls.server, self._note)
            try:
                state.begin(attempt, self._calls.pause, self._calls.doing)
            finally:
                state.close()
        about = _about(source)
        if about.over or about.trouble:
            why = about.trouble or working_set.too_large(about.over, self._held.limit)
            raise AllranksError(
                f"attempt {attempt} cannot continue: {why}",
                hint=_HINT + (_RAISE if about.over else ""),
            )
        return source

    @property
    def _recorded(self) -> Path:
        return Path(self._task.record, working_set.RECORDED, str(self._where.node))

    def _drop_earlier(self) -> None:
        """From now on the working folder has it."""
        folder_trees.remove(self._where.folder / "earlier", ignore_errors=True)
        if self._held.form == "folder":
            # First, because it says that the rest is there.
            (self._recorded / ABOUT).unlink(missing_ok=True)
            for part in (CHANGES, FILES):
                _remove(self._recorded / part)

    def _note_unfinished(self, attempt: int, source: Path) -> None:
        if self._held.form != "state" or not self._held.unfinished:
            return
        held = [path for path in self._held.unfinished if os.path.lexists(source / FILES / path)]
        text = working_set.unfinished_sentence(attempt, self._held.unfinished, held)
        self._note(text)

    def remove_agent_folder(self) -> None:
        """Remove the agent's folder, and leave in it what the server takes from this disk."""
        folder = self._where.folder
        if not (self.is_collected and self.folder.is_dir()):
            folder_trees.remove(folder, ignore_errors=True)
            return
        with contextlib.suppress(OSError):  # the server removes the rest
            for path in folder.iterdir():
                if path != self._root:
                    _remove(path)

    # ------------------------------------------------------------ while ranks run

    def start(self, run: Run) -> None:
        """Start to send what is complete, if the job may restart on another node."""
        if self._tree is None or not self._held.sends:
            return
        sender = self._sender or self._new_sender()
        sender.go_on(run.number, run.attempt.deaths)

    def finish(self, run: Run) -> str:
        """Send the rest, for the next attempt or a restart, where the server does not take it from
        this disk. Nobody needs it if the job is done."""
        if self._tree is None or self._task.fresh_work:
            return ""
        if run.is_done and (self.is_collected or self._task.nodes == 1):
            if self._sender is not None:
                self._sender.stop()
        elif self._sender is not None or not self.is_collected:
            sender = self._sender or self._new_sender()
            sender.end(run.number, self._calls.clocks.grace, self._calls.order, self._calls.wait)
        return ""

    def _new_sender(self) -> WorkState:
        assert self._tree is not None
        self._sender = WorkState(
            self._tree,
            self._where,
            self._calls.server,
            self._calls.clocks.look,
            bool(self._held.form),
            self.is_collected,
            note=self._note,
            warn=self._calls.note_about("checkpoint"),
        )
        return self._sender

    def _note(self, message: str) -> None:
        self._calls.note(message, {"about": "working folder"})


class Code(Part):
    """Fetches the job's code, unless the working folder has it."""

    phase = Phase.CODE

    def __init__(self, working: WorkingFolder, calls: AgentCalls) -> None:
        self._working, self._calls = working, calls

    def begin(self, run: Run) -> None:
        folder_trees.remove(run.folder, ignore_errors=True)
        run.folder.mkdir(parents=True)
        if run.task.code is not None and not self._working.stays:
            run.code = run.folder / "code.tar"
            self._calls.download(f"code/{run.task.code}", run.code)


class Workplace(Part):
    """Prepares the working folder once it is laid out. ``home`` is where the server has its
    files; ``channels`` lead to the folder."""

    def __init__(
        self, working: WorkingFolder, home: str, calls: AgentCalls, channels: ChannelOpener
    ) -> None:
        self._working, self._home, self._calls = working, home, calls
        self._channels = channels

    def begin(self, run: Run) -> None:
        laid_out, go_on = self._working.laid_out, self._calls.heed
        run.work = prepare(run.task, run.folder, laid_out, time.time(), run.paths, go_on)
        output_disks.note_unseen(run.task, self._home, self._calls)
        self._channels.cwd = run.work.folder


def lay_over(source: Path, target: Path, place: Path) -> list[str]:
    """Change the folder ``target`` with the code as the working set of ``source`` says. Files are
    linked, or copied from another disk. ``target`` will be renamed to ``place``. Returns what
    is left out, because its path is too long. Raises OSError."""
    left_out: list[str] = []
    times = dict[str, int]()
    about = _about(source)
    root = os.path.realpath(target)
    for path in about.removed:
        whole = os.path.normpath(os.path.join(root, path))
        above = os.path.dirname(whole)
        # Links of the code may lead anywhere.
        if whole.startswith(f"{root}/") and os.path.realpath(above) == above:
            _remove(Path(whole))
    for folder, folders, files in _walk(source / FILES):
        names = {*folders, *files}
        too_long = {n for n in names if folder_trees.is_too_long(str(target / folder / n))}
        left_out += (os.path.join(folder, name) for name in sorted(too_long))
        for name in folders:
            if name in too_long:
                continue
            if (target / folder / name).is_symlink() or not (target / folder / name).is_dir():
                _remove(target / folder / name)
                (target / folder / name).mkdir()
                path = os.path.join(folder, name)
                times[path] = (source / FILES / path).stat().st_mtime_ns
        for name in files:
            if name in too_long:
                continue
            path = os.path.join(folder, name)
            _remove(target / path)
            _put(source / FILES / path, target / path, about.folder, place)
    folder_trees.set_times(target, times)
    return left_out


def set_code_times(folder: Path, code: Listing) -> None:
    """The code comes without times of its folders: give them those of the newest files in them."""
    mine = working_set.folders_above(code)
    times = folder_trees.newest_times({path: file[2] for path, file in listing(folder).items()})
    folder_trees.set_times(folder, {path: times[path] for path in times.keys() & mine})


def _put(source: Path, destination: Path, before: str, place: Path) -> None:
    if source.is_symlink():
        target = os.readlink(source)
        within = target.removeprefix(f"{before}/")
        destination.symlink_to(target if within == target or not before else f"{place}/{within}")
        return
    try:
        os.link(source, destination)
    except OSError:  # another disk, or a file system without links
        shutil.copy2(source, destination)


def _walk(root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """As os.walk, with paths relative to ``root``, and links to folders among the files."""

    def fail(error: OSError) -> None:
        raise error

    if not root.exists():
        return
    for above, folders, files in folder_trees.walk(root, onerror=fail):
        links = [name for name in folders if os.path.islink(os.path.join(above, name))]
        folder = os.path.relpath(above, root)
        below = [name for name in folders if name not in links]
        yield "" if folder == "." else folder, below, [*files, *links]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        folder_trees.remove(path)
    else:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()


def _about(source: Path) -> About:
    try:
        return About.load((source / ABOUT).read_bytes())
    except FileNotFoundError:
        return About()
