"""Make a home with this version, for later versions to open.

``python -m tests.releases.make_home`` writes ``tests/releases/<version>``: the database as SQL, the
files beside it, a backup, what the commands answered, and all names for users. Run it with the
commit that is released: the home of a released version never changes. Paths of this machine become
``@HOME@`` and ``@ROOT@``. The token and keys open nothing else.
"""

import contextlib
import json
import lzma
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

from allranks.store.compaction import compact
from allranks.store.database import opened_database
from allranks.version import __version__
from tests.releases.names import names
from tests.support import CLI

FOLDER = Path(__file__).parent
# The same on every machine: blocks of events hold it, and cannot be changed.
ROOT = Path(f"/tmp/allranks-{__version__}")
HOME = ROOT / "home"
# What belongs to a machine and is made anew, or to a server that runs.
LEFT_OUT = ("allranks.db*", "server.*", "nodes", "engines", "environments", "python", "cache")
LEFT_OUT += (
    "warm",
    "serve",
    "marks",
    "terminals",
    "downloads",
    "snapshots.json",
    "digests",
    "log-times",
)

TRAIN = """\
import os, pathlib, sys
state, data = pathlib.Path(os.environ["ALLRANKS_STATE_DIR"], "step"), sys.argv[1]
before = int(state.read_text()) if state.exists() else 0
print("went on from", before, "with", pathlib.Path(data).read_text().strip())
for step in range(before + 1, before + 4):
    print(f"loss: {1 / step}")
state.write_text(str(step))
pathlib.Path("outputs", "model.txt").write_text(f"weights of step {step}")
sys.exit(0 if before or "fail" not in sys.argv else 3)
"""
FILES = {
    "code/train.py": TRAIN,
    "data/words.txt": "words\n",
    "plain.yml": """\
name: plain
display_name: A plain job
description: "With what most jobs have: 'quotes', ümlauts"
experiment_name: birds
tags: {team: vision}
command: python train.py ${{inputs.words}} --lr ${{inputs.lr}}
code: code
inputs: {words: {type: uri_file, path: "azureml:words:1"}, lr: 0.1}
metrics: {loss: 'loss: ([0-9.]+)'}
resources: {instance_count: 2}
distribution: {type: pytorch, process_count_per_instance: 1}
state: plain
""",
    "pipe.yml": """\
type: pipeline
name: pipe
jobs:
  make:
    command: echo made > ${{outputs.made}}/file
    outputs: {made: {type: uri_folder}}
  use:
    command: cat ${{inputs.made}}/file
    inputs: {made: "${{parent.jobs.make.outputs.made}}"}
""",
    "component.yml": "type: command\nname: say\nversion: 1\ncommand: echo ${{inputs.word}}\n"
    "inputs: {word: {type: string, default: hello}}\n",
    "schedule.yml": "name: nightly\ntrigger: {type: cron, expression: '0 3 * * *'}\n"
    "create_job: plain.yml\n",
    "endpoint.yml": "name: birds\nauth_mode: key\n",
}
# What is asked of the home, now and by every later version.
QUESTIONS = (
    *(
        "job list --status Completed",
        "job show plain",
        "job show failed",
        "job show search",
        "job show pipe",
    ),
    *("job metrics plain", "job events plain", "job files plain", "job logs plain"),
    *("job list --metric loss<0.4", "job list --tag team=vision", "job list --uses words:1"),
    *("data list", "data show words:1", "model list", "model show birds:1", "schedule list"),
    *("environment show train:1", "component show say:1", "schedule show nightly"),
    *("compute list", "datastore list", "datastore show birds"),
    *("state list", "state show plain", "endpoint show birds", "data map", "compute map"),
    "endpoint get-credentials birds",
)


