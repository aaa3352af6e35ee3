"""A home with MLflow's real server, shared by the tests here: it takes seconds to start."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import psutil
import pytest

from tests.frameworks.environments import environment
from tests.support import Allranks, command_line, leave_nothing, processes_of


class Tracked(NamedTuple):
    """A home that has MLflow, and its command line in a folder of the test's."""

    home: Path
    code: Path
    run: Allranks
    python: str

    def allranks(self, *words: object, client: str = "", **options: Any) -> Any:
        """The command line, with ``client``'s environment in front."""
        env = {"ALLRANKS_MLFLOW_PYTHON": self.python, **options.pop("env", {})}
        if client:
            env["VIRTUAL_ENV"] = str(environment(client))
        return self.run(*words, env=env, **{"timeout": 240, **options})

    def job(self, script: str, *words: object, client: str = "mlflow3") -> str:
        """Run a script as a job to its end, and its output."""
        (self.code / "script.py").write_text(script)
        done = self.allranks("run", *words, "--", "python", "script.py", client=client)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    def shown(self, *words: object) -> Any:
        done = self.allranks(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @property
    def url(self) -> str:
        return str(json.loads((self.home / "server.json").read_text())["url"])

    def ask(self, path: str, data: Any = None, **headers: str) -> tuple[int, Any]:
        """MLflow's answer, to a person unless ``headers`` say otherwise."""
        token = (self.home / "token").read_text().strip()
        body = None if data is None else json.dumps(data).encode()
        given = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"{self.url}/mlflow{path}", body, given)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def mlflow(self, path: str, data: Any = None) -> Any:
        status, answer = self.ask(f"/api/2.0/mlflow/{path}", data)
        assert status == 200, answer
        return json.loads(answer)

    def runs(self, job: str) -> list[dict[str, Any]]:
        """The job's run, and after it those that its script began."""
        experiments = self.mlflow("experiments/search", {"max_results": 100})["experiments"]
        asked = {
            "experiment_ids": [each["experiment_id"] for each in experiments],
            "filter": f"tags.`allranks.job` = '{job}'",
            "order_by": ["attributes.start_time"],
        }
        found = self.mlflow("runs/search", asked).get("runs", [])
        return sorted(found, key=lambda run: "mlflow.parentRunId" in tags(run))

    def status(self, job: str) -> str:
        """Of the job's run; empty when there is none yet."""
        return str(found[0]["info"]["status"]) if (found := self.runs(job)) else ""

    def child(self, word: str) -> list[psutil.Process]:
        """Processes of MLflow's server with that word on their command line."""
        of = f"ALLRANKS_MLFLOW={self.home / 'mlflow'}"
        found = [e for e in processes_of(self.home) if of in map("=".join, e.environ().items())]
        return [each for each in found if word in each.cmdline()]

    def history(self, run: dict[str, Any], key: str) -> list[tuple[int, float]]:
        """Step and value of every point."""
        path = f"metrics/get-history?run_id={run['info']['run_id']}&metric_key={quote(key)}"
        told = self.mlflow(path).get("metrics", [])
        return [(int(each.get("step", 0)), each["value"]) for each in told]


def tags(run: dict[str, Any]) -> dict[str, str]:
    return {each["key"]: each["value"] for each in run["data"]["tags"]}


def params(run: dict[str, Any]) -> dict[str, str]:
    return {each["key"]: each["value"] for each in run["data"].get("params", ())}


@pytest.fixture(scope="session")
def tracked_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("mlflow") / "h'ome $(x)"
    yield path
    leave_nothing(path)


@pytest.fixture
def tracked(tracked_home: Path, code: Path) -> Tracked:
    python = str(environment("mlflow3") / "bin" / "python")
    found = Tracked(tracked_home, code, command_line(tracked_home, code), python)
    assert found.allranks("server", "start").returncode == 0
    return found
