"""Makes the corpus: lets every failure really happen, as a job, and keeps what is known of it.

    python tests/corpus/make.py [NAME…]     as root, with torch and NumPy, gcc, memory cgroups
    python tests/corpus/make.py --gpu       where an NVIDIA GPU is, with CuPy, JAX and Triton

Without ``--gpu`` or a name, those that need a GPU are left out.

A case is the JSON of ``plan.diagnosis.explain.FailedAttempt`` and its true cause. Cases of ways
removed from failing.py stay: delete them by hand.
"""

import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import psutil

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from allranks.core.packing import pack  # noqa: E402
from allranks.server.jobs.explain import failure_facts  # noqa: E402
from allranks.settings import Home  # noqa: E402
from allranks.store.database import opened_database  # noqa: E402
from allranks.store.jobs.records import Records  # noqa: E402
from tests.corpus.failing import NATIVE, ODD, WAYS, Way  # noqa: E402
from tests.support import CLI, environment, processes_of, until  # noqa: E402

CASES = HERE / "cases"
CGROUP = Path("/sys/fs/cgroup/memory") / f"allranks-corpus-{os.getpid()}"
# What is needed of a long log.
_MOST = 150


class Lab:
    """A home of its own, the programs in a folder, and, if ``starved``, little memory for all."""

    def __init__(self, folder: Path, starved: bool) -> None:
        self.home, self.code = folder / "home", folder / "code"
        shutil.copytree(HERE / "programs", self.code)
        _write_programs(self.code)
        self._starved = starved
        self._env = environment(self.home) | _pythons() | {"OMP_NUM_THREADS": "1"}

    def allranks(self, *words: object) -> str:
        done = subprocess.run(
            [sys.executable, "-c", CLI, *map(str, words)],
            cwd=self.code,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=700,
            preexec_fn=self._starve if self._starved else None,
        )
        return done.stdout

    def _starve(self) -> None:
        limited = CGROUP / "all"
        limited.mkdir(parents=True, exist_ok=True)
        (limited / "memory.limit_in_bytes").write_text("2G")
        (limited / "cgroup.procs").write_text(str(os.getpid()))

    def run(self, way: Way) -> dict:
        more = {"long": ["--timeout", 2], "gpu": ["--gpus", 1]}.get(way.how, [])
        for name in _pythons():
            more += ["--env", name]
        size = ("-n", way.nodes, "-p", way.ranks)
        own = ("--env", f"OWN={CGROUP / way.name}")
        command = ("--", "bash", "-c", way.command)
        self.allranks("run", "--detach", "--name", way.name, *size, *own, *more, *command)
        if way.how.startswith("agent"):
            self._befall(way)
        self.allranks("job", "wait", way.name, "--timeout", 600)
        with opened_database(Home(self.home).database) as database:
            records = Records(database)
            return pack(failure_facts(records.get(way.name), records, Home(self.home)))

    def _befall(self, way: Way) -> None:
        """Signal the agent of node 1, once its ranks run."""

        def running() -> bool:
            events = json.loads(self.allranks("job", "events", way.name, "--json"))
            return sum(each["kind"] == "started" for each in events) == way.nodes

        until(running)
        ranks = [each for each in processes_of(self.home) if _is_rank(each, way.name)]
        agents = [psutil.Process(each.ppid()) for each in ranks]
        if way.how == "agent-kill":
            agents[0].kill()
            return
        # Around each agent is a keeper, which hands signals on.
        for each in agents:
            psutil.Process(each.ppid()).terminate()

    def close(self) -> None:
        self.allranks("server", "stop")


def _is_rank(process: psutil.Process, job: str) -> bool:
    try:
        return process.environ().get("ALLRANKS_GANG", "").endswith(f".{job}.1")
    except psutil.Error:
        return False


def _pythons() -> dict[str, str]:
    found = {}
    for minor in (8, 9, 10, 12):
        ours = glob.glob(os.path.expanduser(f"~/.pyenv/versions/3.{minor}.*/bin/python"))
        there = [*ours, shutil.which(f"python3.{minor}") or ""]
        found[f"PY3{minor}"] = there[0]
    return found


def _write_programs(code: Path) -> None:
    for name, text in ODD.items():
        (code / name).write_text(text)
        if not name.startswith("no_exec"):
            (code / name).chmod(0o755)
    newer = code / "newer"
    newer.mkdir()
    (newer / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='newer', version='1', python_requires='>=3.99')\n"
    )
    for name, text in NATIVE.items():
        (code / name).write_text(text)
    gcc = ("gcc", "-O0", "-w")
    subprocess.run([*gcc, "-shared", "nothing.c", "-o", "libnothing.so"], cwd=code, check=True)
    for name in NATIVE:
        compiler = "g++" if name.endswith(".cc") else "gcc"
        libraries = ["-L.", "-lnothing"] if name == "needs.c" else []
        if name != "nothing.c":
            words = [compiler, "-O0", "-w", name, "-o", name.partition(".")[0], *libraries]
            subprocess.run(words, cwd=code, check=True)
    (code / "libnothing.so").unlink()


def neutral(value: object, folder: Path) -> object:
    """Without what is this machine's own."""
    if isinstance(value, dict):
        return {key: neutral(each, folder) for key, each in value.items()}
    if isinstance(value, list):
        return [neutral(each, folder) for each in value]
    if not isinstance(value, str):
        return value
    for ours, theirs in (
        (str(folder), "/home/ada"),
        (sys.prefix, "/opt/env"),
        (os.path.expanduser("~/.pyenv/versions"), "/opt/pythons"),
        (str(HERE.parents[1]), "/opt/allranks"),
        (str(CGROUP), "/sys/fs/cgroup/memory/jobs"),
        (f"/{CGROUP.name}", "/jobs"),
    ):
        value = value.replace(ours, theirs)
    return re.sub(rf"(?<![\w-]){re.escape(socket.gethostname())}(?=[:\]])", "host", value)


def keep(way: Way, found: dict, folder: Path) -> None:
    for rank in found["ranks"]:
        cut = max(0, len(rank["lines"]) - _MOST)
        rank["number"] += cut
        rank["lines"] = [line[:600] for line in rank["lines"][cut:]]
    case = {"cause": way.cause, "held": way.held, "command": way.command, "known": found}
    text = json.dumps(neutral(case, folder), indent=1) + "\n"
    (CASES / f"{way.name}.json").write_text(text)


def make(ways: Iterable[Way], starved: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="corpus-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        lab = Lab(folder, starved)
        try:
            for way in ways:
                found = lab.run(way)
                keep(way, found, folder)
                print(f"{way.name}: {found['reason']}", flush=True)
        finally:
            lab.close()


def main() -> None:
    names = sys.argv[1:]
    if names in ([], ["--gpu"]):
        wanted = [way for way in WAYS if (way.how == "gpu") == bool(names)]
    else:
        wanted = [way for way in WAYS if way.name in names]
    CASES.mkdir(exist_ok=True)
    for starved in (False, True):
        if ways := [way for way in wanted if (way.how == "starved") == starved]:
            make(ways, starved)
    for each in [*CGROUP.glob("*/"), *CGROUP.parent.glob(CGROUP.name)]:
        each.rmdir()


if __name__ == "__main__":
    main()
