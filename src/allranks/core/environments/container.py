"""The container that a node's ranks run in: what it is given, and the words that start it. Pure.

Everything is found inside at the path it has outside, so that paths mean the same to the agent, the
ranks and whoever reads a log. The network is the node's own: ranks of other nodes reach ours.
"""

from __future__ import annotations

import csv
import io
import posixpath
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from allranks.core.data.state_manifest import SHARED, own
from allranks.core.data.working_set import FILES
from allranks.core.plan import Container, Task

# Programs that run containers, and how each hands all GPUs on; which of them the ranks see is said
# by CUDA_VISIBLE_DEVICES, as on every node.
_GPUS: Mapping[str, Sequence[str]] = {
    "podman": ("--device=nvidia.com/gpu=all",),
    "docker": ("--gpus=all",),
    "apptainer": ("--nv",),
}
ENGINES = tuple(_GPUS)
# What ends without a trace when its process does: neither a daemon nor a name to be removed.
TRACELESS = ("apptainer",)
# What an image is for it that lies on a disk, as one file.
FILE = ".sif"
# What all containers of ours carry.
LABEL = "allranks"


def hostname(node: int) -> str:
    """What the container of a node is called as a host, where MPI tells nodes apart by that."""
    return f"allranks-node-{node}"


class Mount(NamedTuple):
    """A file or folder of the node's, at the same path inside."""

    path: str
    writable: bool = False


def mounts(task: Task, folder: str, ours: str) -> list[Mount]:
    """``folder`` is the attempt's on this node, where what is downloaded lies, too; ``ours`` holds
    the programs of allranks."""
    node = posixpath.dirname(folder)
    of_node = own(posixpath.basename(node))
    # What is beside the writable ones the agent and the server write: links there would lead them
    # outside.
    needed = [Mount(ours), Mount(folder, True), Mount(f"{node}/state"), Mount(task.record)]
    needed += [Mount(f"{node}/state/{part}", True) for part in (SHARED, of_node)]
    needed.append(Mount(f"{task.record}/artifacts", True))
    working = f"{node}/working"
    if task.in_place:
        needed.append(Mount(task.in_place, True))
    else:
        needed += [Mount(working), Mount(f"{working}/{of_node}/{FILES}", True)]
    if task.recipe is not None:
        needed.append(Mount(task.environments))
    mounted = [item for item in task.inputs if item.mode not in ("download", "stream")]
    needed += [Mount(each.source) for each in mounted if each.source and not each.cached]
    if any(each.cached for each in mounted):
        needed.append(Mount(task.cache))
    for item in task.outputs:
        if item.uri:
            continue  # each node has its own, in the attempt's folder
        needed.append(Mount(posixpath.dirname(item.path) if item.is_file else item.path, True))
    rights: dict[str, bool] = {}
    for path, writable in needed:
        rights[path] = rights.get(path, False) or writable
    return [Mount(path, writable) for path, writable in sorted(rights.items())]


def visible(task: Task, folder: str) -> list[str]:
    """The folders of the node that ranks see; see ``mounts``. None of them is in another."""
    if task.container is None:
        return ["/"]
    paths = [path for path, _ in mounts(task, folder, folder)]
    return [path for path in paths if not any(path.startswith(f"{outer}/") for outer in paths)]


# What asks for another network than the node's.
_OWN_NETWORK = ("--network", "--net=", "--publish")


def words(
    container: Container,
    name: str,
    mounts: Sequence[Mount],
    program: Sequence[str],
    *,
    user: str = "0:0",
    env: Mapping[str, str] | None = None,
    gpus: bool = False,
    home: str = "",
    host: str = "",
) -> list[str]:
    """The command that runs ``program``, words for bash, in a new container of that ``name``.

    The image's own entry point is left out. It lives as long as standard input is open and
    ``program`` reads it, and is removed afterwards. ``host`` is a name of its own as a host.
    ``home`` is a folder of its own on the node's
    disk, for those who have no disk of their own inside.
    """
    if container.engine in TRACELESS:
        return _process(container, mounts, program, gpus, home)
    argv = [container.engine, "run", "--rm", "--interactive", f"--name={name}", f"--label={LABEL}"]
    # What is not there yet has been fetched in sight of the user.
    argv.append("--pull=never")
    if not any(word.startswith(_OWN_NETWORK) for word in container.args):
        argv.append("--network=host")
    argv.append("--log-driver=none")
    # Theirs is for one server: threads of all ranks' data loaders are more.
    argv.append("--pids-limit=-1")
    # Where SELinux is, it would keep the container from the folders it is given.
    argv += ["--security-opt=label=disable", "--entrypoint=/bin/bash", f"--user={user}"]
    argv += [f"--env={key}={value}" for key, value in (env or {}).items()]
    if host:
        argv.append(f"--hostname={host}")
    if container.shm_size is not None:
        argv.append(f"--shm-size={container.shm_size}b")
    if gpus:
        argv += _GPUS[container.engine]
    argv += [f"--mount={_mount(mount)}" for mount in mounts]
    return [*argv, *container.args, container.image, *program]


def _process(
    container: Container, mounts: Sequence[Mount], program: Sequence[str], gpus: bool, home: str
) -> list[str]:
    """A container that is a process like any other: its user, network and limits are the node's."""
    argv = [container.engine, "--silent", "--nocolor", "exec", "--containall", "--no-eval"]
    if home and not set(":,") & set(home):  # these would be the marks of a list
        argv += [f"--home={home}", f"--workdir={home}"]
    if gpus:
        argv += _GPUS[container.engine]
    argv += [f"--mount={_mount(mount)}" for mount in mounts]
    return [*argv, *container.args, container.image, "/bin/bash", *program]


def _mount(mount: Mount) -> str:
    """As these programs read it: comma-separated values, of which a path may hold commas."""
    row = ["type=bind", f"src={mount.path}", f"dst={mount.path}"]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(row if mount.writable else [*row, "readonly"])
    return line.getvalue()
