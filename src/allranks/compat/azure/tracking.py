"""What programs ask a workspace for: its id, and where MLflow logs."""

from __future__ import annotations

import os

from allranks.sdk.connection import find_server

_TOKEN = "MLFLOW_TRACKING_TOKEN"
# The token that this process has set last.
_ours: str | None = None
_NOBODY = "00000000-0000-0000-0000-000000000000"


def arm_id(subscription: str, group: str, workspace: str) -> str:
    """The id of a workspace as Azure writes it."""
    where = f"/subscriptions/{subscription or _NOBODY}/resourceGroups/{group or 'allranks'}"
    return f"{where}/providers/Microsoft.MachineLearningServices/workspaces/{workspace}"


def mlflow_tracking_uri() -> str:
    """Where MLflow's clients log. Azure's plugin of MLflow signs requests by itself; here MLflow
    finds the token in MLFLOW_TRACKING_TOKEN, which is set unless the program or its user did."""
    global _ours
    with find_server.connect() as client:
        if os.environ.get(_TOKEN, _ours) == _ours:
            os.environ[_TOKEN] = _ours = client.token
        return f"{client.url}/mlflow"
