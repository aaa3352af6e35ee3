"""A job followed in a notebook, by a real kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.frameworks.environments import ROOT, environment
from tests.support import Allranks
from tests.support import environment as clean

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(600)]

CELLS = [
    "from allranks import Client, command\n"
    "job = Client().jobs.create_or_update(command(command='python -u train.py', code='.',\n"
    "    metrics={'loss': r'loss (\\S+)'}))\n"
    "job.watch(every=0.2)",
    "job",
]
TRAIN = "import time\nfor n in range(20):\n    print('loss', n, '<b>');  time.sleep(0.1)\n"
RUN = """\
import sys
import nbformat
from nbclient import NotebookClient
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in sys.argv[2:]])
drawn = []
class Client(NotebookClient):
    def process_message(self, msg, cell, index):
        drawn.append(msg["msg_type"])
        return super().process_message(msg, cell, index)
Client(book, timeout=120, kernel_name="python3").execute()
assert drawn.count("update_display_data") > 2, drawn
nbformat.write(book, sys.argv[1])
"""


def test_a_job_is_redrawn_until_it_has_ended(home: Path, allranks: Allranks, code: Path) -> None:
    (code / "train.py").write_text(TRAIN)
    env = clean(home)
    # By the tests' Python: that of the kernel has allranks only by its variables.
    assert allranks("server", "start").returncode == 0
    # The kernel is that environment's; allranks and its dependencies are those of the tests.
    places = (str(ROOT / "src"), sysconfig.get_path("purelib"), env.get("PYTHONPATH", ""))
    env |= {"PYTHONPATH": os.pathsep.join(filter(None, places)), "HOME": str(code)}
    python = environment("notebook") / "bin" / "python"
    argv = [python, "-c", RUN, code / "out.ipynb", *CELLS]
    done = subprocess.run(argv, env=env, cwd=code, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    first, second = json.loads((code / "out.ipynb").read_text())["cells"]
    assert len(first["outputs"]) == len(second["outputs"]) == 1
    for cell in (first, second):
        html = "".join(cell["outputs"][0]["data"]["text/html"])
        assert "Completed" in html
        assert "loss 19 at step 19" in html
        assert "<polyline" in html
    assert "loss 19 &lt;b&gt;" in "".join(first["outputs"][0]["data"]["text/html"])
