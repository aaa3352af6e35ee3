"""What is noted of a script when its job is submitted."""

import json
from pathlib import Path
from typing import Any

import pytest

from allranks.cli.importing.programs import look_at_program
from allranks.cli.preflight.read_script import read
from allranks.sdk.submit.script_notes import (
    _tree,
    data_parallel,
    missing_imports,
    windows_lines,
)
from tests.support import Allranks

ENVIRONMENT = {
    "name": "allranks-pytorch-2.13:3",
    "requirements": ["torch==2.13.0", "torchvision==0.28.0", "numpy"],
}


@pytest.mark.parametrize(
    ("text", "command", "names"),
    [
        (
            "import os, horovod.torch as hvd\n",
            "python src/train.py",
            ["py:1 imports horovod"],
        ),
        ("\nfrom deepspeed import zero\nimport cv2\n", "cd src && python train.py", ["2", "3"]),
        ("import torch, torchvision, numpy, own\nfrom . import x\n", "python src/train.py", []),
        ("try:\n    import horovod\nexcept ImportError:\n    pass\n", "python src/train.py", []),
        ("import horovod\n", "pip install horovod && python src/train.py", []),
        ("import horovod (\n", "python src/train.py", []),
        ("import horovod\n", "python other.py", []),
    ],
)
def test_what_a_script_imports_and_the_environment_lacks(
    tmp_path: Path, text: str, command: str, names: list[str]
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(text)
    sentences = missing_imports({"command": command, "code": str(tmp_path)}, ENVIRONMENT)
    assert len(sentences) == len(names)
    for name, sentence in zip(names, sentences, strict=True):
        assert name in sentence
        assert "which allranks-pytorch-2.13:3 does not have" in sentence


@pytest.mark.parametrize(
    ("text", "gpus", "processes", "line"),
    [
        ("from torch import nn\nmodel = nn.DataParallel(net)\n", 4, 2, "train.py:2"),
        ("model = torch.nn.DataParallel(net)\n", 2, 2, "train.py:1"),
        ("model = DataParallel(net)\n", 1, 2, ""),
        ("model = nn.DataParallel(net)\n", 4, 8, ""),
        ("model = DistributedDataParallel(net)\n# nn.DataParallel(x)\n", 4, 2, ""),
        ("model = nn.DataParallel(\n", 4, 2, ""),
    ],
)
def test_threads_for_several_gpus_are_slower_than_processes(
    tmp_path: Path, text: str, gpus: int, processes: int, line: str
) -> None:
    (tmp_path / "train.py").write_text(text)
    job: Any = {"gpus_per_node": gpus, "processes": processes, "nodes": 2}
    sentences = data_parallel({"command": "python train.py", "code": str(tmp_path)}, job)
    assert [sentence.partition(" uses")[0] for sentence in sentences] == [line] * bool(line)
    assert all(f"-p {gpus}" in sentence for sentence in sentences)


@pytest.mark.parametrize(
    ("command", "is_noted"),
    [
        ("bash run.sh --lr 0.1", True),
        ("./run.sh | tee log", True),
        ("cd sub && source ../run.sh", True),
        ("bash -c 'bash -e run.sh'", True),
        ("bash unix.sh; cat run.sh", False),
        ("python train.py", False),
        ("bash $SCRIPT run.sh", False),
    ],
)
def test_a_shell_script_with_windows_line_endings(
    tmp_path: Path, command: str, is_noted: bool
) -> None:
    (tmp_path / "run.sh").write_bytes(b"cd nowhere\r\necho done\r\n")
    (tmp_path / "unix.sh").write_bytes(b"echo done\n")
    (tmp_path / "train.py").write_bytes(b"print(1)\r\n")
    sentences = windows_lines({"command": command, "code": str(tmp_path)})
    assert [sentence.partition(" has Windows")[0] for sentence in sentences] == [
        "run.sh"
    ] * is_noted


def run_of(shared: Allranks, *words: str) -> str:
    done = shared(*words)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
def test_the_scripts_of_steps_trials_and_python_are_noted(shared: Allranks, code: Path) -> None:
    (code / "train.py").write_text("import deepspeed\n")
    (code / "run.sh").write_bytes(b"echo done\r\n")
    step = {"command": "python train.py", "code": ".", "environment": "azureml:sklearn-1.5@latest"}
    component = {"name": "shell", "type": "command", "command": "bash run.sh", "code": "."}
    component["environment"] = "azureml:sklearn-1.5@latest"
    (code / "shell.yml").write_text(json.dumps(component))
    pipeline = {"type": "pipeline", "jobs": {"a": step, "b": {"component": "shell.yml"}}}
    sweep = {
        "type": "sweep",
        "trial": {**step, "command": "python train.py ${{search_space.x}}"},
        "search_space": {"x": {"type": "choice", "values": [1]}},
        "sampling_algorithm": "grid",
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {"max_total_trials": 1},
    }
    (code / "submit.py").write_text(
        "from azure.ai.ml import MLClient, command\n"
        "job = command(command='bash run.sh', code='.', environment='sklearn-1.5@latest')\n"
        "MLClient.from_config().jobs.create_or_update(job)\n"
    )
    imports, lines = "note: train.py:1 imports deepspeed", "note: run.sh has Windows line endings"
    for job, notes in ((pipeline, [imports, lines]), (sweep, [imports])):
        (code / "job.yml").write_text(json.dumps(job))
        said = run_of(shared, "job", "create", "-f", "job.yml")
        assert [note in said for note in (imports, lines)] == [
            note in notes for note in (imports, lines)
        ]
    assert lines in run_of(shared, "python", "submit.py")
    assert imports in run_of(shared, "az", "ml", "job", "create", "-f", "job.yml")


@pytest.mark.parametrize("text", ["x = " + "-" * 60_000 + "1", "x = a" + ".a" * 60_000, "(" * 300])
def test_a_script_that_nests_too_deeply_is_no_python(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(text)
    parses = bool(_tree(tmp_path / "train.py").body)  # as Pythons with a larger stack do
    found = read(str(tmp_path / "train.py"), str(tmp_path))
    assert parses or found["error"]["message"]
    (tmp_path / "main.py").write_text(f"import azureml.core\n{text}")
    look_at_program(tmp_path / "main.py", "main.py")
