"""Models that bring their environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import Allranks
from tests.wheels import wheel

pytestmark = pytest.mark.slow
PYFUNC = """
class Model:
    def predict(self, data): return [row[0] * 2 for row in data.values]
def load_model(folder): return Model()
"""
PANDAS = """
class DataFrame:
    def __init__(self, data, index, columns): self.values = data
def read_csv(file): return DataFrame([[float(x)] for x in open(file).read().split()[1:]], 0, 0)
read_json = read_parquet = read_csv
"""
MLMODEL = "flavors:\n  python_function:\n    python_version: 3.6.2\n"
CONDA = """
dependencies:
- python=3.6.2
- pip: [--no-index, --find-links WHEELS, mlflow==1.0, pandas, setuptools==1.0]
"""


def test_a_model_runs_in_its_own_environment(allranks: Allranks, code: Path):
    """Of a Python that is not here; online by a registered model, in batches by its files."""
    wheels = code / "wheels"
    wheel(wheels, "mlflow", modules={"mlflow/__init__.py": "", "mlflow/pyfunc.py": PYFUNC})
    wheel(wheels, "pandas", modules={"pandas.py": PANDAS})
    wheel(wheels, "setuptools")
    (code / "m").mkdir()
    (code / "m" / "MLmodel").write_text(MLMODEL)
    (code / "m" / "conda.yaml").write_text(CONDA.replace("WHEELS", str(wheels)))
    assert allranks("model", "create", "twice", "--path", "m").returncode == 0
    made = allranks("model", "deploy", "twice", timeout=120)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "the environment is that of conda.yaml of the model twice:1" in made.stderr
    body = json.dumps({"input_data": {"columns": ["x"], "data": [[4]]}})
    assert allranks("endpoint", "invoke", "twice", "--data", body).stdout == "[8]\n"
    logs = allranks("deployment", "logs", "default", "-e", "twice").stdout
    assert "it was saved with Python 3.6.2" in logs
    events = allranks("endpoint", "show", "twice", "--json").stdout
    job = json.loads(events)["deployments"][0]["replicas"][0]["job"]
    assert "Python 3.6 is not on this node" in allranks("job", "events", job).stdout

    (code / "in").mkdir()
    (code / "in" / "a.csv").write_text("x\n3\n")
    (code / "b.yml").write_text("name: b\nendpoint_name: tables\ntype: model\nmodel: {path: m}\n")
    assert allranks("endpoint", "create", "tables", "--type", "batch").returncode == 0
    made = allranks("deployment", "create", "-f", "b.yml", "--set-default")
    assert "that of conda.yaml of the model m" in made.stderr, made.stderr
    job = allranks("endpoint", "invoke", "tables", "--input", "in").stdout.strip()
    done = allranks("job", "stream", job, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert allranks("job", "download", job, "--output-name", "score", "-p", "got").returncode == 0
    (scores,) = (code / "got").rglob("predictions.csv")
    assert scores.read_text() == '[0, 6.0, "a.csv"]\n'
