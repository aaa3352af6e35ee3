"""What commands say of the traffic of an endpoint."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.cli.endpoint.endpoint import shares, state_of, traffic_of, unanswered
from allranks.errors import UsageError


def endpoint(traffic: dict[str, int], mirror: dict[str, int], **deployment: Any) -> Any:
    blue = {"name": "blue", "instances": 1, "ready": 0, "reason": None, "takes_traffic": False}
    blue |= deployment
    return {"traffic": traffic, "mirror_traffic": mirror, "deployments": [blue]} | {
        "traffic_when_ready": {"blue": 25, "old": 75}
    }


def test_a_copy_is_shown():
    made = endpoint({"blue": 100, "old": 0}, {"green": 10})
    assert traffic_of(made) == "blue=100, copied to green=10"
    assert traffic_of(endpoint({}, {})) == "-"
    made = endpoint({"old": 100}, {}, takes_traffic=True)
    assert traffic_of(made) == "old=100 (blue=25 when it is ready)"


def test_a_deployment_without_traffic_that_failed_is_named():
    made = endpoint({"old": 100}, {}, state="Failed") | {"state": "Ready"}
    assert state_of(made) == "Ready (blue, which has no traffic: Failed)"
    made = endpoint({"blue": 100}, {}, state="Failed") | {"state": "Failed"}
    assert state_of(made) == "Failed"


@pytest.mark.parametrize(
    ("traffic", "deployment", "warning"),
    [
        ({"blue": 0}, {"ready": 1}, "requests get 404"),
        ({"blue": 100}, {"reason": "exited with code 4"}, "get 503 (exited with code 4)"),
        ({"blue": 100}, {"ready": 1}, ""),
        ({"blue": 100}, {"instances": 0}, ""),  # a request starts one
    ],
)
def test_traffic_that_nobody_answers(traffic: Any, deployment: Any, warning: str):
    lines = unanswered(endpoint(traffic, {}, **deployment))
    assert len(lines) == bool(warning)
    assert warning in "".join(lines)


def test_shares_of_a_percent_are_refused():
    with pytest.raises(UsageError) as caught:
        shares("blue=33.5", "--traffic")
    assert "whole numbers" in (caught.value.hint or "")
