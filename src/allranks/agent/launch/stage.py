"""What starting a node's part of an attempt needs, and what it makes."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from allranks.agent.processes.ranks import Process, Running
from allranks.core.distributions.topology import Rank, ranks_of
from allranks.core.plan import Place, Task

if TYPE_CHECKING:
    from allranks.agent.environments.node_container import NodeContainer
    from allranks.agent.launch.mpi_ranks import MpiRanks
    from allranks.agent.launch.warm_ranks import WarmRanks


class Stage(NamedTuple):
    """What starting a node's part of an attempt needs.

    ``env`` returns a rank's whole environment. ``held`` are the sockets that reserve this node's
    ports. ``secret`` returns the secret that the attempt's nodes share. ``container`` is that in
    which the ranks run, if any. ``warm`` starts ranks that find their modules imported; ``note``
    records why a rank cannot start like that.
    """

    task: Task
    node: int
    folder: Path
    cwd: Path
    command: str
    places: Sequence[Place]
    held: list[socket.socket]
    secret: Callable[[], str]
    env: Callable[[Rank], dict[str, str]]
    container: NodeContainer | None = None
    warm: WarmRanks | None = None
    note: Callable[[str], None] = lambda why: None

    def rank(self, rank: Rank) -> Process:
        log = self.folder / f"rank-{rank.rank}.log"
        return Process(f"rank {rank.rank}", log, rank.rank, rank.service)

    def helper(self, name: str) -> Process:
        log = f"helper-{name.replace(' ', '-')}.log"
        return Process(f"{name} on node {self.node}", self.folder / log, service=True)

    @property
    def scratch(self) -> Path:
        """A folder whose path all nodes of the attempt can compute. The path is short, because
        sockets' paths have at most 107 bytes, has no blanks, and does not reveal the secret."""
        name = hashlib.sha256(f"scratch {self.secret()}".encode()).hexdigest()[:16]
        return Path("/tmp", f"allranks-{self.task.distribution}-{name}")

    @property
    def logs(self) -> dict[int, Path]:
        """The log of each rank of this node."""
        return {rank.rank: self.rank(rank).log for rank in ranks_of(self.task, self.node)}


class StartedRanks(NamedTuple):
    """The running processes, the log of each rank here, the ranks that mpirun starts, and how many
    ranks started warm."""

    running: Running
    logs: Mapping[int, Path]
    hosted: MpiRanks | None = None
    warm: int = 0
