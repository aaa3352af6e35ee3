"""Requirements files for uv, progress from its output, and explanations of its errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from packaging.utils import canonicalize_name

from allranks.agent.environments.conflicts import CANNOT, Conflict
from allranks.core.environments.packages import NONE, requirement, torch_for
from allranks.core.plan import Recipe
from allranks.errors import AllranksError, Passing

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Lines to show as progress; the lists of packages are not.
_PROGRESS = re.compile(r"(Resolved|Downloading|Downloaded|Building|Built|Prepared|Installed) ")
_BUILD = re.compile(r"(Building|Built) (\S+)")
# Without static metadata a package's own code is run to resolve it. Only uv's log says so.
_METADATA = re.compile(r"DEBUG (Preparing|Prepared) metadata for: (\S+)")
LOGGED = "DEBUG "
LOG_FILTER = "uv_distribution::source=debug"
# uv prints several versions as a range: `torch>=1.10.0,<=1.10.2`.
_RANGE = r"([\w.-]+?)(?:==|>=[\w.+!]+,<=?|<=|>)([\w.+!]+)"
_NO_WHEEL = re.compile(rf"{_RANGE} has no wheels with a matching ")
_NO_VERSION = re.compile(rf"there (?:is|are) no versions? of {_RANGE}")
_NO_USABLE = re.compile(rf"{_RANGE} has no usable wheels")
_NO_BUILD = re.compile(r"Failed to (?:download and )?build `([\w.-]+)==([\w.+!]+)`")
_NO_NAME = re.compile(r"([\w.-]+) was not found in the (?:package registry|provided)")
# Of several ranges each has the name before it.
_DEPENDS = re.compile(
    r"(?P<parent>[\w.-]+)\S* depends? on (?:one of: )?(?P<name>[\w.-]+?)(?:\{[^}]*\})?"
    r"(?P<ranges>[=<>!~][^\s;]+(?: (?P=name)[=<>!~][^\s;]+)*)"
)
_TAG = re.compile(r"`cp(\d)(\d+)m?`")
_NO_PYTHON = re.compile(
    r"No interpreter found|python-build-standalone|No download found|Querying Python at"
)
# Longest reason shown, in characters.
_MAX_REASON = 600
_NO_NETWORK = r"dns error|tcp connect|Connection refused|timed out|Failed to fetch|Request failed"
_DISK_FULL = r"No space left"
_HINTS = (
    (
        r"[Dd]istribution not found at: file:",
        "the node has no such file: requirements that name files of the machine that submits need "
        "a disk that it shares with the nodes; else put the wheel in an index",
    ),
    (
        _NO_NETWORK,
        "the node cannot reach the package index of its pip.conf (PyPI by default); "
        "to install from a folder of wheels, use --no-index and --find-links DIR",
    ),
    (
        r"40[13] (Unauthorized|Forbidden)",
        "put credentials for the index into pip.conf or ~/.netrc on the node",
    ),
    (_DISK_FULL, "free space on the disk of ALLRANKS_HOME, or of uv's cache"),
    (r"Permission denied", "make that path writable for the user that the job has on the node"),
    (r"incompatible|unsatisfiable", "relax one of these version requirements"),
)


class Missing(NamedTuple):
    """A version of a package that cannot be installed, and why. ``has_source``: it may be built."""

    name: str
    version: str
    why: str
    has_source: bool = False


class Nearest(NamedTuple):
    """The version with a wheel that is nearest to another. ``is_compiled``: the wheel is for one
    kind of machine, so that building the package takes a compiler, and long."""

    version: str = ""
    is_compiled: bool = False


class Lines(NamedTuple):
    """The requirements file of an environment, and a second one that is installed without its hash
    checking. Options are lines, because flags of uv would override the site's variables."""

    first: tuple[str, ...]
    then: tuple[str, ...] = ()


def lines(recipe: Recipe, site: Sequence[str], bundled_pip: str | None, hashed: bool) -> Lines:
    """The lines of the recipe and the ``site``, with pip for the job if it is available.
    ``hashed``: every requirement needs a hash."""
    sources = [*site, *([f"--find-links {bundled_pip}"] if bundled_pip else [])]
    rows = [*sources, *recipe.requirements]
    has_pip = any(match[0].lower() == "pip" for match in map(_NAME.match, rows) if match)
    no_index = any(row.startswith("--no-index") for row in rows)
    if has_pip or (no_index and not bundled_pip):
        return Lines(tuple(rows))
    if hashed or any(" --hash" in row or row == "--require-hashes" for row in rows):
        options = [row for row in rows if row.startswith("-") and row != "--require-hashes"]
        return Lines(tuple(rows), (*options, "pip"))
    return Lines((*rows, "pip"))


