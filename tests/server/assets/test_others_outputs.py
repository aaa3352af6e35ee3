"""What a node finds of the others' outputs, where they share no disk."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from allranks.core.data.state_manifest import Entry, own
from allranks.errors import Conflict
from allranks.server.assets import others_outputs
from allranks.store.files.code_listing import CodeFile
from allranks.store.files.state_folders import Put, State

ALL = 10**9


class Gang:
    """What the nodes of a job have sent; ``clock`` gives each write a time of its own."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder, self.clock, self.code = folder, 0, dict[str, CodeFile]()
        self.states = {node: State(folder / str(node)) for node in range(nodes)}

    def write(self, node: int, path: str, text: str) -> None:
        self.clock += 1
        state, sha256 = self.states[node], hashlib.sha256(text.encode()).hexdigest()
        content = state.content(sha256)
        content.parent.mkdir(parents=True, exist_ok=True)
        content.write_text(text)
        self._put(node, path, Entry("file", sha256, len(text), self.clock, 0o644))

    def link(self, node: int, path: str, target: str) -> None:
        self._put(node, path, Entry("link", mtime_ns=self.clock, target=target))

    def remove(self, node: int, path: str) -> None:
        self._put(node, path, None)

    def _put(self, node: int, path: str, entry: Entry | None) -> None:
        whole = f"{own(node)}/{path}"
        was = self.states[node].entries().get(whole)
        assert self.states[node].commit([Put(whole, was.seq if was else 0, entry)]).done

    def begin(self, attempt: int) -> None:
        others_outputs.begin(self.folder, self.states, attempt, self.code)

    def give(self, node: int, limit: int = ALL) -> list[str]:
        def link(source: Path, target: Path, entry: Entry) -> None:
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                os.link(source, target)

        return others_outputs.give(self.folder, self.states, node, limit, link)

    def next(self, attempt: int) -> list[str]:
        self.begin(attempt)
        return [text for node in self.states for text in self.give(node)]

    def seen(self, node: int) -> dict[str, str]:
        """Of each file what it says, of each link where it leads."""
        state = self.states[node]
        return {
            path.removeprefix(f"{own(node)}/"): entry.target
            or state.content(entry.sha256).read_text()
            for path, entry in state.entries().items()
        }


CKPT, LOG, OLD = "artifacts/outputs/ckpt.pt", "artifacts/logs/train.log", "named-outputs/m/old"


def test_what_one_node_wrote_is_there_for_all_as_each_attempt_begins(tmp_path: Path):
    gang = Gang(tmp_path, 3)
    gang.write(0, CKPT, "epoch 1")
    gang.write(1, OLD, "old")
    gang.link(0, "artifacts/outputs/latest", "ckpt.pt")
    gang.write(0, "attempts/1/work/node-0.txt", "a list of the attempt")
    gang.write(2, "artifacts/work/node-2/x", "beside the script")
    for node in range(2):
        gang.write(node, LOG, f"of node {node}")
    assert gang.next(2)[1] == (
        "attempt 2 continues with 2 changes of node 0: outputs/ckpt.pt, outputs/latest; "
        "changed by several nodes, so each keeps its own: logs/train.log"
    )
    all_have = {CKPT: "epoch 1", OLD: "old", "artifacts/outputs/latest": "ckpt.pt"}
    of_last = {"artifacts/work/node-2/x": "beside the script", LOG: "of node 0"}
    assert gang.seen(1) == {**all_have, LOG: "of node 1"}
    assert gang.seen(2) == {**all_have, **of_last}
    # Another node goes on with the checkpoint, and removes what it did not write.
    gang.write(2, CKPT, "epoch 2")
    gang.remove(2, OLD)
    gang.write(0, LOG, "more of node 0")
    gang.next(3)
    assert gang.seen(0) | gang.seen(1) == {
        **gang.seen(0),
        CKPT: "epoch 2",
        LOG: "of node 1",
    }
    assert OLD not in {**gang.seen(0), **gang.seen(1)}
    assert gang.seen(0)[LOG] == gang.seen(2)[LOG] == "more of node 0"
    before = [gang.seen(node) for node in range(3)]
    gang.next(4)
    assert [gang.seen(node) for node in range(3)] == before


