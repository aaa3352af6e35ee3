"""Inputs: what other jobs left, and `file:`, from YAML and from the command line."""

import http.server
import json
import os
import re
import threading

import pytest

from tests.support import answer

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
    return answer(shared, "job", "list", "--limit", "1")[0]["name"]


@pytest.mark.end_to_end
def test_an_output_as_an_input_from_yaml_and_the_command_line(shared, code, first):
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
        ("nosuch", "o", "", "job 'nosuch' not found", "allranks job list"),
        (None, "p", "", "has no output 'p'", "its outputs are `o`"),
        (None, "o", "wrod", "has no ", "it has named-outputs/o/word"),
        (None, "o", "../../x", "is not the address", "without `..`"),
    ],
)
def test_missing_outputs(shared, code, first, job, output, path, message, hint):
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


def test_services_and_identity_are_validated_and_shown(shared, code):
    (code / "job.yml").write_text(
        "command: x\nservices:\n  s:\n    type: ssh\n    prot: 22\nidentity: {type: manged}\n"
    )
    told = answer(shared, "job", "validate", "-f", "job.yml", code=2)
    errors = sorted(told["errors"], key=lambda each: each["line"])
    assert [(each["where"], each["line"]) for each in errors] == [
        ("services.s.prot", 5),
        ("identity.type", 6),
    ]
    assert [each["hint"] for each in errors] == [
        "did you mean `port`?",
        "did you mean `managed`?",
    ]
    (code / "job.yml").write_text("command: x\nenvironment:\n  build:\n    path: nope\n")
    told = answer(shared, "job", "validate", "-f", "job.yml", code=2)
    assert told["errors"][0]["where"] == "environment.build.path"
    assert told["errors"][0]["line"] == 4
    (code / "job.yml").write_text(
        "command: 'true'\nservices: {s: {type: SSH, port: 22}}\nidentity: {type: UserIdentity}\n"
    )
    name = answer(shared, "job", "create", "-f", "job.yml")["name"]
    shared("job", "wait", name)
    spec = answer(shared, "job", "show", name)["spec"]
    assert spec["services"] == {"s": {"type": "ssh", "port": 22}}
    assert spec["identity"] == {"type": "user_identity"}
    shown = shared("job", "show", name).stdout
    assert re.search(r"^services +s \(ssh\): Ended$", shown, re.MULTILINE)
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


def test_files_that_cannot_be_copied(shared, code):
    (code / "odd").mkdir()
    os.mkfifo(code / "odd/pipe")
    (code / "odd/nowhere").symlink_to("nothing")
    done = shared("run", "-i", "d=./odd:download", "--", "true")
    assert done.returncode == 1
    assert "cannot copy the input d: " in done.stderr
    assert re.search(r"/odd/(pipe|nowhere)\b", done.stderr), done.stderr


def test_credentials_are_not_kept_for_another_endpoint(shared):
    words = ["datastore", "create", "moved", "--type", "s3", "--bucket", "b"]
    who = '{"access_key_id": "who", "secret_access_key": "hush"}'
    there = ["--endpoint", "http://127.0.0.1:9"]
    assert shared(*words, *there, "--credentials", "-", input=who).returncode == 0
    assert shared(*words, *there, "--prefix", "p", "--replace").returncode == 0
    done = shared(*words, "--replace")
    assert done.returncode == 2
    assert "the stored credentials of 'moved' belong to another server" in done.stderr
    shown = answer(shared, "datastore", "show", "moved")
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
        assert answer(shared, "data", "map") == {beginning: str(code / "mirror")}
    finally:
        removed = shared("data", "map", beginning)
    assert removed.stderr == f"{beginning} is no longer mapped\n"


def test_data_at_the_servers_own_api_are_refused(shared, code):
    """A node on its machine would ask in the place of whoever submits the job."""
    port = answer(shared, "server", "start")["url"].rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "[::1]", "2130706433", "0.0.0.0", "[::ffff:7f00:1]"):
        done = shared("run", "-i", f"x=http://{host}:{port}/api/v1/jobs", "--", "true")
        assert done.returncode == 2
        assert "is the API of this server, not data" in done.stderr
    done = shared("run", "--dry-run", "-i", "x=http://127.0.0.1:1/a", "--", "true")
    assert done.returncode == 0


def test_redirects_and_names_that_lead_to_the_api_are_refused(shared, code, redirecting):
    port = answer(shared, "server", "start")["url"].rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "0.0.0.0"):
        redirecting.target = f"http://{host}:{port}/healthz"
        done = shared("run", "-i", f"x={redirecting.url}", "--", "true")
        assert done.returncode != 0
        assert "leads to the API of an allranks server, which is not data" in done.stderr
    shared("data", "create", "led-astray", "--path", redirecting.url)
    done = shared("data", "download", "led-astray")
    assert done.returncode != 0
    assert "ok" not in done.stdout + "".join(path.read_text() for path in code.rglob("*.txt"))


