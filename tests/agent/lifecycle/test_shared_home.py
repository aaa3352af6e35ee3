"""A node knows the server's home by its mark."""

import itertools
import os
import shutil
from pathlib import Path

import pytest

from allranks import settings
from allranks.agent.lifecycle.shared_home import require_home
from allranks.errors import NotFound
from allranks.server.agent_api.home_mark import mark_home

_TIMES = itertools.count()


@pytest.fixture
def own(tmp_path: Path) -> settings.Home:
    home = settings.Home(tmp_path / "ho'me x")
    home.root.mkdir()
    return home


def marked(home: settings.Home) -> str:
    mark = mark_home(home)
    assert mark is not None
    # The clock of a file system may stand still for milliseconds, and servers do not restart twice
    # in one.
    os.utime(mark, (at := next(_TIMES), at))
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
    marked(own)
    shutil.copytree(own.marks, own.root.parent / "copy")
    mark = marked(own)
    shutil.rmtree(own.marks)
    for prepare in (lambda: None, lambda: (own.root.parent / "copy").rename(own.marks)):
        prepare()
        with pytest.raises(NotFound, match="no such file") as refused:
            require_home(mark, 3)
        assert refused.value.message.startswith(f"node 3 on {os.uname().nodename} does not see")
        assert refused.value.where == str(own.root)


def test_a_home_that_cannot_be_marked_is_not_asked_for(own):
    own.marks.touch()
    assert mark_home(own) is None
    assert [*own.root.iterdir()] == [own.marks]
