"""`allranks deployment` and az's lines for it, without a server."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from allranks.cli.az import shapes
from allranks.cli.endpoint import deployment, endpoint
from allranks.cli.output.show import StatusLine
from allranks.cli.parser import parser_of
from allranks.errors import SpecError, UsageError
from allranks.spec.yaml.load import changed_keys


@pytest.mark.parametrize("command", ["create", "update"])
def test_an_endpoints_file_is_no_deployment(command: str, tmp_path: Path):
    file = tmp_path / "endpoint.yml"
    file.write_text("name: birds\nauth_mode: key\n")
    options = parser_of(f"deployment {command}").parse_args(["-f", str(file)])
    with pytest.raises(SpecError, match="endpoint_name"):
        getattr(deployment, command)(options)


@pytest.mark.parametrize(
    ("state", "word"),
    [("Ready", "Succeeded"), ("Updating", "Updating"), ("UpdateFailed", "Failed")],
)
def test_a_script_sees_the_end_of_an_update(state: str, word: str):
    assert shapes.served({"state": state})["provisioning_state"] == word


def test_without_a_terminal_each_other_reason_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    options = Namespace(quiet=False, json=False)
    progress = deployment._Progress(StatusLine(), options)
    looks = {
        1: "queued",
        11: "init() runs since 11 s",
        12: "init() runs since 12 s",
        13: "r failed",
    }
    for seconds, reason in looks.items():
        now = 100.0 + seconds
        made: Any = {"endpoint": "e", "name": "d", "ready": 0, "instances": 1, "replicas": []}
        progress.show({**made, "reason": reason})
    first, then = capsys.readouterr().err.splitlines()
    assert first == f"e/d: 0 of 1 ready ({looks[11]}); it goes on if you stop waiting: Ctrl-C"
    assert then == f"e/d: 0 of 1 ready ({looks[13]})"


@pytest.mark.parametrize(
    ("words", "why", "hint"),
    [
        (["--input", "empty", "--data", "[1]"], "a body or an input, not both", "--input for a"),
        (["--input", "empty"], "has no files to score", "name the folder that has them"),
        (["--request-file", "gone"], "cannot read the request", "a file with the body"),
    ],
)
def test_input_that_would_be_ignored(
    words: list[str], why: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty" / "folder").mkdir(parents=True)
    options = parser_of("endpoint invoke").parse_args(["digits", *words])
    with pytest.raises(UsageError, match=why) as refused:
        endpoint.invoke(options)
    assert hint in (refused.value.hint or "")


def test_keys_that_change_and_what_stays_of_them():
    spec = {"tags": {"a": "b", "x": "y"}, "traffic": {"blue": 100}, "description": "d"}
    sets = ["tags.c=d", "tags.x=null", "description=d"]
    assert changed_keys(spec, sets) == {"tags": {"a": "b", "c": "d"}}
    assert changed_keys(spec, ["description=null"]) == {"description": None}
    assert spec["tags"] == {"a": "b", "x": "y"}


def test_what_az_shows_of_a_deployment():
    """The model of its file where that is not registered."""
    data = {"state": "Ready", "endpoint": "e", "instances": 1, "takes_traffic": False}
    shown = shapes.served({**data, "model": None, "spec": {"model": {"path": "m"}}})
    assert (shown["model"], "takes_traffic" in shown) == ({"path": "m"}, False)
    shown = shapes.served({**data, "model": "azureml:m:1", "spec": {"model": "azureml:m@latest"}})
    assert shown["model"] == "azureml:m:1"


@pytest.mark.parametrize("is_there", [True, False])
def test_an_endpoint_says_what_its_deployments_are(monkeypatch: pytest.MonkeyPatch, is_there: bool):
    monkeypatch.setattr("allranks.cli.endpoint.batch.find", lambda name: {} if is_there else None)
    options = Namespace(type=None)
    data = {"name": "d", "endpoint_name": "e", "model": {"path": "m"}}
    assert deployment._is_batch(options, data) is is_there
