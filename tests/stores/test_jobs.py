"""Jobs with data in stores, through the command line."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import obstore
import pytest

from allranks.agent.data.object_stores import open_store
from allranks.core.data.addresses import Account, Address, Store
from tests.stores.servers import ACCOUNT, KEY
from tests.support import Allranks, until

pytestmark = [pytest.mark.stores, pytest.mark.slow, pytest.mark.timeout(900)]
SECRET = "hush-hush-never-tell"


@pytest.fixture
def bucket(moto: int) -> Account:
    store = Store("s3", "bucket", endpoint=f"http://127.0.0.1:{moto}")
    return Account(store, {"access_key_id": "who", "secret_access_key": SECRET})


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    return f"jobs/{abs(hash(request.node.nodeid))}"


@pytest.fixture
def s3(allranks: Allranks, bucket: Account, prefix: str) -> str:
    """The URI of a datastore with credentials from the environment."""
    words = ["--type", "s3", "--bucket", "bucket", "--prefix", prefix]
    words += ["--endpoint", bucket.store.endpoint, "--credentials-from-env"]
    env = {"AWS_ACCESS_KEY_ID": "who", "AWS_SECRET_ACCESS_KEY": SECRET}
    done = allranks("datastore", "create", "birds", *words, env=env)
    assert done.returncode == 0, done.stderr
    return "azureml://datastores/birds/paths"


def put(account: Account, key: str, content: bytes) -> None:
    obstore.put(open_store(account, Address(account.store)), key, content)


def ran(allranks: Allranks, *words: object) -> str:
    done = allranks("run", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def newest(allranks: Allranks) -> str:
    return str(json.loads(allranks("job", "list", "--json").stdout)[0]["name"])


@pytest.mark.end_to_end
def test_from_data_to_a_model_to_the_next_job(
    allranks: Allranks, bucket: Account, prefix: str, s3: str, home: Path
) -> None:
    for number in range(3):
        put(bucket, f"{prefix}/train/part {number}.txt", f"line {number}\n".encode())
    made = allranks("data", "create", "digits", "--path", f"{s3}/train", "--label", "good")
    assert "digits:1 is created" in made.stderr
    command = 'cat "$AZURE_ML_INPUT_d"/*; R=$ALLRANKS_NODE_RANK; echo $R > "$AZURE_ML_OUTPUT_m"/$R'
    said = ran(
        allranks, "-n", 2, "-i", "d=azureml:digits@good", "-o", f"m={s3}/model",
        "--set", "outputs.m.name=birds-model", "--", "bash", "-c", command,
    )  # fmt: skip
    assert said.count("line 0\nline 1\nline 2\n") == 2
    job = newest(allranks)
    opened = open_store(bucket, Address(bucket.store))
    kept = {e["path"] for several in obstore.list(opened, f"{prefix}/model") for e in several}
    assert kept == {f"{prefix}/model/0", f"{prefix}/model/1"}
    asset = json.loads(allranks("data", "show", "birds-model", "--json").stdout)
    assert (asset["version"], asset["job"], asset["output"]) == ("1", job, "m")
    told = json.loads(allranks("job", "show", job, "--json").stdout)
    assert told["spec"]["inputs"]["d"]["path"] == "azureml:digits:1"
    for path in ("azureml:birds-model@latest", f"azureml://jobs/{job}/outputs/m/paths/"):
        look = 'cat "$AZURE_ML_INPUT_m"/*'
        assert ran(allranks, "-i", f"m={path}", "--", "bash", "-c", look) == "0\n1\n"
    done = allranks("job", "download", job, "--output-name", "m")
    assert done.returncode == 2
    assert (
        f"s3://bucket/{prefix}/model: the output m is not stored in the job's record" in done.stderr
    )
    events = allranks("job", "events", newest(allranks)).stdout
    assert "already in the node's cache" in events
    # The secret is in no file.
    for each in home.rglob("*"):
        assert not each.is_file() or SECRET.encode() not in each.read_bytes(), each
    assert SECRET not in allranks("datastore", "show", "birds", "--json").stdout


def test_modes(allranks: Allranks, bucket: Account, prefix: str, s3: str) -> None:
    put(bucket, f"{prefix}/a/f", b"content")
    command = (
        'cat "$AZURE_ML_INPUT_one" "$AZURE_ML_INPUT_own"/f; '
        'touch "$AZURE_ML_INPUT_own"/mine; echo " $AZURE_ML_INPUT_uri"'
    )
    said = ran(
        allranks, "-i", f"one={s3}/a/f", "-i", f"own=s3://bucket/{prefix}/a:download",
        "-i", f"uri={s3}/a:direct", "-o", f"o=s3://bucket/{prefix}/x", "--set",
        "outputs.o.mode=direct", "--", "bash", "-c", f'{command}; echo "$AZURE_ML_OUTPUT_o"',
    )  # fmt: skip
    uri = f"s3://bucket/{prefix}"
    assert said == f"contentcontent {uri}/a\n{uri}/x\n"


def test_archives_and_shares(allranks: Allranks, bucket: Account, prefix: str, s3: str) -> None:
    for number in range(4):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            entry = tarfile.TarInfo(f"sample {number}.txt")
            entry.size = 2
            tar.addfile(entry, io.BytesIO(b"%d\n" % number))
        put(bucket, f"{prefix}/shards/s-{number}.tar.gz", packed.getvalue())
    both = ["--set", "inputs.d.unpack=true", "--set", "inputs.d.sharded=true"]
    command = 'cd "$AZURE_ML_INPUT_d"; echo $ALLRANKS_NODE_RANK: */*'
    said = ran(allranks, "-n", 2, "-i", f"d={s3}/shards", *both, "--", "bash", "-c", command)
    assert sorted(said.splitlines()) == [
        "0: s-0/sample 0.txt s-2/sample 2.txt",
        "1: s-1/sample 1.txt s-3/sample 3.txt",
    ]


def test_outputs_are_uploaded_while_the_job_runs(
    allranks: Allranks, bucket: Account, prefix: str, s3: str, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    command = f'echo 1 > "$AZURE_ML_OUTPUT_m"/ckpt-1; until [ -e "{go}" ]; do sleep 0.05; done'
    done = allranks("run", "--detach", "-o", f"m={s3}/live", "--", "bash", "-c", command)
    assert done.returncode == 0, done.stderr
    opened = open_store(bucket, Address(bucket.store))

    def there() -> list[str]:
        found = [e["path"] for each in obstore.list(opened, f"{prefix}/live") for e in each]
        return [path.rpartition("/")[2] for path in found]

    until(lambda: there() == ["ckpt-1"], 30)
    assert "Running" in allranks("job", "list").stdout
    go.touch()
    assert allranks("job", "wait", newest(allranks)).returncode == 0


@pytest.fixture
def nowhere(allranks: Allranks, bucket: Account) -> str:
    """A datastore in a bucket that does not exist; see `method`."""
    where = ["--type", "s3", "--bucket", "nowhere", "--endpoint", bucket.store.endpoint]
    who = json.dumps({"access_key_id": "who", "secret_access_key": SECRET})
    made = allranks("datastore", "create", "nowhere", *where, "--credentials", "-", input=who)
    assert made.returncode == 0, made.stderr
    return "azureml://datastores/nowhere/paths/x"


def method(bucket: Account, word: str) -> list[str]:
    """A command that creates (PUT) or deletes (DELETE) the bucket of ``nowhere``."""
    text = "import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1], method=sys.argv[2]))"
    return [sys.executable, "-c", text, f"{bucket.store.endpoint}/nowhere", word]


@pytest.mark.parametrize("mode", ["rw_mount", "upload"])
def test_an_unreachable_output_fails_before_the_command_runs(
    allranks: Allranks, nowhere: str, tmp_path: Path, mode: str
) -> None:
    ran = tmp_path / "ran"
    words = ["-o", f"m={nowhere}", "--set", f"outputs.m.mode={mode}", "--", "touch", ran]
    done = allranks("run", *words)
    assert done.returncode == 1
    assert "error: s3://nowhere/x: bucket 'nowhere' not found" in done.stderr
    assert not ran.exists()


def test_outputs_that_cannot_be_uploaded_fail_the_job_and_stay_in_the_record(
    allranks: Allranks, bucket: Account, nowhere: str
) -> None:
    subprocess.run(method(bucket, "PUT"), check=True)
    remove = shlex.join(method(bucket, "DELETE"))
    command = f'echo 1 > "$AZURE_ML_OUTPUT_m"/x; {remove}'
    words = ["-o", f"m={nowhere}", "--set", "outputs.m.mode=upload", "--", "bash", "-c", command]
    done = allranks("run", *words)
    assert done.returncode == 1
    assert "error: s3://nowhere/x: bucket 'nowhere' not found" in done.stderr
    kept = json.loads(allranks("job", "show", newest(allranks), "--json").stdout)["folder"]
    assert Path(kept, "unbrought", "node-0", "m", "x").read_text() == "1\n"
    assert "unbrought/node-0" in done.stderr


@pytest.mark.parametrize("mode", ["rw_mount", "upload"])
def test_canceled_and_failed_jobs_upload_their_outputs(
    allranks: Allranks, bucket: Account, prefix: str, s3: str, tmp_path: Path, mode: str
) -> None:
    opened = open_store(bucket, Address(bucket.store))
    up = tmp_path / "up"
    mode_words = ["--set", f"outputs.m.mode={mode}"]
    command = f'echo 1 > "$AZURE_ML_OUTPUT_m"/ckpt; touch "{up}"; exec sleep 60'
    words = ["-o", f"m={s3}/canceled", *mode_words, "--", "bash", "-c", command]
    assert allranks("run", "--detach", *words).returncode == 0
    until(up.exists, 30)
    job = newest(allranks)
    allranks("job", "cancel", job)
    allranks("job", "wait", job)
    assert "Canceled" in allranks("job", "list").stdout
    assert bytes(obstore.get(opened, f"{prefix}/canceled/ckpt").bytes()) == b"1\n"
    command = 'echo 2 > "$AZURE_ML_OUTPUT_m"/ckpt; exit 7'
    words = ["-o", f"m={s3}/failed", *mode_words, "--", "bash", "-c", command]
    assert allranks("run", *words).returncode == 7
    assert bytes(obstore.get(opened, f"{prefix}/failed/ckpt").bytes()) == b"2\n"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("azureml:taken:1", "is a version of a data asset, which never changes"),
        ("https://host/folder", "is a web site, which accepts no uploads"),
    ],
)
def test_paths_that_cannot_be_outputs(shared: Allranks, path: str, said: str) -> None:
    shared("data", "create", "taken", "--version", "1", "--path", "s3://bucket/x")
    done = shared("run", "-o", f"m={path}", "--", "true")
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.startswith("error: -o m: ")


def test_azure_from_a_file(allranks: Allranks, azurite: int, prefix: str, code: Path) -> None:
    (code / "store.yml").write_text(
        "name: blobs\ntype: azure_blob\n"
        f"account_name: {ACCOUNT}\ncontainer_name: container\n"
        f"endpoint: http://127.0.0.1:{azurite}/{ACCOUNT}\n"
        f"credentials:\n  account_key: {KEY}\n"
    )
    done = allranks("datastore", "create", "-f", "store.yml")
    assert done.returncode == 0, done.stderr
    out = f"azureml://datastores/blobs/paths/{prefix}"
    ran(allranks, "-o", f"m={out}", "--", "bash", "-c", 'echo blob > "$AZURE_ML_OUTPUT_m"/b.txt')
    wasbs = f"wasbs://container@{ACCOUNT}.blob.core.windows.net/{prefix}/b.txt"
    look = 'cat "$AZURE_ML_INPUT_b"'
    assert ran(allranks, "-i", f"b={wasbs}", "--", "bash", "-c", look) == "blob\n"


def test_data_map(allranks: Allranks, code: Path) -> None:
    (code / "data").mkdir()
    (code / "data" / "f").write_text("mapped\n")
    allranks("data", "map", "s3://far-away/sets", str(code / "data"))
    assert ran(
        allranks, "-i", "d=s3://far-away/sets/f", "--", "bash", "-c", 'cat "$AZURE_ML_INPUT_d"'
    ) == ("mapped\n")
    assert "s3://far-away/sets" in allranks("data", "map").stdout


@pytest.mark.parametrize(
    ("path", "said", "hint"),
    [
        ("azureml:nothing@latest", "data asset nothing@latest not found", "data create nothing"),
        ("azureml:no/name:1", "is not a reference to a version", "azureml:NAME:VERSION"),
        ("azureml://datastores/zilch/paths/x", "no datastore named 'zilch'", "datastore create"),
        (
            "azureml://datastores/default/paths/../../x",
            "is outside of its datastore",
            "without `..`",
        ),
        ("ftp://host/x", "cannot read ftp", "s3://"),
        ("https://me:pass@host/x", "must not contain a password", "datastore create"),
        ("abfss://nobody/x", "has no container", "abfss://CONTAINER@ACCOUNT"),
    ],
)
def test_invalid_addresses(shared: Allranks, path: str, said: str, hint: str) -> None:
    done = shared("run", "-i", f"d={path}", "--", "true")
    assert done.returncode == 2
    assert said in done.stderr
    assert hint in done.stderr
    assert done.stderr.startswith("error: -i d: ")
