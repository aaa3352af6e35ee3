"""Inputs: what other jobs left, and `file:`, from YAML and from the command line."""

import json
import os
import re

import pytest

# Real servers and processes, about half a second a test.
pytestmark = pytest.mark.slow

FOLLOWING = """\
command: cat ${{inputs.a}}
inputs:
  a:
    type: uri_file
    path: azureml://jobs/%s/outputs/%s/paths/%s
"""


@pytest.fixture
def first(shared, code):
    """A completed job with `word` in its output `o`."""
    script = 'echo hello > "$AZURE_ML_OUTPUT_o/word"'
    done = shared("run", "-o", "o", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    return json.loads(shared("job", "list", "--limit", "1", "--json").stdout)[0]["name"]


@pytest.mark.end_to_end
def test_what_a_job_left_from_yaml_and_the_command_line(shared, code, first):
    (code / "job.yml").write_text(FOLLOWING % (first, "o", "word"))
    assert shared("job", "validate", "-f", "job.yml").returncode == 0
    done = shared("job", "create", "-f", "job.yml", "--stream")
    assert (done.stdout, done.returncode) == ("hello\n", 0)
    uri = f"azureml://jobs/{first}/outputs/o/paths/"
    for mode in ("", ":download"):
        done = shared("run", "-i", f"a={uri}{mode}", "--", "cat", "${{inputs.a}}/word")
        assert (done.stdout, done.returncode) == ("hello\n", 0)


@pytest.mark.parametrize(
    ("job", "output", "path", "message", "hint"),
    [
        ("nosuch", "o", "", "there is no job named 'nosuch'", "allranks job list"),
        (None, "p", "", "has no output 'p'", "its outputs: `o`"),
        (None, "o", "wrod", "left no ", "it left named-outputs/o/word"),
        (None, "o", "../../x", "is not the address", "without `..`"),
    ],
)
def test_what_a_job_did_not_leave(shared, code, first, job, output, path, message, hint):
    (code / "job.yml").write_text(FOLLOWING % (job or first, output, path))
    done = shared("job", "create", "-f", "job.yml")
    assert done.returncode == 2
    assert "job.yml:5: inputs.a.path: " in done.stderr
    assert message in done.stderr
    assert hint in done.stderr.partition("hint: ")[2]


def test_a_job_that_is_still_running(shared, code):
    made = shared("run", "-o", "o", "--detach", "--json", "--", "sleep", "60").stdout
    name = json.loads(made)["name"]
    (code / "job.yml").write_text(FOLLOWING % (name, "o", ""))
    done = shared("job", "create", "-f", "job.yml")
    shared("job", "cancel", name)
    assert done.returncode == 2
    assert f"hint: wait for it: allranks job wait {name}" in done.stderr


@pytest.mark.parametrize("path", ["file:./in put", "file:in put", "file://%s", "file:%s"])
def test_file_uris(shared, code, path):
    (code / "in put").mkdir()
    (code / "in put" / "word").write_text("hello")
    whole = (code / "in put").as_uri() if "//" in path else str(code / "in put")
    text = path.replace("file://%s", whole).replace("%s", whole)
    job = {"command": "cat ${{inputs.a}}/word", "inputs": {"a": {"path": text}}}
    (code / "job.yml").write_text(json.dumps(job))
    done = shared("job", "create", "-f", "job.yml", "--stream")
    assert (done.stdout, done.returncode) == ("hello\n", 0), done.stderr


def test_validate_looks_at_every_path_and_reads_services(shared, code):
    (code / "job.yml").write_text(
        "command: x\nservices:\n  s:\n    type: ssh\n    prot: 22\nidentity: {type: manged}\n"
    )
    told = json.loads(shared("job", "validate", "-f", "job.yml", "--json").stdout)
    assert [(each["where"], each["line"]) for each in told["errors"]] == [
        ("services.s.prot", 5),
        ("identity.type", 6),
    ]
    assert [each["hint"] for each in told["errors"]] == [
        "did you mean `port`?",
        "did you mean `managed`?",
    ]
    (code / "job.yml").write_text("command: x\nenvironment:\n  build:\n    path: nope\n")
    told = json.loads(shared("job", "validate", "-f", "job.yml", "--json").stdout)
    assert told["errors"][0]["where"] == "environment.build.path"
    assert told["errors"][0]["line"] == 4


def test_services_and_identity_are_shown(shared, code):
    (code / "job.yml").write_text(
        "command: 'true'\nservices: {s: {type: SSH, port: 22}}\nidentity: {type: UserIdentity}\n"
    )
    name = json.loads(shared("job", "create", "-f", "job.yml", "--json").stdout)["name"]
    shared("job", "wait", name)
    spec = json.loads(shared("job", "show", name, "--json").stdout)["spec"]
    assert spec["services"] == {"s": {"type": "ssh", "port": 22}}
    assert spec["identity"] == {"type": "user_identity"}
    shown = shared("job", "show", name).stdout
    assert re.search(r"^services +s \(ssh\)$", shown, re.MULTILINE)
    assert re.search(r"^identity +user_identity$", shown, re.MULTILINE)


def test_the_name_in_an_outputs_path(shared, code):
    (code / "job.yml").write_text(
        "command: echo ${{outputs.o}}\nname: named-path\noutputs: {o: {path: 'out/${{name}}'}}\n"
    )
    done = shared("job", "create", "-f", "job.yml", "--stream")
    assert done.stdout == f"{code}/out/named-path\n"


def test_the_same_name_twice_and_modes_of_outputs(shared, code):
    done = shared("run", "-i", "d=.", "-i", "d=/tmp", "--", "true")
    assert done.returncode == 2
    assert "'d' is given twice" in done.stderr
    words = ["--dry-run", "--json", "-o", "a=s3://b/x:upload", "-o", "b=/tmp/o:odd"]
    done = shared("run", *words, "--", "true")
    assert done.returncode == 0, done.stderr
    found = {each["name"]: each for each in json.loads(done.stdout)["task"]["outputs"]}
    assert (found["a"]["uri"], found["a"]["mode"]) == ("s3://b/x", "upload")
    assert found["b"]["path"] == "/tmp/o:odd"


def test_what_no_copy_can_be_made_of(shared, code):
    (code / "odd").mkdir()
    os.mkfifo(code / "odd/pipe")
    (code / "odd/nowhere").symlink_to("nothing")
    done = shared("run", "-i", "d=./odd:download", "--", "true")
    assert done.returncode == 1
    assert "2 files of the input d cannot be copied: " in done.stderr
    assert "[(" not in done.stderr


def test_credentials_are_not_taken_to_another_place(shared):
    words = ["datastore", "create", "moved", "--type", "s3", "--bucket", "b"]
    who = '{"access_key_id": "who", "secret_access_key": "hush"}'
    there = ["--endpoint", "http://127.0.0.1:9"]
    assert shared(*words, *there, "--credentials", "-", input=who).returncode == 0
    assert shared(*words, *there, "--prefix", "p", "--replace").returncode == 0
    done = shared(*words, "--replace")
    assert done.returncode == 2
    assert "the credentials of 'moved' are for another place" in done.stderr
    shown = json.loads(shared("datastore", "show", "moved", "--json").stdout)
    assert shown["uri"].startswith("s3://b/p")
    assert shared(*words, "--replace", "--credentials", "-", input=who).returncode == 0


def test_names_with_dashes_dots_and_digits(shared, code):
    (code / "train.py").write_text(
        "import os, sys; print(sys.argv[1:], os.environ['AZUREML_PARAMETER_my-x'])\n"
        "open(os.environ['AZURE_ML_OUTPUT_o-1'] + '/done', 'w')\n"
    )
    (code / "data").mkdir()
    (code / "job.yml").write_text(
        "command: >-\n  python train.py ${{inputs.my-x}} ${{inputs.1x}} $[[--b ${{inputs.a.b}}]]\n"
        '  $[[--c ${{inputs.a.c}}]] && ls "$AZURE_ML_INPUT_d_1" ${{outputs.o-1}}\n'
        "code: .\ninputs: {my-x: 1, 1x: two, a.b: 3, d.1: {path: data}}\noutputs: {o-1: {}}\n"
    )
    (code / "data" / "seen").touch()
    done = shared("job", "create", "-f", "job.yml", "--stream")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "['1', 'two', '--b', '3'] 1"
    assert {"seen", "done"} <= set(done.stdout.split())
    done = shared("run", "-i", "my-x=data", "--", "ls", "${{inputs.my-x}}")
    assert (done.stdout, done.returncode) == ("seen\n", 0), done.stderr


def test_a_mapped_address_however_it_is_written(shared, code):
    (code / "mirror" / "train").mkdir(parents=True)
    (code / "mirror" / "train" / "a b.csv").write_text("1,2\n")
    beginning = "https://mapped.blob.core.windows.net/birds/"
    assert shared("data", "map", beginning, code / "mirror").returncode == 0
    try:
        for address in (
            "https://mapped.blob.core.windows.net/birds/train/a%20b.csv",
            "wasbs://birds@mapped.blob.core.windows.net/train/a b.csv",
            "abfss://birds@mapped.dfs.core.windows.net/train/a b.csv",
        ):
            done = shared("run", "-i", f"data={address}", "--", "cat", "${{inputs.data}}")
            assert (done.stdout, done.returncode) == ("1,2\n", 0), done.stderr
    finally:
        shared("data", "map", beginning)


def test_the_name_of_a_container_is_shown(shared, code):
    address = "abfss://birds@acct.dfs.core.windows.net/train"
    assert shared("data", "create", "shown", "--path", address).returncode == 0
    assert json.loads(shared("data", "show", "shown", "--json").stdout)["path"] == address


@pytest.fixture
def whole(shared):
    """A completed job that left a file in every place there is, and those places' addresses."""
    script = (
        'echo o > outputs/m.pt; echo s > "$SM_MODEL_DIR/m.pt"; echo d > "$SSM_OUTPUT/m.pt"; '
        'echo l > logs/m.pt; echo w > m.pt; echo n > "$AZURE_ML_OUTPUT_best/m.pt"; echo p'
    )
    done = shared("run", "-o", "best", "--", "bash", "-c", script)
    assert done.returncode == 0, done.stderr
    name = json.loads(shared("job", "list", "--limit", "1", "--json").stdout)[0]["name"]
    for variable, folder in (("$SM_MODEL_DIR", "model"), ("$SSM_OUTPUT", "data")):
        assert re.search(
            rf"^{folder} \({re.escape(variable)}\): /.*/artifacts/{folder}$", done.stderr, re.M
        )
    listed = json.loads(shared("job", "files", name, "--json").stdout)
    return name, sorted(each["path"] for each in listed)


def test_every_file_of_a_job_is_an_input_of_the_next_by_the_address_that_is_listed(shared, whole):
    name, listed = whole
    assert listed == [
        "data/m.pt",
        "logs/m.pt",
        "model/m.pt",
        "named-outputs/best/m.pt",
        "outputs/m.pt",
        "user_logs/std_log.txt",
        "work/m.pt",
    ]
    azure = f"azureml://jobs/{name}/outputs/artifacts/paths"
    inputs = [word for n, path in enumerate(listed) for word in ("-i", f"a{n}={azure}/{path}")]
    inputs += ["-i", f"b={azure}/artifacts/outputs/m.pt", "-i", f"c=runs:/{name}/work/m.pt"]
    inputs += ["-i", f"e={azure}/outputs/:download"]
    inputs += ["-i", f"f=azureml://jobs/{name}/outputs/best/paths/m.pt"]
    names = [f"a{n}" for n in range(len(listed))] + ["b", "c", "f"]
    words = [f"${{{{inputs.{each}}}}}" for each in names]
    done = shared("run", *inputs, "--", "cat", *words, "${{inputs.e}}/m.pt")
    assert done.returncode == 0, done.stderr
    assert "".join(done.stdout.split()) == "dlsnopwowno", done.stdout


def test_each_address_that_is_listed_registers_and_downloads(shared, code, whole):
    name, listed = whole
    for number, path in enumerate(listed):
        for head in ("", "artifacts/") if path == "outputs/m.pt" else ("",):
            words = ("--job", name, "--path", head + path, "--json")
            done = shared("model", "register", f"m{number}-{name}", *words)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["files"] == 1
            got = shared(
                "job", "download", name, "--path", head + path, "-p", f"g{number}{head[:1]}"
            )
            assert len(got.stdout.splitlines()) == 1, got.stderr
    got = shared("job", "download", name, "--path", "*.pt", "-p", "all")
    assert len(got.stdout.splitlines()) == 6
    plain = shared("job", "download", name, "-p", "plain")
    assert "not fetched: named-outputs/best (1 file)" in plain.stderr
    assert f"allranks job download {name} --all" in plain.stderr


def test_an_address_that_is_not_there_gives_the_nearest_that_are(shared, whole):
    name, _ = whole
    script = 'echo x > "$AZURE_ML_OUTPUT_model/w.pt"'
    shared("run", "--name", f"one-{name}", "-o", "model", "--", "bash", "-c", script)
    right = f"it left named-outputs/model/w.pt; all: allranks job files one-{name}"
    azure = f"azureml://jobs/one-{name}/outputs/artifacts/paths/outputs/w.pt"
    for words in (
        ("model", "register", "x", "--job", f"one-{name}", "--path", "outputs/w.pt"),
        ("job", "download", f"one-{name}", "--path", "outputs/w.pt"),
        ("run", "-i", f"a={azure}", "--", "true"),
        ("run", "-i", f"a=runs:/one-{name}/outputs/w.pt", "--", "true"),
        ("run", "-i", f"a=azureml://jobs/one-{name}/outputs/model/paths/v.pt", "--", "true"),
    ):
        done = shared(*words)
        assert done.returncode != 0
        assert right in done.stderr, (words, done.stderr)
    outside = shared("run", "-i", f"a=runs:/{name}/../x", "--", "true")
    assert outside.returncode == 2
    gone = shared("run", "-i", "a=runs:/no-such-job/outputs/x", "--", "true")
    assert "no-such-job" in gone.stderr
