"""A disk of a node on which only so many files can be made: whatever it is that cannot, what is
told is true."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allranks.disk_space import RESERVE
from tests.support import CLI, Allranks, environment, until


@pytest.mark.slow
def test_a_node_with_room_for_so_many_files(allranks: Allranks, home: Path) -> None:
    """It takes an agent some to prepare, and each time another is the one too many. (On a small
    tmpfs, because an ext4 has no such limit that could be moved.)"""
    assert allranks("server", "start").returncode == 0
    nodes, ends = home / "nodes", list[Any]()
    mount = ["mount", "-t", "tmpfs", "-o", "nr_inodes=3", "none", nodes]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root, and a container that allows it")
    try:
        while not ends or ends[-1] != ("Completed", None, None):
            room = f"remount,nr_inodes={3 + len(ends)}"
            subprocess.run(["mount", "-o", room, nodes], check=True)
            name = f"with-{len(ends)}"
            allranks("run", "--name", name, "--", "echo", "it ran")
            job = json.loads(allranks("job", "show", name, "--json").stdout)
            error = job["error"] or {}
            ends.append((job["status"], error.get("reason"), error.get("cause")))
    finally:
        allranks("server", "stop")
        subprocess.run(["umount", "--lazy", nodes], check=True)
    assert set(ends[:-1]) == {("Failed", "SETUP_FAILED", "DISK_FULL")}
    assert len(ends) > 5


# Writes until there is no space, then fails, is done, or goes on trying.
FILL = """
import os, sys, time
os.makedirs(sys.argv[2])
for number in range(10**6):
    try:
        with open(f"{sys.argv[2]}/{number}.ckpt", "wb", 0) as file:
            file.write(b"x" * (1 << 20 if number < 200 else 1))
    except OSError:
        if sys.argv[1] == "stay":
            time.sleep(0.01)
        elif number > 200:
            sys.exit(3 if sys.argv[1] == "fail" else 0)
"""


@pytest.mark.slow
def test_jobs_whose_own_files_fill_the_disk_end(
    allranks: Allranks, home: Path, code: Path, tmp_path: Path
) -> None:
    (code / "fill.py").write_text(FILL)
    home.mkdir()
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(100 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, home], capture_output=True).returncode:
        pytest.skip("mounting a disk of its own needs root, and a container that allows it")
    ends = []

    def job(name: str) -> Any:
        return json.loads(allranks("job", "show", name, "--json").stdout)

    def ended(name: str) -> None:
        allranks("job", "wait", name, "--timeout", "20")
        ends.append((name, job(name)["status"]))
        # A server that was killed on a full disk starts, and deletes what fills it.
        os.kill(json.loads((home / "server.json").read_text())["pid"], signal.SIGKILL)
        done = allranks("job", "delete", name, "--yes")
        assert done.returncode == 0, done.stderr
        until(lambda: (home / RESERVE).exists())

    try:
        for how, folder in (("fail", "outputs/a"), ("done", "checkpoints"), ("stay", "outputs/b")):
            words = ("--name", how, "--", "python", "fill.py", how, folder)
            assert allranks("run", "--detach", *words).returncode == 0
            if how == "stay":
                until(lambda: "is full" in str(job("stay")["status_reason"]))
                done = allranks("job", "cancel", "stay")
                assert done.returncode == 0, done.stderr
                assert allranks("gc", "--yes").returncode == 0
            ended(how)
        assert allranks("server", "stop").returncode == 0
    finally:
        allranks("server", "stop")
        subprocess.run(["umount", "--lazy", home], check=True)
    assert ends == [("fail", "Failed"), ("done", "Completed"), ("stay", "Canceled")]


@pytest.mark.slow
def test_a_job_says_that_the_disk_of_the_home_is_full(
    allranks: Allranks, home: Path, tmp_path: Path
) -> None:
    """What its ranks print is lost."""
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", home]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root, and a container that allows it")
    filler, told, shown = home / "filler", tmp_path / "told", list[str]()
    script = """
        echo before
        cat /dev/zero >"$1"; seq 100000
        until [ -e "$2" ]; do sleep 0.1; done
        rm "$1"; echo after
    """
    free = tmp_path / "free"
    argv = ["run", "--name", "j", "--", "sh", "-c", script, "sh", filler, free]
    full = f"the disk of the server's home {home} is full"
    try:
        with told.open("w") as stderr:
            run = subprocess.Popen(
                [sys.executable, "-c", CLI, *map(str, argv)],
                env=environment(home),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=tmp_path,
                text=True,
            )
        try:
            until(lambda: f"j Running: {full}" in told.read_text())
            shown += [allranks("job", "show", "j").stdout]
        finally:
            free.touch()
            output, _ = run.communicate(timeout=60)
        shown += [allranks("job", "show", "j").stdout]
    finally:
        allranks("server", "stop")
        subprocess.run(["umount", "--lazy", home], check=True)
    assert output.startswith("before\n")
    assert output.endswith("after\n")
    assert "\n100000\n" not in output
    assert "Running" in shown[0]
    assert full in shown[0]
    assert full not in shown[1]
    for text in (told.read_text(), shown[1]):
        assert "output of ranks may be missing: the disk of their logs, " in text
