"""`allranks model …` with a real server and real jobs."""

import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.support import Allranks, answer, commit_all, until

# Real servers and processes, about half a second a test.
pytestmark = pytest.mark.slow


@pytest.fixture
def job(shared: Allranks, code: Path) -> str:
    """A completed job with a model in ./outputs and in its output `o`."""
    script = "mkdir outputs/deep; echo w > outputs/model.pt; echo d > 'outputs/deep/a b'; "
    script += 'echo o > "$AZURE_ML_OUTPUT_o/best.pth"'
    return trained(shared, script, "-o", "o")


def trained(allranks: Allranks, script: str, *words: object) -> str:
    done = allranks("run", *words, "--", "bash", "-c", script)
    assert done.returncode == 0, done.stderr
    return answer(allranks, "job", "list", "--limit", 1)[0]["name"]


def test_from_a_job_to_the_next_one(shared, code, job):
    done = shared("model", "register", "first", "--job", job, "--path", "outputs/model.pt")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("first:1 is created: 1 file, 2 bytes\nuse it: allranks run ")
    for more in ([], ["--version", "1"]):
        again = shared(
            "model", "register", "first", "--job", job, "--path", "outputs/model.pt", *more
        )
        assert again.stderr == "first:1 already exists: 1 file, 2 bytes\n"
    made = answer(shared, "model", "show", "first")
    assert (made["version"], made["type"], made["job"]) == ("1", "custom_model", job)
    assert made["flavors"] == {"pytorch": {}}
    assert [(each["path"], each["size"]) for each in made["files"]] == [("model.pt", 2)]
    lineage = made["lineage"]
    assert (lineage["attempt"], lineage["status"]) == (1, "Completed")
    assert lineage["environment"] == {"name": "current"}
    shown = shared("model", "show", "first:1").stdout
    assert "\nlineage:\n" in shown
    assert "\n- path: model.pt\n" in shown
    done = shared("model", "list", "frist")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no model named 'frist'" in done.stderr
    assert "did you mean `first`?" in done.stderr
    listed = shared("model", "list").stdout
    assert any(
        line.split() == ["first", "1", "pytorch", "2", "bytes", job] for line in listed.splitlines()
    )
    for words in (["-i", "m=azureml:first:1"], ["-i", "m=azureml:first@latest:download"]):
        done = shared("run", *words, "--", "cat", "${{inputs.m}}")
        assert (done.stdout, done.returncode) == ("w\n", 0), done.stderr


def test_a_job_that_writes_to_a_model_or_to_data_damages_no_other_in_silence(shared, code):
    (code / "birds").mkdir()
    (code / "birds" / "m.pt").write_text("w")
    (code / "birds" / "names.txt").touch()
    assert shared("model", "create", "hurt", "--path", "birds").returncode == 0
    assert shared("data", "upload", "birds", "--name", "hurt-data").returncode == 0
    uses = ["-i", "m=azureml:hurt:1", "-i", "d=azureml:hurt-data:1"]
    script = 'for i in "$m" "$d"; do chmod -R u+w "$i"; echo v > "$i/m.pt"; done'
    values = ["--env", "m=${{inputs.m}}", "--env", "d=${{inputs.d}}"]
    done = shared("run", *uses, *values, "--", "bash", "-c", script)
    assert done.returncode == 0, done.stderr
    for use, sentence in ((uses[:2], "the model was changed"), (uses[2:], "this data was changed")):
        done = shared("run", *use, "--", "true")
        assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr
        assert re.search(r"'m.pt', on \d+-\d+-\d+ \d+:\d+:\d+ UTC", done.stderr)
    done = shared("data", "download", "hurt-data", "-p", "got")
    assert (done.returncode, (code / "got").exists()) == (2, False), done.stderr
    assert "this data was changed after its upload: 'm.pt'" in done.stderr
    assert shared("model", "create", "again", "--path", "birds").returncode == 0
    assert shared("data", "upload", "birds").returncode == 0
    done = shared("run", *uses, *values, "--", "bash", "-c", 'cat "$m/m.pt" "$d/m.pt"')
    assert done.stdout == "ww\n", done.stderr


def test_a_restart_uses_the_pinned_version_and_not_data_of_that_name(shared, code, job):
    answer(shared, "model", "register", "pinned", "--job", job, "--path", "outputs/model.pt")
    words = ("--name", "pinned", "-i", "m=azureml:pinned", "--", "cat", "${{inputs.m}}")
    assert shared("run", *words).stdout == "w\n"
    answer(shared, "model", "register", "pinned", "--job", job, "--path", "outputs.o/best.pth")
    assert shared("data", "create", "pinned", "--path", ".").returncode == 0
    again = shared("job", "restart", "pinned").stdout.strip()
    assert shared("job", "stream", again).stdout == "w\n"