def without_cuda(recipe: Recipe) -> Recipe:
    """The recipe without TensorFlow's extra for CUDA: gigabytes that only NVIDIA's GPUs use."""
    lines = (line.replace("tensorflow[and-cuda]", "tensorflow") for line in recipe.requirements)
    return recipe._replace(requirements=tuple(lines))


def names_index(recipe: Recipe) -> bool:
    """Whether the recipe sets its own index URL."""
    return any(re.match(r"(-i|--index-url)\b", line) for line in recipe.requirements)


def progress(line: str) -> str:
    """The progress message for a line of uv's output, or ''."""
    text = _COLOUR.sub("", line).strip()
    if (metadata := _METADATA.match(text)) and metadata[1] == "Preparing":
        return f"builds the environment: from source, to read its metadata: {metadata[2]}"
    return f"builds the environment: {text}" if _PROGRESS.match(text) else ""


def pinned(name: str, lines: Sequence[str]) -> str:
    """The line that pins a package's version, without extras, markers and options; '' if none."""
    plain = canonicalize_name(name)
    for line in lines:
        parsed = requirement(line)
        if parsed and parsed.specifier and canonicalize_name(parsed.name) == plain:
            return re.sub(r"\s+|\[.*?\]", "", line.partition(";")[0].partition(" --")[0])
    return ""


def missing(output: Sequence[str]) -> Missing | None:
    """The version that cannot be installed, if uv's output reports one."""
    text = _plain(output)
    if match := _NO_WHEEL.search(text):
        # uv's hint names the required tag first, and then the available ones.
        tags = [(int(a), int(b)) for a, b in _TAG.findall(text.partition("hint:")[2])]
        pythons = ", ".join(f"{a}.{b}" for a, b in sorted(set(tags[1:])))
        why = f"has wheels for Python {pythons} only" if pythons else "has no wheel for it"
        return Missing(match[1], match[2], why)
    for pattern, why in (
        (_NO_VERSION, "does not exist"),
        (_NO_USABLE, "has no wheel"),
        (_NO_BUILD, "has no wheel for it, and cannot be built on the node"),
    ):
        if match := pattern.search(text):
            return Missing(match[1], match[2], why, pattern is _NO_USABLE)
    return None


def not_installable(
    lacking: Missing, lines: Sequence[str], python: str, nearest: str, parent: str
) -> Conflict:
    """``lines``: the requirements as the user wrote them. ``nearest``: the nearest version that can
    be installed, or ''. ``parent``: the package that requires it, or ''."""
    name, requested = lacking.name, pinned(lacking.name, lines)
    version = f"{name}=={lacking.version}"
    tail = f"cannot be installed for Python {python}: it {lacking.why}"
    if not requested and parent:
        of_parent = pinned(parent, lines)
        advice = f"another version of {parent} may require one that can be installed"
        return Conflict(
            f"{version}, which {parent} requires, {tail}",
            advice,
            of_parent,
            canonicalize_name(parent) if of_parent else "",
        )
    why = f"{version} {tail}"
    if "+" in lacking.version:
        build = lacking.version.partition("+")[2]
        return Conflict(
            why,
            f"such builds have their own index; for PyTorch: "
            f"--extra-index-url https://download.pytorch.org/whl/{build}",
        )
    if not requested:
        return Conflict(why, f"remove {name}, or use another package")
    torch = torch_for(name, nearest) if nearest else ""
    if torch and (of_torch := pinned("torch", lines)):
        # torch, torchvision and torchaudio go together; torch decides.
        advice = f"the nearest installable version is for {torch}: use that"
        return Conflict(why, advice, of_torch, torch)
    if not nearest:
        advice = f"replace {name} by another package, or remove it"
        return Conflict(why, advice, requested, NONE)
    replacement = f"{name}=={nearest}"
    advice = (
        f"the nearest installable version is {replacement}: write that, or replace it everywhere"
    )
    return Conflict(why, advice, requested, replacement, lacking.has_source)


