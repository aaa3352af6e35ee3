"""What is installed in the place of the packages that an environment asks for. Pure.

Azure ML's own packages do nothing here and are left out. torch, torchvision and torchaudio are
built for each other: where another torch is taken, the versions that fit it are taken, too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

# What the map says of a package that is left out.
NONE = "none"
# Looks a requirement up in the map, as `normal` writes it; None: it stands for itself.
Instead = Callable[[str], str | None]

_TORCH, _FITTING = "torch", ("torchvision", "torchaudio")
# Trailing zeros of pins, and a pin without them at the end.
_ZEROS = re.compile(r"(==\d+(?:\.\d+)*?)(?:\.0)+(?=,|$)")
_PIN = re.compile(r"==\d+(?:\.\d+)*$")
_MLFLOW = re.compile(r"azureml-mlflow(-.*)?")
_AZURE = re.compile(r"azureml(-.*)?")
# The options of requirements files, with a sample of their value; empty for those without one.
_OPTIONS = {
    "--index-url": "https://pypi.org/simple",
    "--extra-index-url": "https://pypi.org/simple",
    "--find-links": "DIR",
    "--no-index": "",
    "--no-binary": "NAME",
    "--only-binary": "NAME",
    "--prefer-binary": "",
    "--require-hashes": "",
    "--pre": "",
    "--trusted-host": "HOST",
    "--use-feature": "NAME",
    "-i": "https://pypi.org/simple",
    "-f": "DIR",
}
# torchvision 0.M for torch 1.N is 0.(N + 1), and for 2.N it is 0.(N + 15); these are exceptions.
_OLD_VISION = {(1, 1): 3, (1, 2): 4, (1, 3): 4}
_NUMPY_1 = "numpy<2"
# The first releases that run beside NumPy 2; those before them do not refuse it.
_FIRST_FOR_NUMPY_2 = {"pandas": "2.2.2", "scikit-learn": "1.4.2", "scipy": "1.13", "pyarrow": "16"}
# torchaudio has the version of its torch from 2.0 on, and had 0.N for torch 1.N.


class Replaced(NamedTuple):
    """The lines to install, and a sentence about each one that is not as it was asked for."""

    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()


def wrong_option(line: str) -> tuple[str, str] | None:
    """What is wrong with an option in a line of a requirements file, and a hint; None if nothing
    is."""
    words = re.split(r"[\s=]+", line)
    if line.startswith("-"):
        option = words[0] if line.startswith("--") else line[:2]
        if option not in _OPTIONS:
            near = difflib.get_close_matches(option, _OPTIONS, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_OPTIONS)}"
            return f"{option!r} is no option of requirements files", hint
        if _OPTIONS[option] and line == option:
            return f"{option!r} needs a value", f"{option} {_OPTIONS[option]}"
    elif beside := [word for word in words if word.startswith("--") and word != "--hash"]:
        hint = "only --hash may; other options have a line of their own"
        return f"{beside[0]!r} cannot be beside a requirement", hint
    return None


def requirement(line: str) -> Requirement | None:
    """The package that a line asks for; None for options, addresses and files."""
    if not line or line.startswith(("-", ".", "/", "~")) or "://" in line:
        return None
    try:
        return Requirement(line.partition(" --")[0])  # hashes may follow
    except InvalidRequirement:
        return None


def normal(requested: Requirement) -> str:
    """A requirement as the map has it: `Pillow>=6, <7` is `pillow<7,>=6`, and `pandas==1.1.0` is
    `pandas==1.1`."""
    return _ZEROS.sub(r"\1", f"{canonicalize_name(requested.name)}{requested.specifier}")


def _spellings(requested: Requirement) -> list[str]:
    """How the map may have a requirement: as ``normal`` has it, and with zeros after a pin."""
    short = normal(requested)
    return [short, *(f"{short}{zeros}" for zeros in (".0", ".0.0") if _PIN.search(short))]


def replaced(lines: Sequence[str], instead: Instead) -> Replaced:
    """What is installed for ``lines``. ``instead`` decides first, then the rules of this module."""
    parsed = [requirement(line) for line in lines]
    names = [package and canonicalize_name(package.name) for package in parsed]
    of_torch = (package for package in parsed if package and _named(package, _TORCH))
    torch = next((_taken(package, instead) for package in of_torch), None)
    installed: list[str] = []
    notes: list[str] = []
    for line, requested in zip(lines, parsed, strict=True):
        taken, why = None if requested is None else _taken(requested, instead), ""
        if requested is not None and taken is None:
            taken, why = _by_rule(requested, torch)
            if taken == "mlflow" and "mlflow" in names:
                taken, why = NONE, " (mlflow is in the environment)"
        if requested is None or taken is None:
            installed.append(line)
        elif taken == NONE:
            notes.append(f"left out: {line}{why}")
        else:
            installed.append(_in_place_of(requested, taken))
            notes.append(f"{line} was requested, using {installed[-1]}{why}")
    if old := _built_for_numpy_1(installed):
        installed.append(_NUMPY_1)
        notes.append(f"{_NUMPY_1} is installed, too: {old} was built for it")
    return Replaced(tuple(installed), tuple(notes))


def _built_for_numpy_1(lines: Sequence[str]) -> str:
    """The first line that pins a package which NumPy 2 breaks, though its own requirements let it
    in; empty if there is none, or the lines bound NumPy themselves."""
    parsed = [(line, package) for line in lines if (package := requirement(line)) is not None]
    if any(_named(package, "numpy") and package.specifier for _, package in parsed):
        return ""
    for line, package in parsed:
        first = _FIRST_FOR_NUMPY_2.get(canonicalize_name(package.name))
        pins = [pin.version for pin in package.specifier if pin.operator in ("==", "~=")]
        try:
            if first and pins and Version(pins[0].removesuffix(".*")) < Version(first):
                return line
        except InvalidVersion:
            continue
    return ""


def _taken(requested: Requirement, instead: Instead) -> str | None:
    """What the map has for a requirement; the bare name with `none` drops every version."""
    taken = (to for key in _spellings(requested) if (to := instead(key)) is not None)
    if (to := next(taken, None)) is not None:
        return to
    return NONE if instead(canonicalize_name(requested.name)) == NONE else None


def _by_rule(requested: Requirement, torch: str | None) -> tuple[str | None, str]:
    name = canonicalize_name(requested.name)
    if _MLFLOW.fullmatch(name):
        return "mlflow", " (it logs to the same place)"
    if _AZURE.fullmatch(name):
        return NONE, " (it is only for Azure ML)"
    if name in _FITTING and torch is not None and torch != NONE and requested.specifier:
        return f"{name}{_fitting(name, torch)}", f" (it fits {torch})"
    return None, ""


def _fitting(name: str, torch: str) -> str:
    """The versions of ``name`` for the one torch; empty where that is not one release."""
    specifiers = [*Requirement(torch).specifier]
    if len(specifiers) != 1 or specifiers[0].operator not in ("==", "~="):
        return ""
    try:
        version = Version(specifiers[0].version.removesuffix(".*"))
    except InvalidVersion:
        return ""
    if len(version.release) < 2:
        return ""
    major, minor = version.major, version.minor
    if name == "torchaudio":
        return f"=={major}.{minor}.*" if major > 1 else f"==0.{minor}.*"
    return f"==0.{_OLD_VISION.get((major, minor), minor + (15 if major > 1 else 1))}.*"


def torch_for(name: str, version: str) -> str:
    """The torch that a version of torchvision or torchaudio is built for; empty for others."""
    release = Version(version).release
    if name not in _FITTING or len(release) < 2:
        return ""
    major, minor = release[:2]
    if name == "torchaudio":
        return f"torch=={major or 1}.{minor}.*"
    if minor >= 15:
        return f"torch==2.{minor - 15}.*"
    old = {vision: torch for torch, vision in _OLD_VISION.items()}
    return "torch=={}.{}.*".format(*old.get(minor, (1, minor - 1)))


def _in_place_of(requested: Requirement, taken: str) -> str:
    """``taken`` with the marker and, for the same package, the extras of what was asked for."""
    replacement = Requirement(taken)
    if _named(replacement, canonicalize_name(requested.name)):
        replacement.extras |= requested.extras
    replacement.marker = replacement.marker or requested.marker
    return str(replacement)


def _named(requirement: Requirement, name: str) -> bool:
    return canonicalize_name(requirement.name) == name
