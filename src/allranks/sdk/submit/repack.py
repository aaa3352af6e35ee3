"""Make a wheel again from an installed package, whether or not its file is still there.

Its content depends only on what is installed, so that the same package is the same wheel.
"""

from __future__ import annotations

import configparser
import csv
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from allranks.errors import UsageError

_TAG = re.compile(r"^Tag: *(\S+)", re.MULTILINE)
# What installers add, or write anew.
_OF_INSTALLERS = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
_EPOCH = (1980, 1, 1, 0, 0, 0)


def repack(info: Path, folder: Path) -> Path:
    """The wheel, in ``folder``, of the package whose metadata is ``info``. Raises UsageError if it
    does not list its files, OSError if one of them is gone."""
    try:
        about = (info / "WHEEL").read_text()
        with (info / "RECORD").open(newline="", encoding="utf-8") as file:
            names = sorted(row[0] for row in csv.reader(file) if row)
    except OSError:
        hint = "install it with pip or uv"
        raise UsageError("it does not list its files", where=str(info), hint=hint) from None
    tags = _TAG.findall(about) or ["py3-none-any"]
    stem = info.name.removesuffix(".dist-info")
    wheel = folder / f"{stem}-{tags[-1]}.whl"
    record = list[str]()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in _files(info, names, f"{stem}.data"):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
            record.append(f"{name},,\n")
        name = f"{info.name}/RECORD"
        archive.writestr(zipfile.ZipInfo(name, _EPOCH), "".join([*record, f"{name},,\n"]))
    return wheel


def is_pure(wheel: Path) -> bool:
    """Whether it installs on every machine."""
    return wheel.name.endswith("-none-any.whl")


def _files(info: Path, names: list[str], data: str) -> Iterator[tuple[str, bytes]]:
    """Each file of a package with its name in a wheel; those outside of site-packages are below
    ``data``."""
    site = info.parent
    prefix = site.parents[2]
    generated = _generated(info)
    for name in names:
        path = Path(os.path.normpath(site / name))
        if name.endswith(".pyc") or (path.parent == info and path.name in _OF_INSTALLERS):
            continue
        if path.is_relative_to(site):
            content = path.read_bytes()
            is_list = name.endswith(".pth") and "/" not in name
            yield name, _own_paths(content) if is_list else content
        elif path.parent == prefix / "bin":
            if path.name not in generated:
                content = re.sub(rb"\A#!.*python.*", b"#!python", path.read_bytes())
                yield f"{data}/scripts/{path.name}", content
        elif path.is_relative_to(prefix):
            yield f"{data}/data/{path.relative_to(prefix)}", path.read_bytes()


def _generated(info: Path) -> set[str]:
    """The commands that an installer makes."""
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read(info / "entry_points.txt", encoding="utf-8")
    sections = ("console_scripts", "gui_scripts")
    return {name for kind in sections if parser.has_section(kind) for name in parser.options(kind)}


def _own_paths(content: bytes) -> bytes:
    """A list of folders to import from, which also holds where they are not: the job's copies
    stand in for them."""
    lines = [
        f"import sys; sys.path.append({line!r})" if line.startswith("/") else line
        for line in content.decode().splitlines()
    ]
    return "".join(f"{line}\n" for line in lines).encode()
