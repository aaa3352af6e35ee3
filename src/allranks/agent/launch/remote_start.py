"""How launchers of one node start programs on the others, without ssh between hosts."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from allranks.agent import programs
from allranks.agent.launch.stage import Stage
from allranks.agent.processes.ranks import SHELL, Running

# Runs programs of this package; with -I and -S they import nothing of the user's environment.
PYTHON = (sys.executable, "-I", "-S")
# The variable of ranks that find our ssh and pdsh, with their folder.
STAND_INS = "ALLRANKS_STAND_INS"


def serve(stage: Stage, running: Running, env: Mapping[str, str]) -> None:
    """Start the helper through which launchers of other nodes start programs here, with ``env``."""
    env = {**env, "ALLRANKS_REMOTE_SECRET": stage.secret()}
    helper = stage.helper("remote start")
    if stage.container is not None:
        # File descriptors cannot be passed into a container, so the helper binds the port itself.
        held = stage.held.pop()
        address, port = held.getsockname()[:2]
        held.close()
        listen = shlex.join(
            [*_python(stage), programs.path_of("remote_shell.py"), "listen", address, str(port)]
        )
        argv = [SHELL, "-c", with_stand_ins(stage, f"exec {listen}")]
        running.start(helper, argv, stage.cwd, env)
        return
    fd = stage.held[-1].fileno()
    argv = [*PYTHON, programs.path_of("remote_shell.py"), "serve", str(fd)]
    running.start(helper, argv, stage.cwd, env, [fd])
    # Otherwise our copy would keep the port open after the helper has closed it.
    stage.held.pop().close()


def write_table(stage: Stage, path: Path, names: Mapping[str, int], work: str = "") -> Path:
    """Write the addresses of the named nodes for the remote shell."""
    places = {name: stage.places[node] for name, node in names.items()}
    nodes = {name: (place.address, place.ports[-1]) for name, place in places.items()}
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        json.dump({"secret": stage.secret(), "nodes": nodes, "work": work}, file)
    return path


def write_program(stage: Stage, path: Path, arguments: Sequence[str]) -> Path:
    """Write an executable that runs the remote shell with these arguments, then its own."""
    line = shlex.join([*_python(stage), programs.path_of("remote_shell.py"), *arguments])
    path.write_text(f'#!{SHELL}\nexec {line} "$@"\n')
    path.chmod(0o700)
    return path


def _python(stage: Stage) -> tuple[str, ...]:
    """The Python that runs the remote shell: in a container, the image's."""
    return PYTHON if stage.container is None else ("python3", "-I", "-S")


def with_stand_ins(stage: Stage, command: str) -> str:
    """The command for bash. In a container it prepends our ssh and pdsh to PATH itself, because the
    image sets PATH."""
    if stage.container is None:
        return command
    return f'export PATH={shlex.quote(str(stage.folder / "bin"))}:"$PATH"\n{command}'
