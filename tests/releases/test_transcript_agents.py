"""Agents of this version under the server of a released one, as after a rollback.

The server is the transcript: it gives the orders that it gave, when what led to them has happened.
An agent may send only requests that the release knew; a 404 to any other does not end the job.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.channel import Frame, take_frames
from tests.releases.player import Player, play
from tests.releases.test_transcript import pattern
from tests.releases.transcript import TRANSCRIPTS, Exchange, load

# Launch and nodes. The second launch of preempted jobs finds a state, or a working folder.
LAUNCHES = {"plain": (2, 2), "apart": (2, 2), "busy": (1, 1)}
# What their ranks print, by attempt and rank.
LOGS = {
    "plain": {
        "2/0": "goes on from 3 with words\nloss: 0.25\nloss: 0.2\n",
        "3/1": "goes on from 6 with words\n",
    },
    "apart": {"2/0": "attempt 2 reads words\n\nfound of attempt 1 0\n"},
    "busy": {"1/0": "loss: 1\n", "1/1": "loss: 1\n"},
}
# What the helpers of agents sent into the first channels.
CHANNELS = ((b"inside\n", b"error\n", b"3"), (b"TYPED\n", b"", b"0"))


@pytest.mark.slow
@pytest.mark.end_to_end
@pytest.mark.parametrize("job", ["plain", "apart", pytest.param("busy", marks=pytest.mark.torch)])
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.parent.name)
def test_agents_run_under_its_server(path: Path, job: str, tmp_path: Path) -> None:
    (launch, nodes), root, home = LAUNCHES[job], tmp_path / "root", tmp_path / "home"
    code = home / "nodes"
    code.mkdir(parents=True)
    root.mkdir()
    (root / "venv").symlink_to(sys.prefix)
    names = {"@ROOT@": str(root), "@HOME@": str(home), "@HOST@": os.uname().nodename}
    names |= {"@ENVIRONMENT@": sys.prefix, "@PYTHON@": sys.base_prefix}
    exchanges = [each for each in load(path, names) if each.launch == (launch, job)]
    routes = json.loads((path.parent / "agent_routes.json").read_text())
    player = Player(exchanges, [pattern(route) for route in routes])
    make_home(home, exchanges)
    with contextlib.contextmanager(play)(player) as url:
        agents = [agent(url, job, launch, node, tmp_path) for node in range(nodes)]
        try:
            codes = [each.wait(200) for each in agents]  # the machine may be busy
        finally:
            for each in agents:  # a keeper takes all with it
                each.kill()
                each.wait()
    logs = "\n".join(file.read_text() for file in tmp_path.glob("agent-*.log"))
    assert codes == [0] * nodes, logs
    # It had no such routes, and each node went on with its own files.
    assert all("/work/of/" in request for request in player.unknown), player.unknown
    assert [event["kind"] for event in player.events].count("bye") == nodes
    for rank, text in LOGS[job].items():
        assert player.logs[rank].decode().startswith(text), player.logs
    if job == "busy":
        channels = [body for _, target, body in player.requests if "/channels/" in target]
        assert [outputs(body) for body in channels[:2]] == [*CHANNELS]


def outputs(sent: bytes) -> tuple[bytes, bytes, bytes]:
    """What a program wrote to its outputs, and its exit code."""
    frames = take_frames(bytearray(sent))
    kinds = (Frame.OUT, Frame.ERR, Frame.EXIT)
    out, error, code = (b"".join(data for kind, data in frames if kind is one) for one in kinds)
    return out, error, code


def make_home(home: Path, exchanges: list[Exchange]) -> None:
    """What nodes find in the server's home, if they see it."""
    (home / "jobs").mkdir()
    for each in (each for each in exchanges if each.path.endswith("/hello")):
        if each.json["home"]:
            files = {each.json["home"]: ""}
            files |= {
                one["source"]: "words\n" for one in each.json["task"]["inputs"] if one.get("source")
            }
            for name, text in files.items():
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).write_text(text)


def agent(url: str, job: str, launch: int, node: int, folder: Path) -> subprocess.Popen[bytes]:
    nodes = folder / ("nodes" if job == "apart" else "home/nodes")
    own = {"URL": url, "TOKEN": "t", "LAUNCH": str(launch), "NODE": str(node), "CPUS": "1"}
    own |= {"DIR": str(nodes / f"{job}.{launch}" / str(node)), "ADDRESS": f"127.0.0.{2 + node}"}
    own |= {"PATIENCE": "30"}
    if job == "apart":
        own |= {"OWN_DISK": "1", "CACHE": str(folder / f"cache-{node}")}
    Path(own["DIR"]).mkdir(parents=True)
    env = {f"ALLRANKS_AGENT_{name}": value for name, value in own.items()}
    env |= {"PATH": os.environ["PATH"]}
    with open(folder / f"agent-{node}.log", "wb") as log:
        argv = [sys.executable, "-P", "-m", "allranks.agent"]
        return subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
