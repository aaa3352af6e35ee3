"""One S3 and one Azurite for all tests; each test has its own place in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.plan.stores import Account, Store
from tests.stores import servers
from tests.stores.servers import Site, Wire


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with servers.s3(tmp_path_factory.mktemp("s3")) as port:
        yield port


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with servers.azure(tmp_path_factory.mktemp("azure")) as port:
        yield port


@pytest.fixture
def wire(moto: int) -> Iterator[Wire]:
    found = Wire(moto)
    yield found
    found.close()


@pytest.fixture
def account(wire: Wire) -> Account:
    """Of the bucket, by the wire."""
    store = Store("s3", "bucket", endpoint=f"http://127.0.0.1:{wire.port}")
    return Account(store, {"access_key_id": "who", "secret_access_key": "hush-hush"})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    found = Site(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", f"{found.certificate}.crt")
    yield found
    found.close()
