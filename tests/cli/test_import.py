"""`allranks import`: what would run of a folder."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks import folder_trees
from allranks.cli.importing import job_files
from allranks.cli.importing.finding import prefix_of, uses
from allranks.cli.importing.import_folder import _looked
from allranks.cli.importing.judge import Judge
from allranks.cli.importing.programs import look_at_program, look_at_script
from tests.support import Allranks, answer

SCHEMA = "$schema: https://azuremlschemas.azureedge.net/latest/{}.schema.json\n"
FILES = {
    "job.yml": SCHEMA.format("commandJob")
    + "command: python train.py ${{inputs.d}}\n"
    + "environment: azureml:AzureML-sklearn-1.5@latest\ncompute: azureml:cpu-cluster\n"
    + "inputs: {d: {path: 'wasbs://birds@zoo.blob.core.windows.net/a.csv', type: uri_file}}\n",
    "deep/it's.yaml": "command: echo\nenvironment: {image: python:3.11}\n"
    "compute: azureml:big-one\n",
    "wrong.yml": SCHEMA.format("commandJob") + "comand: echo\n",
    "endpoint.yml": SCHEMA.format("managedOnlineEndpoint") + "name: e\n",
    "component.yml": SCHEMA.format("commandComponent")
    + "name: c\nversion: 1\ntype: command\ncommand: echo\nenvironment: azureml:x:1\n",
    "pipeline.yml": SCHEMA.format("pipelineJob")
    + "type: pipeline\nsettings: {default_compute: azureml:other}\n"
    + "jobs: {one: {type: command, command: echo, environment: {image: python:3.11}}}\n",
    "not-azure.yml": "a: 1\n",
    "broken.yml": "a: [\n",
    "train.py": "from azureml.core import Run\nrun = Run.get_context()\n",
    "submit.py": "from azure.ai.ml import MLClient, automl\nimport numpy\nautoml.regression()\n",
    "other.py": "import numpy\n",
    "sm.py": "import sagemaker\n",
    "broken.py": "def f(:\n",
    "run.sh": "#!/bin/bash\n# az ml nothing\n"
    "id=$(az ml job create -f job.yml --query name -o tsv)\n"
    "ssm run -p p -t t -e train.py \\\n  --ic 2 &\naz ml feature-set create -f e.yml\n",
    ".git/job.yml": "command: echo\ncode: .\n",
}
NOTEBOOK = {
    "cells": [
        {
            "cell_type": "code",
            "source": ["%matplotlib inline\n", "import azureml.core"],
        },
        {"cell_type": "markdown", "source": ["from azureml import nothing"]},
    ]
}


@pytest.fixture
def folder(code: Path) -> Path:
    for name, text in FILES.items():
        file = code / "mine" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (code / "mine" / "note.ipynb").write_text(json.dumps(NOTEBOOK))
    (code / "mine" / "broken.ipynb").write_text("{")
    return code / "mine"


@pytest.mark.medium
def test_each_file_is_looked_at(allranks: Allranks, folder: Path) -> None:
    done = allranks("import", "mine", "--json")
    assert done.returncode == 1, done.stderr
    found = {each["file"]: each for each in json.loads(done.stdout)["files"]}
    assert {name: (each["kind"], each["runs"]) for name, each in found.items()} == {
        "component.yml": ("commandComponent", "yes"),
        "deep/it's.yaml": ("commandJob", "partly"),
        "endpoint.yml": ("managedOnlineEndpoint", "yes"),
        "job.yml": ("commandJob", "not known"),
        "note.ipynb": ("notebook", "yes"),
        "pipeline.yml": ("pipelineJob", "partly"),
        "run.sh": ("script", "partly"),
        "sm.py": ("program", "no"),
        "submit.py": ("program", "partly"),
        "train.py": ("program", "yes"),
        "wrong.yml": ("commandJob", "no"),
    }
    assert "whether wasbs://birds@zoo.blob" in found["job.yml"]["notes"][0]
    assert "using allranks-sklearn-1" in found["job.yml"]["notes"][1]
    assert found["train.py"]["notes"] == ["logs to its job"]
    (problem,) = found["submit.py"]["problems"]
    assert problem[0] == "azure.ai.ml.automl is not there"
    assert "feature-set" in found["run.sh"]["problems"][0][0]
    assert "line 2, comand" in found["wrong.yml"]["problems"][0][0]
    # What the table has no room for is said below it.
    assert f"\njob.yml\n  {found['job.yml']['notes'][0]}\n" in allranks("import", "mine").stdout


@pytest.mark.medium
def test_maps_are_written(allranks: Allranks, folder: Path) -> None:
    copies = folder.parent / "copies"
    refused = allranks("import", "mine", "--write", "--data", "copies")
    assert refused.returncode == 2
    assert "copies is not a folder" in refused.stderr
    copies.mkdir()
    lacking = allranks("import", "mine", "--write", "--data", "copies")
    assert f"there is no copy of wasbs://birds@zoo.blob.core.windows.net/: {copies}/birds" in (
        lacking.stderr
    )
    assert "birds/" not in allranks("data", "map").stdout
    copies.joinpath("birds").mkdir()
    done = allranks("import", "mine", "--write", "--data", "copies")
    assert done.returncode == 1
    said = done.stdout.splitlines()
    assert "big-one stands for local" in lacking.stdout
    assert "other stands for local" in lacking.stdout
    assert f"wasbs://birds@zoo.blob.core.windows.net/ stands for {copies}/birds/" in said
    assert said[-1] == "6 run, 2 in part or after a map, 2 do not, 1 not known"
    assert "big-one" in allranks("compute", "map").stdout
    again = allranks("import", "mine", "--write", "--data", "copies")
    assert "stands for" not in again.stdout
    elsewhere = allranks("import", "mine", "--write", "--data", ".")
    assert f"stands for {copies}/birds/: allranks data map changes it" in elsewhere.stderr
    copies.joinpath("birds", "a.csv").write_text("1,2\n")
    (folder / "train.py").write_text("import sys; print(open(sys.argv[1]).read())")
    ran = allranks(
        *("job", "create", "-f", "mine/job.yml", "--set", "code=.", "--stream"),
        *("--set", "environment=current"),
    )
    assert ran.stdout.startswith("1,2\n"), ran.stderr


V1 = """from azureml.core import Experiment, Workspace, ScriptRunConfig
ws = Workspace.from_config()
run = Experiment(workspace=ws, name="x").submit(ScriptRunConfig("src", script="t.py"))
run.wait_for_completion(show_output=True)
"""
V2 = """from azure.ai.ml import Input, MLClient, command
from azure.identity import DefaultAzureCredential
client = MLClient(DefaultAzureCredential(), "a", "b", "c")
job = command(code=".", command="python t.py", inputs={"d": Input(type="uri_file", path="t.py")})
"""
PROGRAMS = {
    (V1, "yes"): "",
    (V1 + "ws.get_default_keyvault()\n", "partly"): "Workspace.get_default_keyvault is not there",
    (V1 + "run.nosuch = run.frobnicate()\n", "partly"): "Run.frobnicate is not there",
    (V1 + "d = ws.datasets['x'].frobnicate()\n", "partly"): "TabularDataset.frobnicate is not",
    (V1 + "d = run.outputs_of('x').frobnicate()\n", "partly"): "Run.outputs_of is not there",
    ("from azureml.core import Run\nrun = Run.get_context()\nrun.log('a', 1)\n", "yes"): "",
    (
        "from azureml.core.model import Model\nModel.package(1, [])\n",
        "partly",
    ): "Model.package is not there",
    (V2, "yes"): "",
    (V2 + "client.feature_sets.list()\n", "partly"): "MLClient.feature_sets is not",
    (V2 + "command(command='x', bananas=1)\n", "partly"): "command has no argument bananas",
    (V2 + "command('x')\n", "partly"): "command takes no arguments by position, not 1",
    (V2 + "job.sweep(primary_metric='a', goal='b', compute='c')\n", "yes"): "",
    (V2 + "job.set_resources(instance_count=2)\n", "yes"): "",
    (V2 + "for each in client.jobs.list():\n    each.frobnicate()\n", "not known"): "Job.frobn",
    (V2 + "Input(path='https://a.blob.core.windows.net/c/x.csv')\n", "not known"): "can be read",
    (V2 + "pins = ['numpy==1.19.5']\n", "not known"): "whether numpy==1.19.5 installs",
    (V2 + "client.data.get('birds', '4')\n", "not known"): "the data asset birds:4 has to be",
    (V2 + "n = 'm'\nclient.models.get(name=n, label='latest')\n", "not known"): "the model m has",
    (V2 + "n = f'{1}'\nclient.environments.get(n)\n", "not known"): "the environment n has to be",
    (V2 + "made = client.components.get('c')\n", "not known"): "the component c has to be",
    (V2 + "client.models.get(client.jobs.get('j').name)\n", "yes"): "",
    (
        V2 + "from azure.ai.ml.entities import Data\nname = 'd'\n"
        "client.data.create_or_update(Data(name=name, path='t.py', type='uri_file'))\n"
        "print(client.data.get('d', '1').path)\n",
        "yes",
    ): "",
    (V2 + "import no_such_package_here\n", "not known"): "no_such_package_here is not in this",
    (V2 + "def f(:\n", ""): "",
}


@pytest.mark.parametrize(("program", "runs"), PROGRAMS)
def test_what_a_program_uses_is_judged(tmp_path: Path, program: str, runs: str) -> None:
    file = tmp_path / "submit.py"
    file.write_text(program)
    finding = look_at_program(file, "submit.py")
    if finding is None:
        assert runs == ""
        return
    assert finding.runs == runs, finding
    assert PROGRAMS[program, runs] in str(finding)


def test_a_notebooks_magics_are_not_tried(tmp_path: Path) -> None:
    cells = [["!pip install x\n", V2], ["%%writefile t.py\n", "import nosuch"], ["!ls"]]
    file = tmp_path / "a.ipynb"
    file.write_text(
        json.dumps({"cells": [{"cell_type": "code", "source": source} for source in cells]})
    )
    finding = look_at_program(file, "a.ipynb")
    assert finding is not None
    assert finding.runs == "not known"
    assert "whether `!pip install x` works" in finding.notes[0]
    assert "nosuch" not in str(finding)


@pytest.mark.parametrize(
    ("script", "runs"),
    [
        (
            "ssm shell -p p -t t --cmd_line \"cat x && ls; echo 'a | b' > y\" --download_output",
            "yes",
        ),
        ("ssm run -p p -t t -e a.py --ic 2 --lr 3 -- -x 1 > log 2>&1 &", "yes"),
        ('if [ -n "$X" ]; then ssm data -p p -t t -o out; fi', "yes"),
        ('cd x && ssm shell -p p -t t --cmd_line "a\n  && b" # it\'s done', "yes"),
        ('id="$(az ml job create -f job.yml --query name -o tsv)"', "yes"),
        ("ssm run -p $P -t t -e a.py --ic $N", "not known"),
        ("ssm run -p p -t t -e a.py --ic two", "no"),
        ("x=1 az ml feature-set create -f x.yml && echo ok", "no"),
        ("echo ssm run", ""),
    ],
)
def test_lines_are_read_as_a_shell_reads_them(tmp_path: Path, script: str, runs: str) -> None:
    file = tmp_path / "run.sh"
    file.write_text(f"#!/bin/bash\n{script}\n")
    finding = look_at_script(file, "run.sh")
    assert (finding.runs if finding else "") == runs, finding


@pytest.mark.medium
@pytest.mark.parametrize(
    ("keys", "runs", "told"),
    [
        ("command: python train.py --lr 1", "yes", ""),
        ("command: cd sub && python deep.py", "yes", ""),
        ("command: python nofile.py", "no", "nofile.py is not in its code"),
        ("command: make && python made.py", "yes", ""),
        ("command: python $SCRIPT", "yes", ""),
        (
            "command: cat ${{inputs.x}}\n"
            "inputs: {x: {path: 'azureml://datastores/workspaceblobstore/paths/a.csv'}}",
            "not known",
            "not tried: whether azureml://datastores/workspaceblobstore/ can be read",
        ),
    ],
)
def test_what_a_job_needs_beside_its_keys(tmp_path: Path, keys: str, runs: str, told: str) -> None:
    (tmp_path / "src" / "sub").mkdir(parents=True)
    (tmp_path / "src" / "train.py").write_text("")
    (tmp_path / "src" / "sub" / "deep.py").write_text("")
    file = tmp_path / "job.yml"
    file.write_text(f"{keys}\ncode: src\nenvironment: current\n")
    finding = job_files.look(file, "job.yml")
    assert finding is not None
    assert finding.runs == runs, finding
    assert told in str([*finding.notes, *finding.problems])


def test_what_cannot_be_read_and_is_azures_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text('{"cells": [{"source": "import azureml.core"}')
    notebook = look_at_program(tmp_path / "a.ipynb", "a.ipynb")
    (tmp_path / "b.yml").write_text(SCHEMA.format("commandJob") + "command: [\n")
    job = job_files.look(tmp_path / "b.yml", "b.yml")
    for finding in (notebook, job):
        assert finding is not None
        assert finding.runs == "no"
        assert finding.problems[0][0]
    (tmp_path / "c.yml").write_text("a: [\n")
    assert job_files.look(tmp_path / "c.yml", "c.yml") is None


def test_an_asset_whose_path_is_missing_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    texts = {
        "environment": "conda_file: %s\n",
        "data": "path: %s\n",
        "model": "path: %s\n",
    }
    for kind, text in texts.items():
        file = tmp_path / f"my {kind}.yml"
        schema = (
            f"$schema: https://azuremlschemas.azureedge.net/latest/{kind}.schema.json\nname: x\n"
        )
        for path, runs in (("a b", "yes"), ("azureml:x:1", "yes"), ("./nosuch", "no")):
            file.write_text(schema + text % path)
            finding = job_files.look(file, file.name)
            assert finding is not None
            assert finding.runs == runs
            if runs == "no":
                assert "'./nosuch' is not there" in finding.problems[0][0]
            else:
                assert finding.notes == (f"allranks {kind} create -f '{file.name}'",)


@pytest.mark.medium
def test_a_folder_without_any(allranks: Allranks, code: Path) -> None:
    (code / "empty").mkdir()
    done = allranks("import", "empty")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no file for Azure ML" in done.stderr
    assert answer(allranks, "import", "empty", "--json") == {"files": [], "written": {}}
    wrong = allranks("import", "nowhere")
    assert wrong.returncode == 2
    assert "nowhere is not a folder" in wrong.stderr


def test_what_is_no_file_of_text_is_not_read(tmp_path: Path) -> None:
    """A pipe ends never, and a file of holes fills the memory."""
    (tmp_path / "a.sh").write_text(
        "ssm run -p P -t T -e pipe.py\nssm run -p P -t T -e /dev/zero\n"
        "ssm run -p P -t T -e holes.py\n"
    )
    for name in ("pipe.py", "job.yml", "b.ipynb", "c.sh"):
        os.mkfifo(tmp_path / name)
    for name in ("holes.py", "holes.ipynb", "holes.sh"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)
    assert [each.file for each in _looked(tmp_path)] == ["a.sh"]


def test_a_line_whose_folder_is_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not search the whole machine."""
    (tmp_path / "a.sh").write_text("ssm shell -p P -t T --cmd_line x --df /\n")
    listed = []

    def endless(folder: Path) -> Iterator[str]:
        while len(listed) < 100_000:
            listed.append(folder)
            yield str(folder / "Dockerfile")

    monkeypatch.setattr(folder_trees, "files", endless)
    assert [each.file for each in _looked(tmp_path)] == ["a.sh"]
    assert {*listed} == {Path("/")}
    assert len(listed) <= 10_000


