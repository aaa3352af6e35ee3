"""How an MPI job is started: mpirun's words and variables, for each implementation. Pure.

mpirun runs on node 0 and starts a daemon on every other node through a program of ours in place of
ssh (``agent.remote``). Node 0 goes by its real name, which mpirun knows to be here; the others by
names that only our program has to understand, so that no DNS is asked.

Sources: mpirun(1) of Open MPI 4.1, prterun(1) of 5.0, the Hydra wiki of MPICH.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

# What an MPI gives each of its processes to tell it who it is; the first one present counts.
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")

# Names of launchers on PATH, in the order they are asked for in each folder.
PROGRAMS = ("mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.hydra", "mpirun.mpich")
KINDS = ("openmpi", "mpich", "intel")


class Mpi(NamedTuple):
    """An MPI's launcher: ``kind`` (one of KINDS), its version's words, where it lies."""

    kind: str
    version: str
    path: str


def recognised(path: str, said: str) -> Mpi | None:
    """What `mpirun --version` says of itself, or None when it is none that we know."""
    first = said.strip().splitlines()[0].strip() if said.strip() else ""
    openmpi = re.search(r"Open MPI\)? ?v?(\d[\w.]*)", said)
    if openmpi or "prterun" in first.lower():
        return Mpi("openmpi", openmpi[1] if openmpi else first, path)
    intel = re.search(r"Intel\(R\) MPI Library.*?Version (\d[\w.]*)", said)
    if intel:
        return Mpi("intel", intel[1], path)
    if "HYDRA build details" in said:
        found = re.search(r"Version:\s*(\S+)", said)
        return Mpi("mpich", found[1] if found else first, path)
    return None


def node_name(node: int, host: str) -> str:
    """What mpirun calls the node; ``host`` is the host it runs on itself."""
    return host if node == 0 else f"allranks-node-{node}"


def words(
    mpi: Mpi, host: str, nodes: int, procs: int, program: Sequence[str], root: bool
) -> list[str]:
    """The command line that starts ``procs`` of ``program`` on each node, node by node."""
    hosts = ",".join(f"{node_name(node, host)}:{procs}" for node in range(nodes))
    count = str(nodes * procs)
    if mpi.kind != "openmpi":
        # Without `-genvnone` each rank would find the variables of node 0's.
        return [mpi.path, "-genvnone", "-hosts", hosts, "-np", count, *program]
    as_root = ["--allow-run-as-root"] if root else []
    # Unbound: several jobs, or nodes, on one machine would else be bound to the same first cores.
    where = ["--host", hosts, "--map-by", "slot", "--bind-to", "none"]
    return [mpi.path, *as_root, *where, "-np", count, *program]


def variables(mpi: Mpi, remote: str, hosts: Sequence[str]) -> dict[str, str]:
    """What mpirun and its daemons find; ``remote`` is the program to use in place of ssh, a path
    without blanks; ``hosts`` are the real names of the nodes' hosts, in the order of the nodes."""
    if mpi.kind != "openmpi":
        return {
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": remote,
            "I_MPI_HYDRA_BOOTSTRAP": "ssh",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC": remote,
        }
    found = {}
    # 4.1 reads the first, 5.0 the second family.
    for prefix, agent in (("OMPI_MCA_plm_rsh", "_agent"), ("PRTE_MCA_plm_ssh", "_agent")):
        found[prefix + agent] = remote
        found[prefix + "_no_tree_spawn"] = "1"
    if len(set(hosts)) < len(hosts):
        # Nodes that share a machine: Open MPI names its shared memory by host and local rank, and
        # two nodes' ranks would write into one another's; the collectives named use it too.
        found["OMPI_MCA_btl"] = "self,tcp"
        found["OMPI_MCA_coll"] = "^han,sm,xhc,acoll"
        if len(set(hosts)) == 1:
            found["OMPI_MCA_btl_tcp_if_include"] = "lo"
    return found
