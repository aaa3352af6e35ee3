"""Secrets: read by who has the key, and by nobody else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from allranks.errors import ServerError
from allranks.store.database import opened_database
from allranks.store.key_values import Settings
from allranks.store.secrets import Secrets

SECRET = {"access_key_id": "who", "secret_access_key": "hush-hush"}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Engine]:
    with opened_database(tmp_path / "db") as engine:
        yield engine


def test_kept_encrypted_and_forgotten(database: Engine, tmp_path: Path) -> None:
    secrets = Secrets(Settings(database), tmp_path / "key")
    assert (secrets.get("birds"), secrets.names()) == ({}, {})
    secrets.put("birds", SECRET)
    again = Secrets(Settings(database), tmp_path / "key")
    assert again.get("birds") == SECRET
    assert again.names() == {"birds": ["access_key_id", "secret_access_key"]}
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    for each in tmp_path.iterdir():
        assert b"hush-hush" not in each.read_bytes()
    again.put("birds", {})
    assert (again.get("birds"), again.names()) == ({}, {})


def test_another_key_is_a_sentence(database: Engine, tmp_path: Path) -> None:
    settings = Settings(database)
    Secrets(settings, tmp_path / "key").put("birds", SECRET)
    with pytest.raises(ServerError, match="cannot decrypt the credentials of 'birds'") as error:
        Secrets(settings, tmp_path / "other").get("birds")
    assert "enter the credentials again" in (error.value.hint or "")
