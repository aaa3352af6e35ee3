"""The program that moves data between stores and a node: `python -m allranks.agent.data.mover`.

A process of its own, in an interpreter that can open stores; the agent speaks with it in lines of
JSON. The first says what is wanted. Of inputs it answers with how far it is, then with where each
is, and holds those, or serves them as streams, until its standard input is closed. Outputs it
brings while the job runs, until then, and is ended with it at any moment; another brings all that
is left.
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

from allranks.agent.data.input_source import Source, Wanted
from allranks.agent.data.inputs import InputCache
from allranks.errors import AllranksError, Passing, is_passing
from allranks.plan.data.addresses import Account

if TYPE_CHECKING:
    from allranks.agent.data.upload import Uploader

# Seconds from one look for whole files to the next: so many at least, and so many times what the
# last one took.
_PAUSE, _SHARE = 2.0, 10.0
_BEAT = 0.5

Say = Callable[[Mapping[str, Any]], None]


def provide(asked: Mapping[str, Any], say: Say) -> None:
    """Raises AllranksError for the first input that cannot be had."""
    with InputCache(Path(asked["cache"]), asked["limit"], say) as provider:
        for wanted in map(Wanted.load, asked["inputs"]):
            say({"provided": wanted.name, **provider.provide(wanted)._asdict()})
        say({"done": True})
        sys.stdin.read()


def stream(asked: Mapping[str, Any], say: Say) -> None:
    """Serve them as long as the agent is there. Raises AllranksError for the first that cannot be
    had."""
    # lazy: a web server, which others do without
    from allranks.agent.data.http_stream import Streams

    with Path(asked["read"]).open("wb") as told:
        streams = Streams(told.fileno())
        for wanted in map(Wanted.load, asked["streams"]):
            say({"provided": wanted.name, **streams.add(Source(wanted))})
        say({"done": True})
        sys.stdin.read()
        os._exit(0)  # parts that are under way for readers are not waited for


def keep_bringing(asked: Mapping[str, Any], say: Say) -> None:
    """Bring what is whole, as long as the agent is there. Raises AllranksError for the first that
    is known before to be in vain."""
    several = [_bringer(each, asked) for each in asked["outputs"]]
    for each in several:
        each.ask()
    say({"done": True})
    several = [each for each in several if each.output.live]
    took = 0.0
    while several and not select.select([sys.stdin], [], [], max(_PAUSE, took * _SHARE))[0]:
        began = time.monotonic()
        for each in several:
            try:
                each.look(False, lambda done, total: None)
            except AllranksError as error:
                # What is still so at the end counts.
                print(f"{error} ({error.hint})", file=sys.stderr, flush=True)
        took = time.monotonic() - began


def bring(asked: Mapping[str, Any], say: Say) -> None:
    """Raises AllranksError for what cannot be brought."""
    for each in [_bringer(each, asked) for each in asked["outputs"]]:
        each.look(True, _Reporting(each.output.name, say))
        told = {"files": each.files, "size": each.size, "uri": each.output.uri}
        say({"brought": each.output.name, **told})
    say({"done": True})


class _Reporting:
    """Says now and then how far an output is."""

    def __init__(self, name: str, say: Say) -> None:
        self._name, self._say = name, say
        self._began = self._told = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._told > _BEAT:
            self._told = now
            how = {"done": done, "total": total, "seconds": now - self._began}
            self._say({"output": self._name, **how})


def _bringer(each: Mapping[str, Any], asked: Mapping[str, Any]) -> Uploader:
    from allranks.agent.data.upload import (  # lazy: asyncio, which inputs do without
        Output,
        Uploader,
    )

    output = Output(**{**each, "account": Account.load(each["account"])})
    name = f"{output.name}.node-{asked['node']}.json"
    return Uploader(output, Path(asked["manifests"], name))


def main() -> int:
    """What the line on standard input asks for."""
    # Who opens a file for writing while we look at it would end us by that.
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    asked = json.loads(sys.stdin.readline())

    def say(told: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()

    try:
        if "inputs" in asked:
            provide(asked, say)
        elif "streams" in asked:
            stream(asked, say)
        elif asked["live"]:
            keep_bringing(asked, say)
        else:
            bring(asked, say)
    except AllranksError as error:
        say(error.body())
        return 1
    except OSError as error:
        say(_refused(error).body())
        return 1
    return 0


def _refused(error: OSError) -> AllranksError:
    said = os.strerror(error.errno) if error.errno else str(error)
    kind = Passing if is_passing(error) else AllranksError
    return kind(
        f"the node refused: {said.lower()}",
        where=str(error.filename) if error.filename else None,
        hint="is there room on that disk, and may the job's user write there?",
    )


if __name__ == "__main__":
    sys.exit(main())
