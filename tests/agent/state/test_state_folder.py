"""State folders of nodes and of a server, with real routes and no processes."""

import asyncio
import contextlib
import errno
import hashlib
import itertools
import json
import math
import os
import random
import shutil
import subprocess
import threading
import time
import types
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.agent.state import state_folder as state
from allranks.agent.state import sync, transfer
from allranks.agent.state.state_folder import State, state_folder
from allranks.agent.state.sync import Sync
from allranks.agent.state.torn_files import Deaths
from allranks.agent.state.transfer import PIECE, StateClient
from allranks.agent.state.tree import Tree
from allranks.core.data import state_manifest as plan_states
from allranks.core.data import state_versions
from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.errors import NotFound, Unauthorized, Unreachable
from allranks.events import Event, Kind
from allranks.http_client import FilePart, Reply, checked
from allranks.server.agent_api import routes, state_routes
from allranks.server.assets.state_folders import States
from allranks.server.auth.identity import Auth
from allranks.server.loop import mailbox
from allranks.server.storage.garbage_collection import GarbageCollection, Options
from allranks.settings import Home, make
from allranks.store.database import open_database
from allranks.store.files.state_folders import Put
from allranks.store.jobs.records import Records


class Server:
    """A server with its state routes; ``away``: it does not answer, ``leaves``: after so many
    requests."""

    def __init__(self, root, nodes, state="s"):
        self.home = Home(root / "ho'me")
        make(self.home)
        self.database = open_database(self.home.database)
        self.records = Records(self.database)
        self.away, self.leaves = False, math.inf
        self.auth = Auth(self.home)
        self.nodes = nodes
        self.row = self.job("j", state)
        self.restart()

    def job(self, name, state):
        task = Task(name, "x", "true", nodes=self.nodes, state=state)
        return self.records.create(
            {}, Plan(Gang(f"{name}.1", self.nodes, ("x",)), task, Rules(), "fake")
        )

    def restart(self):
        """Start the server again."""
        self.states = States(self.home, self.records)
        self.app = routes.create_app(state_routes.routes())
        heartbeats = types.SimpleNamespace(record=lambda *_: None)
        self.app.state.services = types.SimpleNamespace(
            auth=self.auth,
            records=self.records,
            states=self.states,
            heartbeats=heartbeats,
            home=self.home,
        )

    def stop(self):
        self.database.dispose()

    def client(self, timeout):
        return self

    def close(self):
        pass

    def json(self, method, path, data=None):
        body = None if data is None else json.dumps(data).encode()
        return json.loads(self.call(method, path, body).body or b"null")

    def call(self, method, path, body=None, **_):
        self.leaves -= 1
        if self.away or self.leaves < 0:
            raise Unreachable("it is away")
        body = body.read() if isinstance(body, FilePart) else body
        head = {"method": method, "path": path, "token": self.auth.agent_token(self.row.name, 1)}
        status, content = asyncio.run(mailbox._call(self.app, head, body or b""))
        return checked(Reply(status, {}, content))

    @property
    def state(self):
        return self.states.of(self.row)

    def contents(self):
        folder = self.state.folder / "content"
        return sorted(each.name for each in folder.iterdir()) if folder.exists() else []


class Node:
    def __init__(self, server, number, root):
        self.notes = []
        self.root = root / f"node {number}"
        parts = (plan_states.SHARED, plan_states.own(number))
        self.wire = StateClient(server, number, lambda: None)
        tree = Tree(self.root, parts)
        tree.make()
        self.sync = Sync(tree, self.wire, number, self.notes.append)
        self.shared = self.root / "shared"

    def sync_now(self, **how):
        return self.sync.sync_once(ask=True, **how)

    def save(self):
        while self.sync.sync_once(end=True):
            pass

    def files(self):
        """The shared part by path: content, None for folders, targets of links."""
        files = {}
        for path in self.shared.rglob("*"):
            name = os.fsdecode(path.relative_to(self.shared))
            if path.is_symlink():
                files[name] = os.readlink(path)
            else:
                files[name] = None if path.is_dir() else path.read_bytes()
        return files


@pytest.fixture
def server(tmp_path):
    started = Server(tmp_path, 2)
    yield started
    started.stop()


@pytest.fixture
def nodes(server, tmp_path):
    return [Node(server, number, tmp_path) for number in range(2)]


def settle(*nodes):
    for _ in range(4):
        for node in nodes:
            node.sync_now()


