"""What ranks made, changed or removed in their working folder is so in the next attempt."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from allranks.core.data.working_set import ABOUT
from tests.support import Allranks, answer, kill_agents, until

# Real servers and processes, about a second a test.
pytestmark = pytest.mark.slow

# Counts in an ignored file, changes and removes code, and ends as it is told to.
SCRIPT = """\
import os, sys, time
from pathlib import Path
file = Path("check points/last.ckpt")
file.parent.mkdir(exist_ok=True)
step = int(file.read_text()) if file.exists() else 0
words = [str(step), Path("data.txt").read_text().strip(), str(Path("gone.txt").exists())]
print(*words, flush=True)
file.write_text(str(step + 1))
Path("data.txt").write_text("changed")
Path("gone.txt").unlink(missing_ok=True)
for each in sys.argv[1:]:
    if step == 0 and each == "wait":
        torn = open("torn.ckpt", "w")
        torn.write("half")
        torn.flush()
        time.sleep(600)
    if each == "fail":
        sys.exit(3)
"""
FIRST, NEXT = "0 code True", "changed False"


@pytest.fixture
def script(code: Path) -> Path:
    (code / ".gitignore").write_text("*.ckpt\n")
    (code / "data.txt").write_text("code")
    (code / "gone.txt").write_text("code")
    (code / "train.py").write_text(SCRIPT)
    return code


def printed(allranks: Allranks, name: str, attempt: int = 1) -> str:
    return str(allranks("job", "logs", name, "--attempt", attempt).stdout).strip()


def notes(allranks: Allranks, name: str) -> list[str]:
    events = answer(allranks, "job", "events", name)
    return [
        event["data"]["message"]
        for event in events
        if event["data"].get("about") == "working folder"
    ]


def sent(home: Path, job: str) -> list[str]:
    """The paths that the server holds of a running job."""
    head = home / "jobs" / job / "working-folder" / "0" / "head"
    try:
        return [*json.loads(head.read_bytes().partition(b"\n")[2])["entries"]]
    except FileNotFoundError:
        return []


def test_the_next_attempt_on_the_same_node(allranks: Allranks, script: Path, home: Path) -> None:
    words = ("--max-attempts", 3, "--", "python", "train.py", "fail")
    done = allranks("run", "--name", "j", *words)
    assert done.returncode == 3
    found = [printed(allranks, "j", each) for each in (1, 2, 3)]
    assert found == [FIRST, f"1 {NEXT}", f"2 {NEXT}"]
    assert notes(allranks, "j") == [
        f"attempt {each} continues with 2 files and 1 removal of the working folder, "
        "newest data.txt"
        for each in (2, 3)
    ]
    # Each when its attempt starts.
    found = re.findall(r"attempt \d (?:continues|failed)|: Failed after", done.stderr)
    order = ["attempt 1 failed", "attempt 2 continues", "attempt 2 failed", "attempt 3 continues"]
    assert found == [*order, ": Failed after"]
    explained = allranks("job", "explain", "j").stdout
    assert "attempt 1 failed (" in explained
    assert "attempt 2 failed (" in explained
    listed = home / "jobs/j/attempts/1/work/node-0.txt"
    assert listed.read_text().split() == ["1", "check", "points/last.ckpt", "7", "data.txt"]
    found = answer(allranks, "job", "show", "j")["working_folder"]
    assert (found["files"], found["checkpoints"]) == (2, 1)


def test_the_next_attempt_after_a_lost_node(allranks: Allranks, script: Path, home: Path) -> None:
    look = {"ALLRANKS_LOOK": "0.1"}
    allranks("server", "start", env=look)
    words = ("--max-attempts", 2, "--detach", "--", "python", "train.py", "wait")
    allranks("run", "--name", "j", *words)
    until(lambda: any(path.endswith("data.txt") for path in sent(home, "j")))
    until(lambda: any(path.endswith(ABOUT) for path in sent(home, "j")))  # with what is gone
    unfinished_file = home / "jobs/j/working-folder/0/unfinished.json"
    until(lambda: unfinished_file.read_text() == '["torn.ckpt"]')
    kill_agents(home, "j")
    assert answer(allranks, "job", "wait", "j")["status"] == "Completed"
    assert printed(allranks, "j", 2) == f"1 {NEXT}"
    (fetched, unfinished, found) = notes(allranks, "j")
    assert "fetched the working folder" in fetched
    assert "no complete version exists, so they are left out: torn.ckpt" in unfinished
    assert "attempt 2 continues with 2 files and 1 removal" in found
    # Nobody needs it any more.
    until(lambda: not (home / "jobs/j/working-folder").exists())


@pytest.mark.parametrize("fails", ["fail", "lost"])
def test_a_restart(allranks: Allranks, script: Path, home: Path, fails: str) -> None:
    how = "fail" if fails == "fail" else "wait"
    allranks("run", "--name", "j", "--detach", "--", "python", "train.py", how)
    if fails == "lost":
        until(lambda: printed(allranks, "j") == FIRST)
        kill_agents(home, "j")
    allranks("job", "wait", "j")
    done = allranks("job", "restart", "j")
    assert "continues from" in done.stderr
    assert "newest: work/" in done.stderr
    allranks("job", "wait", "j-r2")
    assert printed(allranks, "j-r2") == f"1 {NEXT}"
    if fails == "fail":
        allranks("job", "restart", "j", "--fresh-work")
        allranks("job", "wait", "j-r3")
        assert printed(allranks, "j-r3") == FIRST
        # A restarted job is continued by a third one.
        allranks("job", "restart", "j-r2")
        allranks("job", "wait", "j-r4")
        assert printed(allranks, "j-r4") == f"2 {NEXT}"


def test_a_restart_with_other_code(allranks: Allranks, script: Path) -> None:
    assert allranks("run", "--name", "j", "--", "python", "train.py", "fail").returncode == 3
    (script / "data.txt").write_text("mended")
    (script / "gone.txt").write_text("again")
    done = allranks("job", "restart", "j", "-C", ".")
    assert "changed by the job and by the new code, which is used: data.txt, gone.txt" in (
        done.stderr
    )
    allranks("job", "wait", "j-r2")
    assert printed(allranks, "j-r2") == "1 mended True"


def test_a_restart_with_code_of_which_ranks_made_a_folder(
    allranks: Allranks, code: Path, home: Path
) -> None:
    line = "ls -d model* data*; [ -d data ] || mkdir data; echo x | tee model > data/cache; "
    line += "ln -s /etc/hosts away; exit 3"
    allranks("run", "--name", "j", "--", "bash", "-c", line)
    (code / "model").mkdir()
    (code / "model/net.py").touch()
    (code / "data").touch()
    done = allranks("job", "restart", "j", "-C", ".", "--set", "command=ls model; cat data")
    assert "which is used: data, data/cache, model" in done.stderr
    assert "because the links lead out of it: away" in done.stderr
    allranks("job", "wait", "j-r2")
    assert printed(allranks, "j-r2") == "net.py"


def test_fresh_working_folders(allranks: Allranks, script: Path, home: Path) -> None:
    words = ("--max-attempts", 2, "--fresh-work", "--", "python", "train.py", "fail")
    allranks("run", "--name", "j", *words)
    assert [printed(allranks, "j", each) for each in (1, 2)] == [FIRST, FIRST]
    assert notes(allranks, "j") == []
    assert (home / "jobs/j/attempts/1/work/data.txt").read_text() == "changed"
    assert not (home / "jobs/j/working-folder").exists()


def test_above_the_bound_a_job_never_goes_on_with_a_part(
    allranks: Allranks, script: Path, home: Path
) -> None:
    env = {"ALLRANKS_LOOK": "0.1", "ALLRANKS_WORK_LIMIT": "1m"}
    allranks("server", "start", env=env)
    large = "open('small', 'w').write('x'); open('large', 'w').write('x' * 1100000)"
    (script / "large.py").write_text(f"{large}\nimport time; time.sleep(600)\n")
    words = ("--max-attempts", 2, "--detach", "--", "python", "large.py")
    allranks("run", "--name", "j", *words)
    until(lambda: sent(home, "j") == ["node-0/about/work.json"])
    kill_agents(home, "j")
    job = answer(allranks, "job", "wait", "j", code=1)
    assert job["attempts"] == 2
    assert "working folder has 1.1 MB of new files, more than the bound" in job["error"]["message"]
    assert "ALLRANKS_WORK_LIMIT" in job["error"]["hint"]
    # A restart says the same at once.
    done = allranks("job", "restart", "j")
    assert done.returncode == 2
    assert "j cannot be continued: its working folder has 1.1 MB" in done.stderr
    assert "--fresh-work" in done.stderr


def one_writes(met: Path) -> str:
    """Rank 0 alone writes the checkpoint that all read, as on a shared disk, once rank 1 has told
    in the folder ``met`` that it has read the last one."""
    here = f"'{met}'/$ALLRANKS_JOB.$ALLRANKS_ATTEMPT"
    return f"""\
