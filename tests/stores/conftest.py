"""One S3 and one Azurite for all tests; each test has its own place in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.agent.data import cache
from allranks.plan.data.addresses import Account, Store
from tests.stores import servers
from tests.stores.servers import Site, Wire
from tests.stores.whole import hold_whole


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


@pytest.fixture(autouse=True)
def never_corrupt(tmp_path: Path) -> Iterator[None]:
    """Whatever befell it, no cache of a test has an entry that is not what it says."""
    yield
    for folder in {manifest.parents[1] for manifest in tmp_path.rglob(f"*/{cache.MANIFEST}")}:
        hold_whole(folder)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    found = Site(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", f"{found.certificate}.crt")
    yield found
    found.close()
