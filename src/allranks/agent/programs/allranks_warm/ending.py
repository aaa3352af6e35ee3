"""What a rank does at Python's end with the modules that it found imported.

Python's end sets all names of all modules to None. In a fork this writes to most pages that it
shares with the server, and the kernel copies each: for torch 100 MB, longer than a short script
runs. C++'s end does the same once more. Nobody can see it, unless something with a finalizer is
still there. So a rank looks, at the moment when Python would begin with these modules: the script's
own objects and modules have gone then. If these modules hold no such thing, they stay as they are,
and the kernel takes their memory. Otherwise they end as in a Python started cold.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
import types
import weakref
from collections.abc import Callable

# Libraries that only free memory at the end of a process. Others may have to write something.
_ONLY_FREE = re.compile(
    r".*/(?:lib-dynload/[^/]+|(?:site|dist)-packages/(?:torch|functorch|numpy|numpy\.libs)/.+"
    r"|(?:ld-linux[\w-]*|libc|libm|libdl|librt|libpthread|libutil|libgcc_s|libstdc\+\+|libgomp"
    r"|libz|libbz2|liblzma|libffi|libssl|libcrypto|libuuid|libexpat|libpython[\d.]*)"
    r"(?:[.-][\d.]+)?\.so[\d.]*)"
)
_LIBRARY = re.compile(r"\.so(\.\d+)*$")
_FUNCTIONS = (types.FunctionType, type(None))


class Ending:
    """Makes two modules that are in ``sys.modules`` only for what is called when Python drops
    their names: ``_first`` before all modules that are imported from now on, ``_last`` after those
    that ``settle`` finds."""

    def __init__(self) -> None:
        self._modules = sys.modules
        self._before = {id(each) for each in gc.get_objects() if _has_finalizer(each)}
        self._warm: dict[str, types.ModuleType] = {}
        self._libraries = set[str]()
        self._finalizers = False
        self._last = types.ModuleType("allranks_warm.last")
        first = types.ModuleType("allranks_warm.first")
        first.__dict__["when_dropped"] = _WhenDropped(self._hide)
        self._modules[first.__name__] = first
        self._early = frozenset(self._modules)

    def settle(self) -> None:
        """Take on all modules imported so far. Call it before ``gc.freeze``."""
        found = (each for each in gc.get_objects() if id(each) not in self._before)
        # A file of their own, for example: what the script writes there has to arrive.
        self._finalizers = self._finalizers or any(map(_has_finalizer, found))
        self._libraries = _libraries()
        self._modules.pop(self._last.__name__, None)
        self._warm.clear()
        for name, module in self._modules.items():
            if isinstance(module, types.ModuleType) and name not in self._early:
                self._warm[name] = module
        self._last.__dict__["when_dropped"] = _WhenDropped(self._decide)
        self._modules[self._last.__name__] = self._last
        # Frozen, a cycle keeps all of this to the end.
        self._me = self

    def _hide(self) -> None:
        """Do to ``sys.modules`` what Python does, but let it not see these modules afterwards."""
        if sys.is_finalizing():
            for name, module in self._warm.items():
                if self._modules.get(name) is module:
                    self._modules[name] = None  # type: ignore[assignment]

    def _decide(self) -> None:
        if not sys.is_finalizing():
            return
        if self._finalizers or _left(_has_finalizer):
            gc.unfreeze()  # cycles with one are collected, too
            self._end()
        elif _left(_is_of_cpp):
            self._end()
        elif not os.environ.get("LD_PRELOAD"):
            self._leave_out_exit_handlers()

    def _end(self) -> None:
        """Do to the modules what Python does."""
        left = [weakref.ref(module) for module in self._warm.values()]
        for name in [*self._warm]:
            del self._warm[name]
        gc.collect()
        for each in reversed(left):
            if (module := each()) is not None:
                _clear(module.__dict__)

    def _leave_out_exit_handlers(self) -> None:
        """Have exit(3) leave out the destructors of libraries, if all of them only free memory."""
        now, libc = _libraries(), ctypes.CDLL(None)
        if now != self._libraries or not all(map(_ONLY_FREE.fullmatch, now)):
            return
        if hasattr(libc, "on_exit"):  # not in every C library
            libc.on_exit(libc._exit, None)
            # The last registered comes first.
            libc["__cxa_atexit"](libc.fflush, None, None)


class _WhenDropped:
    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __del__(self) -> None:
        self._call()


def _left(what: Callable[[object], bool]) -> bool:
    """Whether such an object is left that was made since the fork."""
    left = gc.get_objects()  # without the frozen ones
    return any(map(what, left)) or any(map(what, gc.get_referents(*left)))


def _has_finalizer(thing: object) -> bool:
    """Whether somebody can see how it ends. A file or connection of C needs no `__del__`."""
    kind = type(thing)
    if kind is _WhenDropped:
        return False
    return hasattr(kind, "__del__") or not isinstance(getattr(kind, "close", None), _FUNCTIONS)


def _is_of_cpp(thing: object) -> bool:
    """Whether it is an object of C++, which may run threads: a process group of torch does."""
    return type(type(thing)).__name__ == "pybind11_type"


def _clear(names: dict[str, object]) -> None:
    """Set a module's names to None, in Python's order."""
    private = [name for name in names if name[:1] == "_" and name[1:2] != "_"]
    rest = [name for name in names if name != "__builtins__" and name not in {*private}]
    for name in (*private, *rest):
        names[name] = None


def _libraries() -> set[str]:
    """The mapped libraries. Python's end has no ``open`` any more."""
    maps, text = os.open("/proc/self/maps", os.O_RDONLY), b""
    while part := os.read(maps, 1 << 20):
        text += part
    os.close(maps)
    lines = os.fsdecode(text).split("\n")
    paths = {line[line.index("/") :] for line in lines if "/" in line}
    return {path for path in paths if _LIBRARY.search(path)}
