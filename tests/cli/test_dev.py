"""`allranks dev`: sessions on kept nodes, jobs inside of them, and what comes back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from allranks.cli.dev import notes
from allranks.cli.dev.changes import changes, is_path_below
from allranks.cli.dev.pull import why_not
from tests.cli.test_enter import Terminal
from tests.support import Allranks, answer, kill_server, until

TRAIN = """\
import os, pathlib
import helper
rank = os.environ["RANK"]
pathlib.Path("outputs", f"of-{rank}").write_text(rank)
print("rank", rank, "of", os.environ["WORLD_SIZE"], helper.WORD, os.environ["COLOUR"], flush=True)
"""
SAVING = "trap 'sleep 1; echo saved; exit 1' TERM; echo begun; sleep 600 & wait"
HOSTILE = r"""
ln -s /etc evil; ln -s ../../up up; ln -s helper.py good; chmod +x run.sh; rm gone
echo "WORD = 'there'" >helper.py; echo new >'-n a\b'; printf 1 >"$(printf 'two\nlines')"
ln helper.py twin; mkdir -p behind clash new __pycache__
echo 1 | tee behind/x clash/x new/y seen.log >__pycache__/z.pyc
"""


@pytest.mark.slow
def test_dev_without_a_word_starts_a_session(allranks: Allranks, tmp_path: Path):
    mine = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = allranks("dev", env=mine)
    assert (done.returncode, "allranks run --in dev-" in done.stdout) == (0, True), done.stderr
    lines = done.stdout + done.stderr
    assert lines.count(" jupyter\n") == ("has no JupyterLab" not in lines), lines
    name = done.stdout.split("allranks run --in ")[1].split()[0]
    (key,) = (tmp_path / "config" / "allranks" / "ssh").glob("*/*/key")
    other = key.parent.with_name("dev-other.allranks")
    other.mkdir()
    assert allranks("dev", "stop", env=mine).returncode == 0
    assert [*other.parent.iterdir()] == [other], "its keys are gone, and no other ones"
    other.rmdir()
    assert allranks("dev", "stop", name, env=mine).returncode == 0
    assert not (tmp_path / "config" / "allranks" / "ssh").exists(), "no empty folders stay"
    for words in (("stop", "nope"), ("attach", "nope"), ("pull", "nope")):
        done = allranks("dev", *words)
        assert (done.returncode, "error: no session 'nope'" in done.stderr) == (2, True)
        assert "allranks dev list" in done.stderr


@pytest.mark.slow
@pytest.mark.end_to_end
def test_jobs_run_in_a_session_and_its_changes_come_back(
    allranks: Allranks, code: Path, home: Path, tmp_path: Path
):
    (code / "train.py").write_text(TRAIN)
    for name, text in {
        "helper.py": "WORD = 'here'",
        ".gitignore": "*.log",
        "gone": "",
        "run.sh": "",
    }.items():
        (code / name).write_text(text)
    started = ("dev", "-n", 2, "--name", "fix", "--no-jupyter", "--env", "COLOUR=red")
    assert answer(allranks, *started, "--json")["status"] == "Running"
    again = allranks("dev", "--name", "fix")
    assert again.returncode == 2
    assert (
        "hint: if it runs, enter it: allranks dev attach dev-fix; else use another" in again.stderr
    )

    # A change on the first node is what all ranks of a job see.
    assert allranks("job", "exec", "dev-fix", "--", "sh", "-c", HOSTILE).returncode == 0
    done = allranks("run", "--in", "fix", "--name", "in1", "--", "python", "train.py")
    assert done.returncode == 0, done.stderr
    assert {f"rank {rank} of 2 there red" for rank in (0, 1)} <= {*done.stdout.split("\n")}
    job = answer(allranks, "job", "show", "in1", "--json")
    assert (job["nodes"], job["compute"], job["attempts"]) == (2, "local", 1)
    files = {each["path"] for each in answer(allranks, "job", "files", "in1", "--json")}
    assert {"outputs/of-0", "outputs/of-1"} <= files

    # One after the other; the second says what it waits for, and starts once the first is gone.
    for name in ("first", "second"):
        words = ("--in", "fix", "-n", 1, "-p", 1, "--detach", "--name", name)
        assert allranks("run", *words, "--", "sh", "-c", SAVING).returncode == 0
    until(lambda: "waits for first to end" in allranks("job", "show", "second").stdout)
    kill_server(home)
    allranks("job", "cancel", "first")
    until(lambda: "begun" in allranks("job", "logs", "second").stdout)

    # What was changed in both places stays here, and is named, unless it is forced.
    (code / "helper.py").write_text("WORD = 'mine'")
    (code / "behind").symlink_to(tmp_path)
    (code / "clash").write_text("a file here")
    tried = answer(allranks, "dev", "pull", "fix", "--json", code=1)
    assert tried["files"] == ["-n a\\b", "good", "new/y", "run.sh", "twin", "two\nlines"]
    assert (tried["left"], tried["removed_there"]) == (["helper.py"], ["gone"])
    assert {*tried["refused"]} == {"evil", "up", "behind/x", "clash/x"}
    assert os.access(code / "run.sh", os.X_OK)
    assert (code / "good").readlink() == Path("helper.py")
    assert not (tmp_path / "x").exists()
    assert answer(allranks, "dev", "pull", "fix", "--force", "--json")["files"] == ["helper.py"]
    assert (code / "helper.py").read_text() == "WORD = 'there'\n"
    assert answer(allranks, "dev", "pull", "fix", "--json")["files"] == []
    (tmp_path / "copy").mkdir()
    came = answer(allranks, "dev", "pull", "fix", "-p", tmp_path / "copy", "--json")["files"]
    assert {"train.py", "helper.py", "clash/x"} <= {*came}

    for words, why in (
        (("run", "--in", "fix", "-n", 3, "--", "true"), "asks for 3 nodes, and dev-fix has 2"),
        (("run", "--in", "fix", "--gpus", 1, "--", "true"), "and dev-fix has none"),
        (("run", "--in", "nonsuch", "--", "true"), "no session named 'dev-nonsuch'"),
        (("job", "create", "-f", "-", "--set", "inside=in1"), "in1 is no session"),
        (("dev", "--name", "fix"), "a job named 'dev-fix' already exists"),
    ):
        refused = allranks(*words, input="command: 'true'")
        assert (refused.returncode, why in refused.stderr) == (2, True), refused.stderr

    # Its end is that of what runs in it, which has time to save, and says so.
    assert [each["name"] for each in answer(allranks, "dev", "list", "--json")] == ["dev-fix"]
    head, row = allranks("dev", "list").stdout.splitlines()
    assert (head.split()[-1], row.split()[-1]) == ("AGE", "s")
    assert allranks("dev", "stop").returncode == 0
    until(lambda: answer(allranks, "job", "show", "second", "--json")["status"] == "Canceled")
    allranks("job", "wait", "dev-fix")
    assert "CANCELED (blame: nobody): dev-fix" in allranks("job", "show", "second").stdout
    assert "saved" in allranks("job", "logs", "second").stdout
    assert "has ended" in allranks("run", "--in", "fix", "--", "true").stderr
    assert "no session" in allranks("dev", "list").stderr


@pytest.mark.slow
def test_a_session_that_nobody_uses_ends_and_says_so_before(
    allranks: Allranks, code: Path, home: Path
):
    words = ("--in-place", "--no-jupyter", "--name", "idle", "--idle-timeout", "6")
    terminal = Terminal(home, "dev", "-C", str(code), *words, "--timeout", "12d")
    terminal.expect(b"dev-idle rank 0")
    terminal.press(b"echo made >made; pwd\r")
    terminal.expect(os.fsencode(code))
    assert (code / "made").read_text() == "made\n"
    # A shell in which nothing happens is no use.
    terminal.expect(b"it ends in")
    assert terminal.ended() != 0
    allranks("job", "wait", "dev-idle")
    events = answer(allranks, "job", "events", "dev-idle", "--json")
    notices = [each["data"]["message"] for each in events if each["kind"] == "notice"]
    assert ["it ends" in text for text in notices] == [True, True]
    job = answer(allranks, "job", "show", "dev-idle", "--json")
    assert (job["status"], job["command"]) == ("Canceled", "sleep 1036800")
    assert "runs in" in allranks("dev", "pull", "idle").stderr


def test_what_comes_back_is_what_changed_there_alone():
    sent = {"a": "1", "b": "1", "c": "1", "d": "1", "e": "1", "f": "1"}
    there = {"a": "1", "b": "2", "c": "2", "d": "2", "new": "1", "both": "1"}
    here = {"a": "9", "b": "1", "c": "2", "d": "3", "e": "1", "f": "2", "both": "2"}
    found = changes(sent, there, here)
    assert found == (("b", "new"), ("both", "d"), ("c",), ("e",))
    # Removed here and changed there: nobody's work is lost by asking.
    assert changes({"a": "1"}, {"a": "2"}, {}).both == ("a",)


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "", "a//b", ".", "a\0b"])
def test_a_name_that_leads_out_of_the_folder_is_refused(name: str, tmp_path: Path):
    assert not is_path_below(name)
    assert why_not(tmp_path, name, "1")


@pytest.mark.parametrize(
    "name", [".git/hooks/pre-commit", "sub/.GIT/config", ".git", "__PyCache__/x"]
)
def test_a_file_of_git_or_of_a_cache_is_refused_though_a_node_offers_it(name: str, tmp_path: Path):
    assert why_not(tmp_path, name, "1x")
    assert not why_not(tmp_path, ".github/git", "1x")


def test_what_is_not_submitted_leaves_the_note_of_a_session_of_the_same_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("ALLRANKS_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text("1")
    sent = notes.note_of(tmp_path / "train.py", in_place=False)
    running = notes.add("dev-x", sent)
    (tmp_path / "train.py").write_text("2")
    # Interrupted, or on another server.
    other = notes.add("dev-x", notes.note_of(tmp_path / "train.py", in_place=False))
    assert notes.read("dev-x", running) == sent != notes.read("dev-x", other)
    notes.remove("dev-x", other)
    assert notes.read("dev-x", running) == sent
    assert notes.read("dev-x-2", running) is None
