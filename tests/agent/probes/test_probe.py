"""Real probes: on this machine's loopback, and on hosts with a network of their own."""

import ast
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from allranks.agent.network import ports
from allranks.agent.probes import probe
from allranks.cli.preflight import probe_gang
from tests.agent.namespaces import hosts

# Real waits for what never comes: about three seconds a test.
pytestmark = pytest.mark.slow

Lines = dict[str, dict[int, dict[str, Any]]]


def ask(folder: Path, **more: Any) -> Path:
    asked = {"meet": 1.0, "total": 4.0, "modules": [], "paths": {}, "programs": []}
    probe_gang.write(folder, {**asked, **more})
    return folder


def environ(node: int, addresses: Sequence[str], port: int) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "ALLRANKS_JOB": "preflight-x",
        "ALLRANKS_NODE_RANK": str(node),
        "ALLRANKS_NODES": json.dumps([{"address": address} for address in addresses]),
        "AZ_BATCH_MASTER_NODE": f"{addresses[0]}:{port}",
    }


def run(folder: Path, addresses: Sequence[str], argvs: dict[int, list[str]], port: int) -> Lines:
    """What the probes told, kind by kind and node by node."""
    started = [
        subprocess.Popen(
            [*argv, "-B", probe_gang.FOLDER],
            cwd=folder,
            env=environ(node, addresses, port),
            stdout=subprocess.PIPE,
            text=True,
        )
        for node, argv in argvs.items()
    ]
    told: Lines = {}
    for each in started:
        said, _ = each.communicate(timeout=120)
        assert each.returncode == 0
        for line in map(json.loads, said.splitlines()):
            told.setdefault(line["preflight"], {})[line["node"]] = line
    return told


def free_port() -> int:
    held = ports.hold(1)
    (port,) = ports.numbers(held)
    ports.release(held)
    return port


def here(folder: Path, nodes: Sequence[int], count: int) -> Lines:
    addresses = [f"127.0.0.{node + 2}" for node in range(count)]
    return run(folder, addresses, {node: [sys.executable] for node in nodes}, free_port())


@pytest.mark.end_to_end
def test_three_nodes_meet_reach_one_another_and_add_up(tmp_path: Path) -> None:
    told = here(ask(tmp_path), (0, 1, 2), 3)
    assert told["met"][2]["present"] == [0, 1, 2]
    for node, line in told["links"].items():
        assert set(line["links"]) == {"0", "1", "2"} - {str(node)}
        assert all(link["why"] == "" and link["mb_s"] > 0 for link in line["links"].values())
    assert all(line["right"] for line in told["sum"].values())
    assert all(abs(line["ahead"]) < 0.5 for line in told["clock"].values())
    assert told["facts"][1]["python"] == sys.version.split()[0]
    assert told["facts"][1]["interface"]["name"] == "lo"
    assert "pytest" in told["looked"][0]["packages"]


def test_one_node_alone_is_done_at_once(tmp_path: Path) -> None:
    told = here(ask(tmp_path), (0,), 1)
    assert told["met"][0]["present"] == [0]
    assert told["sum"][0]["right"]


def test_those_who_come_go_on_without_the_one_who_does_not(tmp_path: Path) -> None:
    told = here(ask(tmp_path), (0, 2), 3)
    assert told["met"][0]["present"] == told["met"][2]["present"] == [0, 2]
    assert told["sum"][0]["right"]


def test_without_node_0_each_says_that_it_cannot_be_reached(tmp_path: Path) -> None:
    told = here(ask(tmp_path), (1,), 2)
    assert "cannot reach node 0 at 127.0.0.2:" in told["met"][1]["why"]
    assert "packages" in told["looked"][1]


def test_what_it_looks_for_on_the_node(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    wanted = {"inputs.a": str(tmp_path / "there"), "inputs.b": str(tmp_path / "not")}
    programs = ["no-such-program", "sh"]
    folder = ask(tmp_path, paths=wanted, programs=programs, modules=["json", "no_such_module"])
    looked = here(folder, (0,), 1)["looked"][0]
    assert looked["paths"] == {"inputs.a": "", "inputs.b": "no such file or directory"}
    assert looked["programs"] == ["sh"]
    assert looked["missing"] == ["no_such_module"]


def test_a_way_that_is_shut_is_told_by_both_its_ends(tmp_path: Path) -> None:
    with hosts(3) as made:
        # Node 2 has no way back to node 1: neither of them gets through.
        made.ip(2, "route", "add", "unreachable", "198.18.0.2/32")
        addresses = [f"198.18.0.{node + 1}" for node in range(3)]
        argvs = {node: made.argv(node, sys.executable) for node in range(3)}
        told = run(ask(tmp_path), addresses, argvs, 23456)
    assert told["met"][0]["present"] == [0, 1, 2]
    ways = {
        (n, int(to)): w["why"]
        for n, line in told["links"].items()
        for to, w in line["links"].items()
    }
    assert {pair for pair, why in ways.items() if why} == {(1, 2), (2, 1)}
    assert ways[1, 2] == "timed out"
    assert told["facts"][0]["interface"]["name"] == "eth1"
    assert not all(line["right"] for line in told["sum"].values())


def test_strangers_are_not_answered() -> None:
    heard: list[Any] = []
    server = probe.listen("127.0.0.1", 0, lambda way: heard.extend(probe.requests(way, "mine")))
    address = server.getsockname()
    for said in (b'{"job": "other", "do": "echo"}\n', b"GET / HTTP/1.1\r\n\r\n", b"[]\n"):
        with socket.create_connection(address, 5) as stranger:
            stranger.sendall(said)
            assert stranger.recv(10) == b""
    server.close()
    assert heard == []


SENT = ("../cli/preflight/read_script.py", "inside/allranks_parallel_step.py")


@pytest.mark.parametrize("name", [*probe_gang._FILES, *SENT])
def test_what_travels_is_read_by_old_pythons(name: str) -> None:
    text = Path(probe.__file__).parents[1].joinpath(name).read_text()
    ast.parse(text, feature_version=(3, 7))
    words = (".removeprefix(", ".removesuffix(", "strict=", "isdigit() |")
    assert not [word for word in words if word in text]
