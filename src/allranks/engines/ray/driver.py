"""What a gang is to Ray: a job whose driver is this file, run on Ray's head by Ray's own Python.

It is sent as a file of its own, next to the part of allranks that agents need: it imports Ray and
nothing of ours, and has to be read by a Python too old for us, to say so. All actors and the
placement group are the driver's and not detached: Ray ends them with it, however it dies.

The actors have no runtime environment, but are handed code and secrets by the driver: so they get
a worker that waits for work already, where one for that environment takes seconds to start.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile
from typing import Any

# In the environment of the driver: the gang as JSON, and its secrets. Beside it: what agents are.
GANG, SECRETS = "ALLRANKS_RAY_GANG", "ALLRANKS_RAY_SECRETS"
CODE = "agent.zip"
# How Ray tells a driver what it was submitted with.
_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
# The driver's exit code for what will never do, however often it is tried.
NEVER = 64
# Ray's job supervisor waits so many seconds for a driver that is to stop; less is an agent's grace.
GRACE = 10
PATIENCE = GRACE + 5

_HANDED_ON = ("PATH", "HOME", "LANG", "USER", "XDG_RUNTIME_DIR", "DOCKER_HOST")
_BUILT_IN = ("CPU", "GPU", "memory")


class AllranksNode:
    """One node: an actor that holds an agent at the end of a tether."""

    def __init__(self, gang: Any, node: int, secrets: dict[str, str]) -> None:
        self.gang, self.node, self.secrets = gang, node, secrets
        self.agent: Any = None
        self.stopped = threading.Event()

    def run(self, code: bytes) -> Any:
        """Run the agent; its exit code, None if nobody knows, and the last line it said."""
        folder = os.path.join(self.gang["folder"], str(self.node))
        try:
            os.makedirs(folder, exist_ok=True)
            unpacked = tempfile.mkdtemp(prefix="allranks-")
        except OSError as error:
            return NEVER, f"{error.filename} cannot be made: {error.strerror}"
        zipfile.ZipFile(io.BytesIO(code)).extractall(unpacked)
        agent: Any = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "allranks.agent.processes.end_with_parent",
                *self.words(unpacked),
            ],
            cwd=folder,
            env=self.environment(folder, unpacked),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.agent = agent
        if self.stopped.is_set():
            agent.stdin.close()
        ended, last = None, ""
        for line in agent.stdout:
            if line.startswith(b"\0"):
                ended = int(line[1:])
            elif line.strip():
                last = line.decode(errors="replace").strip()
                print(last, flush=True)
        agent.wait()
        return ended, last

    def stop(self) -> None:
        """Let go of the tether: `run` returns when all has ended."""
        self.stopped.set()
        if self.agent is not None:
            self.agent.stdin.close()

    def words(self, unpacked: str) -> list[str]:
        first, *others = self.gang["argv"]
        return [str(GRACE), unpacked, sys.executable if first == "python" else first, *others]

    def environment(self, folder: str, unpacked: str) -> dict[str, str]:
        util: Any = importlib.import_module("ray.util")
        each = self.gang["each"]
        env = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
        env.update(self.secrets)
        env.update(
            PYTHONPATH=unpacked,
            ALLRANKS_GANG=self.gang["mark"],
            ALLRANKS_AGENT_NODE=str(self.node),
            ALLRANKS_AGENT_DIR=folder,
            ALLRANKS_AGENT_ADDRESS=util.get_node_ip_address(),
            ALLRANKS_AGENT_CPUS=str(max(1, int(each["CPU"]))),
            CUDA_VISIBLE_DEVICES=os.environ.get("CUDA_VISIBLE_DEVICES", "")
            if "GPU" in each
            else "",
        )
        return env


class Driver:
    """The gang while it lives. ``code`` is what this process will end with."""

    def __init__(self, gang: Any) -> None:
        self.gang = gang
        self.ray: Any = importlib.import_module("ray")
        self.running: dict[Any, int] = {}
        self.actors: list[Any] = []
        self.code = 0
        self.ending = False
        self.done = threading.Event()

    def start(self) -> None:
        """Ask for all of it at once: Ray starts the actors when their group has its place, and a
        task that waits for the group would itself take a worker, and the second that it starts."""
        each, name = self.gang["each"], self.gang["name"]
        groups: Any = importlib.import_module("ray.util.placement_group")
        strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        with open(CODE, "rb") as file:
            code = self.ray.put(file.read())
        secrets = json.loads(os.environ[SECRETS])
        bundles = [each] * self.gang["nodes"]
        group = groups.placement_group(bundles, strategy="STRICT_SPREAD", name=name)
        for node in range(self.gang["nodes"]):
            actor = self.ray.remote(AllranksNode).options(
                name=f"{name}.{node}",
                num_cpus=each["CPU"],
                num_gpus=each.get("GPU", 0),
                memory=each.get("memory"),
                resources={key: each[key] for key in each if key not in _BUILT_IN},
                max_restarts=0,
                max_concurrency=2,
                scheduling_strategy=strategies.PlacementGroupSchedulingStrategy(group, node),
            )
            self.actors.append(actor.remote(self.gang, node, secrets))
            self.running[self.actors[-1].run.remote(code)] = node

    def watch(self) -> None:
        """Until every agent has ended; those of other nodes go on when one is lost."""
        try:
            while self.running:
                ended, _ = self.ray.wait(list(self.running))
                for each in ended:
                    self.take_in(self.running.pop(each), each)
        finally:
            self.done.set()

    def take_in(self, node: int, ended: Any) -> None:
        exceptions: Any = importlib.import_module("ray.exceptions")
        try:
            code, said = self.ray.get(ended)
        except exceptions.RayActorError as error:
            self.report(1, f"node {node} is lost: {first_line(error)}")
        except exceptions.RayError as error:
            self.report(NEVER, f"node {node} could not be started: {first_line(error)}")
        else:
            if code != 0:
                ended = "was killed" if code is None else f"ended with code {code}"
                about = f"the agent of node {node} {ended}: {said or 'it said nothing'}"
                self.report(code if code == NEVER else 1, about)

    def report(self, code: int, sentence: str) -> None:
        """The first failure of a gang is its cause; one that will never do ends all of it."""
        if not self.ending:
            say(sentence)
            self.code = self.code or code
        if code == NEVER:
            self.let_go()

    def let_go(self) -> bool:
        """Have every agent end; whether there is one that was told."""
        self.ending = True
        asked = [actor.stop.remote() for actor in self.actors]
        return bool(self.ray.wait(asked, num_returns=len(asked), timeout=1.0)[0])


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def say(sentence: str) -> None:
    """What the server finds in the job's message."""
    print(f"allranks: {sentence}", flush=True)


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036  # it is Ray's Python, not ours
        version = ".".join(map(str, sys.version_info[:3]))
        say(f"Ray runs on Python {version} there, and agents need 3.11 or newer")
        return NEVER
    try:
        driver = Driver(json.loads(os.environ[GANG]))
    except ImportError:
        say(f"{sys.executable} has no Ray: name the Python that Ray runs on with `python`")
        return NEVER
    config = json.loads(os.environ.get(_CONFIG, "{}"))
    os.environ[_CONFIG] = json.dumps({**config, "runtime_env": {}})
    driver.ray.init()
    # After `init`, which has a handler of its own. A wait of Ray's hears signals once a second:
    # it stands in a thread, and this one waits for an event.
    told = threading.Event()

    def hear(*_: Any) -> None:
        told.set()
        driver.done.set()

    signal.signal(signal.SIGTERM, hear)
    driver.start()
    watch = threading.Thread(target=driver.watch, daemon=True)
    watch.start()
    driver.done.wait()
    # Actors that still wait for their place hear nothing, and have nothing to end.
    if told.is_set() and driver.let_go():
        watch.join(PATIENCE - 2)
    return driver.code or (1 if driver.running else 0)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Ray ends what is the driver's when the connection closes; its farewell takes a second more.
    os._exit(code)
