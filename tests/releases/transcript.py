"""A transcript of a release: what its agents, clients and server said to each other."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.releases.recording_proxy import bytes_of

AGENTS, PEOPLE, MLFLOW = "/agent/v1/", "/api/v1/", "/mlflow/"
TRANSCRIPTS = sorted(Path(__file__).parent.glob("*/transcript.xz"))


class Exchange(NamedTuple):
    """A request with its answer: see `recording_proxy.Exchange`. ``launch``: the number and the job
    of an agent or rank that called; None for people. ``frames``: what passed through a channel."""

    launch: tuple[int, str] | None
    call: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    sent: int
    answered: int
    status: int
    type: str
    answer: bytes
    is_whole: bool
    frames: list[tuple[int, str, bytes]]
    ended: int

    @property
    def route(self) -> str:
        return route_of(self.method, self.path)

    @property
    def json(self) -> Any:
        return json.loads(self.answer)


def load(path: Path, names: Mapping[str, str]) -> list[Exchange]:
    """The exchanges in a transcript, with ``names`` in the place of what was left out."""
    text = lzma.decompress(path.read_bytes()).decode()
    for word, name in names.items():
        text = text.replace(word, json.dumps(name)[1:-1])
    return [_exchange(json.loads(line)) for line in text.splitlines()]


def _exchange(data: dict[str, Any]) -> Exchange:
    token = re.fullmatch(r"@TOKEN@(\d+):(.+)@", data.get("by", ""))
    answer = data.get("answer", "")
    return Exchange(
        (int(token[1]), token[2]) if token else None,
        data.get("call", ""),
        data["method"],
        data["path"],
        data.get("headers", {}),
        bytes_of(data.get("body", "")),
        data["sent"],
        data["answered"],
        data["status"],
        data.get("type", ""),
        bytes_of(answer),
        not (isinstance(answer, dict) and "size" in answer),
        [(number, end, bytes_of(piece)) for number, end, piece in data.get("frames", ())],
        data.get("ended", 0),
    )


def route_of(method: str, path: str) -> str:
    """The route of an agent's request, with words in the place of numbers and hashes."""
    plain = urlsplit(path).path
    plain = re.sub(r"/[0-9a-f]{32,64}(?=/|$)", "/HASH", plain)
    return f"{method} " + re.sub(r"/\d+(?=/|$)", "/N", plain)
