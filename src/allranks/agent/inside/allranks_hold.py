"""Keeps a failed Python of a job as it is, for a debugger. `sitecustomize` installs it in jobs with
`on_failure`.

    rank ── connects ──▶ FOLDER/agent: {"pid": …, "code": …, "what": …}
         ◀── "hold" ───  or closed: the process ends as ever; closed later, too
         ◀── connects ─  FOLDER/PID: `allranks_debug.py` passes its terminal, and pdb runs on it

A process asks only when its end is certain: in the excepthook, before Python ends after a
`sys.exit`, and in `os._exit`. It is the first Python below the rank's shell, or a worker that
torch's launcher or `spawn` has started and that ends its rank. Other processes end as ever. A
DataLoader's worker, whose exception is raised anew in the rank, keeps its own frames besides.

For Pythons since 3.8; in others nothing is held.
"""

from __future__ import annotations

import os
import sys

from allranks_standard import standard_modules  # type: ignore[import-not-found,unused-ignore]

with standard_modules():
    import atexit
    import collections
    import contextlib
    import json
    import select
    import socket
    import threading
    from multiprocessing.process import BaseProcess
    from typing import Any, Callable, Dict, List, Optional

# The most frames of a stack that are told.
_DEEP = 100
# In the environment of what a Python that may ask has started: its process id, and whether it is a
# worker of torch's launcher.
_OWNER = "ALLRANKS_HOLD_OWNER"
# The process that may ask, and has not; a fork of it may not.
_pid = 0
_rank = _folder = ""
_bootstrap_as_ever = BaseProcess._bootstrap  # type: ignore[attr-defined]

# Where a process failed: an exception, or the frame that called an exit. Not of typing, which from
# Python 3.14 on imports modules for it that a user's folder may have.
Point = collections.namedtuple("Point", ["what", "error", "frame"], defaults=(None, None))

# The exceptions that ended threads, and the last exit.
_in_threads: List[BaseException] = []
_exits: List[Any] = []


def install() -> None:
    """Hook the ends of this process, if its failure is that of its rank."""
    global _rank, _folder
    _rank, _, _folder = os.environ["ALLRANKS_HOLD"].partition(":")
    BaseProcess._bootstrap = _bootstrap  # type: ignore[attr-defined]
    owner, _, elastic = os.environ.get(_OWNER, "").partition("+")
    is_worker = "TORCHELASTIC_RUN_ID" in os.environ
    restarts = (
        os.environ.get(f"TORCHELASTIC_{name}") for name in ("RESTART_COUNT", "MAX_RESTARTS")
    )
    is_last = is_worker and not elastic and len({*restarts}) == 1
    if owner in ("", str(os.getpid())) or is_last:
        os.environ[_OWNER] = f"{os.getpid()}+{'worker' if is_worker else ''}"
        _hook()


def _hook() -> None:
    global _pid
    _pid = os.getpid()
    shown, shown_of_thread, at_once = sys.excepthook, threading.excepthook, os._exit

    def excepthook(kind: Any, error: BaseException, trace: Any) -> None:
        shown(kind, error, trace)
        if isinstance(error, KeyboardInterrupt) and _in_threads:
            error = _in_threads[-1]
        elif trace is not error.__traceback__:
            error = error.with_traceback(trace)
        _hold(Point(_text(error), error), 1)

    def of_thread(args: Any) -> None:
        if os.getpid() == _pid and args.exc_value is not None and args.exc_type is not SystemExit:
            _in_threads[:] = [args.exc_value]
        shown_of_thread(args)

    def exit_at_once(status: int) -> None:
        if status and os.getpid() == _pid:
            error = sys.exc_info()[1] or (_in_threads[-1] if _in_threads else None)
            _hold(_exit_point(f"os._exit({status})", error, sys._getframe(1)), status)
        at_once(status)

    def leave(code: object = None, *, frames: int = 1) -> None:
        if not _exits:
            atexit.register(_at_exit)  # now: the last one to be registered is the first to run
        error = SystemExit() if code is None else SystemExit(code)
        _exits[:] = [error, sys.exc_info()[1], sys._getframe(frames)]
        raise error

    sys.excepthook, threading.excepthook = excepthook, of_thread
    sys.exit, os._exit = leave, exit_at_once  # type: ignore[assignment]
    with contextlib.suppress(ImportError):
        import _sitebuiltins  # lazy: not with -S

        quitter: Any = _sitebuiltins.Quitter
        quitter.__call__ = lambda self, code=None: leave(code, frames=2)
    atexit.register(_at_exit)