def disagreement(
    output: Sequence[str], rows: Sequence[str], written: Sequence[str]
) -> Conflict | None:
    """The first pin of ``rows`` that another package does not run with, if uv's output tells of
    one; in terms of the lines as ``written``. What that package requires replaces it."""
    text = " ".join(_plain(output).split())
    for match in _DEPENDS.finditer(text):
        name = canonicalize_name(match["name"])
        pin, requested = requirement(pinned(name, rows)), pinned(name, written)
        ranges = match["ranges"].replace(match["name"], " ").split()
        possible = [requirement(f"{name}{text.rstrip('.,')}") for text in ranges]
        if pin is None or not requested or None in possible:
            continue
        pins = [item.version for item in pin.specifier if item.operator == "=="]
        fitting = (item for item in possible if item and item.specifier.contains(pins[0], True))
        if pins and not pins[0].endswith("*") and not any(fitting):
            reason = f"{match['parent']} requires {possible[0]}, and {requested} is asked for"
            advice = f"write {possible[0]}, or replace it everywhere"
            return Conflict(reason, advice, requested, str(possible[0]))
    return None


def nearest(output: Sequence[str]) -> Nearest:
    """The version in a lock file (pylock.toml) that uv printed."""
    text = _plain(output)
    version = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    if version is None:
        return Nearest()
    wheels = re.findall(r"[\w.+!%-]+\.whl", text)
    return Nearest(version[1], not any(wheel.endswith("-none-any.whl") for wheel in wheels))


def build_step(line: str) -> tuple[str, bool] | None:
    """The package that a line of uv's says is being built, and whether it is done."""
    text = _COLOUR.sub("", line).strip()
    match = _BUILD.match(text) or _METADATA.match(text)
    return None if match is None else (match[2], match[1] in ("Built", "Prepared"))


def lacks_python(output: Sequence[str]) -> bool:
    """Whether uv neither found nor could download the requested Python."""
    return _NO_PYTHON.search(_plain(output)) is not None


def no_python(requested: str, installed: Sequence[str]) -> Conflict:
    """``installed``: the versions of Python on the node."""
    if requested.startswith("/"):
        why = f"the first Python on PATH, {requested}, cannot be used"
        return Conflict(why, "set a version, such as `python: '3.11'`")
    why = f"Python {requested} is not on the node and cannot be downloaded"
    if not installed:
        return Conflict(why, "install that Python on the node")
    has = ", ".join(dict.fromkeys(installed))
    advice = f"the node has {has}: write one of these, or replace the version everywhere"
    return Conflict(why, advice, f"python={requested}", _nearest(requested, installed))


def failure(output: Sequence[str], log: str) -> AllranksError:
    """The sentence for whatever else it is that uv could not do, and how to mend it; all that it
    output is in ``log``."""
    text = _plain(output)
    if match := _NO_NAME.search(text):
        return AllranksError(
            f"{CANNOT}: package {match[1]!r} not found in any index",
            hint="check its name, or add the index that has it: --extra-index-url URL",
        )
    hint = next((hint for pattern, hint in _HINTS if re.search(pattern, text)), "")
    kind = Passing if re.search(f"{_NO_NETWORK}|{_DISK_FULL}", text) else AllranksError
    return kind(f"{CANNOT}: {_reason(text)}", hint=hint or f"see the output of uv in {log}")


def lacks_torch_index(output: Sequence[str]) -> bool:
    """Whether uv could not reach PyTorch's own index."""
    text = _plain(output)
    return "download.pytorch.org" in text and re.search(_NO_NETWORK, text) is not None


def _nearest(requested: str, installed: Sequence[str]) -> str:
    def number(version: str) -> int:
        major, minor = [*(int(n) for n in re.findall(r"\d+", version)), 0, 0][:2]
        return major * 1000 + minor

    nearest = min(installed, key=lambda version: abs(number(version) - number(requested)))
    return ".".join(nearest.split(".")[:2])


def _plain(output: Sequence[str]) -> str:
    return _COLOUR.sub("", "\n".join(output))


def _reason(text: str) -> str:
    """uv's reason on one line: its first cause, and the operating system's error if there is
    one."""
    rows = [row.strip() for row in text.partition("\nhint:")[0].splitlines() if row.strip()]
    messages: list[str] = []
    for row in rows:
        if row.startswith(("cause:", "error:")):
            messages.append(row)
        elif messages and len(messages[-1]) < _MAX_REASON:
            messages[-1] += f" {row}"  # a continuation line
    causes = [row for row in messages if row.startswith("cause:")]
    chosen = (causes or messages or rows[-1:] or ["uv printed no reason"])[0]
    chosen = chosen.removeprefix("cause:").removeprefix("error:").strip()
    if len(causes) > 1 and "os error" in causes[-1]:
        chosen += f": {causes[-1].removeprefix('cause:').strip()}"
    return chosen[:1].lower() + chosen[1:]
