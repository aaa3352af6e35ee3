"""`job restart`, `job restart -C` and `run --from`: a job goes on from what another one left."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from allranks import Client
from allranks.errors import UsageError
from tests.support import Allranks, answer, until

# Real servers and processes, about a second a test.
pytestmark = pytest.mark.slow

# Counts in each place that the next attempt of a job finds again, and writes in place.
COUNT = """\
import os, sys
from pathlib import Path
places = ["AZURE_ML_OUTPUT_model", "SM_MODEL_DIR", "SM_OUTPUT_DATA_DIR", "ALLRANKS_STATE_DIR"]
for folder in map(Path, [*(os.environ[name] for name in places), "outputs", "logs"]):
    file = folder / "co;unt \\n"
    with file.open("a+") as opened:
        opened.seek(0)
        before = int(opened.read() or 0)
        opened.seek(0)
        opened.truncate()
        opened.write(str(before + 1))
    print(before, end=" ")
print(flush=True)
sys.exit(3)
"""


@pytest.fixture
def script(code: Path) -> Path:
    path = code / "count.py"
    path.write_text(COUNT)
    return path


def counted(allranks: Allranks, name: str, *words: object) -> list[str]:
    """The counts that a job found, once it has ended."""
    allranks("job", "wait", name)
    return str(allranks("job", "logs", name, *words).stdout).split()


def left(home: Path, name: str) -> dict[str, bytes]:
    """Every file that a job left in its record, but for what its attempts printed."""
    record, found = home / "jobs" / name, dict[str, bytes]()
    for each in record.rglob("*"):
        if each.is_file() and each.relative_to(record).parts[0] != "attempts":
            found[str(each.relative_to(record))] = each.read_bytes()
    return found


def test_a_restart_finds_what_the_next_attempt_would(
    allranks: Allranks, script: Path, home: Path
) -> None:
    run = ("run", "--name", "j", "--max-attempts", 2, "-o", "model", "--", "python", "count.py")
    assert allranks(*run).returncode == 3
    assert counted(allranks, "j", "--attempt", 2) == ["1"] * 6
    before = left(home, "j")
    done = allranks("job", "restart", "j")
    assert done.stdout == "j-r2\n"
    first, second, *_ = done.stderr.splitlines()
    assert first == ("j-r2 goes on from what j left, because j is Failed (`--fresh` runs it anew)")
    assert second.startswith("j-r2 continues from 6 files of j (6 bytes); newest: ")
    assert "co;unt ? (1 byte, " in done.stderr
    assert counted(allranks, "j-r2", "--attempt", 1) == ["2"] * 6
    fresh = allranks("job", "restart", "j", "--fresh")
    assert fresh.stderr.splitlines()[0] == "j-r3 runs anew"
    assert "continues from" not in fresh.stderr
    assert counted(allranks, "j-r3", "--attempt", 1) == ["0"] * 6
    assert left(home, "j") == before
    (created, *_) = answer(allranks, "job", "events", "j-r2")
    assert "continues from 6 files of j" in created["data"]["message"]


def test_a_restart_with_mended_code(allranks: Allranks, code: Path, script: Path) -> None:
    allranks("run", "--name", "j", "-o", "model", "--", "python", "count.py")
    mended = code / "else where"
    mended.mkdir()
    (mended / "count.py").write_text(COUNT.replace("sys.exit(3)", "print('mended')"))
    done = allranks("job", "restart", "j", "-C", "else where", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["restarted"]["resumed"]
    assert (made["carried"]["of"], made["carried"]["files"]) == ("j", 6)
    assert made["spec"]["code"] == str(mended)
    assert counted(allranks, "j-r2") == [*["1"] * 6, "mended"]
    # The next one has that code; j-r2 has completed.
    assert allranks("job", "restart", "j-r2").returncode == 0
    assert counted(allranks, "j-r3") == [*["0"] * 6, "mended"]
    assert allranks("job", "restart", "j-r2", "--resume").returncode == 0
    assert counted(allranks, "j-r4") == [*["2"] * 6, "mended"]


def test_a_restart_with_code_that_cannot_be_used(allranks: Allranks, script: Path) -> None:
    allranks("run", "--name", "j", "--in-place", "--", "true")
    done = allranks("job", "restart", "j", "-C", ".")
    assert (done.returncode, "runs its code in place" in done.stderr) == (2, True)
    allranks("run", "--name", "k", "--", "true")
    done = allranks("job", "restart", "k", "-C", "nowhere")
    assert (done.returncode, "no such file or folder" in done.stderr) == (2, True)
    assert "not found" in allranks("job", "restart", "no", "-C", ".").stderr
    assert len(answer(allranks, "job", "list")) == 2


def test_which_jobs_go_on_from_what_they_left(allranks: Allranks, script: Path) -> None:
    run = ("run", "-o", "model", "--name")
    allranks(*run, "bad", "--", "python", "count.py")
    allranks(*run, "good", "--", "bash", "-c", "python count.py; exit 0")
    allranks("run", "--detach", "--name", "gone", "--", "sleep", "60")
    done = allranks("job", "restart", "gone")
    assert "has not ended" in done.stderr
    allranks("job", "cancel", "gone")
    allranks("job", "wait", "gone")
    for name, words, resumed, why in (
        ("bad", (), True, "because bad is Failed (`--fresh` runs it anew)"),
        ("bad", ("--fresh",), False, ""),
        ("good", (), False, "because good is Completed (`--resume` goes on from what good left)"),
        ("good", ("--resume",), True, ""),
        ("gone", (), True, "because gone is Canceled (`--fresh` runs it anew)"),
    ):
        done = allranks("job", "restart", name, *words)
        new = done.stdout.strip()
        what = f"{new} goes on from what {name} left" if resumed else f"{new} runs anew"
        assert done.stderr.splitlines()[0] == ", ".join(filter(None, (what, why)))
        told = answer(allranks, "job", "events", new)[0]["data"]
        assert ("message" in told, told["restarts"]) == (resumed, name)
        if name != "gone":
            assert counted(allranks, new) == ["1" if resumed else "0"] * 6
    assert allranks("job", "restart", "good", "-q").stderr == ""
    for words in (("--fresh", "--resume"), ("--resume", "--fresh")):
        done = allranks("job", "restart", "good", *words)
        assert (done.returncode, "not allowed with" in done.stderr) == (2, True)


def test_a_job_that_runs_anew_continues_none(allranks: Allranks) -> None:
    said = ("bash", "-c", 'echo "$ALLRANKS_CONTINUES|$ALLRANKS_PREVIOUS_REASON"')
    allranks("run", "--name", "j", "--", *said)
    assert allranks("job", "restart", "j", "--stream").stdout == "|\n"
    refused = allranks("job", "restart", "j", "--resume")
    assert refused.returncode == 2
    assert "error: --resume: j left no files to continue from" in refused.stderr
    assert "hint: run it anew: allranks job restart j --fresh" in refused.stderr
    allranks("run", "--name", "k", "--", "bash", "-c", f"touch outputs/x; {said[2]}")
    assert allranks("job", "restart", "k", "--resume", "--stream").stdout == "k|DONE\n"


def test_what_a_completed_job_kept_of_its_working_folder_is_named(allranks: Allranks) -> None:
    """It does not go on; nobody may believe that it does, or that it was lost."""
    allranks("run", "--name", "j", "--", "bash", "-c", "echo 5 > c.ckpt")
    refused = allranks("job", "restart", "j", "--resume")
    assert refused.returncode == 2
    kept = "1 file that j kept of its working folder"
    assert f"j completed, so its outputs, logs and state go on, and not {kept}" in refused.stderr
    assert "what it kept: allranks job files j" in refused.stderr
    assert "c.ckpt" in allranks("job", "files", "j").stdout
    allranks("run", "--name", "k", "--", "bash", "-c", "echo 5 > c.ckpt; echo 1 > outputs/x")
    done = allranks("job", "restart", "k", "--resume", "--stream")
    assert done.returncode == 0
    assert "without 1 file that k kept of its working folder, because it completed" in done.stderr


def test_a_named_state_always_goes_on(allranks: Allranks) -> None:
    words = ("bash", "-c", 'cd "$ALLRANKS_STATE_DIR"; cat f; echo x >> f')
    allranks("run", "--name", "j", "--state", "birds", "--", *words)
    for choice, seen in (((), "x\n"), (("--fresh",), "x\nx\n"), (("--resume",), "x\nx\nx\n")):
        done = allranks("job", "restart", "j", "--stream", *choice)
        assert done.stdout == seen
        goes_on = "note: the state birds goes on, as every state with a name" in done.stderr
        assert goes_on == (choice != ("--resume",))


def test_python_chooses_as_the_command_line_does(
    allranks: Allranks, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allranks("run", "--name", "j", "--", "bash", "-c", "touch outputs/x; false")
    monkeypatch.setenv("ALLRANKS_HOME", str(home))
    restart = Client().jobs.restart
    choices: tuple[dict[str, Any], ...] = ({}, {"resume": True}, {"fresh": True})
    resumed = [restart("j", **choice).restarted["resumed"] for choice in choices]
    assert resumed == [True, True, False]
    assert restart("j", set=["display_name=x"]).display_name == "x"
    with pytest.raises(UsageError, match="either resumes or is fresh"):
        restart("j", resume=True, fresh=True)
    for number in range(2, 6):
        allranks("job", "wait", f"j-r{number}")


def test_a_run_from_another_job(allranks: Allranks, script: Path, home: Path) -> None:
    allranks("run", "--name", "j", "-o", "model", "--", "python", "count.py")
    before = left(home, "j")
    done = allranks("run", "--name", "k", "--from", "j", "-o", "model", "--", "python", "count.py")
    assert done.returncode == 3
    assert done.stdout.split() == ["1"] * 6
    assert "k continues from 6 files of j" in done.stderr
    said = ("bash", "-c", 'echo "$ALLRANKS_CONTINUES $ALLRANKS_PREVIOUS_REASON"')
    done = allranks("run", "--from", "j", "--state", "mine", "--", *said)
    assert done.stdout == "j RANK_EXITED\n"
    assert "note: the output model of j is left out" in done.stderr
    assert "note: the state of j is left out: this job has the state mine" in done.stderr
    assert left(home, "j") == before


def test_a_run_from_a_job_with_a_named_state(allranks: Allranks) -> None:
    words = ("bash", "-c", 'cd "$ALLRANKS_STATE_DIR"; cat f; echo x >> f')
    allranks("run", "--name", "j", "--state", "birds", "--", *words)
    assert allranks("run", "--from", "j", "--", *words).stdout == "x\n"
    assert allranks("run", "--state", "birds", "--", *words).stdout == "x\n"


def test_a_run_from_a_job_that_cannot_be_continued(allranks: Allranks, code: Path) -> None:
    assert "not found" in allranks("run", "--from", "no", "--", "true").stderr
    allranks("run", "--detach", "--name", "busy", "--", "sleep", "60")
    done = allranks("run", "--from", "busy", "--", "true")
    assert (done.returncode, "has not ended" in done.stderr) == (2, True)
    done = allranks("run", "--rehearse", "--from", "busy", "--", "true")
    assert (done.returncode, "--from" in done.stderr) == (2, True)
    allranks("job", "cancel", "busy")
    assert len(answer(allranks, "job", "list")) == 1


LINKS = """\
import os
from pathlib import Path
folder = Path(os.environ["AZURE_ML_OUTPUT_model"])
if (folder / "latest").exists():
    (folder / "latest").write_text("changed")
