"""Print what is large in the source and what changed, and hold its size: sizes.py [COMMIT]

Large is an alarm, not a fault: look whether the file or the function does two things. What changed
is compared with COMMIT, by default the last release. Both its commit and the number of lines above
which this warns are in pyproject.toml; above one percent more it fails. A commit that raises the
number says what for, one that cuts lowers it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "allranks"
FILE, FUNCTION, FOLDER = 500, 80, 20
# Above the number of lines in pyproject.toml, from which on the check fails.
PERCENT = 1


def large(files: dict[str, str], file: int, function: int, folder: int) -> Iterator[str]:
    """What has more lines, or a folder more modules, than that. ``files``: texts by path."""
    modules = Counter(path.rpartition("/")[0] for path in files)
    yield from (f"{path}/: {n} modules" for path, n in modules.items() if n > folder)
    for path, text in files.items():
        if (lines := text.count("\n")) > file:
            yield f"{path}: {lines} lines"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > function:
                    yield f"{path}:{node.lineno}: {node.name} has {lines} lines"


def git(*words: str) -> str:
    """What git prints; empty if it fails."""
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout if ran.returncode == 0 else ""


class Change(NamedTuple):
    """Lines of a folder."""

    added: int
    removed: int


def changes(commit: str) -> dict[str, Change]:
    """The lines of each folder of the source that were added and removed since a commit."""
    added, removed = Counter[str](), Counter[str]()
    for line in git("diff", "--numstat", "--no-renames", commit, "--", str(SOURCE)).splitlines():
        plus, minus, path = line.split("\t")
        if plus != "-":  # no text
            folder = Path(path).relative_to(SOURCE.relative_to(ROOT)).parts[0]
            added[folder] += int(plus)
            removed[folder] += int(minus)
    return {folder: Change(added[folder], removed[folder]) for folder in sorted(added)}


def verdict(lines: int, limit: int) -> tuple[str, bool]:
    """A sentence on the size of the source, empty below the limit; whether it fails the check."""
    if lines <= limit:
        return "", False
    over = f"{lines - limit} lines above the {limit} of pyproject.toml"
    if lines <= limit + limit * PERCENT // 100:
        return f"warning: {over}: from {PERCENT} % on this fails", False
    return f"error: {over}: cut, or raise the number in a commit that says what for", True


def main() -> int:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["allranks"]["sizes"]
    paths = sorted(SOURCE.rglob("*.py"))
    files = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in paths}
    for line in large(files, FILE, FUNCTION, FOLDER):
        print(f"large: {line}")
    since = sys.argv[1] if len(sys.argv) > 1 else config["release"]
    if git("rev-parse", "--verify", "--quiet", f"{since}^{{commit}}"):
        folders = changes(since)
        for folder, change in folders.items():
            print(f"{folder}: +{change.added} -{change.removed} since {since}")
        added, removed = (sum(counts) for counts in zip((0, 0), *folders.values(), strict=True))
        print(f"all: +{added} -{removed} since {since}")
    else:
        print(f"not compared: this clone has no commit {since}; it may be shallow")
    total = sum(text.count("\n") for text in files.values())
    print(f"source: {total} lines in {len(files)} files")
    sentence, fails = verdict(total, config["lines"])
    if sentence:
        print(sentence)
    return int(fails)


if __name__ == "__main__":
    sys.exit(main())
