"""A conda file as pip takes it: names by a table, versions by rule, the rest told. Pure.

There is no conda where jobs run, and PyPI has nearly all of what such files ask for. What has no
counterpart there is refused by name; what wheels bring along by themselves is left out and noted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from packaging.requirements import Requirement

from allranks.errors import Problem, SpecError

# What PyPI calls the packages that conda has under other names.
NAMES: Mapping[str, str] = {
    "dask-core": "dask",
    "ipython_genutils": "ipython-genutils",
    "lightning-base": "lightning",
    "matplotlib-base": "matplotlib",
    "msgpack-python": "msgpack",
    "numpy-base": "numpy",
    "opencv": "opencv-python-headless",
    "py-lightgbm": "lightgbm",
    "py-opencv": "opencv-python-headless",
    "py-xgboost": "xgboost",
    "py-xgboost-cpu": "xgboost",
    "py-xgboost-gpu": "xgboost",
    "pytables": "tables",
    "python-graphviz": "graphviz",
    "python-lmdb": "lmdb",
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "ruamel_yaml": "ruamel.yaml",
    "seaborn-base": "seaborn",
    "tensorflow-base": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "tensorflow-mkl": "tensorflow",
    "torchaudio-cpu": "torchaudio",
    "torchvision-cpu": "torchvision",
}
# Libraries that wheels carry inside, or that pip's choice of a wheel stands for.
_WITHIN_WHEELS = """
    _libgcc_mutex _openmp_mutex blas bzip2 ca-certificates cpuonly cuda cudatoolkit
    cudatoolkit-dev cudnn freetype hdf5 intel-openmp jpeg ld_impl_linux-64 llvm-openmp lz4-c
    magma-cuda110 magma-cuda111 magma-cuda113 magma-cuda116 magma-cuda117 magma-cuda118
    magma-cuda121 mkl mkl-include mkl-service nccl ncurses ninja-base nomkl openblas openssl
    python_abi pytorch-cuda pytorch-mutex readline sqlite tensorflow-estimator tk tzdata xz
    zlib zstd
""".split()  # noqa: SIM905  # many names, to be read
# Programs and libraries with no counterpart on PyPI, or with a namesake that is something else.
_NOT_ON_PYPI = """
    binutils boost boost-cpp c-compiler compilers cxx-compiler eigen ffmpeg fortran-compiler
    gcc gdal git git-lfs glib go graphviz gxx java-jdk libsndfile make nodejs openjdk perl
    pkg-config rust snappy sox unzip wget
""".split()  # noqa: SIM905  # as above
# What conda's own names say: libraries and their headers; other languages and their tools.
_LIBRARY = re.compile(
    r"lib(?!rosa|tmux|cst|sass|clang|svm|usb).*|.*-(devel|static)|cuda-.*|xorg-.*"
)
_NO_PYTHON = re.compile(r"r-.*|perl-.*|gcc_.*|gxx_.*|gfortran_.*|binutils_.*|sysroot_.*")
_SPEC = re.compile(r"(?:[^\s:]+::)?(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]*)(?P<rest>.*)", re.DOTALL)
_BRACKETS = re.compile(r"\[(.*)\]")
_PINNED = re.compile(r"[0-9][A-Za-z0-9.!+_]*")
_KEYS = ("name", "channels", "dependencies", "prefix", "variables", "platforms")


class Asked(NamedTuple):
    """What a conda file asks for: ``python`` as `3.11` or `>=3.9,<3.12` (empty: any),
    ``requirements`` as pip takes them, each after its key in the file; ``notes`` are sentences
    about what became of the rest."""

    python: str = ""
    requirements: tuple[tuple[str, str], ...] = ()
    variables: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()


def read(data: Mapping[str, Any], where: str = "") -> Asked:
    """What the file's mapping asks for; ``where`` stands before the keys in errors.

    Raises SpecError with everything that cannot be had.
    """
    problems = [_unknown(key, where) for key in data if key not in _KEYS]
    python, requirements, notes = "", [], []
    variables = _variables(data.get("variables"), _at(where, "variables"), problems)
    for place, line in _lines(data.get("dependencies"), _at(where, "dependencies"), problems):
        if place.startswith("pip:"):
            requirements.append((place.removeprefix("pip:"), line))
            continue
        try:
            name, version = _taken_apart(line)
            taken = NAMES.get(name, name) + version
            if not _is_within_wheels(name):
                Requirement(taken)
        except ValueError as error:
            message = str(error) if type(error) is ValueError else "cannot be read"
            hint = "as in `numpy=1.26` or `numpy>=1.26,<2`"
            problems.append(Problem(f"{line!r} {message}", place, hint=hint))
            continue
        if name == "python":
            python = _python(version)
        elif is_program(name):
            problems.append(_not_on_pypi(name, place))
        elif _is_within_wheels(name):
            notes.append(f"left out: {line} (wheels include it)")
        else:
            requirements.append((place, taken))
    if problems:
        raise SpecError(problems)
    return Asked(python, tuple(requirements), variables, tuple(notes))


def is_program(name: str) -> bool:
    """Whether a package of conda's has no counterpart for Python."""
    return name in _NOT_ON_PYPI or _NO_PYTHON.fullmatch(name) is not None


