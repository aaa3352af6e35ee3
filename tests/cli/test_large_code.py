"""Code folders that are too large are refused before they are read, and nothing is left."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import allranks as sdk
from allranks.core.job.code_size import MOST_BYTES, MOST_FILES
from allranks.core.transfer_progress import Progress
from allranks.errors import CodeTooLarge
from allranks.snapshot.take import take_snapshot
from tests.support import CLI, environment, until


def huge(folder: Path) -> Path:
    """Add a sparse file that is too large."""
    path = folder / "da ta" / "it's huge.bin"
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    return path


def test_a_folder_that_is_too_large_is_refused_before_it_is_read(code):
    path = huge(code)
    path.chmod(0)
    with pytest.raises(CodeTooLarge, match=r"500\.0 MB \(1 file\)") as caught:
        take_snapshot(code)
    assert "500.0 MB  da ta/it's huge.bin" in caught.value.message
    assert "--allow-large-code" in caught.value.hint
    (code / ".amlignore").write_text("*.bin\n")
    assert take_snapshot(code).files == (".amlignore",)


@pytest.mark.slow
def test_too_many_files_are_refused(code):
    (code / "many").mkdir()
    for number in range(MOST_FILES + 1):
        (code / "many" / str(number)).touch()
    with pytest.raises(CodeTooLarge, match=r"20,001 files") as caught:
        take_snapshot(code)
    assert "many/ (20,001 files)" in caught.value.message
    reports = []
    taken = take_snapshot(code, allow_large=True, progress=reports.append)
    assert len(taken.files) == MOST_FILES + 1
    assert reports[0] == Progress("reading the code", 0, 0)


def test_the_sdk_refuses_it_too(home, code):
    huge(code)
    job = sdk.command(command="true", code=str(code))
    with pytest.raises(CodeTooLarge):
        sdk.MLClient().jobs.create_or_update(job)
    assert not (home / "jobs").exists() or not list((home / "jobs").iterdir())


@pytest.mark.slow
def test_every_command_refuses_it_and_creates_nothing(allranks, home, code):
    huge(code)
    (code / "job.yml").write_text("command: 'true'\ncode: .\n")
    ways = (
        ("run", "--", "true"),
        ("run", "--dry-run", "--", "true"),
        ("job", "create", "-f", "job.yml"),
        ("job", "validate", "-f", "job.yml"),
    )
    for words in ways:
        done = allranks(*words)
        assert done.returncode == 2, done.stdout + done.stderr
        said = done.stdout + done.stderr
        assert "it's huge.bin" in said
        assert "--allow-large-code" in said
    assert not list(home.glob("jobs/*"))
    told = json.loads(allranks("run", "--json", "--", "true").stdout)
    assert told["error"] == "usage"
    # In the folder itself nothing is copied.
    assert allranks("run", "--in-place", "--", "true").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "status"), [(b"n\n", 2), (b"y\n", 0)])
def test_a_terminal_asks_for_confirmation(home, code, answer, status):
    (code / "many").mkdir()
    for number in range(MOST_FILES + 1):
        (code / "many" / str(number)).touch()
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-c", CLI, "run", "--", "bash", "-c", "ls many | wc -l"]
    process = subprocess.Popen(
        argv, cwd=code, env=environment(home), stdin=theirs, stderr=theirs, stdout=subprocess.PIPE
    )
    os.close(theirs)
    said = b""
    while b"[y/N] " not in said:
        said += os.read(ours, 4096)
    assert b"many/ (20,001 files)" in said
    os.write(ours, answer)
    out, _ = process.communicate(timeout=120)
    os.close(ours)
    assert process.returncode == status
    assert out.strip() == (b"20001" if status == 0 else b"")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_upload_leaves_nothing(allranks, home, code, number):
    (code / "small.py").write_text("print('here')")
    assert allranks("run", "--", "python", "small.py").stdout == "here\n"

    def blobs() -> set[Path]:
        return {path for path in home.glob("blobs/*/*") if path.is_file()}

    before = blobs()
    for each in range(40):
        (code / f"{each}.bin").write_bytes(os.urandom(5_000_000))
    argv = [sys.executable, "-c", CLI, "run", "--", "true"]
    process = subprocess.Popen(argv, cwd=code, env=environment(home), stderr=subprocess.PIPE)
    try:
        until(lambda: blobs() - before)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    until(lambda: blobs() == before)
    for each in code.glob("*.bin"):
        each.unlink()
    assert allranks("run", "--", "python", "small.py").stdout == "here\n"
