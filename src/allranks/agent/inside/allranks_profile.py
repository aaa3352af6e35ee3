"""Profiles the Python that it runs in, for a few seconds: `allranks_inspect.py` imports it when an
agent asks. For any Python from 3.7 on.
"""

import os
import sys

from allranks_standard import standard_modules  # type: ignore[import-not-found,unused-ignore]

with standard_modules():
    import _thread
    import contextlib
    import json
    import signal
    import tempfile
    import threading
    import time

    import allranks_inspect  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

# Frames of a stack, different stacks, and bytes of a torch trace at most.
_DEEP, _STACKS, _TRACE = 80, 20000, 48 << 20
_LINES = 40
# Seconds for what the first thread has begun.
_BEGUN = 20.0

# What the first thread is to run, and when it has.
_tasks = []  # type: List[Tuple[Any, Any]]


def profile(question):  # type: (Dict[str, Any]) -> Dict[str, Any]
    """Answer a question: `kind`, `seconds`, and samples a second, `rate`."""
    kind, seconds = question["kind"], question["seconds"]
    answer = {"pid": os.getpid()}  # type: Dict[str, Any]
    stop = _start_torch(answer) if kind == "torch" else None
    answer["begin"] = begin = time.time()
    if kind == "memory":
        answer["memory"] = _memory(seconds)
    else:
        answer.update(_sample(seconds, question["rate"]))
        if stop is not None:
            stop()
    answer["seconds"] = time.time() - begin
    answer.update(_torch_facts(begin))
    return answer


def _torch_facts(begin):  # type: (float) -> Dict[str, Any]
    """The rank in torch's group, and the collectives of the window."""
    if "torch.distributed.distributed_c10d" not in sys.modules:
        return {}
    try:
        recorded = allranks_inspect.collectives(_of_group=2000)
    except Exception:
        return {}
    recorded["entries"] = [entry for entry in recorded["entries"] if entry["since"] >= begin]
    return {"collectives": recorded}


# ---------------------------------------------------------------- samples


def _sample(seconds, rate):  # type: (float, float) -> Dict[str, Any]
    """All threads' stacks at each moment, with the processor time since the last one."""
    frames, stacks = {}, {}  # type: Dict[Any, int], Dict[Any, int]
    threads = {}  # type: Dict[int, Dict[str, Any]]
    me, step = _thread.get_ident(), 1.0 / rate
    start = due = time.perf_counter()
    native = _native()
    waited = start_waited = _waited(os.getpid())
    own = threading.get_native_id() if hasattr(threading, "get_native_id") else os.getpid()
    lock, moments = 0.0, 0
    while True:
        now = time.perf_counter()
        if now - start >= seconds or allranks_inspect.is_stopped():
            break
        active = dict(getattr(threading, "_active", {}))
        for ident, top in list(sys._current_frames().items()):
            if ident == me or len(stacks) > _STACKS:
                continue
            thread = threads.get(ident)
            if thread is None:
                name = getattr(active.get(ident), "name", None) or "thread %d" % len(threads)
                is_main = ident == threading.main_thread().ident
                thread = {"name": name, "main": is_main, "at": [], "stacks": [], "cpu": []}
                thread["waited"] = []
                thread["clock"] = _clock(ident)
                thread["last"] = _cpu(thread["clock"])
                threads[ident] = thread
            used = _cpu(thread["clock"])
            thread["at"].append(round(now - start, 4))
            thread["cpu"].append(round(max(0.0, used - thread["last"]), 5))
            thread["last"] = used
            if thread["main"]:
                before, waited = waited, _waited(os.getpid())
                thread["waited"].append(round(waited - before, 5))
            thread["stacks"].append(_number(stacks, _stack(top, frames)))
        due = max(due + step, time.perf_counter() + step / 10)
        own_waited = _waited(own)
        time.sleep(max(0.0, due - time.perf_counter()))
        # Later than it was scheduled, it waited for the interpreter's lock.
        late = time.perf_counter() - due
        lock += max(0.0, late - (_waited(own) - own_waited))
        moments += 1
    kept = []
    for thread in threads.values():
        del thread["clock"], thread["last"]
        kept.append(thread)
    return {
        "frames": [list(frame) for frame in frames],
        "stacks": [list(stack) for stack in stacks],
        "threads": kept,
        "waited": _waited(os.getpid()) - start_waited,
        "native": _used_since(native),
        "lock": lock / max(1, moments),
    }


