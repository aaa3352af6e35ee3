"""What the job's environment has, where the platform has to know it: by its files, nothing runs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

# Where only a shell can look: prints the version of TensorFlow, or nothing.
ASK_TENSORFLOW = """python - <<'END' 2>/dev/null
from importlib.metadata import version
for name in ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm"):
    try:
        print(version(name))
    except Exception:
        pass
END"""
_VERSION = re.compile(r"(\d+)\.(\d+)")
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


def among(packages: Mapping[str, str]) -> tuple[int, int] | None:
    """The version of TensorFlow among the versions of packages."""
    for name, version in packages.items():
        if found := _TENSORFLOW.match(f"{name}-{version}"):
            return int(found[1]), int(found[2])
    return None


def told(answer: str) -> tuple[int, int] | None:
    """The version in the answer to ``ASK_TENSORFLOW``."""
    found = _VERSION.match(answer)
    return (int(found[1]), int(found[2])) if found else None


def breaks_on_empty_ps(tensorflow: tuple[int, int] | None) -> bool:
    """Whether this version of TensorFlow fails on an empty list of parameter servers."""
    return (tensorflow or (0, 0)) >= (2, 9)