def _at_exit() -> None:
    """Hold after an exit with an error, or an exception that a hook of the script's has shown."""
    if os.getpid() != _pid:
        return
    error = getattr(sys, "last_value", None)
    if error is not None and error.__traceback__ is not None:
        _hold(Point(_text(error), error), 1)
    elif _exits:
        left, cause, frame = _exits
        trace, code = left.__traceback__, left.code
        # Where it was caught and the program went on, its outermost frame is not where it left it.
        # Before Python 3.12 one that nobody caught has no traceback at all.
        went_on = trace is not None and trace.tb_frame.f_lasti != trace.tb_lasti
        status = code & 0xFF if isinstance(code, int) else int(code is not None)
        if status and not went_on:
            cause = cause or (_in_threads[-1] if _in_threads else None)
            _hold(_exit_point(f"sys.exit({code!r})", cause, frame), status)


def _exit_point(call: str, cause: Optional[BaseException], frame: Any) -> Point:
    """After an exception the point is where that was raised, else the call."""
    if cause is None or cause.__traceback__ is None:
        return Point(call, frame=frame)
    return Point(f"{_text(cause)} (then {call})", cause)


def _text(error: BaseException) -> str:
    with contextlib.suppress(Exception):
        return f"{type(error).__name__}: {error}"[:300].split("\n")[0]
    return type(error).__name__


def _hold(point: Point, code: int) -> None:
    """Stay until the agent lets go, if it keeps this process. Once."""
    global _pid
    if os.getpid() != _pid:
        return
    _pid = 0
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or None
            stream.flush()
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as agent:
        _in_folder("agent", agent.connect)
        with _listener(point, "") as listener:
            about = {"rank": int(_rank), "pid": os.getpid(), "code": code, "what": point.what}
            agent.sendall(json.dumps(about).encode() + b"\n")
            if _answer(agent) == b"hold":
                _serve(listener, point, agent)


def _answer(agent: socket.socket) -> bytes:
    while True:
        try:
            return agent.recv(8)
        except OSError:  # the agent is gone
            return b""
        except (Exception, KeyboardInterrupt):  # a handler of a signal raised it: the script's
            continue


def _frames(point: Point) -> List[Any]:
    """File, line and function of the frames where it failed, the innermost first."""
    frames: List[Any] = []
    frame, trace = point.frame, point.error.__traceback__ if point.error is not None else None
    while frame is not None:
        frames.append([frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name])
        frame = frame.f_back
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.insert(0, [code.co_filename, trace.tb_lineno, code.co_name])
        trace = trace.tb_next
    return frames[:_DEEP]