def _lines(dependencies: Any, where: str, problems: list[Problem]) -> list[tuple[str, str]]:
    """Every line with its place; those of a pip section have `pip:` before it."""
    if not isinstance(dependencies, list):
        hint = "write `dependencies:` and below it `- python=3.11` and the like"
        problems.append(Problem("must be a list of packages", where, hint=hint))
        return []
    placed = []
    for number, entry in enumerate(dependencies):
        place = f"{where}.{number}"
        if isinstance(entry, str):
            placed.append((place, entry.strip()))
        elif isinstance(entry, Mapping) and isinstance(entry.get("pip"), list) and len(entry) == 1:
            lines = enumerate(entry["pip"])
            placed += [(f"pip:{place}.pip.{n}", str(line).strip()) for n, line in lines]
        else:
            hint = "a package such as `numpy=1.26`, or `pip:` with a list below it"
            problems.append(Problem("is neither a package nor a pip section", place, hint=hint))
    return placed


def _is_within_wheels(name: str) -> bool:
    return name in _WITHIN_WHEELS or _LIBRARY.fullmatch(name) is not None


def _variables(variables: Any, where: str, problems: list[Problem]) -> dict[str, str]:
    if variables is None:
        return {}
    plain = str | int | float
    if isinstance(variables, Mapping) and all(
        name and "=" not in name and isinstance(value, plain) for name, value in variables.items()
    ):
        return {name: str(value) for name, value in variables.items()}
    hint = "write `NAME: value` lines below it"
    problems.append(Problem("must be names with values", where, hint=hint))
    return {}


def _taken_apart(spec: str) -> tuple[str, str]:
    """The name in small letters, and the version as pip writes it. Raises ValueError."""
    matched = _SPEC.fullmatch(spec)
    if matched is None:
        raise ValueError("is not a package")
    rest = matched["rest"].strip()
    if bracketed := _BRACKETS.fullmatch(rest):
        pairs = re.findall(r"(\w+)\s*=\s*('[^']*'|\"[^\"]*\"|[^,]*)", bracketed[1])
        rest = dict(pairs).get("version", "").strip("'\" ")
        rest = f"={rest}" if rest[:1].isdigit() else rest
    return matched["name"].lower(), _version(rest)


def _version(rest: str) -> str:
    """conda's `=1.2` is all of 1.2, ` 1.2 build` and `==1.2=build` are that one; pip agrees on the
    rest. Raises ValueError."""
    if rest in ("", "*", "=*"):
        return ""
    if "|" in rest:
        raise ValueError("names alternatives, which pip does not know")
    if rest.startswith("==") or not rest.startswith(("=", "<", ">", "!", "~")):
        plain = re.split(r"[=\s]", rest.removeprefix("==").strip())[0]
        return f"=={_starred(plain)}"
    if rest.startswith("="):
        plain, _, build = rest[1:].strip().partition("=")
        exactly = build or plain.endswith("*")
        return f"=={_starred(plain if exactly else plain + '*')}"
    parts = [part.strip() for part in rest.split(",")]
    if not all(re.fullmatch(r"(<|>|<=|>=|!=|~=|==?)\s*[0-9][^\s]*", part) for part in parts):
        raise ValueError("has a version that cannot be read")
    parts = [re.sub(r"^=(?!=)\s*(.*?)(\.?\*)?$", r"==\1.*", part) for part in parts]
    return ",".join(part.replace(" ", "") for part in parts)


def _starred(version: str) -> str:
    """`1.2*` and `1.2.*` as pip writes them. Raises ValueError for what is no version."""
    plain = version.rstrip("*").rstrip(".")
    if not _PINNED.fullmatch(plain):
        raise ValueError("has a version that cannot be read")
    return f"{plain}.*" if version.endswith("*") else plain


def _python(version: str) -> str:
    """`==3.11.*` is what is asked for as `3.11`."""
    return version.removeprefix("==").removesuffix(".*") if "," not in version else version


def _not_on_pypi(name: str, place: str) -> Problem:
    return Problem(
        f"{name} is not a Python package and cannot be installed into a virtual environment",
        place,
        hint="remove the line and install it on the node, or use an image that has it",
    )


def _unknown(key: str, where: str) -> Problem:
    hint = f"a conda file has: {', '.join(_KEYS[:3])}"
    return Problem(f"a conda file has no key {key!r}", _at(where, key), hint=hint)


def _at(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
