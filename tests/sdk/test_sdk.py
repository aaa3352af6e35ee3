"""The Python door: the same models, the same server, the same errors."""

import io
import subprocess
import sys

import pytest

import allranks
from allranks import (
    Client,
    Input,
    Output,
    PyTorchDistribution,
    SpecError,
    TensorFlowDistribution,
    command,
    load_job,
)
from tests.support import environment

# Real servers and processes, about half a second a test.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(shared_home):
    return Client()


@pytest.fixture(autouse=True)
def in_the_shared_home(shared_home, monkeypatch, code):
    for name in ("ALLRANKS_HOME", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, environment(shared_home)[name])
    monkeypatch.chdir(code)


def test_a_job_from_python(client, code):
    (code / "data").mkdir()
    (code / "train.py").write_text("import os, sys; print(os.environ['RANK'], sys.argv[1:])")
    made = client.jobs.create_or_update(
        command(
            command="python train.py ${{inputs.data}} ${{inputs.lr}} > ${{outputs.o}}/$RANK; "
            "cat ${{outputs.o}}/$RANK",
            code=".",
            inputs={"data": Input(path="data"), "lr": 0.5},
            outputs={"o": Output()},
            distribution=PyTorchDistribution(process_count_per_instance=2),
            instance_count=1,
            timeout=60,
        )
    )
    heard = io.StringIO()
    done = client.jobs.stream(made.name, to=heard)
    assert (done.status, done.exit_code) == ("Completed", 0)
    data = str(code / "data")
    assert sorted(heard.getvalue().splitlines()) == [f"{r} {[data, '0.5']}" for r in (0, 1)]
    client.jobs.download(made.name, "got")
    assert (code / "got" / "named-outputs" / "o" / "1").exists()
    assert made.name in [job.name for job in client.jobs.list()]


def test_a_failed_job_is_an_answer_not_an_exception(client):
    made = client.jobs.create_or_update(command(command="exit 3"))
    done = client.jobs.wait(made.name)
    assert (done.status, done.exit_code, done.error["reason"]) == ("Failed", 3, "RANK_EXITED")
    assert client.jobs.get(made.name).to_dict()["exit_code"] == 3
    with pytest.raises(AttributeError, match="no 'colour'"):
        done.colour  # noqa: B018


def test_cancel(client):
    made = client.jobs.create_or_update(command(command="sleep 60"))
    client.jobs.cancel(made.name)
    assert client.jobs.wait(made.name).status == "Canceled"


def test_what_is_wrong_is_an_exception_with_its_key():
    with pytest.raises(SpecError) as caught:
        command(command="x", resorces={})
    assert caught.value.problems[0].where == "resorces"
    assert "resources" in caught.value.hint


def test_errors_come_over_the_wire_as_they_were(client):
    with pytest.raises(allranks.AllranksError) as caught:
        client.jobs.get("nosuch")
    assert (caught.value.kind, caught.value.exit_code) == ("not_found", 2)
    made = client.jobs.create_or_update(command(command="true", name="sdk-once"))
    client.jobs.wait(made.name)
    with pytest.raises(allranks.AllranksError, match="already exists"):
        client.jobs.create_or_update(command(command="true", name="sdk-once"))


def test_a_file_and_python_are_one_model(code):
    (code / "jobs").mkdir()
    (code / "jobs" / "job.yml").write_text(
        "command: python t.py\ndistribution: {type: tensorflow, parameter_server_count: 1}\n"
        "resources: {instance_count: 2}\ncode: ./src\n"
    )
    made = command(
        command="python t.py",
        code=str(code / "jobs" / "src"),
        distribution=TensorFlowDistribution(parameter_server_count=1),
        instance_count=2,
    )
    assert load_job("jobs/job.yml") == made


def test_importing_costs_nothing():
    script = "import allranks, sys; print('pydantic' in sys.modules, 'json' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False False\n"
    with pytest.raises(AttributeError):
        allranks.nosuch  # noqa: B018
