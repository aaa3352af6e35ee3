"""From a model to an endpoint that answers, and what keeps it up."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support import CLI, Allranks, answer, environment, kill_agents, kill_server, until

pytestmark = pytest.mark.slow
SCORE = """
import json, os
def init():
    if os.environ["V"] == "bad": raise RuntimeError("no such model")
    print("MODEL", os.environ["AZUREML_MODEL_DIR"], flush=True)
def run(data):
    folder = os.environ["AZUREML_MODEL_DIR"]
    return [os.environ["V"], open(os.path.join(folder, "my model.txt")).read()]
"""
DEPLOYMENT = """
$schema: https://azuremlschemas.azureedge.net/latest/managedOnlineDeployment.schema.json
name: blue
endpoint_name: birds
model: {path: "my model.txt"}
code_configuration: {code: src, scoring_script: score.py}
environment_variables: {V: "%s"}
instance_type: Standard_DS3_v2
instance_count: 1
app_insights_enabled: true
"""


@pytest.fixture
def files(code: Path) -> Path:
    (code / "src").mkdir()
    (code / "src" / "score.py").write_text(SCORE)
    (code / "my model.txt").write_text("weights")
    for version in ("1", "2", "bad"):
        (code / f"{version}.yml").write_text(DEPLOYMENT % version)
    return code


def score(allranks: Allranks) -> object:
    done = allranks("endpoint", "invoke", "birds", "--data", "{}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.end_to_end
def test_a_deployment_from_its_file_to_its_end(allranks: Allranks, files: Path, home: Path):
    az = ("az", "ml", "online-deployment")
    made = allranks("az", "ml", "online-endpoint", "create", "-n", "birds", "--query", "auth_mode")
    assert made.stdout == '"key"\n', made.stderr
    words = ("create", "-f", "bad.yml", "--set", "environment_variables.V=1", "--all-traffic")
    made = allranks(*az, *words, "--query", "provisioning_state", "-o", "tsv", timeout=120)
    assert made.stdout == "Succeeded\n", made.stdout + made.stderr
    assert "note: no effect here: app_insights_enabled" in made.stderr + made.stdout
    (files / "r.json").write_text("{}")
    words = ("invoke", "-n", "birds", "--request-file", "r.json", "-o", "tsv")
    assert allranks("az", "ml", "online-endpoint", *words).stdout == '["1", "weights"]\n'
    done = allranks("job", "cancel", "--all", "--yes")
    assert done.stderr == "no job of yours is running or waiting\n", "an endpoint stays"
    shown = answer(allranks, "endpoint", "show", "birds")
    uri = shown["scoring_uri"]
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(uri, b"{}")
    refused = allranks("deployment", "delete", "--yes", "blue", "-e", "birds")
    assert "has 100 percent of the traffic" in refused.stderr

    # An update that cannot start takes nothing away; the next change takes it back.
    (replica,) = answer(allranks, "deployment", "show", "blue", "-e", "birds")["replicas"]
    serving = replica["job"]
    made = allranks("deployment", "update", "-f", "bad.yml", timeout=120)
    assert made.returncode == 1
    assert "RuntimeError: no such model" in made.stderr
    assert "the replicas of before go on" in made.stderr
    assert score(allranks) == ["1", "weights"]
    assert answer(allranks, "endpoint", "show", "birds")["state"] == "UpdateFailed"
    logs = allranks("deployment", "logs", "blue", "-e", "birds")
    assert "RuntimeError: no such model" in logs.stdout + logs.stderr
    events = allranks("endpoint", "show", "birds", "--events").stdout
    assert "updated: replicas of before answer until new ones are ready (by " in events
    assert "RuntimeError: no such model; 3 tries in a row failed; the next one is in 4 s" in events
    made = answer(allranks, "endpoint", "show", "birds", "--events")
    assert [item["kind"] for item in made[:3]] == ["created", "keys", "deployed"]
    words = ("deployment", "update", "blue", "-e", "birds", "--instance-count", "2")
    made = allranks(*words, timeout=120)
    assert made.returncode == 0, made.stderr
    assert "the update of birds/blue that failed is taken back" in made.stderr
    shown = answer(allranks, "deployment", "show", "blue", "-e", "birds")
    assert serving in [item["job"] for item in shown["replicas"] if item["ready"]]
    made = allranks("deployment", "update", "-f", "2.yml", timeout=120)
    assert made.returncode == 0, made.stderr
    assert score(allranks) == ["2", "weights"]

    # A server that has just started is waited for, with its router and a replica.
    assert allranks("server", "stop").returncode == 0
    assert score(allranks) == ["2", "weights"]
    uri = answer(allranks, "endpoint", "show", "birds")["scoring_uri"]

    # A key is refused as soon as there is a new one.
    credentials = ("endpoint", "get-credentials", "birds")
    request = with_key(uri, answer(allranks, *credentials)["primaryKey"])
    assert allranks("endpoint", "regenerate-keys", "birds").returncode == 0
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request)

    # While no server is there, requests are answered.
    request = with_key(uri, answer(allranks, *credentials)["primaryKey"])
    kill_server(home)
    assert json.load(urllib.request.urlopen(request)) == ["2", "weights"]

    # A router that dies is replaced; its replicas stay.
    before = answer(allranks, "deployment", "show", "blue", "-e", "birds")["replicas"][0]["job"]
    os.kill(json.loads((home / "serve" / "address").read_text())["pid"], signal.SIGKILL)
    until(lambda: allranks("endpoint", "invoke", "birds", "--data", "{}").returncode == 0, 60)

    # A replica that dies is replaced, and all come back after `server stop`, at the same address.
    (replica,) = answer(allranks, "deployment", "show", "blue", "-e", "birds")["replicas"]
    assert replica["job"] == before
    logs = allranks("job", "logs", replica["job"]).stdout
    (model,) = (line[6:] for line in logs.splitlines() if line.startswith("MODEL "))
    assert os.listdir(model) == ["my model.txt"]
    kill_agents(home, replica["job"])
    until(lambda: is_ready(allranks, unlike=replica["job"]), 60)
    until(lambda: not os.path.exists(model))
    assert allranks("server", "stop").returncode == 0
    until(lambda: is_ready(allranks), 60)
    assert answer(allranks, "endpoint", "show", "birds")["scoring_uri"] == uri
    assert score(allranks) == ["2", "weights"]

    made = allranks("deployment", "update", "blue", "-e", "birds", "--rollback", timeout=120)
    assert made.returncode == 0, made.stderr
    assert score(allranks) == ["1", "weights"]

    # On a terminal it asks.
    ours, theirs = pty.openpty()
    os.write(ours, b"n\n")
    argv = [sys.executable, "-c", CLI, "endpoint", "delete", "birds"]
    done = subprocess.run(argv, env=environment(home), stdin=theirs, stderr=theirs, timeout=60)
    os.close(theirs)
    assert b"delete birds (blue)? [y/N]" in os.read(ours, 65536)
    os.close(ours)
    assert done.returncode == 1
    assert allranks("endpoint", "delete", "--yes", "birds").returncode == 0
    until(lambda: not answer(allranks, "job", "list", "--status", "Running"), 60)
    assert allranks("endpoint", "show", "birds").returncode != 0


def with_key(uri: str, key: str) -> urllib.request.Request:
    return urllib.request.Request(uri, b"{}", {"Authorization": f"Bearer {key}"})


def is_ready(allranks: Allranks, unlike: str = "") -> bool:
    replicas = answer(allranks, "deployment", "show", "blue", "-e", "birds")["replicas"]
    return any(each["ready"] and each["job"] != unlike for each in replicas)


PROGRAM = """
import time
from azure.ai.ml import MLClient
from azure.ai.ml.entities import (
    CodeConfiguration, ManagedOnlineDeployment, ManagedOnlineEndpoint, Model, OnlineRequestSettings,
    TargetUtilizationScaleSettings,
)
from azure.identity import AzureAuthorityHosts, DefaultAzureCredential
client = MLClient(DefaultAzureCredential(authority=AzureAuthorityHosts.AZURE_CHINA), "s", "g", "w")
assert [each.description for each in client.workspaces.list()]
endpoint = ManagedOnlineEndpoint(name="from-python", auth_mode="key", tags={"a": "b"})
client.online_endpoints.begin_create_or_update(endpoint).result()
blue = ManagedOnlineDeployment(
    name="blue",
    endpoint_name="from-python",
    model=Model(path="my model.txt"),
    code_configuration=CodeConfiguration(code="src", scoring_script="score.py"),
    environment_variables={"V": "1"},
    instance_type="Standard_DS3_v2",
    instance_count=1,
    request_settings=OnlineRequestSettings(request_timeout_ms=30000),
)
made = client.online_deployments.begin_create_or_update(blue).result()
print(made.provisioning_state, made.instance_count)
endpoint.traffic = {"blue": 100}
client.begin_create_or_update(endpoint).result()
print(client.online_endpoints.invoke(endpoint_name="from-python", request_file="r.json"))
made.instance_count = 2
assert client.begin_create_or_update(made).result().instance_count == 2
found = client.online_deployments.get("blue", "from-python")
found.environment_variables, found.instance_count = {"V": "2"}, 1
made = client.online_deployments.begin_create_or_update(found).result()
assert (made.instance_count, made.environment_variables) == (1, {"V": "2"})
body = client.online_endpoints.invoke(endpoint_name="from-python", request_file="r.json")
assert body == '["2", "weights"]', body
try:
    made.state = "Ready"