def test_prefixes() -> None:
    assert (
        prefix_of("wasbs://c@a.blob.core.windows.net/x/y") == "wasbs://c@a.blob.core.windows.net/"
    )
    assert prefix_of("https://a.blob.core.windows.net/c/x") == "https://a.blob.core.windows.net/c/"
    assert prefix_of("s3://b/x") == "s3://b/"
    assert prefix_of("./local") == prefix_of("azureml:x:1") == ""
    jobs = [{"compute": "azureml:a", "path": "s3://b/x"}, {"compute": "${{p}}"}]
    computes, data = uses({"jobs": jobs})
    assert (computes, data) == (("a",), ("s3://b/x",))


FOLLOWED = """
from azure.ai.ml import Input, MLClient, command, load_component
from azure.ai.ml.dsl import pipeline
ml_client = MLClient.from_config()
print(ml_client.compute.get("cpu-cluster").name)
train = load_component(source="train.yml")
@pipeline(description="one step", default_compute="cpu-cluster")
def build(data):
    step = train(data=data)
    step.outputs.model.mode = "upload"
    return {"model": step.outputs["model"]}
job = ml_client.jobs.create_or_update(
    build(data=Input(path="d.csv", type="uri_file")), experiment_name="x", skip_validation=True
)
ml_client.jobs.stream(job.name)
single = command(command="echo", environment="azureml:AzureML-sklearn-1.5@latest")
print(ml_client.jobs.create_or_update(single).studio_url)
"""


