"""The server of this version, called by agents and clients of released versions.

Their requests are those of the transcript. What they got then they get now: the same status, no key
less, the same values but for `FREE` ones; and the jobs end with the same record, logs, metrics,
uploads and states, which the clients ask for last. Requests to MLflow are left out. What came by a
mailbox comes by HTTP here: a server passes both to the same routes.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks.core.plan import Gang
from allranks.engines.base import GangStatus, Handle, Kind
from allranks.engines.local.engine import KIND as LOCAL
from allranks.statuses import GangState, SharedHome
from tests.releases.replay import Answer, Replay
from tests.releases.transcript import MLFLOW, TRANSCRIPTS, Exchange, load
from tests.server.serving import Served, Target, served
from tests.support import until

# Of the moment, of this machine, or chosen by the server.
FREE = {
    *("id", "server", "mlflow", "home", "clocks", "at", "now", "url", "pid", "port", "ports"),
    *("started", "watched", "digest", "ref", "version", "number", "stacks", "env", "due", "token"),
    *("mtime_ns", "primary", "secondary", "cluster_job", "bytes", "kept", "home_bytes", "fix"),
    *("scoring_uri", "hosts"),
}
# Said only to some agents, by what else happens.
OPTIONAL = {"watched"}


class Engine(Target):
    """Starts nothing: the agents are those of the transcript, and end when they have said so."""

    submitted: set[str]
    ended: dict[str, set[int]]

    def submit(self, gang: Gang) -> Handle:
        self.submitted.add(gang.key)
        return super().submit(gang)

    def _status(self, key: str) -> GangStatus:
        if key in self.gangs and len(self.ended.get(key, ())) == self.gangs[key].nodes:
            return GangStatus(GangState.GONE, "its agents have ended")
        return super()._status(key)


def kind(name: str, shared: SharedHome, **more: Any) -> Kind:
    return Kind(name, "", (), Engine, shared_home=lambda options: shared, **more)  # type: ignore[arg-type]


# Those of `recorded_server`.
KINDS = {
    "local": kind("local", SharedHome.YES, end_all=lambda home: [])._replace(
        help=LOCAL.help, options=LOCAL.options
    ),
    "apart": kind("apart", SharedHome.NO, end_all=lambda home: []),
    "mailed": kind("mailed", SharedHome.YES),
}


@pytest.mark.slow
@pytest.mark.end_to_end
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.parent.name)
def test_agents_and_clients_are_answered(path: Path, tmp_path: Path) -> None:
    root, home = tmp_path / "root", tmp_path / "ho'me"
    root.mkdir()
    names = {"@ROOT@": str(root), "@HOME@": str(home), "@HOST@": os.uname().nodename}
    names |= {"@ENVIRONMENT@": sys.prefix, "@PYTHON@": sys.base_prefix}
    exchanges = [each for each in load(path, names) if not each.path.startswith(MLFLOW)]
    # An upgraded home has the code of the agents that run.
    (home / "engines").mkdir(parents=True)
    for exchange in exchanges:
        if "/bundle/" in exchange.path:
            (home / "engines" / f"agent-{exchange.path[-64:]}.zip").touch()
    with served(home, kinds=KINDS, lease=30.0) as server:
        told = Callers(server, exchanges, path.parent)
        Replay(int(server.url.rpartition(":")[2]), told.begin, told.compare).play(exchanges)
    assert not told.differences, "\n".join(told.differences)


class Callers:
    """What is around the requests: tokens, files of ranks, agents that end. ``differences`` are
    those of all answers."""

    def __init__(self, server: Served, exchanges: list[Exchange], release: Path) -> None:
        self._server = server
        self._files: dict[str, str] = json.loads((release / "files_of_ranks.json").read_text())
        self._over = max(exchange.answered for exchange in exchanges if exchange.launch)
        self.differences: list[str] = []
        Engine.submitted, Engine.ended = set(), {}

    def begin(self, exchange: Exchange) -> str:
        """Called before a request is sent; its token."""
        if exchange.launch is None:
            return self._server.token()
        launch, job = exchange.launch
        until(lambda: f"{job}.{launch}" in Engine.submitted, 3.0)
        if b'"kind": "ended"' in exchange.body:
            self._write_files(job)
        return self._server.auth.agent_token(job, launch)

    def _write_files(self, job: str) -> None:
        for name, text in self._files.items():
            if name.startswith(f"{job}/"):
                file = self._server.home.jobs / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)

    def compare(self, exchange: Exchange, answer: Answer) -> None:
        if exchange.launch and b'"kind": "bye"' in exchange.body:
            launch, job = exchange.launch
            nodes = Engine.ended.setdefault(f"{job}.{launch}", set())
            nodes.add(json.loads(exchange.body)[0]["node"])
        if exchange.launch and b'"guests": [{' in answer.body:  # their agents start others
            Engine.submitted |= {guest["key"] for guest in json.loads(answer.body)["guests"]}
        is_live = exchange.launch is None and exchange.sent < self._over
        self.differences += differences(exchange, answer, is_live)


def differences(exchange: Exchange, answer: Answer, is_live: bool) -> list[str]:
    """In what an answer differs from the recorded one. ``is_live``: it is for people, of jobs that
    run, so values are of the moment."""
    about = (
        f"{exchange.sent} {exchange.call or exchange.launch}: {exchange.method} {exchange.path}: "
    )
    if exchange.status != answer.status:
        return [f"{about}{exchange.status} is {answer.status}, {answer.body[:300]!r}"]
    if exchange.path.endswith("/stream"):
        texts, others = streamed(exchange.answer), streamed(answer.body)
        return [] if texts == others else [f"{about}{texts} is {others}"]
    is_mail = exchange.call == "mailbox" and exchange.answer.startswith(b"{")
    if (is_mail or "json" in exchange.type) and exchange.is_whole:
        lines = lost(numberless(exchange.json), numberless(json.loads(answer.body)))
        return [about + line for line in lines if not is_live or line.endswith("is gone")]
    before, now = (
        re.sub(rb'"mtime_ns": \d+', b"", data) for data in (exchange.answer, answer.body)
    )
    is_other = exchange.is_whole and not is_live and before != now
    return [f"{about}{before[:200]!r} is {now[:200]!r}"] if is_other else []


def lost(before: Any, now: Any, place: str = "") -> Iterator[str]:
    """What an answer lacks that it had, and which values are others."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key, value in before.items():
            if key not in now and key not in OPTIONAL:
                yield f"{place}.{key} is gone"
            elif (
                key in now and key not in FREE and not key.endswith(("_at", "seconds", "duration"))
            ):
                yield from lost(value, now[key], f"{place}.{key}")
    elif isinstance(before, list) and isinstance(now, list):
        yield from lost_of_list(known(before), known(now), place)
    elif before != now:
        yield f"{place} was {str(before)[:200]!r}, is {str(now)[:200]!r}"


