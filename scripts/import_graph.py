"""Which module of the project imports which, read from the source: nothing is imported for it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Where modules are, each with the folder that their names begin below.
TREES = {"src/allranks": "src", "tests": "", "bench": "", "scripts": ""}


def module_name(path: str) -> str | None:
    """The name that a file below the root is imported by; None if it is no module."""
    for tree, base in TREES.items():
        if path.startswith(f"{tree}/") and path.endswith(".py"):
            parts = Path(path).relative_to(base).with_suffix("").parts
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return None


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Each module below the root by its name."""
    files = [file for tree in TREES for file in (root / tree).rglob("*.py")]
    names = [(module_name(file.relative_to(root).as_posix()), file) for file in files]
    return {name: file for name, file in names if name}


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def nodes(node: ast.AST, types: bool = True) -> Iterator[ast.AST]:
    """The node and all below it; without ``types``, none below ``if TYPE_CHECKING``."""
    if not types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from nodes(child, types)


def imports(tree: ast.Module, names: Collection[str], types: bool = True) -> set[str]:
    """The modules of ``names`` that a file imports anywhere, lazily, too."""
    found = set()
    for node in nodes(tree, types):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in names else node.module for name in whole}
    return found & set(names)


def strings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def packages(name: str) -> Iterator[str]:
    """The packages that a module is in, which Python imports before it; not the root of all."""
    while "." in (name := name.rpartition(".")[0]):
        yield name
