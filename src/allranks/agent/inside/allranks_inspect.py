"""Answers an agent's questions from a thread of a job's Python, also while its first thread waits
in C code. For any Python from 3.7 on.

The thread reads a pipe, so it takes no time before a question comes. It is there once a process
belongs to a group of `torch.distributed`, or while a question is answered that
`agent/monitoring/inspection.py` asks of another Python. A question is a line of JSON. Its answer
lies in a file without a name, which the agent reads through /proc: 64 bytes with the question's
number and the answer's length, and the answer.

Nothing here may print, raise, or do anything that a script could notice. So the first thread has to
import this file: `threading` takes the thread that imports it for the first one.
"""

import os
import sys

from allranks_standard import standard_modules  # type: ignore[import-not-found,unused-ignore]

with standard_modules():
    import _thread
    import atexit
    import contextlib
    import fcntl
    import json
    import pickle
    import re
    import select
    import threading
    import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

# The names of the files are MARK, the process and its end of the pipe.
MARK = "allranks-inspect"
HEADER = 64
# The entries of a group that are sent, and the most of a process.
_OF_GROUP, _MOST = 16, 128
_LIBRARIES = ("site-packages", "dist-packages", "/lib/python", "<")

# What errors of collectives say.
_OF_COLLECTIVES = re.compile(r"gloo|NCCL|[Pp]rocess ?[Gg]roup|preamble|c10d|by peer|collective")

# The descriptors of this process: the file's, and both ends of the pipe.
_ends = []  # type: List[int]
# What has come through the pipe and is not answered yet.
_lines = []  # type: List[bytes]


def listen(once=False):  # type: (bool) -> None
    """Start the thread; with ``once`` for one question. Nothing if there is one already."""
    if _ends:
        return
    try:
        ends = [_high(end) for end in os.pipe()]
        name = "%s-%d-%d" % (MARK, os.getpid(), ends[1])
        ends.append(_high(os.memfd_create(name)))  # type: ignore[attr-defined,unused-ignore]
        _ends[:] = ends
        _thread.start_new_thread(_answer, (ends[0], ends[2], once))
    except Exception:
        _close()


def leave_note():  # type: () -> None
    """When a collective's error ends this process: leave the last collectives for the agent."""
    atexit.register(_leave_note)


def _leave_note():  # type: () -> None
    try:
        error = getattr(sys, "last_value", None)
        folder = os.path.dirname(os.environ.get("ALLRANKS_METRICS_FILE", ""))
        if error is None or not folder or not _OF_COLLECTIVES.search(repr(error)):
            return
        note = collectives()
        # The failed one may count as finished.
        max(note["entries"], key=lambda entry: entry["since"])["pending"] = True
        path = os.path.join(folder, "collectives-%d.json" % note["rank"])
        with open(path + ".new", "w") as file:
            json.dump(note, file)
        os.rename(path + ".new", path)
    except Exception:
        pass


def _high(fd):  # type: (int) -> int
    """Not among the first numbers, which scripts and libraries have plans for."""
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200)
    except OSError:  # so many are not allowed
        return fd
    os.close(fd)
    return high


def _close():  # type: () -> None
    while _ends:
        with contextlib.suppress(OSError):
            os.close(_ends.pop())


def _after_fork():  # type: () -> None
    """A fork has the descriptors without the thread."""
    _close()


os.register_at_fork(after_in_child=_after_fork)


def _answer(pipe, file, once):  # type: (int, int, bool) -> None
    keep = 0.0
    del _lines[:]
    try:
        while True:
            # Until the agent has read the last answer, at least.
            if once and keep and len(_lines) < 2 and not select.select([pipe], [], [], keep)[0]:
                return
            while len(_lines) < 2:  # the last one is not complete
                _read(pipe)
            question = json.loads(_lines.pop(0).decode())
            if question["do"] == "stop":  # it comes too late
                continue
            try:
                answer = _DO[question["do"]](question)  # type: Dict[str, Any]
            except Exception as error:
                answer = {"error": "%s: %s" % (type(error).__name__, error)}
            body = json.dumps(answer).encode("utf-8", "backslashreplace")
            os.ftruncate(file, 0)
            os.pwrite(file, body, HEADER)
            header = "%d %d" % (question["number"], len(body))
            os.pwrite(file, header.ljust(HEADER).encode(), 0)
            keep = question.get("keep", 5.0)
    except Exception:
        pass
    finally:
        if _ends and _ends[0] == pipe:
            _close()


def _read(pipe):  # type: (int) -> None
    more = os.read(pipe, 4096)
    if not more:
        raise EOFError
    _lines[-1:] = (b"".join(_lines[-1:]) + more).split(b"\n")


