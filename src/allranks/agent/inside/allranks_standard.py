"""Imports Python's own modules, whatever names the modules in a user's folder have.

A script's own `http.py` or `inspect.py` comes before Python's. So it must for the script, not for
what is ours in its process, or runs it. For any Python from 3.7 on; it imports only what every
Python has imported as it starts.

    with standard_modules():
        import json
"""

import os
import sys
from _frozen_importlib_external import PathFinder
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Set


def _absolute(path, absolute=os.path.abspath):  # type: (str, Any) -> str
    try:
        return str(absolute(path))
    except OSError:  # the working folder is gone
        return path


_OWN = os.path.dirname(os.__file__)
_PATH = [_OWN] + [path for path in sys.path if os.path.basename(path) == "lib-dynload"]
# Where Python looks first, which it says only after `sitecustomize` has run.
_program = (getattr(sys, "argv", None) or [""])[0]
_FIRST = "" if _program in ("-c", "-m") else os.path.dirname(_absolute(_program, os.path.realpath))
# Modules that are imported because of us.
_ours = set()  # type: Set[str]


class standard_modules(object):
    """While it lasts, this thread's imports find Python's own modules first; other threads go on as
    ever. If it ``gives_way``, the user's modules come first again afterwards."""

    def __init__(self, gives_way=True):  # type: (bool) -> None
        self._gives_way = gives_way

    def __enter__(self):  # type: () -> None
        self._thread = get_ident()
        self._users = {}  # type: Dict[str, Any]
        names = {name.partition(".")[0] for name in list(sys.modules)} - {"__main__"}
        folders = _users_folders()
        for name in names:
            file = getattr(sys.modules.get(name), "__file__", None) or ""
            is_users = file and not {file, os.path.dirname(file)}.isdisjoint(
                os.path.join(folder, name + tail) for folder in folders for tail in ("", ".py")
            )
            if is_users and _is_in(name, _PATH):
                self._users.update(_remove(name))
        self._before = set(sys.modules)
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):  # type: (str, Any, Any) -> Any
        if path is not None or get_ident() != self._thread or not _is_in(name, _PATH):
            return None
        return PathFinder.find_spec(name, _PATH)

    def __exit__(self, *_):  # type: (Any) -> None
        sys.meta_path.remove(self)
        added = {name.partition(".")[0] for name in sys.modules} - self._before
        _ours.update(added)
        if self._gives_way:
            give_way(added)
        sys.modules.update(self._users)


def give_way(names=_ours):  # type: (Iterable[str]) -> None
    """Let the user's folders come first again where Python's own modules were imported for us: a
    program of ours calls it before it runs the user's script."""
    folders = _users_folders()
    for name in list(names):
        if _is_in(name, _PATH) and _is_in(name, folders):
            _remove(name)


def _users_folders():  # type: () -> List[str]
    """Where modules come from before Python's own."""
    paths = [_absolute(path) for path in sys.path]
    return [_absolute(_FIRST), *paths[: paths.index(_OWN) if _OWN in paths else 0]]


def _is_in(name, folders):  # type: (str, List[str]) -> bool
    spec = PathFinder.find_spec(name, folders)
    return spec is not None and spec.loader is not None  # no folder without a module


def _remove(name):  # type: (str) -> Dict[str, Any]
    """Forget a module and those in it."""
    names = [other for other in list(sys.modules) if (other + ".").startswith(name + ".")]
    return {other: sys.modules.pop(other) for other in names}
