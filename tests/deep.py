"""Folders deeper than recursion goes, and paths longer than Linux takes."""

import os
from pathlib import Path

LEAF = "leaf.txt"
# The first fits in a path, and is deeper than Python recurses; the second does not fit.
DEEP = ("d", 1200)
LONG = ("n" * 200, 30)

PROGRAM = f"""
import os, sys
goal = os.path.abspath(sys.argv[1])
for top, name, levels in (("deep", *{DEEP!r}), ("long", *{LONG!r})):
    top = os.path.join(goal, top)
    os.makedirs(top)
    os.chdir(top)
    for _ in range(levels):
        os.mkdir(name)
        os.chdir(name)
    with open({LEAF!r}, "w") as file:
        file.write("leaf")
with open(os.fsencode(goal) + b"/not utf-8 \\xff", "w") as file:
    file.write("name")
"""


def make_deep(top: Path, name: str, levels: int) -> None:
    """Create a file so many levels below a new folder."""
    top.mkdir()
    at = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open(LEAF, os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.close(at)