echo "rank $RANK at $(cat check/last 2>/dev/null) of $(cat own)" >&2; echo $RANK > own
if [ $RANK = 1 ]; then touch {here}; sleep 600; fi
until [ -e {here} ]; do sleep 0.05; done
mkdir -p check; echo ${{ALLRANKS_JOB}}.$ALLRANKS_ATTEMPT > check/last; rm -f check/old-*
touch check/old-$ALLRANKS_ATTEMPT; ln -sfn last check/link
"""


def test_a_file_that_one_node_made_is_there_for_all(
    allranks: Allranks, code: Path, home: Path
) -> None:
    def said(name: str, attempt: int) -> list[str]:
        until(lambda: len(printed(allranks, name, attempt).splitlines()) > 1)
        return sorted(
            line for line in printed(allranks, name, attempt).splitlines() if "at" in line
        )

    (code / "train.sh").write_text(one_writes(home.parent) + "exit 3\n")
    (code / "own").write_text("code")
    words = ("-n", 2, "--max-attempts", 3, "--", "bash", "train.sh")
    allranks("run", "--name", "j", *words)
    assert said("j", 1) == ["rank 0 at  of code", "rank 1 at  of code"]
    # What each made itself differs, and stays its own.
    assert said("j", 2) == ["rank 0 at j.1 of 0", "rank 1 at j.1 of 1"]
    assert said("j", 3) == ["rank 0 at j.2 of 0", "rank 1 at j.2 of 1"]
    assert (
        "attempt 3 continues with 1 file of the working folder, newest own; 4 changes of node 0: "
        "check/last, check/link, check/old-1 and 1 more; changed by several nodes, so each keeps "
        "its own: own"
    ) in notes(allranks, "j")
    work = home / "jobs/j/artifacts/work"
    assert not (work / "node-1/check").exists()
    assert sorted(os.listdir(work / "node-0/check")) == ["last", "link", "old-3"]
    allranks("job", "restart", "j", "--set", "retry.max_attempts=1")
    allranks("job", "wait", "j-r2")
    assert said("j-r2", 1) == ["rank 0 at j.3 of 0", "rank 1 at j.3 of 1"]


def test_a_file_that_one_lost_node_made_is_there_for_all(
    allranks: Allranks, code: Path, home: Path
) -> None:
    allranks("server", "start", env={"ALLRANKS_LOOK": "0.1"})
    (code / "train.sh").write_text(
        one_writes(home.parent) + "[ $ALLRANKS_ATTEMPT != 1 ] || sleep 600; exit 3\n"
    )
    (code / "own").write_text("code")
    words = ("-n", 2, "--max-attempts", 2, "--detach", "--", "bash", "train.sh")
    allranks("run", "--name", "j", *words)
    until(lambda: "node-0/work/check/last" in sent(home, "j"))
    kill_agents(home, "j")
    allranks("job", "wait", "j")
    assert printed(allranks, "j", 2).count(" at j.1 of ") == 2


def test_a_killed_nodes_copy_does_not_grow_old(allranks: Allranks, home: Path) -> None:
    line = (
        "n=$(cat check || echo 0); echo at $n; if [ $RANK = 1 ]; then sleep 600; fi; "
        "echo $((n + 1)) > check; touch made-$n; if [ $n = 1 ]; then sleep 600; fi; exit 3"
    )
    allranks("run", "--name", "j", "-n", 2, "--", "bash", "-c", line)
    allranks("job", "restart", "j")
    until((home / "nodes/j-r2.1/0/working/node-0/work/made-1").exists)
    kill_agents(home, "j-r2")
    allranks("job", "wait", "j-r2")
    allranks("job", "restart", "j-r2")
    allranks("job", "wait", "j-r3")
    assert printed(allranks, "j-r3").count("at 2") == 2


def test_a_restart_with_fewer_nodes(allranks: Allranks, code: Path) -> None:
    line = (
        'cat common of-1; echo "$RANK" > of-$RANK; echo $RANK > common; echo x > it-$RANK; '
        "until [ -s it-1 ] || [ $RANK = 0 ]; do sleep 0.1; done; sleep 2; exit 3"
    )
    allranks("run", "--name", "j", "-n", 2, "--", "bash", "-c", line)
    done = allranks("job", "restart", "j", "--set", "resources.instance_count=1")
    assert (
        "note: this job has no node 1: node 0 gets what only they changed: it-1, of-1; left out, "
        "because other nodes have their own: common of node 1"
    ) in done.stderr
    allranks("job", "wait", "j-r2")
    assert printed(allranks, "j-r2") == "0\n1"


# The code has the checkpoint already, as of step 4; rank 0 alone writes it.
ONE_CHANGES = """\
import json, os, sys, time
rank, attempt = os.environ["RANK"], int(os.environ["ALLRANKS_ATTEMPT"])
step = json.load(open("ckpt.json"))["step"]
print(f"rank {rank} starts at step {step}", os.path.exists("lock"), flush=True)
if rank == "0":
    for step in range(step + 1, step + 4):
        with open("beside", "w") as file:
            json.dump({"step": step}, file)
        os.replace("beside", "ckpt.json")
    if os.path.exists("lock"):
        os.remove("lock")
    open("done", "w").close()
    if attempt == 2 and len(sys.argv) > 1:
        time.sleep(600)
    while not os.path.exists(f"outputs/{attempt}"):
        time.sleep(0.05)
    sys.exit(3)
