"""What a rank does at Python's end with the modules that it found imported.

Python's end sets all names of all modules to None. In a fork this writes to most pages that it
shares with the server, and the kernel copies each: for torch 100 MB, longer than a short script
runs. C++'s end does the same once more. Nobody can see it, unless something with a finalizer is
still there. So a rank looks, at the moment when Python would begin with these modules: the script's
own objects and modules have gone then. If these modules hold no such thing, they stay as they are,
and the kernel takes their memory. Otherwise they end as in a Python started cold.

CPython ends the modules (finalize_modules in pylifecycle.c) after threads and ``atexit``:
1. It sets each entry of ``sys.modules`` to None, in order, and remembers the module weakly.
   A module that nothing else holds ends here.
2. It collects cycles.
3. It sets the names of the remembered modules that are still there to None, the last one first.
4. It does the same to ``sys`` and ``builtins``, and exit(3) then calls the exit handlers of C.
"""

from __future__ import annotations

import contextlib
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
# What a class is, whatever its metaclass answers.
_MRO = type.__dict__["__mro__"].__get__
_NAMES = type.__dict__["__dict__"].__get__
_NAME = type.__dict__["__name__"].__get__


class Ending:
    """Makes two modules that are in ``sys.modules`` only for what is called when Python drops
    their names: one before all modules that are imported from now on, for step 1, and ``_last``
    after those that ``freeze`` finds, for step 3."""

    def __init__(self) -> None:
        self._modules = sys.modules
        self._before = {id(obj) for obj in gc.get_objects() if _has_finalizer(type(obj))}
        self._warm: dict[str, types.ModuleType] = {}
        self._libraries = set[str]()
        self._finalizers = False
        self._not_frozen: list[object] = []
        self._last = types.ModuleType("allranks_warm.last")
        self._last.__dict__["when_dropped"] = _WhenDropped(self._end_or_skip)
        first = types.ModuleType("allranks_warm.first")
        first.__dict__["when_dropped"] = _WhenDropped(self._hide_warm_modules)
        self._modules[first.__name__] = first
        self._early = frozenset(self._modules)

    def freeze(self) -> None:
        """Take on all modules imported so far, and let no collection write to their memory."""
        new = (obj for obj in gc.get_objects() if id(obj) not in self._before)
        # A file of their own, for example: what the script writes there has to arrive.
        self._finalizers = self._finalizers or any(map(_has_finalizer, map(type, new)))
        self._libraries = _libraries()
        self._modules.pop(self._last.__name__, None)
        self._warm.clear()
        for name, module in self._modules.items():
            if isinstance(module, types.ModuleType) and name not in self._early:
                self._warm[name] = module
        self._modules[self._last.__name__] = self._last
        self._me = self  # A reference cycle in frozen memory is never collected.
        gc.freeze()
        self._not_frozen = []

    def _hide_warm_modules(self) -> None:
        """In step 1, set their entries to None before Python can remember them."""
        if not sys.is_finalizing() or self._modules.get(self._last.__name__) is not self._last:
            self._give_up()
        for name, module in self._warm.items():
            if self._modules.get(name) is module:
                self._modules[name] = None  # type: ignore[assignment]

    def _end_or_skip(self) -> None:
        """In step 3, do to them what Python would do now, or nothing."""
        if not sys.is_finalizing():
            self._give_up()
        if not self._warm:
            return
        finalizers = cpp = True
        with contextlib.suppress(BaseException):  # what cannot be told is taken for true
            finalizers, cpp = self._look_at_new_objects()
        if finalizers:
            gc.unfreeze()  # cycles with one are collected, too
        if finalizers or cpp:
            self._end()
        else:
            with contextlib.suppress(BaseException):
                self._leave_out_exit_handlers()

    def _give_up(self) -> None:
        """Leave all to Python: the script has taken our modules out of ``sys.modules``."""
        self._warm.clear()
        gc.unfreeze()

    def _look_at_new_objects(self) -> tuple[bool, bool]:
        """Whether objects that were made since the fork have finalizers, and are of C++."""
        new = gc.get_objects()  # without the frozen ones
        # If the script has frozen its objects, they cannot be told from ours.
        frozen = id(self._not_frozen) not in map(id, new)
        kinds = {id(kind): kind for kind in map(type, (*new, *gc.get_referents(*new)))}.values()
        finalizers = self._finalizers or frozen or any(map(_has_finalizer, kinds))
        return finalizers, any(map(_is_of_cpp, kinds))

    def _end(self) -> None:
        left = [weakref.ref(module) for module in self._warm.values()]
        for name in [*self._warm]:
            del self._warm[name]
        gc.collect()
        for reference in reversed(left):
            if (module := reference()) is not None:
                _clear(module.__dict__)

    def _leave_out_exit_handlers(self) -> None:
        """Have exit(3) leave out the destructors of libraries, if all of them only free memory."""
        now = _libraries()
        libc = ctypes.CDLL(None)
        if os.environ.get("LD_PRELOAD") or not now or now != self._libraries:
            return
        # on_exit is not in every C library.
        if all(map(_ONLY_FREE.fullmatch, now)) and hasattr(libc, "on_exit"):
            libc.on_exit(libc._exit, None)
            # The last registered comes first.
            libc["__cxa_atexit"](libc.fflush, None, None)


class _WhenDropped:
    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __del__(self) -> None:
        self._call()


def _has_finalizer(kind: type) -> bool:
    """Whether somebody can see how its objects end. A file or connection of C needs no
    `__del__`."""
    if kind is _WhenDropped:
        return False
    names = [_NAMES(base) for base in _MRO(kind)]
    return any("__del__" in name or type(name.get("close")) not in _FUNCTIONS for name in names)


def _is_of_cpp(kind: type) -> bool:
    """Whether its objects are of C++ and may run threads: a process group of torch does."""
    return bool(_NAME(type(kind)) == "pybind11_type")


def _clear(names: dict[str, object]) -> None:
    """Set a module's names to None, in Python's order. Scripts may put in other keys."""
    texts = [name for name in names if isinstance(name, str) and name != "__builtins__"]
    private = [name for name in texts if name[:1] == "_" and name[1:2] != "_"]
    for name in [*private, *texts]:
        names[name] = None


def _libraries() -> set[str]:
    """The mapped libraries, none if nobody can tell. Python's end has no ``open`` any more."""
    text = b""
    try:
        maps = os.open("/proc/self/maps", os.O_RDONLY)
        while part := os.read(maps, 1 << 20):
            text += part
        os.close(maps)
    except OSError:  # no more descriptors, or another root folder
        return set()
    lines = os.fsdecode(text).split("\n")
    paths = {line[line.index("/") :] for line in lines if "/" in line}
    return {path for path in paths if _LIBRARY.search(path)}
