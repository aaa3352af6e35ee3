"""A layer in front of the Python that ranks use anyway: what a job's command installs with pip
stays in it, and goes with the attempt."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from allranks.agent.environments.layer import add_packages_of, refuse_pip

_ASK = """
import importlib.util, json, sys, sysconfig
paths = sysconfig.get_paths()
print(json.dumps({
    "base": getattr(sys, "_base_executable", sys.executable),
    "version": "%d.%d" % sys.version_info[:2],
    "own": sys.prefix != sys.base_prefix,
    "packages": [paths["purelib"], paths["platlib"]],
    "programs": paths["scripts"],
    "pip": importlib.util.find_spec("pip") is not None,
}))
"""
# Runs the Python beside the script: a path with blanks cannot be in the first line.
_BESIDE = b"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")/python" "$0" "$@"
' '''
"""
_PIP = b"""import sys
from pip._internal.cli.main import main
sys.exit(main())
"""


def layer_of_current(base: Mapping[str, str], target: Path) -> None:
    """Create the layer at ``target`` in front of the `python` of the PATH in ``base``. Without one
    the folder has no Python, and the next of PATH is used."""
    python = shutil.which("python", path=base.get("PATH")) or shutil.which(
        "python3", path=base.get("PATH")
    )
    (target / "bin").mkdir(parents=True)
    if python is None:
        return
    facts = _facts(python, base)
    packages = target / "lib" / f"python{facts['version']}" / "site-packages"
    packages.mkdir(parents=True)
    # Packages of the system are found by themselves, those of a virtual environment are not.
    system = "false" if facts["own"] else "true"
    (target / "pyvenv.cfg").write_text(
        f"home = {os.path.dirname(facts['base'])}\n"
        f"include-system-site-packages = {system}\n"
        f"version = {facts['version']}\n"
    )
    if facts["own"]:
        add_packages_of([*dict.fromkeys(facts["packages"])], packages)
    for name in ("python", "python3", f"python{facts['version']}"):
        (target / "bin" / name).symlink_to(facts["base"])
    if facts["own"]:
        _copy_programs(Path(facts["programs"]), python, target / "bin")
    if facts["pip"]:
        for name in ("pip", "pip3"):
            _write(target / "bin" / name, _PIP)
    else:
        refuse_pip(target / "bin" / "pip")


def _facts(python: str, base: Mapping[str, str]) -> dict[str, Any]:
    argv = [python, "-I", "-c", _ASK]
    output = subprocess.run(argv, env=dict(base), capture_output=True, text=True, check=True).stdout
    facts: dict[str, Any] = json.loads(output)
    return facts


def _copy_programs(folder: Path, python: str, target: Path) -> None:
    """The programs that run the environment's Python, to run that of the layer."""
    own = {os.fsencode(folder / name) for name in ("python", "python3")} | {os.fsencode(python)}
    for file in folder.iterdir():
        if not file.is_file() or (target / file.name).exists():
            continue
        script = _script(file, own)
        if script is not None:
            _write(target / file.name, script)


def _script(program: Path, pythons: Collection[bytes]) -> bytes | None:
    """What one of these Pythons runs, without the lines that start it; None for other programs."""
    with program.open("rb") as file:
        first = file.readline(4096).strip()
        if first.removeprefix(b"#!") in pythons:
            return file.read()
        # How pip starts a Python whose path has blanks or is long.
        second = file.readline(4096) if first == b"#!/bin/sh" else b""
        if not second.startswith(b"'''exec'") or not any(python in second for python in pythons):
            return None
        file.readline()
        return file.read()


def _write(program: Path, script: bytes) -> None:
    program.unlink(missing_ok=True)
    program.write_bytes(_BESIDE + script)
    program.chmod(0o755)
