"""allranks as a user installs it: in a virtual environment of its own, by pip."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Collection
from pathlib import Path

from tests.support import PATIENCE, Allranks, command_line
from tests.wheels import wheel

PACKAGE = Path(__file__).parents[2] / "src" / "allranks"


class Installed:
    """An environment that has allranks' requirements from that of the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder, symlinks=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "zz-requirements.pth").write_text(sysconfig.get_path("purelib"))

    def install(self, version: str, spoiled: Collection[str] = ()) -> None:
        """Install this tree as ``version``, by pip. Modules in ``spoiled`` raise when imported, as
        those of another version may."""
        files = dict[str, str]()
        for path in PACKAGE.rglob("*"):
            name = path.relative_to(PACKAGE.parent).as_posix()
            if path.is_file() and path.suffix != ".pyc":
                files[name] = path.read_text()
                if name in spoiled or any(name.startswith(f"{each}/") for each in spoiled):
                    files[name] += "\nraise ImportError('of another version')\n"
        files["allranks/version.py"] = f'__version__ = "{version}"\n'
        made = wheel(
            self.folder / "wheels",
            "allranks",
            version,
            modules=files,
            scripts={"allranks": "allranks.cli.entry:main"},
        )
        pip = [sys.executable, "-m", "pip", "--python", str(self.folder / "bin" / "python")]
        options = ["--no-index", "--no-deps", "--force-reinstall", "--quiet"]
        subprocess.run([*pip, "install", *options, made], check=True, timeout=120 * PATIENCE)

    def command_line(self, home: Path, code: Path) -> Allranks:
        """Its command line."""
        return command_line(home, code, str(self.folder / "bin" / "python"))
