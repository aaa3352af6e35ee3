"""Working folders of nodes that share no disk with the server, with real agents; and requests that
no agent sends."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from allranks.agent.state.sync import Sync
from allranks.agent.state.torn_files import Deaths
from allranks.agent.state.transfer import Damaged, StateClient
from allranks.agent.state.tree import Tree
from allranks.agent.state.working_folder import OtherSet, WorkSync, WorkTree
from allranks.agent.transport.identity import AgentIdentity
from allranks.agent.transport.link import ServerAddress
from allranks.core.data.working_set import ABOUT, FILES, About
from allranks.server.http import file_piece
from allranks.statuses import SharedHome
from tests.server.agent_api.test_own_disks import OWN, Client, Nodes, can_hide, job_of, submit
from tests.server.serving import served
from tests.support import until

# Counts in its working folder, and removes what it finds else.
COUNT = (
    "n=$(cat ckpt/n 2>/dev/null || echo 0); echo begins at $n; mkdir -p ckpt; "
    'echo $((n + 1)) > ckpt/n; ln -sfn "$PWD/ckpt" latest; cat latest/n; '
)


def printed(home: Path, job: str, attempt: int = 1) -> str:
    return (home / "jobs" / job / f"attempts/{attempt}/user_logs/std_log.txt").read_text()


def sent(home: Path, job: str) -> dict[str, Any]:
    try:
        head = (home / "jobs" / job / "working-folder/0/head").read_bytes()
    except FileNotFoundError:
        return {}
    entries: dict[str, Any] = json.loads(head.partition(b"\n")[2])["entries"]
    return entries


@pytest.mark.slow
def test_the_next_launch_elsewhere_finds_the_working_folder(tmp_path: Path):
    if not can_hide():
        pytest.skip("this user may not have mount namespaces")
    home = tmp_path / "home"
    with served(home, OWN, look=0.1) as server:
        submit(server, f"{COUNT}[ $n = 0 ] && sleep 600", 1, retry={"max_attempts": 2})
        first = Nodes(server, tmp_path / "nodes", "j")
        first.start(0)
        until(lambda: {"node-0/work/ckpt/n", "node-0/work/latest"} <= sent(home, "j").keys())
        first.kill()
    with served(home, OWN, lease=1.0) as server:
        until(lambda: job_of(server)["launches"] == 2)
        second = Nodes(server, tmp_path / "nodes", "j", 2)
        second.start(0)
        assert second.end() == [0]
        until(lambda: job_of(server)["ended_at"])
        assert printed(home, "j", 2) == "begins at 1\n2\n"


@pytest.mark.slow
def test_a_restart_elsewhere_finds_what_a_failed_job_left(tmp_path: Path):
    if not can_hide():
        pytest.skip("this user may not have mount namespaces")
    home = tmp_path / "home"
    with served(home, OWN) as server:
        submit(server, f"{COUNT}exit 3", 1)
        nodes = Nodes(server, tmp_path / "nodes", "j")
        nodes.start(0)
        nodes.end()
        until(lambda: job_of(server)["ended_at"])
        made = server.people.post("/api/v1/jobs/j/restart", json={}).json()
        assert made["carried"]["files"] == 1
        until(lambda: job_of(server, "j-r2")["status"] == "Provisioning")
        again = Nodes(server, tmp_path / "more nodes", "j-r2")
        again.start(0)
        again.end()
        assert printed(home, "j-r2") == "begins at 1\n2\n"


# Rank 0 alone saves, as on a shared disk: beside the script, and as Azure's examples do. Ends with
# its agent, which no engine does here.
TRAIN = (
    "read n < ckpt || n=0; read m < outputs/ckpt || m=0; read o < ${{outputs.o}}/d/ckpt || o=0; "
    'echo "rank $RANK starts at $n $m $o"; echo $RANK | tee outputs/own > own; '
    "[ $RANK = 1 ] || { rm -f old-* outputs/old-*; mkdir -p ${{outputs.o}}/d; "
    "echo $((n + 1)) | tee outputs/ckpt ${{outputs.o}}/d/ckpt > ckpt; "
    "touch outputs/old-$n old-$n; }; "
    "until [ -e go-$ALLRANKS_ATTEMPT ]; do kill -0 $PPID || exit; sleep 0.05; done; "
    "[ $RANK = 1 ] && sleep 600; exit 3"
)


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True])
def test_what_one_node_changed_is_there_for_all_nodes_without_a_shared_disk(
    tmp_path: Path, mixed: bool, request: pytest.FixtureRequest
):
    """In the same agents, in the next launch, and in a restart."""
    if not can_hide():
        pytest.skip("this user may not have mount namespaces")
    home = tmp_path / "home"
    kind = OWN._replace(shared_home=lambda options: SharedHome.AUTO) if mixed else OWN

    def starts(job: str, attempt: int) -> list[str]:
        until(lambda: printed_by_all(job, attempt).count("starts at") == 2)
        lines = printed_by_all(job, attempt).splitlines()
        return sorted(line for line in lines if "starts at" in line)

    def at(step: int) -> list[str]:
        return [f"rank {rank} starts at {step} {step} {step}" for rank in (0, 1)]

    def printed_by_all(job: str, attempt: int) -> str:
        logs = (home / "jobs" / job / f"attempts/{attempt}/user_logs").glob("*")
        return "\n".join(log.read_text() for log in logs)

    def launched(nodes: Nodes) -> list[Path]:
        request.addfinalizer(nodes.kill)
        folders = [nodes.folder(node) for node in (0, 1)]
        if mixed:
            folders[0] = home / "nodes" / f"{nodes.job}.{nodes.launch}" / "0"
            nodes.start(0, sees_home=True, DIR=str(folders[0]))
            nodes.start(1, OWN_DISK="1")
        else:
            nodes.start(0)
            nodes.start(1)
        return [folder / f"working/node-{node}/work" for node, folder in enumerate(folders)]

    with served(home, kind, look=0.1, lease=5.0) as server:
        distribution = {"type": "pytorch", "process_count_per_instance": 1}
        more = {"distribution": distribution, "outputs": {"o": {}}}
        submit(server, TRAIN, 2, retry={"max_attempts": 3}, **more)
        first = Nodes(server, tmp_path / "nodes", "j")
        works = launched(first)
        assert starts("j", 1) == at(0)
        (works[0] / "go-1").touch()
        assert starts("j", 2) == at(1)
        until(lambda: {"node-0/work/ckpt", "node-0/work/old-1"} <= sent(home, "j").keys())
        until(lambda: os.path.exists(home / "jobs/j/artifacts/outputs/old-1"))
        until(lambda: "node-0/work/old-0" not in sent(home, "j"))
        first.kill()
        until(lambda: job_of(server)["launches"] == 2)
        second = Nodes(server, tmp_path / "nodes", "j", 2)
        works = launched(second)
        assert starts("j", 3) == at(2)
        assert sorted(os.listdir(works[1])) == [
            "ckpt",
            "go-1",
            "logs",
            "old-1",
            "outputs",
            "own",
        ]
        assert (works[1] / "own").read_text() == "1\n"
        if not mixed:  # that of the home has one folder for both
            assert (works[1] / "outputs/own").read_text() == "1\n"
        assert sorted(os.listdir(works[1] / "outputs")) == ["ckpt", "old-1", "own"]
        events = server.people.get("/api/v1/jobs/j/events").json()
        notes = [event["data"].get("message", "") for event in events]
        source = "the nodes on the disk of the home" if mixed else "node 0"
        assert any(f"of {source}: named-outputs/o/d/ckpt, outputs/ckpt" in n for n in notes), notes
        until(lambda: "node-0/work/old-2" in sent(home, "j"))  # it is written last
        until(lambda: os.path.exists(home / "jobs/j/artifacts/outputs/old-2"))
        second.kill()
        server.people.post("/api/v1/jobs/j/cancel")
        until(lambda: job_of(server)["ended_at"])
        made = server.people.post("/api/v1/jobs/j/restart", json={})
        assert made.is_success, made.text
        until(lambda: job_of(server, "j-r2")["status"] == "Provisioning")
        third = Nodes(server, tmp_path / "more nodes", "j-r2")
        launched(third)
        assert starts("j-r2", 1) == at(3)
        third.kill()


@pytest.mark.medium
def test_a_node_writes_only_its_own_part(tmp_path: Path):
    with served(tmp_path / "home", OWN) as server:
        submit(server, "true", 2)
        client = Client(server)
        for path in (
            "node-1/work/x",
            "shared/x",
            "node-0/x",
            "node-0/about/x",
            "node-0/work/a/../../x",
        ):
            puts = [{"path": path, "base": 0, "entry": ["folder"]}]
            request = {"attempt": 1, "after": 0, "puts": puts, "same": False, "over": False}
            answer = client.send("POST", "work/sync", json=request)
            assert answer.status_code == 400, answer.text
        assert client.send("PUT", "work/unfinished", json={"a": 1}).status_code == 400
        assert client.send("PUT", "work/unfinished", json=["a"]).status_code == 200
        assert Client(server, launch=2).send("PUT", "work/unfinished", json=[]).status_code == 401


@pytest.mark.medium
def test_a_list_that_its_node_replaces_while_it_is_fetched_is_fetched_again(tmp_path: Path):
    with served(tmp_path / "home", OWN) as server:
        submit(server, "true", 2)
        token = server.auth.agent_token("j", 1)
        address = ServerAddress(server.url, token)
        client = StateClient(address, 1, lambda: None, "work")
        tree = WorkTree(tmp_path / "work", 1, {}, 10**9)
        tree.make()
        sync = WorkSync(tree, client, 1, print, known=False)
        launches = iter((1, 2))

        def tell(_: float = 0.0) -> None:
            """The node says what it has changed; the second time as node 0 begins to fetch it."""
            if launch := next(launches, 0):
                tree.tell_changes(launch, 1, ())
                while sync.sync_once(end=True):
                    pass

        tell()
        where = AgentIdentity(server.url, token, "", 1, 0, tmp_path / "node", "127.0.0.1", 1)
        of = OtherSet(where, address, 1, 1, tell, print)
        assert of.changes().launch == 2
        assert next(launches, 0) == 0
        of.close()
        client.close()


@pytest.mark.medium
@pytest.mark.parametrize("uses_sendfile", [True, False])
def test_a_large_file_comes_as_it_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uses_sendfile: bool
):
    monkeypatch.setattr(file_piece, "_can_sendfile", lambda _: uses_sendfile)
    data = random.Random(1).randbytes((17 << 20) + 5)
    with served(tmp_path / "home", OWN) as server:
        submit(server, "true", 1)
        address = ServerAddress(server.url, server.auth.agent_token("j", 1))
        client = StateClient(address, 0, lambda: None)
        tree = Tree(tmp_path / "state", ("shared",))
        tree.make()
        (tree.root / "shared" / "file").write_bytes(data)
        sync = Sync(tree, client, 0, print)
        while sync.sync_once(end=True):
            pass
        entry = sync._head["shared/file"]
        client.fetch(tree.downloads, [entry])
        assert (tree.downloads / entry.sha256).read_bytes() == data
        (content,) = (tmp_path / "home").glob(f"states/*/*/content/{entry.sha256}")
        content.chmod(0o600)
        os.truncate(content, 16 << 20)
        (tree.downloads / entry.sha256).unlink()
        with pytest.raises(Damaged):
            client.fetch(tree.downloads, [entry])
        client.close()


@pytest.mark.medium
def test_a_file_that_is_rewritten_while_it_is_read_counts_as_unfinished(tmp_path: Path):
    home = tmp_path / "home"
    file = tmp_path / "work" / "node-0" / FILES / "checkpoint"
    with served(home, OWN) as server:
        submit(server, "true", 1)
        address = ServerAddress(server.url, server.auth.agent_token("j", 1))
        client = StateClient(address, 0, lambda: None, "work")
        removed = {"first-run-only": (1, 1, 1)}
        tree = WorkTree(tmp_path / "work", 0, removed, 10**9)
        tree.make()
        sync = WorkSync(tree, client, 0, print, known=False)
        file.write_bytes(b"step 1")
        sync.sync_once()
        unfinished = home / "jobs" / "j" / "working-folder" / "0" / "unfinished.json"
        assert json.loads(unfinished.read_bytes()) == ["checkpoint"]

        def rewrite() -> None:
            file.write_bytes(b"step 20")

        client.go_on = rewrite  # called between the pieces that are read
        sync.sync_once()
        assert json.loads(unfinished.read_bytes()) == ["checkpoint"]
        # The script may have removed a file because of one that is not complete yet.
        assert sent(home, "j") == {}
        client.go_on = lambda: None
        until(lambda: sync.sync_once() and json.loads(unfinished.read_bytes()) == [])
        assert [*sent(home, "j")] == [f"node-0/{FILES}/checkpoint", f"node-0/{ABOUT}"]
        client.close()


@pytest.mark.medium
def test_a_file_that_a_kill_cut_short_goes_back_and_its_part_is_kept(tmp_path: Path):
    home, folder = tmp_path / "home", tmp_path / "work" / "node-0" / FILES
    with served(home, OWN) as server:
        submit(server, "true", 1)
        client = StateClient(
            ServerAddress(server.url, server.auth.agent_token("j", 1)), 0, lambda: None, "work"
        )
        notes = list[str]()
        tree = WorkTree(tmp_path / "work", 0, {}, 10**9)
        tree.make()
        sync = WorkSync(tree, client, 0, notes.append, known=False)
        sync.begin_attempt(deaths := Deaths(), watch=False)
        deep = folder / "deep"
        deep.mkdir()
        for file in (deep / "a.ckpt", deep / "b.ckpt"):
            file.write_bytes(b"complete")
        until(lambda: sync.sync_once() and len(sent(home, "j")) == 3)
        before = sent(home, "j")
        (deep / "a.ckpt").write_bytes(b"part")
        (deep / "b.ckpt").write_bytes(b"also new")
        (folder / "first.ckpt").write_bytes(b"PK\3\4 the begin of a zip")
        deaths.kill(time.time())
        sync.find_torn()
        while sync.sync_once(end=True):
            pass
        size = sent(home, "j").pop("node-0/work/first.ckpt")
        assert sent(home, "j") == {**before, "node-0/work/first.ckpt": size}
        first, *shown = sync.send_torn()
        assert first == (
            "'first.ckpt' was being written when a rank was killed: it is incomplete, and no "
            "complete one was saved before it"
        )
        assert [each.split(",")[0] for each in shown] == ["'deep/a.ckpt'", "'deep/b.ckpt'"]
        assert all("keeps the complete file before it" in each for each in shown)
        assert [each.read_bytes() for each in sorted(deep.iterdir())] == [b"complete"] * 2
        kept = home / "jobs/j/torn/attempt-1/node-0/deep"
        assert [(kept / name).read_bytes() for name in ("a.ckpt", "b.ckpt")] == [
            b"part",
            b"also new",
        ]
        assert not sync.sync_once(end=True)
        assert sent(home, "j").keys() == {*before, "node-0/work/first.ckpt"}
        assert notes == []
        puts = [
            {"path": "node-0/work/a/../../../../../x", "base": 0, "entry": ["file", "0" * 64, 1]}
        ]
        wrong = Client(server).send("POST", "work/torn", json={"attempt": 1, "puts": puts})
        assert wrong.status_code == 400
        client.close()


@pytest.mark.medium
def test_a_set_that_is_a_part_is_never_carried(tmp_path: Path):
    home = tmp_path / "home"
    with served(home, OWN) as server:
        submit(server, "true", 1)
        data = About(over=11 * 10**9).dump()
        sha256 = hashlib.sha256(data).hexdigest()
        client = Client(server)
        query = f"offset=0&size={len(data)}"
        assert client.send("PUT", f"work/contents/{sha256}?{query}", content=data).is_success
        entry = ["file", sha256, len(data)]
        puts = [{"path": f"node-0/{ABOUT}", "base": 0, "entry": entry}]
        request = {"attempt": 1, "after": 0, "puts": puts, "same": True, "over": False}
        assert client.send("POST", "work/sync", json=request).json()["done"]
        server.people.post("/api/v1/jobs/j/cancel")
        until(lambda: job_of(server)["ended_at"])
        answer = server.people.post("/api/v1/jobs/j/restart", json={})
        assert answer.status_code == 409
        assert "its working folder has 11.0 GB of new files" in answer.text
        assert not (home / "jobs/j-r2").exists()
