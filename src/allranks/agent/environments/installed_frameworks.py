"""Detect the TensorFlow version of a job's environment from its files, without running Python."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

# For containers: a shell command that prints the version of TensorFlow, or nothing.
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
    """The version of TensorFlow installed for the `python` on the PATH of ``env``, or None."""
    python = shutil.which("python", path=env.get("PATH"))
    if python is None:
        return None
    for dist_info in (Path(python).parent.parent / "lib").glob(
        "python3*/site-packages/tensorflow*.dist-info"
    ):
        if match := _TENSORFLOW.match(dist_info.name):
            return int(match[1]), int(match[2])
    return None


def tensorflow_in(packages: Mapping[str, str]) -> tuple[int, int] | None:
    """The version of TensorFlow tensorflow_in package versions, or None."""
    for name, version in packages.items():
        if match := _TENSORFLOW.match(f"{name}-{version}"):
            return int(match[1]), int(match[2])
    return None


def parse_version(output: str) -> tuple[int, int] | None:
    """The version in the output of ``ASK_TENSORFLOW``, or None."""
    match = _VERSION.match(output)
    return (int(match[1]), int(match[2])) if match else None


def breaks_on_empty_ps(tensorflow: tuple[int, int] | None) -> bool:
    """Whether this version of TensorFlow rejects an empty list of parameter servers."""
    return (tensorflow or (0, 0)) >= (2, 9)
