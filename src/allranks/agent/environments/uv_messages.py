"""What uv is told, what it tells, and what its errors mean to a person."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from packaging.utils import canonicalize_name

from allranks.agent.environments.conflicts import CANNOT, Conflict
from allranks.errors import AllranksError, Passing
from allranks.plan.environments.packages import NONE, requirement, torch_for
from allranks.plan.plan import Recipe

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Lines worth showing while it works; the packages it put there, one a line, are not.
_TOLD = re.compile(r"(Resolved|Downloading|Downloaded|Building|Built|Prepared|Installed) ")
# Of several versions uv says the range: `torch>=1.10.0,<=1.10.2`.
_RANGE = r"([\w.-]+?)(?:==|>=[\w.+!]+,<=?|<=|>)([\w.+!]+)"
_NO_WHEEL = re.compile(rf"{_RANGE} has no wheels with a matching ")
_NO_VERSION = re.compile(rf"there (?:is|are) no versions? of {_RANGE}")
_NO_USABLE = re.compile(rf"{_RANGE} has no usable wheels")
_NO_BUILD = re.compile(r"Failed to (?:download and )?build `([\w.-]+)==([\w.+!]+)`")
_NO_NAME = re.compile(r"([\w.-]+) was not found in the (?:package registry|provided)")
_TAG = re.compile(r"`cp(\d)(\d+)m?`")
_NO_PYTHON = re.compile(
    r"No interpreter found|python-build-standalone|No download found|Querying Python at"
)
# Letters of a reason that a person reads.
_ENOUGH = 600
_NO_NETWORK = r"dns error|tcp connect|Connection refused|timed out|Failed to fetch|Request failed"
_NO_ROOM = r"No space left"
_HINTS = (
    (
        _NO_NETWORK,
        "the node cannot reach the index that its pip.conf names (PyPI if none); "
        "a folder of wheels needs none: --no-index and --find-links DIR",
    ),
    (
        r"40[13] (Unauthorized|Forbidden)",
        "credentials for an index belong into pip.conf or ~/.netrc on the node",
    ),
    (_NO_ROOM, "make room where ALLRANKS_HOME is, or where uv keeps its cache"),
    (r"Permission denied", "`environments` in ALLRANKS_HOME has to be writable on the node"),
    (r"incompatible|unsatisfiable", "loosen one of the versions it names"),
)


class Missing(NamedTuple):
    """A version of a package that cannot be installed, and why."""

    name: str
    version: str
    why: str


class Lines(NamedTuple):
    """The requirements file of an environment, and what is installed after it, without its rules.
    Where to look is said by lines: a flag would be heard instead of the site's variables."""

    first: tuple[str, ...]
    then: tuple[str, ...] = ()


def lines(recipe: Recipe, site: Sequence[str], bundled_pip: str | None, hashed: bool) -> Lines:
    """What the recipe has and the ``site`` says, and the pip that jobs may want, where it can be
    had; ``hashed``: nothing is installed whose hash is not there."""
    where = [*site, *([f"--find-links {bundled_pip}"] if bundled_pip else [])]
    found = [*where, *recipe.requirements]
    has_pip = any(matched[0].lower() == "pip" for matched in map(_NAME.match, found) if matched)
    no_index = any(each.startswith("--no-index") for each in found)
    if has_pip or (no_index and not bundled_pip):
        return Lines(tuple(found))
    if hashed or any(" --hash" in each or each == "--require-hashes" for each in found):
        options = [each for each in found if each.startswith("-") and each != "--require-hashes"]
        return Lines(tuple(found), (*options, "pip"))
    return Lines((*found, "pip"))


def names_index(recipe: Recipe) -> bool:
    """Whether it says itself which index is asked."""
    return any(re.match(r"(-i|--index-url)\b", each) for each in recipe.requirements)


def told(line: str) -> str:
    """What of a line of uv's a person wants to see while it works; empty: nothing."""
    text = _COLOUR.sub("", line).strip()
    return f"makes the environment: {text}" if _TOLD.match(text) else ""


def pinned(name: str, lines: Sequence[str]) -> str:
    """The line that asks for versions of that package, without what follows them; empty: none."""
    plain = canonicalize_name(name)
    for line in lines:
        found = requirement(line)
        if found and found.specifier and canonicalize_name(found.name) == plain:
            return re.sub(r"\s+|\[.*?\]", "", line.partition(";")[0].partition(" --")[0])
    return ""


def missing(said: Sequence[str]) -> Missing | None:
    """The version that cannot be installed, if that is what uv says."""
    text = _plain(said)
    if found := _NO_WHEEL.search(text):
        # uv's hint names the tag that is wanted first, and then those that there are.
        tags = [(int(a), int(b)) for a, b in _TAG.findall(text.partition("hint:")[2])]
        has = ", ".join(f"{a}.{b}" for a, b in sorted(set(tags[1:])))
        return Missing(found[1], found[2], f"is built for Python {has} only" if has else "is not")
    if found := _NO_VERSION.search(text):
        return Missing(found[1], found[2], "does not exist")
    if found := _NO_USABLE.search(text):
        return Missing(found[1], found[2], "has no wheel")
    if found := _NO_BUILD.search(text):
        return Missing(found[1], found[2], "is not built for it, and cannot be built on the node")
    return None


