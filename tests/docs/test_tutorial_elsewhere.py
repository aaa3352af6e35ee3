"""The tutorial from another machine prints what it prints at home, line by line."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.namespaces import Hosts, hosts
from tests.docs.test_readme import ELSEWHERE, TUTORIAL, blocks
from tests.support import CLI, environment

pytestmark = [pytest.mark.heavy, pytest.mark.torch, pytest.mark.timeout(3000)]

# What differs between any two runs: names of jobs, times, sizes, ports and other numbers, how the
# columns of a table are filled, and bars.
_NAME = re.compile(r"\b[a-z]+_[a-z]+_[a-z0-9]{8}\b")
_NUMBER = re.compile(r"\d+(?:[.:,]\d+)*")
# Where files are: in a home of this machine, or on the server.
_PLACE = re.compile(r"^(outputs:|output \w+:|folder) .*|https?://\S+")
_SPACE = re.compile(r"[\s─━▁▂▃▄▅▆▇█·]+")
# A job that crashes ends its other ranks at a random moment, and reports judge times.
_CHANCE = ("crash_at=4", "report", "explain")
_DURATION = re.compile(r"\b(N h )?(N min )?N s\b")
# Of jobs that were long enough to be measured.
_MEASURED = re.compile(r"(node N)? cpu N %.*")
# The parts of a time, the longest first.
_PARTS = re.compile(r"^(goodput) .*")


def commands() -> list[str]:
    lines = "".join(blocks("bash", TUTORIAL)).splitlines()
    texts = [re.sub(r"\s{2,}#.*", "", line) for line in lines]
    return [text for text in texts if not any(word in text for word in ELSEWHERE)]


def tutorial(host: Hosts, number: int, env: dict[str, str], root: Path, before: str) -> list[str]:
    """What each command prints on a host whose ``root`` is an empty disk of its own."""
    folder = root / "line"
    say = f"allranks() {{ {shlex.quote(sys.executable)} -c '{CLI}' \"$@\"; }}"
    script = [say, before, f"mkdir -p {folder}; cd {folder}"]
    for name, language in (("train.py", "python"), ("job.yml", "yaml")):
        (content,) = blocks(language, TUTORIAL)
        script.append(f"printf %s {shlex.quote(content)} > {name}")
    script += [f"{command} 2>&1; printf '(%s)\\0' $?" for command in commands()]
    script.append("ls -R results; printf '\\0'")
    argv = host.argv(number, "unshare", "--mount", "bash", "-c", "\n".join(script))
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=1500)
    assert not done.stderr, done.stderr
    return done.stdout.replace(f"{folder}", "FOLDER").split("\0")


def shape(command: str, printed: str) -> list[str]:
    """The lines, without what differs between any two runs; ranks print in any order."""
    lines = {
        _SPACE.sub(" ", _NUMBER.sub("N", _NAME.sub("JOB", _PLACE.sub(r"\1 PLACE", line))))
        for line in printed.splitlines()
    }
    lines = {
        _PARTS.sub(r"\1", _DURATION.sub("TIME", line))
        for line in lines
        if not _MEASURED.match(line)
    }
    if any(word in command for word in _CHANCE):
        lines = {
            line for line in lines if line.startswith(("error:", "cause:", "hint:", "(", "job "))
        }
    return sorted(lines)


def test_no_line_differs(tmp_path: Path) -> None:
    with hosts(2) as two:
        here, far, server = tmp_path / "here", tmp_path / "far", tmp_path / "server"
        far.mkdir()
        local = environment(here / "home")
        serving = environment(server)
        start = ("server", "start", "--host", "198.18.0.1", "--json")
        ours = two.argv(0, sys.executable, "-c", CLI)
        try:
            at_home = tutorial(two, 0, local, here, "")
            done = subprocess.run([*ours, *start], env=serving, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            front = json.loads(done.stdout)["front"]
            token = (server / "token").read_text()
            hide = f"mount -t tmpfs none {far}; mount -t tmpfs none {server}"
            login = f"printf %s {shlex.quote(token)} | allranks login {front['url']} -q"
            login += f" --token-stdin --fingerprint {front['fingerprint']}"
            client = environment(far / "home") | {"HOME": str(far), "XDG_CONFIG_HOME": str(far)}
            elsewhere = tutorial(two, 1, client, far, f"{hide}; {login} > /dev/null")
        finally:
            for env in (local, serving):
                subprocess.run([*ours, "server", "stop", "--all"], env=env, capture_output=True)
    pairs = zip([*commands(), "ls"], at_home, elsewhere, strict=False)
    differing = [
        (command, {*shape(command, one)} ^ {*shape(command, other)})
        for command, one, other in pairs
    ]
    assert not [each for each in differing if each[1]]