def test_a_file_is_sent_once_closed(nodes):
    a, b = nodes
    with (a.shared / "f").open("wb") as file:
        file.write(b"half")
        file.flush()
        settle(a, b)
        assert b.files() == {}
        file.write(b"whole")
    settle(a, b)
    assert b.files() == {"f": b"halfwhole"}
    assert (b.shared / "f").stat().st_mtime_ns == (a.shared / "f").stat().st_mtime_ns


def test_a_script_that_never_stops_writing_is_synchronized(nodes):
    """In every round there is a new checkpoint, `latest` names it, and the previous one is
    deleted."""
    a, b = nodes
    seen = set()
    for number in range(30):
        (a.shared / f"{number}").write_text("x")
        (a.shared / "latest.new").write_text(str(number))
        (a.shared / "latest.new").rename(a.shared / "latest")
        if number:
            (a.shared / f"{number - 1}").unlink()
        a.sync_now()
        b.sync_now()
        if (b.shared / "latest").exists():
            seen.add((b.shared / "latest").read_text())
            assert (b.shared / (b.shared / "latest").read_text()).exists()
    assert len(seen) > 3


def test_later_files_wait_for_one_being_written(nodes):
    a, b = nodes
    with (a.shared / "large").open("wb") as file:
        file.write(b"x")
        file.flush()
        (a.shared / "latest").write_text("large")
        os.symlink("large", a.shared / "link")
        settle(a, b)
        assert b.files() == {}
    settle(a, b)
    assert b.files() == {"large": b"x", "latest": b"large", "link": "large"}


def test_newer_local_files_are_kept(nodes):
    a, b = nodes
    (a.shared / "f").write_text("a")
    settle(a)
    (b.shared / "f").write_text("b, later")
    settle(b, a)
    assert a.files() == b.files() == {"f": b"b, later"}
    # A file open for writing is left alone, whichever is newer.
    with (b.shared / "f").open("r+b") as file:
        (a.shared / "f").write_text("a again")
        settle(a, b)
        assert b.files() == {"f": b"b, later"}
        file.write(b"B")
        file.flush()
    settle(b, a, b)
    assert a.files() == b.files()


def test_a_new_file_keeps_its_folder_from_deletion(nodes):
    a, b = nodes
    (a.shared / "d").mkdir()
    (a.shared / "d" / "f").write_text("1")
    settle(a, b)
    shutil.rmtree(a.shared / "d")
    (b.shared / "d" / "g").write_text("2")
    settle(a, b, a)
    assert a.files() == b.files() == {"d": None, "d/g": b"2"}


def test_a_file_becomes_a_folder_and_back(nodes):
    a, b = nodes
    (a.shared / "x").write_text("file")
    settle(a, b)
    (a.shared / "x").unlink()
    (a.shared / "x").mkdir()
    (a.shared / "x" / "y").write_text("in it")
    settle(a, b)
    assert b.files() == {"x": None, "x/y": b"in it"}
    shutil.rmtree(a.shared / "x")
    (a.shared / "x").write_text("file again")
    settle(a, b)
    assert b.files() == {"x": b"file again"}


def test_links_that_lead_outside_are_not_followed(nodes, tmp_path):
    a, b = nodes
    outside = tmp_path / "outside"
    outside.mkdir()
    (a.shared / "d").mkdir()
    (a.shared / "d" / "f").write_text("x")
    os.symlink(outside, b.shared / "d")
    settle(a, b)
    assert list(outside.iterdir()) == []
    assert os.readlink(b.shared / "d") == str(outside)
    assert any("leads outside the state folder" in each for each in b.notes)
    for path, target in [
        ("shared/x", "../y"),
        ("shared/a/x", "../../y"),
        ("shared/x", "a/../../y"),
    ]:
        assert not plan_states.stays_inside(path, target)
    assert plan_states.stays_inside("shared/a/x", "../y")


def test_a_node_writes_only_its_own_part(server, nodes):
    entry = ["file", "0" * 64, 1, 0, 0, "", 0]
    for path in ("node-0/x", "shared/../x", "shared/", "shared", "/etc/x", "shared//x", "other/x"):
        request = {"attempt": 1, "after": 0, "same": False, "over": False}
        with pytest.raises(Exception, match="not a path that this node may write"):
            nodes[1].wire.sync({**request, "puts": [{"path": path, "base": 0, "entry": entry}]})
    (nodes[0].root / "node-0" / "mine").write_text("0")
    settle(*nodes)
    assert "node-0/mine" in server.state.entries()
    assert not (nodes[1].root / "node-0").exists()
    again = Node(server, 0, nodes[0].root / "elsewhere")
    again.sync.fetch_all()
    assert (again.root / "node-0" / "mine").read_text() == "0"


