"""How an MPI job is started: mpirun's words and variables, for each implementation. Pure.

mpirun runs on node 0 and starts a daemon on every other host through our stand-in for ssh
(``agent.programs.remote_shell``). Node 0's host goes by its real name, which mpirun knows to be
here; the others by names that only our program has to understand, so that no DNS is asked.

Nodes that share a host are one host to MPI: it takes who is where from the hosts' own names, and
two daemons of one name would each believe the other's ranks to be its own.

Sources: mpirun(1) of Open MPI 4.1, prterun(1) of 5.0, the Hydra wiki of MPICH.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

# Names of launchers on PATH, in the order they are asked for in each folder.
PROGRAMS = ("mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.hydra", "mpirun.mpich")


# For containers of one machine, whose only common network is its loopback: each is a host to MPI,
# which leaves that interface out by default.
LOOPBACK = {"OMPI_MCA_btl_tcp_if_include": "lo"}


class Mpi(NamedTuple):
    """An MPI's launcher: ``kind`` (openmpi, mpich, intel), its version's words, where it lies."""

    kind: str
    version: str
    path: str


def recognised(path: str, output: str) -> Mpi | None:
    """What `mpirun --version` says of itself, or None when it is none that we know."""
    first = output.strip().splitlines()[0].strip() if output.strip() else ""
    openmpi = re.search(r"Open MPI\)? ?v?(\d[\w.]*)", output)
    if openmpi or "prterun" in first.lower():
        return Mpi("openmpi", openmpi[1] if openmpi else first, path)
    intel = re.search(r"Intel\(R\) MPI Library.*?Version (\d[\w.]*)", output)
    if intel:
        return Mpi("intel", intel[1], path)
    if "HYDRA build details" in output:
        version = re.search(r"Version:\s*(\S+)", output)
        return Mpi("mpich", version[1] if version else first, path)
    return None


class Host(NamedTuple):
    """A host as mpirun sees it: its name, the first of our nodes on it, and how many those are."""

    name: str
    node: int
    nodes: int


def hosts(names: Sequence[str]) -> list[Host]:
    """The hosts of a job whose nodes are on hosts of these names, in the order of the nodes.

    Raises ValueError when a host's nodes do not follow one another: mpirun numbers host by host.
    """
    hosts: list[Host] = []
    for node, name in enumerate(names):
        if node and name == names[node - 1]:
            hosts[-1] = hosts[-1]._replace(nodes=hosts[-1].nodes + 1)
        elif name in names[:node]:
            raise ValueError(f"node {node} is on {name}, as an earlier one, but others lie between")
        else:
            hosts.append(Host(name if node == 0 else f"allranks-node-{node}", node, 1))
    return hosts


def words(
    mpi: Mpi, on: Sequence[Host], procs: int, program: Sequence[str], root: bool
) -> list[str]:
    """The command line that starts ``procs`` of ``program`` for each node, node by node."""
    slots = ",".join(f"{host.name}:{host.nodes * procs}" for host in on)
    count = str(sum(host.nodes for host in on) * procs)
    if mpi.kind != "openmpi":
        # Without `-genvnone` each rank would find the variables of node 0's.
        return [mpi.path, "-genvnone", "-hosts", slots, "-np", count, *program]
    as_root = ["--allow-run-as-root"] if root else []
    # Unbound: several jobs on one machine would else be bound to the same first cores.
    where = ["--host", slots, "--map-by", "slot", "--bind-to", "none"]
    return [mpi.path, *as_root, *where, "-np", count, *program]


def local_variables(local: int, procs: int) -> dict[str, str]:
    """What tells a rank of its place on its node, where one host has several nodes."""
    return {
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(procs),
        "OMPI_COMM_WORLD_NODE_RANK": str(local),
        "MPI_LOCALRANKID": str(local),
        "MPI_LOCALNRANKS": str(procs),
    }


def variables(mpi: Mpi, remote: str) -> dict[str, str]:
    """What mpirun and its daemons find; ``remote`` is the program to use in place of ssh, a path
    without blanks."""
    if mpi.kind != "openmpi":
        return {
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": remote,
            "I_MPI_HYDRA_BOOTSTRAP": "ssh",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC": remote,
        }
    variables = {}
    # 4.1 reads the first, 5.0 the second family.
    for prefix in ("OMPI_MCA_plm_rsh", "PRTE_MCA_plm_ssh"):
        variables[f"{prefix}_agent"] = remote
        variables[f"{prefix}_no_tree_spawn"] = "1"
    return variables
