"""pip's configuration in uv's words, held against what pip itself reads."""

import subprocess
import sys
from pathlib import Path

import pytest

from allranks.agent.environments.pip_conf import PipConfiguration, for_uv

CONF = """
[global]
index-url = https://one/simple
extra_index_url =
    https://two/simple
    https://three/simple
trusted-host = two three
timeout = 5.5
[install]
find-links = /wheels /more
pre = yes
constraint = /limits.txt
only-binary = :all:
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
        "UV_INSECURE_HOST": "two three",
        "UV_HTTP_TIMEOUT": "6",
        "UV_PRERELEASE": "allow",
    }
    # The machine that runs the test may have a file of its own: the user's is over it.
    assert expected.items() <= told.variables.items()
    assert told.lines == ("-c /limits.txt", "--only-binary :all:")
    assert told.own_index


def test_a_file_that_is_named_stands_in_the_place_of_the_users(site, tmp_path):
    named = tmp_path / "named.conf"
    named.write_text("[install]\nindex-url = https://named/simple\n")
    found = for_uv({**site, "PIP_CONFIG_FILE": str(named), "PIP_TIMEOUT": "9"}).variables
    assert (found["UV_DEFAULT_INDEX"], found["UV_HTTP_TIMEOUT"]) == ("https://named/simple", "9")
    assert "two" not in found.get("UV_EXTRA_INDEX_URL", "")


def test_a_section_is_over_a_file_and_what_is_empty_is_not_said(site, tmp_path):
    shared = tmp_path / "xdg" / "pip"
    shared.mkdir(parents=True)
    (shared / "pip.conf").write_text("[install]\nindex-url = https://all/simple\n")
    more = {**site, "XDG_CONFIG_DIRS": str(shared.parent)}

    def index(**variables: str) -> str:
        return for_uv({**more, **variables}).variables["UV_DEFAULT_INDEX"]

    assert index() == "https://all/simple"
    (shared / "pip.conf").write_text("[install]\nindex-url =\n")
    assert index() == index(PIP_INDEX_URL="") == "https://one/simple"
    assert index(PIP_INDEX_URL="https://v") == "https://v"


def test_who_has_told_uv_is_heard_before(site):
    told = for_uv({**site, "UV_INDEX_URL": "https://uv/simple", "UV_INDEX": "https://x"})
    assert not {"UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL"} & told.variables.keys()


def test_none_at_all(site):
    told = for_uv({**site, "PIP_CONFIG_FILE": "/dev/null"})
    assert told == PipConfiguration({"UV_INDEX_STRATEGY": "unsafe-best-match"})
    none = {"PIP_CONFIG_FILE": "/dev/null"}
    assert for_uv({**none, "UV_INDEX": "https://x"}).own_index
    assert for_uv({**none, "PIP_NO_INDEX": "1"}) == PipConfiguration(
        told.variables, ("--no-index",), True
    )
    assert not for_uv({**none, "PIP_NO_INDEX": "false"}).own_index


@pytest.mark.parametrize("text", ["no section", "[global\n", "[global]\nindex-url\n", "\udc80"])
def test_a_file_that_cannot_be_read_is_pips_to_complain_of(site, tmp_path, text):
    (tmp_path / ".config/pip/pip.conf").write_bytes(text.encode(errors="surrogateescape"))
    assert for_uv(site) == for_uv({**site, "HOME": "/nonexistent"}), "as if there were none"


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("where", ["global", "install"])
def test_the_files_are_those_that_pip_reads(site, tmp_path, named, where):
    """pip tells by itself what counts of each section; of the sections it takes `install` first."""
    (tmp_path / "other.conf").write_text(f"[{where}]\nindex-url = https://other/simple\n")
    env = {**site, **({"PIP_CONFIG_FILE": str(tmp_path / "other.conf")} if named else {})}
    words = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    pips = dict(line.split("=", 1) for line in done.stdout.splitlines())
    expected = pips.get("install.index-url") or pips["global.index-url"]
    assert for_uv(env).variables["UV_DEFAULT_INDEX"] == expected.strip("'")
