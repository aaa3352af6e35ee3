"""What a job's token opens behind /mlflow: each call by name, and by whose run, model or trace it
changes. Against MLflow's real server, with two jobs of one experiment."""

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.mlflow.conftest import Tracked, tracked, tracked_home  # noqa: F401
from tests.support import until

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(900)]

HOLDS = """
import json, mlflow, os, time
client = mlflow.MlflowClient()
run = mlflow.start_run().info.run_id
mlflow.log_metric("loss", 1.0)
mlflow.log_text("mine", "a.txt")
model = mlflow.initialize_logged_model(name="net")
os.makedirs("m", exist_ok=True)
open("m/weights", "w").write("w")
client.log_model_artifacts(model.model_id, "m")
with mlflow.start_span("work") as span:
    trace = span.trace_id
mlflow.flush_trace_async_logging()
client.create_registered_model(os.environ["NAME"])
experiment = mlflow.get_run(run).info.experiment_id
found = dict(run=run, model=model.model_id, trace=trace, experiment=experiment,
             uri=os.environ["MLFLOW_TRACKING_URI"], token=os.environ["MLFLOW_TRACKING_TOKEN"])
open(os.environ["TOLD"], "w").write(json.dumps(found))
os.rename(os.environ["TOLD"], os.environ["TOLD"] + ".json")
time.sleep(600)
"""


class Held(NamedTuple):
    """A live job, and what it holds."""

    run: str
    model: str
    trace: str
    experiment: str
    uri: str
    token: str

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        data = json.dumps(body).encode() if body is not None else None
        kind = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.uri + path, data, kind, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


@pytest.fixture(scope="module")
def two(
    tracked_home: Path,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Held, Held]]:
    from tests.frameworks.environments import environment  # lazy: as conftest has it
    from tests.support import command_line

    code = tmp_path_factory.mktemp("code")
    python = str(environment("mlflow3") / "bin" / "python")
    home = Tracked(tracked_home, code, command_line(tracked_home, code), python)
    assert home.allranks("server", "start").returncode == 0
    (code / "script.py").write_text(HOLDS)
    names, found = [f"holds-{word}-{uuid.uuid4().hex[:8]}" for word in ("one", "two")], []
    for name in names:
        told = code.parent / f"{name}-told"
        variables = [f"NAME={name}", f"TOLD={told}"]
        words = ["--detach", "--name", name, "--experiment", "shared"]
        words += [word for each in variables for word in ("--env", each)]
        done = home.allranks("run", *words, "--", "python", "script.py", client="mlflow3")
        assert done.returncode == 0, done.stderr
        until(lambda told=told: Path(f"{told}.json").exists(), 240)
        found.append(Held(**json.loads(Path(f"{told}.json").read_text())))
    yield found[0], found[1]
    for name in names:
        home.allranks("job", "cancel", name)
        home.allranks("job", "wait", name)