def is_stopped():  # type: () -> bool
    """Whether who has asked the question that is answered now wants no answer any more."""
    while _ends and select.select([_ends[0]], [], [], 0)[0]:
        _read(_ends[0])
    return any(b'"do": "stop"' in line for line in _lines[:-1])


# ---------------------------------------------------------------- torch's flight recorder


class _NotLoaded(object):
    """Stands for `torch._inductor` while entries are read: the recorder would import it, for
    seconds, to look for code that it has compiled."""

    def __getattr__(self, name):  # type: (str) -> Any
        if name == "codecache":
            raise AttributeError(name)
        import importlib  # lazy: rarely reached

        return getattr(importlib.import_module("torch._inductor"), name)


def collectives(_=None, _of_group=_OF_GROUP):  # type: (Any, int) -> Dict[str, Any]
    """The last collectives of each group, and the groups with their ranks."""
    return {
        "rank": _rank(),
        "groups": _groups(),
        "entries": _newest(_recorded(True), _of_group),
        "at": time.time(),
    }


def pace(question):  # type: (Dict[str, Any]) -> Dict[str, Any]
    """When this rank has called its last collectives, up to a time."""
    until, most = question["until"] * 1e9, question["most"]
    calls = [
        (str(entry["process_group"][0]), entry["collective_seq_id"], entry["time_created_ns"] / 1e9)
        for entry in _recorded(False)
        if not entry.get("is_p2p") and entry["time_created_ns"] < until
    ]
    return {"rank": _rank(), "groups": _groups(), "calls": calls[-most:]}


def _recorded(stacks):  # type: (bool) -> List[Dict[str, Any]]
    """What torch's flight recorder has, in the order of the calls."""
    torch = sys.modules["torch"]  # type: Any
    c10d = torch._C._distributed_c10d
    dump = getattr(c10d, "_dump_fr_trace", None) or c10d._dump_nccl_trace
    stand_in = None
    if "torch._inductor" not in sys.modules and "_inductor" not in vars(torch):
        stand_in = torch._inductor = _NotLoaded()
    try:
        return list(pickle.loads(dump(True, stacks, False)).get("entries", []))
    finally:
        if stand_in is not None and vars(torch).get("_inductor") is stand_in:
            del torch._inductor


def _rank():  # type: () -> Optional[int]
    c10d = sys.modules.get("torch.distributed.distributed_c10d")  # type: Any
    return None if c10d is None or not c10d.is_initialized() else int(c10d.get_rank())


def _groups():  # type: () -> List[Tuple[str, str, List[int]]]
    """Of each group of this process: its name, what the script calls it, and its ranks."""
    c10d = sys.modules["torch.distributed.distributed_c10d"]  # type: Any
    groups = []
    for group, ranks in list(c10d._world.pg_group_ranks.items()):
        name = str(c10d._world.pg_names.get(group, ""))
        groups.append((name, str(getattr(group, "group_desc", "") or ""), sorted(ranks)))
    return groups


def _newest(entries, most):  # type: (List[Dict[str, Any]], int) -> List[Dict[str, Any]]
    counts = {}  # type: Dict[str, int]
    newest = []  # type: List[Dict[str, Any]]
    for entry in reversed(entries):
        if entry.get("is_p2p"):
            continue
        group = str(entry["process_group"][0])
        counts[group] = counts.get(group, 0) + 1
        if counts[group] <= most and len(newest) < _MOST * most / _OF_GROUP:
            done = entry.get("retired") or entry.get("state") == "completed"
            newest.append(
                {
                    "group": group,
                    "number": entry["collective_seq_id"],
                    "operation": _operation(entry),
                    "sizes": entry.get("input_sizes") or [],
                    "types": entry.get("input_dtypes") or [],
                    "pending": not done,
                    "since": entry["time_created_ns"] / 1e9,
                    "place": _place(entry.get("frames") or []),
                }
            )
    return newest[::-1]


def _operation(entry):  # type: (Dict[str, Any]) -> str
    """What was called: gloo records a reduce_scatter as the all_reduce that it makes of it."""
    name = str(entry["profiling_name"].partition(":")[2])
    frames = entry.get("frames") or []
    scatters = any(str(frame["name"]).startswith("reduce_scatter") for frame in frames)
    return "reduce_scatter" if scatters and name == "all_reduce" else name


def _place(frames):  # type: (List[Dict[str, Any]]) -> str
    """The innermost frame outside of libraries."""
    for frame in frames:
        if not any(part in frame["filename"] for part in _LIBRARIES):
            return "%s:%d" % (frame["filename"].rpartition("/")[2], frame["line"])
    return ""


def _profile(question):  # type: (Dict[str, Any]) -> Dict[str, Any]
    import allranks_profile  # type: ignore[import-not-found] # lazy: beside this file

    return dict(allranks_profile.profile(question))


_DO = {"collectives": collectives, "pace": pace, "profile": _profile}  # type: Dict[str, Any]
