"""Data from and to elsewhere, on a node: what the agent has the mover do, and tells of it."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from allranks.agent.data.mover_process import (
    Mover,
    Progress,
    brought,
    provided,
    streamable,
    streamed,
)
from allranks.agent.environments.uv import Say, Wait
from allranks.errors import AllranksError, from_body
from allranks.plan.data import addresses
from allranks.plan.data.addresses import CERTIFICATES, IDENTITY, Account
from allranks.plan.plan import InputTask, OutputTask, Recipe, Task

# What opens stores; of this the mover's interpreter has one.
CLIENT = "obstore>=0.10,<1"
# Variables by which people say who they are to a store, and which certificates they trust.
_WHO = re.compile(rf"({IDENTITY.pattern}|({'|'.join(CERTIFICATES)}|HOME|.*_proxy)$)", re.IGNORECASE)

# What opens a datastore; asks the server, and raises AllranksError.
Accounts = Callable[[str], Account]
# Tells a fact of the record: a sentence, and numbers.
Tell = Callable[[str, Mapping[str, Any]], None]


class Transfers:
    """What moves for one attempt of a task on one node; holds what it was given until closed."""

    def __init__(
        self, task: Task, node: int, folder: Path, accounts: Accounts, wait: Wait, say: Say
    ) -> None:
        self._task, self._node, self._folder = task, node, folder
        self._accounts, self._wait, self._say = accounts, wait, say
        self._held: list[int] = []
        # What was read of streams: their mover ends with the ranks, without a last word.
        self._read = folder / "read.json"
        self._live: Mover | None = None
        self._streams: Mover | None = None
        self._places: dict[str, Path] = {}
        self._known: dict[str, Account] = {}

    def close(self) -> None:
        """Let go of everything; end what still runs."""
        for mover in (self._live, self._streams):
            if mover is not None:
                mover.kill()
        for each in self._held:
            os.close(each)
        self._held.clear()

    def tell_of_streams(self, tell: Tell) -> None:
        """What was read of them, and what went wrong."""
        if self._streams is None:
            return
        # On a full disk it may be half there.
        with contextlib.suppress(OSError, ValueError):
            for told in json.loads(self._read.read_text() or "[]"):
                tell(streamed(told), {"data": told})

    # ------------------------------------------------------------ inputs

    def provide(self, tell: Tell) -> dict[str, str]:
        """Have the inputs that lie elsewhere there; their paths by name, or URLs of streams.

        Raises AllranksError with which of them cannot be had, and what ``wait`` raises.
        """
        return self._cached(tell) | self._streamed(tell)

    def _cached(self, tell: Tell) -> dict[str, str]:
        """Those that go through the cache."""
        wanted = [each for each in self._task.inputs if each.cached]
        if not wanted:
            return {}
        found: dict[str, str] = {}
        request = {
            "cache": self._task.cache,
            "limit": self._task.cache_limit,
            "inputs": [self._wanted(each) for each in wanted],
        }
        progress = Progress(self._say)
        began = time.monotonic()
        if there := self._there(request):
            for told in there:
                found[told["provided"]] = told["path"]
                tell(provided(told, 0.0), {"data": told})
            return found
        with self._mover(request) as mover:
            for told in mover.lines():
                if "error" in told:
                    raise from_body(told)
                if "done" in told and "input" not in told:
                    break
                if "provided" in told:
                    found[told["provided"]] = told["path"]
                    self._hold(Path(told["tree"]))
                    tell(provided(told, time.monotonic() - began), {"data": told})
                    began = time.monotonic()
                else:
                    progress.told(told)
        return found

    def _streamed(self, tell: Tell) -> dict[str, str]:
        """Those that a mover serves, until closed."""
        wanted = [each for each in self._task.inputs if each.streamed]
        found: dict[str, str] = {}
        if not wanted:
            return found
        several = [self._wanted(each) for each in wanted]
        mover = self._mover({"streams": several, "read": str(self._read)})
        try:
            for told in mover.lines():
                if "error" in told:
                    raise from_body(told)
                if "done" in told:
                    break
                found[told["provided"]] = told["path"]
                tell(streamable(told), {"data": told})
        except BaseException:
            mover.kill()
            raise
        self._streams = mover
        return found

    def _wanted(self, each: InputTask) -> dict[str, Any]:
        share = [self._node, self._task.nodes] if each.sharded else None
        copy = str(self._folder / "inputs" / each.name) if each.mode == "download" else ""
        return {
            "name": each.name,
            "uri": each.uri,
            "source": each.source or "",
            "account": None if not each.uri else self._account(each.uri, each.datastore),
            "datastore": each.datastore,
            "share": share,
            "unpack": each.unpack,
            "copy": copy,
        }

    def _there(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What a mover would say, if nothing has to be moved: without the start of one. Empty: ask
        one. It would find other settings around it than we have, or this interpreter opens no
        stores."""
        named = all(each["source"] or each["datastore"] for each in request["inputs"])
        others = {n: v for n, v in self._environ().items() if _WHO.match(n) and n != "HOME"}
        # Of these the agent itself has no use: it may have them for the asking.
        os.environ.update({n: others.pop(n) for n in CERTIFICATES if n in others})
        same = all(os.environ.get(name) == value for name, value in others.items())
        same = same and not any(IDENTITY.match(name) for name in os.environ)
        if not (named and same) or importlib.util.find_spec("obstore") is None:
            return []
        found: list[dict[str, Any]] = []
        ready, done = os.pipe()

        def look() -> None:
            from allranks.agent.data.inputs import there  # lazy: opens stores

            try:
                found.extend(there(request))
            except Exception:
                found.clear()  # whatever it is, the mover will say it
            finally:
                os.close(done)

        # A store may take its time, and orders are not to wait for it.
        threading.Thread(target=look, daemon=True).start()
        try:
            self._wait(ready)
        finally:
            os.close(ready)
        for told in found:
            self._hold(Path(told["tree"]))
        return found if all(Path(told["path"]).exists() for told in found) else []

    def _hold(self, tree: Path) -> None:
        """Keep it from being let go; the mover does until it ends."""
        file = os.open(tree.with_suffix(".use"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(file, fcntl.LOCK_SH)
        self._held.append(file)

    # ------------------------------------------------------------ outputs

    def begin(self) -> dict[str, str]:
        """The node's own places for what is to be brought elsewhere, by name; from now on what is
        whole there is, where the output says so.

        Raises AllranksError for a store that does not let in whom it is asked for, and what
        ``wait`` raises.
        """
        wanted = [each for each in self._task.outputs if each.brought]
        self._places = {each.name: self._place(each) for each in wanted}
        if wanted:
            self._live = self._mover(self._to_bring(wanted, live=True))
            for told in self._live.lines():
                if "error" in told:
                    raise from_body(told)
                break
        return {name: str(path) for name, path in self._places.items()}

    def finish(self, tell: Tell, wait: Wait, seconds: float | None = None) -> None:
        """Bring what has not been brought. Raises AllranksError when not all of it could be, or
        not within ``seconds``, and what ``wait`` raises."""
        wanted = [each for each in self._task.outputs if each.name in self._places]
        if not wanted:
            return
        if self._live is not None:
            self._live.kill()
            self._live = None
        progress, began = Progress(self._say), time.monotonic()
        with self._mover(self._to_bring(wanted, live=False), wait) as mover:
            for told in mover.lines(seconds):
                if "error" in told:
                    raise from_body(told)
                if "brought" in told:
                    del self._places[told["brought"]]
                    tell(brought(told, time.monotonic() - began), {"data": told})
                elif "done" in told and "output" not in told:
                    return
                else:
                    progress.told(told)

    def keep(self, tell: Tell) -> str:
        """Put what was not brought into the job's record; where that is."""
        goal = Path(self._task.record, "unbrought", f"node-{self._node}")
        for name in self._places:
            folder = self._folder / "outputs" / name
            if any(folder.iterdir()):
                goal.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(goal / name, ignore_errors=True)  # of an attempt before
                shutil.move(folder, goal / name)
                tell(f"{name}: what may not have been brought is at {goal / name}", {})
        return str(goal)

    def _place(self, output: OutputTask) -> Path:
        folder = self._folder / "outputs" / output.name
        folder.mkdir(parents=True, exist_ok=True)
        if output.is_file:
            return folder / (addresses.address(output.uri).key.rpartition("/")[2] or output.name)
        return folder

    def _to_bring(self, outputs: Sequence[OutputTask], live: bool) -> dict[str, Any]:
        several = [
            {
                "name": each.name,
                "uri": each.uri,
                "account": self._account(each.uri, each.datastore),
                "datastore": each.datastore,
                "folder": str(self._folder / "outputs" / each.name),
                "only": self._places[each.name].name if each.is_file else "",
                "live": each.mode == "rw_mount",
            }
            for each in outputs
        ]
        # Of this attempt: what another has brought is not ours to take away again.
        manifests = Path(self._task.record, "manifests", self._folder.name)
        about = {"manifests": str(manifests), "node": self._node, "live": live}
        return {"outputs": several, **about}

    # ------------------------------------------------------------ the mover

    def _account(self, uri: str, datastore: str) -> dict[str, Any]:
        found = self._asked(datastore) if datastore else Account(addresses.address(uri).store)
        return {"store": found.store._asdict(), "credentials": dict(found.credentials)}

    def _asked(self, datastore: str) -> Account:
        """Anew each time: what opens it may have expired. What we were told before is better than
        nothing, should it be forgotten meanwhile."""
        try:
            self._known[datastore] = self._accounts(datastore)
        except AllranksError:
            if datastore not in self._known:
                raise
        return self._known[datastore]

    def _mover(self, request: Mapping[str, Any], wait: Wait | None = None) -> Mover:
        argv = [self._python(), "-P", "-m", "allranks.agent.data.mover"]
        return Mover(argv, self._environ(), self._folder / "mover.log", request, wait or self._wait)

    def _environ(self) -> dict[str, str]:
        task = self._task
        found = dict(os.environ)
        for several in (task.base, task.tools, task.variables):
            found |= {name: value for name, value in several.items() if _WHO.match(name)}
        # Where this agent's own code is.
        found["PYTHONPATH"] = str(Path(__file__).parents[3])
        return found

    def _python(self) -> str:
        """An interpreter that can open stores: the agent's own, or one that is made for it."""
        if importlib.util.find_spec("obstore") is not None:
            return sys.executable
        from allranks.agent.environments.uv import program  # lazy: as above

        # lazy: few agents need it
        from allranks.agent.environments.virtual_environments import EnvironmentCache

        task = self._task
        environ = {**task.base, **task.tools}
        shelf = EnvironmentCache(
            Path(task.environments), program(task.uv, environ.get("PATH")), environ
        )
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        made = shelf.provide(Recipe(version, (CLIENT,)), self._wait, self._say)
        return str(made.folder / "bin" / "python")
