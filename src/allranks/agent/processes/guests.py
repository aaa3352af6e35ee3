"""The agents of other jobs that run on this node, each a child of this agent with a keeper.

A guest is an agent like any other: it calls the server by itself, for a job of its own. This agent
only starts it, says whether it lives, and ends it: what the server orders is which guests are to be
there. So the nodes of a launch serve jobs that come later, on every engine.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import quote

from allranks.agent.processes import keeper
from allranks.agent.programs.allranks_warm.processes import below
from allranks.core.plan import Task

if TYPE_CHECKING:
    from allranks.agent.transport.identity import AgentIdentity
    from allranks.api.agents import GuestOrder

_OURS = str(Path(__file__).absolute().parents[3])
_ARGV = (sys.executable, "-P", "-m", "allranks.agent")
# The file with what a guest takes over from its host, and the name that its container gets.
_PLACE, NAME = "ALLRANKS_AGENT_PLACE", "ALLRANKS_AGENT_GUEST"
# Seconds to end one that is killed.
_END = 3.0


class HostPlace(TypedDict):
    """What a guest finds on its node: the host's working folder and record, and the environment of
    its ranks where the guest asks for none of its own."""

    work: str
    record: str
    base: dict[str, str]
    variables: dict[str, str]


class Guests:
    """The guests of this node. The main thread opens and closes it, the thread that receives orders
    calls the rest."""

    def __init__(self, where: AgentIdentity) -> None:
        self._where = where
        self._place: HostPlace | None = None
        self._running: dict[str, subprocess.Popen[bytes] | None] = {}
        # Whether the server was heard to order guests while none is let in.
        self._has_refused = False
        self._lock = threading.Lock()

    def open(self, work: Path, task: Task) -> None:
        """Let guests in: the node is prepared. Writes nothing before the first one comes."""
        place: HostPlace = {
            "work": str(work),
            "record": task.record,
            "base": dict(task.base),
            "variables": dict(task.variables),
        }
        with self._lock:
            self._place = place
            self._has_refused = False

    def report(self) -> str | None:
        """Each guest that is here, or has ended here while it was expected: `KEY:1,KEY:0`. None:
        none is let in, and orders of guests, which the server would repeat at once, are of no use.
        """
        with self._lock:
            if self._has_refused:
                return None
            running = [(key, _lives(child)) for key, child in self._running.items()]
        return ",".join(f"{quote(key)}:{lives:d}" for key, lives in running)

    def reconcile(self, orders: Sequence[GuestOrder]) -> None:
        """Start the guests that are not here, and end those that are not ordered any more."""
        with self._lock:
            keys = {order["key"] for order in orders}
            for key in [key for key in self._running if key not in keys]:
                _kill(self._running.pop(key))
            for order in orders:
                if order["key"] in self._running:
                    continue
                if self._place is None:
                    self._has_refused = True
                else:
                    self._running[order["key"]] = self._start(order, self._place)

    def close(self, seconds: float) -> None:
        """Ask all guests to end, wait so long for them, and kill those that are left."""
        with self._lock:
            self._place = None
            children = [child for child in self._running.values() if child is not None]
        for child in children:
            if _lives(child):
                child.send_signal(signal.SIGTERM)  # as of an engine: the keeper passes it on
        until = time.monotonic() + seconds
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, until - time.monotonic()))
            _kill(child)
        with self._lock:  # until now the server hears that they live
            self._running.clear()
            self._has_refused = False

    def _start(self, order: GuestOrder, place: HostPlace) -> subprocess.Popen[bytes] | None:
        """None: it cannot be started, which is as if it had ended."""
        key, node = order["key"], self._where.node
        folder = self._where.folder.parent.parent / key / str(node)
        env = {
            **os.environ,
            **order["env"],
            "PYTHONPATH": os.pathsep.join(filter(None, (_OURS, os.environ.get("PYTHONPATH")))),
            "ALLRANKS_AGENT_NODE": str(node),
            "ALLRANKS_AGENT_DIR": str(folder),
            "ALLRANKS_AGENT_ADDRESS": self._where.address,
            "ALLRANKS_AGENT_CPUS": str(self._where.cpus),
            _PLACE: str(folder / "place.json"),
            NAME: key,
        }
        if gpus := os.environ.get("CUDA_VISIBLE_DEVICES"):
            env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus.split(",")[: order["gpus"]])
        try:
            folder.mkdir(parents=True, exist_ok=True)
            place_file = os.open(env[_PLACE], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(place_file, "w") as file:
                json.dump(place, file)
            log = os.open(folder / "agent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                child = subprocess.Popen(
                    _ARGV,
                    cwd=folder,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    process_group=0,
                )
            finally:
                os.close(log)
        except OSError:
            return None
        # It ends by itself, or is ended here: not with the host's ranks, whose end it survives for
        # its grace.
        keeper.SPARED.add(child.pid)
        return child


def _lives(child: subprocess.Popen[bytes] | None) -> bool:
    return child is not None and child.poll() is None


def _kill(child: subprocess.Popen[bytes] | None) -> None:
    """Kill what is below the keeper of a guest; the keeper then ends."""
    until = time.monotonic() + _END
    while child is not None and _lives(child) and time.monotonic() < until:
        for pid in below(child.pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.01)
    if child is not None and _lives(child):
        child.kill()  # a keeper that somebody has stopped


def with_host_place(task: Task) -> Task:
    """The task of a guest with what its host has: the working folder unless it has code of its own,
    and the environment unless it names one; of an image each makes its own. Other tasks stay as
    they are."""
    place = _host_place(task)
    if place is None:
        return task
    if task.code is None and task.in_place is None:
        task = task._replace(in_place=place["work"])
    if task.inherits and task.container is None:
        variables = {**place["variables"], **task.variables}
        task = task._replace(base=place["base"], variables=variables)
    return task


def host_record(task: Task) -> str:
    """The record of a guest's host on this node; empty for other tasks."""
    place = _host_place(task)
    return "" if place is None else place["record"]


def _host_place(task: Task) -> HostPlace | None:
    path = os.environ.get(_PLACE)
    return json.loads(Path(path).read_text()) if task.inside and path is not None else None
