"""Programs and scripts in the manner of public ones: what `allranks import` says of each, and that
those run which it says run."""

from __future__ import annotations

import importlib.util
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from allranks.cli.importing.finding import Finding
from allranks.cli.importing.programs import look_at_program, look_at_script
from tests.support import Allranks

FOLDER = Path(__file__).parent / "manner"
# What the programs submit and read.
FILES = {
    "src/train.py": "import argparse, os\n"
    "parser = argparse.ArgumentParser()\n"
    "parser.add_argument('--lr', type=float, default=0.1)\n"
    "args, more = parser.parse_known_args()\n"
    "os.makedirs('outputs', exist_ok=True)\n"
    "open('outputs/model.txt', 'w').write(str(args.lr))\n"
    "from azureml.core import Run\n"
    "Run.get_context().log('loss', (args.lr - 0.3) ** 2)\n"
    "print('trained', args.lr, more)\n",
    "src/read.py": "import sys\nprint('the model is', open(sys.argv[2]).read())\n",
    "src/score.py": "def init():\n    print('init')\n"
    "def run(mini_batch):\n    return [str(each) for each in mini_batch]\n",
    "src/conda.yml": "dependencies:\n- python=3.11\n- pip:\n  - packaging\n",
    "src/component.yml": "name: trains_lr\nversion: 1\ntype: command\n"
    "inputs: {lr: {type: number, default: 0.1}}\ncode: .\n"
    "command: python train.py --lr ${{inputs.lr}}\n"
    "environment: azureml:AzureML-sklearn-1.5@latest\n",
    "src/job.yml": "command: python train.py\ncode: .\n"
    "environment: azureml:AzureML-sklearn-1.5@latest\ncompute: azureml:cpu-cluster\n",
    "src/config.json": '{"subscription_id": "s", "resource_group": "g", "workspace_name": "w"}',
    "config.json": '{"subscription_id": "s", "resource_group": "g", "workspace_name": "w"}',
    "data/birds.csv": "name,weight\nwren,9\nrobin,18\n",
    "data/more/owl.csv": "name,weight\nowl,480\n",
    "code/worker.py": "import sys\nfrom worker_toolkit import worker_lib\n"
    "config = worker_lib.WorkerConfig(per_instance_state=False)\n"
    "print('worker', config.host_rank, config.num_nodes, sys.argv[1:])\n"
    "open(config.model_dir + '/model.txt', 'w').write('m')\n"
    "open(config.output_data_dir + '/out.txt', 'w').write('o')\n"
    "open(config.state + '/state.txt', 'a').write('s')\n",
    "code/process.py": "import os, sys\nprint('process', sys.argv[1:], sorted(os.listdir('.')))\n",
    "code/run.sh": "#!/bin/bash\necho shell $SSM_HOST_RANK $*\n",
    "fetches/train.py": "from keras import datasets\ndatasets.mnist.load_data()\n",
    "code/needs.py": "import no_such_module\n",
    "image/Dockerfile": "FROM __BASE_IMAGE__\nRUN pip3 install pandas==0.25.3\n",
    "lib/helper.py": "x = 1\n",
}


class Program(NamedTuple):
    name: str
    runs: str
    phrase: str
    text: str


def programs(file: str) -> Iterator[Program]:
    """The programs of a file, each behind its prelude."""
    prelude, *parts = (FOLDER / file).read_text().split("\n=== ")[1:]
    before = prelude.partition("\n")[2]
    for part in parts:
        head, _, text = part.partition("\n")
        name, _, rest = head.partition(": ")
        runs, _, phrase = rest.partition(": ")
        yield Program(name, runs, phrase, f"{before}\n{text}\n")


SUBMIT = [*programs("v2.txt"), *programs("v1.txt")]
RUN = [each for each in SUBMIT if each.runs == "yes" or each.name == "schedule-changed"]
SCRIPTS = [*programs("ssm.txt")]


def laid_out(folder: Path, program: Program, file: str) -> Path:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    path = folder / file
    path.write_text(program.text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def check(finding: Finding | None, program: Program) -> None:
    assert finding is not None
    said = "; ".join([*finding.notes, *(problem for problem, _ in finding.problems)])
    assert (finding.runs, program.phrase in said) == (program.runs, True), said


@pytest.mark.parametrize("program", SUBMIT, ids=lambda program: program.name)
def test_what_is_said_of_a_program(tmp_path: Path, program: Program) -> None:
    if "the module mlflow is not" in program.phrase and importlib.util.find_spec("mlflow"):
        pytest.skip("MLflow is there")
    check(look_at_program(laid_out(tmp_path, program, "submit.py"), "submit.py"), program)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_what_is_said_of_a_script(tmp_path: Path, script: Program) -> None:
    check(look_at_script(laid_out(tmp_path, script, "run.sh"), "run.sh"), script)


@pytest.fixture
def mapped(shared: Allranks) -> Allranks:
    """All environments are the current Python: what they hold is tested elsewhere."""
    names = (
        "AzureML-sklearn-1.5",
        "python:latest",
        "mcr.microsoft.com/azureml/*",
        "pytorch/pytorch",
    )
    for name in names:
        assert shared("environment", "map", name, "current").returncode == 0
    return shared


@pytest.mark.heavy
@pytest.mark.parametrize("program", RUN, ids=lambda each: each.name)
def test_what_is_said_to_run_runs(mapped: Allranks, code: Path, program: Program) -> None:
    laid_out(code, program, "submit.py")
    done = mapped("python", "submit.py")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.heavy
@pytest.mark.parametrize(
    "script", [each for each in SCRIPTS if each.runs == "yes"], ids=lambda each: each.name
)
def test_a_script_that_is_said_to_run_runs(
    mapped: Allranks, shared_home: Path, code: Path, script: Program
) -> None:
    laid_out(code, script, "run.sh")
    program = code / "bin" / "ssm"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'import sys; from allranks.cli.main import main; "
        'sys.exit(main(["ssm", *sys.argv[1:]]))\' "$@"\n'
    )
    program.chmod(0o755)
    path = f"{program.parent}:{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {"ALLRANKS_HOME": str(shared_home), "PATH": path, "HOME": str(code)}
    done = subprocess.run(
        ["/bin/bash", "./run.sh"], cwd=code, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