API, API3 = "/api/2.0/mlflow/", "/api/3.0/mlflow/"
FILES = "/api/2.0/mlflow-artifacts/artifacts/"
# What would change or delete what another job holds: {run}, {model}, {trace}, {experiment} are its.
REFUSED = [
    ("POST", API + "runs/log-metric", {"run_id": "{run}", "key": "k", "value": 1, "timestamp": 1}),
    ("POST", API + "runs/log-batch", {"runId": "{run}", "metrics": []}),
    ("POST", API + "runs/set-tag", {"run_uuid": "{run}", "key": "k", "value": "v"}),
    ("POST", API + "runs/update", {"run_id": "{run}", "status": "FAILED"}),
    ("POST", API + "runs/delete", {"run_id": "{run}"}),
    ("POST", API + "runs/restore", {"run_id": "{run}"}),
    ("POST", API + "runs/outputs", {"run_id": "{run}", "models": []}),
    ("POST", "/ajax-api/2.0/mlflow/runs/delete", {"run_id": "{run}"}),
    ("POST", "/ajax-api/2.0/mlflow/runs/create-promptlab-run", {"experiment_id": "{experiment}"}),
    ("POST", "/ajax-api/2.0/mlflow/upload-artifact?run_uuid={run}&path=x", {}),
    ("PUT", FILES + "{experiment}/{run}/artifacts/a.txt", "x"),
    ("DELETE", FILES + "{experiment}/{run}/artifacts", None),
    ("DELETE", FILES + "{experiment}/models", None),
    ("DELETE", FILES + "{experiment}/models/", None),
    ("DELETE", FILES + "{experiment}/traces", None),
    ("DELETE", FILES + "{experiment}", None),
    ("DELETE", FILES + "{experiment}/models/{model}", None),
    ("PUT", FILES + "{experiment}/models/{model}/artifacts/weights", "x"),
    ("PUT", FILES + "{experiment}/traces/{trace}/artifacts/traces.json", "x"),
    ("PUT", FILES + "{experiment}/{mine}/../{run}/artifacts/a.txt", "x"),
    ("PUT", FILES + "{experiment}/{mine}/%2e%2e/{run}/artifacts/a.txt", "x"),
    ("PUT", FILES + "{experiment}/{mine}/%252e%252e/{run}/artifacts/a.txt", "x"),
    ("PUT", FILES + "{experiment}/{mine}%2f..%2f{run}/artifacts/a.txt", "x"),
    ("PUT", FILES + "{experiment}/{mine}/..%5c{run}/a.txt", "x"),
    ("GET", FILES + "{experiment}/%2e%2e/%2e%2e/mlflow.db", None),
    ("GET", FILES + "%252e%252e/%252e%252e/mlflow.db", None),
    ("POST", "/api/2.0/mlflow-artifacts/mpu/create/{experiment}/{run}/artifacts/x", {"path": "x"}),
    ("POST", API + "logged-models", {"name": "x", "source_run_id": "{run}"}),
    ("PATCH", API + "logged-models/{model}", {"status": "LOGGED_MODEL_UPLOAD_FAILED"}),
    ("PATCH", API + "logged-models/{model}/tags", {"tags": [{"key": "a", "value": "b"}]}),
    ("POST", API + "logged-models/{model}/params", {"params": []}),
    ("DELETE", API + "logged-models/{model}", {}),
    ("DELETE", API + "logged-models/{model}/tags/a", {}),
    ("PATCH", API + "traces/{trace}/tags", {"key": "a", "value": "b"}),
    ("PATCH", API3 + "traces/{trace}/tags", {"key": "a", "value": "b"}),
    ("DELETE", API3 + "traces/{trace}/tags", {"key": "a"}),
    ("POST", API3 + "traces/{trace}/assessments", {"assessment": {}}),
    ("POST", API3 + "traces/delete-traces", {"experiment_id": "{experiment}"}),
    ("POST", API + "traces/link-to-run", {"trace_ids": ["{trace}"], "run_id": "{mine}"}),
    ("POST", API3 + "traces", {"trace": {"trace_info": {"trace_id": "{trace}"}}}),
    ("POST", API + "experiments/delete", {"experiment_id": "{experiment}"}),
    ("POST", API + "experiments/update", {"experiment_id": "{experiment}", "new_name": "x"}),
    ("POST", API + "experiments/restore", {"experiment_id": "{experiment}"}),
    ("POST", API + "registered-models/rename", {"name": "x", "new_name": "y"}),
    ("DELETE", API + "registered-models/delete", {"name": "x"}),
    ("DELETE", API + "registered-models/alias", {"name": "x", "alias": "y"}),
    ("DELETE", API + "model-versions/delete", {"name": "x", "version": "1"}),
    ("POST", API + "model-versions/create", {"name": "x", "source": "x", "run_id": "{run}"}),
    ("POST", API + "model-versions/create", {"name": "x", "source": "x", "model_id": "{model}"}),
    ("POST", API + "webhooks", {"name": "x", "url": "http://x"}),
    ("GET", API + "webhooks", None),
    ("GET", "/ajax-api/2.0/mlflow/gateway-proxy?gateway_path=x", None),
    ("GET", API3 + "gateway/secrets/list", None),
    ("POST", API3 + "gateway/secrets/create", {}),
    ("POST", API3 + "datasets/create", {"name": "x"}),
    ("POST", API3 + "scorers/register", {}),
    ("POST", API3 + "issues", {}),
    ("GET", API3 + "workspaces", None),
    ("POST", "/ajax-api/3.0/jobs/", {}),
    ("GET", "/graphql?query=x", None),
    ("POST", "/graphql", {"query": "x"}),
    ("POST", "/gateway/x/mlflow/invocations", {}),
    ("GET", "/docs", None),
    ("GET", "/openapi.json", None),
]


