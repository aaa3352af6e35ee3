"""A folder whose modules have the names of all that ours use: what is ours is not taken in."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.agent import inside
from tests.serve.test_scoring import Replica
from tests.support import Allranks, until

INSIDE = Path(inside.__path__[0])
SSM = INSIDE.parents[1] / "compat" / "ssm" / "inside"
# Started with -I -S, or run for an image by its Python with -I.
ISOLATED = {"allranks_debug.py", "allranks_dev_files.py", "allranks_sftp.py", "image_packages.py"}
# In every Python before any code of a user's. Nobody's file is called `__future__.py`.
ALWAYS = {"__future__", "_frozen_importlib", "_frozen_importlib_external", "os", "sys"}
# None of ours uses this one, but what ours use does.
MORE = ("email", "enum", "readline", "struct", "token", "html", "queue", "random", "copy")


def used() -> set[str]:
    """The standard modules in any import statement of ours in a rank."""
    names = set(MORE)
    for path in (*INSIDE.rglob("*.py"), *SSM.rglob("*.py")):
        if path.name not in ISOLATED:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    names |= {each.name.partition(".")[0] for each in node.names}
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names.add((node.module or "").partition(".")[0])
    return names & sys.stdlib_module_names - {*sys.builtin_module_names} - ALWAYS


def shadow(folder: Path) -> None:
    for name in used():
        (folder / f"{name}.py").write_text("mine = True\n")


def run(folder: Path, *words: str, **env: str) -> str:
    """The output of a Python that has our folder on its path, and that of its script."""
    env = {"PATH": os.defpath, "PYTHONPATH": str(INSIDE), **env}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_names_are_those_that_people_give():
    assert {"http", "inspect", "json", "socket", "types", "contextlib"} <= used()


@pytest.mark.parametrize("words", [("script.py",), ("-m", "script")])
@pytest.mark.parametrize("more", ["", ":."])
def test_a_script_gets_its_own_modules(tmp_path: Path, words: tuple[str, ...], more: str):
    shadow(tmp_path)
    (tmp_path / "script.py").write_text(
        "import inspect, json, socket, allranks_hold, allranks_inspect, allranks_profile\n"
        "assert inspect.mine and json.mine and socket.mine\n"
        "import azureml.core, json, allranks_inspect; assert json.mine\n"
        "print(allranks_hold.json.dumps(1), azureml.core.Run.get_context() is not None)"
    )
    hold = {"ALLRANKS_HOLD": f"0:{tmp_path}"}
    assert run(tmp_path, *words, PYTHONPATH=f"{INSIDE}{more}", **hold) == "1 True\n"


@pytest.mark.medium
def test_a_replica(tmp_path: Path):
    shadow(tmp_path)
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "uuid.py").write_text("mine = True\n")
    script = "import http, uuid\nmine = http.mine and uuid.mine\ndef run(data): return mine\n"
    (folder / "score.py").write_text(script)
    replica = Replica(tmp_path, "--script", "sub/score.py")
    until(replica.listens_or_ended)
    answer = replica.ask({}) if replica.process.poll() is None else None
    assert (answer and answer[:2], replica.end()) == ((200, "true"), "ready for requests\n")


@pytest.mark.medium
@pytest.mark.parametrize("words", [["-m", "allranks_parallel_step"], ["allranks_parallel_step.py"]])
def test_a_mini_batch(tmp_path: Path, words: list[str]):
    shadow(tmp_path)
    (tmp_path / "allranks_parallel_step.py").write_text(
        (INSIDE / "allranks_parallel_step.py").read_text()
    )
    (tmp_path / "score.py").write_text("import json\ndef run(batch): return [json.mine]\n")
    options = {
        "entry_script": "score.py",
        "mini_batch_size": 1,
        "mini_batch_error_threshold": 0,
        "max_retries": 0,
        "timeout": 60,
    }
    rank = {"RANK": "0", "WORLD_SIZE": "1", "ALLRANKS_JOB": "j", "MASTER_PORT": "0"}
    run(tmp_path, *words, json.dumps(options), "score.py", "rows", "--", **rank)
    assert (tmp_path / "rows").read_text() == "True\n"


def test_a_function_step(tmp_path: Path):
    shadow(tmp_path)
    source = "import inspect, json\ndef f(n: int): print(n + 1, json.mine, inspect.mine)\n"
    (tmp_path / "source.py").write_text(source)
    words = ("-m", "allranks_function_step", "source.py", "f", "n=1")
    assert run(tmp_path, *words) == "2 True True\n"


@pytest.mark.slow
def test_ranks_their_stacks_profiles_services_and_debuggers(
    allranks: Allranks, code: Path, tmp_path: Path
):
    mine = tmp_path / "mine"
    mine.mkdir()
    shadow(mine)
    (mine / "train.py").write_text(
        "import inspect, os, time\nprint(inspect.mine, flush=True)\n"
        "x = 41\nwhile not os.path.exists('fail'): time.sleep(0.01)\nraise ValueError('boom')\n"
    )
    (code / "job.yml").write_text(
        "name: held\ncommand: python train.py\ncode: ../mine\non_failure: {hold: 600}\n"
        "services: {web: {command: 'python -c \"import json; print(json.mine)\"; sleep 600'}}\n"
    )
    assert allranks("job", "create", "-f", "job.yml").returncode == 0
    until(lambda: "True" in allranks("job", "logs", "held").stdout)
    assert "train.py:4 <module>" in allranks("job", "stacks", "held").stdout
    profile = json.loads(allranks("job", "profile", "held", "--seconds", 0.5, "--json").stdout)
    assert profile["verdict"]["ranks"]
    assert allranks("job", "exec", "held", "--", "touch", "fail").returncode == 0

    def reason() -> str:
        return str(json.loads(allranks("job", "show", "held", "--json").stdout)["status_reason"])

    until(lambda: reason().startswith("held until"))
    debugged = allranks("job", "debug", "held", input="p x\nimport json\np json\n")
    assert "(Pdb) 41\n" in debugged.stdout, debugged.stderr
    assert allranks("job", "release", "held").returncode == 0
    assert allranks("job", "wait", "held").returncode == 1
