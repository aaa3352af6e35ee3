"""What a server imports before its first answer."""

import subprocess
import sys

import pytest

# By what they cost: a cold `allranks run` waits for each of them.
LIBRARIES = [
    *("fastapi", "alembic", "cryptography", "yaml", "obstore", "jmespath", "cronsim", "jinja2"),
    *("kubernetes", "mlflow", "optuna", "psycopg", "numpy", "httpx", "uv", "tarfile"),
    "sqlalchemy.dialects.postgresql",
]
OURS = [
    *("engines.slurm", "engines.ray", "engines.kubernetes", "server.storage", "spec.yaml"),
    *("server.parents.sweep", "server.parents.pipeline", "spec.sweep", "spec.pipeline"),
    *("core.diagnosis.explain", "core.schedule", "core.insights", "server.jobs.explain"),
    *("server.ending.failure", "server.api.openapi", "sdk", "cli", "agent.monitoring"),
]
START = "import allranks.server.__main__, allranks.server.app, allranks.http_limits.server"


def imported(code: str) -> set[str]:
    code += "; import sys; print(*sys.modules, sep='\\n')"
    argv = [sys.executable, "-P", "-c", code]
    return {*subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()}


@pytest.mark.medium
def test_a_server_imports_no_routes_and_nothing_that_few_requests_need() -> None:
    found = imported(START)
    heavy = [*LIBRARIES, *(f"allranks.{name}" for name in OURS)]
    assert [name for name in heavy if name in found] == []
    routes = {name for name in found if name.startswith("allranks.server.api.routes.")}
    assert routes == {"allranks.server.api.routes.mlflow", "allranks.server.api.routes.ui"}


@pytest.mark.medium
def test_nor_does_the_first_job() -> None:
    found = imported(f"{START}; import allranks.server.api.routes.jobs")
    heavy = [*LIBRARIES, *(f"allranks.{name}" for name in OURS)]
    assert [name for name in heavy if name in found] == []
