"""MPI's ranks as an agent sees them: real shims and ranks, started by a script for an mpirun.

The script starts ranks and waits for them, as mpirun does on one host, and lies about the end when
it is told to. Real ones are in tests/frameworks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes_of, until

MPIRUN = """#!/bin/bash
[ "$1" = --version ] && { echo "mpirun (Open MPI) 4.1.4"; exit; }
while [ "$1" != -np ]; do shift; done
count=$2 code=0 pids=()
shift 2
for ((i = 0; i < count; i++)); do OMPI_COMM_WORLD_RANK=$i "$@" & pids+=($!); done
for pid in "${pids[@]}"; do wait $pid || { code=$?; kill "${pids[@]}" 2>/dev/null; }; done
exit ${SAYS:-$code}
"""
# An agent's part of an attempt, in a process whose children are all its own.
DRIVER = """
import json, sys
from pathlib import Path
from allranks.agent.supervision.attempt import Attempt
from allranks.agent.transport.inbox import Inbox
from allranks.agent.processes.keeper import become_subreaper
from allranks.agent.launch.stage import Stage
from allranks.core.plan import Place, Task
from allranks.settings import Clocks
become_subreaper()
told = json.loads(sys.argv[1])
folder = Path(told["folder"])
def say(kind, rank=None, **data): print(json.dumps([kind, rank, data]), flush=True)
task = Task("job", "ex", told["command"], 1, procs=told["procs"], distribution="mpi")
stage = Stage(task, 0, folder, folder / told["cwd"], told["command"],
    [Place("127.0.0.2", "here", (1,), "lo")], [], lambda: told["secret"],
    lambda rank: {"PATH": told["path"], "SECRET_KEY": "s3cret", "R": str(rank.rank), **told["env"]})
attempt = Attempt(stage, Inbox(), Clocks(), lambda: told["order"], say)
attempt.run(lambda log: None)
attempt.report_end()
"""


class Mpi:
    def __init__(self, folder: Path) -> None:
        (folder / "bin").mkdir()
        (folder / "work").mkdir()
        (folder / "bin" / "mpirun").write_text(MPIRUN)
        (folder / "bin" / "mpirun").chmod(0o755)
        self.folder = folder

    def start(self, command: str, **more: Any) -> subprocess.Popen[str]:
        told = {"command": command, "folder": str(self.folder), "procs": 2, "cwd": "work"}
        told |= {"path": f"{self.folder / 'bin'}:{os.environ['PATH']}", "env": {}}
        told |= {"secret": str(self.folder), "order": {"do": "go"}, **more}
        argv = [sys.executable, "-c", DRIVER, json.dumps(told)]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __call__(self, command: str, **more: Any) -> dict[str, Any]:
        """How the attempt ended: the data of its last event, with the rank it names."""
        out, err = self.start(command, **more).communicate(timeout=240)
        assert err == ""
        kind, rank, data = json.loads(out.splitlines()[-1])
        assert kind == "ended"
        return {"rank": rank, **data}

    def log(self, rank: int) -> str:
        return (self.folder / f"rank-{rank}.log").read_text()


@pytest.fixture
def mpi(tmp_path: Path) -> Any:
    before = set(Path("/tmp").glob("allranks-mpi-*"))
    yield Mpi(tmp_path)
    mine = [
        folder
        for folder in set(Path("/tmp").glob("allranks-mpi-*")) - before
        if any(str(tmp_path) in file.read_text(errors="replace") for file in folder.rglob("*.json"))
    ]
    assert not mine, "something is left in /tmp"
    assert not processes_of(tmp_path)


def test_ranks_find_their_own_environment_and_write_their_own_logs(mpi: Mpi):
    end = mpi('echo "rank $R in $PWD, key $SECRET_KEY"; [ -z "$ALLRANKS_RANKS" ]')
    assert (end["reason"], end["message"]) == ("DONE", "")
    for rank in (0, 1):
        assert mpi.log(rank) == f"rank {rank} in {mpi.folder / 'work'}, key s3cret\n"


@pytest.mark.parametrize(
    ("how", "reason", "code", "message"),
    [
        (
            "echo no; exit 7",
            "RANK_EXITED",
            7,
            "rank 1 on node 0 exited with code 7; its last line: no",
        ),
        ("kill -9 $$", "RANK_KILLED", 137, "rank 1 on node 0 was ended by SIGKILL"),
    ],
)
def test_a_failing_rank_is_named(mpi: Mpi, how: str, reason: str, code: int, message: str):
    end = mpi(f"[ $R = 0 ] || {{ {how}; }}; sleep 30")
    assert (end["rank"], end["reason"], end["code"]) == (1, reason, code)
    assert end["message"] == message


@pytest.mark.medium
def test_a_rank_that_is_to_be_killed_is_killed_with_what_it_has_started(mpi: Mpi):
    end = mpi("sleep 30; true", order={"do": "go", "kill": 1})
    assert (end["rank"], end["reason"]) == (1, "RANK_KILLED")
    assert end["message"] == "rank 1 on node 0 was ended by SIGKILL"


@pytest.mark.medium
def test_an_mpirun_that_ended_a_rank_and_says_all_is_well_is_not_believed(mpi: Mpi):
    """As MPICH's does when a rank leaves without MPI_Finalize."""
    end = mpi("[ $R = 1 ] || kill -9 $PPID; sleep 0.3", env={"SAYS": "0"})
    assert (end["rank"], end["reason"]) == (0, "RANK_KILLED")
    assert end["message"] == "rank 0 on node 0 was ended by SIGKILL"


def test_a_start_that_fails_leaves_no_secrets(mpi: Mpi):
    end = mpi("true", cwd="nosuch")
    assert end["reason"] == "SETUP_FAILED"
    assert "nosuch" in end["message"]


def test_whole_environments_are_not_left_to_be_read(mpi: Mpi):
    started = mpi.start("echo up; until [ -e ../go ]; do sleep 0.05; done")
    until(lambda: all((mpi.folder / f"rank-{r}.log").exists() and mpi.log(r) for r in (0, 1)))
    found = [p for p in Path("/tmp").glob("allranks-mpi-*/*.json") if "s3cret" in p.read_text()]
    (mpi.folder / "go").touch()
    assert json.loads(started.communicate(timeout=120)[0].splitlines()[-1])[2]["reason"] == "DONE"
    assert not found


def test_a_port_in_an_old_line_of_a_rank_that_crashed_is_no_lost_race(mpi: Mpi):
    end = mpi('[ $R = 0 ] || { echo "port 1: address already in use"; kill -SEGV $$; }; sleep 30')
    assert end["reason"] == "RANK_KILLED"
