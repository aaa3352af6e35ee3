"""What uv is told, what it tells, and what its errors mean to a person."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from allranks.errors import AllranksError
from allranks.plan.plan import Recipe

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Lines worth showing while it works; the packages it put there, one a line, are not.
_TOLD = re.compile(r"(Resolved|Downloading|Downloaded|Building|Built|Prepared|Installed) ")
_NO_WHEEL = re.compile(r"([\w.-]+)==([\w.+!]+) has no wheels with a matching ")
_NO_VERSION = re.compile(r"there is no version of ([\w.-]+)==([\w.+!]+)")
_NO_BUILD = re.compile(r"Failed to (?:download and )?build `([\w.-]+)==([\w.+!]+)`")
_NO_NAME = re.compile(r"([\w.-]+) was not found in the (?:package registry|provided)")
_TAG = re.compile(r"`cp(\d)(\d+)m?`")
_NO_PYTHON = re.compile(
    r"No interpreter found|python-build-standalone|No download found|Querying Python at"
)
_CANNOT = "the environment cannot be made"
_HINTS = (
    (
        r"dns error|tcp connect|Connection refused|timed out|Failed to fetch|Request failed",
        "the node cannot reach the index that its pip.conf names (PyPI if none); "
        "a folder of wheels needs none: --no-index and --find-links DIR",
    ),
    (
        r"40[13] (Unauthorized|Forbidden)",
        "credentials for an index belong into pip.conf or ~/.netrc on the node",
    ),
    (r"No space left", "make room where ALLRANKS_HOME is, or where uv keeps its cache"),
    (r"Permission denied", "`environments` in ALLRANKS_HOME has to be writable on the node"),
    (r"incompatible|unsatisfiable", "loosen one of the versions it names"),
)


class Missing(NamedTuple):
    """A version of a package that cannot be installed, and why."""

    name: str
    version: str
    why: str


def lines(recipe: Recipe, bundled_pip: str | None, no_index: bool) -> list[str]:
    """The requirements file of an environment: what the recipe has, and the pip that jobs may
    want, where it can be had. Where to look is said by lines: a flag would be heard instead of the
    variables of the site."""
    found = [*(["--no-index"] if no_index else []), *recipe.requirements]
    found += [f"--find-links {bundled_pip}"] if bundled_pip else []
    has_pip = any(matched[0].lower() == "pip" for matched in map(_NAME.match, found) if matched)
    no_index = any(each.startswith("--no-index") for each in found)
    if not has_pip and (bundled_pip or not no_index):
        found.append("pip")
    return found


def told(line: str) -> str:
    """What of a line of uv's a person wants to see while it works; empty: nothing."""
    text = _COLOUR.sub("", line).strip()
    return f"makes the environment: {text}" if _TOLD.match(text) else ""


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
    if found := _NO_BUILD.search(text):
        return Missing(found[1], found[2], "is not built for it, and cannot be built on the node")
    return None


def not_installable(found: Missing, python: str, nearest: str) -> AllranksError:
    """``nearest`` is the version nearest to it that can be installed; empty: none."""
    asked = f"{found.name}=={found.version}"
    hint = f"leave {found.name} out, or name another package"
    if nearest:
        hint = (
            f"the nearest that installs is {found.name}=={nearest}: write that, or have it taken "
            f"wherever the other is asked for: allranks environment map {asked} "
            f"{found.name}=={nearest}"
        )
    why = f"{asked} cannot be installed for Python {python}: it {found.why}"
    return AllranksError(f"{_CANNOT}: {why}", hint=hint)


def lacks_python(said: Sequence[str]) -> bool:
    """Whether uv found no Python of the version that is asked for, and could not fetch one."""
    return _NO_PYTHON.search(_plain(said)) is not None


def no_python(asked: str, installed: Sequence[str]) -> AllranksError:
    """``installed``: the versions that are there."""
    has = ", ".join(dict.fromkeys(installed))
    hint = "install that Python on the node"
    if has:
        nearest = _nearest(asked, installed)
        hint = (
            f"the node has {has}: write one of them, or have it taken wherever the other is asked "
            f"for: allranks environment map python={asked} {nearest}"
        )
    message = f"{_CANNOT}: there is no Python {asked} on the node, and none could be fetched"
    return AllranksError(message, hint=hint)


def failure(said: Sequence[str]) -> AllranksError:
    """The sentence for whatever else it is that uv could not do, and how to mend it."""
    text = _plain(said)
    if found := _NO_NAME.search(text):
        return AllranksError(
            f"{_CANNOT}: no index that was asked has a package {found[1]!r}",
            hint="look its name up on PyPI, or name the index that has it: --extra-index-url URL",
        )
    hint = next((hint for pattern, hint in _HINTS if re.search(pattern, text)), "")
    return AllranksError(
        f"{_CANNOT}: {_reason(text)}", hint=hint or "the job's log of the environment tells more"
    )


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
    rows = [row.strip() for row in text.splitlines() if row.strip()]
    told = [row for row in rows if row.startswith(("cause:", "error:"))]
    causes = [row for row in told if row.startswith("cause:")]
    chosen = (causes or told or rows[-1:] or ["uv said nothing"])[0]
    chosen = chosen.removeprefix("cause:").removeprefix("error:").strip()
    if len(causes) > 1 and "os error" in causes[-1]:
        chosen += f": {causes[-1].removeprefix('cause:').strip()}"
    return chosen[:1].lower() + chosen[1:]
