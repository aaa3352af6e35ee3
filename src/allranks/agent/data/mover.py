"""The mover: the program that transfers data between stores and a node.

The agent starts it as `python -m allranks.agent.data.mover`, in an interpreter that has obstore,
and exchanges lines of JSON with it. The first line is the request. For inputs, the mover reports
progress and then each path, and holds the inputs, or serves them as streams, until its standard
input closes. One mover uploads outputs while the job runs and may be killed at any time; another
uploads the rest at the end.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.agent.data.input_request import InputRequest
from allranks.agent.data.input_source import Source
from allranks.agent.data.inputs import InputCache
from allranks.core.packing import unpack
from allranks.errors import AllranksError, Passing, is_passing

if TYPE_CHECKING:
    from allranks.agent.data.upload import Uploader

# Between two scans for complete files: this many seconds, or this many times the last scan's time.
_SCAN_SECONDS, _SCAN_FACTOR = 2.0, 10.0
_REPORT_SECONDS = 0.5

Say = Callable[[Mapping[str, Any]], None]


def provide(request: Mapping[str, Any], say: Say) -> None:
    """Provide inputs from the cache. Raises AllranksError for the first that fails."""
    with InputCache(Path(request["cache"]), request["limit"], say) as provider:
        for input_request in (unpack(InputRequest, fields) for fields in request["inputs"]):
            say({"provided": input_request.name, **provider.provide(input_request)._asdict()})
        say({"done": True})
        sys.stdin.read()


def stream(request: Mapping[str, Any], say: Say) -> None:
    """Serve inputs until the agent ends. Raises AllranksError for the first that fails."""
    # lazy: a web server, which the other requests do not use
    from allranks.agent.data.http_stream import Streams

    with Path(request["read"]).open("wb") as statistics:
        streams = Streams(statistics.fileno())
        for input_request in (unpack(InputRequest, fields) for fields in request["streams"]):
            say({"provided": input_request.name, **streams.add(Source(input_request))})
        say({"done": True})
        sys.stdin.read()
        os._exit(0)  # do not wait for requests of readers


def upload_live(request: Mapping[str, Any], say: Say) -> None:
    """Upload complete files until the agent ends. Raises AllranksError if a store refuses at the
    start."""
    uploaders = _uploaders(request)
    for uploader in uploaders:
        uploader.check_access()
    say({"done": True})
    uploaders = [uploader for uploader in uploaders if uploader.output.live]
    took = 0.0
    while (
        uploaders
        and not select.select([sys.stdin], [], [], max(_SCAN_SECONDS, took * _SCAN_FACTOR))[0]
    ):
        began = time.monotonic()
        for uploader in uploaders:
            try:
                uploader.upload(False, lambda done, total: None)
            except AllranksError as error:
                # Only log it: the final upload tries again and reports errors.
                print(f"{error} ({error.hint})", file=sys.stderr, flush=True)
        took = time.monotonic() - began


def upload_rest(request: Mapping[str, Any], say: Say) -> None:
    """Upload everything that is not uploaded yet. Raises AllranksError."""
    for uploader in _uploaders(request):
        uploader.upload(True, _ProgressReport(uploader.output.name, say))
        summary = {"files": uploader.files, "size": uploader.size, "uri": uploader.output.uri}
        summary["left_out"] = sorted(uploader.left_out)[:3]
        say({"brought": uploader.output.name, **summary})
    say({"done": True})


class _ProgressReport:
    """Reports an output's progress at intervals."""

    def __init__(self, name: str, say: Say) -> None:
        self._name, self._say = name, say
        self._started_at = self._reported_at = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._reported_at > _REPORT_SECONDS:
            self._reported_at = now
            progress = {"done": done, "total": total, "seconds": now - self._started_at}
            self._say({"output": self._name, **progress})


def _uploaders(request: Mapping[str, Any]) -> list[Uploader]:
    from allranks.agent.data.upload import (  # lazy: asyncio, which inputs do without
        Output,
        Uploader,
    )

    uploaders = []
    for fields in request["outputs"]:
        output = unpack(Output, fields)
        manifest = Path(request["manifests"], f"{output.name}.node-{request['node']}.json")
        uploaders.append(Uploader(output, manifest, record=Path(request["manifests"]).parents[1]))
    return uploaders


def main() -> int:
    """Carry out the request on standard input."""
    # The kernel sends SIGIO, which kills by default, when a process opens a file we hold a lease
    # on.
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    request = json.loads(sys.stdin.readline())

    def say(message: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    try:
        if "inputs" in request:
            provide(request, say)
        elif "streams" in request:
            stream(request, say)
        elif request["live"]:
            upload_live(request, say)
        else:
            upload_rest(request, say)
    except AllranksError as error:
        say(error.body())
        return 1
    except OSError as error:
        say(_os_error(error).body())
        return 1
    return 0


def _os_error(error: OSError) -> AllranksError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    kind = Passing if is_passing(error) else AllranksError
    return kind(
        f"cannot write on the node: {reason.lower()}",
        where=str(error.filename) if error.filename else None,
        hint="check the disk's free space and the permissions of the job's user",
    )


if __name__ == "__main__":
    sys.exit(main())
