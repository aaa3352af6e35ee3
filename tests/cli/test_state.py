"""`allranks state …` and `client.states` with a real server and real jobs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import Allranks, answer

pytestmark = pytest.mark.slow


def write(allranks: Allranks, text: str, *words: object) -> str:
    script = f'cd "$ALLRANKS_STATE_DIR"; cat f 2>/dev/null; mkdir -p d; echo {text} | tee f > d/g'
    done = allranks("run", *words, "--", "bash", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.end_to_end
def test_versions_can_be_restored_and_downloaded(shared, code):
    for text in ("one", "two", "three"):
        write(shared, text, "--state", "birds", "--name", f"birds-{text}")
    found = answer(shared, "state", "show", "birds")
    assert [each["version"] for each in found["versions"]] == [3, 2, 1]
    newest = found["versions"][0]
    assert (newest["job"], newest["attempt"], newest["why"]) == (
        "birds-three",
        1,
        "an attempt ended",
    )
    files = {each["path"] for each in found["entries"] if each["what"] == "file"}
    assert files == {"shared/f", "shared/d/g"}
    job = answer(shared, "job", "show", "birds-three")
    assert job["state"] == {"name": "birds", "own": False, "version": 3}
    assert "state       birds, version 3\n" in shared("job", "show", "birds-three").stdout
    assert ("birds", 3) in [(e["name"], e["version"]) for e in answer(shared, "state", "list")]

    done = shared("state", "restore", "birds", "--version", 1)
    assert done.stderr == "birds is restored to version 1: 2 files, 8 bytes\n"
    assert write(shared, "four", "--state", "birds") == "one\n"

    done = shared("state", "download", "birds", "--version", 2, "-p", "here")
    assert done.returncode == 0, done.stderr
    assert (code / "here/birds/shared/d/g").read_text() == "two\n"
    again = answer(shared, "state", "download", "birds", "--version", 2, "-p", "here")
    assert (again["fetched"], again["there"]) == (0, 2)

    done = shared("state", "restore", "birds", "--version", 99)
    assert (done.returncode, "existing versions" in done.stderr) == (2, True)
    assert shared("state", "delete", "--yes", "birds").returncode == 0
    done = shared("state", "show", "birds")
    assert "no state named 'birds'" in done.stderr
    assert write(shared, "five", "--state", "birds") == ""


def test_a_restart_that_resumes_gets_the_jobs_own_state(allranks):
    write(allranks, "one", "--name", "j")
    assert [each["name"] for each in answer(allranks, "state", "list", "--own")] == ["j"]
    assert answer(allranks, "state", "list") == []
    name = allranks("job", "restart", "j", "--resume").stdout.strip()
    allranks("job", "wait", name)
    assert allranks("job", "logs", name).stdout == "one\n"
    fresh = allranks("job", "restart", "j").stdout.strip()  # it completed
    allranks("job", "wait", fresh)
    assert allranks("job", "logs", fresh).stdout == ""


SDK = """
import json, sys
from allranks import Client, command
client = Client()
script = 'cd "$ALLRANKS_STATE_DIR"; cat f 2>/dev/null; echo x >> f'
for _ in range(2):
    job = client.jobs.create_or_update(command(command=script, state="mine"))
    client.jobs.wait(job.name)
found = client.states.get("mine")
assert [each.version for each in found.versions] == [2, 1], found
assert found.held_by is None
assert [each["path"] for each in client.states.entries("mine", 1)] == ["shared/f"]
client.states.restore("mine", 1)
folder = client.states.download("mine", download_path=sys.argv[1])
assert (folder / "shared" / "f").read_text() == "x\\n"
assert [each.name for each in client.states.list()] == ["mine"]
client.states.delete("mine")
assert client.states.list() == []
"""


def test_the_same_in_python(home: Path, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", SDK, str(tmp_path / "got")],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


def test_a_state_in_use_is_not_changed(allranks):
    write(allranks, "one", "--state", "s")
    words = ("run", "--state", "s", "--name", "has", "--detach", "--", "sleep", 100)
    assert allranks(*words).returncode == 0
    for command in (("restore", "s", "--version", 1), ("delete", "s", "--yes")):
        done = allranks("state", *command)
        assert done.returncode == 2
        assert "the job has has the state s and has not ended" in done.stderr
        assert "allranks job cancel has" in done.stderr
    assert answer(allranks, "state", "show", "s")["held_by"] == "has"
