"""What `job restart` sends, and what the server makes of it."""

from typing import Any

import pytest

from allranks.core.job.code_packages import NOT_RECORDED
from allranks.errors import UsageError
from allranks.sdk.submit import restart as restarting
from allranks.server.submission import restart as server


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (None, None),
        ("current", None),
        ("azureml:a:1", "azureml:a:1"),
        ({"image": "i"}, "{'image': 'i'}"),
    ],
)
def test_packages_go_along_with_other_code_only_in_the_submitters_environment(
    monkeypatch: pytest.MonkeyPatch, environment: object, expected: str | None
) -> None:
    prepared: list[dict[str, Any]] = []

    def prepare(spec: dict[str, Any], *_: object, **__: object) -> tuple[dict[str, Any], tuple[()]]:
        prepared.append(spec)
        return {}, ()

    job = {"spec": {"environment": environment}}
    monkeypatch.setattr(restarting, "prepare", prepare)
    monkeypatch.setattr("allranks.sdk.connection.find_server.ask", lambda *_: job)
    with pytest.raises(UsageError, match="there is no code to run"):
        restarting.restart("j", code="here")
    assert prepared[0]["environment"] == expected


def test_other_code_has_its_own_properties() -> None:
    before = {"azureml.git.commit": "1", NOT_RECORDED: "lib", "mine": "kept"}
    code = server.Code("digest", "/path", {"azureml.git.commit": "2"})
    spec = server._with_code({"properties": before}, code)
    assert spec["properties"] == {"mine": "kept", "azureml.git.commit": "2"}
