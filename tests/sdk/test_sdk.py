"""The Python door: the same models, the same server, the same errors."""

import inspect
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import allranks
from allranks import (
    Client,
    Input,
    Metric,
    MLClient,
    Model,
    Output,
    PyTorchDistribution,
    SpecError,
    TensorFlowDistribution,
    TimedOut,
    command,
    load_job,
)
from allranks.api.assets import ModelAnswer
from allranks.errors import UsageError
from allranks.sdk.jobs import interrupt
from allranks.sdk.submit import rehearsal
from allranks.spec.job import CommandJob
from allranks.spec.model import ModelVersion
from allranks.sweep import Choice
from tests.support import environment, until

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


@pytest.mark.end_to_end
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


def test_a_list_of_jobs_is_submitted_at_once(client, code):
    (code / "train.py").write_text("print('same code')")
    jobs = [command(command=f"python train.py; echo {n}", code=".") for n in range(3)]
    made = client.jobs.create_or_update([*jobs, command(command="echo last")], tags={"of": "four"})
    assert [each.tags for each in made] == [{"of": "four"}] * 4
    said = io.StringIO()
    for each in made:
        assert client.jobs.stream(each.name, to=said).status == "Completed"
    assert said.getvalue().split("\n") == [
        *(line for n in range(3) for line in ("same code", str(n))),
        "last",
        "",
    ]
    assert client.jobs.create_or_update([]) == []


def test_a_list_of_jobs_is_all_or_none(client):
    good = [command(command="true", name=f"all_or_none_{n}") for n in range(3)]
    wrong = command(command="true", compute="nowhere")
    with pytest.raises(SpecError) as caught:
        client.jobs.create_or_update([good[0], wrong, good[1], wrong])
    wheres = [each.where for each in caught.value.problems]
    assert wheres == ["jobs.1.compute", "jobs.3.compute"]
    missing = command(command="cat ${{inputs.a}}", inputs={"a": Input(path="./nowhere")})
    with pytest.raises(SpecError) as caught:
        client.jobs.create_or_update([good[1], good[0], missing, good[0]])
    wheres = [each.where for each in caught.value.problems]
    assert wheres == ["jobs.2.inputs.a.path", "jobs.3.name"]
    tried = command(command="echo ${{inputs.a}}", inputs={"a": 1})(a=Choice([1, 2]))
    sweep = tried.sweep(primary_metric="x", goal="minimize", sampling_algorithm="random")
    with pytest.raises(UsageError, match="this is SweepJob") as refused:
        client.jobs.create_or_update([good[1], sweep])
    assert refused.value.where == "jobs.1"
    with pytest.raises(UsageError, match="at most 1000 jobs"):
        client.jobs.create_or_update([command(command="true")] * 1001)
    assert not [job for job in client.jobs.list() if job.name.startswith("all_or_none")]


def test_what_a_job_tells_while_it_runs_and_after(client, code, capsys):
    (code / "train.py").write_text(
        "import os, pathlib\nprint('loss 0.5\\nloss nan')\npathlib.Path('outputs/m.pt').touch()\n"
        "pathlib.Path('outputs/a').mkdir(exist_ok=True); pathlib.Path('outputs/a/b').touch()\n"
        "pathlib.Path('beside').touch()\n"
    )
    made = client.jobs.create_or_update(
        command(
            command="python train.py",
            code=".",
            distribution=PyTorchDistribution(process_count_per_instance=2),
            metrics={"loss": r"loss (\S+)", "every": Metric(pattern=r"loss (\S+)", rank="all")},
        )
    )
    assert made.wait(show_output=True) is made
    assert made.status == "Completed"
    assert sorted(capsys.readouterr().out.split()) == ["0.5"] * 2 + ["loss"] * 4 + ["nan"] * 2
    found = made.metrics()
    assert sorted(found) == ["every/rank_0", "every/rank_1", "loss"]
    assert [str(point["value"]) for point in found["loss"]] == ["0.5", "nan"]
    left = ["outputs/a/b", "outputs/m.pt", "work/beside"]
    assert made.artifacts() == [f"artifacts/{path}" for path in left]
    assert [f.path for f in client.jobs.files(made.name) if "user_logs" not in f.path] == left
    assert client.jobs.files(made.name)[-1].node == 0
    assert isinstance(made.resources(), list)
    assert (made.download("got") / "artifacts" / "outputs" / "m.pt").exists()


