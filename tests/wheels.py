"""Wheels made by a test: packages that are installed without any network."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    modules: Mapping[str, str] | None = None,
    requires: Sequence[str] = (),
    scripts: Mapping[str, str] | None = None,
    tag: str = "py3-none-any",
) -> Path:
    """A wheel of ``modules`` (file name to text; by default one of the package's name that knows
    its version) and ``scripts`` (command to `module:function`)."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = dict(modules or {f"{name}.py": f"version = {version!r}\n"})
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"
    if scripts:
        lines = "".join(f"{command} = {goal}\n" for command, goal in scripts.items())
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{lines}"
    files[f"{info}/RECORD"] = "".join(f"{each},,\n" for each in files)
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in files.items():
            archive.writestr(each, text)
    return path


def from_wheels(folder: Path, *requirements: str) -> tuple[str, ...]:
    """Lines of pip for these requirements, from that folder alone."""
    return ("--no-index", f"--find-links {folder}", *requirements)
