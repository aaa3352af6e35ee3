"""`allranks ui`, with and without what it needs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
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


ACROSS = {
    "sec-fetch-site": "cross-site",
    "sec-fetch-mode": "navigate",
    "sec-fetch-dest": "document",
}


def test_a_link_of_another_site_asks_before_it_replaces_who_is_signed_in(shared: Allranks) -> None:
    def link(token: str = "") -> str:
        env = {"ALLRANKS_TOKEN": token, "ALLRANKS_SERVER": url} if token else {}
        return shared("ui", "--print-url", env=env).stdout.strip()

    eve = answer(shared, "server", "token", "create", "eve", "--role", "reader")["token"]
    url = answer(shared, "server", "status")["url"]
    with httpx.Client() as nobody:
        assert "set-cookie" in nobody.get(link(eve), headers=ACROSS).headers
    with httpx.Client() as client:
        assert client.get(link()).status_code == 303
        for headers in (ACROSS, {**ACROSS, "sec-fetch-site": "same-site"}, {}):
            asked = client.get(address := link(eve), headers=headers)
            assert asked.status_code == 200
            assert "set-cookie" not in asked.headers
            assert "Sign in as eve?" in asked.text
            assert "(admin)" in client.get(f"{url}/ui/", headers={"accept": "text/html"}).text
        code = httpx.URL(address).params["code"]
        refused = client.post(f"{url}/ui/sign-in", data={"code": code})
        assert refused.status_code == 403
        forms = re.findall(r'name="forms" value="(\w+)"', asked.text)[0]
        agreed = client.post(f"{url}/ui/sign-in", data={"code": code, "forms": forms})
        assert agreed.status_code == 303
        assert "(reader)" in client.get(f"{url}/ui/", headers={"accept": "text/html"}).text
        # Typed or opened by `allranks ui`.
        assert client.get(link(), headers={"sec-fetch-site": "none"}).status_code == 303
        assert client.get(link()).status_code == 303
        assert "(admin)" in client.get(f"{url}/ui/", headers={"accept": "text/html"}).text


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
