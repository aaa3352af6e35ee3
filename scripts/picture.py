"""Record the terminals of the README and the site: run real commands, write docs/*.svg.

.venv/bin/python scripts/picture.py           all of them (needs torch)
.venv/bin/python scripts/picture.py sweep     only docs/how-to/sweep.svg
"""

import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).resolve().parents[1] / "docs"
COLUMNS = 100
(TUTORIAL,) = re.findall(r"```python\n(.*?)```", (DOCS / "tutorial.md").read_text(), re.S)
FIT = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--batch", type=int)
args = parser.parse_args()
print(f"acc: {1 / (1 + 40 * abs(args.lr - 0.02) + args.batch / 400):.4f}")
"""
PIPELINE = """\
type: pipeline
inputs: {rows: 1000}
jobs:
  prep:
    command: seq ${{inputs.rows}} > ${{outputs.data}}/rows && echo wrote ${{inputs.rows}} rows
    inputs: {rows: '${{parent.inputs.rows}}'}
    outputs: {data: }
  train:
    command: wc -l ${{inputs.data}}/rows
    inputs: {data: '${{parent.jobs.prep.outputs.data}}'}
"""
LOAD = """\
def load_batch(step):
    if step == 3 and rank == 2:
        print("step 3", flush=True)
        return open("shard-2").read()  # a pipe that nobody writes to
    return step


def main():
    for step in range(10):
        load_batch(step)
        dist.barrier()


if __name__ == "__main__":
    import os

    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    main()
"""
WAIT = """\
import time

print("started")
time.sleep(600)
"""
SCORE = """\
import json


def init():
    global slope
    slope = 2.0


def run(data):
    return [slope * x for x in json.loads(data)["data"]]