def allranks(*words: str, code: int = 0) -> str:
    """Run the command line as a user with nothing else; returns what it printed."""
    environ = {"PATH": f"{ROOT}/venv/bin:/usr/bin:/bin", "HOME": str(ROOT), "LANG": "C.UTF-8"}
    environ |= {"VIRTUAL_ENV": f"{ROOT}/venv", "ALLRANKS_HOME": str(HOME), "TMPDIR": str(ROOT)}
    environ |= {"ALLRANKS_MAX_RANKS": "0", "ALLRANKS_LEASE": "60", "AWS_ACCESS_KEY_ID": "birds"}
    environ |= {"AWS_SECRET_ACCESS_KEY": "kept-by-0.1.0", "USER": "ann", "LOGNAME": "ann"}
    argv = [f"{ROOT}/venv/bin/python", "-c", CLI, *words]
    done = subprocess.run(
        argv, env=environ, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def fill() -> None:
    """Everything that a home can hold, and that needs no cluster and no network."""
    loss = ("-m", "loss=loss: ([0-9.]+)")
    allranks("server", "start")
    allranks("data", "upload", "data/words.txt", "--name", "words", "--version", "1")
    allranks("job", "create", "-f", "plain.yml", "--stream")
    fails = ("-i", "words=data/words.txt", "--", "python", "train.py", "${{inputs.words}}", "fail")
    allranks("run", "-C", "code", "--name", "failed", *loss, *fails, code=3)
    script = "for i in 1 2; do echo loss: ${{search_space.lr}}$i; done"
    search = ("--sweep", "lr=uniform(0,1)", "--seed", "1", "--trials", "2", "--minimize", "loss")
    allranks("run", "--name", "search", *search, *loss, "--", "bash", "-c", script)
    allranks("job", "create", "-f", "pipe.yml", "--stream")
    allranks("run", "--name", "hidden", "--", "true")
    allranks("job", "archive", "hidden")
    allranks("model", "register", "birds", "--job", "plain", "--path", "outputs/model.txt")
    allranks("model", "label", "birds:1", "best")
    allranks("environment", "create", "train", "--pip", "packaging==24.2", "--label", "prod")
    allranks("component", "create", "-f", "component.yml")
    allranks("schedule", "create", "-f", "schedule.yml")
    allranks("schedule", "pause", "nightly")
    allranks("endpoint", "create", "-f", "endpoint.yml")
    allranks("compute", "update", "local", "--max-ranks", "64")
    allranks("compute", "map", "gpu-cluster=local")
    allranks("data", "map", "s3://old/", f"{ROOT}/data/")
    kinds = ("--type", "s3", "--bucket", "birds", "--prefix", "v2", "--credentials-from-env")
    allranks("datastore", "create", "birds", *kinds)
    # Its first attempt lasts until its node is lost.
    lasts = '[ "$ALLRANKS_ATTEMPT" = 1 ] && exec sleep 600; echo attempt $ALLRANKS_ATTEMPT'
    restarts = ("--max-attempts", "2", "--name", "running", "--detach")
    allranks("run", *restarts, "--", "bash", "-c", f"echo begun; {lasts}")


def neutral(text: str) -> str:
    return text.replace(str(HOME), "@HOME@").replace(str(ROOT), "@ROOT@")


def write(target: Path) -> None:
    """Write the home, as it is while its server and a job run."""
    shutil.copytree(HOME, target / "files", ignore=shutil.ignore_patterns(*LEFT_OUT))
    with contextlib.closing(sqlite3.connect(HOME / "allranks.db")) as database:
        lines = "\n".join(database.iterdump()) + "\n"
    (target / "database.sql").write_text(neutral(lines))
    answers = {each: json.loads(allranks(*each.split(), "--json")) for each in QUESTIONS}
    lines = ",\n".join(f"{json.dumps(kind)}: {json.dumps(all_)}" for kind, all_ in names().items())
    (target / "names.json").write_text(f"{{\n{lines}\n}}\n")
    allranks("server", "backup", str(ROOT / "backup.tar"), "--with-files")
    (target / "backup.tar.xz").write_bytes(lzma.compress((ROOT / "backup.tar").read_bytes()))
    (target / "answers.json").write_text(neutral(json.dumps(answers, indent=1)) + "\n")


def main() -> None:
    target = FOLDER / __version__
    if ROOT.exists():
        sys.exit(f"{ROOT} exists: remove it first")
    for name, text in FILES.items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(text)
    (ROOT / "venv").symlink_to(sys.prefix)
    try:
        fill()
        allranks("job", "wait", "running", "--timeout", "3", code=124)
        with opened_database(HOME / "allranks.db") as engine:
            compact(engine, 0.0, threading.Event())
        shutil.rmtree(target, ignore_errors=True)
        write(target)
    finally:
        allranks("server", "stop")
        shutil.rmtree(ROOT)
    size = sum(each.stat().st_size for each in target.rglob("*") if each.is_file())
    print(f"{target}: {size} bytes")


if __name__ == "__main__":
    main()
