"""The agent's side of a mover: its process, its messages, and their texts."""

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

from allranks import folder_trees
from allranks.agent.environments.uv import Say, Wait
from allranks.core.amounts import counted, size_text
from allranks.core.text import printable
from allranks.errors import OUT_OF_MEMORY, AllranksError, from_body

# Seconds until the first progress note, and the longest interval between two.
_FIRST_SECONDS, _MAX_SECONDS = 1.0, 20.0


class Mover:
    """A running mover. It ends when the agent does, because its standard input closes."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        request: Mapping[str, Any],
        wait: Wait,
    ) -> None:
        self._wait, self._log = wait, log
        with folder_trees.open_file(log, "ab") as errors:
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
        with contextlib.suppress(BrokenPipeError):  # `messages` raises the error
            self._child.stdin.write(f"{line}\n".encode())
            self._child.stdin.flush()

    def messages(self, seconds: float | None = None) -> Iterator[dict[str, Any]]:
        """Yield the mover's messages, until the caller has enough. Raises AllranksError for an
        error message, when the mover ends, and after ``seconds``."""
        assert self._child.stdout is not None
        until = None if seconds is None else time.monotonic() + seconds
        rest, piece = b"", b"-"
        while piece:
            timeout = None if until is None else max(0.0, until - time.monotonic())
            self._wait(self._child.stdout.fileno(), timeout)
            if until is not None and time.monotonic() >= until:
                raise AllranksError(
                    "no time left to upload all outputs",
                    hint="write less, or give it more time: --set limits.grace=120",
                )
            piece = os.read(self._child.stdout.fileno(), 1 << 16)
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "error" in message:
                    raise from_body(message)
                yield message
        code = self._child.wait()
        text = folder_trees.read_file(self._log).decode(errors="replace") if code else ""
        log = text.strip().splitlines()
        reason = log[-1] if log else f"exit code {code}"
        if code < 0:
            reason = f"killed by {signal.Signals(-code).name}"
        raise AllranksError(f"the data mover failed: {reason}", hint=OUT_OF_MEMORY)

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
    """Reports progress at growing intervals, because every note stays in the record."""

    def __init__(self, say: Say) -> None:
        self._say, self._next, self._pause = say, time.monotonic() + _FIRST_SECONDS, _FIRST_SECONDS

    def report(self, message: Mapping[str, Any]) -> None:
        if (now := time.monotonic()) < self._next:
            return
        self._pause = min(_MAX_SECONDS, self._pause * 1.3)
        self._next = now + self._pause
        self._say(_progress_text(message))


def _progress_text(message: Mapping[str, Any]) -> str:
    if "output" in message:
        return f"uploads {message['output']} {_bar(message)}"
    name = message["input"]
    if message.get("waiting"):
        return f"waits for {name}, which another node or job is fetching"
    if "unpacked" in message:
        return f"unpacks {name}: {message['unpacked']} of {message['of']} archives"
    return f"downloads {name} {_bar(message)}"


def _bar(message: Mapping[str, Any]) -> str:
    done, total, seconds = message["done"], message["total"], message["seconds"]
    share = done / total if total else 1.0
    rate = done / seconds if seconds else 0.0
    remaining = f", {(total - done) / rate:.0f} s left" if rate else ""
    bar = ("#" * round(share * 10)).ljust(10, "-")
    return f"[{bar}] {size_text(done)} of {size_text(total)}, {size_text(rate)}/s{remaining}"


def _amount(message: Mapping[str, Any]) -> str:
    return f"{counted(message['files'], 'file')}, {size_text(message['size'])}"


def provided_text(message: Mapping[str, Any], seconds: float) -> str:
    text = f"{message['provided']}: {_amount(message)}"
    if not message["moved"]:
        return f"{text}, already in the node's cache"
    moved = size_text(message["moved"])
    rate = size_text(message["moved"] / max(seconds, 1e-3))
    return f"{text}; fetched {moved} in {seconds:.1f} s ({rate}/s)"


def stream_ready_text(message: Mapping[str, Any]) -> str:
    return f"{message['provided']}: {_amount(message)}, read as a stream"


def stream_read_text(message: Mapping[str, Any]) -> str:
    size = size_text(message["size"])
    reads = counted(message["reads"], "read")
    text = f"{message['streamed']}: stream_read_text {size} in {reads}"
    return f"{text}; one failed: {message['failed']}" if message["failed"] else text


def uploaded_text(message: Mapping[str, Any]) -> str:
    text = f"{message['brought']}: {_amount(message)}, uploaded to {message['uri']}"
    if left_out := ", ".join(map(printable, message["left_out"])):
        text += f"; left out, because they lead out of the job's folders: {left_out}"
    return text