def lost_of_list(before: list[Any], now: list[Any], place: str) -> Iterator[str]:
    if len(before) == len(now):
        both = zip(sorted(before, key=of_event), sorted(now, key=of_event), strict=True)
        for number, (old, new) in enumerate(both):
            yield from lost(old, new, f"{place}[{number}]")
    else:
        yield f"{place} had {len(before)}: {kinds(before)}, has {len(now)}: {kinds(now)}"


def known(answers: list[Any]) -> list[Any]:
    """Without the job whose metrics came by MLflow, and the notes in events: there may be more."""
    return [
        each
        for each in answers
        if not isinstance(each, dict)
        or (each.get("name") != "tracked" and each.get("kind") != "note")
    ]


def kinds(answers: list[Any]) -> str:
    names = [str(each.get("kind") or each.get("name")) for each in answers if type(each) is dict]
    return " ".join(sorted(names))


def of_event(data: Any) -> str:
    """Events of different nodes come in any order."""
    if not isinstance(data, dict) or "kind" not in data:
        return ""
    return str([str(data.get(key)) for key in ("launch", "attempt", "kind", "node", "rank")])


def numberless(answer: Any) -> Any:
    """An answer to a node's changes without the numbers that the server gives to changes, and a
    list of files without times."""
    if isinstance(answer, dict) and answer.keys() >= {"revision", "done", "entries"}:
        entries = answer["entries"] and {path: e[:6] for path, e in answer["entries"].items()}
        return {**answer, "revision": 0, "done": sorted(answer["done"]), "entries": entries}
    if isinstance(answer, dict) and "files" in answer and "is_file" in answer:
        return {**answer, "files": [[name, size, mode] for name, size, _, mode in answer["files"]]}
    return answer


def streamed(body: bytes) -> dict[str, str]:
    """The logs in a stream, by rank, and how the job ended."""
    texts: dict[str, str] = {}
    for line in filter(None, body.split(b"\n")):
        data = json.loads(line)
        if "log" in data:
            rank = str([data.get(key) for key in ("child", "attempt", "rank")])
            texts[rank] = texts.get(rank, "") + data["log"]
        elif data["last"]:
            texts["status"] = data["job"]["status"]
    return texts
