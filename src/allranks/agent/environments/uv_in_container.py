"""Running uv inside a container, so that packages match the image's Python and libraries."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.agent.environments import uv_messages
from allranks.agent.environments.conflicts import Conflict, Conflicting
from allranks.agent.environments.layer import packages_of
from allranks.agent.environments.uv import Done, Say, Uv, Wait, configuration
from allranks.errors import AllranksError
from allranks.masking import without_credentials

if TYPE_CHECKING:
    from allranks.agent.environments.node_container import NodeContainer

# A file that tells metadata of the image's packages from that of the environment's own.
_MARKER = "ALLRANKS_IMAGE"
_PROGRAM = Path(__file__).absolute().parents[1] / "inside" / "image_packages.py"
# Seconds between two looks at what it has printed.
_LOOK = 0.2
# Exit codes of a shell for a program that it cannot start, and of a loader without libraries.
_NOT_STARTED = (126, 127)
_WHICH = "command -v python || command -v python3"


class UvInside(Uv):
    """The program ``path`` in the container ``room``, run in ``folder``, which the container sees,
    with ``env`` added to the image's environment."""

    empty = ("venv", "--relocatable", "--system-site-packages")

    def __init__(
        self,
        room: NodeContainer,
        path: str,
        env: Mapping[str, str],
        folder: Path,
        log: Path,
        wait: Wait,
        say: Say,
    ) -> None:
        super().__init__(path, env, folder, log, -1, wait, say)
        self._room, self._count = room, 0
        # The folder with the pip that the environment's Python brings, as the container sees it.
        self.bundled_pip = ""

    def image_python(self) -> str:
        """The first Python on the image's PATH, or an empty text."""
        said = self._inside(["/bin/bash", "-c", _WHICH]).said
        return said[-1] if said and said[-1].startswith("/") else ""

    def venv(self, goal: Path, python: str) -> None:
        """Make an environment that also finds the packages of its Python."""
        try:
            super().venv(goal, python)
        except Conflicting as error:
            raise Conflicting(self._no_python(error, python)) from None
        packages = packages_of(goal)
        self._add_venv_of_image(goal, packages)
        python = str(goal / "bin" / "python")
        self.bundled_pip = self._ask(python, str(packages), _MARKER)["pip"]

    def forget_image(self, goal: Path) -> None:
        """Remove the metadata of the image's packages: Python finds them where they lie."""
        for marker in packages_of(goal).glob(f"*.dist-info/{_MARKER}"):
            shutil.rmtree(marker.parent)

    def _add_venv_of_image(self, goal: Path, packages: Path) -> None:
        """Let the environment find the packages of a virtual environment that the image has in
        front: a Python that is made of it finds only those of the Python behind it."""
        python = self.image_python()
        about = self._ask(python) if python else {}
        if not about or _minor(about["version"]) != _minor(configuration(goal)["version_info"]):
            return
        lines = [f"import site; site.addsitedir({each!a})\n" for each in about["packages"]]
        if lines:
            (packages / "_image.pth").write_text("".join(lines), encoding="ascii")

    def _ask(self, python: str, *words: str) -> dict[str, Any]:
        """What the program for Pythons inside prints."""
        done = self._inside([python, "-I", str(_PROGRAM), *words])
        if done.code == 0:
            return dict(json.loads(done.said[-1]))
        said = done.said[-1] if done.said else "it did not say why"
        hint = "environments of packages need Python 3.8 or newer: try it there by hand"
        raise AllranksError(f"the Python of the image cannot be used: {said}", hint=hint)

    def _no_python(self, error: Conflicting, python: str) -> Conflict:
        """The same conflict, in terms of the image."""
        path = self.image_python()
        if not path:
            why = (
                f"there is no Python {python}".rstrip() + " in the image, nor can the node give one"
            )
            return error.conflict._replace(why=why, advice="take an image with that Python")
        has = self._ask(path)["version"]
        why = f"Python {python} is not in the image, and the node has none that runs there"
        advice = (
            f"the image has Python {has}: write `python: '{_minor(has)}'`, or have it taken "
            "wherever the other is asked for"
        )
        return Conflict(why, advice, f"python={python}", _minor(has))

    def _run(self, *words: str, asks: str = "") -> Done:
        argv = [self._path, *words]
        if asks:
            given = self._folder / "asks.txt"
            given.write_text(asks)
            argv = ["/bin/bash", "-c", 'file=$1; shift; exec "$@" <"$file"', "", str(given), *argv]
        run = self._inside(argv)
        if run.code in _NOT_STARTED:
            said = run.said[-1] if run.said else "it did not say why"
            raise AllranksError(
                f"uv, which makes environments, does not run in the image: {said}",
                hint="images with the GNU C library run it; or put the packages into the image",
            )
        if run.code > 128:
            raise AllranksError(
                "uv, which makes environments, was ended in the container",
                hint="the node may have been out of memory: `dmesg` there tells",
            )
        return run

    def _inside(self, argv: Sequence[str]) -> Done:
        """Run it in the container, and hand its lines on while it runs."""
        self._count += 1
        printed = self._folder / f"printed-{self._count}.txt"
        number = self._room.start(printed, argv, self._folder, self._env)
        code: int | None = None
        lines: list[str] = []
        with self._log.open("a", errors="replace") as log:
            while code is None:
                self._wait(self._room.fd, _LOOK)
                code = next((code for n, code in self._room.ended() if n == number), None)
                if code is None and self._room.over:
                    raise AllranksError(
                        "the container in which packages are installed is gone",
                        hint=f"{self._room.engine}'s own log, or `dmesg` on the node, may say why",
                    )
                for line in _new(printed, len(lines), code is not None):
                    lines.append(line)
                    log.write(f"{line}\n")
                    log.flush()
                    if text := uv_messages.told(line):
                        self._say(text)
        return Done(code, lines)


def _minor(version: str) -> str:
    """`3.11` of `3.11.7`."""
    return ".".join(version.split(".")[:2])


def _new(printed: Path, seen: int, ended: bool) -> Iterator[str]:
    """The whole lines after the first ``seen``."""
    try:
        text = printed.read_text(errors="replace")
    except FileNotFoundError:
        return
    *whole, rest = text.split("\n")
    if ended and rest:
        whole.append(rest)
    yield from map(without_credentials, whole[seen:])
