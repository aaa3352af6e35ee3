"""`allranks ui`, with and without what it needs."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.cli.commands import COMMANDS
from allranks.cli.parser import parser_of
from allranks.ui.pages.assets import KINDS
from tests.support import Allranks, answer, environment, until

pytestmark = pytest.mark.medium

# Stands for a Python without the extra `[ui]`.
WITHOUT = """\
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "plotly" else found(name, *more)
import allranks.server.ui.child as child
child.find_spec = importlib.util.find_spec
from allranks.server.__main__ import serve
from allranks import settings
serve(settings.home())
"""


def test_an_address_of_a_job(shared: Allranks) -> None:
    assert shared("run", "--name", "seen", "-q", "--", "true").returncode == 0
    url = answer(shared, "server", "status")["url"]
    found = answer(shared, "ui", "seen")["url"]
    assert found.startswith(f"{url}/ui/sign-in?code=")
    assert found.endswith("&back=%2Fui%2Fjobs%2Fseen")
    done = shared("ui", "--print-url", env={"SSH_CONNECTION": "1 2 3 4"})
    assert done.stdout.startswith(f"{url}/ui/sign-in?code=")
    assert "ssh -N -L" in done.stderr
    missing = shared("ui", "nosuch")
    assert missing.returncode == 2
    assert "job 'nosuch' not found" in missing.stderr


def test_a_server_without_the_extra(allranks: Allranks, home: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WITHOUT], env=environment(home)) as server:
        until(lambda: (home / "server.json").exists())
        done = allranks("ui")
        assert done.returncode == 2
        assert "this server has no web page" in done.stderr
        assert "pip install 'allranks[ui]'" in done.stderr
        first = allranks("run", "--name", "a", "--", "true").stderr.splitlines()[0]
        assert first == "a: 1 node, 1 rank"
        server.terminate()


def test_what_empty_pages_say_to_do_first() -> None:
    for kind in KINDS.values():
        command, _, rest = kind.first.removeprefix("allranks ").partition(" ")
        if f"{command} {rest.split()[0]}" in COMMANDS:
            command, rest = f"{command} {rest.split()[0]}", rest.partition(" ")[2]
        assert parser_of(command).parse_args(shlex.split(rest))