def test_a_failed_job_is_an_answer_not_an_exception(client):
    made = client.jobs.create_or_update(command(command="exit 3"))
    done = client.jobs.wait(made.name)
    assert (done.status, done.exit_code, done.error["reason"]) == ("Failed", 3, "RANK_EXITED")
    assert client.jobs.get(made.name).to_dict()["exit_code"] == 3
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        done.colour  # noqa: B018


def test_cancel(client):
    made = client.jobs.create_or_update(command(command="sleep 60"))
    client.jobs.cancel(made.name)
    assert client.jobs.wait(made.name).status == "Canceled"


def test_preempt(client):
    made = client.jobs.create_or_update(command(command="sleep 60"))
    until(lambda: made.refresh().status == "Running")
    made.preempt(node=0)
    assert client.jobs.wait(made.name).error["reason"] == "PREEMPTED"
    with pytest.raises(allranks.AllranksError, match="cannot be preempted"):
        made.preempt()


def test_a_rank_that_is_killed_is_killed_whatever_it_traps(client):
    script = 'trap "" TERM; echo up; while :; do sleep 0.1; done'
    two = {"type": "none", "process_count_per_instance": 2}
    made = client.jobs.create_or_update(command(command=script, distribution=two))
    until(lambda: made.refresh().status == "Running")
    with pytest.raises(allranks.AllranksError, match="has no rank 2"):
        interrupt.kill(made.name, 2)
    interrupt.kill(made.name, 1)
    error = client.jobs.wait(made.name).error
    assert (error["reason"], error["rank"], "SIGKILL" in error["message"]) == (
        "RANK_KILLED",
        1,
        True,
    )
    with pytest.raises(allranks.AllranksError, match="not running"):
        interrupt.kill(made.name, 1)


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


@pytest.mark.parametrize("show_output", [False, True])
def test_waiting_may_end_before_the_job(client, show_output):
    made = client.jobs.create_or_update(command(command="echo here; sleep 60"))
    until(lambda: made.refresh().status == "Running")
    with pytest.raises(TimedOut, match=f"{made.name} is still Running after 0.5 s") as caught:
        made.wait(show_output, timeout=0.5)
    assert "it keeps running" in caught.value.hint
    with pytest.raises(TimedOut, match="is still Running after 0 s"):
        client.jobs.wait(made.name, timeout=0)
    with pytest.raises(UsageError, match="'x' is not a number of seconds"):
        made.wait(show_output, timeout="x")
    client.jobs.cancel(made.name)
    assert made.wait(timeout=60).status == "Canceled"
    assert made.wait(show_output, timeout=0).status == "Canceled", "there is nothing to wait for"


def test_what_is_no_job_is_an_error_with_a_hint(client):
    for given in ("job.yml", Path("job.yml")):
        with pytest.raises(UsageError, match=r"'job\.yml' is a str, not a job") as caught:
            client.create_or_update(given)
        assert "load_job('job.yml')" in caught.value.hint
    for take in (client.jobs.create_or_update, client.jobs.rehearse):
        with pytest.raises(UsageError, match="the argument is a dict, not a job"):
            take({"command": "true"})
    for ask in (client.jobs.get, client.jobs.wait, client.states.get, client.datastores.get):
        with pytest.raises(UsageError, match="must be a str, not NoneType") as caught:
            ask(None)
        assert "`name`" in caught.value.hint