def _stack(top, frames):  # type: (Any, Dict[Any, int]) -> Tuple[int, ...]
    """The numbers of its frames, from the outermost; with the names of asyncio's tasks."""
    numbers = []  # type: List[int]
    frame = top
    while frame is not None and len(numbers) < _DEEP:
        code = frame.f_code
        numbers.append(_number(frames, (code.co_filename, frame.f_lineno or 0, code.co_name)))
        if code.co_name == "_run" and code.co_filename.endswith("asyncio/events.py"):
            task = _task()
            if task:
                numbers.append(_number(frames, ("<asyncio>", 0, task)))
        frame = frame.f_back
    return tuple(numbers[::-1])


def _task():  # type: () -> str
    asyncio = sys.modules.get("asyncio.tasks")  # type: Any
    for task in list(getattr(asyncio, "_current_tasks", {}).values()):
        if hasattr(task, "get_name"):
            return "task " + str(task.get_name())
    return ""


def _number(table, key):  # type: (Dict[Any, int], Any) -> int
    return table.setdefault(key, len(table))


def _clock(ident):  # type: (int) -> Optional[int]
    try:
        return time.pthread_getcpuclockid(ident)
    except (OSError, AttributeError):
        return None


def _cpu(clock):  # type: (Optional[int]) -> float
    if clock is None:
        return 0.0
    try:
        return time.clock_gettime(clock)
    except OSError:  # it has ended
        return 0.0


def _waited(number):  # type: (int) -> float
    """Seconds that the thread has waited for a processor."""
    return _scheduled(number)[1]


def _scheduled(number):  # type: (int) -> Tuple[float, float]
    """Seconds that the thread has run, and has waited for a processor. The first thread's number is
    the process's: what `threading` says is of before a fork."""
    try:
        with open("/proc/self/task/%d/schedstat" % number, "rb") as file:
            ran, waited = file.read().split()[:2]
        return int(ran) / 1e9, int(waited) / 1e9
    except (OSError, ValueError):
        return 0.0, 0.0


def _native():  # type: () -> Dict[int, Tuple[str, float, float]]
    """All threads but the first, also those that run no Python: their names and times."""
    threads = {}  # type: Dict[int, Tuple[str, float, float]]
    for number in map(int, os.listdir("/proc/self/task")):
        with contextlib.suppress(OSError):
            with open("/proc/self/task/%d/comm" % number, "rb") as file:
                name = file.read().decode("utf-8", "replace").strip()
            threads[number] = (name, *_scheduled(number))
    threads.pop(os.getpid(), None)
    return threads


def _used_since(before):  # type: (Dict[int, Tuple[str, float, float]]) -> List[Any]
    """Name, and seconds run and waited since then, of the threads that there are now."""
    used = []  # type: List[Any]
    for number, (name, ran, waited) in _native().items():
        _, ran_before, waited_before = before.get(number, ("", 0.0, 0.0))
        used.append([name, round(ran - ran_before, 4), round(waited - waited_before, 4)])
    return used


# ---------------------------------------------------------------- torch


def run_tasks():  # type: () -> None
    """Run what waits for the first thread; `sitecustomize` calls it there."""
    while _tasks:
        function, done = _tasks.pop()
        try:
            function()
        finally:
            done.set()


def _in_first_thread(function, patience):  # type: (Any, float) -> bool
    """Whether the first thread has run it: that runs Python now and then."""
    done = threading.Event()
    _tasks.append((function, done))
    signal.pthread_kill(threading.main_thread().ident, signal.SIGWINCH)  # type: ignore[arg-type]
    if done.wait(patience):
        return True
    try:
        _tasks.remove((function, done))
        return False
    except ValueError:  # it has begun: torch's profiler imports much, which takes long at load
        return done.wait(_BEGUN)


