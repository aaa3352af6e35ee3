"""`kill -9` of the server in the middle of uploads, at moments drawn by seed: after each upload all
is there, once, and `gc` removes all that the kills left behind."""

import os
import random
import time
from pathlib import Path

import pytest

from allranks.http_client import Client
from allranks.sdk.connection import find_server
from allranks.sdk.upload.send import upload
from allranks.settings import Home
from allranks.store.files import same_data
from tests.proxy import Cutting
from tests.sdk.upload.test_upload import content
from tests.support import kill_server

KB, MB = 1 << 10, 1 << 20
# Bytes until the next kill: within a small request, a pack, a large file.
SPANS = (300, 20 * KB, 300 * KB, 2 * MB)


class Killing(Cutting):
    """Kills the server of a home a few times, after random amounts of data; it is started again by
    the next who connects."""

    def __init__(self, home: Home, chance: random.Random) -> None:
        self._home, self._left = home, chance.randrange(1, 5)
        self.kills = 0
        super().__init__("http://127.0.0.1:0", chance, chance.choice(SPANS))

    def connect(self) -> Client:
        with find_server.connect() as server:
            self._port = int(server.url.rpartition(":")[2])
        return Client(self.url, server.token)

    def _is_here(self, size: int) -> bool:
        if self._left and super()._is_here(size):
            self._left -= 1
            self._most = self._chance.choice(SPANS)
            if find_server.look(self._home).alive:
                kill_server(self._home.root)
                self.kills += 1
            return True
        return False


@pytest.mark.slow
def test_killed_servers_lose_and_repeat_nothing(
    home: Path, tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, kills = pytestconfig.getoption("first"), 0
    for seed in range(first, first + pytestconfig.getoption("rounds") // 3):
        # In every other round the large file is sent while it is read.
        monkeypatch.setattr(same_data, "SAMPLED", (MB, 32 * MB)[seed % 2])
        kills += kill_at_random(Home(home), tmp_path / str(seed), seed)
    print(f"{kills} kills")
    assert kills


def kill_at_random(home: Home, folder: Path, seed: int) -> int:
    """The number of kills."""
    chance = random.Random(seed)
    folder.mkdir()
    for number in range(chance.randrange(1, 400)):
        (folder / str(number)).write_bytes(chance.randbytes(chance.randrange(20 * KB)))
    (folder / "large").write_bytes(chance.randbytes(chance.randrange(MB, 4 * MB)))
    total = sum(path.stat().st_size for path in folder.iterdir())
    find_server.connect().close()
    with Killing(home, chance) as proxy:
        made = upload(proxy.connect, folder)
    arrived = home.data / made.path.partition("/paths/")[2]
    assert content(arrived) == content(folder), seed
    assert made.sent <= total, seed
    with find_server.connect() as client:
        day = time.time() - 86400
        for path in [*home.blobs.rglob("*"), *home.uploads.glob("*")]:
            os.utime(path, (day, day))
        assert not client.json("POST", "/api/v1/gc", {"older_than_seconds": 0})["failed"]
    assert not [path for path in home.blobs.rglob("*") if path.is_file()], seed
    assert not [*home.uploads.glob("*")], seed
    return proxy.kills