open(f"outputs/{attempt}", "w").close()
time.sleep(600)
"""


@pytest.mark.parametrize("end", ["fails", "is lost"])
def test_a_file_of_the_code_that_one_node_changed_is_changed_for_all(
    allranks: Allranks, code: Path, home: Path, end: str
) -> None:
    def starts(name: str, attempt: int) -> list[str]:
        return sorted(printed(allranks, name, attempt).splitlines())

    allranks("server", "start", env={"ALLRANKS_LOOK": "0.1"})
    (code / "train.py").write_text(ONE_CHANGES)
    (code / "ckpt.json").write_text('{"step": 4}')
    (code / "lock").touch()
    words = ("-n", 2, "--max-attempts", 3, "--detach", "--", "python", "train.py")
    allranks("run", "--name", "j", *words, *(["lost"] if end == "is lost" else []))
    if end == "is lost":
        until(lambda: (home / "nodes/j.1/0/working/node-0/work/done").exists())
        until(lambda: "Running" in allranks("job", "show", "j").stdout)
        until(lambda: len(starts("j", 2)) == 2)
        until(lambda: "node-0/work/ckpt.json" in sent(home, "j"))
        kill_agents(home, "j")
    allranks("job", "wait", "j")
    last = 3 if end == "fails" else 4  # a lost node uses no attempt
    for attempt in range(1, last + 1):
        at = f"starts at step {1 + 3 * attempt} {attempt == 1}"
        assert starts("j", attempt) == [f"rank {rank} {at}" for rank in (0, 1)]
    assert any(
        "3 changes of node 0: ckpt.json, done, lock" in each for each in notes(allranks, "j")
    )
    allranks("job", "restart", "j", "--set", "retry.max_attempts=1")
    allranks("job", "wait", "j-r2")
    assert starts("j-r2", 1) == [f"rank {n} starts at step {4 + 3 * last} False" for n in (0, 1)]


def test_ranks_that_resume_apart_are_named(allranks: Allranks, code: Path) -> None:
    """Each has a checkpoint of its own, and the one of rank 1 is old. It hangs then."""
    (code / "train.sh").write_text(
        "n=$(cat own || echo 0); for s in $(seq $n $((n + 3))); do echo step=$s loss=1.$s; done; "
        "echo $((RANK ? 2 : 4)) > own; touch outputs/$RANK-$ALLRANKS_ATTEMPT; "
        "until ls outputs/?-$ALLRANKS_ATTEMPT | grep 1-; do sleep 0.1; done; "
        "[ $ALLRANKS_ATTEMPT = 2 ] && sleep 600; [ $RANK = 1 ] && sleep 600; sleep 1; exit 3"
    )
    metric = ("-m", r"loss=step=(?P<step>\d+) loss=(?P<value>\S+)", "--metric-rank", "all")
    words = ("-n", 2, "--max-attempts", 2, "--hang-timeout", 3, "--set", "retry.on=[user]", *metric)
    done = allranks("run", "--name", "j", *words, "--", "bash", "train.sh", timeout=120)
    text = "ranks resumed apart: rank 0 went on at step 4 of loss, rank 1 at step 2"
    assert f"note: {text}" in done.stderr
    job = answer(allranks, "job", "show", "j")
    assert job["error"]["reason"] == "HANG"
    assert text in job["error"]["message"]


def test_what_cannot_be_taken_along_is_said(allranks: Allranks, code: Path, home: Path) -> None:
    made: dict[str, Any] = {"retry": {"max_attempts": 2}}
    (code / "job.yml").write_text(json.dumps({**made, "command": "mkfifo p; ln -s p q; exit 3"}))
    allranks("job", "create", "-f", "job.yml", "--name", "j", "--stream")
    assert "continues with" in " ".join(notes(allranks, "j"))
    allranks("job", "delete", "--yes", "j")
    assert not os.path.exists(home / "jobs" / "j")


# It is killed in the middle of its second checkpoint, once the server has the first.
IN_PLACE = """\
import os, signal, sys, time
from pathlib import Path
file, head = Path("model.ckpt"), Path(sys.argv[1])
if file.exists():
    data = file.read_bytes()
    print(len(data), set(data) == {ord("1")}, Path("train.log").read_text())
    sys.exit(0)
