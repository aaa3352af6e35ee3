"""The working folders of a job's other nodes, as an attempt begins: on the disk of the home, which
nodes share, or at the server, to which a node with a disk of its own sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from allranks import folder_trees
from allranks.agent.state.working_folder import OtherSet, read_changes
from allranks.agent.transport.identity import AgentIdentity
from allranks.agent.transport.link import ServerAddress
from allranks.core.data.node_changes import NodeChanges
from allranks.core.data.state_manifest import own
from allranks.core.data.working_set import ELSEWHERE, FILES
from allranks.core.plan import Task
from allranks.errors import AllranksError, Unsupported

# Seconds between looks whether another node is as far.
_PAUSE = 0.1


class OtherNodes:
    """``sees_home``: this node's own folder is on the disk of the home. ``wait`` sleeps for some
    seconds and may raise."""

    def __init__(
        self,
        task: Task,
        where: AgentIdentity,
        server: ServerAddress,
        sees_home: bool,
        wait: Callable[[float], None],
        note: Callable[[str], None],
    ) -> None:
        self._where, self._server, self._wait, self._note = where, server, wait, note
        self._sees_home, self._nodes = sees_home, where.folder.parent
        self._others = [node for node in range(task.nodes) if node != where.node]
        self._sets: dict[int, OtherSet] = {}

    def changes(
        self, mine: NodeChanges, send: Callable[[], None], doing: Callable[[str], None]
    ) -> dict[int, NodeChanges]:
        """The changes of all nodes, once each node has listed its own for this attempt. ``send`` is
        called if some node does not see this one's folder. Raises AllranksError, OSError, and what
        ``wait`` raises."""
        changes, sent = {self._where.node: mine}, False
        while True:
            for node in [n for n in self._others if n not in changes]:
                theirs = self._changes_of(node, mine)
                if (theirs.launch, theirs.attempt) == (mine.launch, mine.attempt):
                    changes[node] = theirs
            if not sent and not all(map(self._is_beside, self._others)):
                send()
                sent = True
            waiting = [str(node) for node in self._others if node not in changes]
            if not waiting:
                return changes
            doing(f"waits for what node {waiting[0]} changed in its working folder")
            self._wait(_PAUSE)

    def folders(self, from_node: Mapping[str, int]) -> dict[str, Path]:
        """For each path a folder that has what lies there on that node. Raises as ``changes``."""
        paths = dict[int, list[str]]()
        for path, node in from_node.items():
            paths.setdefault(node, []).append(path)
        folders = dict[str, Path]()
        for node, of_node in paths.items():
            is_beside = self._is_beside(node)
            folder = self._part(node) / FILES if is_beside else self._set(node).fetch(of_node)
            folders |= dict.fromkeys(of_node, folder)
        return folders

    def close(self) -> None:
        for other_set in self._sets.values():
            other_set.close()
        folder_trees.remove(self._where.folder / "others", ignore_errors=True)

    def _changes_of(self, node: int, mine: NodeChanges) -> NodeChanges:
        try:
            if self._is_beside(node):
                return read_changes(self._part(node))
            return self._set(node, mine.attempt).changes()
        except Unsupported:
            self._note(f"the server is of an earlier version: no files of node {node} come here")
            return mine._replace(paths={}, over=0)
        except ValueError as error:
            raise AllranksError(
                f"what node {node} changed in its working folder cannot be read: {error}",
                hint="start from zero with --fresh-work",
            ) from None

    def _is_beside(self, node: int) -> bool:
        """Whether its folder is on this disk; one that has not begun may turn out not to be."""
        return self._sees_home and not (self._nodes / str(node) / ELSEWHERE).exists()

    def _part(self, node: int) -> Path:
        return self._nodes / str(node) / "working" / own(node)

    def _set(self, node: int, attempt: int = 0) -> OtherSet:
        if node not in self._sets:
            self._sets[node] = OtherSet(
                self._where, self._server, node, attempt, self._wait, self._note
            )
        return self._sets[node]