def test_late_changes_and_other_states_are_refused(server, nodes):
    (nodes[0].shared / "f").write_text("x")
    nodes[0].save()
    (sha256,) = server.contents()
    mine, server.row = server.row, server.job("other", "t")
    with pytest.raises(NotFound, match="not a content of this state"):
        server.call("GET", f"/agent/v1/0/state/contents/{sha256}?offset=0&size=1")
    server.row = mine
    data = {"status": "Completed", "exit_code": 0, "error": None}
    server.records.append("j", [Event(Kind.FINISHED, 1.0, data=data)])
    (nodes[0].shared / "g").write_text("late")
    with pytest.raises(Unauthorized):
        nodes[0].save()


@pytest.mark.medium
def test_an_upload_resumes_after_a_server_restart(server, nodes, monkeypatch):
    monkeypatch.setattr(transfer, "_SENT", PIECE)
    a, b = nodes
    content = random.Random(1).randbytes(3 * PIECE + 7)
    (a.shared / "f").write_bytes(content)
    server.leaves = 3  # what it lacks, and two pieces
    with pytest.raises(Unreachable):
        a.save()
    (part,) = (server.state.folder / "coming").iterdir()
    assert part.stat().st_size >= PIECE
    server.restart()
    server.leaves = math.inf
    a.save()
    b.sync_now()
    assert b.files() == {"f": content}
    assert not list((server.state.folder / "coming").iterdir())


def test_a_damaged_file_falls_back_to_the_previous_version(server, nodes, tmp_path):
    a, _ = nodes
    (a.shared / "ckpt").write_text("one")
    a.save()
    server.state.keep("j", 1, "test")
    (a.shared / "ckpt").write_text("two!")
    a.save()
    (damaged,) = {e.sha256 for e in server.state.entries().values()}
    path = server.state.content(damaged)
    path.chmod(0o644)
    path.write_text("tw0!")
    again = Node(server, 1, tmp_path / "again")
    again.sync.fetch_all()
    assert again.files() == {"ckpt": b"one"}
    assert "using the intact version 1 instead" in again.notes[0]
    # Without an intact version, fetching fails.
    for each in server.contents():
        server.state.content(each).unlink()
    with pytest.raises(NotFound, match="no earlier version is intact") as caught:
        Node(server, 0, tmp_path / "last").sync.fetch_all()
    assert "allranks state" in caught.value.hint


def test_a_damaged_manifest_falls_back_to_the_newest_version(server, nodes):
    (nodes[0].shared / "f").write_text("1")
    nodes[0].save()
    server.state.keep("j", 1, "test")
    head = server.state.folder / "head"
    head.write_bytes(head.read_bytes()[:-3])
    server.restart()
    assert [*server.state.entries()] == ["shared/f"]


def test_versions_are_made_when_nobody_writes_and_the_newest_five_stay(server, nodes):
    a, b = nodes
    (a.shared / "f").write_text("0")
    settle(a, b)
    assert server.state.newest().why == "nobody was writing"
    for number in range(1, 8):
        (a.shared / "f").write_text(str(number))
        a.save()
        server.state.keep("j", number, "test")
    assert [each.number for each in server.state.versions()] == [4, 5, 6, 7, 8]
    assert len(server.contents()) == 5
    server.state.restore(5)
    server.state.keep("", 0, "restored")
    a.sync_now()
    assert a.files() == {"f": b"4"}
    assert server.state.newest().number == 9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.medium
def test_a_version_never_holds_a_checkpoint_in_half(server, nodes, seed, monkeypatch):
    """Both nodes write a shard, and then the first what says that both are there."""
    monkeypatch.setattr(state_versions, "PAUSE", 0.0)
    dice = random.Random(seed)
    whole, number, step = 0, 0, 0
    for _ in range(150):
        what = dice.randrange(4)
        if what < 2:
            nodes[what].sync_now()
        elif dice.random() < 0.4:
            number, step = (number + 1, 1) if step in (0, 3) else (number, step + 1)
            if step == 3:
                (nodes[0].shared / "latest").write_text(str(number))
            else:
                (nodes[2 - step].shared / f"{number}-{step}").write_text("x")
        newest = server.state.newest()
        if newest and "shared/latest" in newest.entries:
            whole += 1
            path = server.state.content(newest.entries["shared/latest"].sha256)
            latest = path.read_text()
            assert {f"shared/{latest}-1", f"shared/{latest}-2"} <= newest.entries.keys()
    assert whole


OPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(
            ["write", "remove", "mkdir", "move", "move folder", "link", "look", "look", "server"]
        ),
        st.sampled_from(["f", "g", "a/f", "b/f", "c/d/f"]),
        st.sampled_from(["f", "g", "b/g", "h"]),
    ),
    min_size=5,
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=20)
@given(OPS)
def test_whatever_is_done_in_the_end_all_have_the_same(tmp_path_factory, ops):
    root = tmp_path_factory.mktemp("s")
    server = Server(root, 3)
    nodes = [Node(server, number, root) for number in range(3)]
    for number, (which, what, path, other) in enumerate(ops):
        node = nodes[which]
        if what == "look":
            node.sync_now()
        elif what == "server":
            server.restart()
        else:
            _do(node.shared, what, path, other, number)
    for _ in range(2):
        for node in nodes:
            node.save()
    for _ in range(8):
        settle(*nodes)
    assert nodes[0].files() == nodes[1].files() == nodes[2].files()
    assert [node.notes for node in nodes] == [[], [], []]
    told = server.state.entries()
    assert {each.removeprefix("shared/") for each in told} == nodes[0].files().keys()
    server.state.keep("j", 1, "test")
    used = {e.sha256 for v in server.state.versions() for e in v.entries.values() if e.sha256}
    assert set(server.contents()) >= used
    server.stop()
    shutil.rmtree(root)


def _do(root: Path, what: str, path: str, other: str, number: int) -> None:
    try:
        if what == "write":
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(str(number))
        elif what == "remove":
            shutil.rmtree(root / path) if (root / path).is_dir() else (root / path).unlink()
        elif what == "mkdir":
            (root / path).parent.mkdir(parents=True, exist_ok=True)
        elif what == "move":
            (root / path).rename(root / other)
        elif what == "move folder":
            (root / path).parent.rename(root / "moved")
        elif what == "link" and "/" not in path:
            os.symlink(other, root / path)
    except OSError:
        pass


def test_what_is_cleared_and_what_stays(tmp_path):
    """Own states of jobs whose record is gone, and what came of a file nobody sends any more."""
    server = Server(tmp_path, 1, state="")
    node = Node(server, 0, tmp_path)
    (node.shared / "f").write_text("x")
    node.save()
    gone, coming = server.state.folder.with_name("gone"), server.state.folder / "coming"
    shutil.copytree(server.state.folder, gone)
    named = server.home.states / "named" / "s"
    shutil.copytree(server.state.folder, named)
    (coming / "half").write_text("x")

    def clear():
        asked = Options(0.0)
        found = GarbageCollection(server.home, server.records, threading.Lock(), asked).run()
        return {each.path for each in found.items}

    assert clear() == set()
    for each in (coming / "half", gone, server.state.folder, named):
        os.utime(each, (1, 1))
    assert clear() == {str(coming / "half"), str(gone)}
    again = Node(server, 0, tmp_path / "again")
    again.sync.fetch_all()
    assert again.files() == {"f": b"x"}
    assert (named / "head").exists()
    server.stop()


def test_what_is_a_file_here_and_a_folder_there_is_told(server, nodes):
    a, b = nodes
    (a.shared / "x").write_text("file")
    a.save()
    (b.shared / "x").mkdir()
    (b.shared / "x" / "y").write_text("in it")
    b.save()
    settle(a, b)
    assert a.files() == {"x": b"file"}
    assert b.files() == {"x": None, "x/y": b"in it"}
    assert "is not saved: in its place is another node's file or folder" in b.notes[0]
    (b.shared / "z").write_text("z")
    settle(b, a)
    assert a.files()["z"] == b"z"


def test_two_send_the_same_large_file_at_once(server, nodes):
    content = random.Random(2).randbytes(2 * PIECE)
    for node in nodes:
        (node.shared / "f").write_bytes(content)
    threads = [threading.Thread(target=node.save) for node in nodes]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(server.contents()) == 1
    settle(*nodes)
    assert nodes[0].files() == nodes[1].files() == {"f": content}


@pytest.mark.medium
def test_a_large_content_is_sent_once_and_goes_both_ways_in_pieces(server, nodes, monkeypatch):
    a, b = nodes
    content = random.Random(3).randbytes((9 << 20) + 5)
    for name in ("last", "step-9", "best"):
        (a.shared / name).write_bytes(content)
    call, sent, received = server.call, [], []

    def counted(method, path, body=None, **more):
        reply = call(method, path, body, **more)
        if "/contents/" in path:
            (sent if method == "PUT" else received).append(len(reply.body))
        return reply

    monkeypatch.setattr(server, "call", counted)
    a.save()
    assert len(sent) == 1
    b.sync_now()
    assert b.files() == dict.fromkeys(("last", "step-9", "best"), content)
    assert received == [8 << 20, (1 << 20) + 5]  # 0.1.0 sends less at once, too


