"""The server of a release, whose agents call it through a proxy: `recorded_server.py URL`.

Runs in the environment of that release, and imports nothing of ours. It has an engine more than the
release: of nodes on this machine that share no disk with the server, or only a mailbox, because the
real ones need a cluster.
"""

import functools
import importlib.resources
import os
import signal
import subprocess
import sys

from allranks.engines import agent_bundle, registry
from allranks.engines.base import GangStatus, Handle, Kind
from allranks.http_client import MAILBOX
from allranks.server import __main__, app
from allranks.statuses import GangState, SharedHome

# Nodes with disks of their own, and those that no network connects to the server.
APART, MAILED = "apart", "mailed"
# Added to the folder of a mailbox: the proxy looks there, and passes on.
RELAYED = "relayed"


class Engine:
    """Starts each node as clusters do: one with a disk of its own fetches the agent."""

    pace = 0.0

    def __init__(self, name, home, options):
        self.name, self._home = name, home
        self._agents = {}

    def admit(self, gang): ...

    def check(self, options): ...

    def hosts(self, options):
        return []

    def render(self, gang):
        return " ".join(gang.argv)

    def submit(self, gang):
        agent_bundle.keep(self._home.engines)
        if gang.key not in self._agents:
            self._agents[gang.key] = [self._start(gang, node) for node in range(gang.nodes)]
        return Handle(gang.key, gang.key)

    def _start(self, gang, node):
        folder = self._home.root.parent / self.name / gang.key / str(node)
        folder.mkdir(parents=True)
        own = {"NODE": str(node), "DIR": str(folder / "node"), "CACHE": str(folder / "cache")}
        own |= {"ADDRESS": f"127.0.0.{2 + node}", "CPUS": "1"}
        env, argv = dict(gang.env), gang.argv
        if self.name == MAILED:
            (folder / "node").mkdir()
            box = env["ALLRANKS_AGENT_URL"] + RELAYED
            env["ALLRANKS_AGENT_URL"] = box
            for name in ("in", "out"):
                os.makedirs(f"{box.removeprefix(MAILBOX)}/{name}", exist_ok=True)
        else:
            own |= {"OWN_DISK": "1", "BUNDLE": agent_bundle.digest()}
            program = importlib.resources.files("allranks.engines").joinpath("agent_fetch.py")
            argv = [argv[0], "-I", "-c", program.read_text(), *argv[1:]]
            # It does not see the home.
            hides = 'mount -t tmpfs none "$0" && exec "$@"'
            argv = ["unshare", "--mount", "sh", "-c", hides, str(self._home.root), *argv]
        env |= {f"ALLRANKS_AGENT_{name}": value for name, value in own.items()}
        env |= {"PATH": os.environ["PATH"], "ALLRANKS_GANG": gang.key}
        with open(folder / "log", "wb") as log:
            return subprocess.Popen(
                argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def poll(self, handles):
        return {handle.key: self._status(handle.key) for handle in handles}

    def _status(self, key):
        codes = [agent.poll() for agent in self._agents.get(key, ())]
        ended = tuple(node for node, code in enumerate(codes) if code is not None)
        if len(ended) == len(codes):
            return GangStatus(GangState.GONE, "its agents have ended")
        return GangStatus(GangState.UP, lost=ended)

    def stop(self, handle):
        for agent in self._agents.pop(handle.key, ()):
            agent.kill()
            agent.wait()
        return []


def main(url):
    kinds = {name: registry.KINDS[name] for name in registry.KINDS}
    make = functools.partial
    kinds[APART] = Kind(
        APART,
        "",
        (),
        make(Engine, APART),
        end_all=lambda home: [],
        shared_home=lambda options: SharedHome.NO,
    )
    kinds[MAILED] = Kind(MAILED, "", (), make(Engine, MAILED))
    create_app = app.create_app
    app.create_app = lambda home, clocks, _, **more: create_app(home, clocks, url, kinds, **more)
    sys.argv[1:2] = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(__main__.main())


if __name__ == "__main__":
    main(sys.argv[1])