def _start_torch(answer):  # type: (Dict[str, Any]) -> Any
    """Start torch's profiler for all threads; return what stops it and keeps the trace."""
    torch = sys.modules.get("torch")  # type: Any
    if torch is None:
        answer["torch"] = "this process has not imported torch"
        return None
    state = {}  # type: Dict[str, Any]

    def start():  # type: () -> None
        try:
            if torch._C._autograd._profiler_enabled():
                state["error"] = "the script's own profiler is running"
                return
            kinds = [torch.profiler.ProfilerActivity.CPU]
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                kinds.append(torch.profiler.ProfilerActivity.CUDA)
            options = {}  # type: Dict[str, Any]
            with contextlib.suppress(Exception):  # before torch 2.7 it sees this thread alone
                config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
                options["experimental_config"] = config
            state["profiler"] = torch.profiler.profile(activities=kinds, **options)
            state["profiler"].start()
        except Exception as error:
            state["error"] = "%s: %s" % (type(error).__name__, error)
            state.pop("profiler", None)

    def stop():  # type: () -> None
        profiler = state.pop("profiler", None)
        if profiler is None:
            return
        try:
            profiler.stop()
            state["stopped"] = profiler
        except Exception as error:
            state["error"] = "%s: %s" % (type(error).__name__, error)

    def finish():  # type: () -> None
        if not _in_first_thread(stop, 10.0):
            stop()
        profiler = state.pop("stopped", None)
        if profiler is None or allranks_inspect.is_stopped():
            answer["torch"] = state.get("error", "the profiler did not stop")
            return
        with tempfile.TemporaryDirectory(prefix="allranks-profile-") as folder:
            path = os.path.join(folder, "trace.json")
            profiler.export_chrome_trace(path)
            if os.path.getsize(path) > _TRACE:
                answer["torch"] = "the trace has more than 48 MB: profile fewer seconds"
                return
            with open(path, "r") as file:
                answer["trace"] = json.load(file)

    if not _in_first_thread(start, 3.0):
        answer["torch"] = "its first thread runs no Python"
        return None
    if "profiler" not in state:
        answer["torch"] = state.get("error", "torch's profiler did not start")
        return None
    return finish


# ---------------------------------------------------------------- memory


def _memory(seconds):  # type: (float) -> Dict[str, Any]
    """The lines whose memory grows, the process's size, and torch's allocator of each GPU."""
    with standard_modules():
        import tracemalloc  # lazy: only when asked for

    ours = not tracemalloc.is_tracing()
    if ours:
        tracemalloc.start(1)
    try:
        before, size = tracemalloc.take_snapshot(), _resident()
        until = time.monotonic() + seconds
        while time.monotonic() < until and not allranks_inspect.is_stopped():
            time.sleep(min(0.1, max(0.0, until - time.monotonic())))
        after = tracemalloc.take_snapshot()
    finally:
        if ours:
            tracemalloc.stop()
    lines = []
    for change in after.compare_to(before, "lineno")[:_LINES]:
        frame = change.traceback[0]
        if change.size_diff > 0 and frame.filename not in (__file__, tracemalloc.__file__):
            lines.append([frame.filename, frame.lineno, change.size_diff, change.count_diff])
    answer = {"lines": lines, "resident": [size, _resident()]}  # type: Dict[str, Any]
    torch = sys.modules.get("torch")  # type: Any
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        answer["gpus"] = []
        for index in range(torch.cuda.device_count()):
            stats = torch.cuda.memory_stats(index)
            names = ("allocated_bytes", "reserved_bytes", "inactive_split_bytes")
            answer["gpus"].append({n: stats.get(n + ".all.current", 0) for n in names})
        segments = []
        for segment in torch.cuda.memory_snapshot():
            segments.append({key: segment.get(key) for key in _SEGMENT if key in segment})
        answer["segments"] = segments
    return answer


_SEGMENT = ("device", "address", "total_size", "allocated_size", "active_size", "segment_type")


def _resident():  # type: () -> int
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