def test_a_folder_from_yaml_and_as_an_input_of_yaml(shared, code, job):
    (code / "model.yml").write_text(
        f"""\
$schema: https://azuremlschemas.azureedge.net/latest/model.schema.json
name: of-yaml
version: 1.10
description: birds
type: custom_model
tags: {{kind: small}}
properties: {{accuracy: 0.5}}
flavors: {{python_function: {{loader_module: birds}}}}
path: azureml://jobs/{job}/outputs/artifacts/paths/outputs
"""
    )
    made = answer(shared, "model", "create", "-f", "model.yml", "--label", "good")
    assert (made["version"], made["labels"], made["files"]) == ("1.10", ["good"], 2)
    assert made["tags"] == {"kind": "small"}
    assert made["flavors"] == {"python_function": {"loader_module": "birds"}}
    (code / "job.yml").write_text(
        "command: cat ${{inputs.m}}/model.pt '${{inputs.m}}/deep/a b'\n"
        "inputs: {m: {type: custom_model, path: 'azureml:of-yaml@good'}}\n"
    )
    assert shared("job", "validate", "-f", "job.yml").returncode == 0
    done = shared("job", "create", "-f", "job.yml", "--stream")
    assert (done.stdout, done.returncode) == ("w\nd\n", 0), done.stderr
    after = answer(shared, "job", "list", "--limit", 1)[0]["name"]
    spec = answer(shared, "job", "show", after)["spec"]
    assert spec["inputs"]["m"] == {"type": "custom_model", "path": "azureml:of-yaml:1.10"}
    again = shared("job", "restart", after).stdout.strip()
    assert shared("job", "stream", again).stdout == "w\nd\n"


def test_lineage_has_code_environment_and_inputs(shared, code, tmp_path):
    (code / "train.py").write_text("open('outputs/m.pt', 'w').write('x')")
    commit_all(code)
    commit = subprocess.check_output(["git", "-C", code, "rev-parse", "HEAD"], text=True)
    (tmp_path / "photos").mkdir()
    assert shared("data", "create", "photos", "--path", tmp_path / "photos").returncode == 0
    spec = {
        "command": "python train.py",
        "experiment_name": "nests",
        "inputs": {
            "photos": {"path": "azureml:photos@latest"},
            "raw": {"path": f"{tmp_path}/photos"},
            "lr": 0.1,
        },
    }
    (tmp_path / "job.yml").write_text(json.dumps({**spec, "code": str(code)}))
    done = shared("job", "create", "-f", tmp_path / "job.yml", "--stream")
    assert done.returncode == 0, done.stderr
    job = answer(shared, "job", "list", "--limit", 1)[0]["name"]
    lineage = answer(shared, "model", "register", "traced", "-j", job, "--path", "outputs/m.pt")[
        "lineage"
    ]
    assert (lineage["experiment"], lineage["command"]) == ("nests", "python train.py")
    assert (lineage["commit"], lineage["uncommitted_changes"]) == (commit.strip(), "False")
    assert len(lineage["code"]) == 64
    raw = f"{tmp_path}/photos"
    assert lineage["inputs"] == {"photos": "azureml:photos:1", "raw": raw, "lr": 0.1}


def test_two_jobs_register_the_same_version_at_once(shared, code):
    jobs = [trained(shared, f"echo {n} > outputs/model.pt") for n in range(3)]
    words = ("register", "raced", "--version", "7", "--path", "outputs/model.pt", "--job")
    with ThreadPoolExecutor(3) as pool:
        done = [*pool.map(lambda job: shared("model", *words, job), jobs)]
    assert sorted(each.returncode for each in done) == [0, 2, 2]
    (won,) = [job for job, each in zip(jobs, done, strict=True) if each.returncode == 0]
    for each in done:
        if each.returncode:
            assert "error: the model raced:7 already exists with other content" in each.stderr
            assert "hint: versions never change" in each.stderr
    assert [each["job"] for each in answer(shared, "model", "list", "raced")] == [won]
    # Registering the same files again is no error.
    assert shared("model", *words, won).returncode == 0
    words = ("register", "raced", "--path", "outputs/model.pt", "--job")
    with ThreadPoolExecutor(3) as pool:
        done = [*pool.map(lambda job: shared("model", *words, job), jobs)]
    assert [each.returncode for each in done] == [0, 0, 0]
    versions = {each["version"]: each["job"] for each in answer(shared, "model", "list", "raced")}
    assert {*versions} == {"7", "8", "9", "10"} or {*versions} == {"7", "8", "9"}
    assert {*versions.values()} == {*jobs}


