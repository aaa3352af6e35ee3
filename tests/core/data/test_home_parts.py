"""What of a home stays when it is cleared."""

from pathlib import Path

from allranks.core.data.home_parts import PARTS, kept, part_of
from allranks.settings import Home

FOLDERS = ("jobs", "blobs", "environments", "code", "nodes", "cache", "pinned", "models", "states")


def test_every_folder_of_a_home_has_its_part():
    home = Home(Path("/home"))
    assert {getattr(home, name).name for name in (*FOLDERS, "data", "mlflow", "engines")} == {
        *PARTS
    }
    assert part_of(home.database.name).what == "database"
    assert part_of(f"{home.database.name}-wal").what == "database"
    assert part_of(home.log.name).what == "server logs"
    assert part_of(home.token.name).what == "other"


def test_what_goes_and_what_stays_is_all_there_is():
    sizes = {"jobs": 10, "blobs": 20, "allranks.db": 3, "allranks.db-wal": 4, "x": 5, ".": 1}
    goes = [("blobs", 5), ("blobs", 15), ("jobs", 2)]
    found = kept(sizes, goes)
    told = [(each.part.what, each.size) for each in found]
    assert told == [("jobs", 8), ("database", 7), ("other", 6)]
    assert sum(size for _, size in told) + 22 == sum(sizes.values())