@pytest.fixture
def redirecting():
    """A site that sends everybody to its ``target``; ``url`` is a file of it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", site.target)
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *words):
            """Print nothing."""

    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{site.server_port}/data.txt"
    thread = threading.Thread(target=site.serve_forever)
    thread.start()
    yield site
    site.shutdown()
    site.server_close()
    thread.join()


def test_data_assets_in_all_their_life(shared, code):
    address = "abfss://birds@acct.dfs.core.windows.net/train"
    done = shared("data", "create", "birds", "--path", address, "--label", "old")
    usage = "use it: allranks run -i NAME=azureml:birds:1 -- COMMAND"
    assert done.stderr == f"birds:1 is created: {address}\n{usage}\n"
    (code / "birds.yml").write_text("name: birds\ntype: uri_file\npath: in/b.csv\n")
    (code / "in").mkdir()
    (code / "in/b.csv").touch()
    assert answer(shared, "data", "create", "-f", "birds.yml")["path"] == str(code / "in/b.csv")
    assert answer(shared, "data", "show", "birds@old")["path"] == address
    done = shared("data", "label", "birds:2", "new", "good")
    assert done.stderr in ("birds:2 is labelled new, good\n", "birds:2 is labelled good, new\n")
    rows = [line.split()[:2] for line in shared("data", "list", "birds").stdout.splitlines()]
    assert rows == [["NAME", "VERSION"], ["birds", "1"], ["birds", "2"]]
    assert answer(shared, "data", "delete", "--yes", "birds:1")["path"] == address
    assert "no data named 'brids'\n\nhint: did you mean `birds`?" in (
        shared("data", "list", "brids").stderr
    )
    (code / "birds.yml").write_text("name: birds\npath: .\nkind: x\n")
    assert "birds.yml:3: kind: " in shared("data", "create", "-f", "birds.yml").stderr


def test_a_type_that_the_path_is_not(shared, code):
    (code / "in").mkdir()
    (code / "in/b.csv").touch()
    for kind, path, right in (
        ("uri_folder", "in/b.csv", "uri_file"),
        ("mltable", "in/b.csv", "uri_file"),
        ("uri_file", "in", "uri_folder"),
        ("UriFolder", "in/b.csv", "uri_file"),
    ):
        what = f"is a {'folder' if path == 'in' else 'file'}, no {kind}"
        done = shared("data", "create", "wrong", "--path", path, "--type", kind)
        assert (done.returncode, what in done.stderr) == (2, True), done.stderr
        assert done.stderr.startswith("error: --type: ")
        assert f"hint: `{right}`, or leave it out" in done.stderr
        (code / "d.yml").write_text(f"name: wrong\npath: {path}\ntype: {kind}\n")
        assert f"d.yml:3: type: {path.rpartition('/')[2]} {what}" in (
            shared("data", "create", "-f", "d.yml").stderr
        )
        words = ("data", "create", "right", "--path", path, "--type")
        assert shared(*words, right).returncode == 0
    assert "no data named 'wrong'" in shared("data", "list", "wrong").stderr
    # With --no-upload it is a path of the server's machine.
    assert shared(*words, "uri_file", "--no-upload").returncode == 0


@pytest.fixture
def whole(shared):
    """A completed job that left a file in every place there is, and those places' addresses."""
    script = (
        'echo o > outputs/m.pt; echo s > "$SM_MODEL_DIR/m.pt"; echo d > "$SSM_OUTPUT/m.pt"; '
        'echo l > logs/m.pt; echo w > m.pt; echo n > "$AZURE_ML_OUTPUT_best/m.pt"; echo p'
    )
    done = shared("run", "-o", "best", "--", "bash", "-c", script)
    assert done.returncode == 0, done.stderr
    name = answer(shared, "job", "list", "--limit", "1")[0]["name"]
    for variable, folder in (("$SM_MODEL_DIR", "model"), ("$SSM_OUTPUT", "data")):
        assert re.search(
            rf"^{folder} \({re.escape(variable)}\): /.*/artifacts/{folder}$", done.stderr, re.M
        )
    listed = answer(shared, "job", "files", name)
    return name, sorted(each["path"] for each in listed)


def test_every_listed_file_of_a_job_can_be_an_input(shared, whole):
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


def test_every_listed_file_can_be_registered_and_downloaded(shared, code, whole):
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
    assert "not downloaded: named-outputs/best (1 file)" in plain.stderr
    assert f"allranks job download {name} --all" in plain.stderr


def test_a_missing_file_gives_the_nearest_ones(shared, whole):
    name, _ = whole
    script = 'echo x > "$AZURE_ML_OUTPUT_model/w.pt"'
    shared("run", "--name", f"one-{name}", "-o", "model", "--", "bash", "-c", script)
    right = f"it has named-outputs/model/w.pt; all: allranks job files one-{name}"
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


def test_an_upload_with_a_name_that_cannot_be_sends_nothing(shared, code):
    (code / "data").mkdir()
    (code / "data" / "a").write_text("once, and never sent")
    refused = shared("data", "upload", "data", "--name", "a b")
    assert (refused.returncode, "is uploaded" in refused.stderr) == (2, False)
    assert "error: name: must have 1 to 255 letters" in refused.stderr