def test_local_files_are_uploaded(shared, code):
    (code / "mine").mkdir()
    (code / "mine" / "model.onnx").write_bytes(b"graph")
    (code / "mine" / "model.onnx.data").write_bytes(os.urandom(3 << 20))
    (code / "mine" / "other").write_bytes(b"")
    made = answer(shared, "model", "create", "sent", "--path", "mine/model.onnx", "--tag", "a=b")
    assert (made["files"], made["flavors"], made["tags"]) == (2, {"onnx": {}}, {"a": "b"})
    assert "lineage" not in made
    again = answer(shared, "model", "create", "sent", "--path", "mine/model.onnx", "--tag", "a=b")
    assert again == made | {"created": False}
    made = answer(shared, "model", "create", "sent", "--path", "mine", "--flavor", "onnxruntime")
    assert (made["version"], made["files"]) == ("2", 3)
    assert made["flavors"] == {"onnxruntime": {}}
    done = shared("run", "-i", "m=azureml:sent:1", "--", "ls", "${{inputs.m}}")
    assert done.stdout.split() == ["model.onnx", "model.onnx.data"]
    (code / "m").mkdir()
    (code / "m" / "MLmodel").write_text("flavors:\n  sklearn:\n    code: null\nrun_id: a\n")
    flowing = answer(shared, "model", "create", "flowing", "--path", "m")
    assert (flowing["type"], flowing["flavors"]) == ("mlflow_model", {"sklearn": {}})


def test_download_verifies_files_and_resumes(shared, shared_home, code):
    script = "mkdir -p outputs/m/sub; echo w > outputs/m/sub/model.pt; "
    job = trained(shared, script + "head -c 3000000 /dev/urandom > outputs/m/big")
    made = answer(shared, "model", "register", "checked", "--job", job, "--path", "outputs/m")
    fetched = answer(shared, "model", "download", "checked", "-p", "got")
    assert (fetched["fetched"], fetched["there"]) == (2, 0)
    big = code / "got" / "checked" / "big"
    whole = big.read_bytes()
    times = [path.stat().st_mtime_ns for path in (big.parent / "sub", big.parent / "sub/model.pt")]
    assert times[0] == times[1]
    assert answer(shared, "model", "download", "checked:1", "-p", "got")["there"] == 2
    # A file of the same size and age with other content is fetched again.
    stat = big.stat()
    big.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    os.utime(big, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    assert answer(shared, "model", "download", "checked@latest", "-p", "got")["fetched"] == 1
    assert big.read_bytes() == whole
    # An interrupted download resumes.
    big.rename(f"{big}.part")
    os.truncate(f"{big}.part", 2_000_000)
    assert (
        answer(shared, "model", "download", "checked", "-p", "got")["bytes_received"] == 1_000_000
    )
    assert big.read_bytes() == whole
    # The server's file is damaged.
    kept = shared_home / "models" / made["digest"] / "files" / "big"
    kept.chmod(0o600)
    kept.write_bytes(whole[:-1])
    done = shared("model", "download", "checked", "-p", "new")
    assert done.returncode == 2
    assert "big: it is damaged: the server's file differs from what was registered" in done.stderr
    assert not (code / "new" / "checked" / "big").exists()
    kept.unlink()
    done = shared("model", "download", "checked", "-p", "new")
    assert "error: big: a file of checked:1 is missing on the server" in done.stderr
    # As the hint says.
    answer(shared, "model", "register", "checked", "--job", job, "--path", "outputs/m")
    assert answer(shared, "model", "download", "checked:1", "-p", "new")["files"]
    assert (code / "new" / "checked" / "big").read_bytes() == whole


def test_labels_and_deletion(shared, code, job):
    for path in ("outputs/model.pt", "outputs.o/best.pth"):
        answer(
            shared, "model", "register", "named", "--job", job, "--path", path, "--alias", "good"
        )
    assert [each["labels"] for each in answer(shared, "model", "list", "named")] == [[], ["good"]]
    assert shared("model", "label", "named:1", "best", "good").returncode == 0
    assert answer(shared, "model", "show", "named@good")["version"] == "1"
    done = shared("model", "label", "named:1", "latest")
    assert (done.returncode, "'latest' is a reserved label" in done.stderr) == (2, True)
    assert shared("model", "delete", "--yes", "named").returncode == 2
    done = shared("model", "delete", "--yes", "named:1")
    assert (
        done.stderr
        == "named:1 is deleted; `allranks gc` removes files that no other version uses\n"
    )
    done = shared("run", "-i", "m=azureml:named:1", "--", "true")
    assert done.returncode == 2
    assert "-i m: model named:1 not found" in done.stderr
    assert "hint: its versions: 2" in done.stderr
    done = shared("model", "show", "nam")
    assert "hint: did you mean `named`?" in done.stderr


@pytest.mark.parametrize("path", ["outputs/token", "outputs"])
def test_a_job_that_replaces_its_folder_by_a_link(shared, shared_home, job, path, tmp_path):
    """In a container it sees the record, but not what the link leads to here."""
    record = shared_home / "jobs" / job
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs/token").write_text("secret")
    (record / "artifacts").rename(tmp_path / "away")
    (record / "artifacts").symlink_to(tmp_path)
    done = shared("model", "register", "linked", "--job", job, "--path", path)
    assert done.returncode == 2, done.stdout
    assert "'artifacts' is a link that leads outside" in done.stderr


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["x", "--path", "nosuch"], "not found", "--job JOB --path outputs/"),
        (["x"], "--path: is required", "--job JOB"),
        (["x", "--path", "s3://b/m"], "cannot register a model from", "--job JOB"),
        (["x", "--path", "p", "--tag", "a"], "'a' is not KEY=VALUE", "--tag"),
        (["a/b", "--path", "p"], "NAME: must have 1 to 255", "used in paths"),
        (["x", "--path", "odd"], "'pipe' is not a regular file", "regular files"),
        (["x", "--job", "nosuch", "--path", "outputs"], "job 'nosuch' not found", "job list"),
        (["x", "--path", "p", "--type", "uri_file"], "type: ", "custom_model"),
        (["x", "--path", "p", "--label", "3"], "'3' is a version, not a label", "NAME:3"),
    ],
)
def test_wrong_use(shared, code, words, said, hint):
    (code / "odd").mkdir()
    (code / "p").write_text("x")
    os.mkfifo(code / "odd" / "pipe")
    done = shared("model", "register", *words)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert hint in done.stderr.partition("hint: ")[2]
    assert shared("model", "show", "x").returncode == 2


