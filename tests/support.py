"""What several tests need: the real command line, whose processes are whose, waiting for a fact."""

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from allranks.core.job.shell_variables import dropped
from allranks.sdk.submit.current_environment import current

CLI = "import sys; from allranks.cli.main import main; sys.exit(main())"

Allranks = Callable[..., "subprocess.CompletedProcess[str]"]

# A machine of CI is shared: all of it stands still for ten seconds now and then. What is waited for
# comes sooner or never, so only a test that fails pays for this.
PATIENCE = 4


def processes_of(*homes: Path) -> list[psutil.Process]:
    """Every other process that names one of them in its environment or on its command line."""
    names = [str(home) for home in homes]
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
            if process.status() == psutil.STATUS_ZOMBIE:  # ended, and not yet taken note of
                continue
        except psutil.Error:  # gone meanwhile, or not ours to read
            continue
        if process.pid != os.getpid() and any(name in word for word in words for name in names):
            found.append(process)
    return found


def children(word: str) -> list[psutil.Process]:
    """Our living descendants with ``word`` on their command line: other tests have zombies."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie's has none, either
            if word in " ".join(each.cmdline()):
                found.append(each)
    return found


def environment(home: Path) -> dict[str, str]:
    """The environment of a user with that home, and nothing else of ours."""
    # Jobs do not get these, and each submit would say so.
    lacked = dropped(os.environ, {*current()})
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ALLRANKS_") and name not in lacked
    }
    # The environment `current` of the tests' jobs is the one that runs the tests. Their jobs are
    # small, and many tests run more ranks at once than a small machine has CPUs.
    ours = {"ALLRANKS_HOME": str(home), "ALLRANKS_MAX_RANKS": "0"}
    return {**clean, **ours, "VIRTUAL_ENV": sys.prefix}


def command_line(home: Path, folder: Path, python: str = sys.executable) -> Allranks:
    """Run the command line as a user does, of that Python's allranks; ``env`` adds variables, other
    keywords go to ``run``."""

    def run(*words: object, **options: Any) -> "subprocess.CompletedProcess[str]":
        given = {"stdin": subprocess.DEVNULL} if "input" not in options else {}
        given |= {"capture_output": True, "text": True, "cwd": folder}
        env = environment(home) | options.pop("env", {})
        timeout = options.pop("timeout", 60) * PATIENCE
        argv = [python, "-P", "-c", CLI, *map(str, words)]
        return subprocess.run(argv, env=env, timeout=timeout, **{**given, **options})

    return run


def on_a_terminal(home: Path, answers: bytes, *words: str) -> tuple[int, str]:
    """Run a command on a terminal where somebody types; its exit code and what it asked."""
    ours, theirs = pty.openpty()
    os.write(ours, answers)
    argv = [sys.executable, "-c", CLI, *words]
    done = subprocess.run(
        argv, env=environment(home), stdin=theirs, stderr=theirs, timeout=60, check=False
    )
    os.close(theirs)
    said = os.read(ours, 65536).decode()
    os.close(ours)
    return done.returncode, said


def answer(allranks: Allranks, *words: object, code: int = 0) -> Any:
    """Run a command with --json, expect its exit code, and return what it printed."""
    done = allranks(*words, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def commit_all(folder: Path) -> None:
    """Commit everything in the folder to a new Git repository on the branch main."""
    git = ["git", "-C", folder, "-c", "user.name=x", "-c", "user.email=x@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)


def leave_nothing(home: Path) -> None:
    """Stop the home's server and hold that no process of it is left."""
    if (home / "server.json").exists():
        command_line(home, home)("server", "stop")
    none_left(home)


def none_left(*homes: Path) -> None:
    """Hold that no process of these homes is left, and end those that are."""
    _, left = psutil.wait_procs(processes_of(*homes), timeout=5 * PATIENCE)
    told = [str(home) for home in homes if left and processes_of(home)]
    for process in left:
        process.kill()
    assert not left, f"processes still run after the tests of {told}"


def until(fact: Callable[[], object], seconds: float = 20.0) -> None:
    """Return as soon as ``fact`` is true; fail when it does not come."""
    end = time.monotonic() + seconds * PATIENCE
    while not fact():
        assert time.monotonic() < end, f"waited {seconds * PATIENCE} s in vain"
        time.sleep(0.02)


def kill_agents(home: Path, job: str, launch: int = 1) -> None:
    """Lose all nodes of a job on this machine: end its agents and their keepers by SIGKILL."""
    from allranks.engines.local.end_gang import marked
    from allranks.engines.local.engine import LocalEngine

    engine, key = LocalEngine(home / "engines" / "local", home / "nodes"), f"{job}.{launch}"
    for pid in marked(engine.mark(key), home / "engines" / "local" / key):
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if any("allranks.agent" in word for word in process.cmdline()):
                process.kill()


def kill_server(home: Path) -> None:
    """End the server of a home by SIGKILL."""
    os.kill(json.loads((home / "server.json").read_text())["pid"], signal.SIGKILL)
