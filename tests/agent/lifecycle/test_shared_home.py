"""A node knows the server's home by its mark."""

import os
from pathlib import Path

import pytest

from allranks import settings
from allranks.agent.lifecycle import shared_home
from allranks.agent.lifecycle.shared_home import require_home
from allranks.errors import NotFound
from allranks.plan.home_mark import HomeMark
from allranks.server.agents.home_mark import mark_home


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> settings.Home:
    monkeypatch.setattr(shared_home, "_PATIENCE", 0.0)
    home = settings.Home(tmp_path / "ho'me x")
    home.root.mkdir()
    return home


def marked(home: settings.Home) -> HomeMark:
    mark = mark_home(home)
    assert mark is not None
    return mark


def test_a_node_sees_the_home_also_after_the_server_has_restarted(own):
    first = marked(own)
    require_home(first, 0)
    for _ in range(3):
        require_home(marked(own), 0)
    require_home(first, 0)
    marked(own)
    with pytest.raises(NotFound):
        require_home(first, 0)


def test_an_empty_folder_and_an_old_copy_are_told_by_host(own):
    old = own.mark.read_text() if own.mark.exists() else ""
    mark = marked(own)
    for damage, why in ((own.mark.unlink, "no such file"), (None, "is not the server's")):
        if damage is not None:
            damage()
        else:
            own.mark.write_text(old)
        with pytest.raises(NotFound, match=why) as refused:
            require_home(mark, 3)
        assert refused.value.message.startswith(f"node 3 on {os.uname().nodename} does not see")
        assert refused.value.where == str(own.root)


def test_a_disk_that_is_late_is_waited_for(own, monkeypatch):
    mark = marked(own)
    content = own.mark.read_text()
    own.mark.unlink()
    monkeypatch.setattr(shared_home, "_PATIENCE", 60.0)
    monkeypatch.setattr(shared_home.time, "sleep", lambda seconds: own.mark.write_text(content))
    require_home(mark, 0)


def test_a_home_that_cannot_be_marked_is_not_asked_for(own):
    own.mark.mkdir()
    assert mark_home(own) is None
    assert [*own.root.iterdir()] == [own.mark]