def test_entries_are_committed_while_contents_are_sent(server, nodes, monkeypatch):
    a, _ = nodes
    monkeypatch.setattr(sync, "_COMMIT_SECONDS", 0.0)
    (a.shared / "small").write_text("1")
    (a.shared / "large").write_bytes(bytes(2 * PIECE))
    call, large = server.call, threading.Event()

    def slow(method, path, body=None, **more):
        if "/contents/" in path:
            assert large.wait(10)
        if path.endswith("/sync") and b'"shared/small"' in body:
            large.set()
        return call(method, path, body, **more)

    monkeypatch.setattr(server, "call", slow)
    os.utime(a.shared / "large")  # changed last
    a.save()
    assert [*server.state.entries()] == ["shared/small", "shared/large"]


def test_a_checkpoint_that_another_removed_at_the_end_holds_nobody_up(server, nodes):
    a, b = nodes
    (a.shared / "1").write_text("1")
    settle(a, b)
    (a.shared / "1").rename(a.shared / "2")
    a.save()
    (b.root / "node-1" / "rng").write_text("x")
    assert b.sync.sync_once(end=True)
    assert not b.sync.sync_once(end=True)
    assert sorted(server.state.entries()) == ["node-1/rng", "shared/2"]


def finish(node):
    """What the agent does when the ranks of a job that is done have ended; what is told."""
    said, waits = [], []
    agents_state(node, said).finish(True, 9.0, dict, waits.append)
    assert len(waits) < 9
    return said


def test_the_end_is_saved_whole_although_the_server_was_started_again(nodes):
    """Its order is the same, with another id."""
    (nodes[0].shared / "f").write_text("x")
    ids, clock, said = itertools.count(), itertools.count(), []

    def order():
        return {"do": "go", "id": str(next(ids)), "attempt": 1}

    def wait(seconds):
        assert next(clock) < 50

    assert agents_state(nodes[0], said).finish(True, 0.0, order, wait) == ""
    assert said == []


def agents_state(node, said):
    server, number = node.wire._client, node.wire._base.split("/")[3]
    where = types.SimpleNamespace(folder=node.root / "agent", node=int(number))
    state = State(state_folder(where), where, server, False, 1.0, True, said.append)
    state._sync, state._wire = node.sync, node.wire
    return state


def test_a_content_that_went_before_it_was_named_is_brought_again(server, nodes):
    """It is here, a node hears; another has changed the only file of it when it is to be named."""
    a, b = nodes
    for step in ("100", "150"):  # the first is a version
        (a.root / "node-0" / "step").write_text(step)
        settle(a, b)
    (a.root / "node-0" / "step").write_text("200")
    (b.root / "node-1" / "step").write_text("150")
    (b.shared / "z").write_text("weights")
    bring = b.wire.upload

    def bring_and_be_late(*told):
        found = bring(*told)
        a.save()
        return found

    b.wire.upload = bring_and_be_late
    assert finish(b) == []
    assert sorted(server.state.entries()) == ["node-0/step", "node-1/step", "shared/z"]


def test_why_the_end_is_not_saved_is_told(server, nodes):
    (nodes[0].shared / "f").write_text("x")
    data = {"status": "Completed", "exit_code": 0, "error": None}
    server.records.append("j", [Event(Kind.FINISHED, 1.0, data=data)])
    (said,) = finish(nodes[0])
    assert "the last changes of the state folder are not saved: this launch has ended" in said


@pytest.mark.skipif(os.getuid() != 0, reason="a full disk is a small tmpfs, which root can mount")
@pytest.mark.parametrize("room", [True, False])
def test_the_end_of_the_state_waits_a_while_for_room_on_the_servers_disk(
    tmp_path, room, monkeypatch
):
    """With room again it is saved to its end, for as long as that takes: a second for each wait."""
    clock = itertools.count(1.0)
    slow = types.SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr(state, "time", slow)
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], check=True)
    try:
        server = Server(disk, 1)
        node = Node(server, 0, tmp_path)
        for number in range(20):
            (node.shared / f"f{number}").write_text(f"{number}" * 20000)
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)

        def make_room(seconds):
            if room and seconds:  # it was tried, and is to be tried again
                (disk / "filler").unlink(missing_ok=True)

        said = []
        agents_state(node, said).finish(False, 9.0, dict, make_room)
        saved = [name for name in server.state.entries() if name.startswith("shared/f")]
        assert len(saved) == (20 if room else 0)
        assert [each.split(":")[0] for each in said] == [
            "the last changes of the state folder are not saved"
        ] * (not room)
        server.stop()
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_an_attempt_begins_with_a_file_where_a_folder_was(nodes):
    a, b = nodes
    (a.shared / "m").mkdir()
    (a.shared / "m" / "x").write_text("1")
    settle(a, b)
    shutil.rmtree(a.shared / "m")
    (a.shared / "m").write_text("file now")
    a.save()
    b.sync.fetch_all()
    assert b.files() == {"m": b"file now"}


