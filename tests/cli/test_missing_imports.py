"""Imports that a built-in environment lacks are named when a job is submitted."""

from pathlib import Path
from typing import Any

import pytest

from allranks.cli.submit.missing_imports import missing_imports

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
