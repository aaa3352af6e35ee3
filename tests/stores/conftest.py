"""One S3 and one Azurite for all tests; each test has its own prefix in them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.agent.data import cache
from allranks.core.data.addresses import Account, Store
from tests.stores import servers
from tests.stores.servers import Site, Wire
from tests.stores.whole import check_cache


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with servers.s3(tmp_path_factory.mktemp("s3")) as port:
        yield port


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with servers.azure(tmp_path_factory.mktemp("azure")) as port:
        yield port


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    return hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]


@pytest.fixture
def wire(moto: int) -> Iterator[Wire]:
    proxy = Wire(moto)
    yield proxy
    proxy.close()


@pytest.fixture
def account(wire: Wire) -> Account:
    """The account of the bucket, through the proxy."""
    store = Store("s3", "bucket", endpoint=f"http://127.0.0.1:{wire.port}")
    return Account(store, {"access_key_id": "who", "secret_access_key": "hush-hush"})


@pytest.fixture(autouse=True)
def never_corrupt(tmp_path: Path) -> Iterator[None]:
    """After every test, the caches it made match their manifests."""
    yield
    made = [path for path in tmp_path.rglob(f"*/{cache.MANIFEST}") if "uploads" not in path.parts]
    for folder in {manifest.parents[1] for manifest in made}:
        check_cache(folder)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    server = Site(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", f"{server.certificate}.crt")
    yield server
    server.close()