else:
    (folder / "step-5").write_text("saved")
    (folder / "latest").symlink_to(folder / "step-5")
    (folder / "beside").symlink_to("step-5")
    (folder / "elsewhere").symlink_to("/etc/hostname")
    os.mkfifo(folder / "pipe")
    (folder / os.fsdecode(b"\\xff")).mkdir()
    (folder / "step-5").chmod(0o600)
    os.utime(folder / "step-5", (1e9, 1e9))
"""


def test_links_and_odd_files(allranks: Allranks, code: Path, home: Path) -> None:
    (code / "links.py").write_text(LINKS)
    assert allranks("run", "--name", "j", "-o", "model", "--", "python", "links.py").returncode == 0
    done = allranks("job", "restart", "j", "--resume")
    assert "step-5 (5 bytes, " in done.stderr
    allranks("job", "wait", "j-r2")
    old, new = (home / "jobs" / each / "named-outputs" / "model" for each in ("j", "j-r2"))
    assert ((old / "step-5").read_text(), (new / "step-5").read_text()) == ("saved", "changed")
    assert os.readlink(new / "latest") == str(new / "step-5")
    assert os.readlink(new / "elsewhere") == "/etc/hostname"
    assert (new / "step-5").stat().st_mode & 0o777 == 0o600
    assert not (new / "pipe").exists()
    assert os.path.isdir(os.fsencode(new) + b"/\xff")


def test_what_has_too_long_a_path_is_left_out_and_counted(allranks: Allranks, code: Path) -> None:
    deep = "import os\nfor _ in range(30): os.mkdir('d' * 200); os.chdir('d' * 200)"
    command = ("bash", "-c", f'cd "$AZURE_ML_OUTPUT_model"; exec python -c "{deep}"')
    assert allranks("run", "--name", "j", "-o", "model", "--", *command).returncode == 0
    done = allranks("job", "restart", "j", "--resume")
    assert done.returncode == 0
    assert "note: left out, because their paths are too long: 1" in done.stderr


def test_a_record_of_a_job_that_was_never_recorded_is_in_nobodys_way(
    allranks: Allranks, script: Path, home: Path
) -> None:
    allranks("run", "--name", "j", "-o", "model", "--", "python", "count.py")
    stale = home / "jobs" / "j-r2" / "named-outputs" / "model"
    stale.mkdir(parents=True)
    (stale / "co;unt \n").write_text("7")
    (home / "jobs" / ".coming-0123").mkdir()
    os.utime(home / "jobs" / ".coming-0123", (1e9, 1e9))
    assert allranks("job", "restart", "j").returncode == 0
    assert counted(allranks, "j-r2") == ["1"] * 6
    done = allranks("gc", "--yes", "--json")
    assert "unfinished copies" in done.stdout
    until(lambda: not [*(home / "jobs").glob(".coming-*")])
    (kept,) = (home / "jobs").glob(".unrecorded-*-j-r2")
    assert (kept / "named-outputs/model/co;unt \n").read_text() == "7"


def test_restarts_at_once_get_names_of_their_own(allranks):
    """Each copies what the job left before its name is recorded."""
    script = "head -c 40000000 /dev/urandom > outputs/big"
    assert allranks("run", "--name", "rs", "--", "bash", "-c", script).returncode == 0
    with ThreadPoolExecutor(3) as several:
        restart = ("job", "restart", "rs", "--resume")
        done = list(several.map(lambda _: allranks(*restart), range(3)))
    assert [each.returncode for each in done] == [0, 0, 0], [each.stderr for each in done]
    assert {each.stdout.strip() for each in done} == {"rs-r2", "rs-r3", "rs-r4"}
    taken = allranks("run", "--from", "rs", "--name", "rs-r2", "--", "true")
    assert "a job named 'rs-r2' already exists" in taken.stderr


def test_an_input_that_no_step_reads_is_noted_as_a_pipeline_runs_anew(
    allranks: Allranks, code: Path
) -> None:
    steps = {"a": {"command": "echo"}}
    spec = {"type": "pipeline", "name": "p", "inputs": {"lr": 0.1}, "jobs": steps}
    (code / "p.yml").write_text(json.dumps(spec))
    assert allranks("job", "create", "-f", "p.yml", "--stream").returncode == 0
    done = allranks("job", "restart", "p", "--set", "inputs.lr=2")
    assert "note: nothing in the command reads the input lr;" in done.stderr
