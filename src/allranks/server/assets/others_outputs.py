"""What each node of a job finds of the others' outputs as an attempt begins, if it shares no disk
with the home.

As in working folders, whoever changed a path last keeps it, and the others get that
(`core/data/node_changes.py`). Here the server decides, because it has what all nodes have sent: it
adds the others' files to a node's own, which the node then fetches.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from allranks import folder_trees
from allranks.core.amounts import size_text
from allranks.core.data import node_changes, working_set
from allranks.core.data.node_changes import GONE, Change, NodeChanges
from allranks.core.data.node_files import is_for_all, shown
from allranks.core.data.state_manifest import Entry, above, own
from allranks.errors import Conflict
from allranks.store.files.code_listing import CodeFile
from allranks.store.files.state_folders import Put, State

# In the folder with the files of a job's nodes: what each node had changed when the attempt began.
# In that of a node: what was so of its own, and what it then got of the others.
_CHANGES, _COPIES = "changes", "copies"
# The nodes that write to the disk of the home count as one.
HOME = -1

# Raises FileNotFoundError if the node has replaced the content meanwhile.
Link = Callable[[Path, Path, Entry], None]


class _Known(NamedTuple):
    """A node's changes as an attempt began, and the others' that it has."""

    changes: NodeChanges = NodeChanges()
    copies: Mapping[str, Change] = {}


def begin(
    folder: Path,
    states: Mapping[int, State],
    attempt: int,
    code: Mapping[str, CodeFile],
    removed: Iterable[str] = (),
) -> None:
    """Write down what each node has changed, before any gets another's files. ``removed``: by a
    node that writes to the home. Once for an attempt. Raises OSError."""
    laid_out = dict(_laid_out(code))
    made = {
        node: _changed(state, node, laid_out, removed if node == HOME else ())
        for node, state in states.items()
    }
    if HOME in made:
        mine = made[HOME].keeping(node_changes.others(HOME, made).apart)
        _keep(states[HOME], mine._replace(attempt=attempt), {})
    _write(folder / _CHANGES, [attempt, {n: each.dump().decode() for n, each in made.items()}])


def begun(folder: Path) -> int:
    """The attempt that began last. Raises OSError."""
    return _load(folder)[0]


def give(folder: Path, states: Mapping[int, State], node: int, limit: int, link: Link) -> list[str]:
    """Give a node the others' files, once in the attempt that has begun. Return what to say of it.
    Raises Conflict for more than ``limit`` bytes, and OSError."""
    attempt, changes = _load(folder)
    state = states[node]
    if _known(state).changes.attempt == attempt:
        return []
    merge = node_changes.others(node, changes)
    plan = {path: changes[other].paths[path] for path, other in merge.from_node.items()}
    before = entries_of(state, node)
    lacking = [path for path in plan if not _is_there(plan[path], before.get(path))]
    times = node_changes.folder_times(changes.values())
    size = sum(plan[path].size for path in lacking)
    if size > limit:
        raise Conflict(
            f"attempt {attempt} cannot continue: other nodes have {size_text(size)} of new "
            f"outputs, more than the bound of {size_text(limit)}",
            hint="write to ALLRANKS_STATE_DIR what nodes need of one another, or raise "
            "ALLRANKS_WORK_LIMIT of the server",
        )
    sources = {other: states[other].entries() for other in {*merge.from_node.values()}}
    puts, late = list[Put](), set[str]()
    for path in sorted(lacking, key=lambda path: (plan[path].what != GONE, path)):
        other = merge.from_node[path]
        entry = sources[other].get(f"{own(other)}/{path}")
        try:
            if not _is_there(plan[path], entry):
                raise FileNotFoundError(path)  # a node that cannot begin has sent something
            if entry is not None and entry.what == "file":
                link(states[other].content(entry.sha256), state.content(entry.sha256), entry)
        except FileNotFoundError:
            late.add(path)
            continue
        puts.append(Put(f"{own(node)}/{path}", before[path].seq if path in before else 0, entry))
    state.commit(puts)
    state.commit([*_folder_puts(state, node, times)])
    after = entries_of(state, node)
    copies = {path: change for path, change in plan.items() if _is_there(change, after.get(path))}
    mine = changes[node].without(copies).keeping(merge.apart)
    _keep(state, mine._replace(attempt=attempt), copies)
    return _sentences(attempt, merge, copies, plan.keys() - copies.keys() - late)


def _folder_puts(state: State, node: int, times: Mapping[str, int]) -> Iterator[Put]:
    """Give the folders that a node has, also those of others' files, the ``times`` of all nodes."""
    entries = state.entries()
    folders = {folder for path in entries for folder in (path, *above(path))}
    for path, mtime_ns in times.items():
        full = f"{own(node)}/{path}"
        was = entries.get(full, Entry("folder"))
        if full in folders and was.what == "folder" and was.mtime_ns != mtime_ns:
            yield Put(full, was.seq, Entry("folder", mtime_ns=mtime_ns))


