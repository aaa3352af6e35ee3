"""Every test module finds what it imports, so that one that does not is seen before it is run."""

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from scripts.import_graph import modules, nodes, parsed

# Imported because it is not there.
MISSING = "no gone_since in allranks.server"


def names_of(module: ast.Module) -> set[str]:
    """What a module may define, at its top or below it: too many rather than too few."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def unresolved(files: Mapping[str, Path], importers: Collection[str]) -> Iterator[str]:
    """What these modules import of other modules of the project that is not there."""
    tops = {name.partition(".")[0] for name in files}
    folders = {
        ".".join(name.split(".")[:n]) for name in files for n in range(1, name.count(".") + 1)
    }
    defined: dict[str, set[str]] = {}
    for importer in importers:
        for node in nodes(parsed(files[importer])):
            if isinstance(node, ast.ImportFrom) and node.module:
                module, names = node.module, {alias.name for alias in node.names}
            elif isinstance(node, ast.Import):
                module, names = node.names[0].name, set()
            else:
                continue
            if module.partition(".")[0] not in tops:
                continue
            if module not in files and module not in folders:
                yield f"{importer}:{node.lineno}: no module {module}"
                continue
            if module not in defined:
                defined[module] = names_of(parsed(files[module])) if module in files else set()
            for name in names - defined[module]:
                whole = f"{module}.{name}"
                made = "__getattr__" in defined[module]
                if not made and whole not in files and whole not in folders:
                    yield f"{importer}:{node.lineno}: no {name} in {module}"


def test_every_test_module_finds_what_it_imports() -> None:
    files = modules()
    importers = [name for name in files if not name.startswith("allranks")]  # mypy reads those
    assert len(importers) > 500
    missing = [line for line in unresolved(files, importers) if not line.endswith(MISSING)]
    assert missing == []


def test_a_module_and_a_name_that_are_gone_are_seen(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from tests.b import there, gone\nimport tests.c\nimport os")
    (tmp_path / "b.py").write_text("there = 1")
    files = {"tests.a": tmp_path / "a.py", "tests.b": tmp_path / "b.py"}
    assert [*unresolved(files, files)] == [
        "tests.a:1: no gone in tests.b",
        "tests.a:2: no module tests.c",
    ]