def _in_folder(name: str, call: Callable[[str], None]) -> None:
    """Call with a short path of that file: those of sockets have at most 107 bytes."""
    folder = os.open(_folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        call(f"/proc/self/fd/{folder}/{name}")
    finally:
        os.close(folder)


def _listener(point: Point, worker: str) -> socket.socket:
    """Where debuggers connect, and beside it a file that says who is there."""
    name = str(os.getpid())
    listener = socket.socket(socket.AF_UNIX)
    _in_folder(name, listener.bind)
    listener.listen(4)
    about = {"rank": int(_rank), "pid": os.getpid(), "what": point.what, "worker": worker}
    path = os.path.join(_folder, name)
    with open(f"{path}.new", "w") as file:
        json.dump({**about, "python": sys.executable, "frames": _frames(point)}, file)
    os.replace(f"{path}.new", f"{path}.json")
    return listener


def _serve(
    listener: socket.socket, point: Point, agent: Optional[socket.socket], worker: str = ""
) -> None:
    """Let debuggers in, one after the other, until the agent lets go."""
    poll = select.poll()
    for end in (listener, agent):
        if end is not None:
            poll.register(end, select.POLLIN)
    while True:
        try:
            if [fd for fd, _ in poll.poll() if fd != listener.fileno()]:
                return
            connection, _ = listener.accept()
        except OSError:  # the script has closed all descriptors
            return
        except (Exception, KeyboardInterrupt):  # as above
            continue
        with connection, contextlib.suppress(Exception, KeyboardInterrupt):
            _debug(connection, point, worker)


def _debug(connection: socket.socket, point: Point, worker: str) -> None:
    """Run pdb at that point, with the input and the output that come through the connection."""
    data, ancillary, _, _ = connection.recvmsg(4096, socket.CMSG_SPACE(8))
    streams = memoryview(ancillary[0][2]).cast("i").tolist()
    try:
        os.environ["TERM"] = json.loads(data)["term"]
        # The first thread takes Ctrl-C, and that of a worker does not run pdb.
        connection.sendall(b"worker\n" if worker else b"begin\n")
        with _streams(streams):
            _pdb(point)
        connection.sendall(b"end\n")
    finally:
        for fd in streams:
            os.close(fd)


@contextlib.contextmanager
def _streams(replaced: List[int]) -> Any:
    """Python edits lines only where its own first descriptors are a terminal."""
    kept: Dict[int, int] = {}
    for fd in (0, 1):
        with contextlib.suppress(OSError):  # the script has closed it
            kept[fd] = os.dup(fd)
        os.dup2(replaced[fd], fd)
    streams = sys.stdin, sys.stdout
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the terminal may be gone
            sys.stdout.flush()
        sys.stdin, sys.stdout = streams
        for fd in (0, 1):
            if fd in kept:
                os.dup2(kept[fd], fd)
                os.close(kept[fd])
            else:
                os.close(fd)


def _pdb(point: Point) -> None:
    with standard_modules():  # to its end: pdb imports more as it goes on
        import pdb  # lazy: few failures are debugged

        print(point.what)
        debugger = pdb.Pdb(nosigint=True)
        debugger.reset()
        failed: Any = point.error
        if failed is not None and sys.version_info < (3, 13):
            failed = failed.__traceback__
        try:
            debugger.interaction(point.frame, failed)
        finally:
            sys.settrace(None)


# ---------------------------------------------------------------- processes below a rank


def _bootstrap(process: Any, *args: Any, **kwargs: Any) -> Any:
    """In a process of `multiprocessing`, before it runs what it was made for."""
    carrier = getattr(sys.modules.get("torch._utils"), "ExceptionWrapper", None)
    if carrier is not None:
        _keep_carried(carrier)
    run = process.run
    process.run = lambda: _run(run)
    return _bootstrap_as_ever(process, *args, **kwargs)


def _keep_carried(carrier: Any) -> None:
    """Keep the frames of the first exception that a DataLoader's worker hands to its rank."""
    make = carrier.__init__

    def keep(self: Any, exc_info: Any = None, where: str = "in background") -> None:
        make(self, exc_info, where)
        error = sys.exc_info()[1] if exc_info is None else exc_info[1]
        if error is not None and carrier.__init__ is keep:
            carrier.__init__ = make
            point = Point(_text(error), error)
            serving = (_listener(point, where), point, None, where)
            threading.Thread(target=_serve, args=serving, daemon=True).start()

    carrier.__init__ = keep


def _run(run: Callable[[], None]) -> None:
    """Run it; a rank of torch's `spawn`, whose failure ends them all, is held where it failed."""
    global _pid
    try:
        run()
    except SystemExit as left:
        error, trace = left.__context__, left.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        module = "" if trace is None else trace.tb_frame.f_globals.get("__name__")
        if error is not None and left.code and module == "torch.multiprocessing.spawn":
            _pid = os.getpid()
            _hold(Point(_text(error), error), 1)
        raise