except Exception as error:
    assert "state of a deployment does not change" in str(error)
else:
    raise SystemExit("a state was set")
print(client.online_endpoints.get("from-python").scoring_uri[-26:])
print(len(client.online_endpoints.get_keys("from-python").primary_key))
while not (text := client.online_deployments.get_logs("blue", "from-python", lines=1)):
    pass  # output arrives a moment after it was printed
print(text, end="")
# Without requests it has no replicas; the next request starts one.
blue.warm = ["json"]
blue.scale_settings = TargetUtilizationScaleSettings(min_instances=0, scale_down_delay=1)
client.online_deployments.begin_create_or_update(blue).result()
while client.online_deployments.get("blue", "from-python").replicas:
    time.sleep(0.05)
print(client.online_endpoints.invoke(endpoint_name="from-python", request_file="r.json"))
client.online_endpoints.begin_delete("from-python").result()
"""


def test_a_program_of_azure(shared: Allranks, files: Path):
    (files / "r.json").write_text("{}")
    (files / "submit.py").write_text(PROGRAM)
    done = shared("python", "submit.py", timeout=120)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["Succeeded 1", '["1", "weights"]'], done.stdout + done.stderr
    assert lines[2] in "/endpoints/from-python/score"
    assert lines[3:] == ["43", "ready for requests", '["1", "weights"]']


LOCAL = """
from azure.ai.ml import MLClient
from azure.ai.ml.entities import (
    CodeConfiguration, ManagedOnlineDeployment, ManagedOnlineEndpoint, Model
)
client = MLClient.from_config()
endpoint = ManagedOnlineEndpoint(name="at-hand", auth_mode="key")
client.online_endpoints.begin_create_or_update(endpoint, local=True)
def deploy(name):
    client.online_deployments.begin_create_or_update(
        ManagedOnlineDeployment(
            name=name, endpoint_name="at-hand", model=Model(path="my model.txt"),
            environment_variables={"V": "1"}, instance_type="Standard_DS3_v2",
            code_configuration=CodeConfiguration(code="src", scoring_script="score.py"),
        ),
        local=True, local_enable_gpu=False,
    )
