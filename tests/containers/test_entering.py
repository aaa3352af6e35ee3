"""Getting into a job with an image: programs, terminals and services inside its container."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_enter import Terminal, processes
from tests.cli.test_ssh import Ssh
from tests.containers.conftest import IMAGE, Podman
from tests.support import CLI, Allranks, environment, until

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


def test_services_and_sftp_are_inside(here: Allranks, code: Path, home: Path, tmp_path: Path):
    web = 'echo "in $FROM_IMAGE" >there; exec python3 -m http.server $PORT --bind 127.0.0.1'
    job = {"command": "sleep 600", "environment": {"image": IMAGE}, "name": "inside"}
    (code / "job.yml").write_text(json.dumps(job | {"services": {"web": {"command": web}}}))
    assert here("job", "create", "-f", "job.yml").returncode == 0
    until(lambda: "web: Running" in here("job", "show", "inside").stdout, 60)
    argv = [sys.executable, "-c", CLI, "job", "port-forward", "inside", "web"]
    with subprocess.Popen(argv, env=environment(home), stdout=subprocess.PIPE, text=True) as lead:
        assert lead.stdout is not None
        with urllib.request.urlopen(f"{lead.stdout.readline().strip()}there") as answer:
            assert answer.read() == b"in yes\n"
        lead.kill()
    ssh = Ssh(here, home, "inside")
    assert ssh("ssh", ssh.host, "echo $FROM_IMAGE; cat there").stdout == "yes\nin yes\n"
    assert ssh("scp", f"{ssh.host}:there", tmp_path).returncode == 0
    assert (tmp_path / "there").read_text() == "in yes\n"
    assert here("job", "cancel", "inside").returncode == 0
    here("job", "wait", "inside")
    until(lambda: not processes("http.server"))


def test_a_held_failure_inside_is_debugged(here: Allranks, code: Path):
    (code / "held.py").write_text(
        "import os, time\nif os.environ['RANK'] == '1':\n    secret = 42\n    [0][secret]\n"
        "time.sleep(600)\n"
    )
    words = ("--detach", "--name", "held", "--image", IMAGE, "-p", 2, "--on-failure", "hold")
    assert here("run", *words, "--", "python", "held.py").returncode == 0
    until(lambda: "held until" in here("job", "show", "held").stdout, 60)
    done = here("job", "debug", "held", input="p secret\n")
    assert "(Pdb) 42\n" in done.stdout, done
    assert here("job", "release", "held").returncode == 0
    assert here("job", "wait", "held").returncode == 1
