"""The driver of a gang's Ray job, run on Ray's head by Ray's own Python.

It is sent as a single file next to the agent's code. It imports Ray and nothing of allranks, and an
older Python must be able to parse it, to report that it is too old. The driver owns all actors and
the placement group, so Ray ends them when the driver ends for any reason.

The actors have no runtime environment; the driver passes them code and secrets. So Ray uses an idle
worker for each, instead of starting one for that environment, which takes seconds.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import zipfile
from typing import Any

# Variables of the driver: the gang as JSON, and its secrets. CODE is the agent's code, beside it.
GANG, SECRETS = "ALLRANKS_RAY_GANG", "ALLRANKS_RAY_SECRETS"
CODE = "agent.zip"
# The variable with the options that Ray's job was submitted with.
_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
# The driver's exit code for a failure that no retry can fix.
NEVER = 64
# Seconds: an agent's grace, and how long Ray's job supervisor waits for a driver to stop.
GRACE = 10
PATIENCE = GRACE + 5

_HANDED_ON = ("PATH", "HOME", "LANG", "USER", "XDG_RUNTIME_DIR", "DOCKER_HOST")
_BUILT_IN = ("CPU", "GPU", "memory")


class AllranksNode:
    """One node: an actor that runs an agent under a tether."""

    def __init__(self, gang: Any, node: int, secrets: dict[str, str]) -> None:
        self.gang, self.node, self.secrets = gang, node, secrets
        self.agent: Any = None
        self.stopped = threading.Event()

    def run(self, code: bytes) -> Any:
        """Run the agent. Return its exit code, None if unknown, and the last line it printed."""
        folder = os.path.join(self.gang["folder"], str(self.node))
        own = {}
        if self.gang["shared_home"] != "yes" and not os.path.exists(
            self.secrets.get("ALLRANKS_AGENT_HOME", "")
        ):
            root = self.gang["cache"] or f"/var/tmp/allranks-{os.geteuid()}"
            if why := self.refusal(root):
                host = os.uname().nodename
                return NEVER, f"node {self.node} on {host} does not see ALLRANKS_HOME, and {why}"
            folder = os.path.join(root, "nodes", self.gang["mark"], str(self.node))
            own = {"ALLRANKS_AGENT_OWN_DISK": "1", "ALLRANKS_AGENT_CACHE": root}
        try:
            os.makedirs(folder, exist_ok=True)
            unpacked = tempfile.mkdtemp(prefix="allranks-")
        except OSError as error:
            return NEVER, f"cannot create {error.filename}: {error.strerror}"
        zipfile.ZipFile(io.BytesIO(code)).extractall(unpacked)
        agent: Any = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "allranks.agent.processes.end_with_parent",
                *self.arguments(unpacked),
            ],
            cwd=folder,
            env={**self.environment(folder, unpacked), **own},
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

    def refusal(self, root: str) -> str:
        """Why the node cannot keep files in the folder ``root``; empty if it can. In /var/tmp
        others could have made it."""
        if self.secrets.get("ALLRANKS_AGENT_URL", "mailbox:").startswith("mailbox:"):
            return "no network leads to the server"
        try:
            os.makedirs(root, 0o700, exist_ok=True)
            status = os.lstat(root)
        except OSError as error:
            return f"cannot create {root}: {error.strerror}"
        ours = status.st_uid == os.geteuid() and stat.S_ISDIR(status.st_mode)
        if not (ours or self.gang["cache"]):
            return f"{root} belongs to another user: set another folder with --cache"
        return ""

    def stop(self) -> None:
        """Close the tether; `run` returns when everything has ended."""
        self.stopped.set()
        if self.agent is not None:
            self.agent.stdin.close()

    def arguments(self, unpacked: str) -> list[str]:
        first, *others = self.gang["argv"]
        return [str(GRACE), unpacked, sys.executable if first == "python" else first, *others]

    def environment(self, folder: str, unpacked: str) -> dict[str, str]:
        util: Any = importlib.import_module("ray.util")
        bundle = self.gang["each"]
        env = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
        env.update(self.secrets)
        env.update(
            PYTHONPATH=unpacked,
            ALLRANKS_GANG=self.gang["mark"],
            ALLRANKS_AGENT_NODE=str(self.node),
            ALLRANKS_AGENT_DIR=folder,
            ALLRANKS_AGENT_ADDRESS=util.get_node_ip_address(),
            ALLRANKS_AGENT_CPUS=str(max(1, int(bundle["CPU"]))),
            CUDA_VISIBLE_DEVICES=os.environ.get("CUDA_VISIBLE_DEVICES", "")
            if "GPU" in bundle
            else "",
        )
        return env


class Driver:
    """Starts and watches the gang's actors. ``code`` is the exit code of this process."""

    def __init__(self, gang: Any) -> None:
        self.gang = gang
        self.ray: Any = importlib.import_module("ray")
        self.running: dict[Any, int] = {}
        self.actors: list[Any] = []
        self.code = 0
        self.ending = False
        self.done = threading.Event()

    def start(self) -> None:
        """Create the placement group and all actors at once: Ray starts the actors when the group
        is placed. A task that waits for the group would take a worker and a second of its own."""
        bundle, name = self.gang["each"], self.gang["name"]
        groups: Any = importlib.import_module("ray.util.placement_group")
        strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        with open(CODE, "rb") as file:
            code = self.ray.put(file.read())
        secrets = json.loads(os.environ[SECRETS])
        bundles = [bundle] * self.gang["nodes"]
        group = groups.placement_group(bundles, strategy="STRICT_SPREAD", name=name)
        for node in range(self.gang["nodes"]):
            actor = self.ray.remote(AllranksNode).options(
                name=f"{name}.{node}",
                num_cpus=bundle["CPU"],
                num_gpus=bundle.get("GPU", 0),
                memory=bundle.get("memory"),
                resources={key: bundle[key] for key in bundle if key not in _BUILT_IN},
                max_restarts=0,
                max_concurrency=2,
                scheduling_strategy=strategies.PlacementGroupSchedulingStrategy(group, node),
            )
            self.actors.append(actor.remote(self.gang, node, secrets))
            self.running[self.actors[-1].run.remote(code)] = node

    def watch(self) -> None:
        """Wait until every agent has ended; if one is lost, the other nodes keep running."""
        try:
            while self.running:
                ended, _ = self.ray.wait(list(self.running))
                for reference in ended:
                    self.handle_end(self.running.pop(reference), reference)
        finally:
            self.done.set()

    def handle_end(self, node: int, result: Any) -> None:
        exceptions: Any = importlib.import_module("ray.exceptions")
        try:
            code, last_line = self.ray.get(result)
        except exceptions.RayActorError as error:
            self.report(1, f"node {node} is lost: {first_line(error)}")
        except exceptions.RayError as error:
            self.report(NEVER, f"node {node} could not be started: {first_line(error)}")
        else:
            if code != 0:
                how = "was killed" if code is None else f"exited with code {code}"
                message = f"the agent of node {node} {how}: {last_line or 'no output'}"
                self.report(code if code == NEVER else 1, message)

    def report(self, code: int, message: str) -> None:
        """Report the first failure of the gang; one that no retry can fix ends all agents."""
        if not self.ending:
            say(message)
            self.code = self.code or code
        if code == NEVER:
            self.stop_all()

    def stop_all(self) -> bool:
        """Stop every agent. Return whether any actor received the request."""
        self.ending = True
        requests = [actor.stop.remote() for actor in self.actors]
        return bool(self.ray.wait(requests, num_returns=len(requests), timeout=1.0)[0])


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def say(message: str) -> None:
    """Print a message that the server finds in the job's record at Ray."""
    print(f"allranks: {message}", flush=True)


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036  # it is Ray's Python, not ours
        version = ".".join(map(str, sys.version_info[:3]))
        say(f"Ray runs on Python {version}, but agents need 3.11 or newer")
        return NEVER
    try:
        driver = Driver(json.loads(os.environ[GANG]))
    except ImportError:
        say(f"{sys.executable} has no Ray: set the option `python` to the Python that Ray runs on")
        return NEVER
    config = json.loads(os.environ.get(_CONFIG, "{}"))
    os.environ[_CONFIG] = json.dumps({**config, "runtime_env": {}})
    driver.ray.init()
    # After `init`, which installs its own handler. Ray's `wait` handles signals only once a second,
    # so it runs in a thread, and this thread waits for an event.
    terminated = threading.Event()

    def terminate(*_: Any) -> None:
        terminated.set()
        driver.done.set()

    signal.signal(signal.SIGTERM, terminate)
    driver.start()
    watch = threading.Thread(target=driver.watch, daemon=True)
    watch.start()
    driver.done.wait()
    # Actors that are not placed yet do not answer, and have nothing to end.
    if terminated.is_set() and driver.stop_all():
        watch.join(PATIENCE - 2)
    return driver.code or (1 if driver.running else 0)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Ray ends the driver's actors when the connection closes; a clean exit takes a second longer.
    os._exit(code)
