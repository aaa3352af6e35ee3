"""Notice that a rank meets another job of this host, because the scripts of both fix one port.

torch's store listens on every address. So a rank of the second job joins the store of the first
one, whatever address it connects to, and both jobs may compute with each other's numbers. A
connection counts only if it cannot be meant: see docs/design/networks.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from allranks import folder_trees
from allranks.agent.monitoring import tcp_counters
from allranks.agent.monitoring.tcp_counters import Connection
from allranks.agent.processes import rank_messages
from allranks.agent.processes.rank_processes import Members
from allranks.core.diagnosis.rank_failure import ports_in_use
from allranks.core.distributions.rank_variables import DEADLINE

# The maximum share of one CPU that looking may take.
_SHARE = 0.02
# How often a connection is looked at: the list of a rank's processes may lack new ones.
_LOOKS = 3
# Seconds after a rank of another job joined the store, in which a failure is blamed on that.
BLAMED = 10.0
# In the folder of an attempt: which job joined its store.
_NOTE = "joined.json"
# torch's name for the thread of a store.
_STORE = "pt_tcpstore"
# How many ranks a job has, as torchrun, Open MPI and MPICH say it.
_WORLD_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


class OtherJob(NamedTuple):
    """A job that listens on ``port``. ``is_store``: there it has a store of torch; ``folders`` are
    those of its attempt on this host."""

    port: int
    job: str
    is_store: bool
    folders: tuple[str, ...] = ()

    def leave_note(self, job: str) -> None:
        """Leave a note for its agents that a rank of ``job`` joined its store."""
        note = json.dumps({"port": self.port, "job": job, "at": time.time()})
        for folder in self.folders if self.is_store else ():
            # OSError: the attempt has ended, or its folder is not visible here.
            with (
                contextlib.suppress(OSError),
                folder_trees.open_file(Path(folder, _NOTE), "wb") as file,
            ):
                file.write(note.encode())


def joined_by(folder: Path, at: float) -> tuple[str, int] | None:
    """The job that joined the store of the attempt in ``folder`` in the seconds before ``at``, and
    the port."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        note = rank_messages.load(folder_trees.read_file(folder / _NOTE))
        if at - note["at"] <= BLAMED:
            return note["job"], note["port"]
    return None


def listening(tail: Sequence[str]) -> OtherJob | None:
    """The other job that has the port on which a rank could not listen, by its last lines."""
    ports = ports_in_use(tail)
    if not ports:
        return None
    several = tcp_counters.connections()
    processes = _Processes(several)
    listeners = (sock for sock in several if sock.remote[1] == 0 and sock.local[1] in ports)
    return next(filter(None, map(processes.other_job, listeners)), None)


# Called with the other job and the rank of this one.
Met = Callable[[OtherJob, int | None], None]


class StoreWatch:
    """Looks for connections of ranks to the stores of other jobs. ``met`` is called once."""

    def __init__(self, met: Met) -> None:
        self._met = met
        # How often each connection was seen, by its inode.
        self._looks: dict[int, int] = {}
        self._again = 0.0

    def look(self, members: Members) -> None:
        """Look at the connections within this host that are new since the last look."""
        began = time.monotonic()
        if began < self._again:
            return
        if (meeting := self._meeting(members)) is not None:
            self._met(*meeting)
            self._again = float("inf")
            return
        now = time.monotonic()
        self._again = now + (now - began) / _SHARE

    def _meeting(self, members: Members) -> tuple[OtherJob, int | None] | None:
        pairs = dict(_within_host(tcp_counters.connections()))
        looks = {sock.inode: self._looks.get(sock.inode, 0) + 1 for sock in pairs}
        new, self._looks = [sock for sock in pairs if looks[sock.inode] <= _LOOKS], looks
        if not new:
            return None
        own = {pid: tcp_counters.of_processes([pid]) for pid in members.job}
        ours = set().union(*own.values())
        leaving = [sock for sock in new if sock.inode in ours and pairs[sock].inode not in ours]
        if not leaving:
            return None
        processes = _Processes([*pairs, *pairs.values()])
        for client in leaving:
            other = processes.other_job(pairs[client])
            if other is None or not other.is_store:
                continue
            pid = next(pid for pid, inodes in own.items() if client.inode in inodes)
            mine = [pairs[sock] for sock in pairs if sock.inode in own[pid]]
            if processes.lacks_store(pid, mine):
                ranks = (rank for rank, pids in members.ranks.items() if pid in pids)
                return other, next(ranks, None)
        return None


