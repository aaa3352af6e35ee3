"""Inputs and outputs of an attempt on one node: run the movers and report their progress."""

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

from allranks import folder_trees
from allranks.agent.data.mover_process import (
    Mover,
    Progress,
    provided_text,
    stream_read_text,
    stream_ready_text,
    uploaded_text,
)
from allranks.agent.environments.uv import Say, Wait
from allranks.core.data import addresses
from allranks.core.data.addresses import CERTIFICATES, IDENTITY, Account
from allranks.core.environments import container
from allranks.core.plan import InputTask, OutputTask, Recipe, Task
from allranks.errors import AllranksError

# The library that opens stores; the mover's interpreter needs it.
_CLIENT = "obstore>=0.10,<1"
# Variables with credentials for stores, CA certificates and proxies.
_ACCESS_VARIABLES = re.compile(
    rf"({IDENTITY.pattern}|({'|'.join(CERTIFICATES)}|HOME|.*_proxy)$)", re.IGNORECASE
)

# Requests a datastore's account from the server. Raises AllranksError.
Accounts = Callable[[str], Account]
# Adds a note to the record: a sentence, and numbers.
Tell = Callable[[str, Mapping[str, Any]], None]


class Transfers:
    """The transfers of one attempt on one node. Inputs stay available until closed."""

    def __init__(
        self, task: Task, node: int, folder: Path, accounts: Accounts, wait: Wait, say: Say
    ) -> None:
        self._task, self._node, self._folder = task, node, folder
        self._accounts, self._wait, self._say = accounts, wait, say
        self._locks: list[int] = []
        # Written while streams are read, because their mover is killed with the ranks.
        self._stream_statistics = folder / "read.json"
        self._live: Mover | None = None
        self._streams: Mover | None = None
        # Local paths of outputs that are not uploaded yet.
        self._output_paths: dict[str, Path] = {}
        self._account_cache: dict[str, Account] = {}

    def close(self) -> None:
        """Kill running movers and release the inputs."""
        for mover in (self._live, self._streams):
            if mover is not None:
                mover.kill()
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()

    def report_streams(self, tell: Tell) -> None:
        """Report how much ranks read of each stream, and the first failure."""
        if self._streams is None:
            return
        # A full disk may have truncated the file.
        with contextlib.suppress(OSError, ValueError):
            for stream in json.loads(folder_trees.read_file(self._stream_statistics) or "[]"):
                tell(stream_read_text(stream), {"data": stream})

    # ------------------------------------------------------------ inputs

    def provide(self, tell: Tell) -> dict[str, str]:
        """Provide all inputs. Returns paths by input name, or URLs of streams.

        Raises AllranksError for the first input that fails, and what ``wait`` raises.
        """
        return self._provide_cached(tell) | self._provide_streams(tell)

    def _provide_cached(self, tell: Tell) -> dict[str, str]:
        inputs = [self._request(item) for item in self._task.inputs if item.cached]
        if not inputs:
            return {}
        paths: dict[str, str] = {}
        request = {
            "cache": self._task.cache,
            "limit": self._task.cache_limit,
            "inputs": inputs,
        }
        progress = Progress(self._say)
        began = time.monotonic()
        if messages := self._all_cached(request):
            for message in messages:
                paths[message["provided"]] = message["path"]
                tell(provided_text(message, 0.0), {"data": message})
            return paths
        with self._mover(request) as mover:
            for message in mover.messages():
                if "done" in message and "input" not in message:
                    break
                if "provided" in message:
                    paths[message["provided"]] = message["path"]
                    self._hold(Path(message["tree"]))
                    tell(provided_text(message, time.monotonic() - began), {"data": message})
                    began = time.monotonic()
                else:
                    progress.report(message)
        return paths

    def _provide_streams(self, tell: Tell) -> dict[str, str]:
        inputs = [self._request(item) for item in self._task.inputs if item.streamed]
        paths: dict[str, str] = {}
        if not inputs:
            return paths
        mover = self._mover({"streams": inputs, "read": str(self._stream_statistics)})
        try:
            for message in mover.messages():
                if "done" in message:
                    break
                paths[message["provided"]] = message["path"]
                tell(stream_ready_text(message), {"data": message})
        except BaseException:
            mover.kill()
            raise
        self._streams = mover
        return paths

    def _request(self, item: InputTask) -> dict[str, Any]:
        share = [self._node, self._task.nodes] if item.sharded else None
        copy = str(self._folder / "inputs" / item.name) if item.mode == "download" else ""
        return {
            "name": item.name,
            "uri": item.uri,
            "source": item.source or "",
            "account": self._account(item.uri, item.datastore) if item.uri else None,
            "datastore": item.datastore,
            "share": share,
            "unpack": item.unpack,
            "copy": copy,
        }

    def _all_cached(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """A mover's messages if the cache has all inputs, without starting one. Empty if a mover
        has to run: something is missing, obstore is, or a mover would see other credentials."""
        has_account = all(item["source"] or item["datastore"] for item in request["inputs"])
        variables = {
            name: value
            for name, value in self._environ().items()
            if _ACCESS_VARIABLES.match(name) and name != "HOME"
        }
        # The agent itself does not use these, so it can take them over.
        os.environ.update({n: variables.pop(n) for n in CERTIFICATES if n in variables})
        same = all(os.environ.get(name) == value for name, value in variables.items())
        same = same and not any(IDENTITY.match(name) for name in os.environ)
        if not (has_account and same) or importlib.util.find_spec("obstore") is None:
            return []
        messages: list[dict[str, Any]] = []
        ready, done = os.pipe()

        def check() -> None:
            from allranks.agent.data.inputs import all_cached  # lazy: opens stores

            try:
                messages.extend(all_cached(request))
            except Exception:
                messages.clear()  # the mover will report the error
            finally:
                os.close(done)

        # A slow store must not delay orders.
        threading.Thread(target=check, daemon=True).start()
        try:
            self._wait(ready)
        finally:
            os.close(ready)
        for message in messages:
            self._hold(Path(message["tree"]))
        return messages if all(Path(message["path"]).exists() for message in messages) else []

    def _hold(self, tree: Path) -> None:
        """Keep a cache entry from being evicted after the mover has ended."""
        file = os.open(tree.with_suffix(".use"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(file, fcntl.LOCK_SH)
        self._locks.append(file)

    # ------------------------------------------------------------ outputs

    def begin(self) -> dict[str, str]:
        """Create the local folders of outputs that are uploaded, and start uploading the live ones.
        Returns local paths by output name.

        Raises AllranksError if a store refuses access, and what ``wait`` raises.
        """
        outputs = [output for output in self._task.outputs if output.brought]
        self._output_paths = {output.name: self._create_path(output) for output in outputs}
        if outputs:
            self._live = self._mover(self._upload_request(outputs, live=True))
            next(self._live.messages())
        return {name: str(path) for name, path in self._output_paths.items()}

    def finish(self, tell: Tell, wait: Wait, seconds: float | None = None) -> None:
        """Upload all remaining files. Raises AllranksError if that fails or takes longer than
        ``seconds``, and what ``wait`` raises."""
        outputs = [output for output in self._task.outputs if output.name in self._output_paths]
        if not outputs:
            return
        if self._live is not None:
            self._live.kill()
            self._live = None
        progress = Progress(self._say)
        with self._mover(self._upload_request(outputs, live=False), wait) as mover:
            for message in mover.messages(seconds):
                if "brought" in message:
                    del self._output_paths[message["brought"]]
                    tell(uploaded_text(message), {"data": message})
                elif "done" in message and "output" not in message:
                    return
                else:
                    progress.report(message)

    def keep(self, tell: Tell) -> str:
        """Move outputs that were not uploaded to the job's record. Returns the folder."""
        record, path = self._task.record, f"unbrought/node-{self._node}"
        target = Path(record, path)
        for name in self._output_paths:
            folder = self._folder / "outputs" / name
            if folder.is_dir() and any(folder.iterdir()):
                folder_trees.make(record)
                above, _ = folder_trees.open_parent(record, f"{path}/{name}", make=True)
                try:
                    into = f"/proc/self/fd/{above}/{name}"
                    # Left by an earlier attempt, or a link of the job.
                    folder_trees.remove(into, ignore_errors=True)
                    with contextlib.suppress(OSError):
                        os.unlink(into)
                    shutil.move(folder, into)
                finally:
                    os.close(above)
                tell(f"{name}: files that may not have been uploaded are at {target / name}", {})
        return str(target)

    def _create_path(self, output: OutputTask) -> Path:
        folder = self._folder / "outputs" / output.name
        folder.mkdir(parents=True, exist_ok=True)
        if output.is_file:
            return folder / (addresses.address(output.uri).key.rpartition("/")[2] or output.name)
        return folder

    def _upload_request(self, outputs: Sequence[OutputTask], live: bool) -> dict[str, Any]:
        requests = [
            {
                "name": output.name,
                "uri": output.uri,
                "account": self._account(output.uri, output.datastore),
                "datastore": output.datastore,
                "folder": str(self._folder / "outputs" / output.name),
                "only": self._output_paths[output.name].name if output.is_file else "",
                "live": output.mode == "rw_mount",
                "roots": container.visible(self._task, str(self._folder)),
            }
            for output in outputs
        ]
        # One folder for each attempt: an attempt must not delete what another has uploaded.
        manifests = str(Path(self._task.record, "manifests", self._folder.name))
        return {"outputs": requests, "manifests": manifests, "node": self._node, "live": live}

    # ------------------------------------------------------------ the mover

    def _account(self, uri: str, datastore: str) -> dict[str, Any]:
        if datastore:
            account = self._datastore_account(datastore)
        else:
            account = Account(addresses.address(uri).store)
        return {"store": account.store._asdict(), "credentials": dict(account.credentials)}

    def _datastore_account(self, datastore: str) -> Account:
        """Request the account each time, because credentials expire; fall back to the last answer,
        because the datastore may have been deleted meanwhile."""
        try:
            self._account_cache[datastore] = self._accounts(datastore)
        except AllranksError:
            if datastore not in self._account_cache:
                raise
        return self._account_cache[datastore]

    def _mover(self, request: Mapping[str, Any], wait: Wait | None = None) -> Mover:
        argv = [self._python(), "-P", "-m", "allranks.agent.data.mover"]
        return Mover(argv, self._environ(), self._folder / "mover.log", request, wait or self._wait)

    def _environ(self) -> dict[str, str]:
        environ = dict(os.environ)
        for variables in (self._task.base, self._task.tools, self._task.variables):
            environ |= {k: v for k, v in variables.items() if _ACCESS_VARIABLES.match(k)}
        environ["PYTHONPATH"] = str(Path(__file__).parents[3])  # this agent's own code
        return environ

    def _python(self) -> str:
        """An interpreter with obstore: the agent's own, or one of an environment made for it."""
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
        environment = shelf.provide(Recipe(version, (_CLIENT,)), self._wait, self._say)
        return str(environment.folder / "bin" / "python")
