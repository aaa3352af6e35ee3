"""What a node gives a user that the system does not know."""

import os
import pwd
from pathlib import Path

import pytest

from allranks.agent.lifecycle.own_disk import with_home
from allranks.agent.transport.identity import AgentIdentity
from allranks.core.plan import Task
from allranks.errors import UsageError
from allranks.settings import home


@pytest.fixture
def where(tmp_path: Path) -> AgentIdentity:
    return AgentIdentity("http://x", "t", "", 1, 0, tmp_path, "127.0.0.1", 1)


@pytest.fixture
def unknown_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54_321)
    monkeypatch.setattr(os, "getuid", lambda: 54_321)


def based(**base: str) -> Task:
    return Task(job="j", experiment="e", command="true", base=base)


def test_a_user_with_a_name_and_a_home_keeps_them(where: AgentIdentity, tmp_path: Path) -> None:
    own = {"HOME": pwd.getpwuid(os.geteuid()).pw_dir}
    assert with_home(based(), where).base == own
    for base in ({"HOME": str(tmp_path)}, own):
        assert with_home(based(**base), where).base == base


def test_a_home_that_is_not_there_is_made(where: AgentIdentity) -> None:
    made = with_home(based(HOME="/nonexistent"), where).base["HOME"]
    assert made.startswith(str(where.folder))
    assert os.access(made, os.W_OK)


@pytest.mark.usefixtures("unknown_user")
def test_a_number_gets_a_name_and_a_home(where: AgentIdentity) -> None:
    base = with_home(based(), where).base
    assert (base["USER"], base["LOGNAME"]) == ("54321", "54321")
    assert os.access(base["HOME"], os.W_OK)
    assert with_home(based(USER="ann"), where).base["USER"] == "ann"


@pytest.mark.usefixtures("unknown_user")
def test_a_command_without_a_home_says_what_to_set() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HOME", raising=False)
        with pytest.raises(UsageError, match="no home folder") as caught:
            home({})
    assert "ALLRANKS_HOME" in str(caught.value.hint)
