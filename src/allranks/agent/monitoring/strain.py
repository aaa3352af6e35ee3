"""What keeps ranks from running: signals, limits of control groups, other programs, disks, swap.

Counters of the kernel, read when a report is due; what is not there on a host is left out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.agent.monitoring.process_usage import Rank
from allranks.agent.processes.rank_processes import Members

if TYPE_CHECKING:
    from allranks.api.agents import HostStrain, RankStrain

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# CPUs whose clocks are read; levels of control groups that are.
_CPUS, _LEVELS = 8, 6
# A program that uses less of a CPU is not named.
_LEAST = 0.1


class Strain:
    """Of one node. ``count`` is called with each sample of the ranks, the others when a report is
    due."""

    def __init__(self) -> None:
        self._samples = 0
        self._stopped: dict[int, int] = {}
        self._blocked: dict[int, int] = {}
        # Counters at the last report, by what they count.
        self._counters: dict[tuple[str, int], float] = {}
        self._own: frozenset[int] = frozenset()
        self._programs: dict[int, float] = {}
        for name, read in _OF_HOST.items():
            self._counters[name, 0] = read()

    def count(self, ranks: Mapping[int, Rank]) -> None:
        self._samples += 1
        for rank, usage in ranks.items():
            self._stopped[rank] = self._stopped.get(rank, 0) + (usage.stopped > 0)
            self._blocked[rank] = self._blocked.get(rank, 0) + (usage.blocked > 0)

    def ranks(self, members: Members, seconds: float) -> Iterator[tuple[int, RankStrain]]:
        """Of each rank since the last report, ``seconds`` ago."""
        for rank, pids in members.ranks.items():
            samples = max(1, self._samples)
            strain: RankStrain = {
                "stopped": self._stopped.get(rank, 0) / samples,
                "blocked": self._blocked.get(rank, 0) / samples,
                "starved": min(1.0, self._more("starved", rank, _starved(pids)) / seconds),
                "swapped": float(sum(map(_swapped, pids))),
            }
            throttled, periods = _throttled(pids[0]) if pids else (0, 0)
            periods = int(self._more("periods", rank, periods))
            throttled = int(self._more("throttled", rank, throttled))
            if periods > 0:
                strain["throttled"] = min(1.0, throttled / periods)
            yield rank, strain
        self._samples = 0
        self._stopped.clear()
        self._blocked.clear()

    def host(self, seconds: float) -> HostStrain:
        """Of the host since the last report."""
        more = {name: self._more(name, 0, read()) for name, read in _OF_HOST.items()}
        cpus = os.cpu_count() or 1
        strain: HostStrain = {
            "stolen": more["stolen"] / _TICKS / seconds / cpus,
            "io": more["io"] / 1e6 / seconds,
            "memory": more["memory"] / 1e6 / seconds,
            "swapping": more["swapping"] * _PAGE / seconds,
        }
        if more["sent"] > 0:
            strain["resent"] = more["resent"] / more["sent"]
        if clocks := [*islice(_clocks(), _CPUS)]:
            strain["clock"] = sum(clocks) / len(clocks)
        if self._programs and (busiest := self._busiest(seconds)):
            strain["busiest"] = busiest
        return strain

    def begin_search(self, own: Collection[int]) -> None:
        """Look for programs that compete with these processes, until the next report."""
        self._own = frozenset(own)
        self._programs = dict(_programs(self._own))

    def _busiest(self, seconds: float) -> str:
        before, self._programs = self._programs, {}
        used = {pid: ticks - before.get(pid, ticks) for pid, ticks in _programs(self._own)}
        pid = max(used, key=lambda other: used[other], default=0)
        if used.get(pid, 0.0) < _LEAST * _TICKS:
            return ""
        with contextlib.suppress(OSError):
            return f"{Path(f'/proc/{pid}/comm').read_text().strip()} (process {pid})"
        return ""

    def _more(self, name: str, of: int, total: float) -> float:
        """What a counter has gained; 0 where it is new."""
        before = self._counters.get((name, of), total)
        self._counters[name, of] = total
        return max(0.0, total - before)


def _programs(own: Collection[int]) -> Iterator[tuple[int, float]]:
    """The processes of others, with the ticks that they have computed."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        if int(name) not in own and int(name) != os.getpid():
            with contextlib.suppress(OSError, IndexError):
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
                yield int(name), float(fields[11]) + float(fields[12])


def _starved(pids: Iterable[int]) -> float:
    """Seconds that the first thread of the first process has waited for a processor."""
    with contextlib.suppress(OSError, IndexError, StopIteration):
        return int(Path(f"/proc/{next(iter(pids))}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _swapped(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmSwap:"):
                return int(line.split()[1]) * 1024
    return 0


def _throttled(pid: int) -> tuple[int, int]:
    """The periods in which its control groups were throttled, and all periods; of the one that was
    most often."""
    counts = [(0, 0)]
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            number, kinds, path = line.split(":", 2)
            if number == "0" or "cpu" in kinds.split(","):
                top = Path("/sys/fs/cgroup", "" if number == "0" else kinds)
                folder = top / path.lstrip("/")
                for group in islice((folder, *folder.parents), _LEVELS):
                    counts += _periods(group / "cpu.stat")
                    if group == top:
                        break
    return max(counts)


def _periods(file: Path) -> list[tuple[int, int]]:
    with contextlib.suppress(OSError, ValueError, KeyError):
        stat = dict(line.split() for line in file.read_text().splitlines())
        return [(int(stat["nr_throttled"]), int(stat["nr_periods"]))]
    return []


def _clocks() -> Iterator[float]:
    """The clock of each CPU as a share of its highest."""
    for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"):
        with contextlib.suppress(OSError, ValueError):
            now = int((folder / "scaling_cur_freq").read_text())
            yield now / int((folder / "cpuinfo_max_freq").read_text())


def _pressure(kind: str) -> Callable[[], float]:
    """Microseconds in which some task waited."""

    def read() -> float:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return float(Path(f"/proc/pressure/{kind}").read_text().split("total=")[1].split()[0])
        return 0.0

    return read


def _stolen() -> float:
    with contextlib.suppress(OSError, IndexError):
        return float(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8])
    return 0.0


def _swapping() -> float:
    """Pages that were swapped in or out."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/vmstat").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("pswp"))
    return 0.0


def _tcp(name: str) -> Callable[[], float]:
    def read() -> float:
        with contextlib.suppress(OSError, ValueError):
            lines = Path("/proc/net/snmp").read_text().splitlines()
            names, values = (line.split() for line in lines if line.startswith("Tcp:"))
            return float(values[names.index(name)])
        return 0.0

    return read


_OF_HOST: Mapping[str, Callable[[], float]] = {
    "stolen": _stolen,
    "io": _pressure("io"),
    "memory": _pressure("memory"),
    "swapping": _swapping,
    "resent": _tcp("RetransSegs"),
    "sent": _tcp("OutSegs"),
}
