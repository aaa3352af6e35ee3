"""Gangs that are kept off the hosts of others, and what their users exclude. The commands are
scripts; `tests/cluster` has the same with Slurm."""

import os
from datetime import datetime
from pathlib import Path

import pytest

from allranks.core.plan import Gang
from allranks.engines.base import Handle, NotYet
from allranks.engines.slurm import engine as slurm
from allranks.engines.slurm.batch_script import excluded

_SBATCH = """\
case "$*" in
*test-only*) cat >/dev/null; echo "Job 1 to start at NOW using 1" >&2 ;;
*) cat >SEEN; echo 7 ;;
esac"""
_SCONTROL = """\
case "$*" in
*hostlist*) echo n4,n5 ;;
*) echo "$*" >SEEN.update ;;
esac"""


def test_what_a_job_leaves_in_its_gangs_folder(tmp_path: Path):
    """It may leave anything: strange numbers, a secret's link, a pipe, a log without an end."""
    for name in ("2", "²", "x", "9" * 200, "0"):
        (tmp_path / f"{slurm.ENDED}{name}").touch()
    assert slurm._ended_agents(tmp_path) == (0, 2)
    (tmp_path / "secret").write_text("the secret")
    (tmp_path / "linked").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    assert slurm._last_line(tmp_path / "linked") == slurm._last_line(tmp_path / "pipe") == ""
    with (tmp_path / "log").open("wb") as log:
        log.truncate(1 << 40)
        log.seek(1 << 40)
        log.write(b"\nthe cause\nslurmstepd: ended\n")
    assert slurm._last_line(tmp_path / "log") == "the cause"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> slurm.SlurmEngine:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    made = slurm.SlurmEngine(tmp_path / "engine", tmp_path / "nodes")
    now = datetime.now().isoformat(timespec="seconds")
    _command(tmp_path, "sbatch", _SBATCH.replace("NOW", now))
    _command(tmp_path, "scontrol", _SCONTROL)
    _queue(made, tmp_path, "RUNNING|None|n1")
    (tmp_path / "nodes/first.1").mkdir(parents=True)
    (tmp_path / "nodes/first.1/apart").write_text("far/blue")
    return made


def _command(folder: Path, name: str, script: str) -> None:
    path = folder / "bin" / name
    path.write_text(f"#!/bin/bash\n{script.replace('SEEN', str(folder / 'seen'))}\n")
    path.chmod(0o755)


def _queue(engine: slurm.SlurmEngine, folder: Path, *states: str) -> None:
    keys = ("first.1", "next.1")
    lines = [f"{n + 6}|{s}|{engine._mark(keys[n])}|" for n, s in enumerate(states)]
    _command(folder, "squeue", "\n".join(f"echo '{line}'" for line in lines))


def _gang(*extra: str) -> Gang:
    return Gang("next.1", 1, ("true",), apart="far/blue", options={"extra": extra})


@pytest.mark.parametrize(
    ("extra", "hosts"),
    [
        ((), ""),
        (("--exclusive", "--mail-type=END"), ""),
        (("--exclude=n2,n3",), "n2,n3"),
        (("--exclude n2",), "n2"),
        (("--exclud='n[2-3]'",), "n[2-3]"),
        (("-x n2",), "n2"),
        (("-xn2", "--mail-type=END"), "n2"),
        (("-x n2", "--hold --exclude=n3"), "n3"),
    ],
)
def test_the_hosts_that_options_exclude(extra: tuple[str, ...], hosts: str) -> None:
    assert excluded(extra) == hosts


@pytest.mark.parametrize(
    ("extra", "theirs"), [("--exclude=n3", "n3"), ("-x n3", "n3"), ("--exclude=/etc/x", "n4,n5")]
)
def test_a_gang_is_kept_off_the_hosts_of_others_and_those_its_user_excludes(
    engine: slurm.SlurmEngine, tmp_path: Path, monkeypatch, extra: str, theirs: str
) -> None:
    engine.submit(_gang(extra))
    options = [
        line for line in (tmp_path / "seen").read_text().splitlines() if line.startswith("#SBATCH")
    ]
    assert options[-2:] == [f"#SBATCH {extra}", f"#SBATCH --exclude=n1,{theirs}"]
    # Where no other host becomes free, only those of others are no longer excluded.
    _queue(engine, tmp_path, "RUNNING|None|n1", "PENDING|Resources|")
    monkeypatch.setattr(slurm, "_MOST_WAIT", -1.0)
    engine.poll([Handle("next.1", "7")])
    update = (tmp_path / "seen.update").read_text()
    assert update == f"update JobId=7 ExcNodeList={theirs}\n"


def test_waiting_for_the_host_of_another_is_no_failure(
    engine: slurm.SlurmEngine, tmp_path: Path
) -> None:
    _queue(engine, tmp_path, "PENDING|None|")
    with pytest.raises(NotYet, match="another replica"):
        engine.submit(_gang())