def test_a_rehearsal_that_is_broken_off_while_its_job_is_taken_ends_it(client, monkeypatch):
    taken, really_send = [], rehearsal.send

    def send(*given):
        taken.append(really_send(*given)["name"])
        raise KeyboardInterrupt

    monkeypatch.setattr(rehearsal, "send", send)
    with pytest.raises(KeyboardInterrupt):
        client.jobs.rehearse(command(command="sleep 60"), to=io.StringIO())
    (name,) = taken
    assert client.jobs.wait(name, timeout=30).status == "Canceled"


def test_a_file_and_python_are_one_model(client, code):
    (code / "jobs" / "src").mkdir(parents=True)
    (code / "jobs" / "src" / "t.py").write_text("print('from here')")
    (code / "jobs" / "job.yml").write_text(
        "command: python t.py\ndistribution: {type: tensorflow, parameter_server_count: 1}\n"
        "resources: {instance_count: 2}\ncode: ./src\n"
    )
    made = command(
        command="python t.py",
        code="./src",
        distribution=TensorFlowDistribution(parameter_server_count=1),
        instance_count=2,
    )
    job = load_job("jobs/job.yml")
    assert job == made
    heard = io.StringIO()
    submitted = client.jobs.create_or_update(job, experiment_name="other", tags={"a": "b"})
    assert client.jobs.stream(submitted.name, to=heard).status == "Completed"
    assert "from here" in heard.getvalue()
    assert (submitted.experiment_name, submitted.tags) == ("other", {"a": "b"})


def test_what_a_job_left_is_the_next_ones_input(client):
    first = client.jobs.create_or_update(
        command(
            command="echo weights > ${{outputs.model}}/best; echo one > ${{outputs.one}}",
            outputs={"model": Output(), "one": Output(type="uri_file")},
        )
    )
    assert first.outputs.model.path == f"azureml://jobs/{first.name}/outputs/model/paths/"
    client.jobs.wait(first.name)
    listed = {job.name: job for job in client.jobs.list()}
    assert listed[first.name].outputs == first.outputs
    second = client.jobs.create_or_update(
        command(
            command="cat ${{inputs.whole}}/best ${{inputs.best}} ${{inputs.one}} ${{inputs.copy}}",
            inputs={
                "whole": first.outputs.model,
                "best": Input(type="uri_file", path=f"{first.outputs.model.path}best"),
                "one": Input(type="uri_file", path=first.outputs.one),
                "copy": {"path": first.outputs.one, "mode": "download"},
            },
        )
    )
    heard = io.StringIO()
    done = client.jobs.stream(second.name, to=heard)
    assert (done.status, heard.getvalue()) == ("Completed", "weights\nweights\none\none\n")
    assert done.spec["inputs"]["whole"]["path"] == first.outputs.model.path


def test_what_a_job_did_not_leave_is_told_before_anything_starts(client):
    made = client.jobs.create_or_update(command(command="exit 1", outputs={"o": Output()}))
    client.jobs.wait(made.name)
    names = {job.name for job in client.jobs.list()}
    inputs = {"a": made.outputs.o, "b": Input(path="azureml://jobs/nosuch/outputs/o/paths/")}
    with pytest.raises(SpecError) as caught:
        client.jobs.create_or_update(command(command="true", inputs=inputs))
    told = {problem.where: problem for problem in caught.value.problems}
    assert "is Failed" in told["inputs.a.path"].message
    assert f"allranks run --from {made.name}" in told["inputs.a.path"].hint
    assert "job 'nosuch' not found" in told["inputs.b.path"].message
    assert {job.name for job in client.jobs.list()} == names


def test_azures_own_words(code):
    ml_client = MLClient(None, "subscription", "group", "workspace")
    made = ml_client.create_or_update(command(command="echo hello", outputs={"o": None}))
    assert ml_client.jobs.wait(made.name).status == "Completed"
    ml_client.jobs.download(made.name, code / "got", output_name="o")
    assert MLClient.from_config(credential=None).jobs.get(made.name).name == made.name