"""
BLUE = """\
name: blue
endpoint_name: doubles
model: {path: model}
code_configuration: {code: ., scoring_script: score.py}
environment: current
"""
RUN = "allranks run -n 3 -m loss='loss (\\S+)' --name"


class Cast(NamedTuple):
    """A recorded terminal: the files of its folder, commands that are not shown, and those that
    are."""

    file: str
    files: dict[str, str]
    commands: tuple[str, ...]
    before: tuple[str, ...] = ()


CASTS = (
    Cast(
        "run",
        {"train.py": TUTORIAL},
        (
            "allranks run -n 3 -m loss='loss (\\S+)' -- python train.py",
            "allranks job metrics -",
            "allranks run -n 3 -- bash -c 'test $RANK != 2 || exit 7; sleep 60'",
        ),
    ),
    Cast(
        "how-to/failures",
        {"train.py": TUTORIAL},
        ("allranks job explain broken",),
        (f"{RUN} fine -- python train.py", f"{RUN} broken -- python train.py --crash-at 4"),
    ),
    Cast(
        "how-to/sweep",
        {"train.py": FIT},
        (
            "allranks run --sweep 'lr=loguniform(1e-3, 1e-1)' --sweep 'batch=choice(16, 32)' "
            "--trials 6 --concurrent 3 --seed 1 --name rates \\\n    --maximize acc "
            "-m acc='acc: ([0-9.]+)' "
            "-- python train.py --lr '${{search_space.lr}}' --batch '${{search_space.batch}}'",
            "allranks job show rates",
        ),
    ),
    Cast(
        "how-to/pipeline",
        {"pipeline.yml": PIPELINE},
        (
            "allranks job create -f pipeline.yml --stream",
            "allranks job create -f pipeline.yml --stream",
            "allranks job create -f pipeline.yml --stream --set inputs.rows=2000 --set name=more",
            "allranks job explain more",
        ),
    ),
    Cast(
        "how-to/hangs",
        {"train.py": LOAD},
        ("allranks job stacks digits", "allranks job stacks digits --collectives"),
        (
            "mkfifo shard-2",
            "allranks run -n 4 --in-place --name digits --detach -- python train.py",
            "until allranks job logs digits | grep 'step 3'; do sleep 1; done",
            "sleep 3",
        ),
    ),
    Cast(
        "how-to/enter",
        {"train.py": WAIT},
        (
            "allranks job exec digits --rank 3 -- bash -c 'echo rank $RANK, process $$; ls'",
            "allranks job cp digits:train.py copy.py",
            "wc -l copy.py",
        ),
        (
            "allranks run -n 2 -p 2 --name digits --detach -- python train.py",
            "until allranks job logs digits | grep started; do sleep 1; done",
        ),
    ),
    Cast(
        "how-to/serve",
        {"score.py": SCORE, "blue.yml": BLUE, "model/weights": "2\n"},
        (
            "allranks endpoint create doubles",
            "allranks deployment create -f blue.yml --all-traffic",
            "allranks endpoint invoke doubles --data '{\"data\": [1, 2.5]}'",
            "allranks endpoint show doubles",
        ),
    ),
    Cast(
        "how-to/models",
        {"train.py": FIT + 'open("outputs/model.txt", "w").write("weights\\n")\n'},
        (
            "allranks model register birds --job fit --path outputs/model.txt --alias candidate",
            "allranks model show birds",
            "allranks run -i model=azureml:birds@candidate -- cat '${{inputs.model}}'",
        ),
        ("allranks run --name fit -m acc='acc: (.*)' -- python train.py --lr 0.02 --batch 16",),
    ),
    Cast(
        "how-to/rehearse",
        {"train.py": TUTORIAL},
        (
            "allranks run -n 2 --rehearse -m loss='epoch (?P<step>\\d+) loss (?P<value>\\S+)' "
            "-- python train.py --epochs 2000",
        ),
    ),
    Cast(
        "how-to/find-jobs",
        {"train.py": TUTORIAL},
        ("allranks job list --sort loss --columns name,status,loss,lr", "allranks job compare a b"),
        tuple(
            f"{RUN} {name} -- python train.py --lr {lr}"
            for name, lr in (("a", 0.01), ("b", 0.03), ("c", 0.003))
        ),
    ),
)


def in_a_terminal(command: str, folder: Path, env: dict[str, str]) -> str:
    """What the command prints on a terminal, in its last state."""
    outer, inner = pty.openpty()
    options = {"stdin": inner, "stdout": inner, "stderr": inner, "cwd": folder, "env": env}
    with subprocess.Popen(["bash", "-c", f"stty cols {COLUMNS}; {command}"], **options):
        os.close(inner)
        printed = b""
        try:
            while piece := os.read(outer, 65536):
                printed += piece
        except OSError:  # how Linux says that nobody has the terminal open any more
            pass
    os.close(outer)
    text = printed.decode().replace("\r\n", "\n")
    lines = [line.rpartition("\r")[2] for line in text.split("\n")]
    # Only colours stay: moves of the cursor have done their work.
    return re.sub(r"\x1b\[[0-9;?]*[A-HJ-Zac-ln-z]", "", "\n".join(lines))


def record(cast: Cast) -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        home, code = Path(folder, "home"), Path(folder, "project")
        for name, text in cast.files.items():
            (code / name).parent.mkdir(parents=True, exist_ok=True)
            (code / name).write_text(text)
        names = ("HOME", "LANG")
        env = {name: os.environ[name] for name in names if name in os.environ}
        env |= {"TERM": "xterm-256color", "ALLRANKS_HOME": str(home), "PYTHONWARNINGS": "ignore"}
        env["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        allranks = shutil.which("allranks", path=env["PATH"])
        try:
            for command in cast.before:
                in_a_terminal(command, code, env)
            for command in cast.commands:
                printed = in_a_terminal(command, code, env).rstrip()
                # The folders of this recording stand where the reader's own would.
                own = ((home, "~/.allranks"), (code, "~/project"), (sys.prefix, "~/.venv"))
                for path, shown in own:
                    printed = printed.replace(str(path), shown)
                console.print(Text(f"$ {command}", style="bold"))
                console.print(Text.from_ansi(printed), end="\n\n")
        finally:
            subprocess.run([str(allranks), "server", "stop"], env=env, capture_output=True)
    svg = console.export_svg(title="allranks")
    # Readers' browsers fetch nothing from elsewhere.
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.S).replace("Fira Code", "monospace")
    (DOCS / f"{cast.file}.svg").write_text(svg)


def main() -> None:
    chosen = [cast for cast in CASTS if not sys.argv[1:] or Path(cast.file).name in sys.argv[1:]]
    for cast in chosen:
        record(cast)


if __name__ == "__main__":
    main()
