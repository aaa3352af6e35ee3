"""pip's configuration in uv's words, held against what pip itself reads."""

import subprocess
import sys
from pathlib import Path

import pytest

from allranks.agent.pip_conf import for_uv

CONF = """
[global]
index-url = https://one/simple
extra_index_url =
    https://two/simple
    https://three/simple
trusted-host = two three
timeout = 5
[install]
find-links = /wheels /more
pre = yes
[list]
index-url = https://not/this
"""


@pytest.fixture
def site(tmp_path: Path) -> dict[str, str]:
    """The variables of a user whose pip.conf it is, on a machine without one."""
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(CONF)
    return {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "none"), "PATH": "/usr/bin"}


def test_a_users_file(site):
    told = for_uv(site)
    expected = {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_DEFAULT_INDEX": "https://one/simple",
        "UV_EXTRA_INDEX_URL": "https://two/simple https://three/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "two,three",
        "UV_HTTP_TIMEOUT": "5",
        "UV_PRERELEASE": "allow",
    }
    # The machine that runs the test may have a file of its own: the user's is over it.
    assert expected.items() <= told.variables.items()
    assert (told.no_index, told.own_index) == (False, True)


def test_variables_are_over_files_and_a_named_file_over_both_places(site, tmp_path):
    named = tmp_path / "named.conf"
    named.write_text("[global]\nindex-url = https://named/simple\n")
    found = for_uv({**site, "PIP_CONFIG_FILE": str(named), "PIP_TIMEOUT": "9"}).variables
    assert (found["UV_DEFAULT_INDEX"], found["UV_HTTP_TIMEOUT"]) == ("https://named/simple", "9")
    assert (
        for_uv({**site, "PIP_INDEX_URL": "https://v"}).variables["UV_DEFAULT_INDEX"] == "https://v"
    )


def test_none_at_all(site):
    told = for_uv({**site, "PIP_CONFIG_FILE": "/dev/null"})
    assert told.variables == {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    assert not told.own_index
    assert for_uv({"PIP_CONFIG_FILE": "/dev/null", "UV_INDEX": "https://x"}).own_index
    assert for_uv({"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1"}).no_index


@pytest.mark.parametrize("text", ["no section", "[global\n", "[global]\nindex-url\n", "\udc80"])
def test_a_file_that_cannot_be_read_is_pips_to_complain_of(site, tmp_path, text):
    (tmp_path / ".config/pip/pip.conf").write_bytes(text.encode(errors="surrogateescape"))
    for_uv(site)


def test_the_files_are_those_that_pip_reads(site):
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env=site,
        capture_output=True,
        text=True,
        check=True,
    )
    pips = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert pips["global.index-url"] == "'https://one/simple'"
    assert for_uv(site).variables["UV_DEFAULT_INDEX"] == "https://one/simple"