DOCS = (Path(__file__).parents[2] / "docs" / "how-to" / "python.md").read_text()
RIGHT = """
from pathlib import Path

from allranks import Client, Environment, Input, Output, PyTorchDistribution, Resources, Retry
from allranks import SshJobService, command, load_job

job = command(
    command="x", code=Path("src"), inputs={"a": Input(path=Path("a")), "b": 1},
    outputs={"o": Output(type="uri_file")}, distribution=PyTorchDistribution(),
    environment=Environment(pip=["torch"]), resources=Resources(locations=["a"]),
    retry=Retry(on=["hang"]), services={"s": SshJobService(port=22)}, timeout=5,
)
made = Client().jobs.create_or_update(job)
path: str | None = job.outputs.o.path
following = command(command="x", inputs={"a": made.outputs.o, "b": Input(path=job.outputs.o)})
again: str = load_job(following.to_yaml()).command
"""
WRONG = """
from allranks import Input, PyTorchDistribution, command

command(command="x", resorces={})
Input(path="x", mode="ro_mont")
PyTorchDistribution(process_count_per_instance="x")
command(command="x", instance_count="2")
"""


def test_an_editor_sees_the_types(code):
    (code / "right.py").write_text(RIGHT)
    (code / "wrong.py").write_text(WRONG)
    (code / "docs.py").write_text("".join(re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)))
    options = ["--strict", "--no-error-summary", "--hide-error-context"]
    argv = [sys.executable, "-m", "mypy", *options, "right.py", "wrong.py", "docs.py"]
    done = subprocess.run(argv, cwd=code, capture_output=True, text=True, timeout=100)
    assert [line.split(": ")[0] for line in done.stdout.splitlines()] == [
        f"wrong.py:{line}" for line in (4, 5, 6, 7)
    ], done.stdout


def test_importing_costs_nothing():
    script = "import allranks, sys; print('pydantic' in sys.modules, 'json' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False False\n"
    with pytest.raises(AttributeError):
        allranks.nosuch  # noqa: B018


def test_models(client, code):
    made = client.jobs.create_or_update(command(command="echo w > outputs/model.pt"))
    with pytest.raises(allranks.AllranksError, match=r"may still write it|has no"):
        client.models.register("py", "outputs/model.pt", job=made.name)
    client.jobs.wait(made.name)
    first = client.models.register("py", "outputs/model.pt", job=made.name, labels=["good"])
    assert (first.version, first.job, first.flavors) == ("1", made.name, {"pytorch": {}})
    assert first.lineage["experiment"] == made.experiment_name
    (code / "m").mkdir()
    (code / "m" / "MLmodel").write_text("x")
    second = client.create_or_update(Model(name="py", path="m", tags={"a": "b"}))
    assert (second.version, second.type, second.tags) == ("2", "mlflow_model", {"a": "b"})
    assert (
        client.models.create_or_update(Model(name="py", path=code / "m", tags={"a": "b"})) == second
    )
    assert [each.version for each in client.models.list("py")] == ["1", "2"]
    assert client.models.get("py") == second
    assert client.models.label("py", "1", "best").labels == ("best", "good")
    assert client.models.get("py", label="best").version == "1"
    assert client.models.download("py", "1", "got") == Path("got/py")
    assert (code / "got" / "py" / "model.pt").read_text() == "w\n"
    job = command(
        command="cat ${{inputs.m}}",
        inputs={"m": Input(type="custom_model", path="azureml:py@good")},
    )
    heard = io.StringIO()
    client.jobs.stream(client.jobs.create_or_update(job).name, to=heard)
    assert heard.getvalue() == "w\n"
    client.models.delete("py", "2")
    with pytest.raises(allranks.AllranksError, match="model py:2 not found"):
        client.models.get("py", "2")


def test_each_key_of_a_command_job_is_a_keyword_of_command():
    keywords = inspect.signature(allranks.command).parameters.keys()
    # The type is the function's; parameters of a sweep are set by it.
    assert CommandJob.model_fields.keys() - keywords == {"schema_", "type", "search_space"}


def test_a_model_has_all_that_the_server_says_of_it():
    answered = {*get_type_hints(ModelAnswer)}
    assert answered <= {*ModelVersion.model_fields}
