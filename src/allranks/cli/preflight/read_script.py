"""Parse a Python script with the job's own Python and list its imports.

Runs as a file in that Python: JSON on standard input and output. The script is not executed.
Standard library only, Python 3.7 or newer.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import json
import os
import sys
import tokenize
from collections.abc import Iterator
from typing import Any

# Limits for following imports of the user's own files.
MOST_FILES = 200


def read(script: str, folder: str) -> dict[str, Any]:
    """``imports``: third-party modules with their first location and whether they are optional;
    ``missing``: those that this Python lacks."""
    places = [os.path.dirname(script), folder]
    imports: dict[str, Any] = {}
    waiting = [script]
    visited: set[str] = set()
    error = None
    while waiting and len(visited) < MOST_FILES:
        file = waiting.pop(0)
        if file in visited:
            continue
        visited.add(file)
        try:
            with tokenize.open(file) as source:
                tree = ast.parse(source.read(), file)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as wrong:
            error = error or _wrong(wrong, file, folder)
            continue
        except OSError:
            continue
        for name, level, line, needed in _imports(tree):
            local = _local(name, level, file, places)
            if local is not None:
                waiting += local
            elif name and not level:
                top = name.split(".")[0]
                if top not in imports or (needed and not imports[top]["needed"]):
                    where = os.path.relpath(file, folder)
                    imports[top] = {"file": where, "line": line, "needed": needed}
    outside = {name: at for name, at in imports.items() if name not in sys.builtin_module_names}
    missing = [name for name in outside if not _there(name)]
    return {
        "python": sys.version.split()[0],
        "files": len(visited),
        "error": error,
        "imports": outside,
        "missing": missing,
    }


def _wrong(wrong: Exception, file: str, folder: str) -> dict[str, Any]:
    where = os.path.relpath(file, folder)
    if isinstance(wrong, SyntaxError):
        return {"file": where, "line": wrong.lineno, "message": wrong.msg}
    # The parser refuses a file that nests too deeply by a MemoryError without a text.
    return {"file": where, "line": None, "message": str(wrong) or "it nests too deeply"}


def _imports(tree: ast.AST) -> Iterator[tuple[str, int, int, bool]]:
    """(module, level, line, needed). Imports in functions, in `try` and for type checkers are not
    needed."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, True)]
    while waiting:
        node, needed = waiting.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, 0, node.lineno, needed
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield base, node.level, node.lineno, needed
            for alias in node.names:
                if node.level:
                    yield ".".join(filter(None, (base, alias.name))), node.level, 0, needed
        inner = needed and not isinstance(
            node, (ast.Try, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.If)
        )
        for child in ast.iter_child_nodes(node):
            waiting.append((child, inner))


def _local(name: str, level: int, file: str, places: list[str]) -> list[str] | None:
    """The user's own files for an import; None if it is not theirs."""
    if level:
        base = os.path.dirname(file)
        for _ in range(level - 1):
            base = os.path.dirname(base)
        return _files(base, name)
    for place in places:
        spec = importlib.machinery.PathFinder.find_spec(name.split(".")[0], [place])
        if spec is not None:
            return _files(place, name)
    return None


def _files(base: str, name: str) -> list[str]:
    paths, path = [], base
    for part in filter(None, name.split(".")):
        path = os.path.join(path, part)
        paths += [path + ".py", os.path.join(path, "__init__.py")]
    return [file for file in paths if os.path.isfile(file)]


def _there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


if __name__ == "__main__":
    # Python adds this file's folder to the path; do not import from it.
    del sys.path[0]
    request = json.load(sys.stdin)
    json.dump(read(request["script"], request["folder"]), sys.stdout)
