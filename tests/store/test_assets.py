"""Named things with versions."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from allranks.errors import AllranksError, Conflict, NotFound
from allranks.store.assets import Assets
from allranks.store.database import open_database
from allranks.store.key_values import Settings


@pytest.fixture
def assets(where):
    engine = open_database(where)
    yield Assets(engine, "environment")
    engine.dispose()


def test_versions_count_up_unless_nothing_changed(assets):
    versions = [assets.create("a", None, {"n": n}).version for n in (1, 1, 2, 1)]
    assert versions == ["1", "1", "2", "3"]
    assert assets.create("a", "9", {"n": 9}).version == "9"
    assert assets.create("a", "beta", {"n": 9}).version == "beta"
    assert assets.create("a", None, {"n": 10}).version == "10"
    assert assets.create("b", None, {}).version == "1"


def test_a_version_never_changes(assets):
    first = assets.create("a", "1", {"n": 1})
    again = assets.create("a", "1", {"n": 1})
    assert (first.new, again.new, assets.create("a", None, {"n": 1}).new) == (True, False, False)
    assert again == first._replace(new=False)
    with pytest.raises(Conflict, match="a:1 already exists with other content"):
        assets.create("a", "1", {"n": 2})


def test_the_newest_is_latest_and_labels_move(assets):
    for n in range(3):
        assets.create("a", None, {"n": n})
    assets.label("a", "1", ["prod", "old"])
    assets.label("a", "3", ["prod"])
    labels = {row.version: row.labels for row in assets.versions("a")}
    assert labels == {"1": ("old",), "2": (), "3": ("prod",)}
    assets.delete("a", "3")
    assert [row.version for row in assets.versions("a")] == ["1", "2"]


def test_a_number_that_was_deleted_does_not_come_back(assets):
    assets.create("a", None, {"n": 1})
    assets.delete("a", "1")
    assert assets.create("a", None, {"n": 1}).version == "2"
    with pytest.raises(Conflict, match="a:1 was deleted"):
        assets.create("a", "1", {"n": 1})
    assert [row.version for row in assets.versions(deleted=True)] == ["1", "2"]
    with pytest.raises(NotFound):
        assets.delete("a", "1")


def test_labels_and_settings_of_several_at_once(assets, tmp_path):
    for n in range(4):
        assets.create("a", None, {"n": n})
    settings = Settings(assets._engine)

    def one(n: int) -> None:
        assets.label("a", str(n % 4 + 1), [f"l{n}"])
        settings.change("map", {f"k{n}": n})

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(one, range(40)))
    given = {label for row in assets.versions("a") for label in row.labels}
    assert len(given) == len(settings.get("map")) == 40


def test_kinds_do_not_meet(assets):
    assets.create("a", None, {})
    assert Assets(assets._engine, "data").versions() == []


@pytest.mark.parametrize(
    ("do", "error", "said"),
    [
        (lambda each: each.label("a", "7", ["x"]), NotFound, "environment a:7 not found"),
        (lambda each: each.delete("a", "7"), NotFound, "environment a:7 not found"),
        (lambda each: each.delete("z", "1"), NotFound, "environment z:1 not found"),
    ],
)
@pytest.mark.medium
def test_what_is_refused(assets, do, error: type[AllranksError], said: str):
    assets.create("a", None, {})
    with pytest.raises(error, match=said) as caught:
        do(assets)
    assert caught.value.hint
