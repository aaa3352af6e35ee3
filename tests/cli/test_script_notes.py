"""What is noted of a script when its job is submitted."""

from pathlib import Path
from typing import Any

import pytest

from allranks.cli.submit.script_notes import data_parallel, missing_imports

JOB: Any = {
    "environment": {
        "name": "allranks-pytorch-2.13:3",
        "requirements": ["torch==2.13.0", "torchvision==0.28.0", "numpy"],
    }
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
    sentences = missing_imports({"command": command, "code": "."}, tmp_path, JOB)
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
    sentences = data_parallel({"command": "python train.py"}, tmp_path, job)
    assert [sentence.partition(" uses")[0] for sentence in sentences] == [line] * bool(line)
    assert all(f"-p {gpus}" in sentence for sentence in sentences)
