"""Run uv inside a container, so that packages match the image's Python and libraries."""

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
from allranks.errors import OUT_OF_MEMORY, AllranksError
from allranks.masking import without_credentials

if TYPE_CHECKING:
    from allranks.agent.environments.node_container import NodeContainer

# A file that marks the metadata of the image's packages in the environment.
_MARKER = "ALLRANKS_IMAGE"
_PROGRAM = Path(__file__).absolute().parents[1] / "inside" / "image_packages.py"
# Seconds between reads of uv's output.
_POLL_SECONDS = 0.2
# Exit codes of a shell that cannot start a program, and of a loader without libraries.
_NOT_STARTED = (126, 127)
_WHICH = "command -v python || command -v python3"


class UvInContainer(Uv):
    """Runs uv at ``path`` in ``container``, in ``folder``, which is mounted, with ``env`` added to
    the image's variables."""

    empty = ("venv", "--relocatable", "--system-site-packages")

    def __init__(
        self,
        container: NodeContainer,
        path: str,
        env: Mapping[str, str],
        folder: Path,
        log: Path,
        wait: Wait,
        say: Say,
        allow_builds: bool = False,
    ) -> None:
        super().__init__(path, env, folder, log, -1, wait, say, allow_builds)
        self._container, self._count = container, 0
        # The folder with the pip bundled with the environment's Python, inside the container.
        self.bundled_pip = ""

    def image_python(self) -> str:
        """The first Python on the image's PATH, or ''."""
        output = self._run_in_container(["/bin/bash", "-c", _WHICH]).output
        return output[-1] if output and output[-1].startswith("/") else ""

    def venv(self, path: Path, python: str) -> None:
        """Create an environment that also finds the packages of its Python."""
        try:
            super().venv(path, python)
        except Conflicting as error:
            raise Conflicting(self._no_python(error, python)) from None
        packages = packages_of(path)
        self._add_venv_of_image(path, packages)
        python = str(path / "bin" / "python")
        self.bundled_pip = self._run_program(python, str(packages), _MARKER)["pip"]

    def forget_image(self, path: Path) -> None:
        """Remove the copied metadata of the image's packages; Python finds the originals."""
        for marker in packages_of(path).glob(f"*.dist-info/{_MARKER}"):
            shutil.rmtree(marker.parent)

    def _add_venv_of_image(self, path: Path, packages: Path) -> None:
        """Add the packages of a virtual environment that is active in the image; an environment
        created from its Python finds only those of the base Python."""
        python = self.image_python()
        about = self._run_program(python) if python else {}
        if not about or _minor(about["version"]) != _minor(configuration(path)["version_info"]):
            return
        lines = [f"import site; site.addsitedir({folder!a})\n" for folder in about["packages"]]
        if lines:
            (packages / "_image.pth").write_text("".join(lines), encoding="ascii")

    def _run_program(self, python: str, *words: str) -> dict[str, Any]:
        """Run image_packages.py with a Python of the image, and return its answer."""
        done = self._run_in_container([python, "-I", str(_PROGRAM), *words])
        if done.code == 0:
            return dict(json.loads(done.output[-1]))
        message = done.output[-1] if done.output else "no error message"
        hint = "environments need Python 3.8 or newer in the image; try to run it by hand"
        raise AllranksError(f"cannot use the Python of the image: {message}", hint=hint)

    def _no_python(self, error: Conflicting, python: str) -> Conflict:
        """The conflict, in terms of the image."""
        path = self.image_python()
        if not path:
            reason = f"the image has no Python {python}".rstrip() + ", and neither has the node"
            return error.conflict._replace(reason=reason, advice="use an image with that Python")
        version = self._run_program(path)["version"]
        reason = f"the image has no Python {python}, and the node has none that runs there"
        advice = (
            f"the image has Python {version}: write `python: '{_minor(version)}'`, or replace the "
            "version everywhere"
        )
        return Conflict(reason, advice, f"python={python}", _minor(version))

    def _run(self, *words: str, asks: str = "") -> Done:
        argv = [self._path, *words]
        if asks:
            file = self._folder / "asks.txt"
            file.write_text(asks)
            argv = ["/bin/bash", "-c", 'file=$1; shift; exec "$@" <"$file"', "", str(file), *argv]
        run = self._run_in_container(argv)
        if run.code in _NOT_STARTED:
            message = run.output[-1] if run.output else "no error message"
            raise AllranksError(
                f"uv, which builds environments, does not run in the image: {message}",
                hint="use an image with the GNU C library, or one that has the packages",
            )
        if run.code > 128:
            raise AllranksError("uv was killed in the container", hint=OUT_OF_MEMORY)
        return run

    def _run_in_container(self, argv: Sequence[str]) -> Done:
        """Run a program in the container, logging and reporting its lines."""
        self._count += 1
        printed = self._folder / f"printed-{self._count}.txt"
        number = self._container.start(printed, argv, self._folder, self._env)
        code: int | None = None
        lines: list[str] = []
        with self._log.open("a", errors="replace") as log:
            while code is None:
                self._wait(self._container.fd, _POLL_SECONDS)
                self._clock.check()
                code = next((code for n, code in self._container.ended() if n == number), None)
                if code is None and self._container.over:
                    raise AllranksError(
                        "the container that installs packages ended unexpectedly",
                        hint=f"see the log of {self._container.engine}, or `dmesg` on the node",
                    )
                for line in _new_lines(printed, len(lines), code is not None):
                    lines.append(line)
                    log.write(f"{line}\n")
                    log.flush()
                    self._clock.note(line)
                    if text := uv_messages.progress(line):
                        self._say(text)
        return Done(code, [line for line in lines if not line.startswith(uv_messages.LOGGED)])


def _minor(version: str) -> str:
    """`3.11` of `3.11.7`."""
    return ".".join(version.split(".")[:2])


def _new_lines(printed: Path, count: int, ended: bool) -> Iterator[str]:
    """The complete lines after the first ``count``."""
    try:
        text = printed.read_text(errors="replace")
    except FileNotFoundError:
        return
    *lines, rest = text.split("\n")
    if ended and rest:
        lines.append(rest)
    yield from map(without_credentials, lines[count:])
