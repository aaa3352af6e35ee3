"""Inputs at paths of the server's disks: read in place where this node sees the same files, else
fetched from the server into the node's cache."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.agent.data.local_digest import digest_of
from allranks.agent.lifecycle.agent_calls import AgentCalls
from allranks.agent.lifecycle.parts import Part, Run
from allranks.core.lifecycle.phases import Phase
from allranks.core.plan import InputTask, Task

if TYPE_CHECKING:
    from allranks.agent.data.from_server import InputServer
    from allranks.agent.data.input_request import InputRequest
    from allranks.agent.data.inputs import InputCache

# Seconds between two looks at the server's orders during a download.
_LOOK = 0.1


class LocalInputs(Part):
    """Provides them, and holds those in the cache until closed. ``task`` has this node's paths,
    ``home`` is the server's."""

    phase = Phase.DATA

    def __init__(self, task: Task, home: str, calls: AgentCalls) -> None:
        self._task, self._home = task, home
        self._where, self._calls = calls.where, calls
        self._provided: dict[str, InputTask] = {}
        self._held = ExitStack()

    def close(self) -> None:
        self._held.close()

    def begin(self, run: Run) -> None:
        """Give the run's task the paths on this node, once all are there."""
        missing = [item for item in self._task.inputs if item.name not in self._provided]
        if suspects := [*self._suspects(missing)]:
            self._in_thread(suspects)
        inputs = (self._provided.get(item.name, item) for item in run.task.inputs)
        run.task = run.task._replace(inputs=tuple(inputs))

    def _suspects(self, items: list[InputTask]) -> Iterator[InputTask]:
        """Inputs that may not lie on this node."""
        task = self._task
        for item in items:
            path = item.source or ""
            in_home = path.startswith(f"{self._home}/")
            if not path or (in_home and not task.sends_files):
                continue
            missing = in_home or (task.sends_files and not os.path.exists(path))
            if missing or (item.digest and digest_of(Path(path)) != item.digest):
                yield item

    def _in_thread(self, items: list[InputTask]) -> None:
        """Fetch them while the server's orders are heeded."""
        stopped, errors = threading.Event(), list[BaseException]()
        says = list[str]()

        def run() -> None:
            try:
                self._fetch(items, stopped, says.append)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, name="inputs", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                self._calls.pause(_LOOK)
                while says:
                    self._calls.doing(says.pop(0))
        finally:
            stopped.set()
            thread.join()
        if errors:
            raise errors[0]

    def _fetch(
        self, items: list[InputTask], stopped: threading.Event, doing: Callable[[str], None]
    ) -> None:
        from allranks.agent.data.from_server import InputServer, ServerInput  # lazy: few need it
        from allranks.agent.data.inputs import InputCache  # lazy: as above
        from allranks.agent.data.mover_process import Progress  # lazy: as above

        server = InputServer(
            self._calls.server,
            self._where.node,
            stopped,
            lambda: doing("waits: the server sends files to other nodes"),
        )
        sources = list[ServerInput]()

        def opened(request: InputRequest) -> ServerInput:
            sources.append(ServerInput(request, server))
            return sources[-1]

        progress = Progress(doing)
        cache = InputCache(
            Path(self._task.cache),
            self._task.cache_limit,
            progress.report,
            opened,
        )
        self._held.enter_context(cache)
        for item in items:
            if not self._is_same(item, server):
                self._provided[item.name] = self._fetched(item, cache)
                if left_out := sources[-1].left_out:
                    message = f"{item.name}: left out, because they lie elsewhere: {left_out}"
                    self._calls.note(message, {"about": "files"})

    def _is_same(self, item: InputTask, server: InputServer) -> bool:
        """Whether the data has only changed since the job was submitted."""
        here = digest_of(Path(item.source or "")) if item.digest else ""
        if not here:
            return False
        with server.client() as client:
            return here == server.digest(client, item.name)

    def _fetched(self, item: InputTask, cache: InputCache) -> InputTask:
        from allranks.agent.data.input_request import InputRequest  # lazy: as above
        from allranks.agent.data.mover_process import provided_text  # lazy: as above

        began = time.monotonic()
        copy = str(self._where.folder / "inputs" / item.name) if item.mode == "download" else ""
        share = (self._where.node, self._task.nodes) if item.sharded else None
        request = InputRequest(
            item.name, source=item.source or "", share=share, unpack=item.unpack, copy=copy
        )
        entry = cache.provide(request)
        message = {"provided": item.name, **entry._asdict()}
        self._calls.note(provided_text(message, time.monotonic() - began), {"data": message})
        mode = item.mode if item.streamed else "ro_mount"
        return item._replace(source=entry.path, mode=mode, unpack=False, sharded=False)
