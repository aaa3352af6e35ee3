"""Twenty files in the manner of Azure's public examples, each with its request."""

from __future__ import annotations

import functools
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers import image
from tests.containers.conftest import Podman, podman
from tests.frameworks.environments import environment
from tests.support import Allranks, answer, command_line, leave_nothing

__all__ = ["podman"]  # the fixture
pytestmark = [pytest.mark.slow, pytest.mark.frameworks, pytest.mark.containers, pytest.mark.heavy]

MODELS = """
import mlflow.sklearn, os, pickle
from sklearn.linear_model import LinearRegression
model = LinearRegression(fit_intercept=False).fit([[1.0]], [2.0])
os.makedirs("models")
for name in ("models/first.pkl", "models/second.pkl", "model.pkl"):
    with open(name, "wb") as file: pickle.dump(model, file)
mlflow.sklearn.save_model(model, "mlflow-model")
"""
SCORE = """
import json, logging, os, pickle
def init():
    global model
    with open(os.path.join(os.getenv("AZUREML_MODEL_DIR"), "model.pkl"), "rb") as file:
        model = pickle.load(file)
    logging.info("Init complete")
def run(raw_data):
    data = json.loads(raw_data)["data"]
    return model.predict(data).round(3).tolist()
"""
SEVERAL = """
import json, os, pickle
def init():
    global models
    folder = os.path.join(os.environ["AZUREML_MODEL_DIR"], "models")
    models = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file: models[name] = pickle.load(file)
def run(raw_data):
    request = json.loads(raw_data)
    return {request["model"]: models[request["model"]].predict(request["data"]).round(3).tolist()}
"""
RAW = """
from azureml.contrib.services.aml_request import AMLRequest, rawhttp
from azureml.contrib.services.aml_response import AMLResponse
def init(): pass
@rawhttp
def run(request):
    return AMLResponse(request.get_data().decode().upper(), 200)
"""
MLFLOW = """
import json, os, mlflow
def init():
    global model
    model = mlflow.pyfunc.load_model(os.path.join(os.environ["AZUREML_MODEL_DIR"], "mlflow-model"))
def run(raw_data):
    return model.predict(json.loads(raw_data)["input_data"]).round(3).tolist()
"""
PACKAGE = """
import packaging
def init(): pass
def run(raw_data): return packaging.__version__
"""
# As model servers: a port and paths of its own, a folder of models by name and version.
SERVER = """
import http.server, json, os, sys
model = os.path.join(os.environ["MODEL_BASE_PATH"], os.environ["MODEL_NAME"], "weights.txt")
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, data):
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(200 if self.path == "/v1/models/half" else 404, {"state": "AVAILABLE"})
    def do_POST(self):
        data = json.loads(self.rfile.read(int(self.headers["content-length"])))
        half = [item / 2 for item in data["instances"]] + [open(model).read()]
        self.answer(200 if self.path == "/v1/models/half:predict" else 404, {"predictions": half})
http.server.ThreadingHTTPServer(("0.0.0.0", int((sys.argv + [8501])[1])), Handler).serve_forever()
"""
BATCH = """
import os, pathlib
def init(): pass
def run(mini_batch):
    return [f"{os.path.basename(file)},{pathlib.Path(file).stat().st_size}" for file in mini_batch]
"""
SUMMARY = """
import os, pathlib
def init(): pass
def run(mini_batch):
    for file in mini_batch:
        name = os.path.basename(file)
        pathlib.Path(os.environ["AZUREML_BI_OUTPUT_PATH"], name).write_text("scored")
    return mini_batch
"""
SCHEMA = "$schema: https://azuremlschemas.azureedge.net/latest/%s.schema.json\n"
MANAGED = SCHEMA % "managedOnlineDeployment" + (
    "name: blue\nendpoint_name: my-endpoint\ninstance_type: Standard_DS3_v2\ninstance_count: 1\n"
)
SCRIPT = "code_configuration: {code: onlinescoring, scoring_script: %s}\n"
SINGLE = MANAGED + "model: {path: model.pkl}\n" + SCRIPT % "score.py"
ROUTES = """
  inference_config:
    liveness_route: {port: 8501, path: /v1/models/half}
    readiness_route: {port: 8501, path: /v1/models/half}
    scoring_route: {port: 8501, path: /v1/models/half:predict}
"""
HALF = ({"instances": [1.0, 2.0]}, {"predictions": [0.5, 1.0, "heavy"]})
TWICE = ({"data": [[1], [2]]}, [2.0, 4.0])
TABLE = ({"input_data": {"columns": [0], "data": [[1], [2]]}}, [2.0, 4.0])

# What a deployment is, its request, and the answer.
ONLINE: dict[str, tuple[str, object, object]] = {
    "single-model": (SINGLE, *TWICE),
    "several-models": (
        MANAGED + "model: {name: pair, version: 1, path: models}\n" + SCRIPT % "several.py",
        {"model": "second.pkl", "data": [[3]]},
        {"second.pkl": [6.0]},
    ),
    "requests-and-probes": (
        SINGLE
        + "request_settings: {request_timeout_ms: 3000, max_concurrent_requests_per_instance: 4, "
        "max_queue_wait_ms: 3000}\n"
        "liveness_probe: {initial_delay: 1, period: 5, timeout: 2, failure_threshold: 30}\n"
        "readiness_probe: {initial_delay: 1, period: 5, timeout: 2, success_threshold: 1}\n",
        *TWICE,
    ),
    "autoscale": (
        SINGLE + "scale_settings: {type: target_utilization, min_instances: 1, max_instances: 2, "
        "polling_interval: 1, target_utilization_percentage: 70}\n",
        *TWICE,
    ),
    "collected": (
        SINGLE
        + "app_insights_enabled: true\negress_public_network_access: enabled\n"
        + "data_collector: {collections: {model_inputs: {enabled: 'True'}}}\n",
        *TWICE,
    ),
    "raw-http": (MANAGED + SCRIPT % "raw.py", "shout", "SHOUT"),
    "conda-inline": (
        MANAGED
        + SCRIPT % "package.py"
        + "environment:\n  image: mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04:latest\n"
        "  conda_file: {channels: [conda-forge], dependencies: [python=3.11, pip, "
        "{pip: ['packaging==24.2']}]}\n",
        {},
        "24.2",
    ),
    "conda-file": (
        MANAGED + SCRIPT % "package.py" + "environment: {conda_file: environment/conda.yml, "
        "image: 'mcr.microsoft.com/azureml/minimal-ubuntu22.04-py39-cpu-inference:latest'}\n",
        {},
        "24.2",
    ),
    "dockerfile": (
        MANAGED
        + SCRIPT % "package.py"
        + "environment: {build: {path: docker, dockerfile_path: Dockerfile}}\n",
        {},
        "24.1",
    ),
    "mlflow-without-code": (
        MANAGED + "model: {path: mlflow-model, type: mlflow_model}\n",
        *TABLE,
    ),
    "mlflow-with-code": (
        MANAGED + "model: {path: mlflow-model, type: mlflow_model}\n" + SCRIPT % "mlflow_score.py",
        {"input_data": [[4]]},
        [8.0],
    ),
    "kubernetes": (
        SCHEMA % "kubernetesOnlineDeployment"
        + "name: blue\ntype: kubernetes\nendpoint_name: my-endpoint\nmodel: {path: model.pkl}\n"
        + SCRIPT % "score.py"
        + "request_settings: {request_timeout_ms: 3000}\n"
        "resources: {requests: {cpu: '0.1', memory: 0.1Gi}, limits: {cpu: '1', memory: 1Gi}}\n"
        "instance_type: cpu-small\n",
        *TWICE,
    ),
    "tf-serving-like": (
        MANAGED
        + "model: {name: half-mounted, version: 1, path: half}\n"
        + "model_mount_path: /var/tfserving-model-mount\n"
        + "environment_variables: {MODEL_NAME: half, "
        "MODEL_BASE_PATH: /var/tfserving-model-mount/half-mounted/1}\n"
        + f"environment:\n  image: localhost/serving:1{ROUTES}",
        *HALF,
    ),
    "torchserve-like": (
        MANAGED
        + "model: {name: half-mounted, version: 1, path: half}\n"
        + "environment_variables: {MODEL_NAME: half, "
        "MODEL_BASE_PATH: /var/azureml-app/azureml-models/half-mounted/1}\n"
        + f"environment:\n  build: {{path: served, dockerfile_path: Dockerfile}}{ROUTES}",
        *HALF,
    ),
    "container-with-command": (
        MANAGED
        + "command: MODEL_NAME=half MODEL_BASE_PATH=$PWD python3 /srv/server.py $PORT\ncode: .\n"
        + f"environment:\n  image: localhost/serving:1{ROUTES}",
        *HALF,
    ),
}


BATCH_OF = SCHEMA % "modelBatchDeployment" + (
    "name: blue\nendpoint_name: my-batch\nresources: {instance_count: 1}\n"
)
SETTINGS = """\
settings:
  mini_batch_size: 1
  max_concurrency_per_instance: 2
  output_action: %s
  error_threshold: -1
  retry_settings: {max_retries: 2, timeout: 300}
  logging_level: info
"""
BATCH_SCRIPT = "code_configuration: {code: batch, scoring_script: %s}\n"
# What a deployment is, and lines of files in its output.
BATCHES: dict[str, tuple[str, dict[str, list[str]]]] = {
    "batch-mlflow": (
        BATCH_OF
        + "type: model\nmodel: {path: mlflow-model, type: mlflow_model}\n"
        + SETTINGS % "append_row"
        + "  output_file_name: predictions.csv\n",
        {"predictions.csv": ['[0, 2.0, "a.csv"]', '[0, 4.0, "b.csv"]', ""]},
    ),
    "batch-script": (
        BATCH_OF
        + "type: model\nmodel: {path: model.pkl}\n"
        + BATCH_SCRIPT % "score.py"
        + SETTINGS % "append_row"
        + "  output_file_name: rows.csv\n",
        {"rows.csv": ["a.csv,4", "b.csv,4", ""]},
    ),
    "batch-summary": (
        BATCH_OF
        + "model: {path: model.pkl}\n"
        + BATCH_SCRIPT % "summary.py"
        + SETTINGS % "summary_only",
        {"a.csv": ["scored"], "b.csv": ["scored"]},
    ),
    "batch-pipeline": (
        SCHEMA % "pipelineComponentBatchDeployment"
        + "name: blue\nendpoint_name: my-batch\ntype: pipeline\ncomponent: chain.yml\n"
        + "settings: {continue_on_step_failure: false}\n",
        {"count": ["2", ""]},
    ),
}
CHAIN = """
type: pipeline
name: chain
inputs: {data: {type: uri_folder}}
outputs: {score: {type: uri_folder}}
jobs:
  count:
    command: ls ${{inputs.data}} | wc -l > ${{outputs.score}}/count
    inputs: {data: '${{parent.inputs.data}}'}
    outputs: {score: '${{parent.outputs.score}}'}
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the files name."""
    folder = tmp_path_factory.mktemp("files")
    python = environment("mlflow3") / "bin" / "python"
    subprocess.run([python, "-W", "ignore", "-c", MODELS], cwd=folder, check=True)
    several = {
        "onlinescoring/score.py": SCORE,
        "onlinescoring/several.py": SEVERAL,
        "onlinescoring/raw.py": RAW,
        "onlinescoring/package.py": PACKAGE,
        "onlinescoring/mlflow_score.py": MLFLOW,
        "half/weights.txt": "heavy",
        "docker/Dockerfile": (
            "FROM mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04\n"
            "RUN pip install packaging==24.1\n"
        ),
        "served/Dockerfile": "FROM localhost/serving:1\nENV SERVED=yes\n",
        "chain.yml": CHAIN,
        "environment/conda.yml": (
            "name: model-env\nchannels: [conda-forge]\n"
            "dependencies: [python=3.11, pip, {pip: ['packaging==24.2']}]\n"
        ),
        "batch/score.py": BATCH,
        "batch/summary.py": SUMMARY,
        "mini/a.csv": "0\n1\n",
        "mini/b.csv": "0\n2\n",
    }
    for name, text in several.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture(scope="module")
