"""Getting into a job with an image: programs and terminals inside its container."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_enter import Terminal, processes
from tests.containers.conftest import IMAGE, Podman
from tests.support import Allranks, until

pytestmark = [pytest.mark.slow, pytest.mark.containers, pytest.mark.timeout(400)]


@pytest.fixture
def here(podman: Podman, allranks: Allranks, monkeypatch: pytest.MonkeyPatch) -> Iterator[Allranks]:
    monkeypatch.setenv("PATH", f"{podman.folder}:{os.environ['PATH']}")
    done = allranks("compute", "update", "local", "--container", "podman")
    assert done.returncode == 0, done.stderr
    yield allranks
    allranks("server", "stop")
    until(lambda: not podman.names(), 15)


def test_what_enters_is_inside(here: Allranks, code: Path, home: Path):
    words = ("--image", IMAGE, "--detach", "--name", "in", "--env", "A=it's $x", "--")
    assert here("run", *words, "bash", "-c", "echo up; exec sleep 600").returncode == 0
    until(lambda: "up" in here("job", "logs", "in").stdout)
    shown = 'echo "$FROM_IMAGE $A"; echo $$; cat; exit 5'
    done = here("job", "exec", "in", "--", "bash", "-c", shown, input="given")
    assert done.returncode == 5, done.stderr
    assert done.stdout.startswith("yes it's $x\n")
    assert done.stdout.endswith("\ngiven")
    # What it leaves running ends with it, also what has left its session.
    left = "setsid sleep 987651 & sleep 987651 & echo left"
    assert here("job", "exec", "in", "--", "bash", "-c", left).stdout == "left\n"
    until(lambda: not processes("sleep 987651"))
    terminal = Terminal(home, "job", "shell", "in")
    terminal.expect(b"in rank 0")
    terminal.press(b"[ -t 0 ] && echo ter'minal' $FROM_IMAGE\r")
    terminal.expect(b"terminal yes")
    terminal.press(b"setsid sleep 987651 & sleep 987651 & sleep 987651\r")
    until(lambda: len(processes("sleep 987651")) == 3)
    os.kill(terminal.pid, signal.SIGKILL)
    assert terminal.ended() == -signal.SIGKILL
    until(lambda: not processes("sleep 987651"))
    assert here("job", "exec", "in", "--", "bash", "-c", "true").returncode == 0
