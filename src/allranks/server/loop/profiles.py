"""Profiles of live jobs: requested from their agents, gathered, judged and saved.

A request stands beside the orders of its nodes, as for stacks, until they have answered. What it
brought is a folder of the job's record.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks import folder_trees
from allranks.core.distributions.topology import world
from allranks.core.packing import pack
from allranks.core.profiles import files, operators, samples
from allranks.core.profiles.samples import NO_PYTHON, Samples
from allranks.core.profiles.verdict import Kind, Verdict, verdict
from allranks.errors import Conflict
from allranks.server.loop.stacks import running
from allranks.server.loop.wakeups import Wakeups
from allranks.settings import Home
from allranks.store.jobs.job_rows import JobRow

if TYPE_CHECKING:
    from allranks.api.agents import ProfileOrder, RankProfile
    from allranks.api.jobs import ProfileAnswer

# Seconds beyond the window to wait for the agents' answers.
PATIENCE = {"python": 10.0, "memory": 10.0, "torch": 60.0}

# The most bytes of a profile in the record.
_MOST = 64 << 20
# The most processes that answer, for each rank of the job.
_PROCESSES = 8
_OF_GPU = ("allocated_bytes", "reserved_bytes", "inactive_split_bytes")


class Gathered:
    """The answers to one request. ``number`` is also the time of it, in milliseconds."""

    def __init__(self, order: ProfileOrder, row: JobRow) -> None:
        self.order, self.number = order, order["number"]
        self.launch, self.attempt = row.record.launch, row.record.attempt
        self.until = time.monotonic() + order["seconds"] + PATIENCE[order["kind"]]
        self.awaited = set(running(row))
        self.ranks: list[tuple[int, RankProfile]] = []
        # A rank may have several processes; what else comes is not kept in memory.
        self.most = _PROCESSES * world(row.plan.task)

    @property
    def over(self) -> bool:
        return not self.awaited or time.monotonic() > self.until


class Profiles:
    """The newest request of each job. Thread-safe."""

    def __init__(self, home: Home, wakeups: Wakeups) -> None:
        self._home, self._wakeups = home, wakeups
        self._requests: dict[str, Gathered] = {}
        self._lock = threading.Lock()

    def request(self, row: JobRow, kind: Any, seconds: float, ranks: Iterable[int]) -> Gathered:
        """Ask every node that runs ranks. Raises Conflict if a profile is being taken."""
        with self._lock:
            last = self._requests.get(row.name)
            is_open = last is not None and not last.over and not last.order.get("stop")
            if last is not None and is_open and last.attempt == row.record.attempt:
                hint = "wait until it has ended"
                raise Conflict(f"a profile of {row.name} is being taken", hint=hint)
            number = max(int(time.time() * 1000), last.number + 1 if last else 0)
            order: ProfileOrder = {
                "number": number,
                "kind": kind,
                "seconds": seconds,
                "ranks": [*ranks],
            }
            self._requests[row.name] = gathered = Gathered(order, row)
        self._wakeups.notify(row.name)
        return gathered

    def stop(self, row: JobRow) -> bool:
        """End the profile that is being taken; whether one was."""
        with self._lock:
            last = self._requests.get(row.name)
            if last is None or last.over:
                return False
            order: ProfileOrder = {**last.order, "number": last.number + 1, "stop": True}
            last.awaited.clear()
            self._requests[row.name] = Gathered(order, row)
        self._wakeups.notify(row.name)
        return True

    def pending(self, row: JobRow, node: int, after: int) -> ProfileOrder | None:
        """The request that the node's agent does not know yet."""
        last = self._requests.get(row.name)
        if last is None or last.over or last.number <= after or node not in last.awaited:
            return None
        same = (last.launch, last.attempt) == (row.record.launch, row.record.attempt)
        return last.order if same else None

    def receive(self, name: str, node: int, number: int, part: Mapping[str, Any]) -> None:
        """Take the answer of a rank, or that it was the node's last. Raises KeyError, TypeError if
        it is malformed."""
        is_last, rank = part["last"], part["rank"]
        if rank is not None and not _is_answer(rank):
            raise TypeError("not the answer of a rank")
        with self._lock:
            last = self._requests.get(name)
            if last is not None and last.number == number and not last.over:
                if rank is not None and len(last.ranks) < last.most:
                    last.ranks.append((node, rank))
                if is_last:
                    last.awaited.discard(node)
        self._wakeups.notify(name)

    def save(self, name: str, gathered: Gathered) -> ProfileAnswer:
        """Judge what has come, and write it into the record. Raises Conflict if no rank runs
        Python."""
        order = gathered.order
        profiles, missing, memory = _read(gathered)
        if missing and all(one["why"] == NO_PYTHON for one in missing) and not profiles + memory:
            hint = "the processes of a job: allranks top " + name
            raise Conflict(f"no rank of {name} runs Python that can be profiled", hint=hint)
        made = verdict(profiles, [one["rank"] for one in missing])
        if order["kind"] == "memory":
            made = Verdict(Kind.MEMORY, _memory_text(memory))
        lines = [made.message, *([f"hint: {made.hint}"] if made.hint else [])]
        relative = Path(str(gathered.attempt), "system_logs", f"profile-{gathered.number}")
        folder = self._home.jobs / name / "attempts" / relative
        texts: dict[str, str] = {}
        if profiles:
            texts["perfetto.json"] = json.dumps(files.perfetto(profiles))
            texts["speedscope.json"] = json.dumps(files.speedscope(profiles, name))
            flame = files.flame_graph(profiles)
            texts["flame.svg"] = flame
            texts["flame.html"] = files.page(f"Profile of {name}", lines, flame)
        if memory:
            texts["memory.json"] = json.dumps(memory)
        top: list[Any] = []
        for _, one in gathered.ranks:
            trace = (one["answer"] or {}).get("trace")
            if isinstance(trace, dict):
                texts[f"torch-rank-{one['rank']}.json"] = json.dumps(trace)
                with contextlib.suppress(TypeError, ValueError, KeyError, AttributeError):
                    top = top or operators.top(trace["traceEvents"])
        answer: ProfileAnswer = {
            "job": name,
            "attempt": gathered.attempt,
            "at": gathered.number / 1000,
            "kind": order["kind"],
            "seconds": order["seconds"],
            "verdict": pack(made),
            "missing": missing,
            "operators": top,
            "memory": memory,
            "files": [f"system_logs/{folder.name}/{file}" for file in sorted(texts)],
            "folder": str(folder),
        }
        texts["profile.json"] = json.dumps(answer)
        for each, text in texts.items():
            with folder_trees.replace_file(folder / each, self._home.jobs) as file:
                file.write(text.encode())
        gathered.ranks.clear()  # they are large
        return answer

    def saved(self, name: str) -> ProfileAnswer | None:
        """The newest profile in the record, or None. Raises Conflict if it is too large."""
        newest: ProfileAnswer | None = None
        newest_at, is_large = 0.0, False
        pattern = "attempts/*/system_logs/profile-*/profile.json"
        record = self._home.jobs / name
        for path in record.glob(pattern):
            # A job can write to its record.
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
                data = folder_trees.read_file(path, _MOST + 1, record)
                if large := len(data) > _MOST:
                    at = float(path.parent.name.removeprefix("profile-")) / 1000
                else:
                    answer: ProfileAnswer = json.loads(data)
                    at = answer["at"]
                if at > newest_at:
                    newest_at, is_large = at, large
                    newest = None if large else answer
        if is_large:
            message = f"the newest profile of {name} is larger than {_MOST >> 20} MiB"
            hint = f"it is in the files of the job: allranks job download {name}"
            raise Conflict(message, hint=hint)
        return newest


