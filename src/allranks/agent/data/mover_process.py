"""A mover as its agent has it: a process, what it tells, and that in words."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from allranks.agent.environments.uv import Say, Wait
from allranks.errors import AllranksError
from allranks.plan.amounts import counted, size_text

# The first word of how far it is, and the longest time between two, in seconds.
_FIRST, _SELDOM = 1.0, 20.0


class Mover:
    """A mover that runs. Ends with its agent, whose end of the pipe it reads."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        request: Mapping[str, Any],
        wait: Wait,
    ) -> None:
        self._wait, self._log = wait, log
        with log.open("ab") as errors:
            self._child = subprocess.Popen(
                argv,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                process_group=0,
            )
        self.say(json.dumps(request))

    def __enter__(self) -> Mover:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._close()
        else:
            self.kill()

    def say(self, line: str) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `lines` will tell
            self._child.stdin.write(f"{line}\n".encode())
            self._child.stdin.flush()

    def lines(self, seconds: float | None = None) -> Iterator[dict[str, Any]]:
        """What it tells, until it ends. Raises AllranksError when that is not at its own wish, or
        when it is not done within ``seconds``."""
        assert self._child.stdout is not None
        until = None if seconds is None else time.monotonic() + seconds
        rest, piece = b"", b"-"
        while piece:
            left = None if until is None else max(0.0, until - time.monotonic())
            self._wait(self._child.stdout.fileno(), left)
            if until is not None and time.monotonic() >= until:
                raise AllranksError("there was no time left to bring all of the outputs")
            piece = os.read(self._child.stdout.fileno(), 1 << 16)
            *whole, rest = (rest + piece).split(b"\n")
            yield from (json.loads(line) for line in whole)
        code = self._child.wait()
        said = self._log.read_text(errors="replace").strip().splitlines() if code else []
        why = said[-1] if said else f"exit code {code}"
        if code < 0:
            why = f"{signal.Signals(-code).name} ended it"
        raise AllranksError(
            f"what moves data has failed: {why}",
            hint="the node may have been out of memory: `dmesg` there tells",
        )

    def kill(self) -> None:
        if self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
        self._close()

    def _close(self) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]
        self._child.wait()


class Progress:
    """Tells how far it is, soon at first and then more seldom: each word stays in the record."""

    def __init__(self, say: Say) -> None:
        self._say, self._next, self._pause = say, time.monotonic() + _FIRST, _FIRST

    def told(self, how: Mapping[str, Any]) -> None:
        if (now := time.monotonic()) < self._next:
            return
        self._pause = min(_SELDOM, self._pause * 1.3)
        self._next = now + self._pause
        self._say(_doing(how))


def _doing(how: Mapping[str, Any]) -> str:
    if "output" in how:
        return f"brings {how['output']} {_bar(how)}"
    name = how["input"]
    if how.get("waiting"):
        return f"waits for {name}, which another job is fetching"
    if "unpacked" in how:
        return f"unpacks {name}: {how['unpacked']} of {how['of']} archives"
    return f"downloads {name} {_bar(how)}"


def _bar(how: Mapping[str, Any]) -> str:
    done, total, seconds = how["done"], how["total"], how["seconds"]
    part = done / total if total else 1.0
    rate = done / seconds if seconds else 0.0
    left = f", {(total - done) / rate:.0f} s left" if rate else ""
    bar = ("#" * round(part * 10)).ljust(10, "-")
    return f"[{bar}] {size_text(done)} of {size_text(total)}, {size_text(rate)}/s{left}"


def provided(told: Mapping[str, Any], seconds: float) -> str:
    what = f"{told['provided']}: {counted(told['files'], 'file')}, {size_text(told['size'])}"
    if not told["moved"]:
        return f"{what}, were in the node's cache"
    moved = size_text(told["moved"])
    rate = size_text(told["moved"] / max(seconds, 1e-3))
    return f"{what}, of which {moved} were fetched in {seconds:.1f} s ({rate}/s)"


def streamable(told: Mapping[str, Any]) -> str:
    what = f"{counted(told['files'], 'file')}, {size_text(told['size'])}"
    return f"{told['provided']}: {what}, read as a stream"


def streamed(told: Mapping[str, Any]) -> str:
    size, reads = size_text(told["size"]), counted(told["reads"], "read")
    what = f"{told['streamed']}: {size} were streamed in {reads}"
    return f"{what}; one failed: {told['failed']}" if told["failed"] else what


def brought(told: Mapping[str, Any], seconds: float) -> str:
    what = f"{counted(told['files'], 'file')}, {size_text(told['size'])}"
    return f"{told['brought']}: {what}, at {told['uri']}"
