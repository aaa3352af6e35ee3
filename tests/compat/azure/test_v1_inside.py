"""`azureml.core.Run` inside of jobs and outside of them, in Pythons without anything installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.agent.inside.azureml_run import Model
from allranks.spec.fields.identifiers import identifier
from tests.support import Allranks, answer

SCRIPT = """
import importlib.util, os
from azureml.core import Dataset, Experiment, Run, Workspace
from azureml.core.run import Run as Same

class Number:  # as numpy's and torch's
    def item(self): return 0.5

run = Run.get_context(allow_offline=False)
assert run is Same.get_context() and run.parent is None, run.parent
print("id", run.id, run.experiment.name, run.get_status())
for value in (3, Number(), True):
    run.log("loss", value)
run.log_list("accuracy", [0.1, 0.2])
run.log_row("row", x=1, word="two")
run.log_row("row", x=2, word="three")
run.log_table("table", {"a": [1, 2], "b": [3.5, 4]})
run.log("word", "hello")
run.log("at", 7, step=40)
run.tag("team", "vision")
run.add_properties({"author": "me", "year": 2026})
with open("notes.txt", "w") as file:
    file.write("notes")
run.upload_file("models/notes.txt", "notes.txt")
run.upload_file("outputs/notes.txt", "notes.txt")
with run.child_run("fold") as child:
    child.log("loss", 1)
print("files", run.get_file_names())
print("metrics", run.get_metrics("loss"), sorted(run.input_datasets))
for wrong in (
    lambda: Dataset.get_by_name(None, "birds"),
    lambda: run.register_model("birds"),
    lambda: run.upload_file("../escaped", "notes.txt"),
    lambda: run.add_properties({"author": "you"}),
    lambda: Workspace.from_config(),
):
    try:
        wrong()
    except (NotImplementedError, ValueError) as error:
        print("refused:", error)
os.makedirs("site-packages", exist_ok=True)
with open("site-packages/library.py", "w") as file:
    file.write("import importlib.util\\nfound = importlib.util.find_spec('azureml')\\n")
import sys
sys.path.insert(0, "site-packages")
sys.modules.pop("azureml"), sys.modules.pop("azureml.core")
import library
print("library sees", library.found)
"""


@pytest.mark.medium
def test_a_script_logs_to_its_job(shared: Allranks, code: Path) -> None:
    (code / "train.py").write_text(SCRIPT)
    (code / "birds.csv").write_text("1")
    words = ("-i", "birds=birds.csv", "--experiment", "v1", "--name", "logs")
    done = shared("run", *words, "--", "python", "train.py")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == "id logs v1 Running"
    assert said[1] == "files ['logs/azureml/rank-0.jsonl', 'outputs/notes.txt']"
    assert said[2] == "metrics {'loss': [3, 0.5, 1]} ['birds']"
    assert "azureml.core.Dataset is not there in a job. hint: give data" in said[3]
    assert "Run.register_model is not there in a job of allranks. hint: do it where" in said[4]
    assert said[5] == "refused: '../escaped' is not below the run's folder"
    assert "the property author is 'me' already" in said[6]
    assert "azureml.core.Workspace is not there in a job" in said[7]
    # transformers and others log to Azure where they find its packages.
    assert said[8] == "library sees None"
    found = answer(shared, "job", "metrics", "logs")
    points = {name: [(e["step"], e["value"]) for e in each] for name, each in found.items()}
    assert points == {
        "accuracy": [(0, 0.1), (1, 0.2)],
        "at": [(40, 7.0)],
        "fold/loss": [(0, 1.0)],
        "loss": [(0, 3.0), (1, 0.5), (2, 1.0)],
        "row/x": [(0, 1.0), (1, 2.0)],
        "table/a": [(0, 1.0), (1, 2.0)],
        "table/b": [(0, 3.5), (1, 4.0)],
    }
    assert answer(shared, "job", "show", "logs")["tags"] == {
        "team": "vision",
        "azureml.property.author": "me",
        "azureml.property.year": "2026",
    }
    shared("job", "download", "logs", "-p", "got")
    kept = code / "got" / "artifacts"
    assert (kept / "work" / "models" / "notes.txt").read_text() == "notes"
    lines = (kept / "logs" / "azureml" / "rank-0.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["row", "row", "table", "word"]


@pytest.mark.medium
def test_all_ranks_log_whole_lines(shared: Allranks, code: Path) -> None:
    (code / "train.py").write_text(
        "from azureml.core import Run\nrun = Run.get_context()\n"
        "for i in range(300): run.log('x' * 200, i)\n"
    )
    words = ("-n", "2", "-p", "2", "--name", "many-ranks-log")
    assert shared("run", *words, "--", "python", "train.py").returncode == 0
    series = answer(shared, "job", "metrics", "many-ranks-log")
    name = "x" * 200
    assert sorted(series) == [name, *(f"{name}/rank_{rank}" for rank in (1, 2, 3))]
    assert [len(points) for points in series.values()] == [300] * 4


WILD = r"""
import os
lines = [
    b'no json', b'[]', b'{"points": 1}', b'{"points": [[1]]}', b'\xff',
    b'{"points": [["a", null, 0, 1e400, 1]]}', b'{"tags": 3}', b'{"tags": {"": "x"}}',
    b'{"tags": {"a\\u0000": [1]}, "points": []}', b'{"points": [["ok", 0, 0, 1, 2]]}',
]
with open(os.environ["ALLRANKS_METRICS_FILE"], "ab") as file:
    file.write(b"\n".join(lines) + b"\ntorn")
"""


@pytest.mark.medium
def test_what_a_rank_appends_harms_nothing(shared: Allranks, code: Path) -> None:
    (code / "wild.py").write_text(WILD)
    done = shared("run", "--name", "wild", "--", "python", "wild.py")
    assert done.returncode == 0, done.stderr
    assert list(answer(shared, "job", "metrics", "wild")) == ["ok"]
    assert answer(shared, "job", "show", "wild")["tags"] == {"a\ufffd": "[1]"}
    events = answer(shared, "job", "events", "wild")
    (note,) = [text for each in events if "METRICS_FILE" in (text := json.dumps(each))]
    assert "line 1 and 8 more of ALLRANKS_METRICS_FILE recorded nothing: 'no json'" in note


def test_offline_it_prints(tmp_path: Path) -> None:
    program = (
        "from azureml.core import Run\nrun = Run.get_context()\n"
        "run.log('loss', 0.5)\nrun.log_row('r', a=1)\nprint(run.id[:10], run.get_metrics())\n"
        "from azureml.exceptions import RunEnvironmentException\n"
        "try: Run.get_context(allow_offline=False)\n"
        "except RunEnvironmentException as error: print(error)\n"
    )
    argv = [sys.executable, "-P", "-m", "allranks.cli.main", "python", "-c", program]
    done = subprocess.run(
        argv, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.splitlines() == [
        "Attempted to log scalar metric loss:",
        "0.5",
        "Attempted to log row metric r:",
        "{'a': 1}",
        "OfflineRun {'loss': 0.5, 'r': {'a': 1}}",
        "this is not a job: there is no run to log to",
    ], done.stderr


@pytest.mark.parametrize("name", ["3d-model", "-Birds.v2-", "m%"])
def test_a_model_has_the_path_of_its_input(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"AZURE_ML_INPUT_model_{identifier(name)}", str(tmp_path))
    assert Model.get_model_path(name) == str(tmp_path)
