"""The program that mpirun starts for each rank: it runs the rank that the agent described.

mpirun only decides where and when ranks start. The agent has written the rank's command,
environment and log to a file, and reads its exit code from another, so the rank behaves like those
of every other distribution.

With a process id as its only argument it kills everything below that process: a rank in a
container, whose processes have other ids outside. It uses little of the standard library, because
every rank starts it.
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

# Seconds that a node may be behind the one where mpirun runs.
PATIENCE = 30.0
# The variables in which MPIs pass the rank; the first one that is set counts.
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")


def main() -> int:
    if sys.argv[1:]:
        return _end_below(int(sys.argv[1]))
    number = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), None)
    folder = os.environ.pop("ALLRANKS_RANKS", None)
    if number is None or folder is None:
        print(f"allranks: mpirun set none of {', '.join(RANK_VARIABLES)}", file=sys.stderr)
        return 2
    base = os.path.join(folder, number)
    description = _read_description(base + ".json")
    if description is None:
        message = f"allranks: the node of rank {number} did not describe it in {PATIENCE:g} s"
        print(message, file=sys.stderr)
        return 2
    # A process group, which signals of mpirun and of our agent reach as a whole.
    with contextlib.suppress(PermissionError):  # mpirun has already made one
        os.setpgid(0, 0)
    log = os.open(description["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    terminations: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: terminations.append(number))
    _write_pid(base + ".pid")
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            os.chdir(description["cwd"])
        except OSError as error:
            print(f"allranks: {error.strerror}: {description['cwd']}", file=sys.stderr, flush=True)
            os._exit(2)
        env = dict(os.environ)
        # mpirun's own folder for temporary files is removed with it.
        if env.get("TMPDIR", "").startswith(folder):
            del env["TMPDIR"]
        env.update({key: text for key, text in description["overrides"].items() if key in env})
        env.update(description["env"])
        os.execve("/bin/bash", ["/bin/bash", "-c", description["command"]], env)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    _write(base + ".ended", json.dumps({"code": code, "at": time.time()}))
    if terminations:
        # mpirun kills all ranks once one has failed. Stay until the agent ends this process, so
        # that ranks that save something after our SIGTERM keep their grace.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pause()
    return code if code >= 0 else 128 - code


def _read_description(path: str) -> dict[str, Any] | None:
    """Wait for this rank's description and delete it, because it holds secrets of its environment.
    The node may be behind node 0, where mpirun runs."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with open(path) as file:
                description: dict[str, Any] = json.load(file)
            os.unlink(path)
            return description
        except FileNotFoundError:
            if time.monotonic() > until:
                return None
            time.sleep(0.02)


def _write_pid(path: str) -> None:
    """Write our process id to a file and hold its lock as long as we live. The agent checks the
    lock, because process ids of a container mean nothing outside. Children do not inherit it."""
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
    """Write atomically; do nothing if the folder was removed."""
    with contextlib.suppress(FileNotFoundError):
        with open(path + ".new", "w") as file:
            file.write(text)
        os.rename(path + ".new", path)


if __name__ == "__main__":
    sys.exit(main())
