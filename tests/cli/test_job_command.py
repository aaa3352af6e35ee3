"""What bash says of a command before it runs."""

import os
from pathlib import Path

import pytest

from allranks.cli.preflight import job_command
from allranks.cli.preflight.findings import BAD, NOTE


@pytest.fixture
def base(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "python").touch(0o755)
    return {"PATH": f"{tmp_path}:{os.defpath}"}


@pytest.mark.parametrize(
    "command",
    [
        "python train.py --x ${{inputs.x}} $[[--y ${{inputs.y}}]]",
        "cd src && OMP=1 exec python train.py > log.txt # nosuch",
        "if [ -e a ]; then python a.py; else echo; fi",
        "for f in *.py; do python $f; done; while true; do break; done",
        "pip install x && nosuch",
        "python -m pip install x && nosuch",
        "source env.sh; nosuch",
        "f() { echo; }; f",
        "case $X in a) echo;; b) echo;; esac",
        "./run.sh; $PROGRAM x; bash run.sh; [[ -e x ]] && set -e",
        "cat <<END\nnosuch\nEND",
        "echo a | grep b || true",
        "",
    ],
)
def test_what_can_start(command: str, base: dict[str, str]):
    assert list(job_command.look(command, base)) == []


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("torchrun9 --nproc_per_node 2 t.py", "torchrun9"),
        ("cd src && X=1 nosuch a", "nosuch"),
        ("python a.py\nnosuch b", "nosuch"),
        ("echo x | nosuch", "nosuch"),
    ],
)
def test_a_program_that_is_not_there(command: str, name: str, base: dict[str, str]):
    (finding,) = job_command.look(command, base)
    assert finding.state == BAD
    assert finding.found.startswith(f"`{name}` is not on the PATH")
    (finding,) = job_command.look(command, base, current=False)
    assert finding.state == NOTE


def test_quotes_that_are_left_open(base: dict[str, str]):
    (finding,) = job_command.look('python t.py --x "open', base)
    assert finding.state == BAD
    assert finding.found.startswith("bash cannot parse it: unexpected EOF")