def test_what_cannot_be_kept_keeps_no_version_from_being_made(server, nodes, monkeypatch):
    """One may not be read, one is a folder here and a file elsewhere, and ranks go on writing."""
    monkeypatch.setattr(state_versions, "PAUSE", 0.0)
    a, b = nodes
    (a.shared / "x").write_text("file")
    a.save()
    (b.shared / "x").mkdir()
    (b.shared / "x" / "y").write_text("in it")
    (a.shared / "secret").write_text("1")
    readable, secret = Tree.reading, ["shared/secret"]

    def unreadable(tree, path, state):
        if path in secret:
            raise PermissionError(errno.EACCES, "Permission denied")
        return readable(tree, path, state)

    monkeypatch.setattr(Tree, "reading", unreadable)
    for number in range(3):
        (a.shared / "ckpt").write_text(str(number))
        settle(a, b)
        settle(a, b)
        newest = server.state.newest()
        assert newest is not None
        assert newest.entries["shared/ckpt"].is_as(server.state.entries()["shared/ckpt"])
    assert newest.entries.keys() == {"shared/x", "shared/ckpt"}
    # As soon as it can be, it is.
    secret.clear()
    (a.shared / "secret").chmod(0o600)
    (a.shared / "x").unlink()
    settle(a, b)
    settle(a, b)
    assert server.state.newest().entries.keys() >= {"shared/x/y", "shared/secret"}


def test_what_came_and_cannot_lie_here_does_not_fill_the_disk(nodes):
    """One has a file open that the other changes, and a folder where the other has a file."""
    a, b = nodes
    (a.shared / "open").write_text("0")
    settle(a, b)
    (a.shared / "x").write_text("x 0")
    a.save()
    (b.shared / "x" / "y").mkdir(parents=True)
    with (b.shared / "open").open("a"):
        for number in range(1, 4):
            (a.shared / "open").write_text(f"open {number}")
            (a.shared / "x").write_text(f"x {number}")
            (b.root / "coming" / "0.part").write_text("of an agent that was killed")
            settle(a, b)
            came = [each.read_text() for each in (b.root / "coming").iterdir()]
            assert came == [f"x {number}"]
    settle(b)
    assert (b.shared / "open").read_text() == "open 3"


# ---------------------------------------------------------------- renames, and files left in part


def replace(path, content):
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(content)
    beside.replace(path)


def test_a_file_put_in_place_by_a_rename_is_sent_at_the_first_look(server, nodes):
    node = nodes[0]
    begin(node)
    for number in range(5):
        for rank in range(4):
            replace(node.shared / f"rank-{rank}", b"step %d of rank %d" % (number, rank))
        (node.shared / "in-place").write_text(str(number))  # after them: it holds up none
        node.sync_now()
        entries = server.state.entries()
        assert [entries[f"shared/rank-{rank}"].size for rank in range(4)] == [16] * 4
        digests = {path: entry.sha256 for path, entry in entries.items()}
        for rank in range(4):
            content = b"step %d of rank %d" % (number, rank)
            assert digests[f"shared/rank-{rank}"] == hashlib.sha256(content).hexdigest()


def test_a_renamed_file_that_is_still_written_to_is_not_complete(server, nodes):
    node = nodes[0]
    begin(node)
    with (node.shared / "f.new").open("wb") as file:
        file.write(b"ha")
        (node.shared / "f.new").rename(node.shared / "f")
        node.sync_now()
        assert server.state.entries() == {}
        file.write(b"lf")
    node.sync_now()  # closed since: by its writer, or by a kill
    assert server.state.entries() == {}
    node.sync_now()
    assert [*server.state.entries()] == ["shared/f"]


def killed(node, attempt=1):
    """The end of an attempt of a node whose rank was killed now."""
    node.sync.writers.deaths.kill(time.time())
    node.sync.find_torn()
    node.save()
    node.notes += node.sync.send_torn()
    assert node.sync.complete()


