"""What the transcripts of releases hold: every route of agents, every order, all that clients call.

The transcript of 0.1.0 has jobs on two nodes with a state, a preemption and a failure (`plain`),
on nodes with disks of their own (`apart`), with a mailbox (`mailed`), that people enter, look at
and cancel (`busy`), held after a failure (`held`), on the nodes of a session (`guest`), without
progress (`quiet`), logging to MLflow (`tracked`), a sweep and a pipeline. `test_transcript_server`,
`_agents` and `_clients` play it. The requests to MLflow are recorded and not played: their answers
are MLflow's, and `tests/mlflow` has its clients.
"""

import json
import lzma
import re
from pathlib import Path

import pytest

from allranks.agent.transport import mailbox
from allranks.server.agent_api import (
    channel_routes,
    input_routes,
    routes,
    start_routes,
    state_routes,
)
from tests.releases.transcript import AGENTS, MLFLOW, TRANSCRIPTS, Exchange, load

# Of agents: a regular expression of routes that the transcript lacks, and why.
LEFT_OUT_OF_AGENTS = {
    r".*/torn": "a rank was killed while it wrote a file; tests of `agent/state` make one",
    r".*/damaged": "a disk of the server lost a file's content",
    r".*/uv/.*": "the node's image has no uv; the answer is a program of 50 MB",
    r".*/accounts/.*": "needs an object store: `tests/stores`",
    r".*/input/[^/]*/digest|.*/output/.*": "a path of the server's machine, which a client on "
    "another machine, as the recorded ones are, cannot name",
}
# Of people: the same. `answers.json` and `test_homes` have some of these.
LEFT_OUT_OF_PEOPLE = {
    r".*/server/.*": "stops the server, or lets other machines in",
    r".*/batch-endpoints.*|.*/endpoints/.*": "needs replicas that run: no agent's protocol",
    r".*/jobs/(list|imported|checks)|.*/changes|.*/merged|.*/plan": "of the page, the SDK and "
    "imports",
    r".*/code.*|.*/files/.*|.*/checksums/.*": "of the page, and of files above 8 MB",
    r".*/blobs/(discard|.*/part)|.*/uploads/(challenges|proofs)": "of uploads above 16 MB, "
    "that were interrupted, or whose content is there",
    r".*/jobs/[^/]*/(kill|profile|metrics/.*)": "of rehearsals, interrupted profiles and charts",
    r"(DELETE|PUT|POST) /api/v1/(computes|environments|datastores|schedules|states|"
    r"components|models|data|instances)/.*": "changes settings: no agent is concerned",
}
PATHS = pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.parent.name)


@PATHS
def test_every_route_is_recorded(path: Path) -> None:
    exchanges = load(path, {})
    agents = json.loads((path.parent / "agent_routes.json").read_text())
    people = json.loads((path.parent / "names.json").read_text())["routes"]
    assert not_recorded(exchanges, agents, LEFT_OUT_OF_AGENTS) == []
    assert not_recorded(exchanges, people, LEFT_OUT_OF_PEOPLE) == []


@PATHS
def test_agents_find_their_routes(path: Path) -> None:
    modules = (channel_routes, input_routes, start_routes, state_routes)
    app = routes.create_app([route for module in modules for route in module.routes()])
    now = {
        f"{min(route.methods)} {route.path}" for route in app.routes if hasattr(route, "methods")
    }
    before = {*json.loads((path.parent / "agent_routes.json").read_text())}
    assert before - now == set()
    # An agent goes on without a new one: `test_transcript_agents` has seen it.
    assert [route for route in now - before if "/work/of/" not in route] == []


@PATHS
def test_every_order_is_recorded(path: Path) -> None:
    exchanges = load(path, {})
    orders = [each.json for each in exchanges if "/orders?" in each.path]
    orders += [each.json["order"] for each in exchanges if each.path.endswith("/hello")]
    assert {order["do"] for order in orders} == {"wait", "prepare", "go", "stop", "leave"}
    keys = {key for order in orders for key in order}
    # Not `kill`: of rehearsals.
    assert keys >= {"why", "hold", "places", "watched", "stacks", "channels", "profile", "guests"}


@PATHS
def test_all_ways_are_recorded(path: Path) -> None:
    exchanges = load(path, {})
    assert any(each.call == "mailbox" for each in exchanges)
    assert any(each.path.startswith(MLFLOW) for each in exchanges)
    calls = " ".join({each.call for each in exchanges if each.frames})
    for word in ("job exec", "job shell", "job cp", "job port-forward"):
        assert word in calls
    kinds = {
        event["kind"]
        for each in exchanges
        if each.path.startswith(AGENTS) and "/events" in each.path
        for event in json.loads(each.body)
    }
    # Not `taken` and `worked`: of nodes that a cluster takes away, and of pools of workers.
    ours = {"hello", "ready", "started", "rank_ended", "held", "ended", "drained", "bye", "note"}
    assert kinds >= ours


def test_a_mailbox_is_as_in_0_1_0(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    head = {"method": "POST", "path": "/agent/v1/0/hello", "token": "t"}
    mailbox.write(tmp_path / "in" / "a", head, b"{}")
    text = b'{"method": "POST", "path": "/agent/v1/0/hello", "token": "t"}\n{}'
    assert (tmp_path / "in" / "a").read_bytes() == text
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["a"]
    (tmp_path / "answer").write_bytes(b'{"status": 200}\nwhole')
    assert mailbox.read(tmp_path / "answer") == ({"status": 200}, b"whole")
    assert (mailbox.QUESTIONS, mailbox.ANSWERS) == ("in", "out")


@PATHS
def test_nothing_of_the_machine_is_in_it(path: Path) -> None:
    text = lzma.decompress(path.read_bytes()).decode()
    assert re.findall(r"allranks_(?!t{43})[\w-]{43}|\b\d+:[\w-]+:[0-9a-f]{64}", text) == []


def not_recorded(
    exchanges: list[Exchange], addresses: list[str], left_out: dict[str, str]
) -> list[str]:
    """The addresses that no exchange has, and that are not left out for a reason."""
    calls = {f"{each.method} {each.path.partition('?')[0]}" for each in exchanges}
    patterns = {one: pattern(one) for one in addresses}
    used = {next((one for one in addresses if patterns[one].fullmatch(call)), "") for call in calls}
    missing = {*addresses} - used
    plain = {one: re.sub(r"\{[^}]*\}", "_", one) for one in missing}
    return sorted(one for one in missing if not any(re.fullmatch(o, plain[one]) for o in left_out))


def pattern(address: str) -> re.Pattern[str]:
    """Matches the requests of a route."""
    rest = re.sub(r"\{[^}]*:rest\}", ".+", address)
    return re.compile(re.sub(r"\{[^}]*\}", "[^/]+", rest))
