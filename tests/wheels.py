"""Wheels made by a test: packages that are installed without any network."""

import os
import sysconfig
import tarfile
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


# A build backend without requirements. It writes a file beside the project's archive when it
# starts, and then does what `BEFORE` says.
_BACKEND = """
import base64, os, zipfile
open({started!r}, "w").close()
{before}
def build_wheel(folder, config=None, metadata=None):
    name = "{name}-{version}-py3-none-any.whl"
    info = "{name}-{version}.dist-info/"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("{name}.py", "version = '{version}'")
        about = ["Metadata-Version: 2.1", "Name: {name}", "Version: {version}", ""]
        wheel.writestr(info + "METADATA", "\\n".join(about))
        about = ["Wheel-Version: 1.0", "Root-Is-Purelib: true", "Tag: py3-none-any", ""]
        wheel.writestr(info + "WHEEL", "\\n".join(about))
        wheel.writestr(info + "RECORD", "")
    return name
"""


def source(folder: Path, name: str, version: str, before: str = "", static: bool = True) -> Path:
    """A source archive, built by Python that first runs ``before``. Returns the path of a file that
    exists once a build has started. Without ``static`` metadata resolving it takes a build."""
    folder.mkdir(parents=True, exist_ok=True)
    root = folder / "sources" / f"{name}-{version}"
    root.mkdir(parents=True)
    started = folder / f"{name}-{version}.started"
    (root / "backend.py").write_text(
        _BACKEND.format(started=str(started), before=before, name=name, version=version)
    )
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        + (f'[project]\nname = "{name}"\nversion = "{version}"\n' if static else "")
    )
    with tarfile.open(folder / f"{root.name}.tar.gz", "w:gz") as archive:
        archive.add(root, root.name)
    return started


def machine_tag() -> str:
    """The tag of a compiled wheel for this Python and machine."""
    python = f"cp{sysconfig.get_config_var('py_version_nodot')}"
    return f"{python}-{python}-linux_{os.uname().machine}"