def begin(node):
    node.sync.begin_attempt(Deaths())


@pytest.mark.parametrize("was_open", [True, False])
def test_a_file_left_in_part_by_a_kill_does_not_replace_the_complete_one(server, nodes, was_open):
    a, b = nodes
    for node in nodes:
        begin(node)
    (a.shared / "ckpt").write_bytes(b"the first, complete" * 100)
    (a.shared / "log").write_bytes(b"step 1\n")
    (a.shared / "other").write_bytes(b"x" * 100)
    settle(a, b)
    with (a.shared / "log").open("ab") as log, (a.shared / "ckpt").open("wb") as file:
        log.write(b"step 2\n")
        file.write(b"the second, in pa")
        file.flush()
        replace(a.shared / "other", b"complete")
        if was_open:
            a.sync_now()
    killed(a)
    killed(b)
    # What is current, and what the next attempt finds.
    a.sync.fetch_all()
    settle(b)
    kept = {"ckpt": b"the first, complete" * 100, "log": b"step 1\nstep 2\n", "other": b"complete"}
    assert a.files() == b.files() == kept
    *_, torn, newest = server.state.versions()
    assert [[*each.torn] for each in (torn, newest)] == [["shared/ckpt"], []]
    assert torn.entries["shared/ckpt"].size == len(b"the second, in pa")
    assert server.state.content(torn.entries["shared/ckpt"].sha256).read_bytes().endswith(b"in pa")
    (said,) = [each for each in a.notes if "killed" in each]
    assert "'shared/ckpt', or a file beside it, was being written" in said
    assert "keeps the complete file before it (1.9 kB" in said
    assert f"version {torn.number} has the newer one (17 bytes)" in said


def test_what_was_complete_before_the_kill_is_sent(server, nodes):
    """All that two looks have seen, whatever its size; and what the kill shows to be whole."""
    a = nodes[0]
    begin(a)
    for name in ("before", "just/now"):
        (a.shared / name).parent.mkdir(exist_ok=True)
        (a.shared / name).write_bytes(b"one" * 100)
    settle(a)
    (a.shared / "before").write_bytes(b"two")
    settle(a)
    (a.shared / "just/now").write_bytes(b"two" * 100)
    killed(a)
    whole = hashlib.sha256(b"two" * 100).hexdigest()
    entries = server.state.entries()
    assert entries["shared/before"].size == 3
    assert entries["shared/just/now"].sha256 == whole
    assert not any(each.torn for each in server.state.versions())


def test_a_part_of_what_another_node_has_removed_is_kept_all_the_same(server, nodes):
    a, b = nodes
    begin(a)
    (a.shared / "ckpt").write_bytes(b"one" * 100)
    settle(a, b)
    (a.shared / "ckpt").write_bytes(b"two")
    (b.shared / "ckpt").unlink()
    settle(b)
    (a.shared / "log").write_text("a line")  # with which the node hears of it
    killed(a)
    assert [*server.state.entries()] == ["shared/log"]
    assert [each.torn for each in server.state.versions() if each.torn] == [["shared/ckpt"]]


def test_what_a_rank_wrote_after_the_last_kill_is_complete(server, nodes):
    """Another rank was killed; this one had its grace, saved, and ended by itself."""
    a = nodes[0]
    begin(a)
    (a.shared / "ckpt").write_bytes(b"one" * 100)
    settle(a)
    (a.shared / "ckpt").write_bytes(b"two")
    a.sync.writers.deaths.kill(time.time() - 5.0)
    a.sync.find_torn()
    a.save()
    assert server.state.entries()["shared/ckpt"].size == 3


def test_after_the_first_death_a_closed_file_waits_for_the_end(server, nodes):
    """Its writer may have been the dead one; a file put in place by a rename does not wait."""
    a = nodes[0]
    begin(a)
    a.sync.writers.deaths.begun = True
    replace(a.shared / "renamed", b"x")
    (a.shared / "written").write_bytes(b"x")
    settle(a)
    assert [*server.state.entries()] == ["shared/renamed"]
    a.sync.find_torn()  # all ended by themselves
    a.save()
    assert sorted(server.state.entries()) == ["shared/renamed", "shared/written"]