@pytest.mark.parametrize("stdin", [False, True])
def test_an_unknown_key_is_reported_with_its_line(shared, code, stdin):
    text = "name: x\npath: .\nflavor: onnx\n"
    (code / "model.yml").write_text(text)
    done = shared("model", "create", "-f", "-" if stdin else "model.yml", input=text)
    assert f"{'stdin' if stdin else 'model.yml'}:3: flavor: " in done.stderr
    assert "did you mean `flavors`?" in done.stderr


def test_a_model_outlives_its_job_and_gc_removes_its_files_once_it_is_deleted(allranks, home, code):
    job = trained(allranks, "echo w > outputs/model.pt")
    made = answer(allranks, "model", "register", "kept", "--job", job, "--path", "outputs/model.pt")
    (home / "jobs" / job / "artifacts" / "outputs" / "model.pt").unlink()
    assert allranks("gc", "--yes", "--older-than", "0h").returncode == 0
    done = allranks("run", "-i", "m=azureml:kept", "--", "cat", "${{inputs.m}}")
    assert done.stdout == "w\n", done.stderr
    assert allranks("model", "delete", "--yes", "kept:1").returncode == 0
    (item,) = answer(allranks, "gc", "--yes")["items"]
    assert (item["kind"], item["name"]) == ("models", made["digest"])
    assert [*(home / "models").iterdir()] == []


def test_a_killed_server_leaves_no_partial_model(allranks, home, code):
    """However far it was: the version is not there, or it is whole."""
    (code / "big").mkdir()
    for n in range(400):
        (code / "big" / str(n)).write_bytes(os.urandom(20_000))
    assert allranks("model", "list").returncode == 0
    pid = answer(allranks, "server", "status")["pid"]
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(allranks, "model", "create", "half", "--path", "big")
        until(lambda: [*home.glob("models/.coming-*/files/*")])
        psutil.Process(pid).kill()
        done = sending.result()
    assert done.returncode == 2
    assert answer(allranks, "model", "list") == []
    assert allranks("model", "show", "half").returncode == 2
    for path in [*home.glob("models/**/*"), *home.glob("models/.*")]:
        os.utime(path, (1, 1))
    found = answer(allranks, "gc", "--yes")["items"]
    assert "unfinished models" in {each["kind"] for each in found}
    assert [*(home / "models").iterdir()] == []
    assert answer(allranks, "model", "create", "half", "--path", "big")["files"] == 400


@pytest.mark.parametrize(
    "words",
    [
        ("model", "show", ""),
        ("model", "download", ""),
        ("model", "delete", "--yes", "mm:a/b"),
        ("model", "show", ".."),
        ("data", "show", ""),
        ("environment", "show", ""),
        ("datastore", "show", ""),
        ("compute", "show", ""),
        ("model", "create", "mm", "--path", ""),
    ],
)
def test_empty_and_unsafe_names(shared, words):
    done = shared(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr
