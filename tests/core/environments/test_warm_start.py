"""Which commands can start warm."""

import pytest

from allranks.core.environments.warm_start import (
    Cold,
    expands,
    import_time,
    own_module,
    read_call,
    read_command,
)


@pytest.mark.parametrize(
    ("command", "folder", "words"),
    [
        ("python train.py", "", ["python", "train.py"]),
        ("python3 train.py --lr 0.1 'a b'", "", ["python3", "train.py", "--lr", "0.1", "a b"]),
        ("  python train.py\n", "", ["python", "train.py"]),
        ("python train.py \\\n  --a \\\n  --b\n", "", ["python", "train.py", "--a", "--b"]),
        ("exec python train.py", "", ["python", "train.py"]),
        ("LR=1 X= python train.py", "", ["python", "train.py"]),
        ("cd src && python train.py", "src", ["python", "train.py"]),
        ("/opt/v/bin/python3.11 -u train.py", "", ["/opt/v/bin/python3.11", "-u", "train.py"]),
        ("python -uO -X dev=1 -Wignore -m pkg.train -m x", "", None),
        ("python -c 'import x; print(1)' a", "", ["python", "-c", "import x; print(1)", "a"]),
        ("python train.py --a '$x' \"; | & #\" a#b", "", None),
        ('python train.py "$RANK" ${X} *.csv', "", None),
    ],
)
def test_one_call_of_python_starts_warm(command: str, folder: str, words: list[str] | None):
    found, call = read_command(command)
    assert found == folder
    assert words is None or call.words == words


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("python a.py; python b.py", "the command is more than one call of Python"),
        ("python a.py && python b.py", "the command is more than one call of Python"),
        ("python a.py | tee log", "the command is more than one call of Python"),
        ("python a.py > log", "the command is more than one call of Python"),
        ("pip install x\npython a.py", "the command is more than one call of Python"),
        ("python a.py # note", "the command is more than one call of Python"),
        ("(python a.py)", "the command is more than one call of Python"),
        ("python a.py $(nproc)", "the command runs another one"),
        ('python a.py "`nproc`"', "the command runs another one"),
        ("python a.py 'x", "the command has an open quote"),
        ("bash run.sh", "the command does not start with `python` but with `bash`"),
        ("torchrun a.py", "the command does not start with `python` but with `torchrun`"),
        ("mypython a.py", "the command does not start with `python` but with `mypython`"),
        ("./train.py", "the command does not start with `python` but with `./train.py`"),
        ("python", "the command names no script"),
        ("python -m", "the command names no script"),
        ("python -", "Python gets the option `-`"),
        ("python -i a.py", "Python gets the option `-i`"),
        ("python -I a.py", "Python gets the option `-I`"),
        ("python --version", "Python gets the option `--version`"),
        ("$PY a.py", "the command does not start with `python` but with `$PY`"),
        ("python -X $A a.py", "the shell chooses the Python, or its options and variables"),
        ("A=$B python a.py", "the shell chooses the Python, or its options and variables"),
        ("", "the command does not start with `python` but with ``"),
    ],
)
def test_other_commands_start_cold(command: str, why: str):
    with pytest.raises(Cold) as caught:
        read_command(command)
    assert str(caught.value) == why


def test_variables_before_the_call_are_its_own():
    call = read_call(["A=1", "B=x=y", "python", "a.py", "C=3"])
    assert (call.variables, call.arguments) == ({"A": "1", "B": "x=y"}, ("C=3",))


def test_only_some_variables_matter_to_imports():
    env = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": "", "TZ": "UTC"}
    of_rank = {
        "HF_TOKEN": "s",
        "RANK": "1",
        "TF_CONFIG": "{}",
        "MASTER_ADDR": "x",
        "LR": "3",
        "PATHS": "y",
    }
    assert import_time({**env, **of_rank}) == env


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["train.py", "data"], None),
        (["json.py", "a"], "json.py"),
        (["json"], "json"),
        (["numpy.cpython-311-x86_64-linux-gnu.so"], "numpy.cpython-311-x86_64-linux-gnu.so"),
        (["json.txt", "json.d"], None),
        ([], None),
    ],
)
def test_a_module_of_the_job_is_found_by_its_name(names: list[str], found: str | None):
    assert own_module(names, frozenset({"json", "numpy"})) == found


@pytest.mark.parametrize(("text", "answer"), [("a.py", False), ("$X", True), ("~", True)])
def test_what_a_shell_replaces(text: str, answer: bool):
    assert expands(text) is answer
