"""Named things with versions."""

import pytest

from allranks.errors import AllranksError, Conflict, NotFound
from allranks.store.assets import Assets
from allranks.store.db import open_database


@pytest.fixture
def assets(tmp_path):
    return Assets(open_database(tmp_path / "x.db"), "environment")


def test_versions_count_up_unless_nothing_changed(assets):
    versions = [assets.create("a", None, {"n": n}).version for n in (1, 1, 2, 1)]
    assert versions == ["1", "1", "2", "3"]
    assert assets.create("a", "9", {"n": 9}).version == "9"
    assert assets.create("a", "beta", {"n": 9}).version == "beta"
    assert assets.create("a", None, {"n": 10}).version == "10"
    assert assets.create("b", None, {}).version == "1"


def test_a_version_never_changes(assets):
    first = assets.create("a", "1", {"n": 1})
    assert assets.create("a", "1", {"n": 1}) == first
    with pytest.raises(Conflict, match="a:1 is there already, and is another"):
        assets.create("a", "1", {"n": 2})


def test_the_newest_is_latest_and_labels_move(assets):
    for n in range(3):
        assets.create("a", None, {"n": n})
    assets.label("a", "1", ["prod", "old"])
    assets.label("a", "3", ["prod"])
    found = {each: assets.find("a", label=each).version for each in ("latest", "prod", "old")}
    assert found == {"latest": "3", "prod": "3", "old": "1"}
    assert assets.find("a", "2").spec == {"n": 1}
    assert assets.find("a", "2", "prod") is None
    assert assets.find("a", label="x") is assets.find("z") is None
    assets.delete("a", "3")
    assert assets.find("a", label="latest").version == "2"


def test_kinds_do_not_meet(assets):
    assets.create("a", None, {})
    assert Assets(assets._engine, "data").versions() == []


@pytest.mark.parametrize(
    ("do", "error", "said"),
    [
        (lambda each: each.label("a", "1", ["latest"]), Conflict, "always the newest"),
        (lambda each: each.label("a", "7", ["x"]), NotFound, "no environment a:7"),
        (lambda each: each.delete("a", "7"), NotFound, "no environment a:7"),
        (lambda each: each.delete("z", "1"), NotFound, "no environment z:1"),
    ],
)
def test_what_is_refused(assets, do, error: type[AllranksError], said: str):
    assets.create("a", None, {})
    with pytest.raises(error, match=said) as caught:
        do(assets)
    assert caught.value.hint