def invoke(**words):
    words = {"endpoint_name": "at-hand", "request_file": "r.json", "local": True, **words}
    return client.online_endpoints.invoke(**words)
deploy("regular_deployment")
print(invoke())
deploy("other")
try:
    invoke()
except Exception as error:
    print(error)
print(invoke(deployment_name="regular_deployment", local=False))
print(bool(client.online_deployments.get_logs("regular_deployment", "at-hand", 50, local=True)))
client.online_deployments.delete(name="other", endpoint_name="at-hand", local=True)
client.begin_create_or_update(endpoint, local=True)
"""


def test_local_endpoints_of_azure_need_no_traffic(shared: Allranks, files: Path):
    (files / "r.json").write_text("{}")
    (files / "submit.py").write_text(LOCAL)
    shutil.copyfile(files / "src" / "score.py", files / "src" / "other.py")
    done = shared("python", "submit.py", timeout=120)
    scored = '["1", "weights"]'
    several = "at-hand has several deployments, none with traffic"
    assert done.stdout.splitlines() == [scored, several, scored, "True"], done.stdout + done.stderr
    of = ("-n", "regular_deployment", "--endpoint-name", "at-hand", "--local")
    line = ("az", "ml", "online-endpoint", "invoke", "-n", "at-hand", "--local")
    done = shared(*line, "--request-file", "r.json")
    assert json.loads(json.loads(done.stdout)) == ["1", "weights"], done.stdout + done.stderr
    online = ("az", "ml", "online-deployment")
    assert shared(*online, "update", *of, "--set", "tags.a=b").returncode == 0
    assert shared(*online, "get-logs", *of, "--lines", "5").stdout
    update = ("az", "ml", "online-endpoint", "update", "-n", "at-hand", "--set", "tags.a=b")
    for _ in "set", "already so":
        assert shared(*update, "--local").returncode == 0
    # Another script of the code that it has, wherever the folder is by now.
    (files / "src").rename(files / "moved")
    script = "code_configuration.scoring_script"
    done = shared(*online, "update", *of, "--set", f"{script}=other.py")
    assert done.returncode == 0, done.stderr
    assert shared("endpoint", "update", "at-hand", "--traffic", f"{of[1]}=100").returncode == 0
    assert answer(shared, "deployment", "show", of[1], "-e", "at-hand")["takes_traffic"]
    refused = shared(*online, "delete", *of[:-1], "-y")
    assert "has 100 percent of the traffic" in refused.stderr
    assert shared(*online, "delete", *of, "-y").returncode == 0
    removed = shared("az", "ml", "online-endpoint", "delete", "-n", "at-hand", "--local", "-y")
    assert removed.returncode == 0, removed.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: a b\n", "name"),
        ("name: e\ntraffic: {blue: 90}\n", "adds up to 90"),
        ("name: e\ntraffic: {blue: 100}\n", "there is no deployment 'blue'"),
        ("name: e\nauth: key\n", "auth"),
    ],
)
def test_an_endpoint_that_is_refused(shared: Allranks, code: Path, text: str, said: str):
    (code / "e.yml").write_text(text)
    done = shared("endpoint", "create", "-f", "e.yml")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "hint: " in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "needs a model"),
        ("model: azureml:nosuch:1\n", "not found"),
        ("model: {path: gone}\n", "gone"),
        ("model: {path: .}\n", "d.yml: the model needs a scoring script"),
        ("model: {path: ., type: triton_model}\n", "Triton"),
        (
            "command: x\ncode_configuration: {scoring_script: s.py}\n",
            "a command or a scoring script",
        ),
        ("model: {path: .}\ninstance_count: 0\n", "instance_count"),
        (
            "code_configuration:\n  code: .\n  scoring_script: nope.py\n",
            "d.yml:5: code_configuration.scoring_script: the scoring script nope.py is not in",
        ),
        (
            "code_configuration:\n  code: .\n  scoring_script: ../aside.py\n",
            "hint: name the folder that is sent: --code .. --script aside.py",
        ),
    ],
)
def test_a_deployment_that_is_refused(shared: Allranks, code: Path, text: str, said: str):
    (code / "d.yml").write_text("name: blue\nendpoint_name: refused\n" + text)
    (code.parent / "aside.py").write_text("def run(data): ...")
    shared("endpoint", "create", "refused")
    done = shared("deployment", "create", "-f", "d.yml")
    assert done.returncode != 0, done.stdout
    assert said in done.stderr
    assert "hint: " in done.stderr
    assert answer(shared, "endpoint", "show", "refused")["deployments"] == []
    assert shared("endpoint", "delete", "--yes", "refused").returncode == 0


ONCE = """
import os
def init():
    os.mkdir("%s")