file.write_bytes(b"1" * 300_000)
Path("train.log").write_text("begun, once more")
while not head.exists() or any(each not in head.read_bytes() for each in (b"model", b"train")):
    time.sleep(0.02)
Path("train.log").write_text("begun")
with file.open("wb") as writer:
    writer.write(b"2" * 150_000)
    writer.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_checkpoint_that_a_kill_cuts_short(allranks: Allranks, script: Path, home: Path) -> None:
    (script / "train.py").write_text(IN_PLACE)
    allranks("server", "start", env={"ALLRANKS_LOOK": "0.1"})
    head = home / "jobs/j/working-folder/0/head"
    words = ("--max-attempts", 2, "--", "python", "train.py", head)
    done = allranks("run", "--name", "j", *words)
    # A log is shorter, too, when an attempt begins it anew.
    assert printed(allranks, "j", 2) == "300000 True begun", done.stderr
    said = "note: 'model.ckpt', or a file beside it, was being written when a rank was killed"
    restarted, ended = (done.stderr.index(text) for text in ("attempt 2 starts", "j: Completed"))
    assert restarted < done.stderr.index(said) < ended
    assert "torn/attempt-1/node-0 has the newer one (150.0 kB)" in done.stderr
    allranks("job", "download", "j", "--path", "torn/attempt-1/node-0/model.ckpt", "-p", "back")
    (torn,) = (script / "back").rglob("model.ckpt")
    assert torn.read_bytes() == b"2" * 150_000
