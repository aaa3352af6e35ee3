"""Scripts written for Azure's environments, in what stands for these here: real packages."""

from pathlib import Path

import pytest

from tests.support import Allranks

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(900)]

OF_2022 = """
import lightgbm, numpy as np, pandas as pd, sklearn, xgboost
frame = pd.DataFrame({"x": [1.0]}).append({"x": 2.0}, ignore_index=True)
kind = np.str
data = lightgbm.Dataset(np.random.rand(50, 2), np.random.rand(50))
lightgbm.train({"verbose": -1}, data, 3, verbose_eval=False)
print(len(frame), kind("fine"), sklearn.__version__)
"""


@pytest.mark.parametrize(
    ("name", "version", "difference"),
    [
        ("AzureML-sklearn-1.5", "1.5.", ""),
        ("AzureML-sklearn-0.24-ubuntu18.04-py37-cpu", "1.1.", " (scikit-learn 1.1 for 0.24)"),
    ],
)
def test_numpy_and_pandas_are_those_of_the_name(
    shared: Allranks, code: Path, name: str, version: str, difference: str
) -> None:
    (code / "train.py").write_text(OF_2022)
    done = shared("run", "-e", name, "--", "python", "-W", "ignore", "train.py", timeout=800)
    assert done.returncode == 0, done.stderr
    assert f"2 fine {version}" in done.stdout
    assert f"instead{difference}\n" in done.stderr


def test_acpt_holds_what_installs_and_names_the_rest(shared: Allranks, code: Path) -> None:
    (code / "train.py").write_text(
        "import deepspeed, numpy, onnxruntime, pandas, torch, transformers\n"
        "print(torch.__version__, numpy.__version__, pandas.__version__)\n"
    )
    words = ("run", "-e", "acpt-pytorch-1.13-cuda11.7", "--", "python", "train.py")
    done = shared(*words, timeout=800)
    assert done.returncode == 0, done.stderr
    assert "(torch 2.13 for 1.13)" in done.stderr
    assert "\n2.13.0" in f"\n{done.stdout}"
    assert " 1.26." in done.stdout
