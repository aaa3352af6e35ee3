"""Which scripts a command starts, and what reading them tells."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allranks.cli.preflight import job_script
from allranks.cli.preflight.findings import BAD, NOTE, OK
from allranks.core.job import command_scripts
from allranks.core.job.command_scripts import Script, scripts


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python train.py --data ${{inputs.data}}", [Script("python", "train.py")]),
        ("python3.11 -u -W ignore a/train.py", [Script("python3.11", "a/train.py")]),
        ("/opt/env/bin/python train.py", [Script("/opt/env/bin/python", "train.py")]),
        ("torchrun --nproc_per_node 2 train.py --lr 1", [Script("python", "train.py")]),
        ("python -m torch.distributed.run --nnodes 2 t.py", [Script("python", "t.py")]),
        ("python -m pkg.train --x", [Script("python", "pkg.train", is_module=True)]),
        ("cd src && OMP=1 exec python train.py > log.txt", [Script("python", "train.py", "src")]),
        ("bash -c 'cd x; python y.py'", [Script("python", "y.py", "x")]),
        ("mpirun -np 2 python m.py", [Script("python", "m.py")]),
        ("deepspeed train.py --deepspeed c.json", [Script("python", "train.py")]),
        ("if true; then\n  python a.py \\\n --x\nfi", [Script("python", "a.py")]),
        (
            "python a.py; python b.py || python a.py",
            [Script("python", n) for n in ("a.py", "b.py")],
        ),
        ("python -c 'import x' a.py", []),
        ("echo python train.py", []),
        ("./train.py", [Script("python", "./train.py")]),
        ("python 'my train.py'", [Script("python", "my train.py")]),
        ("echo 'open", []),
        (
            "# train, #1\npython a.py # not b.py\npython c#d.py",
            [Script("python", "a.py"), Script("python", "c#d.py")],
        ),
        ('python $HOME/x.py; python "$SCRIPT"; for f in *.py; do python $f; done', []),
        ("python ${{inputs.code}}/train.py $[[--x ${{inputs.x}}]]", []),
        ("python train.py $[[--x ${{inputs.x}}]]", [Script("python", "train.py")]),
        ("(cd a && ls); python train.py", []),
        ("cat >t.py <<END\nimport x\nEND\npython t.py", []),
        ("cd $WORK && python run.py", []),
        ("git clone u r && python r/t.py", [Script("python", "r/t.py", after="git")]),
        ("", []),
    ],
)
def test_scripts_of_a_command(command: str, found: list[Script]) -> None:
    assert scripts(command) == found


def read(folder: Path, script: str = "train.py") -> Any:
    """What our reader finds, run as it is run for a job."""
    asked = json.dumps({"script": str(folder / script), "folder": str(folder)})
    argv = [sys.executable, "-B", job_script.READER]
    return json.loads(subprocess.check_output(argv, input=asked, text=True, timeout=120))


def test_the_reader_follows_what_lies_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os, helper\nfrom pkg import inner\n")
    (tmp_path / "helper.py").write_text("import no_such_thing as x\n")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("from . import deep\n")
    (tmp_path / "pkg" / "deep.py").write_text("from nor_this.sub import y\nimport os.path\n")
    found = read(tmp_path)
    assert sorted(found["missing"]) == ["no_such_thing", "nor_this"]
    assert found["imports"]["nor_this"] == {"file": "pkg/deep.py", "line": 1, "needed": True}
    assert (found["files"], found["error"]) == (4, None)


def test_what_a_script_can_do_without_is_not_needed(tmp_path: Path) -> None:
    text = (
        "try:\n    import a1\nexcept ImportError:\n    a1 = 0\ndef f():\n    import a2\nimport a3\n"
    )
    (tmp_path / "train.py").write_text(text)
    needed = {name: place["needed"] for name, place in read(tmp_path)["imports"].items()}
    assert needed == {"a1": False, "a2": False, "a3": True}


def test_modules_of_our_own_are_none_of_the_jobs(tmp_path: Path) -> None:
    """The reader lies beside `show.py` and others, and Python puts that folder first."""
    (tmp_path / "train.py").write_text("import show, follow\n")
    assert sorted(read(tmp_path)["missing"]) == ["follow", "show"]


def look(folder: Path, command: str, taken: set[str] | None = None) -> Any:
    return job_script.look(command, folder, taken, {"PATH": str(Path(sys.executable).parent)})


def test_a_script_that_does_not_parse_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x = 1\nprint 'x'\n")
    (finding,) = look(tmp_path, "python train.py").findings
    assert finding.state == BAD
    assert "train.py:2 does not parse on Python 3." in finding.found


def test_another_python_than_the_jobs_has_not_the_last_word(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print 'x'\n")
    path = {"PATH": str(Path(sys.executable).parent)}
    read = job_script.look("python train.py", tmp_path, None, path, current=False)
    assert [each.state for each in read.findings] == [NOTE]


def test_a_script_that_is_not_there_and_one_that_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (missing,) = look(tmp_path, "python src/train.py", {"train.py"}).findings
    assert (missing.state, missing.hint) == (BAD, "did you mean train.py?")
    (left_out,) = look(tmp_path, "python train.py", {"other.py"}).findings
    assert left_out.state == BAD
    assert "is excluded from the code" in left_out.found
    (fine,) = look(tmp_path, "python train.py", {"train.py"}).findings
    assert fine.state == OK
    (none,) = job_script.look("python train.py", None, None, {}).findings
    assert "the job has no `code`" in none.found


def test_no_python_to_run_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (finding,) = job_script.look("python9 train.py", tmp_path, None, {"PATH": "/nowhere"}).findings
    assert finding.state == BAD
    assert "`python9`, which runs train.py" in finding.found


def test_a_framework_is_in_the_way_and_its_package_is_named() -> None:
    place = {"file": "train.py", "line": 3, "needed": True}
    finding = job_script.missing("cv2", place, "node 1")
    assert finding.state == BAD
    assert finding.found == "train.py:3 imports cv2, which node 1 does not have"
    assert finding.hint == "pip install opencv-python, in the job's environment"
    assert job_script.missing("cv2", {**place, "needed": False}, "node 1").state == NOTE
    assert job_script.missing("my_lib", place, "node 1").state == NOTE


@pytest.mark.parametrize(
    ("command", "shell"),
    [
        ("a $[[--x ${{inputs.x}}]] $[[-y ${{inputs.y}}]] b", "a  --x $_   -y $_  b"),
        ("[[ -e x ]] && a $[[--x ${{inputs.x}}]]", "[[ -e x ]] && a  --x $_ "),
        ("[[ $a =~ ^$[[:space:]]*$ ]] && a ${{inputs.x}}", "[[ $a =~ ^$[[:space:]]*$ ]] && a $_"),
    ],
)
def test_only_expressions_are_replaced(command: str, shell: str) -> None:
    """Bash's own brackets stay: from 5.2.37 on, `bash -n` misses those that are gone."""
    assert command_scripts.as_shell(command) == shell
