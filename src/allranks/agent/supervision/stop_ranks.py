"""Stop the ranks of a node: SIGTERM, a grace whose end they may read, SIGKILL."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from allranks import folder_trees
from allranks.agent.launch.mpi_ranks import MpiRanks, is_listening
from allranks.agent.launch.stage import Stage
from allranks.agent.processes.keeper import has_others
from allranks.agent.processes.ranks import Ended, Running
from allranks.agent.transport.inbox import Inbox
from allranks.core.distributions import rank_variables
from allranks.settings import Clocks
from allranks.statuses import Reason

# With these reasons ranks get the full grace, because they may save something.
GENTLE = (Reason.CANCELED, Reason.TIME_LIMIT, Reason.PREEMPTED)
# Seconds between two checks of ranks that mpirun started, which have no descriptor to wait for.
# After a failure mpirun takes seconds to end the others, and sometimes does not.
MPI_POLL = 0.1


def grace(why: Reason, clocks: Clocks) -> float:
    """Seconds between SIGTERM and SIGKILL."""
    return clocks.grace if why in GENTLE else clocks.peer_grace


def write_deadline(folder: Path, seconds: float, why: Reason) -> None:
    """Write when SIGKILL follows, and why, for ranks that read it when they get SIGTERM."""
    path = folder / rank_variables.DEADLINE
    with (
        contextlib.suppress(OSError),  # a full disk must not prevent stopping
        folder_trees.replace_file(path, below=folder) as file,
    ):
        file.write(f"{time.time() + seconds:.3f} {why}\n".encode())


def end_ranks(running: Running, inbox: Inbox, until: float) -> Iterator[Ended]:
    """Each process as it ends: by SIGTERM until then (monotonic), by SIGKILL after it."""
    running.send(signal.SIGTERM)
    while running.processes and time.monotonic() < until:
        inbox.wait(until - time.monotonic(), running.fds)
        yield from running.reap()
    running.send(signal.SIGKILL)
    while running.processes:
        inbox.wait(0.05, running.fds)
        yield from running.reap()


def end_mpi_ranks(
    hosted: MpiRanks, running: Running, stage: Stage, inbox: Inbox, until: float
) -> None:
    """Give mpirun's ranks their grace: once a rank or a daemon has ended, mpirun kills all others.
    So mpirun and its daemons are not signalled before the ranks of all nodes have ended; a node
    where they have stops listening."""

    def wait_while(condition: Callable[[], object]) -> None:
        while condition() and time.monotonic() < until:
            inbox.wait(MPI_POLL)

    hosted.send(signal.SIGTERM)
    wait_while(hosted.alive)
    if stage.node == 0:
        others = stage.places[1:]
        wait_while(lambda: any(is_listening(place.address, place.ports[0]) for place in others))
    else:
        running.send(signal.SIGHUP)
        others_left = has_others if stage.container is None else bool
        wait_while(lambda: running.reap() or running.processes or others_left())
