"""The batch script: what it says in words that the shell and sbatch take as they are meant."""

import contextlib
import os
import shlex
import subprocess
from pathlib import Path

import psutil
import pytest

from allranks.core.plan import Gang
from allranks.engines.base import OF
from allranks.engines.slurm.batch_script import gpus_of, script
from allranks.engines.slurm.commands import _message, gpus, number
from allranks.engines.slurm.engine import STATES

GANG = Gang("job.1", 2, ("/a b/python", "-P", "-m", "allranks.agent"))
HOSTILE = ["/ho'me x/$(touch bad)/`id`/job.1", '/a"b/%j/c\\d/job.1']


@pytest.mark.parametrize("folder", HOSTILE)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prologue": ["export A='b c'"], "modules": ["cuda/12; id"], "ship_agent": True},
        {"account": "a'; id", "constraint": "x&y|z", "gres": "lustre:1"},
    ],
)
def test_the_shell_can_read_it(folder, options):
    text = script(GANG._replace(options=options), "allranks h job.1", folder, "/x y/agent.tar")
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            words = subprocess.run(
                ["bash", "-c", f"printf '%s\\n' {line.removeprefix('#SBATCH ')}"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.splitlines()
            assert len(words) == 1, line


def test_gpus_are_asked_for_once():
    def gres(count: int, given: str) -> list[str]:
        text = script(GANG._replace(gpus=count, options={"gres": given}), "m", "/f")
        return [line for line in text.splitlines() if "--gres" in line]

    assert gres(0, "") == []
    assert gres(2, "") == ["#SBATCH --gres=gpu:2"]
    assert gres(2, "lustre:1") == ["#SBATCH --gres=gpu:2,lustre:1"]
    assert gres(2, "lustre:1,gpu:a100:2") == ["#SBATCH --gres=lustre:1,gpu:a100:2"]


@pytest.mark.parametrize(
    ("left", "signal"),
    [
        ("1:59", "XCPU"),
        ("2:01", "TERM"),
        ("0:00", "XCPU"),
        ("1:00:00", "TERM"),
        ("2-00:00:00", "TERM"),
        ("UNLIMITED", "TERM"),
        ("", "TERM"),
        ("09:08", "TERM"),
    ],
)
def test_a_notice_near_the_end_is_of_the_time_limit(tmp_path, left, signal):
    text = script(GANG, "m", str(tmp_path))
    told = text[text.index("left() {") : text.index("trap told")]
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "pid").write_text("123")
    stand_ins = f"timeout() {{ echo '{left}'; }}\nkill() {{ echo \"$@\"; }}\nSLURM_JOB_ID=1\n"
    done = subprocess.run(
        ["bash", "-c", f"{stand_ins}folder={tmp_path}\n{told}\ntold"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"-s {signal} 123", done.stderr


def test_a_spot_job_goes_where_those_go():
    options = {"partition": "p", "qos": "q", "account": "a", "spot_partition": "low"}
    spot = script(GANG._replace(options=options, spot=True), "m", "/f")
    assert "#SBATCH --partition=low\n#SBATCH --account=a\n#SBATCH --qos=q\n" in spot
    assert "--partition=p\n" in script(GANG._replace(options=options), "m", "/f")
    qos = script(GANG._replace(options={"qos": "q", "spot_qos": "s"}, spot=True), "m", "/f")
    assert "--qos=s\n" in qos


def test_a_long_grace_has_its_warning():
    text = script(GANG._replace(options={"time": "1:00:00"}, grace=300.0), "m", "/f")
    assert "--signal=B:TERM@305\n" in text


@pytest.mark.parametrize(("left", "end"), [("1:30", 90), ("1-00:00:01", 86401), ("UNLIMITED", 0)])
def test_agents_are_told_when_its_time_is_over(tmp_path, left, end):
    text = script(GANG, "m", str(tmp_path))
    told = text[text.index("left() {") : text.index("srun")]
    before = f"timeout() {{ echo '{left}'; }}\ndate() {{ echo 1000; }}\n{told}"
    done = subprocess.run(
        ["bash", "-c", f'{before}\necho "$ALLRANKS_AGENT_END"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == (str(1000 + end) if end else ""), done.stderr


def test_what_a_killed_keeper_leaves_is_ended_before_its_node_counts_as_lost(tmp_path: Path):
    """In a session of its own, as ranks are; and who has the gang's mark alone is let live."""
    left = f"setsid sleep 97 & echo $! >{tmp_path}/left"
    keeper = f"{left}; until [ -s {tmp_path}/left ]; do :; done; kill -s KILL $$"
    text = script(
        GANG._replace(argv=("bash", "-c", keeper), options={"shared_home": "yes"}),
        "m",
        str(tmp_path),
    )
    step = next(shlex.split(part) for part in text.split("srun ")[1:])
    words = step[step.index("/bin/bash") : step.index("&")]
    words = [str(tmp_path) if word == "$folder" else word for word in words]
    env = {**os.environ, "ALLRANKS_GANG": "home.job.1", "SLURM_PROCID": "0"}
    other = subprocess.Popen(["sleep", "97"], env=env)
    try:
        done = subprocess.run(words, env=env, timeout=120)
        assert done.returncode == 137
        assert (tmp_path / "ended-0").read_text() == "137\n"
        with contextlib.suppress(psutil.NoSuchProcess):
            left = psutil.Process(int((tmp_path / "left").read_text()))
            assert left.status() == psutil.STATUS_ZOMBIE
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_every_state_has_an_end_or_none():
    for name, (state, reason, words) in STATES.items():
        assert (state == "gone") or reason is None, name
        assert (state == "gone") <= bool(words), name


def test_numbers_that_are_none():
    assert [number(text) for text in ("N/A", "", "100+", "4000", "1.5")] == [0, 0, 100, 4000, 1.5]
    assert gpus("gpu:a100:4(S:0-1),shard:8,gpu:2") == 6
    assert gpus("(null)") == 0


@pytest.mark.parametrize(
    ("time", "warning", "before"),
    [
        ("", 60, 60),
        ("1", 60, 15),
        ("1:30", 60, 22),
        ("4:00:00", 600, 600),
        ("1-00", 7200, 7200),
        ("0-00:02", 60, 30),
        ("UNLIMITED", 90, 90),
    ],
)
def test_the_warning_is_never_most_of_a_short_jobs_time(time, warning, before):
    text = script(GANG._replace(options={"time": time, "warning": warning}), "m", "/f")
    assert f"--signal=B:TERM@{before}\n" in text


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, None),
        ({"gres": "shard:8,craynetwork:1"}, None),
        ({"gres": "gpu:a100:4,shard:8"}, 4),
        ({"gres": "gres/gpu:2"}, 2),
        ({"gres": "gpu"}, 1),
        ({"gres": "gpu:a100"}, 1),
        ({"extra": ["--mail-type=END"]}, None),
        ({"extra": ["--gpus-per-node=4"]}, 0),
        ({"extra": ["--gres=gpu:1"]}, 0),
        ({"extra": ["--tres-per-task=gres/gpu:1"]}, 0),
    ],
)
def test_gpus_that_options_ask_for_by_themselves(options, count):
    assert gpus_of(options) == count


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ("sbatch: error: no such account\n", "no such account"),
        (
            "sbatch: error: invalid number of nodes (-N 2-1)\n"
            "sbatch: Warning: can't run 1 processes on 2 nodes, setting nnodes to 1\n",
            "invalid number of nodes (-N 2-1)",
        ),
        (
            "sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy\n",
            "Batch job submission failed: Job violates accounting/QOS policy: "
            "QOSMaxSubmitJobPerUserLimit",
        ),
        ("sbatch: Warning: only that\n", "Warning: only that"),
        ("", ""),
    ],
)
def test_the_error_is_told_and_not_the_warning_behind_it(errors: str, message: str):
    assert _message("sbatch", errors) == message


def test_the_name_says_whose_job_it_is():
    text = script(GANG._replace(env={OF: "anna; id"}), "allranks h job.1", "/f")
    assert "#SBATCH --job-name=job.1@anna__id\n" in text
    assert "#SBATCH --job-name=job.1\n" in script(GANG, "allranks h job.1", "/f")


def test_agents_of_a_shared_home_import_from_the_copy_in_it():
    agent = next(line for line in script(GANG, "m", "/f").split("\n") if "AGENT_CODE" in line)
    program = f'{agent}\nprintf %s "${{PYTHONPATH-none}}"'
    for code, before, after in (
        ("/h/pinned/a", None, "/h/pinned/a"),
        ("/h/pinned/a", "/site", "/h/pinned/a:/site"),
        ("", "/site", "/site"),  # none could be made; an empty entry would be the working folder
        ("", None, "none"),
    ):
        env = {"ALLRANKS_AGENT_CODE": code} | ({} if before is None else {"PYTHONPATH": before})
        done = subprocess.run(["bash", "-c", program], env=env, capture_output=True, text=True)
        assert done.stdout == after
    assert "AGENT_CODE" not in script(GANG, "m", "/f", "/agent.tar")
