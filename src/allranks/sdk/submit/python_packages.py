"""What the current Python has installed, as one text: steps are reused only with the same."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from allranks import folder_trees

# Python says where it looks for modules. Not in the current folder, whose code is sent.
_ASK = "import json, sys; print(json.dumps([sys.version, [p for p in sys.path if p]]))"
_TIMEOUT = 20.0
# Files of folders with modules that no package manager installed; more are not looked through.
_MOST = 5_000
_SITES = ("site-packages", "dist-packages")


def packages(environ: Mapping[str, str]) -> str | None:
    """A digest of the Python that jobs with these variables get and of its packages; None if it
    cannot be found out."""
    python = shutil.which("python", path=environ.get("PATH")) or shutil.which(
        "python3", path=environ.get("PATH")
    )
    if python is None:
        return None
    try:
        done = subprocess.run(
            [python, "-c", _ASK],
            env=dict(environ),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=True,
        )
        version, folders = json.loads(done.stdout)
        lines = [version, *(line for folder in folders for line in _folder(Path(folder)))]
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def _folder(folder: Path) -> Iterator[str]:
    """What a folder of modules holds. Raises ValueError if that is too much."""
    if not folder.is_dir():
        if folder.is_file():  # a zip of modules
            yield _file(folder)
        return
    if folder.name not in _SITES:
        # The standard library belongs to the version; others are folders of PYTHONPATH.
        if not (folder / "os.py").exists() and folder.name != "lib-dynload":
            yield from _modules(folder)
        return
    yield str(folder)
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        if entry.name.endswith((".dist-info", ".egg-info")):
            yield entry.name
            yield from _installed(Path(entry.path))
        elif entry.name.endswith((".py", ".pth", ".egg-link", ".so")):
            yield _file(Path(entry.path))


def _installed(info: Path) -> Iterator[str]:
    """When a package was installed; the modules of one in development."""
    for name in ("RECORD", "direct_url.json"):
        if (file := info / name).is_file():
            yield _file(file)
    try:
        origin = json.loads((info / "direct_url.json").read_text())
    except (OSError, ValueError):
        return
    if (origin.get("dir_info") or {}).get("editable"):
        yield from _modules(Path(unquote(urlsplit(origin["url"]).path)))


def _modules(root: Path) -> Iterator[str]:
    """The modules below a folder. Raises ValueError if there are too many."""
    count = 0
    for folder, folders, files in folder_trees.walk(root):
        folders[:] = sorted(
            each
            for each in folders
            if not each.startswith(".")
            and each not in ("__pycache__", "node_modules", *_SITES)
            and not os.path.exists(os.path.join(folder, each, "pyvenv.cfg"))
        )
        for name in sorted(files):
            if name.endswith((".py", ".so")):
                count += 1
                if count > _MOST:
                    raise ValueError(f"{root} has too many modules")
                yield _file(Path(folder, name))


def _file(path: Path) -> str:
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"