def _sentences(
    attempt: int, merge: node_changes.Others, copies: Iterable[str], left_out: Iterable[str]
) -> list[str]:
    come = dict[int, list[str]]()
    for path in copies:
        come.setdefault(merge.from_node[path], []).append(shown(path))
    apart, missing = [*map(shown, merge.apart)], [*map(shown, sorted(left_out))]
    texts = [working_set.sentence(attempt, (), 0, come, apart)] if come or apart else []
    return texts + ([working_set.in_the_way_sentence(missing)] if missing else [])


def take_as_copies(state: State, node: int, attempt: int = 1) -> None:
    """Let what a node has in that attempt count as no change of its own, unless it is written down
    what is. Raises OSError."""
    if not (state.folder / _COPIES).exists():
        copies = {path: Change.of(entry) for path, entry in entries_of(state, node).items()}
        _keep(state, NodeChanges(attempt=attempt), copies)


def _keep(state: State, changes: NodeChanges, copies: Mapping[str, Change]) -> None:
    copied = NodeChanges(paths=copies)
    _write(state.folder / _COPIES, [changes.dump().decode(), copied.dump().decode()])


def _laid_out(code: Mapping[str, CodeFile]) -> Iterator[tuple[str, Change]]:
    """What nodes have of the code in their outputs, as they got it."""
    for path, file in code.items():
        if file.target:
            yield f"artifacts/{path}", Change(0, "link", target=file.target)
        else:
            yield f"artifacts/{path}", Change(0, "file", file.size, file.mtime * 10**9)


def _changed(
    state: State, node: int, laid_out: Mapping[str, Change], removed: Iterable[str]
) -> NodeChanges:
    before = _known(state)
    same = {**laid_out, **before.copies}
    made = {path: Change.of(entry) for path, entry in entries_of(state, node).items()}
    there = {
        path: change
        for path, change in made.items()
        if not (path in same and same[path].is_as(change))
    }
    had = (path for path, change in before.copies.items() if change.what != GONE)
    gone = {*had, *before.changes.paths, *removed} - made.keys()
    folders = {
        path: entry.mtime_ns
        for path, entry in _for_all(state, node)
        if entry.what == "folder" and entry.mtime_ns
    }
    paths = node_changes.changes_since(before.changes, there, gone)
    return NodeChanges(paths=paths, folders=folders)


def entries_of(state: State, node: int) -> dict[str, Entry]:
    """The files and links of a node that are for all nodes."""
    return {path: entry for path, entry in _for_all(state, node) if entry.what != "folder"}


def _for_all(state: State, node: int) -> Iterator[tuple[str, Entry]]:
    start = f"{own(node)}/"
    within = ((path.removeprefix(start), entry) for path, entry in state.entries().items())
    return ((path, entry) for path, entry in within if is_for_all(path))


def _is_there(change: Change, entry: Entry | None) -> bool:
    return change.what == GONE if entry is None else change.is_as(Change.of(entry))


def _load(folder: Path) -> tuple[int, dict[int, NodeChanges]]:
    """The attempt that began last, and what each node had changed. Raises OSError."""
    try:
        return _parsed(folder / _CHANGES, (folder / _CHANGES).stat().st_mtime_ns)
    except FileNotFoundError:
        return 0, {}


@functools.lru_cache(maxsize=4)
def _parsed(file: Path, written: int) -> tuple[int, dict[int, NodeChanges]]:
    """Each node of a job asks for it as an attempt begins."""
    attempt, lists = json.loads(file.read_bytes())
    return attempt, {int(n): NodeChanges.load(text.encode()) for n, text in lists.items()}


def _known(state: State) -> _Known:
    try:
        changes, copies = json.loads((state.folder / _COPIES).read_bytes())
    except FileNotFoundError:
        return _Known()
    return _Known(NodeChanges.load(changes.encode()), NodeChanges.load(copies.encode()).paths)


def _write(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder_trees.write_file(path, json.dumps(data))
