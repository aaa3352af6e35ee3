"""Run by mpirun once for each rank, as a file of its own: becomes what its node wrote down.

With a process id for its only word it ends everything below that process: a rank in a container,
whose processes only a program inside can name.

mpirun only decides where and when. What the rank finds, where it writes and how it ended is as for
every other rank: its node's agent has written the first down, and reads the last.
Standard library only, and little of it: this stands between mpirun and every rank.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from typing import Any

# How long a node may be later than the one where mpirun runs.
PATIENCE = 30.0
# What an MPI gives each of its processes to tell it who it is; the first one present counts.
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")


def main() -> int:
    if sys.argv[1:]:
        return _end_below(int(sys.argv[1]))
    number = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), None)
    folder = os.environ.pop("ALLRANKS_RANKS", None)
    if number is None or folder is None:
        print("allranks: mpirun did not say which rank this is", file=sys.stderr)
        return 2
    beside = os.path.join(folder, number)
    told = _told(beside + ".json")
    if told is None:
        print(f"allranks: rank {number}'s node has not told what it is to do", file=sys.stderr)
        return 2
    # A group of its own, which mpirun's and our agent's signals reach as a whole.
    with contextlib.suppress(PermissionError):  # mpirun has seen to it
        os.setpgid(0, 0)
    log = os.open(told["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    _live(beside + ".pid")
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            os.chdir(told["cwd"])
        except OSError as error:
            print(f"allranks: {error.strerror}: {told['cwd']}", file=sys.stderr, flush=True)
            os._exit(2)
        env = dict(os.environ)
        # The launcher's own place for temporary files goes with it.
        if env.get("TMPDIR", "").startswith(folder):
            del env["TMPDIR"]
        env.update({name: value for name, value in told["instead"].items() if name in env})
        os.execve("/bin/bash", ["/bin/bash", "-c", told["command"]], {**env, **told["env"]})
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    _write(beside + ".ended", json.dumps({"code": code, "at": time.time()}))
    if asked:
        # mpirun ends all ranks once one has ended badly: those that still save something after a
        # SIGTERM of ours have their grace, for which this one stays.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pause()
    return code if code >= 0 else 128 - code


def _told(path: str) -> dict[str, Any] | None:
    """What this rank is to be; its node may be a moment later than node 0, where mpirun runs. It
    holds the rank's whole environment: nobody else reads it."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with open(path) as file:
                found: dict[str, Any] = json.load(file)
            os.unlink(path)
            return found
        except FileNotFoundError:
            if time.monotonic() > until:
                return None
            time.sleep(0.02)


def _live(path: str) -> None:
    """Tell our process id in a file whose lock is held as long as we live, and no longer: process
    ids of a container mean nothing outside. Programs that we become do not inherit it."""
    with contextlib.suppress(FileNotFoundError):
        file = os.open(path + ".new", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.write(file, str(os.getpid()).encode())
        os.rename(path + ".new", path)


def _end_below(root: int) -> int:
    parents: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
            parent = int(file.read().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(name))
    look = [root]
    while look:
        for pid in parents.get(look.pop(), []):
            look.append(pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    return 0


def _write(path: str, text: str) -> None:
    """Whole or not at all: somebody may be looking, unless everybody is gone already."""
    with contextlib.suppress(FileNotFoundError):
        with open(path + ".new", "w") as file:
            file.write(text)
        os.rename(path + ".new", path)


if __name__ == "__main__":
    sys.exit(main())