def test_nodes_that_leave_parts_have_one_version_of_them(server, nodes):
    for node in nodes:
        begin(node)
        (node.shared / f"rank-{node.root.name[-1]}").write_bytes(b"one" * 100)
    settle(*nodes)
    for node in nodes:
        (node.shared / f"rank-{node.root.name[-1]}").write_bytes(b"two")
        killed(node)
    torn = [each for each in server.state.versions() if each.torn]
    assert [each.torn for each in torn] == [["shared/rank-0", "shared/rank-1"]]
    assert "a rank was killed while it wrote rank-0, rank-1" in torn[0].why
    server.restart()
    assert [each.torn for each in server.state.versions() if each.torn] == [torn[0].torn]
    newest = server.state.newest()
    assert not newest.torn
    assert all(entry.size == 300 for entry in newest.entries.values())


def test_a_damaged_content_is_never_replaced_by_an_incomplete_file(server, nodes):
    a, b = nodes
    begin(a)
    (a.shared / "ckpt").write_bytes(b"one" * 100)
    settle(a, b)
    (a.shared / "ckpt").write_bytes(b"two")
    killed(a)
    (sha256,) = {entry.sha256 for entry in server.state.entries().values()}
    content = server.state.content(sha256)
    content.chmod(0o644)
    content.write_bytes(b"damaged")
    assert server.state.fall_back(sha256) is None


@given(pace=st.floats(0.1, 10.0), rest=st.floats(0.0, 100.0), now=st.floats(1e9, 2e9))
def test_all_nodes_look_at_the_same_moments(pace, rest, now):
    seconds = state._until_look(pace, rest, now)
    assert rest <= seconds <= rest + pace
    moment = (now + seconds) / pace
    assert abs(moment - round(moment)) < 1e-4


@pytest.mark.parametrize("restored", [False, True])
def test_what_a_server_adds_after_it_was_restored_replaces_nothing_newer(
    server, tmp_path, monkeypatch, restored
):
    node = Node(server, 0, tmp_path)
    tree = Tree(node.root, (plan_states.SHARED, plan_states.own(0)))
    node.sync = Sync(tree, node.wire, 0, node.notes.append, sends=True)
    for text in ("older", "newer"):
        (node.shared / "a").write_text(text)
        (node.shared / text).write_text("older")
        node.save()
    state = server.state
    revision, entries = state.revision, state.entries()
    was = entries["shared/older"]._replace(mtime_ns=0)
    assert state.commit([Put("shared/a", entries["shared/a"].seq, was)]).done
    sync = node.wire.sync
    before = revision - 1 if restored else revision
    monkeypatch.setattr(node.wire, "sync", lambda request: {**sync(request), "was": before})
    node.sync.fetch_all()
    assert (node.shared / "a").read_text() == ("newer" if restored else "older")


def times(node):
    return {path.name: path.stat().st_mtime_ns for path in node.shared.iterdir() if path.is_dir()}


def test_all_nodes_have_the_times_of_folders(server, nodes, tmp_path):
    """Each rank writes its part of each checkpoint, and scripts look for the newest by time."""
    a, b = nodes
    for number in (250, 50, 150):
        for node in nodes:
            (node.shared / f"step_{number}").mkdir()
            (node.shared / f"step_{number}" / node.root.name).write_text(str(number))
        settle(a, b)
    (b.shared / "step_50" / "more").write_text("of a rank")
    (a.shared / "step_250" / a.root.name).unlink()
    settle(a, b)
    assert times(a) == times(b)
    assert [*sorted(times(a), key=times(a).get)] == ["step_150", "step_50", "step_250"]
    # One that was not saved as its ranks ended, and nodes that get all anew.
    os.utime(b.shared / "step_150")
    for node in (a, b, *(Node(server, number, tmp_path / "later") for number in (0, 1))):
        node.sync.fetch_all()
        assert times(node) == times(a)


def test_a_folder_whose_time_changes_keeps_no_version_from_being_made(server, nodes, monkeypatch):
    monkeypatch.setattr(state_versions, "PAUSE", 0.0)
    a, b = nodes
    (a.shared / "run").mkdir()
    (a.shared / "run" / "ckpt").write_text("1")
    for _ in range(4):
        (a.shared / "run" / "lock").touch()
        (a.shared / "run" / "lock").unlink()
        settle(a, b)
    assert server.state.newest().entries.keys() == {"shared/run", "shared/run/ckpt"}


def test_a_folder_that_all_nodes_remove_at_once_stays_away(nodes):
    a, b = nodes
    (a.shared / "old").mkdir()
    for number in range(3):
        (a.shared / "old" / str(number)).write_text("x")
    settle(a, b)
    (b.shared / "old" / "0").unlink()
    shutil.rmtree(a.shared / "old")
    b.sync_now()
    settle(a, b)
    shutil.rmtree(b.shared / "old", ignore_errors=True)
    settle(a, b)
    assert a.files() == b.files() == {}
