"""Searching in a log, block by block."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from allranks.api.routes import Route
from allranks.ui.pages import logs


def search(data: bytes, **query: str) -> tuple[list[str], dict[str, Any]]:
    """The lines that a search finds in a file, and what it says at its end."""

    class Session:
        @asynccontextmanager
        async def stream(self, route: Route[Any], *names: str) -> AsyncIterator[Any]:
            async def blocks(size: int) -> AsyncIterator[bytes]:
                for start in range(0, len(data), size):
                    yield data[start : start + size]

            yield SimpleNamespace(aiter_bytes=blocks)

    request: Any = SimpleNamespace(
        state=SimpleNamespace(session=Session()),
        query_params={"path": "x", **query},
        path_params={"name": "job"},
    )

    async def all_of_it() -> list[dict[str, Any]]:
        return [each async for each in logs._search(request)]

    told = asyncio.run(all_of_it())
    found = [line for each in told for line in each.get("lines", ())]
    for line in found:
        at = line["offset"]  # at which the line begins
        assert data[at:].startswith(line["text"].encode()[:20])
        assert at == 0 or len(data) > logs._LONGEST or data[at - 1 : at] == b"\n"
    return [line["text"] for line in found], told[-1]


def test_lines_that_have_the_text_in_any_case() -> None:
    lines, end = search(b"Loss 1\nacc 2\nLOSS 3\nloss 4", text="loss")
    assert lines == ["Loss 1", "LOSS 3", "loss 4"]
    assert (end["found"], end["stopped"]) == (3, False)


def test_levels() -> None:
    data = b"fine\nINFO x\nWARNING: y\nValueError: z\nUserWarning: w\nmirror\n"
    assert search(data, level="error")[0] == ["ValueError: z"]
    assert search(data, level="warning")[0] == ["WARNING: y", "ValueError: z", "UserWarning: w"]


def test_a_line_across_two_blocks() -> None:
    block = logs._BLOCK
    lines, _ = search(b"x" * (block - 8) + b"\nneedle and thread\n" + b"y" * block, text="thread")
    assert lines == ["needle and thread"]


def test_too_many_lines() -> None:
    lines, end = search(b"a\n" * 5000, text="a")
    assert len(lines) == logs._FOUND
    assert end["stopped"]


def test_a_line_that_never_ends() -> None:
    lines, end = search(b"\rstep" * 4_000_000, text="step")
    assert 1 <= len(lines) <= 6
    assert max(map(len, lines)) <= logs._LINE
    assert not end["stopped"]