@pytest.mark.parametrize(("method", "path", "body"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_another_job_holds_stays(
    two: tuple[Held, Held], method: str, path: str, body: Any
) -> None:
    other, mine = two
    text = json.dumps([path, body])
    for name, value in (*other._asdict().items(), ("mine", mine.run)):
        text = text.replace("{" + name + "}", value)
    path, body = json.loads(text)
    status, answer = mine.ask(method, path, body)
    assert status == 403, answer
    assert json.loads(answer)["error_code"] == "PERMISSION_DENIED"


def test_and_is_all_there(two: tuple[Held, Held]) -> None:
    other, _ = two
    assert other.ask("GET", f"{FILES}{other.experiment}/{other.run}/artifacts/a.txt")[1] == b"mine"
    weights = f"{FILES}{other.experiment}/models/{other.model}/artifacts/weights"
    assert other.ask("GET", weights) == (200, b"w")
    status, told = other.ask("GET", f"{API}runs/get?run_id={other.run}")
    assert status == 200
    run = json.loads(told)["run"]
    assert run["info"]["status"] == "RUNNING"
    assert "k" not in {each["key"] for each in run["data"]["metrics"]}
    status, told = other.ask("GET", f"{API3}traces/{other.trace}")
    assert status == 200, told


def test_a_job_does_all_that_with_what_is_its_own(two: tuple[Held, Held]) -> None:
    _, mine = two
    tag = {"key": "a", "value": "b"}
    base = f"{FILES}{mine.experiment}/models/{mine.model}/artifacts/more"
    for method, path, body in [
        ("POST", API + "runs/set-tag", {"run_id": mine.run, **tag}),
        ("PATCH", f"{API}logged-models/{mine.model}/tags", {"tags": [tag]}),
        ("DELETE", f"{API}logged-models/{mine.model}/tags/a", {}),
        ("PUT", base, "x"),
        ("DELETE", base, None),
        ("PATCH", f"{API3}traces/{mine.trace}/tags", tag),
        ("POST", API + "logged-models", {"name": "other", "source_run_id": mine.run}),
        ("PUT", f"{FILES}{mine.experiment}/{mine.run}/artifacts/b%20%25.txt", "x"),
    ]:
        status, answer = mine.ask(method, path, body)
        assert status in (200, 204), (method, path, answer)


def test_a_model_is_not_taken_over_by_its_tags(two: tuple[Held, Held]) -> None:
    _, mine = two
    forged = {"tags": [{"key": "allranks.run", "value": "0" * 32}]}
    assert mine.ask("PATCH", f"{API}logged-models/{mine.model}/tags", forged)[0] == 403


def test_jobs_read_what_others_logged(two: tuple[Held, Held]) -> None:
    other, mine = two
    for method, path, body in [
        ("GET", f"{API}runs/get?run_id={other.run}", None),
        ("GET", f"{API}logged-models/{other.model}", None),
        ("GET", f"{FILES}{other.experiment}/{other.run}/artifacts/a.txt", None),
        ("GET", f"{API}artifacts/list?run_id={other.run}", None),
        ("POST", API + "runs/search", {"experiment_ids": [other.experiment]}),
        ("POST", API + "logged-models/search", {"experiment_ids": [other.experiment]}),
        ("GET", API + "registered-models/search", None),
        ("GET", "/version", None),
    ]:
        assert mine.ask(method, path, body)[0] == 200, path
