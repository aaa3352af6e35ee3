"""Batch endpoints: an invocation is a job."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from allranks.errors import NotFound, SpecError
from allranks.http_client import Client
from tests.support import Allranks, answer

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[2] / "examples" / "batch"
PROGRAM = """
from azure.ai.ml import Input, MLClient
from azure.ai.ml.constants import AssetTypes, BatchDeploymentOutputAction
from azure.ai.ml.entities import (
    BatchEndpoint, BatchRetrySettings, CodeConfiguration, Model, ModelBatchDeployment,
    ManagedOnlineEndpoint, ModelBatchDeploymentSettings, PipelineComponentBatchDeployment,
    ResourceConfiguration,
)
from azure.ai.ml import load_component
from azure.identity import DefaultAzureCredential
client = MLClient(DefaultAzureCredential(), "s", "g", "w")
endpoint = BatchEndpoint(name="batch-from-python", tags={"a": "b"})
client.begin_create_or_update(endpoint).result()
try:
    client.online_endpoints.begin_create_or_update(ManagedOnlineEndpoint(name="batch-from-python"))
except Exception as error:
    assert "is a batch endpoint" in str(error), error
else:
    raise SystemExit("an online endpoint has the name of a batch endpoint")
deployment = ModelBatchDeployment(
    name="words",
    endpoint_name=endpoint.name,
    model=Model(path="kind-words.txt"),
    code_configuration=CodeConfiguration(code="src", scoring_script="summary.py"),
    environment="current",
    resources=ResourceConfiguration(instance_count=1),
    settings=ModelBatchDeploymentSettings(
        mini_batch_size=3,
        output_action=BatchDeploymentOutputAction.SUMMARY_ONLY,
        retry_settings=BatchRetrySettings(max_retries=0, timeout=300),
        error_threshold=0,
    ),
)
client.begin_create_or_update(deployment).result()
chain = PipelineComponentBatchDeployment(
    name="chain", endpoint_name=endpoint.name, component=load_component("chain.yml")
)
client.batch_deployments.begin_create_or_update(chain).result()
endpoint = client.batch_endpoints.get("batch-from-python")
endpoint.defaults.deployment_name = "words"
print(client.batch_endpoints.begin_create_or_update(endpoint).result().defaults.deployment_name)
texts = Input(type=AssetTypes.URI_FOLDER, path="texts")
jobs = [
    client.batch_endpoints.invoke(endpoint_name="batch-from-python", input=texts),
    client.batch_endpoints.invoke(
        endpoint_name="batch-from-python",
        deployment_name="chain",
        inputs={"texts": texts, "word": Input(type="string", default="please")},
    ),
]
for job in jobs:
    try:
        client.jobs.stream(job.name)
    except Exception as error:
        print(type(error).__name__)
print(len(client.batch_endpoints.list_jobs("batch-from-python")))
(listed,) = client.batch_deployments.list_jobs("chain", "batch-from-python")
print(listed.name == job.name)
client.jobs.download(job.name, download_path="got", output_name="counted")
print(open("got/named-outputs/counted/n").read(), end="")
"""
# Three files, of which one has no row: too many.
SUMMARY = """
import os
def run(mini_batch):
    open(os.path.join(os.environ["AZUREML_BI_OUTPUT_PATH"], "own"), "w").write("x")
    return mini_batch[1:]
