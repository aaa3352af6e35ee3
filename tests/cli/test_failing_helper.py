"""A process beside the ranks that fails: its last words are the job's error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import Allranks

pytestmark = pytest.mark.medium


def test_the_last_words_of_a_ray_head_that_does_not_start(allranks: Allranks, tmp_path: Path):
    ray = tmp_path / "ray"
    ray.write_text("#!/bin/sh\necho 'ValueError: no room for 80 MB of objects' >&2; exit 1\n")
    ray.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = allranks("run", "--name", "head", "-d", "ray", "--", "true", env=env)
    assert done.returncode == 1
    words = "Ray node on node 0 exited with code 1: ValueError: no room for 80 MB of objects"
    assert words in done.stderr