def test_a_server_that_is_killed_meanwhile_goes_on(tmp_path: Path):
    gang = Gang(tmp_path, 2)
    gang.write(0, CKPT, "epoch 1")
    gang.begin(2)
    gang.give(1)
    (tmp_path / "1" / "copies").unlink()  # it was killed before that was written
    gang.give(1)
    assert gang.give(1) == []
    gang.write(0, CKPT, "epoch 2")
    gang.next(3)
    assert gang.seen(1)[CKPT] == "epoch 2"


def test_a_node_that_was_lost_as_an_attempt_began_gets_it_in_the_next(tmp_path: Path):
    gang = Gang(tmp_path, 2)
    gang.write(0, CKPT, "epoch 1")
    gang.write(1, OLD, "old")
    gang.begin(2)
    gang.give(0)
    gang.next(3)
    assert gang.seen(0) == gang.seen(1) == {CKPT: "epoch 1", OLD: "old"}


def test_a_restart_starts_with_files_of_nobody(tmp_path: Path):
    gang = Gang(tmp_path, 2)
    for node, state in gang.states.items():
        gang.write(node, CKPT, "epoch 1")
        others_outputs.take_as_copies(state, node)
    gang.write(1, CKPT, "epoch 2")
    gang.next(2)
    assert gang.seen(0) == gang.seen(1) == {CKPT: "epoch 2"}


def test_a_file_of_the_code_is_of_nobody(tmp_path: Path):
    gang = Gang(tmp_path, 2)
    gang.code["outputs/ckpt.pt"] = CodeFile(7, 3, "")
    gang.clock = 3 * 10**9 - 1
    gang.write(1, CKPT, "epoch 1")
    gang.write(0, CKPT, "epoch 2")
    gang.next(2)
    assert gang.seen(0) == gang.seen(1) == {CKPT: "epoch 2"}


def test_above_the_bound_an_attempt_refuses(tmp_path: Path):
    gang = Gang(tmp_path, 2)
    gang.write(0, CKPT, "0123456789")
    gang.begin(2)
    with pytest.raises(Conflict, match="attempt 2 cannot continue: other nodes have 10 bytes"):
        gang.give(1, limit=9)
    assert gang.seen(1) == {}
    gang.give(0, limit=9)
    assert gang.give(1, limit=10) != []


def test_what_cannot_be_there_is_named(tmp_path: Path):
    gang = Gang(tmp_path, 2)
    gang.write(0, "artifacts/outputs/run", "a file")
    gang.write(1, "artifacts/outputs/run/1/log", "below a folder")
    way = "not brought from other nodes, because something is in the way: outputs/run"
    assert gang.next(2)[-1] == way
    gang.next(3)
    assert gang.seen(0) == {"artifacts/outputs/run": "a file"}
    assert gang.seen(1) == {"artifacts/outputs/run/1/log": "below a folder"}


@pytest.mark.parametrize("when", ["before it is listed", "before it is linked"])
def test_what_its_node_replaces_meanwhile_is_left_for_the_next_attempt(tmp_path: Path, when: str):
    gang = Gang(tmp_path, 2)
    gang.write(0, CKPT, "epoch 1")
    gang.write(0, OLD, "old")
    gang.begin(2)
    if when == "before it is listed":
        gang.write(0, CKPT, "epoch 1, and more")
    else:
        gang.states[0].content(hashlib.sha256(b"epoch 1").hexdigest()).unlink()
    assert gang.give(1) == ["attempt 2 continues with 1 change of node 0: named-outputs/m/old"]
    assert gang.seen(1) == {OLD: "old"}
    gang.write(0, CKPT, "epoch 2")
    gang.next(3)
    assert gang.seen(1)[CKPT] == "epoch 2"


def test_all_nodes_have_the_times_of_folders(tmp_path: Path):
    gang = Gang(tmp_path, 3)
    for number, (node, time) in enumerate([(0, 300), (1, 200), (1, 500), (0, 400)]):
        folder = f"artifacts/outputs/step_{number % 2}"
        gang._put(node, folder, Entry("folder", mtime_ns=time))
        gang.write(node, f"{folder}/rank_{node}", "shard")
    gang.next(2)
    for node, state in gang.states.items():
        times = {p: e.mtime_ns for p, e in state.entries().items() if e.what == "folder"}
        start = f"{own(node)}/artifacts/outputs/step_"
        assert times == {f"{start}0": 500, f"{start}1": 400}
