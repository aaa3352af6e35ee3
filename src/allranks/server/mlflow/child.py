"""MLflow's own server as a child process. MLflow is never imported here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

from allranks.server.http.child_server import ChildServer
from allranks.settings import Home

# The path of a Python with MLflow, if this server's own does not have it.
PYTHON = "ALLRANKS_MLFLOW_PYTHON"


def python() -> str | None:
    """The Python that has MLflow with its server, or None."""
    path = os.environ.get(PYTHON)
    if path:
        return path
    # `mlflow-skinny` is also imported as mlflow but has no server.
    has = find_spec("mlflow") is not None and find_spec("flask") is not None
    return sys.executable if has else None


class Child(ChildServer):
    """``anew`` is called before a start with an empty database."""

    title = "MLflow's server"
    health = "/health"

    def __init__(self, home: Home, python: str, anew: Callable[[], None]) -> None:
        super().__init__(home.mlflow)
        self._python, self._anew = python, anew

    def before_start(self) -> None:
        if not (self._folder / "mlflow.db").exists():
            self._anew()

    def command(self, socket: str) -> Sequence[str]:
        # Relative paths, so that the home's name needs no quoting. Its host check uses the host and
        # port; it listens on the socket only.
        return [
            self._python,
            "-P",
            "-m",
            "mlflow",
            "server",
            "--workers",
            "1",
            "--host",
            "127.0.0.1",
            "--port",
            "5000",
            "--uvicorn-opts",
            f"--uds {socket}",
            "--backend-store-uri",
            "sqlite:///mlflow.db",
            "--serve-artifacts",
            "--artifacts-destination",
            "./artifacts",
        ]

    def environment(self) -> Mapping[str, str]:
        return {
            "ALLRANKS_MLFLOW": str(self._folder),  # marks its processes in `ps`
            "PYTHONSAFEPATH": "1",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
            "GIT_PYTHON_REFRESH": "quiet",
        }

    def hint(self) -> str:
        return "see that log; check with `python -m mlflow server` whether MLflow works"