@pytest.mark.parametrize(
    ("line", "problem"),
    [("", ""), ("job.nosuch_member()\n", ""), ("ml_client.computes\n", "MLClient.computes")],
)
def test_what_calls_return_is_followed(tmp_path: Path, line: str, problem: str) -> None:
    judged = Judge(ast.parse(FOLLOWED + line), tmp_path)
    assert [each.partition(" is not")[0] for each in judged.problems] == [problem] * bool(problem)
    assert [*judged.doubts] == (["whether Job.nosuch_member is there"] if "nosuch" in line else [])


@pytest.mark.slow
def test_assets_of_a_program_are_those_of_the_server_in_use(
    shared: Allranks, shared_home: Path, code: Path, tmp_path: Path
):
    (code / "mine").mkdir()
    for name in ("there", "nowhere"):
        text = "from azure.ai.ml import MLClient\nclient = MLClient()\n"
        (code / "mine" / f"{name}.py").write_text(f"{text}client.data.get('{name}', version='1')\n")
    (code / "a.csv").write_text("1")
    assert shared("data", "create", "there", "--path", "a.csv").returncode == 0
    elsewhere = {"ALLRANKS_HOME": str(tmp_path)}
    url = json.loads((shared_home / "server.json").read_text())["url"]
    token = (shared_home / "token").read_text()
    remote = {**elsewhere, "ALLRANKS_SERVER": url, "ALLRANKS_TOKEN": token}
    away = {**elsewhere, "ALLRANKS_SERVER": "http://127.0.0.1:9"}
    for env, is_there in (({}, True), (elsewhere, False), (remote, True), (away, False)):
        done = shared("import", "mine", "--json", env=env)
        runs = {each["file"]: each["runs"] for each in json.loads(done.stdout)["files"]}
        assert runs == {"nowhere.py": "not known", "there.py": "yes" if is_there else "not known"}
