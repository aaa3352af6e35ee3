"""What there is to enter on this node, and the helpers that enter it.

The agent starts a helper and is done: the helper connects, starts the program, and ends what it
started. An attempt that ends kills it with everything else below the agent.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from allranks import folder_trees
from allranks.agent.processes import keeper, rank_messages
from allranks.agent.processes.ranks import SHELL
from allranks.errors import AllranksError

if TYPE_CHECKING:
    from allranks.agent.environments.node_container import NodeContainer
    from allranks.agent.processes.ranks import Started
    from allranks.agent.transport.link import ServerAddress
    from allranks.api.agents import ChannelOrder

_OURS = str(Path(__file__).absolute().parents[3])
# As for other helpers: the words say that it is one of ours. `-S`: it needs no installed package.
_ARGV = (sys.executable, "-P", "-S", "-m", "allranks.agent.channel.channel_process")
_DEBUGGER = str(Path(__file__).absolute().parents[1] / "inside" / "allranks_debug.py")
_NEEDED = ("PATH", "HOME", "ALLRANKS_GANG")
# The agent's Python, or the image's; else OpenSSH's server, from where it may be.
_SFTP = [
    SHELL,
    "-c",
    """\
for each in "$2" python3; do
    command -v "$each" >/dev/null && exec "$each" -I -S "$1"
done
for each in /usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh /usr/libexec; do
    [ -x "$each/sftp-server" ] && exec "$each/sftp-server"
done
echo 'allranks: there is no Python and no sftp-server for sftp and scp' >&2
exit 127""",
    "sftp",
    f"{_OURS}/allranks/agent/inside/allranks_sftp.py",
    sys.executable,
]
_PROMPT = r"\[\e[1m\]{who}\[\e[0m\]:\W\$ "


class Request(TypedDict):
    """What a helper gets on its standard input. ``end`` ends what a program leaves in a
    container, ``script`` is that program; ``hosts`` are where a port may listen. ``socket`` is that
    of a service, in place of a port."""

    url: str
    token: str
    fingerprint: str
    path: str
    note: str
    refusal: str
    argv: list[str]
    cwd: str
    env: dict[str, str]
    terminal: bool
    end: list[str]
    script: str
    port: int | None
    socket: str
    hosts: list[str]


class Address(TypedDict):
    """Where a service of this node listens: on a port, or on the socket of that path."""

    port: int
    socket: str


class ChannelOpener:
    """What there is to enter. The main thread sets the attributes, the thread that receives orders
    reads them. ``env`` is that of a node whose ranks have not started; ``started`` are those that
    have."""

    def __init__(self, server: ServerAddress, node: int, address: str, job: str) -> None:
        self._server, self._node, self._address, self._job = server, node, address, job
        self.cwd = Path("/")
        self.env: Callable[[], Mapping[str, str]] = dict
        self.container: NodeContainer | None = None
        self.waits_for_container = False
        self.started: Mapping[int, Started] = {}
        # Where the held processes of the attempt are.
        self.held: Path | None = None
        self.services: Mapping[str, Address] = {}
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def open(self, order: ChannelOrder) -> None:
        """Start a helper for that channel. Thread-safe."""
        self.start_helper(_ARGV, json.dumps(self._request(order)), subprocess.DEVNULL)

    def start_helper(
        self, argv: Sequence[str], request: str, stdout: int
    ) -> subprocess.Popen[bytes]:
        """Start a helper that `leave` ends. Thread-safe."""
        helper = subprocess.Popen(
            argv,
            env={"PYTHONPATH": _OURS, **{k: os.environ[k] for k in _NEEDED if k in os.environ}},
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with self._lock:
            self._helpers = [helper for helper in self._helpers if helper.poll() is None]
            self._helpers.append(helper)
            keeper.VISITORS.intersection_update({helper.pid for helper in self._helpers})
            keeper.VISITORS.add(helper.pid)
        assert helper.stdin is not None
        with helper.stdin as stdin:
            stdin.write(request.encode())
        return helper

    def outside(self) -> dict[str, str]:
        """The environment of a program that leads into the container: the agent's own."""
        return dict(os.environ)

    def leave(self) -> None:
        """The attempt is over: nothing is left to enter, and helpers end what they started."""
        self.container, self.started, self.held, self.services = None, {}, None, {}
        with self._lock:
            helpers, self._helpers = self._helpers, []
        for helper in helpers:
            helper.terminate()

    def _request(self, order: ChannelOrder) -> Request:
        number, rank, terminal = order["number"], order["rank"], order["terminal"]
        started = None if rank is None else self.started.get(rank)
        cwd, env = (self.cwd, dict(self.env())) if started is None else started
        who = f"{self._job} node {self._node}" if started is None else f"{self._job} rank {rank}"
        argv = order["command"] or [SHELL, "--norc", *["-i"] * terminal]
        argv = _SFTP if order["sftp"] else argv
        # A program that fails here is no rank that failed.
        env = {name: value for name, value in env.items() if name != "ALLRANKS_HOLD"}
        refusal = ""
        if (debugged := order.get("debug")) is not None:
            argv = self._debugger(rank, debugged)
            refusal = "" if argv else self._unheld(rank)
        if terminal:
            env |= {"TERM": env.get("TERM") or "xterm-256color", "PS1": _PROMPT.format(who=who)}
        request: Request = {
            **self._server._asdict(),  # type: ignore[typeddict-item]
            "path": f"/agent/v1/{self._node}/channels/{number}",
            "note": "" if started is not None else self._unstarted(rank),
            "refusal": refusal,
            "argv": argv,
            "cwd": str(cwd),
            "env": env,
            "terminal": terminal,
            "end": [],
            "script": "",
            "port": order["port"],
            "socket": "",
            "hosts": list(dict.fromkeys(("127.0.0.1", self._address, "::1"))),
        }
        if name := order["service"]:
            return self._to_service(request, name)
        if self.container is not None and order["port"] is None and not refusal:
            try:
                entering = self.container.entering(number, argv, cwd, env, terminal)
            except (AllranksError, OSError) as error:
                return {**request, "refusal": str(error)}
            request |= {**entering._asdict(), "env": self.outside(), "cwd": "/"}  # type: ignore[typeddict-item]
        return request

    def _debugger(self, rank: int | None, pid: int) -> list[str]:
        """The command of a debugger in a held process of the rank; empty if there is none."""
        for file in self.held.glob("*.json") if self.held is not None else ():
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                place = rank_messages.load(folder_trees.read_file(file))
                if place["rank"] == rank:
                    words = [str(self.held), str(rank), *([str(pid)] if pid else [])]
                    return [str(place["python"]), "-I", "-S", _DEBUGGER, *words]
        return []

    def _unheld(self, rank: int | None) -> str:
        return f"no Python of rank {rank} has failed and waits: look around with `job shell`"

    def _to_service(self, request: Request, name: str) -> Request:
        address = self.services.get(name)
        if address is None:
            return {**request, "refusal": f"{name} has not started on node {self._node}"}
        return {**request, "port": address["port"] or None, "socket": address["socket"]}

    def _unstarted(self, rank: int | None) -> str:
        what = "no rank runs" if rank is None else f"rank {rank} has not started"
        outside = ", outside its container" if self.waits_for_container else ""
        return f"{what}: this is node {self._node} as it is now{outside}"