def run(data):
    return 1
"""


def test_a_second_replica_that_never_starts_and_a_name_that_is_taken_again(
    shared: Allranks, code: Path, tmp_path: Path
):
    (code / "once.py").write_text(ONCE % (tmp_path / "lock"))
    (code / "d.yml").write_text(
        "name: blue\nendpoint_name: once\ninstance_count: 2\n"
        "code_configuration: {code: ., scoring_script: once.py}\n"
    )
    shared("endpoint", "create", "once", "--auth-mode", "none")
    words = ("deployment", "create", "-f", "d.yml", "--all-traffic")
    made = shared(*words, timeout=120)
    assert made.returncode == 1
    assert "not all replicas of once/blue start (1 of 2 are ready)" in made.stderr
    assert "failed at once.py:4: FileExistsError" in made.stderr
    shown = answer(shared, "deployment", "show", "blue", "-e", "once")
    assert (shown["state"], shown["ready"]) == ("Degraded", 1)
    assert "failed at once.py:4" in shown["reason"]
    logs = shared("deployment", "logs", "blue", "-e", "once")
    assert "init() failed at once.py:4" in logs.stdout
    # Its replicas are no jobs that somebody has run.
    assert answer(shared, "job", "list", "--experiment", "once") == []
    assert len(answer(shared, "job", "list", "--experiment", "once", "--archived")) >= 4

    assert shared("endpoint", "delete", "--yes", "once").returncode == 0
    (tmp_path / "lock").rmdir()
    shared("endpoint", "create", "once", "--auth-mode", "none")
    made = shared(*words, "--set", "instance_count=1", timeout=120)
    assert made.returncode == 0, made.stderr
    assert shared("endpoint", "invoke", "once", "--data", "{}").stdout == "1\n"
    assert shared("endpoint", "delete", "--yes", "once").returncode == 0


def test_a_model_that_an_endpoint_has_stays(shared: Allranks, code: Path):
    (code / "weights").write_text("w")
    (code / "score.py").write_text("def run(data): return 1")
    assert shared("model", "create", "served", "--path", "weights").returncode == 0
    words = ("--script", "score.py", "--name", "keeps", "--no-wait")
    refused = shared("model", "deploy", "served:7", *words)
    assert "served:7 not found" in refused.stderr
    assert "not found" in shared("endpoint", "show", "keeps").stderr  # nothing is left of it
    refused = shared("model", "deploy", "served", *words[2:])
    assert "served:1 needs a scoring script" in refused.stderr, refused.stderr
    assert "hint: --script FILE" in refused.stderr

    made = shared("model", "deploy", "served", *words)
    assert made.returncode == 0, made.stderr
    assert "note: score.py has no init()" in made.stderr
    refused = shared("model", "deploy", "served", *words, "--auth-mode", "none")
    assert "keeps is there, with auth_mode key" in refused.stderr
    refused = shared("model", "delete", "--yes", "served:1")
    assert "the deployment keeps/default uses served:1" in refused.stderr
    assert shared("endpoint", "delete", "--yes", "keeps").returncode == 0
    assert shared("model", "delete", "--yes", "served:1").returncode == 0


def test_traffic_moves_when_the_new_deployment_is_ready(shared: Allranks, code: Path):
    (code / "weights").write_text("w")
    (code / "one.py").write_text("def init(): pass\ndef run(data): return 1")
    (code / "two.py").write_text("def init(): raise OSError('no licence')\ndef run(data): return 2")
    assert shared("model", "create", "moving", "--path", "weights").returncode == 0
    made = shared("model", "deploy", "moving", "--script", "one.py", timeout=120)
    assert made.returncode == 0, made.stderr
    words = ("model", "deploy", "moving", "--script", "two.py", "--traffic", "100", "--deployment")
    made = shared(*words, "green", timeout=120)
    assert made.returncode == 1
    assert "its traffic stays where it is until moving/green is ready" in made.stderr
    assert shared("endpoint", "invoke", "moving", "--data", "{}").stdout == "1\n"
    shown = shared("endpoint", "show", "moving").stdout
    assert "default=100 (green=100 when it is ready)" in shown

    (code / "two.py").write_text("def init(): pass\ndef run(data): return 2")
    made = shared(*words, "green", timeout=120)
    assert made.returncode == 0, made.stderr
    assert "traffic: green=100\n" in made.stderr
    assert shared("endpoint", "invoke", "moving", "--data", "{}").stdout == "2\n"

    # Also if nobody waits for it; but what is said of the traffic since then holds.
    assert shared("endpoint", "update", "moving", "--traffic", "default=100").returncode == 0
    made = shared(*words, "blue", "--no-wait")
    assert "traffic: default=100 (blue=100 when it is ready)" in made.stderr
    until(lambda: answer(shared, "endpoint", "show", "moving")["traffic"] == {"blue": 100}, 60)
    assert shared(*words, "late", "--no-wait").returncode == 0
    made = shared("endpoint", "update", "moving", "--traffic", "green=100")
    assert "moving: traffic green=100\n" in made.stderr
    # A part of it, which the others leave; a number that is none; and none unless asked.
    words = ("model", "deploy", "moving", "--script", "two.py", "--deployment")
    made = shared(*words, "late", "--traffic", "25", timeout=120)
    assert "traffic: late=25 green=75\n" in made.stderr
    refused = shared(*words, "more", "--traffic", "101")
    assert (refused.returncode, "from 0 to 100" in refused.stderr) == (2, True)
    made = shared(*words, "more", timeout=120)
    assert "more has no traffic; to give it all: allranks endpoint update moving" in made.stderr
    assert answer(shared, "endpoint", "show", "moving")["traffic"] == {"late": 25, "green": 75}
    assert shared("endpoint", "delete", "--yes", "moving").returncode == 0


def test_an_update_of_the_model_keeps_script_and_code(shared: Allranks, code: Path, tmp_path: Path):
    (code / "weights").write_text("w")
    (code / "own.py").write_text(
        "import os\ndef init(): pass\ndef run(data): return os.environ['AZUREML_MODEL_DIR'][-1:]"
    )
    for number in ("one", "two"):
        (code / "weights").write_text(number)
        assert shared("model", "create", "keeping", "--path", "weights").returncode == 0
    words = ("--script", "own.py", "--instances", "2", "--warm", "json", "--environment", "current")
    made = shared("model", "deploy", "keeping:1", *words, timeout=120)
    assert made.returncode == 0, made.stderr
    (code / "own.py").unlink()
    before = answer(shared, "deployment", "show", "default", "-e", "keeping")["spec"]
    refused = shared("model", "deploy", "keeping:1", "--code", "other", "--deployment", "green")
    assert "--code: which script of the folder answers?\n\nhint: name it" in refused.stderr
    (code / "other").mkdir()
    (code / "other" / "own.py").write_text("def init(): pass\ndef run(data): return 'other'")
    made = shared("model", "deploy", "keeping:1", "--code", "other", timeout=120)
    assert made.returncode == 0, made.stderr
    assert shared("endpoint", "invoke", "keeping", "--data", "{}").stdout == '"other"\n'
    words = ("deployment", "update", "default", "-e", "keeping", "--rollback")
    assert shared(*words, timeout=120).returncode == 0
    made = shared("model", "deploy", "keeping:2", timeout=120)
    assert made.returncode == 0, made.stderr
    assert "keeping/default: keeping:1 → keeping:2" in made.stderr
    spec = answer(shared, "deployment", "show", "default", "-e", "keeping")["spec"]
    assert spec == {**before, "model": "azureml:keeping:2"}
    (code / "r.json").write_text("{}")
    assert shared("endpoint", "invoke", "keeping", "--data", "@r.json").returncode == 0
    assert "cannot read" in shared("endpoint", "invoke", "keeping", "--data", "@gone").stderr
    made = shared(*words, timeout=120)
    assert made.stderr == "keeping/default is rolled back: keeping:2 → keeping:1\n"
    made = shared("model", "deploy", "keeping:1", "--instances", "1", timeout=120)
    assert made.returncode == 0, made.stderr
    assert "→" not in made.stderr
    assert answer(shared, "deployment", "show", "default", "-e", "keeping")["instances"] == 1
    assert shared("endpoint", "delete", "--yes", "keeping").returncode == 0


def test_an_update_without_room_says_what_it_waits_for(allranks: Allranks, code: Path):
    (code / "weights").write_text("w")
    (code / "own.py").write_text("def init(): pass\ndef run(data): return 1")
    cpus = str(len(os.sched_getaffinity(0)))  # a replica has them all
    assert allranks("compute", "update", "local", "--cpus", cpus).returncode == 0
    assert allranks("model", "create", "full", "--path", "weights").returncode == 0
    assert allranks("model", "deploy", "full", "--script", "own.py", timeout=120).returncode == 0
    (code / "own.py").write_text("def init(): pass\ndef run(data): return 2")
    waits = f"waits for {cpus} CPU"
    made = allranks("model", "deploy", "full", "--script", "own.py", "--timeout", 2)
    assert made.returncode == 124, made.stderr
    assert f"full/default is not ready after 2 s: {waits}" in made.stderr
    hint = "hint: it goes on: allranks endpoint show full; to take an update back"
    assert hint in made.stderr
    assert waits in allranks("endpoint", "show", "full").stdout
    assert waits in allranks("deployment", "list", "-e", "full").stdout
    made = allranks("deployment", "update", "default", "-e", "full", "--rollback", timeout=120)
    assert made.returncode == 0, made.stderr
    assert waits not in allranks("deployment", "list", "-e", "full").stdout
    assert allranks("endpoint", "invoke", "full", "--data", "{}").stdout == "1\n"


FIRST = """
from azureml.core import Environment, Webservice, Workspace
from azureml.core.model import InferenceConfig, Model
from azureml.core.webservice import AksWebservice, LocalWebservice
from azureml.exceptions import WebserviceException
ws = Workspace.from_config()
model = Model.register(ws, model_path="my model.txt", model_name="served-by-v1")
environment = Environment("current")
environment.python.user_managed_dependencies = True
environment.environment_variables = {"V": "1"}
script = InferenceConfig("score.py", source_directory="src", environment=environment)
small = LocalWebservice.deploy_configuration(port=8890)
service = Model.deploy(ws, "from-v1", [model], script, small)
service.wait_for_deployment(show_output=True)
print(service.state, service.run(input_data="{}"), service.auth_enabled)
environment.environment_variables = {"V": "2"}
service.update(models=[model], inference_config=script)
service.wait_for_deployment()
print(Webservice(ws, "from-v1").run("{}"), "from-v1" in ws.webservices)
print("ready for requests" in service.get_logs())
try:
    Model.deploy(ws, "from-v1", [model], script, AksWebservice.deploy_configuration())
except WebserviceException as error:
    print(error.message)
service.delete()
for refused in (lambda: Webservice(ws, "from-v1"), lambda: Model.package(ws, [model])):
    try:
        refused()
    except Exception as error:
        print(type(error).__name__)
"""


def test_a_program_of_azures_first_sdk(shared: Allranks, files: Path):
    (files / "first.py").write_text(FIRST)
    done = shared("python", "first.py", timeout=120)
    assert done.stdout.splitlines()[-6:] == [
        "Healthy ['1', 'weights'] False",
        "['2', 'weights'] True",
        "True",
        "an endpoint named 'from-v1' already exists",
        "WebserviceException",
        "NotThere",
    ], done.stdout + done.stderr