"""
CHAIN = """
type: pipeline
name: chain
inputs: {texts: {type: uri_folder}, word: {type: string}, times: {type: integer, default: 2}}
outputs: {counted: {type: uri_folder}}
jobs:
  count:
    command: echo $(cat ${{inputs.texts}}/* | grep -ic ${{inputs.word}}) > ${{outputs.counted}}/n
    environment: current
    inputs: {texts: '${{parent.inputs.texts}}', word: '${{parent.inputs.word}}'}
    outputs: {counted: '${{parent.outputs.counted}}'}
"""


@pytest.fixture
def files(code: Path) -> Path:
    shutil.copytree(EXAMPLE, code, dirs_exist_ok=True)
    return code


def test_the_example_by_azures_lines(shared: Allranks, shared_home: Path, files: Path):
    """Of a registered model, too: its name in AZUREML_MODEL_DIR is that of its file."""
    az = ("az", "ml", "batch-endpoint")
    made = shared(*az, "create", "-f", "endpoint.yml", "--query", "provisioning_state")
    assert made.stdout == '"Succeeded"\n', made.stderr
    made = shared("model", "create", "kind", "--path", "kind-words.txt")
    assert made.returncode == 0, made.stderr
    words = (
        "batch-deployment",
        "create",
        "-f",
        "deployment.yml",
        "--set",
        "model=azureml:kind@latest",
    )
    made = shared("az", "ml", *words, "--set-default", "--query", "model", "-o", "tsv")
    assert made.stdout == "azureml:kind:1\n", made.stderr
    shown = answer(shared, "endpoint", "show", "moods")
    assert shown["default_deployment"] == "words"
    assert "moods/words" in shared("model", "delete", "--yes", "kind:1").stderr
    assert "is a batch endpoint" in shared("endpoint", "create", "moods").stderr

    of = ("-n", "words", "-e", "moods", "--set")
    update = ("az", "ml", "batch-deployment", "update")
    default = ("update", "-n", "moods", "--set", "defaults.deployment_name=words")
    assert shared(*az, *default).returncode == 0  # it is so already
    done = shared(*update, *of, "mini_batch_size=1", "--query", "mini_batch_size")
    assert done.stdout == "1\n", done.stderr
    words = ("deployment", "update", "words", "-e", "moods")
    for count in (2, 1):
        made = answer(shared, *words, "--instance-count", str(count))
        assert made["spec"]["resources"]["instance_count"] == count
    assert "no version before" in shared(*words, "--rollback").stderr
    done = shared(*update, *of, "code_configuration.scoring_script=x.py")
    assert "this comes with files" in done.stderr
    words = ("invoke", "-n", "moods", "--input", "texts", "--query", "name", "-o", "tsv")
    job = shared(*az, *words).stdout.strip()
    done = shared("az", "ml", "job", "stream", "-n", job, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (step,) = answer(shared, "job", "list", "--parent", job)
    assert "3 files in 3 mini-batches" in shared("job", "logs", step["name"]).stdout
    words = ("download", "-n", job, "--output-name", "score", "--download-path", "got")
    assert shared("az", "ml", "job", *words).returncode == 0
    text = (files / "got" / "named-outputs" / "score" / "moods.csv").read_text()
    assert text == "a.txt,2\nb.txt,0\nc.txt,3\n"

    # By Azure's request over HTTP.
    data = {"JobInputType": "UriFolder", "Uri": str(files / "texts")}
    url, token = answer(shared, "server", "status")["url"], (shared_home / "token").read_text()
    with Client(url, token.strip()) as client:
        address = "/api/v1/batch-endpoints/moods/jobs"
        sent = client.json("POST", address, {"properties": {"InputData": {"any": data}}})
        with pytest.raises(SpecError, match="InputData or OutputData is malformed"):
            client.json("POST", address, {"properties": {"InputData": {"any": "texts"}}})
    assert shared("job", "stream", sent["name"], timeout=120).returncode == 0
    listed = json.loads(shared(*az, "list-jobs", "-n", "moods").stdout)
    assert [item["name"] for item in listed] == [sent["name"], job]

    words = ("batch-deployment", "delete", "-n", "words", "-e", "moods", "--yes")
    assert shared("az", "ml", *words).returncode == 0
    refused = shared("endpoint", "invoke", "moods", "--input", "texts")
    assert "moods has no default deployment" in refused.stderr
    assert shared(*az, "delete", "-n", "moods", "-y").returncode == 0


def test_a_program_of_azure(shared: Allranks, files: Path):
    (files / "submit.py").write_text(PROGRAM)
    (files / "src" / "summary.py").write_text(SUMMARY)
    (files / "chain.yml").write_text(CHAIN)
    done = shared("python", "submit.py", timeout=120)
    lines = [
        line for line in done.stdout.splitlines() if "mini-b" not in line and "limit" not in line
    ]
    assert lines[-5:] == ["words", "JobException", "2", "True", "1"], done.stdout + done.stderr
    assert "1 file failed; the limit is 0" in done.stdout + done.stderr
    (job,) = (
        each["name"]
        for each in answer(shared, "job", "list", "--all", "--experiment", "batch-from-python")
        if each["status"] == "Failed" and each["type"] == "command"
    )
    explained = shared("job", "explain", job)
    assert "without an exception (MINI_BATCH_FAILED)" in explained.stdout
    assert "hint: it returned 2 results for 3 files: return a result for each" in explained.stderr


BARE = """
name: bare
endpoint_name: bare
component:
  type: pipeline
  inputs: {greeting: {type: string, default: hello}}
  outputs: {left: {type: uri_folder}, right: {type: uri_folder}}
  jobs:
    write:
      type: command
      command: >-
        echo ${{inputs.greeting}} > ${{outputs.left}}/a.txt
        && echo ${{inputs.greeting}} > ${{outputs.right}}/b.txt
      inputs: {greeting: "${{parent.inputs.greeting}}"}
      outputs: {left: "${{parent.outputs.left}}", right: "${{parent.outputs.right}}"}
"""


def test_a_pipeline_without_inputs_by_azures_requests(shared: Allranks, code: Path):
    """Its own defaults or a literal; the token of `az account`, and the address of `show`."""
    (code / "d.yml").write_text(BARE)
    az = ("az", "ml", "batch-endpoint")
    assert shared(*az, "create", "-n", "bare").returncode == 0
    made = shared("az", "ml", "batch-deployment", "create", "-f", "d.yml", "--set-default")
    assert made.returncode == 0, made.stderr
    words = ("invoke", "-n", "bare", "--job-name", "bare-1", "--query", "name", "-o", "tsv")
    assert shared(*az, *words).stdout == "bare-1\n"
    assert shared("job", "stream", "bare-1", timeout=120).returncode == 0
    assert shared("job", "download", "bare-1", "--all", "-p", "got").returncode == 0
    assert [p.read_text() for p in (code / "got").rglob("[ab].txt")] == ["hello\n"] * 2

    uri = shared(*az, "show", "-n", "bare", "--query", "scoring_uri", "-o", "tsv").stdout.strip()
    token = json.loads(shared("az", "account", "get-access-token").stdout)
    assert (token["expiresOn"], token["tokenType"]) == (None, "Bearer")
    server, _, path = uri.partition("/api/")
    with Client(server, token["accessToken"]) as client:
        literal = {"JobInputType": "Literal", "Value": "good day"}
        data = {"properties": {"InputData": {"greeting": literal}}}
        job = client.json("POST", f"/api/{path}", data)["id"].rpartition("/")[2]
        assert shared("job", "stream", job, timeout=120).returncode == 0
        answer = client.json("GET", f"/api/{path}/{job}")
        assert (answer["status"], answer["properties"]["status"]) == ("Completed", "Completed")
        with pytest.raises(NotFound, match="is no job of bare"):
            client.json("GET", f"/api/{path}/bare-1_write")
    assert shared("job", "download", job, "--output-name", "left", "-p", "more").returncode == 0
    assert [p.read_text() for p in (code / "more").rglob("a.txt")] == ["good day\n"]

    # The pipeline of that job as a deployment.
    keys = {"name": "again", "endpoint_name": "bare", "job_definition": f"azureml:{job}"}
    (code / "again.yml").write_text(json.dumps(keys))
    made = shared("az", "ml", "batch-deployment", "create", "-f", "again.yml")
    assert made.returncode == 0, made.stderr
    words = ("-n", "bare", "--deployment-name", "again", "--query", "name", "-o", "tsv")
    job = shared(*az, "invoke", *words).stdout.strip()
    assert shared("job", "stream", job, timeout=120).returncode == 0
    assert shared("job", "download", job, "--output-name", "right", "-p", "again").returncode == 0
    assert [p.read_text() for p in (code / "again").rglob("b.txt")] == ["good day\n"]
    (code / "again.yml").write_text(json.dumps(keys | {"job_definition": f"azureml:{job}_write"}))
    made = shared("az", "ml", "batch-deployment", "create", "-f", "again.yml")
    assert "is no pipeline" in made.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("type: model\n", "needs a model or a scoring script"),
        ("type: model\nmodel: azureml:nosuch:1\n", "not found"),
        ("type: model\nmodel: {path: x}\nsettings: {output_action: rows}\n", "output_action"),
        ("type: model\nmodel: {path: x}\nsettings: {output_file_name: a/b}\n", "output_file_name"),
        ("type: pipeline\ncomponent: gone.yml\n", "gone.yml"),
        ("type: pipeline\ncomponent: {type: command, command: x}\n", "pipeline"),
    ],
)
def test_a_deployment_that_is_refused(shared: Allranks, code: Path, text: str, said: str):
    shared("endpoint", "create", "refuses", "--type", "batch")
    (code / "x").write_text("")
    (code / "d.yml").write_text("name: d\nendpoint_name: refuses\n" + text)
    done = shared("deployment", "create", "-f", "d.yml", "--type", "batch")
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "hint: " in done.stderr
