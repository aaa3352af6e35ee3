"""Ignore rules in git's format, for folders that git does not know, and for `.amlignore`.

They are those of https://git-scm.com/docs/gitignore, but for named classes such as `[[:alpha:]]`.
They are compared as bytes, because git does: `?` is one byte of a name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from allranks.core.job.code_packages import FOLDER

# What a name in a pattern consists of: stars, sets, and characters, plain ones behind a backslash.
_TOKENS = re.compile(rb"\*+|\[[!^]?+\]?+(?:\\.|[^]\\])*\]|\\?.", re.DOTALL)
# What a set consists of: characters and ranges.
_MEMBERS = re.compile(rb"\\?(.)(?:-\\?(.))?", re.DOTALL)
_NOTHING = rb"(?!)"

# Left out of every listing.
NEVER = frozenset({".git", "__pycache__", ".ipynb_checkpoints", FOLDER})


class Pattern(NamedTuple):
    """One line: whether it ignores or, after `!`, does not; and a regular expression for the path.
    That of a folder ends with `/`."""

    ignores: bool
    source: bytes


def _pattern(line: bytes, base: bytes) -> Pattern:
    """The pattern of a line in a file about paths below ``base``, a folder's path that ends with
    `/`, or empty."""
    ignores = not line.startswith(b"!")
    glob = line if ignores else line[1:]
    end = b"/" if glob.endswith(b"/") else b"/?"
    glob = glob.removesuffix(b"/")
    if b"/" not in glob:
        glob = b"**/" + glob
    *folders, last = glob.removeprefix(b"/").split(b"/")
    source = b"".join(rb"(?:.*/)?" if _is_any(name) else _name(name) + b"/" for name in folders)
    source += rb".+" if _is_any(last) else _name(last) or _NOTHING
    return Pattern(ignores, re.escape(base) + source + end)


def _is_any(name: bytes) -> bool:
    """Whether a name in a pattern stands for any number of folders."""
    return len(name) > 1 and not name.strip(b"*")


def _name(glob: bytes) -> bytes:
    """The regular expression of a name in a pattern; no name is empty."""
    return rb"(?=[^/])" + b"".join(map(_token, _TOKENS.findall(glob))) if glob else b""


def _token(token: bytes) -> bytes:
    if token.startswith(b"*"):
        return rb"[^/]*"
    if token == b"?":
        return rb"[^/]"
    if token in (b"[", b"\\"):
        return _NOTHING  # it has no end
    if token.startswith(b"["):
        negated = token[1:2] in (b"!", b"^")
        # A range of wrong order is its first character.
        members = (
            re.escape(first) + b"-" + re.escape(max(first, last))
            for first, last in _MEMBERS.findall(token[1 + negated : -1])
        )
        return rb"(?!/)[" + b"^" * negated + b"".join(members) + b"]"
    return re.escape(token[-1:])


def patterns_in(path: Path, base: bytes = b"") -> list[Pattern]:
    """The patterns of a file, if it is there and can be read."""
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError:
        return []
    lines = (_bare(line.removesuffix(b"\r")) for line in content.split(b"\n"))
    return [_pattern(line, base) for line in lines if line and not line.startswith(b"#")]


def _bare(line: bytes) -> bytes:
    """A line without blanks at its end, unless one is behind a backslash."""
    return re.sub(rb"((?:^|[^\\])(?:\\\\)*) +$", rb"\1", line)


class _Rules:
    """Patterns, of which the last that matches decides."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = patterns
        sources = (b"(" + pattern.source + b")" for pattern in reversed(patterns))
        self._expression = re.compile(b"|".join(sources) or _NOTHING, re.DOTALL)

    def ignores(self, path: str) -> bool:
        match = self._expression.fullmatch(os.fsencode(path))
        return match is not None and self.patterns[-(match.lastindex or 0)].ignores


class IgnoreRules:
    """Tells which paths below ``root`` are ignored: by the files called ``nested`` in their own and
    the folders above, the nearest first, and then by ``patterns``, the last one first."""

    def __init__(
        self, root: Path, patterns: Sequence[Pattern] = (), nested: str = ".gitignore"
    ) -> None:
        self._root, self._nested = root, nested
        # The rules for what is in a folder; None: it is ignored.
        self._folders: dict[str, _Rules | None] = {"": self._with_file(_Rules(patterns), "")}

    def __call__(self, path: str) -> bool:
        """Whether a path, or a folder above it, is ignored. A folder's ends with `/`."""
        if path.endswith("/"):
            return self._in(path) is None
        rules = self._in(path[: path.rfind("/") + 1])
        return rules is None or rules.ignores(path)

    def _in(self, folder: str) -> _Rules | None:
        unknown, ancestor = list[str](), folder
        while ancestor not in self._folders:
            unknown.append(ancestor)
            ancestor = ancestor[: ancestor.rfind("/", 0, -1) + 1]
        rules = self._folders[ancestor]
        for subfolder in reversed(unknown):
            if rules is not None:
                rules = None if rules.ignores(subfolder) else self._with_file(rules, subfolder)
            self._folders[subfolder] = rules
        return rules

    def _with_file(self, rules: _Rules, folder: str) -> _Rules:
        if not self._nested:
            return rules
        own = patterns_in(self._root / folder / self._nested, os.fsencode(folder))
        return _Rules([*rules.patterns, *own]) if own else rules


def excluded_by_user(root: Path) -> IgnoreRules:
    """The rules of `.amlignore`."""
    return IgnoreRules(root, patterns_in(root / ".amlignore"), nested="")
