"""Print the tests that a change can reach, one a line: changed_tests.py [BASE]

The change is what the working tree has and the commit BASE has not; by default BASE is where this
branch left main. Prints `tests` if it can reach all of them. The rules are in docs/design/tests.md:
they print too many rather than too few.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from scripts.import_graph import imports, module_name, modules, packages, parsed  # noqa: E402

# Fast, and about files of every kind.
ALWAYS = ("tests/docs/", "tests/golden/", "tests/house/")
# All else stands on them; so it does on the modules that are in no package.
REACH_ALL = re.compile(
    r"src/allranks/((agent|api|core|spec)/|\w+\.py$)|tests/(conftest|support)\.py$|pyproject\.toml$"
)
# A test that uses one of these starts the command line, and that a server, as a process.
STARTING = {"allranks", "home", "shared", "shared_home", "command_line"}


class Project:
    """The test modules of the project: what each imports, starts and names. All paths are texts."""

    def __init__(self, root: Path, gone: Iterable[str] = ()) -> None:
        """``gone``: the names of modules that the change removed."""
        files = modules(root)
        names = {*files, *gone}
        self._paths = {name: file.relative_to(root).as_posix() for name, file in files.items()}
        self._importers: dict[str, set[str]] = defaultdict(set)
        self._trees = dict[str, ast.Module]()  # of test modules, by path
        for name, file in files.items():
            tree, path = parsed(file), self._paths[name]
            used = imports(tree, names, types=False)
            if not path.startswith("src/"):  # what it runs, and attributes that it replaces
                used |= {
                    name
                    for text in _strings(tree)
                    for name in packages(f"{text}.")
                    if name in names
                }
            for module in used:
                for package in (module, *packages(module)):
                    self._importers[package].add(name)
            if path.startswith("tests/") and file.name.startswith("test_"):
                self._trees[path] = tree
        self.all = set(self._trees)
        self._starting = {path for path, tree in self._trees.items() if _starts(tree)}

    def importers(self, module: str) -> set[str]:
        """The paths of the modules that import this one, directly or through others, and it."""
        seen, todo = {module}, [module]
        while todo:
            new = self._importers[todo.pop()] - seen
            seen |= new
            todo += new
        return {self._paths[name] for name in seen if name in self._paths}

    def below(self, folder: str) -> set[str]:
        """All tests below a folder, or below the nearest one above that has any."""
        while folder != "tests":
            if found := {path for path in self.all if path.startswith(f"{folder}/")}:
                return found
            folder = str(PurePosixPath(folder).parent)
        return set()

    def starting(self, sources: Iterable[str]) -> set[str]:
        """The tests that start processes and stand in the folders that mirror these modules'."""
        found = set[str]()
        for folder in {str(PurePosixPath(path).parent) for path in sources}:
            mirror = re.sub("^src/allranks", "tests", folder)
            while not (here := {path for path in self.all if path.rpartition("/")[0] == mirror}):
                if mirror in ("", "tests"):
                    break
                mirror = mirror.rpartition("/")[0]
            found |= here & self._starting
        return found

    def named_like(self, path: str) -> set[str]:
        """The tests that start processes and whose path has a word of this module's."""
        words = _words(re.sub("^src/allranks/[a-z_]+/", "", path))
        return {test for test in self._starting if words & _words(test)}

    def naming(self, *words: str) -> set[str]:
        """The tests with a string that is one of the words, or a path with it."""
        return {
            path
            for path, tree in self._trees.items()
            if any(word in text.split("/") for text in _strings(tree) for word in words)
        }

    def end_to_end(self) -> set[str]:
        """The tests with that mark, each as ``path::name``."""
        return {
            f"{path}::{'::'.join(names)}"
            for path, tree in self._trees.items()
            for names in _marked(tree, "end_to_end")
        }


def _strings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _starts(tree: ast.Module) -> bool:
    return any(
        (isinstance(node, ast.arg) and node.arg in STARTING)
        or (isinstance(node, ast.alias) and node.name in STARTING)
        for node in ast.walk(tree)
    )


def _words(path: str) -> set[str]:
    words = re.findall("[a-z]+", path.removesuffix(".py"))
    return {word.removesuffix("s") for word in words} - {"test", "init", "main"}


def _marked(node: ast.Module | ast.ClassDef, mark: str) -> Iterator[tuple[str, ...]]:
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            if any(mark in ast.unparse(decorator) for decorator in child.decorator_list):
                yield (child.name,)
            elif isinstance(child, ast.ClassDef):
                yield from ((child.name, *names) for names in _marked(child, mark))


def reached_by(path: str, tests: Project) -> set[str]:
    """The test modules, and single tests, that a change of this file can reach."""
    if REACH_ALL.match(path):
        return tests.all
    folder, _, file = path.rpartition("/")
    module = module_name(path)
    if path.startswith("src/"):
        # A template or a style sheet counts as the package that it is in.
        importers = tests.importers(module or f"allranks.{path.split('/')[2]}")
        started = tests.starting(importers) | tests.named_like(path) | tests.end_to_end()
        return importers & tests.all | started
    importers = tests.importers(module) if module else set()
    if path.startswith("tests/"):
        if "tests/conftest.py" in importers:
            return tests.all
        conftests = {path for path in importers if path.endswith("/conftest.py")}
        found = importers & tests.all
        found = found.union(*(tests.below(path.rpartition("/")[0]) for path in conftests))
        return found or tests.below(folder) or tests.naming(path.split("/")[1])
    top = path.split("/")[0]
    return (
        importers & tests.all | tests.below(f"tests/{top}") | tests.naming(file if module else top)
    )


def git(*words: str) -> list[str]:
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"changed_tests.py: {ran.stderr.strip()}")
    return [line for line in ran.stdout.split("\0") if line]


def main() -> int:
    (base,) = sys.argv[1:] or ("".join(git("merge-base", "HEAD", "main")).strip(),)
    changed = git("diff", "--name-only", "--no-renames", "-z", base, "--")
    changed += git("ls-files", "--others", "--exclude-standard", "-z")
    gone = [path for path in changed if not (ROOT / path).exists()]
    tests = Project(ROOT, [name for path in gone if (name := module_name(path))])
    found = set[str]().union(*(reached_by(path, tests) for path in changed))
    found |= {path for path in tests.all if path.startswith(ALWAYS)}
    # A test of a module that runs as a whole is in it.
    found -= {test for test in found if test.partition("::")[0] in found and "::" in test}
    count = len({test.partition("::")[0] for test in found})
    reach = f"they reach {count} of {len(tests.all)} test modules"
    print(f"{len(changed)} files differ from {base[:12]}: {reach}", file=sys.stderr)
    print("\n".join(["tests"] if found >= tests.all else sorted(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
