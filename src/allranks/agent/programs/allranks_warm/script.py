"""Run a script as Python does when it starts."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Mapping
from importlib import machinery
from typing import Any, NamedTuple


class Script(NamedTuple):
    """What a rank runs: ``kind`` is `file`, `module` or `code`."""

    kind: str
    target: str


def prepare_script(
    script: Script, names: Mapping[str, object]
) -> types.CodeType | Callable[[], object]:
    """Make the module `__main__` and the first entry of ``sys.path`` as Python does for this kind
    of call; ``names`` are those of a new `__main__`. Return what runs the script."""
    main = types.ModuleType("__main__")
    main.__dict__.update(names, __doc__=None)
    sys.modules["__main__"] = main
    safe = getattr(sys.flags, "safe_path", False)
    if script.kind == "file":
        path = os.path.abspath(script.target)
        main.__file__ = path
        main.__loader__ = machinery.SourceFileLoader("__main__", path)
        if not safe:
            sys.path.insert(0, os.path.dirname(os.path.realpath(script.target)))
        with open(path, "rb") as file:
            return compile(file.read(), path, "exec", dont_inherit=True)
    if not safe:
        sys.path.insert(0, os.getcwd() if script.kind == "module" else "")
    del main.__file__
    if script.kind == "code":
        del main.__cached__
        main.__loader__ = machinery.BuiltinImporter
        return compile(script.target, "<string>", "exec", dont_inherit=True)
    import runpy  # lazy: few scripts are modules

    return lambda: runpy._run_module_as_main(script.target)  # type: ignore[attr-defined]


def hide_frames(folder: str) -> None:
    """Print the traceback of an uncaught exception without the frames of files in
    ``folder``."""
    shown = sys.excepthook

    def hook(kind: Any, error: BaseException, trace: Any) -> None:
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(folder):
            trace = trace.tb_next
        sys.excepthook = shown
        shown(kind, error.with_traceback(trace), trace)

    sys.excepthook = hook
