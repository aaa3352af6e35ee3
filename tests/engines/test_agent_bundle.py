"""The agent's code as it is sent to nodes that have only a Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from allranks.engines import agent_bundle

# Imports all of the agent without anything that is installed; prints what is missing.
IMPORTS = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import allranks.agent
for module in pkgutil.walk_packages(allranks.agent.__path__, "allranks.agent."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            print(error.name)
"""


@pytest.mark.medium
def test_it_needs_only_a_python_and_for_data_stores_obstore(tmp_path: Path):
    for name, content in agent_bundle.files():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    command = [sys.executable, "-I", "-S", "-c", IMPORTS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {*done.stdout.split()} == {"obstore"}
