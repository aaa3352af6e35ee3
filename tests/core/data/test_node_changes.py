"""Which files of other nodes a node gets: whoever changed a path last, in what attempt."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.data.node_changes import GONE, Change, NodeChanges, changes_since, others

FIRST, SECOND = Change(1, "file", 5, 100), Change(1, "file", 5, 101)


def told(**paths: Change) -> NodeChanges:
    return NodeChanges(1, 2, paths)


def test_what_one_node_changed_is_there_for_all():
    later = FIRST._replace(attempt=2)
    found = {0: told(a=later, c=Change(2, GONE)), 1: told(a=SECOND, b=FIRST, c=FIRST), 2: told()}
    assert others(1, found).from_node == {"a": 0, "c": 0}
    assert others(2, found).from_node == {"a": 0, "b": 1, "c": 0}
    assert others(0, found) == ({"b": 1}, ())


def test_where_several_changed_it_each_keeps_its_own():
    found = {0: told(a=FIRST, b=Change(1, GONE)), 1: told(a=SECOND, b=FIRST), 2: told()}
    assert others(0, found) == ({}, ("a", "b"))
    assert others(1, found) == ({}, ("a", "b"))
    # A node that has not gets the first one's, and rather a file than none.
    assert others(2, found) == ({"a": 0, "b": 1}, ())


def test_what_several_changed_once_stays_the_own_file_of_each():
    """Such as a log of each node: if node 0 alone has written to it since, node 1's lines stay."""
    logs = {0: told(log=FIRST), 1: told(log=SECOND)}
    before = {n: each.keeping(others(n, logs).apart) for n, each in logs.items()}
    there = Change(0, "file", 9, 200)
    grown = {
        0: told(**changes_since(before[0], {"log": there}, ())),
        1: told(**changes_since(before[1], {"log": SECOND}, ())),
        2: told(),
    }
    assert grown[0].paths["log"] == there._replace(attempt=2, apart=True)
    assert all(others(n, grown) == ({}, ("log",)) for n in (0, 1))
    assert others(2, grown).from_node == {"log": 0}
    # The third one changes its copy.
    grown[2] = told(log=there._replace(attempt=3, size=10))
    assert all(others(n, grown) == ({}, ("log",)) for n in range(3))
    # Once all have removed it, it is as any other.
    gone = {n: told(log=Change(3, GONE, apart=True)) for n in range(2)}
    assert others(0, gone) == ({}, ())
    assert not gone[0].keeping(()).paths["log"].apart
    # A node that comes anew has none.
    assert others(1, {0: grown[0], 1: told()}).from_node == {"log": 0}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"[" * 60_000,
        b'{"paths": {"../x": [1, "file", 1, 1, ""]}}',
        b'{"paths": {"/x": [1, "file", 1, 1, ""]}}',
        b'{"paths": {"outputs/x": [1, "file", 1, 1, ""]}}',
        b'{"paths": {"x": [1, "device", 1, 1, ""]}}',
        b'{"paths": {"x": [1e400, "file", 1, 1, ""]}}',
        b'{"paths": {"x": [1, "file"]}, "over": "much"}',
        b'{"paths": {"x": [1, "file", 1, 1, "", 1]}}',
        b'{"paths": {"x": 1}}',
        b'{"paths": {}, "more": 1}',
    ],
)
def test_what_is_no_list_of_changes_is_refused(data):
    with pytest.raises(ValueError):
        NodeChanges.load(data)


def test_a_list_is_what_it_was():
    name = b"\xff\n".decode(errors="surrogateescape")
    made = NodeChanges(3, 2, {name: FIRST, "l": Change(2, "link", target="a")}, 7)
    assert NodeChanges.load(made.dump()) == made
    assert json.loads(made.as_earlier(2).dump())["paths"]["l"][0] == 0


class Model:
    """Nodes whose ranks change files, each version with a time of its own. What each node sees is
    kept as it is, to be compared with what they tell one another."""

    def __init__(self, nodes: int) -> None:
        self.time = 0
        self.seen = [dict[str, int]() for _ in range(nodes)]
        self.began = [dict[str, int]() for _ in range(nodes)]
        self.mine = [dict[str, int]() for _ in range(nodes)]
        self.before = [NodeChanges() for _ in range(nodes)]
        self.removed = [set[str]() for _ in range(nodes)]
        self.touched = [set[str]() for _ in range(nodes)]
        # The nodes that keep files of their own at a path.
        self.apart = dict[str, set[int]]()

    def change(self, node: int, path: str, remove: bool) -> None:
        if remove and path not in self.seen[node]:
            return
        self.touched[node].add(path)
        self.mine[node].pop(path, None)
        self.seen[node].pop(path, None)
        if remove and path in self.began[node]:
            self.removed[node].add(path)
        elif remove:  # nobody knows that it was there
            self.touched[node].discard(path)
        if remove:
            return
        self.removed[node].discard(path)
        self.time += 1
        self.seen[node][path] = self.mine[node][path] = self.time

    def next_attempt(self, attempt: int) -> None:
        nodes = range(len(self.seen))
        made = dict[int, NodeChanges]()
        for node in nodes:
            there = {p: Change(0, "file", 1, at) for p, at in self.mine[node].items()}
            gone = self.removed[node] | self.before[node].paths.keys() - there.keys()
            paths = changes_since(self.before[node], there, gone)
            made[node] = NodeChanges(1, attempt, paths)
        expected = [dict(each) for each in self.seen]
        for path in {path for each in self.touched for path in each}:
            by = [node for node in nodes if path in self.touched[node]]
            first = min(by, key=lambda node: (path not in self.seen[node], node))
            keep = self.apart.get(path, set()).union(by)
            stay = len(keep) > 1 and any(path in self.seen[node] for node in keep)
            self.apart[path] = keep if stay else set()
            for node in nodes:
                if node not in keep:
                    expected[node].pop(path, None)
                    if path in self.seen[first]:
                        expected[node][path] = self.seen[first][path]
        for node in nodes:
            found = others(node, made)
            # As after a relaunch: nothing but the node's own is there.
            self.seen[node] = dict(self.mine[node])
            for path, source in found.from_node.items():
                self.mine[node].pop(path, None)
                self.seen[node].pop(path, None)
                if made[source].paths[path].what != GONE:
                    self.seen[node][path] = made[source].paths[path].mtime_ns
            self.before[node] = made[node].without(found.from_node).keeping(found.apart)
            self.removed[node], self.touched[node] = set(), set()
            self.began[node] = dict(self.seen[node])
        assert self.seen == expected


CHANGES = st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.booleans())


@given(st.integers(2, 4), st.lists(st.lists(CHANGES, max_size=6), max_size=5))
def test_nodes_agree_in_every_attempt(nodes, attempts):
    model = Model(nodes)
    for number, changes in enumerate(attempts, 2):
        for node, path, remove in changes:
            model.change(node % nodes, path, remove)
        model.next_attempt(number)
