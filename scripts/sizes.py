"""Print what is large in the source, and what grew: python scripts/sizes.py [COMMIT]

Large is an alarm, not a fault: look whether the file or the function does two things. What grew is
compared with COMMIT; by default the upstream branch, or the commit before this one.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "allranks"
FILE, FUNCTION, FOLDER = 500, 80, 20


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


def grew(commit: str) -> Counter[str]:
    """Lines by which each folder of the source grew since a commit."""
    folders = Counter[str]()
    for line in git("diff", "--numstat", "--no-renames", commit, "--", str(SOURCE)).splitlines():
        added, removed, path = line.split("\t")
        if added != "-":  # no text
            folder = Path(path).relative_to(SOURCE.relative_to(ROOT)).parts[0]
            folders[folder] += int(added) - int(removed)
    return folders


def main() -> None:
    paths = sorted(SOURCE.rglob("*.py"))
    files = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in paths}
    for line in large(files, FILE, FUNCTION, FOLDER):
        print(f"large: {line}")
    total = sum(text.count("\n") for text in files.values())
    upstream = git("rev-parse", "--short", "@{upstream}") or git("rev-parse", "--short", "HEAD~1")
    since = sys.argv[1] if len(sys.argv) > 1 else upstream.strip()
    folders = grew(since) if since else Counter[str]()
    parts = ", ".join(f"{folder} {n:+}" for folder, n in folders.most_common() if n)
    change = f"; {folders.total():+} since {since}: {parts}" if parts else ""
    print(f"source: {total} lines in {len(files)} files{change}")


if __name__ == "__main__":
    main()
