"""What is shown, to the letter: `--help` and the ten commonest errors.

`UPDATE_GOLDEN=1 pytest tests/golden` writes them anew; the diff is then yours to read.
"""

import os
import re
from pathlib import Path

import pytest

from allranks.core.plan import Gang
from allranks.engines.local.capacity import Capacity
from allranks.engines.local.engine import LocalEngine
from tests.support import Allranks

SCREENS = Path(__file__).parent / "screens"

JOBS = {
    "unknown-key.yml": "command: python train.py\nresources:\n  instance_cout: 3\n",
    "wrong-type.yml": "command: python train.py\nresources:\n  instance_count: three\n",
    "no-command.yml": "code: .\n",
    "unknown-input.yml": "command: python train.py ${{inputs.learning_rate}}\ninputs:\n  lr: 0.1\n",
    "not-yaml.yml": "command: [python\ncode: .\n",
}


@pytest.mark.parametrize(
    ("screen", "words"),
    [
        ("help", ["--help"]),
        ("help-job", ["job", "--help"]),
        ("help-server", ["server", "--help"]),
        ("help-gc", ["gc", "--help"]),
        ("help-report", ["report", "--help"]),
        ("no-time", ["gc", "--older-than", "soon"]),
        ("unknown-key", ["job", "validate", "-f", "unknown-key.yml"]),
        ("wrong-type", ["job", "validate", "-f", "wrong-type.yml"]),
        ("no-command", ["job", "validate", "-f", "no-command.yml"]),
        ("unknown-input", ["job", "validate", "-f", "unknown-input.yml"]),
        ("not-yaml", ["job", "validate", "-f", "not-yaml.yml"]),
        ("no-file", ["job", "validate", "-f", "nosuch.yml"]),
        ("missing-input", ["run", "-i", "data=nosuch", "--", "true"]),
        ("not-built", ["run", "-d", "ray", "--hang-timeout", "9", "--", "true"]),
        ("too-large", ["run", "-n", "65", "--", "true"]),
        ("too-many", ["run", "-p", "1000000000", "--", "true"]),
        ("unknown-job", ["job", "show", "nosuch"]),
        ("unknown-command", ["jobs"]),
        ("no-words", ["run"]),
    ],
)
@pytest.mark.medium
def test_screen(shared: Allranks, code: Path, screen: str, words: list[str]) -> None:
    for name, text in JOBS.items():
        (code / name).write_text(text)
    done = shared(*words, env={"COLUMNS": "80"})
    shown = f"$ allranks {' '.join(words)}\n{done.stdout}{done.stderr}exit {done.returncode}\n"
    shown = shown.replace(str(code), "CODE")
    golden = SCREENS / f"{screen}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(shown)
    assert shown == golden.read_text()


@pytest.mark.medium
def test_a_failed_job(shared: Allranks) -> None:
    """The screen people see most on a bad day."""
    script = 'test $RANK = 0 || { echo "Traceback …"; echo "ValueError: boom"; exit 1; }; sleep 60'
    done = shared("run", "-n", 2, "--name", "bad-day", "--", "bash", "-c", script)
    shown = done.stdout + "".join(
        line for line in done.stderr.splitlines(keepends=True) if " after " not in line
    )
    shown = re.sub(r"http://127\.0\.0\.1:\d+", "http://127.0.0.1:7070", shown)
    golden = SCREENS / "failed-job.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(shown)
    assert shown == golden.read_text()


def test_what_the_local_engine_is_sent() -> None:
    engine = LocalEngine(Path("/x"), Path("/y"), Capacity())
    argv = ("/a b/python", "-P", "-m", "allranks.agent")
    gang = Gang("job.1", 3, argv, env={"ALLRANKS_AGENT_TOKEN": "s3cret"})
    assert engine.render(gang) == '3 × "/a b/python" -P -m allranks.agent'
