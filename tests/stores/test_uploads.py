"""Uploads of local data to object stores, and their way back, through the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import obstore
import pytest

from allranks.agent.data.object_stores import open_store
from allranks.core.data.addresses import Account, Address, Store
from tests.stores.servers import Wire
from tests.support import Allranks

pytestmark = [pytest.mark.stores, pytest.mark.slow, pytest.mark.timeout(900)]

WHO = {"AWS_ACCESS_KEY_ID": "who", "AWS_SECRET_ACCESS_KEY": "hush-hush"}


@pytest.fixture
def objects(moto: int, place: str) -> Any:
    """The objects of this test's part of the bucket, by name."""
    store = Store("s3", "bucket", endpoint=f"http://127.0.0.1:{moto}")
    opened = open_store(
        Account(store, {"access_key_id": "who", "secret_access_key": "hush-hush"}), Address(store)
    )

    def read() -> dict[str, bytes]:
        found = [each["path"] for some in obstore.list(opened, place) for each in some]
        return {
            path[len(place) + 1 :]: bytes(obstore.get(opened, path).bytes())
            for path in sorted(found)
        }

    return read


@pytest.fixture
def birds(allranks: Allranks, wire: Wire, place: str) -> Wire:
    """The wire to a datastore that only the server has credentials for."""
    words = ["--type", "s3", "--bucket", "bucket", "--prefix", place, "--credentials-from-env"]
    where = f"http://127.0.0.1:{wire.port}"
    made = allranks("datastore", "create", "birds", *words, "--endpoint", where, env=WHO)
    assert made.returncode == 0, made.stderr
    return wire


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "a").write_text("1\n")
    (folder / "deep" / "large").write_bytes(bytes(range(256)) * (9 << 12))
    (folder / "link").symlink_to("deep/large")
    return folder


def answer(allranks: Allranks, *words: object, env: Mapping[str, str] | None = None) -> Any:
    done = allranks(*words, "--json", env=dict(env or {}))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("env", [{}, WHO], ids=["through the server", "straight"])
def test_an_upload_goes_to_the_default_datastore_and_jobs_read_it(
    env: Mapping[str, str],
    allranks: Allranks,
    birds: Wire,
    objects: Any,
    data: Path,
    home: Path,
    place: str,
) -> None:
    answer(allranks, "datastore", "set-default", "birds")
    done = allranks("data", "upload", data, "--name", "set", env=dict(env))
    assert done.returncode == 0, done.stderr
    assert ("goes through the server" in done.stderr) == (not env)
    made = answer(allranks, "data", "show", "set")
    head = "azureml://datastores/birds/paths/"
    assert made["path"].startswith(f"{head}allranks-uploads/")
    at = made["path"].removeprefix(head)
    whole = (data / "deep" / "large").read_bytes()
    there = objects()
    assert there.pop(f"{at.rpartition('/')[0]}.json")
    assert there == {f"{at}/a": b"1\n", f"{at}/deep/large": whole, f"{at}/link": whole}
    assert bool([*home.glob("blobs/??/*")]) == (not env)
    again = answer(allranks, "data", "upload", data, "--name", "set", env=env)
    assert not again["created"]
    show = 'cat "$AZURE_ML_INPUT_d"/a; cmp "$AZURE_ML_INPUT_d"/deep/large ' + f"'{data}/link'"
    ran = allranks("run", "-i", "d=azureml:set", "--", "bash", "-c", show)
    assert (ran.returncode, ran.stdout) == (0, "1\n"), ran.stderr
    if env:  # so only the client's own open it
        words = ("--type", "s3", "--bucket", "bucket", "--prefix", place)
        where = ("--endpoint", f"http://127.0.0.1:{birds.port}")
        given = {"input": json.dumps({"access_key_id": "x", "secret_access_key": "x"})}
        create = ("datastore", "create", "birds", "--replace", *words, *where, "--credentials", "-")
        assert allranks(*create, **given).returncode == 0
    got = answer(allranks, "data", "download", "set", "-p", data.parent / "got", env=env)
    assert len(got["files"]) == 3
    assert (data.parent / "got/set/deep/large").read_bytes() == whole
    assert (data.parent / "got/set/a").read_text() == "1\n"
    (data / "a").write_text("2\n")
    other = answer(allranks, "data", "upload", data, "--name", "set", "--datastore", "default")
    assert other["path"].startswith("azureml://datastores/default/paths/uploads/")


