"""Wrong command lines, help, and what is typed before anything is set up."""

import shlex
import subprocess
import sys

import pytest

from allranks.cli.commands import COMMANDS
from allranks.cli.examples import EXAMPLES
from allranks.cli.main import main
from allranks.cli.parser import parser_of, refuse_with
from allranks.errors import UsageError
from allranks.version import __version__
from tests.support import CLI, environment


@pytest.mark.parametrize(
    ("words", "sentence", "hint"),
    [
        (["jobb", "list"], "no command `allranks jobb`", "did you mean `allranks job`?"),
        (
            ["job", "lst"],
            "no command `allranks job lst`",
            "did you mean `allranks job list`?",
        ),
        (["job", "delte"], "`allranks job delte`", "did you mean `allranks job delete`?"),
        (["job", "frobnicate"], "`allranks job frobnicate`", "`allranks job --help` lists"),
        (["run", "-f", "a.yml"], "arguments: -f", "give the file: allranks job create -f a.yml"),
        (["job", "create", "a b.yml"], "-f/--file", "allranks job create -f 'a b.yml'"),
        (["rum"], "no command `allranks rum`", "did you mean `allranks run`?"),
        (["run", "--bogus", "--", "true"], "--bogus", "`allranks run --help` shows the options"),
        (["describe", "x"], "`allranks describe`", "did you mean `allranks job show`?"),
        (["log"], "`allranks log`", "did you mean `allranks job logs`?"),
        (["kill"], "`allranks kill`", "did you mean `allranks job cancel`?"),
        (["job", "rm"], "`allranks job rm`", "did you mean `allranks job delete`?"),
        (["model", "ls"], "`allranks model ls`", "did you mean `allranks model list`?"),
        (["frobnicate"], "`allranks frobnicate`", "`allranks --help` lists the commands"),
        (["run"], "no command to run", "allranks run -- python train.py"),
        (["run", "--", ""], "no command to run", "allranks run -- python train.py"),
        (["run", "--nodez", "2", "--", "true"], "", "--help"),
        (["run", "--node", "2", "--", "true"], "--node", "did you mean `--nodes`?"),
        (["job", "list", "--experment=x"], "--experment", "did you mean `--experiment`?"),
        (
            ["run", "--epochs", "3", "python", "x.py"],
            "unrecognized arguments: --epochs",
            "put `--` before the command, and its options after it: allranks run [OPTIONS] -- COM",
        ),
        (["run", "--node", "2", "python", "x.py"], "--node", "did you mean `--nodes`?"),
        (["run", "-d", "--", "true"], "-d/--distribution: expected", "at once: `--detach`"),
        (["run", "-d", "python", "x.py"], "'python' is a program", "at once: `--detach`"),
        (["run", "-d", "foo", "--", "true"], "--distribution", "`pytorch`"),
        (["run", "-n", "two", "--", "true"], "'two' is not a whole number", "--help"),
        (["top", "--interval", "x"], "'x' is not a duration", "--help"),
        (["run", "-n", "-1", "--", "true"], "--nodes", ""),
        (["run", "-d", "pytorhc", "--", "true"], "--distribution", "pytorch"),
        (["run", "-i", "x", "--", "true"], "'x' is not NAME=VALUE", "-i"),
        (
            ["run", "--env", "NOT_SET_HERE", "--", "true"],
            "NOT_SET_HERE is not set in this shell",
            "--env",
        ),
        (["run", "--set", "resources", "--", "true"], "", ""),
        (["run", "--set", "resources.foo=1", "--", "true"], "resources.foo", ""),
        (["run", "-C", "nosuch", "--", "true"], "no such file or folder", "--code"),
        (["run", "-C", "/", "--", "true"], "the root of the file system", "--code DIR"),
        (["run", "-C", "s3://host/x", "--", "true"], "code cannot be read from", "git+https"),
        (
            ["run", "-C", "git+file:///nosuch/repo.git@main", "--", "true"],
            "code: cannot fetch the code from file:///nosuch/repo.git",
            "a branch, tag or full commit hash",
        ),
        (["run", "-C", "/proc", "--", "true"], "cannot read the code", "--code DIR"),
        (
            ["job", "list", "--status", "Foo"],
            "'Foo' is not a status of jobs; use one of NotStarted",
            "--help",
        ),
        (["job", "list", "--limit", "-1"], "less than 1", "--help"),
        (["top", "--interval", "0"], "0 is not a number of seconds >= 0.1", "--help"),
        (["top", "--interval", "nan"], "'nan' is not a duration", "--help"),
        (["job", "logs", "x", "--tail", "-3"], "less than 0", "--help"),
        (["server", "start", "--port", "99999"], "99999 is not a port", "--help"),
        (["run", "-i", "seed=5", "--", "true"], "no file or folder '5'", "--set inputs.seed=5"),
        (["run", "-i", "d=:stream", "--", "true"], "the input d has no path", "`.`"),
        (["run", "-i", "d=.:streem", "--", "true"], "'streem' is not a mode of an input", "stream"),
        (
            ["run", "-o", "d=x:stream", "--", "true"],
            "'stream' is not a mode of an output",
            "upload",
        ),
        (["run", "-m", "loss", "--", "true"], "'loss' is not NAME=REGEX", "keras"),
        (["run", "-m", "l=(a)", "-m", "l=(b)", "--", "true"], "'l' is given twice", "once"),
        (["run", "-m", "l=(a)", "--metric-rank", "some", "--", "true"], "or `all`", "is 0"),
        (["run", "-n", "2", "--workers", "2", "--", "true"], "need TensorFlow", "-d tensorflow"),
        (
            ["run", "-n", "2", "-p", "2", "-d", "tensorflow", "--", "true"],
            "tensorflow starts one process per node",
            "-n",
        ),
        (["run", "-p", "2", "-d", "ray", "--", "true"], "ray starts one process per node", "-n"),
        (["logs", "x"], "no command `allranks logs`", "did you mean `allranks job logs`?"),
        (["show", "x"], "no command", "did you mean `allranks job show`?"),
        (["stop", "x"], "no command", "did you mean `allranks job cancel`?"),
        (["ps"], "no command", "did you mean `allranks job list`?"),
        (["submit", "x"], "no command", "did you mean `allranks run`?"),
        (["job", "create"], "-f", "--help"),
        (["job", "show"], "NAME", "--help"),
        (
            ["job", "download", "x", "--all", "--output-name", "o"],
            "not allowed with",
            "--help",
        ),
    ],
)
@pytest.mark.medium
def test_wrong_use(shared, words, sentence, hint):
    done = shared(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert sentence in done.stderr
    assert "error: " in done.stderr
    assert "hint: " in done.stderr
    assert hint in done.stderr.partition("hint: ")[2]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_examples_that_parse(name, capsys):
    with pytest.raises(SystemExit) as left:
        main([*name.split(), "--help"])
    help, _, examples = capsys.readouterr().out.partition("\nexamples:\n")
    assert left.value.code == 0
    assert f"allranks {name}" in help
    assert ("--json" in help) is not COMMANDS[name].plain
    lines = examples.splitlines()
    assert len(set(lines)) == len(lines) >= 2, "add them to cli/examples.py"
    for line in lines:
        words = shlex.split(line)
        assert words[: len(name.split()) + 1] == ["allranks", *name.split()]
        parser_of(name).parse_args(words[len(name.split()) + 1 :])


def test_help_of_a_command_and_the_version_as_words(capsys):
    with pytest.raises(SystemExit):
        main(["help", "job", "list"])
    assert capsys.readouterr().out.startswith("usage: allranks job list")
    assert main(["help", "job"]) == main(["version"]) == 0
    assert capsys.readouterr().out.endswith(f"allranks {__version__}\n")


def test_help_and_examples_cover_exactly_the_commands(capsys):
    assert EXAMPLES.keys() == COMMANDS.keys()
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    assert all(name in overview for name in COMMANDS)


@pytest.mark.parametrize("words", [["--help"], ["job", "list", "--help"], ["run", "--help"]])
@pytest.mark.medium
def test_help_is_quick(words):
    """The processor time, at best of a few: other tests may run beside this one."""
    script = (
        "import resource, sys; from allranks.cli.main import main; "
        f"sys.argv[1:] = {words}; sys.stdout = open('/dev/null', 'w')\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(used.ru_utime + used.ru_stime, file=sys.stderr)"
    )
    argv = [sys.executable, "-c", script]
    times = (subprocess.run(argv, capture_output=True, text=True).stderr for _ in range(5))
    assert min(map(float, times)) < 0.2


def test_help_and_run_import_little():
    """What costs a second to import is not on the way of what is typed all day."""
    heavy = [
        *("pydantic", "starlette", "sqlalchemy", "uvicorn", "yaml", "alembic"),
        *("torch", "ray", "mlflow", "rich", "asyncio"),
    ]
    script = (
        "import sys; import allranks.cli.main, allranks.cli.submit.run; "
        "import allranks.agent.lifecycle.main; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_run_of_many_ranks_is_submitted_without_the_plan():
    """Only server and agents read it, and its classes take longest of all modules to make."""
    script = (
        "import sys; import allranks.cli.submit.run, allranks.core.distributions.topology; "
        "print('allranks.core.plan' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_errors_as_json(shared):
    done = shared("job", "show", "nosuch", "--json")
    assert done.returncode == 2
    assert '"error": "not_found"' in done.stdout
    assert '"hint"' in done.stdout


def test_a_closed_pipe_is_no_error(shared):
    done = subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -c '{CLI}' --help | head -1"],
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""


def test_doctor_is_brief_about_what_is_fine_and_complete_about_what_is_not(shared):
    everything = shared("doctor", "-v")
    assert everything.returncode == 0, everything.stdout
    assert "ranks run" in everything.stdout
    done = shared("doctor")
    assert len(done.stdout.splitlines()) < 8, done.stdout
    assert "✓ machine        python, bash, " in done.stdout
    assert "-v shows each finding" in done.stderr
    wrong = shared("doctor", env={"PATH": "/nowhere", "VIRTUAL_ENV": "/nowhere"})
    assert wrong.returncode == 1
    assert "✗ python         no `python` on the PATH for ranks" in wrong.stdout
    assert "hint: activate an environment with Python" in wrong.stdout


def test_the_current_folder_was_deleted(shared, code):
    gone = code / "gone"
    script = f"mkdir {shlex.quote(str(gone))} && cd {shlex.quote(str(gone))} && rmdir ../gone && "
    script += f"{shlex.quote(sys.executable)} -c '{CLI}' run -- true"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.returncode in (1, 2)
    assert "error: " in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("redirection", "code_"), [(">/dev/full", 1), (">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0)]
)
def test_streams_that_cannot_be_written(shared_home, code, redirection, code_):
    command = f"exec {shlex.quote(sys.executable)} -c '{CLI}' run -- echo hi {redirection}"
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment(shared_home),
        cwd=code,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code_, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout in ("", "hi\n")


def test_names_that_no_record_can_hold(shared):
    done = shared("run", "--", "echo", b"\xff\xfe".decode(errors="surrogateescape"))
    assert done.returncode == 2
    assert "is not UTF-8" in done.stderr


@pytest.mark.parametrize("module", ["argparse", "allranks.errors", "allranks.cli.report.commands"])
def test_interrupted_at_once_it_shows_no_stack_trace(module):
    """Ctrl-C while that is imported."""
    interrupted = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from allranks.cli.entry import main\n"
        "main()"
    )
    argv = [sys.executable, "-c", interrupted, "report", "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ninterrupted\n")


def test_an_option_of_0_is_refused_with_another():
    refuse_with("--in", {"-n": None, "--detach": False, "-i": []})
    with pytest.raises(UsageError, match="not available with --in"):
        refuse_with("--in", {"-n": 0})


def test_python_can_run_it_as_a_module() -> None:
    words = [sys.executable, "-P", "-m", "allranks", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == f"allranks {__version__}\n"
