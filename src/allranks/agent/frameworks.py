"""What the job's environment has, where the platform has to know it: by its files, nothing runs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

_TENSORFLOW = re.compile(r"tensorflow(?:_cpu|_gpu|_rocm)?-(\d+)\.(\d+)")


def tensorflow(env: Mapping[str, str]) -> tuple[int, int] | None:
    """The version of TensorFlow beside the `python` on the PATH of ``env``."""
    python = shutil.which("python", path=env.get("PATH"))
    if python is None:
        return None
    for each in (Path(python).parent.parent / "lib").glob(
        "python3*/site-packages/tensorflow*.dist-info"
    ):
        found = _TENSORFLOW.match(each.name)
        if found:
            return int(found[1]), int(found[2])
    return None