@pytest.mark.parametrize("env", [{}, WHO], ids=["through the server", "straight"])
def test_a_file(
    env: Mapping[str, str], allranks: Allranks, birds: Wire, objects: Any, data: Path
) -> None:
    words = ("data", "upload", data / "a", "--name", "one", "--datastore", "birds")
    made = answer(allranks, *words, env=env)
    assert made["type"] == "uri_file"
    at = made["path"].removeprefix("azureml://datastores/birds/paths/")
    assert objects()[at] == b"1\n"
    assert allranks("data", "download", "one", "-p", data.parent / "got").returncode == 0
    assert (data.parent / "got/one/a").read_text() == "1\n"
    ran = allranks("run", "-i", "d=azureml:one", "--", "bash", "-c", 'cat "$AZURE_ML_INPUT_d"')
    assert (ran.returncode, ran.stdout) == (0, "1\n"), ran.stderr


def test_credentials_that_the_store_refuses_leave_it_to_the_server(
    allranks: Allranks, birds: Wire, data: Path, moto: int
) -> None:
    nowhere = ["--type", "s3", "--bucket", "nowhere", "--endpoint", f"http://127.0.0.1:{moto}"]
    answer(allranks, "datastore", "create", "nowhere", *nowhere, "--credentials-from-env", env=WHO)
    done = allranks("data", "upload", data, "--datastore", "nowhere", env=WHO)
    assert done.returncode == 2
    assert "bucket 'nowhere' not found: it goes through the server" in done.stderr
    assert "hint: check the bucket's name and the endpoint" in done.stderr


def test_the_default_datastore(allranks: Allranks, birds: Wire) -> None:
    rows = answer(allranks, "datastore", "list")
    assert [each["name"] for each in rows if each["default"]] == ["default"]
    chosen = answer(allranks, "datastore", "set-default", "birds")
    assert chosen["default"]
    assert answer(allranks, "datastore", "show", "workspaceblobstore")["name"] == "birds"
    refused = allranks("datastore", "delete", "--yes", "birds")
    assert refused.returncode == 2
    assert "set-default default" in refused.stderr
    output = "azureml://datastores/${{default_datastore}}/paths/out"
    ran = allranks(
        "run", "-o", f"o={output}", "--", "bash", "-c", 'echo 1 > "$AZURE_ML_OUTPUT_o"/x'
    )
    assert ran.returncode == 0, ran.stderr
    job = json.loads(allranks("job", "list", "--json").stdout)[0]["name"]
    assert answer(allranks, "job", "show", job)["outputs"]["o"].startswith("s3://bucket/")
    # What has a name goes on to mean the same.
    own = "azureml://datastores/workspaceblobstore/paths/x"
    pinned = own.replace("workspaceblobstore", "birds")
    assert answer(allranks, "data", "create", "mine", "--path", own)["path"] == pinned
    echo = ("--", "bash", "-c", 'echo 1 > "$AZURE_ML_OUTPUT_o"/x')
    assert allranks("run", "--set", "outputs.o.name=made", "-o", f"o={own}", *echo).returncode == 0
    assert answer(allranks, "data", "show", "made")["path"] == pinned
    answer(allranks, "datastore", "set-default", "workspaceblobstore")
    answer(allranks, "datastore", "set-default", "default")
    assert answer(allranks, "datastore", "show", "workspaceblobstore")["name"] == "default"
    site = ("--type", "https", "--url", "https://127.0.0.1/x")
    answer(allranks, "datastore", "create", "site", *site)
    refused = allranks("datastore", "set-default", "site")
    assert "nothing can be written" in refused.stderr
    assert allranks("data", "upload", "x", "--datastore", "site").returncode == 2
