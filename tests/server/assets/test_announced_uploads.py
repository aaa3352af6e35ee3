"""Uploads that are announced, and those that are removed meanwhile."""

import threading
from pathlib import Path

import pytest

from allranks.errors import Conflict
from allranks.server.assets import announced_uploads
from allranks.server.assets.announced_uploads import AnnouncedUploads
from allranks.store.database import opened_database
from allranks.store.key_values import Settings


def test_an_upload_is_announced_or_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened_database(tmp_path / "db") as database:
        uploads = AnnouncedUploads(Settings(database))
        assert uploads.begin_removal("a")
        with monkeypatch.context() as patch:
            patch.setattr(announced_uploads, "_PATIENCE", 0.0)
            with pytest.raises(Conflict, match="is removing an older copy"):
                uploads.announce("a")
        uploads.announce("b")
        waiting = threading.Thread(target=uploads.announce, args=["a"])
        waiting.start()
        assert not uploads.is_announced("a")
        uploads.end_removal("a")
        waiting.join()
        # It holds after a restart, and is forgotten with time.
        again = AnnouncedUploads(Settings(database))
        assert not again.begin_removal("a")
        monkeypatch.setattr(announced_uploads, "HOLDS", 0.0)
        assert again.begin_removal("b")
        again.announce("a")
        assert Settings(database).get("datastores.announced").keys() == {"a"}