def _is_answer(rank: Mapping[str, Any]) -> bool:
    """Whether it has the shape of a ``RankProfile``: its number becomes a part of a file's name."""
    answer = rank["answer"]
    is_shaped = answer is None or isinstance(answer, dict)
    return type(rank["rank"]) is int and is_shaped and isinstance(rank["why"], str)


def _read(gathered: Gathered) -> tuple[list[Samples], list[Any], list[Any]]:
    """The samples of the ranks, the ranks without, and what is known of their memory."""
    profiles: list[Samples] = []
    missing: list[Any] = [
        {"rank": None, "node": node, "why": "the node did not answer in time"}
        for node in sorted(gathered.awaited)
    ]
    memory: list[Any] = []
    for node, one in gathered.ranks:
        answer, why = one["answer"] or {}, one["why"]
        try:
            if "memory" in answer:
                memory.append({"rank": one["rank"], **_memory(answer["memory"])})
                continue
            if "frames" in answer:
                profiles.append(samples.load(one["rank"], node, answer))
            elif not why:
                why = "it answered with nothing"
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):
            why = "it answered with something else than samples"
        if why:
            missing.append({"rank": one["rank"], "node": node, "why": str(why)})
        if "torch" in answer:
            why = f"no torch trace: {answer['torch']}"
            missing.append({"rank": one["rank"], "node": node, "why": why})
    return sorted(profiles, key=attrgetter("rank")), missing, memory


def _memory(data: Any) -> dict[str, Any]:
    """What a rank says of its memory. Raises TypeError, ValueError and KeyError."""
    lines = [
        (str(file), int(line), int(size), int(count)) for file, line, size, count in data["lines"]
    ]
    before, after = map(int, data["resident"])
    gpus = [{key: int(gpu[key]) for key in _OF_GPU} for gpu in data.get("gpus", ())]
    return {"lines": lines, "resident": [before, after], **({"gpus": gpus} if gpus else {})}


def _memory_text(memory: list[Any]) -> str:
    lines = [(line[2], line, one["rank"]) for one in memory for line in one["lines"][:1]]
    if not lines:
        return "no line's memory grew"
    _, (file, line, size, count), rank = max(lines, key=lambda item: item[0])
    where = f"{file.rpartition('/')[2]}:{line}"
    return f"{where} grew most: {size:,} bytes in {count} blocks on rank {rank}"