def not_installable(
    found: Missing, lines: Sequence[str], python: str, nearest: str, parent: str
) -> Conflict:
    """``lines`` are the requirements that a person wrote, ``nearest`` is the version nearest to it
    that can be installed (empty: none), ``parent`` the package that asks for it (empty: none)."""
    name, asked = found.name, pinned(found.name, lines)
    version = f"{name}=={found.version}"
    tail = f"cannot be installed for Python {python}: it {found.why}"
    if not asked and parent:
        of_parent = pinned(parent, lines)
        advice = f"another version of {parent} may ask for one that can be installed"
        return Conflict(f"{version}, which {parent} asks for, {tail}", advice, of_parent,
                        canonicalize_name(parent) if of_parent else "")  # fmt: skip
    why = f"{version} {tail}"
    if "+" in found.version:
        build = found.version.partition("+")[2]
        return Conflict(
            why,
            f"builds of their own lie on their own index: for PyTorch's "
            f"--extra-index-url https://download.pytorch.org/whl/{build}",
        )
    if not asked:
        return Conflict(why, f"leave {name} out, or name another package")
    torch = torch_for(name, nearest) if nearest else ""
    if torch and (of_torch := pinned("torch", lines)):
        # The three are one choice, and torch leads.
        return Conflict(
            why, f"the nearest that installs is for {torch}: take that", of_torch, torch
        )
    if not nearest:
        advice = f"name another package in the place of {name}, or leave it out"
        return Conflict(why, advice, asked, NONE)
    taken = f"{name}=={nearest}"
    advice = (
        f"the nearest that installs is {taken}: write that, or have it taken wherever the other is "
        "asked for"
    )
    return Conflict(why, advice, asked, taken)


def lacks_python(said: Sequence[str]) -> bool:
    """Whether uv found no Python of the version that is asked for, and could not fetch one."""
    return _NO_PYTHON.search(_plain(said)) is not None


def no_python(asked: str, installed: Sequence[str]) -> Conflict:
    """``installed``: the versions that are there."""
    if asked.startswith("/"):
        why = f"{asked}, the first Python on PATH, cannot be used for it"
        return Conflict(why, "name a version, as in `python: '3.11'`")
    why = f"there is no Python {asked} on the node, and none could be fetched"
    if not installed:
        return Conflict(why, "install that Python on the node")
    has = ", ".join(dict.fromkeys(installed))
    advice = (
        f"the node has {has}: write one of them, or have it taken wherever the other is asked for"
    )
    return Conflict(why, advice, f"python={asked}", _nearest(asked, installed))


def failure(said: Sequence[str], log: str) -> AllranksError:
    """The sentence for whatever else it is that uv could not do, and how to mend it; all that it
    said is in ``log``."""
    text = _plain(said)
    if found := _NO_NAME.search(text):
        return AllranksError(
            f"{CANNOT}: no index that was asked has a package {found[1]!r}",
            hint="look its name up on PyPI, or name the index that has it: --extra-index-url URL",
        )
    hint = next((hint for pattern, hint in _HINTS if re.search(pattern, text)), "")
    kind = Passing if re.search(f"{_NO_NETWORK}|{_NO_ROOM}", text) else AllranksError
    return kind(f"{CANNOT}: {_reason(text)}", hint=hint or f"uv's own words: {log}")


def _nearest(asked: str, installed: Sequence[str]) -> str:
    def number(version: str) -> int:
        major, minor = [*(int(n) for n in re.findall(r"\d+", version)), 0, 0][:2]
        return major * 1000 + minor

    found = min(installed, key=lambda each: abs(number(each) - number(asked)))
    return ".".join(found.split(".")[:2])


def _plain(said: Sequence[str]) -> str:
    return _COLOUR.sub("", "\n".join(said))


def _reason(text: str) -> str:
    """uv's own reason on one line: the first cause it gives, and what the system said last."""
    rows = [row.strip() for row in text.partition("\nhint:")[0].splitlines() if row.strip()]
    told: list[str] = []
    for row in rows:
        if row.startswith(("cause:", "error:")):
            told.append(row)
        elif told and len(told[-1]) < _ENOUGH:
            told[-1] += f" {row}"  # a sentence that goes on
    causes = [row for row in told if row.startswith("cause:")]
    chosen = (causes or told or rows[-1:] or ["uv said nothing"])[0]
    chosen = chosen.removeprefix("cause:").removeprefix("error:").strip()
    if len(causes) > 1 and "os error" in causes[-1]:
        chosen += f": {causes[-1].removeprefix('cause:').strip()}"
    return chosen[:1].lower() + chosen[1:]
