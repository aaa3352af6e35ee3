"""A disk of a node on which only so many files can be made: whatever it is that cannot, what is
told is true."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.slow
def test_a_job_says_that_the_disk_of_the_home_is_full(
    allranks: Allranks, home: Path, tmp_path: Path
) -> None:
    """Its events cannot be recorded, and what its ranks print is lost."""
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
