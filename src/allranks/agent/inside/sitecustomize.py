"""Runs as every Python of a job starts: lets it tell where it is when the agent asks.

The agent asks by two signals whose default is to be ignored and that hardly anybody uses: a program
that has taken the place of the Python which was looked at a moment ago takes no harm. What answers
writes into a file without a name, which `agent/monitoring/stacks.py` reads through /proc:

SIGURG    faulthandler, at once and even from within C code: the stack of the thread that takes the
          signal, the first one. Of that one alone: telling of others without the interpreter's lock
          ends processes whose threads come and go by SIGSEGV (Python 3.11, within ten questions).
SIGWINCH  `_answer`, as soon as the first thread runs Python again: all threads. So it is known,
          too, whether it did.

Neither breaks a system call off that can go on (SA_RESTART): C code that reads from a disk over the
network would take that for an error. Hence two signals: a faulthandler that hands on does.

Nothing here may print, raise, or do anything that a script could notice. Any Python runs it, those
before 3.7 without effect: hence its syntax.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Optional


def _begin():  # type: () -> None
    """In every process anew: a forked one would write into its parent's file."""
    global _file
    try:
        import _signal  # type: ignore[import-not-found] # lazy: `signal` itself imports `enum`
        import faulthandler  # lazy: old Pythons have none

        if _file < 0:
            _import_standard()
        import fcntl  # lazy: as above

        try:
            file = os.memfd_create("allranks-stacks")
        except (AttributeError, OSError):  # a Python built against an old C library
            folder = os.environ.get("TMPDIR") or "/tmp"
            path = os.path.join(folder, "allranks-stacks-%d" % os.getpid())
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.unlink(path)
        try:
            # Not among the first numbers, which scripts and libraries have plans for.
            fd = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 200)
            os.close(file)
        except OSError:
            fd = file
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
        faulthandler.register(_signal.SIGURG, fd, all_threads=False, chain=False)
        if _file < 0:
            _signal.signal(_signal.SIGWINCH, _answer)
            _signal.siginterrupt(_signal.SIGWINCH, False)
        if _file >= 0:
            os.close(_file)
        _file = fd
    except Exception:
        pass


def _import_standard():  # type: () -> None
    """Import what is Python's own, where a module on PYTHONPATH, or that `-m` finds, could be taken
    for it."""
    runs_module = "-m" in getattr(sys, "orig_argv", sys.argv)
    if runs_module or ":" in os.environ.get("PYTHONPATH", ""):
        import allranks_standard  # type: ignore[import-not-found,unused-ignore] # lazy: beside this file

        with allranks_standard.standard_modules(gives_way=False):
            import fcntl  # lazy: as above

            if runs_module:
                import runpy  # lazy: Python imports it when the user's folder is first


def _answer(number, frame):  # type: (int, Optional[FrameType]) -> None
    global _answering
    if _answering:
        return
    _answering = True
    try:
        profiler = sys.modules.get("allranks_profile")
        if profiler is not None:
            profiler.run_tasks()
        if os.pread(_file, 7, 0) == b"listen\n":
            import allranks_inspect  # type: ignore[import-not-found,unused-ignore] # lazy: as above

            allranks_inspect.listen(True)
        lines = ["answered\n"]
        # The names without a lock: who holds it may be what everybody waits for.
        active = getattr(sys.modules.get("threading"), "_active", {})
        for ident, top in sys._current_frames().items():
            if top.f_code is _answer.__code__ or top.f_code.co_filename.startswith(_OURS):
                continue
            current = top  # type: Optional[FrameType]
            name = getattr(active.get(ident), "name", "")
            lines.append('Thread "%s" (most recent call first):\n' % str(name).replace('"', "'"))
            count = 0
            while current is not None and count < 100:
                code = current.f_code
                where = (code.co_filename, current.f_lineno or 0, code.co_name)
                lines.append('  File "%s", line %d in %s\n' % where)
                current, count = current.f_back, count + 1
        lines.append("whole\n")
        os.write(_file, "".join(lines).encode("utf-8", "backslashreplace"))
    except Exception:
        pass
    finally:
        _answering = False


def _next():  # type: () -> None
    """Run what this file stands in front of, as what it is called."""
    try:
        import _frozen_importlib  # lazy: not in Python 2; `importlib.util` takes milliseconds
        import _frozen_importlib_external  # lazy: as above
    except ImportError:
        return
    here = os.path.dirname(os.path.abspath(__file__))
    paths = [os.path.abspath(path) for path in sys.path]
    rest = sys.path[paths.index(here) + 1 :] if here in paths else []
    spec = _frozen_importlib_external.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = _frozen_importlib.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class _Azure(object):
    """Answers imports of Azure ML's packages, when nothing else does. After all other finders."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name.partition(".")[0] not in ("azure", "azureml"):
            return None
        try:
            import azure_imports  # type: ignore[import-not-found] # lazy: beside this file
        except ImportError:
            return None
        return azure_imports.find_spec(name)


class _Torch(object):
    """Lets a process that joins a group of `torch.distributed` tell of its collectives."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != "torch.distributed.distributed_c10d":
            return None
        sys.meta_path.remove(self)
        try:
            from importlib.util import find_spec  # lazy: torch has imported it

            spec = find_spec(name)
            if spec is not None and spec.loader is not None:
                run = spec.loader.exec_module

                def exec_module(module):  # type: ignore[no-untyped-def]
                    run(module)
                    _listen_in_groups(module)

                spec.loader.exec_module = exec_module  # type: ignore[method-assign]
            return spec
        except Exception:
            return None


def _listen_in_groups(c10d):  # type: (Any) -> None
    update = getattr(c10d, "_update_default_pg", None)
    if update is None:  # before torch 2.0
        return
    version = str(getattr(sys.modules.get("torch"), "__version__", "")).split(".")
    if version[0] == "2" and version[1] in tuple("2345678"):
        # These record nothing unless this says so; later ones call the name deprecated.
        os.environ.setdefault("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000")

    def update_and_listen(group):  # type: ignore[no-untyped-def]
        update(group)
        if group is not None:
            try:
                import allranks_inspect  # type: ignore[import-not-found,unused-ignore] # lazy: beside this file

                allranks_inspect.listen()
                allranks_inspect.leave_note()
            except Exception:
                pass

    c10d._update_default_pg = update_and_listen


# The files of threads of ours, which no stack shows.
_HERE = os.path.dirname(__file__)
_OURS = tuple(os.path.join(_HERE, "allranks_%s.py" % name) for name in ("inspect", "profile"))
_file, _answering = -1, False
if hasattr(os, "register_at_fork"):
    _begin()
    os.register_at_fork(after_in_child=_begin)
    sys.meta_path.append(_Azure())
    if os.environ.get("TORCH_FR_BUFFER_SIZE") != "0":
        sys.meta_path.insert(0, _Torch())
    if "ALLRANKS_IMPORTS" in os.environ:
        try:
            import allranks_imports  # type: ignore[import-not-found] # lazy: beside this file

            allranks_imports.use_copies()
        except Exception:
            pass
    _leaving = os.environ.get("ALLRANKS_LEAVING")
    if _leaving:
        with open(_leaving, "rb") as _text:
            exec(compile(_text.read(), _leaving, "exec"), {"__name__": "leaving"})
    if "ALLRANKS_HOLD" in os.environ:
        try:
            import allranks_hold  # type: ignore[import-not-found] # lazy: beside this file

            allranks_hold.install()
        except Exception:
            pass
_next()
