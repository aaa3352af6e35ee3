"""State folders with real jobs: found again, whole, in order, by one job at a time."""

import json
import sys

import pytest

from tests.support import until

pytestmark = pytest.mark.slow

FAST = {"ALLRANKS_LOOK": "0.1"}


def run(allranks, *words, script, code=0, **options):
    done = allranks("run", *words, "--", "bash", "-c", script, env=FAST, **options)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def told(allranks, *words):
    done = allranks(*words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def notes(allranks, job):
    said = told(allranks, "job", "events", job)
    return [e["data"]["message"] for e in said if e["data"].get("about") == "state"]


def test_a_state_is_found_again_by_attempts_and_by_later_jobs(allranks):
    script = """
        cd "$ALLRANKS_STATE_DIR"; test "$SSM_STATE" = "$PWD"
        echo found "$(cat n 2>/dev/null)" $(cat "$SSM_INSTANCE_STATE/m" 2>/dev/null)
        echo $(( $(cat n 2>/dev/null || echo 0) + 1 )) > n
        echo $ALLRANKS_NODE_RANK >> "$SSM_INSTANCE_STATE/m"
        exit $FAIL
    """
    found = run(allranks, "--state", "s", "--env", "FAIL=0", script=script).stdout
    assert found == "found \n"
    found = run(allranks, "--state", "s", "--env", "FAIL=0", script=script).stdout
    assert found == "found 1 0\n"
    failing = ("--max-attempts", 2, "--env", "FAIL=3")
    found = run(allranks, "--state", "s", *failing, script=script, code=3).stdout
    assert found == "found 2 0 0\nfound 3 0 0 0\n"
    # Without a name it is the job's own.
    found = run(allranks, "--name", "own", *failing, script=script, code=3).stdout
    assert found == "found \nfound 1 0\n"


def test_every_node_finds_what_all_wrote_and_its_own(allranks):
    """Each of three ranks writes a shard, and what is its node's; all of them read all shards."""
    script = """
        cd "$ALLRANKS_STATE_DIR"
        echo $RANK finds $(cat shard-* 2>/dev/null) of $(cat "$SSM_INSTANCE_STATE"/* 2>/dev/null)
        echo s$RANK > shard-$RANK; echo mine$RANK > "$SSM_INSTANCE_STATE/x"
    """
    run(allranks, "-n", 3, "--state", "s", script=script)
    found = run(allranks, "-n", 3, "--state", "s", script=script).stdout
    for rank in range(3):
        assert f"{rank} finds s0 s1 s2 of mine{rank}\n" in found


def test_what_a_node_writes_arrives_on_the_others_while_they_run(allranks):
    """In the order in which it was written, and what is removed goes there, too."""
    script = """
        cd "$ALLRANKS_STATE_DIR"
        if [ $RANK = 0 ]; then
            mkdir -p old/deep; echo x > old/deep/x
            until [ -e seen ]; do sleep 0.05; done
            rm -r old
            mkdir new; head -c 3000000 /dev/zero > new/large; echo new/large > latest
            until [ -e done ]; do sleep 0.05; done
        else
            until [ -e old/deep/x ]; do sleep 0.05; done
            echo y > seen
            until [ -e latest ]; do sleep 0.01; done
            stat -c %s "$(cat latest)"
            while [ -e old ]; do sleep 0.05; done
            echo z > done
        fi
    """
    found = run(allranks, "-n", 2, "--state", "s", script=script)
    assert found.stdout == "3000000\n"


WRITER = """
import os, sys, time
os.chdir(os.environ["ALLRANKS_STATE_DIR"])
begin = max([int(n) for n in os.listdir() if n.isdigit()], default=0)
print("begins at", begin, flush=True)
for n in range(begin + 1, begin + 1 + int(sys.argv[1])):
    with open(f"{n}.new", "wb") as file:
        for piece in range(8):
            file.write(b"%d." % n * 10000)
    os.rename(f"{n}.new", f"{n}")
    time.sleep(0.02)
if sys.argv[2:]:
    time.sleep(600)
"""


def test_a_canceled_and_a_killed_rank_leave_what_they_wrote(allranks, code):
    (code / "w.py").write_text(WRITER)
    python = (sys.executable, "w.py", 10)
    words = ("run", "--state", "s", "--detach", "--name")
    assert allranks(*words, "first", "--", *python, "wait", env=FAST).returncode == 0
    until(lambda: told(allranks, "job", "show", "first")["status"] == "Running")
    # Another that wants the state waits, and says for whom.
    assert allranks(*words, "second", "--", *python, env=FAST).returncode == 0
    why = "waits for the job first, which uses the state s"
    until(lambda: told(allranks, "job", "show", "second")["status_reason"] == why)
    assert told(allranks, "job", "show", "second")["status"] == "NotStarted"
    until(lambda: "begins" in allranks("job", "logs", "first").stdout)
    allranks("job", "cancel", "first")
    assert told(allranks, "job", "wait", "second")["status"] == "Completed"
    assert "begins at" in allranks("job", "logs", "second").stdout
    last = allranks("run", "--state", "s", "--", *python, env=FAST).stdout
    assert int(last.split()[-1]) >= 10


def test_what_cannot_be_kept_is_told_and_keeps_nothing_else_from_being_kept(allranks):
    script = r"""
        cd "$ALLRANKS_STATE_DIR"
        case $1 in w)
            ln -s /etc/hostname out; ln -s ../../.. up; mkdir d; ln -s ../plain d/in; mkfifo pipe
            ln -s /etc elsewhere
            echo plain > plain; : > empty; mkdir empty-folder; echo x > $'a\nb \xff"'
            chmod 750 plain
            for i in $(seq 300); do echo $i > many-$i; done;;
        r)
            cat d/in empty $'a\nb \xff"'; stat -c %a plain; ls -d empty-folder
            ls -d out up pipe elsewhere 2>/dev/null; cat many-* | sort -n | tail -1;;
        esac
    """
    words = ("--state", "s", "--name")
    run(allranks, *words, "w", script=f"set -- w\n{script}")
    found = run(allranks, *words, "r", script=f"set -- r\n{script}").stdout
    assert found == "plain\nx\n750\nempty-folder\n300\n"
    said = " ".join(notes(allranks, "w"))
    assert "is a link that leads outside the state folder: not saved (and 2 more)" in said
    assert "'shared/pipe' is not a file, folder or link" in said