def _within_host(several: Sequence[Connection]) -> Iterator[tuple[Connection, Connection]]:
    """The connections to listening sockets of this host, each with its accepted other end."""
    ports = {sock.local[1] for sock in several if sock.remote[1] == 0}
    accepted = {(sock.remote, sock.local): sock for sock in several if sock.local[1] in ports}
    for sock in several:
        end = accepted.get((sock.local, sock.remote))
        if end is not None and end.inode and sock.local[1] not in ports:
            yield sock, end


class _Processes:
    """The processes of all jobs on this host, with what they hold of these sockets."""

    def __init__(self, several: Sequence[Connection]) -> None:
        self._of = {sock.inode: sock for sock in several}
        self._own = os.environ.get("ALLRANKS_GANG", "")
        self._environs: dict[int, dict[str, str]] = {}
        self._sockets: dict[int, set[int]] = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            # OSError: it has ended, or belongs to another user.
            with contextlib.suppress(OSError):
                environ = _environ(int(name))
                if "ALLRANKS_GANG" in environ:
                    self._environs[int(name)] = environ
                    self._sockets[int(name)] = tcp_counters.of_processes([int(name)])

    def other_job(self, end: Connection) -> OtherJob | None:
        """The job that has the socket ``end``, if it is not ours."""
        for pid in self._holders(end):
            environ = self._environs[pid]
            gang, job = environ["ALLRANKS_GANG"], environ.get("ALLRANKS_JOB")
            if gang != self._own and job:
                is_store = self._serves_store(pid, end.local[1])
                return OtherJob(end.local[1], job, is_store, self._folders(gang))
        return None

    def lacks_store(self, pid: int, servers: Sequence[Connection]) -> bool:
        """Whether a process of ours, one of several ranks, has no store of this job: neither does
        it have one itself, nor is it connected to one, with these other ends."""
        sizes = (self._environs.get(pid, {}).get(name, "") for name in _WORLD_SIZE)
        if not any(size.isdecimal() and int(size) > 1 for size in sizes) or _has_store(pid):
            return False
        others = {holder for end in servers for holder in self._holders(end)}
        own = (holder for holder in others if self._environs[holder]["ALLRANKS_GANG"] == self._own)
        return not any(map(_has_store, own))

    def _serves_store(self, pid: int, port: int) -> bool:
        """Whether it has a store on that port, not only on another: it is its own client there."""
        mine = (self._of[inode] for inode in self._sockets[pid] if inode in self._of)
        return _has_store(pid) and any(sock.remote[1] == port for sock in mine)

    def _folders(self, gang: str) -> tuple[str, ...]:
        of_gang = (env for env in self._environs.values() if env["ALLRANKS_GANG"] == gang)
        files = {env.get("ALLRANKS_DEADLINE_FILE", "") for env in of_gang}
        return tuple(sorted(file.removesuffix(f"/{DEADLINE}") for file in files if file))

    def _holders(self, end: Connection) -> list[int]:
        return [pid for pid, sockets in self._sockets.items() if end.inode in sockets]


def _environ(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return {name: value for name, _, value in (entry.partition("=") for entry in text.split("\0"))}


def _has_store(pid: int) -> bool:
    """Whether a thread of the process serves a store of torch."""
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            if (thread / "comm").read_text().startswith(_STORE):
                return True
    return False
