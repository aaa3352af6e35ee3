"""Processes of a benchmark: run, timed, looked at through /proc."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

LIMIT = 600.0

# What would make a contender behave otherwise than on a fresh shell. PYTHONDONTWRITEBYTECODE, for
# one, makes every start of every Python tool compile its sources again.
_FOREIGN = re.compile(
    r"(ALLRANKS_|PYTHON|PET_|TORCHELASTIC_|OMP_|MASTER_|RANK$|LOCAL_RANK$|WORLD_SIZE$)"
)


def environment(**more: str) -> dict[str, str]:
    """Ours, without what would steer a contender, and with ``more``."""
    return {k: v for k, v in os.environ.items() if not _FOREIGN.match(k)} | more


def timed(action: Callable[[], object]) -> float:
    """Seconds on the wall that ``action`` took."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def run(
    argv: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run to the end; RuntimeError, with its last words, unless it exits 0."""
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(done.args)} exited with {done.returncode}: {done.stderr.strip()[-2000:]}"
        )
    return done


def by_hand(
    argv: Sequence[str | Path],
    *,
    ranks: int,
    cwd: Path,
    env: Mapping[str, str],
    logs: Path | None = None,
) -> None:
    """Start ``ranks`` processes with the variables of torch.distributed set, and wait for them.

    The output of rank R goes to ``logs``/R.txt, or nowhere.
    """
    port = str(free_port())
    running = []
    try:
        for rank in range(ranks):
            variables = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "WORLD_SIZE": str(ranks),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
            }
            with open(logs / f"{rank}.txt" if logs else os.devnull, "wb") as output:
                running.append(
                    subprocess.Popen(
                        [str(word) for word in argv],
                        cwd=cwd,
                        env={**env, **variables},
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                    )
                )
        codes = [process.wait(LIMIT) for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    if any(codes):
        raise RuntimeError(f"ranks started by hand exited with {codes}")


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port: int = door.getsockname()[1]
        return port


def naming(text: str) -> list[int]:
    """Processes other than this one with ``text`` in their environment or on their command line."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if pid != os.getpid() and text in words(pid):
            found.append(pid)
    return found


def words(pid: int) -> str:
    """The command line and, after it, the environment of a process; empty when it is gone."""
    with contextlib.suppress(OSError):
        folder = Path(f"/proc/{pid}")
        data = (folder / "cmdline").read_bytes() + b"\0" + (folder / "environ").read_bytes()
        return data.decode(errors="replace").replace("\0", " ")
    return ""


def command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
        return data.decode(errors="replace").replace("\0", " ").strip()
    return ""


def parent(pid: int) -> int:
    return _status(pid, "PPid")


def family(pid: int) -> list[int]:
    """A process and everything below it."""
    parents = {}
    for each in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError, RuntimeError):
            parents[each] = parent(each)
    found = [pid]
    for each in found:
        found += [child for child, above in parents.items() if above == each]
    return found


def resident_mb(pid: int) -> float:
    """Resident memory, as /proc has it."""
    return _status(pid, "VmRSS") * 1024 / 1e6


def cpu_seconds(pid: int) -> float:
    """The time that a process has spent on CPUs, its own and the kernel's for it."""
    # The name in parentheses may hold blanks; utime and stime are fields 14 and 15 (proc(5)).
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def running_seconds(pid: int) -> float:
    """The same of the threads that live now, but in nanoseconds instead of ticks of 10 ms."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in tasks) / 1e9


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _status(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0])
    raise RuntimeError(f"/proc/{pid}/status has no {key}")
