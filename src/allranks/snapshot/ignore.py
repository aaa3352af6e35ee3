"""Ignore rules in git's format, as git applies them (https://git-scm.com/docs/gitignore).

They are compared as bytes, because git does: `?` is one byte of a name.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from allranks.plan.job.code_packages import FOLDER

_CLASSES = {
    b"alnum": rb"a-zA-Z0-9",
    b"alpha": rb"a-zA-Z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"!-~",
    b"lower": rb"a-z",
    b"print": rb" -~",
    b"punct": rb"!-/:-@\[-`{-~",
    b"space": rb" \t-\r",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9a-fA-F",
}
# In a set: a named class, a range, or a character; a backslash makes any character plain.
_MEMBER = (
    rb"(?s)\[:(?P<name>[^\]]*):\]"
    rb"|\\?(?P<first>(?<=\\).|[^\\])(?:-(?!\])\\?(?P<last>(?<=\\).|[^\\]))?"
)
_NOTHING = rb"(?!)"

# Left out of every listing.
NEVER = frozenset({".git", "__pycache__", ".ipynb_checkpoints", FOLDER})


class Pattern:
    """One line: whether it ignores or, after `!`, does not; whether only folders; and the source of
    a regular expression for the path."""

    def __init__(self, line: bytes) -> None:
        self.ignores = not line.startswith(b"!")
        glob = line if self.ignores else line[1:]
        self.only_folders = glob.endswith(b"/")
        glob = glob.removesuffix(b"/")
        is_path = b"/" in glob
        glob = glob.removeprefix(b"/")
        made = (b"" if is_path else rb"(?:.*/)?") + _translated(glob, is_path)
        self.source = made if glob else _NOTHING

    @cached_property
    def expression(self) -> re.Pattern[bytes]:
        return re.compile(self.source, re.DOTALL)


def _translated(glob: bytes, is_path: bool) -> bytes:
    """A glob as the source of a regular expression."""
    made, at = b"", 0
    while at < len(glob):
        char = glob[at : at + 1]
        if char == b"*":
            piece, at = _stars(glob, at, is_path)
        elif char == b"?":
            piece, at = rb"[^/]", at + 1
        elif char == b"[":
            piece, at = _set(glob, at + 1)
        elif char == b"\\" and at + 1 == len(glob):
            return _NOTHING
        else:
            at += char == b"\\"
            piece, at = re.escape(glob[at : at + 1]), at + 1
        made += piece
    return made


def _stars(glob: bytes, at: int, is_path: bool) -> tuple[bytes, int]:
    """What one star or several at ``at`` match, and where they end."""
    end = len(glob) - len(glob[at:].lstrip(b"*"))
    begins = glob[at - 1 : at] in (b"", b"/")
    # git compares a plain beginning by itself: what follows begins, too.
    is_first = is_path and not re.search(rb"[*?\[\\]", glob[:at])
    ends = glob[end : end + 1] in (b"", b"/")
    if end - at == 1 or not ends or not (begins or is_first):
        return rb"[^/]*", end
    return (rb".*", end) if end == len(glob) else (rb"(?:.*/)?", end + 1)


def _set(glob: bytes, at: int) -> tuple[bytes, int]:
    """The set whose first member is at ``at``, and where it ends."""
    negated = glob[at : at + 1] in (b"!", b"^")
    at += negated
    begin, members = at, b""
    while at == begin or glob[at : at + 1] != b"]":
        member = re.compile(_MEMBER).match(glob, at)
        if member is None:
            return _NOTHING, len(glob)  # it has no end
        at = member.end()
        name, first, last = member["name"], member["first"], member["last"] or member["first"]
        if name is not None and name not in _CLASSES:
            return _NOTHING, len(glob)
        if name is not None:
            members += _CLASSES[name]
        else:  # a range of wrong order is its first character
            members += re.escape(first) + b"-" + re.escape(max(first, last))
    return rb"(?!/)[" + (b"^" if negated else b"") + members + b"]", at + 1


class RuleFile:
    """The patterns of a file. They are about paths below ``base``, a folder's path that ends with
    `/`, or empty."""

    def __init__(self, content: bytes, base: bytes = b"") -> None:
        self._base = base
        self._patterns = [Pattern(line) for line in _lines(content)]
        # Most paths match no pattern.
        any_of = b"|".join(pattern.source for pattern in self._patterns) or _NOTHING
        self._any = re.compile(any_of, re.DOTALL)

    def verdict(self, path: bytes) -> bool | None:
        """Whether a path is ignored; None if no pattern is about it. A folder's ends with `/`."""
        is_folder = path.endswith(b"/")
        below = path[len(self._base) :].removesuffix(b"/")
        if self._any.fullmatch(below):
            for pattern in reversed(self._patterns):
                if is_folder >= pattern.only_folders and pattern.expression.fullmatch(below):
                    return pattern.ignores
        return None


def _lines(content: bytes) -> Iterator[bytes]:
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        line = line.removesuffix(b"\r")
        bare = line.rstrip(b" ")
        # A blank behind a backslash belongs to the pattern.
        escapes = len(bare) - len(bare.rstrip(b"\\"))
        if escapes % 2 and bare != line:
            bare += b" "
        if bare and not bare.startswith(b"#"):
            yield bare


class IgnoreRules:
    """Tells which paths below ``root`` are ignored: by the files called ``nested`` in their own and
    the folders above, the nearest first, and then by ``files``, the last one first."""

    def __init__(
        self, root: Path, files: Iterable[RuleFile] = (), nested: str = ".gitignore"
    ) -> None:
        self._root, self._nested = root, nested
        # The rules for what is in a folder; None: it is ignored.
        self._folders: dict[str, Sequence[RuleFile] | None] = {"": (*files, *self._file_in(""))}

    def __call__(self, path: str) -> bool:
        """Whether a path, or a folder above it, is ignored. A folder's ends with `/`."""
        if path.endswith("/"):
            return self._in(path) is None
        rules = self._in(path[: path.rfind("/") + 1])
        return rules is None or _is_ignored(path, rules)

    def _in(self, folder: str) -> Sequence[RuleFile] | None:
        unknown, known = list[str](), folder
        while known not in self._folders:
            unknown.append(known)
            known = known[: known.rfind("/", 0, -1) + 1]
        rules = self._folders[known]
        for each in reversed(unknown):
            if rules is not None:
                rules = None if _is_ignored(each, rules) else (*rules, *self._file_in(each))
            self._folders[each] = rules
        return rules

    def _file_in(self, folder: str) -> Iterator[RuleFile]:
        if self._nested:
            yield from rule_file(self._root / folder / self._nested, os.fsencode(folder))


def _is_ignored(path: str, rules: Sequence[RuleFile]) -> bool:
    name = os.fsencode(path)
    verdicts = (each.verdict(name) for each in reversed(rules))
    return next((each for each in verdicts if each is not None), False)


def rule_file(path: Path, base: bytes = b"") -> Iterator[RuleFile]:
    """The rules of a file, if it is there and can be read."""
    with contextlib.suppress(OSError):
        yield RuleFile(path.read_bytes(), base)


def excluded_by_user(root: Path) -> IgnoreRules:
    """The rules of `.amlignore`."""
    return IgnoreRules(root, rule_file(root / ".amlignore"), nested="")


def ignore_rules(root: Path) -> Callable[[str], bool]:
    """Tells which paths of a folder outside of git are ignored: by `.gitignore` or `.amlignore`."""
    by_git, by_user = IgnoreRules(root), excluded_by_user(root)
    return lambda path: by_git(path) or by_user(path)
