"""Programs for the Pythons inside a container. Each prints JSON on its last line.

Without arguments, run by the image's Python: its version, and its packages' folders if it is that
of a virtual environment. With arguments, run by an environment's Python: mark the image's packages
as installed. uv looks at the environment's own packages only; by the metadata it keeps the image's
version of a package where that satisfies the requirements.
"""

from __future__ import annotations

import json
import os
import platform
import site
import sys
from importlib.metadata import Distribution, distributions

# Of a package's metadata what uv reads.
_FILES = ("METADATA", "WHEEL", "direct_url.json")


def mark(packages: str, marker: str) -> None:
    """Write the metadata of each package of the image to the folder ``packages``."""
    by_name: dict[str, tuple[str, Distribution]] = {}
    for package in distributions():
        name = (package.metadata["Name"] or "").replace("-", "_")
        if name and name.lower() != "pip":  # the environment gets a pip of its own
            by_name.setdefault(name.lower(), (name, package))
    for name, package in by_name.values():
        folder = os.path.join(packages, f"{name}-{package.version}.dist-info")
        if os.path.exists(folder):
            continue
        os.mkdir(folder)
        read = {file: package.read_text(file) for file in _FILES}
        read["METADATA"] = read["METADATA"] or package.read_text("PKG-INFO")
        texts = {file: text for file, text in read.items() if text}
        # uv removes by it what another version replaces.
        texts["RECORD"] = "".join(
            f"{os.path.basename(folder)}/{file},,\n" for file in (*texts, marker, "RECORD")
        )
        texts[marker] = ""
        for file, text in texts.items():
            with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
                out.write(text)


def bundled_pip() -> str:
    """The folder with the pip that this Python brings, or an empty text."""
    try:
        import ensurepip  # lazy: some distributions leave it out
    except ImportError:
        return ""
    folder = os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")
    return folder if os.path.isdir(folder) else ""


if __name__ == "__main__":
    if len(sys.argv) > 1:
        mark(sys.argv[1], sys.argv[2])
        print(json.dumps({"pip": bundled_pip()}))
    else:
        folders = site.getsitepackages() if sys.prefix != sys.base_prefix else []
        print(json.dumps({"version": platform.python_version(), "packages": folders}))