def line(
    podman: Podman, files: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Allranks]:
    """The command line, with MLflow's Python as the current one, and an image that starts a server
    by itself."""
    file = tmp_path_factory.mktemp("image") / "image.tar"
    image.write(file)
    with tarfile.open(file, "a") as tar:
        for program in ("mkdir", "ln"):
            tar.add(os.path.realpath(str(shutil.which(program))), f"usr/bin/{program}")
        entry = tarfile.TarInfo("srv/server.py")
        entry.size = len(SERVER.encode())
        tar.addfile(entry, io.BytesIO(SERVER.encode()))
    changes = (
        f"ENV PATH={image.PYTHON}:/usr/bin:/bin",
        "WORKDIR /srv",
        'ENTRYPOINT ["python3"]',
        'CMD ["server.py"]',
    )
    words = [word for change in changes for word in ("--change", change)]
    podman("import", *words, str(file), "localhost/serving:1")
    file.unlink()
    path = f"{podman.folder}:{os.environ['PATH']}"
    env = {"PATH": path, "VIRTUAL_ENV": str(environment("mlflow3"))}
    home = tmp_path_factory.mktemp("of") / "home"
    yield functools.partial(command_line(home, files), env=env)
    leave_nothing(home)


@pytest.mark.parametrize("name", ONLINE)
def test_online(name: str, line: Allranks, files: Path) -> None:
    text, body, expected = ONLINE[name]
    (files / "deployment.yml").write_text(text)
    # Without containers the images of Azure's environments are left out: nobody has them here.
    containers = "podman" if "localhost/serving" in text or "served" in text else ""
    made = line("compute", "update", "local", "--container", containers)
    assert made.returncode == 0, made.stderr
    assert line("endpoint", "create", name).returncode == 0
    words = ("az", "ml", "online-deployment", "create", "-f", "deployment.yml", "-e", name)
    made = line(*words, "--all-traffic", timeout=300)
    assert made.returncode == 0, made.stderr
    assert ("no effect here: data_collector" in made.stderr) == (name == "collected")
    (files / "request.json").write_text(body if isinstance(body, str) else json.dumps(body))
    words = ("invoke", "-n", name, "--request-file", "request.json", "-o", "tsv")
    done = line("az", "ml", "online-endpoint", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == expected or json.loads(done.stdout) == expected
    if name == "tf-serving-like":  # as a caller does
        uri = answer(line, "endpoint", "show", name)["scoring_uri"]
        assert uri.endswith(f"/endpoints/{name}/v1/models/half:predict")
        update = line("deployment", "update", "blue", "-e", name, "--instance-count", "2")
        assert update.returncode == 0, "each has its port in a network of its own"
    assert line("endpoint", "delete", name, "--yes").returncode == 0


def test_triton_is_refused_by_name(line: Allranks, files: Path) -> None:
    (files / "deployment.yml").write_text(MANAGED + "model: {path: half, type: triton_model}\n")
    made = line("az", "ml", "online-deployment", "create", "-f", "deployment.yml")
    assert made.returncode != 0
    assert "Triton is not started here" in made.stderr


@pytest.mark.parametrize("name", BATCHES)
def test_batch(name: str, line: Allranks, files: Path, tmp_path: Path) -> None:
    text, expected = BATCHES[name]
    (files / "deployment.yml").write_text(text)
    az = ("az", "ml", "batch-endpoint")
    made = line(*az, "create", "-n", name)
    assert made.returncode == 0, made.stderr
    words = ("az", "ml", "batch-deployment", "create", "-f", "deployment.yml", "-e", name)
    made = line(*words, "--set-default", timeout=300)
    assert made.returncode == 0, made.stderr
    words = ("invoke", "-n", name, "--input", "mini", "--query", "name", "-o", "tsv")
    job = line(*az, *words).stdout.strip()
    done = line("az", "ml", "job", "stream", "-n", job, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    words = ("job", "download", "-n", job, "--output-name", "score", "-p", str(tmp_path))
    assert line("az", "ml", *words).returncode == 0
    rows = {
        path.name: path.read_text().split("\n")
        for path in (tmp_path / "named-outputs" / "score").iterdir()
    }
    assert {name: rows[name] for name in expected} == expected
