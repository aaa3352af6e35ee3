"""A disk of a node on which only so many files can be made: whatever it is that cannot, what is
told is true."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import Allranks


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
