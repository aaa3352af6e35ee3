"""Completion: what the shells themselves make of our scripts, and what we answer them."""

import contextlib
import os
import pty
import shlex
import shutil
import subprocess
import sys
import threading

import pytest
from argcomplete.finders import ExclusiveCompletionFinder

from allranks.cli.admin.complete_words import options_at, parser_at
from allranks.cli.commands import COMMANDS
from tests.support import CLI, answer, environment, until


def needs(shell):
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"there is no {shell} here")


@pytest.fixture
def env(home, tmp_path):
    """A home's environment in which `allranks` is a program on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "allranks"
    (folder / "main.py").write_text(CLI)
    # No shebang with the path of Python: it may have blanks.
    main = shlex.join([sys.executable, str(folder / "main.py")])
    program.write_text(f'#!/bin/sh\nexec {main} "$@"\n')
    program.chmod(0o755)
    found = environment(home)
    return {**found, "PATH": f"{folder}:{found['PATH']}", "TERM": "xterm", "INPUTRC": "/dev/null"}


@pytest.fixture
def record(home, allranks):
    """A home with a job, a compute and an environment, and no server that runs."""
    assert allranks("run", "--name", "calm_otter", "--", "true").returncode == 0
    assert allranks("compute", "create", "gpu", "--type", "local").returncode == 0
    assert allranks("environment", "create", "train", "--pip", "x==1").returncode == 0
    assert allranks("server", "stop").returncode == 0
    return home


def texts(*words):
    """What fits in the place of the last word."""
    parser, depth = parser_at(words[:-1])
    finder = ExclusiveCompletionFinder(parser, always_complete_options=options_at(parser))
    *before, current = words[depth:]
    prefix = " ".join([*before, ""])
    finder.rl_complete(prefix + current, 0)
    return [each.removeprefix(prefix).strip() for each in finder._rl_matches]


def test_commands_and_what_is_behind_them(home):
    assert {"run", "job", "compute", "completion"} <= {*texts("")}
    assert {"list", "show", "stream"} <= {*texts("job", "")}
    assert {"scaling", "goodput"} <= {*texts("report", "")}
    assert texts("nosuch", "") == texts("job", "nosuch", "") == []


def test_options_and_their_values(home, code, monkeypatch):
    assert {"--status", "--sort", "--json"} <= {*texts("job", "list", "-")}
    # One that was given is not offered again, unless it may be repeated.
    given = texts("job", "list", "--experiment", "a", "--tag", "a", "-")
    assert "--experiment" not in given
    assert "--tag" in given
    assert "--status" in texts("job", "list", "")
    assert "Completed" in texts("job", "list", "--status", "")
    assert "horovod" in texts("run", "-d", "")
    assert texts("server", "token", "") == ["create", "list", "revoke"]
    assert "slurm" in texts("compute", "create", "gpu", "--type", "")
    monkeypatch.chdir(code)
    (code / "train.py").touch()
    (code / "data").mkdir()
    assert texts("run", "-C", "") == ["data/"]
    assert texts("job", "create", "-f", "") == ["data/", "train.py"]
    assert texts("run", "-i", "set=tr") == ["set=train.py"]
    assert texts("run", "-n", "2", "--", "python", "") == ["data/", "train.py"]
    assert texts("run", "-n", "") == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_completed(home, name):
    assert texts(*name.split(), "-")
    texts(*name.split(), "")
    assert not home.exists()


def answered(env, line):
    """The words, and what is said of them, that a shell gets at the end of a line."""
    script = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_SHELL": "fish", "_ARGCOMPLETE_DFS": "\t"}
    script |= {"_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
    typed = {"COMP_LINE": line, "COMP_POINT": str(len(line))}
    argv = ["bash", "-c", "allranks 8>&1 9>&2"]
    return subprocess.run(argv, env=env | script | typed, text=True, capture_output=True)


@pytest.mark.slow
def test_names_come_from_the_record_and_no_server_is_started(record, env, allranks):
    assert answered(env, "allranks job show ").stdout.split() == ["calm_otter", "Completed"]
    assert answered(env, "allranks report c").stdout.split() == ["calm_otter", "Completed"]
    assert answered(env, "allranks compute show ").stdout.split() == ["local", "gpu"]
    assert answered(env, "allranks run -e tra").stdout.split() == ["train"]
    assert answered(env, "allranks run --from ca").stdout.split() == ["calm_otter", "Completed"]
    assert not allranks("server", "status").stdout.startswith("running")


@pytest.mark.slow
def test_names_come_from_the_server_that_the_shell_names(record, env, allranks):
    status = answer(allranks, "server", "start")
    token = (record / "token").read_text().strip()
    env |= {"ALLRANKS_SERVER": status["url"], "ALLRANKS_TOKEN": token}
    env["ALLRANKS_HOME"] += "-elsewhere"
    assert answered(env, "allranks job show ").stdout.split() == ["calm_otter", "Completed"]
    assert answered(env, "allranks compute show ").stdout.split() == ["gpu", "local"]
    assert "train" in answered(env, "allranks environment show ").stdout.split()


def test_a_damaged_record_completes_nothing_and_says_nothing(env, home):
    home.mkdir()
    (home / "allranks.db").write_text("no database")
    done = answered(env, "allranks job show ")
    assert (done.returncode, done.stdout, done.stderr.strip()) == (0, "", "")


def test_the_command_prints_scripts_and_where_they_go(allranks):
    help = allranks("completion", "--help").stdout
    for shell in ("bash", "zsh", "fish"):
        assert f"allranks completion {shell}" in help
        assert "_ARGCOMPLETE" in allranks("completion", shell).stdout
    unknown = allranks("completion", "tcsh")
    assert (unknown.returncode, "bash" in unknown.stderr) == (2, True)


BASH = """
eval "$(allranks completion bash)"
ask() {
    COMP_LINE=$1; COMP_POINT=${#1}
    _python_argcomplete allranks 2>/dev/null
    echo "${COMPREPLY[*]}"
}
ask "allranks job st"
ask "allranks job list --status=Com"
ask "allranks completion z"
ask "allranks run -d ten"
"""


@needs("bash")
def test_bash_calls_the_function(env):
    done = subprocess.run(["bash", "-c", BASH], env=env, text=True, capture_output=True)
    found = [line.split() for line in done.stdout.splitlines()]
    assert found == [["stream", "stacks"], ["Completed"], ["zsh"], ["tensorflow"]]


class Terminal:
    """A shell on a terminal, and everything it has shown."""

    def __init__(self, argv, env, folder):
        self._fd, other = pty.openpty()
        streams = {"stdin": other, "stdout": other, "stderr": other}
        self._shell = subprocess.Popen(argv, env=env, cwd=folder, start_new_session=True, **streams)
        os.close(other)
        self.shown = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with contextlib.suppress(OSError):
            while data := os.read(self._fd, 4096):
                self.shown += data

    def type(self, text):
        os.write(self._fd, text.encode())

    def close(self):
        self._shell.kill()
        self._shell.wait()
        self._reader.join(5)
        os.close(self._fd)


SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
ON = {
    "bash": 'eval "$(allranks completion bash)"; echo rea""dy\n',
    "zsh": 'autoload -Uz compinit; compinit -D; eval "$(allranks completion zsh)"; echo rea""dy\n',
}


@pytest.mark.slow
@pytest.mark.parametrize("shell", [pytest.param(each, marks=needs(each)) for each in SHELLS])
def test_tab_completes_in_a_real_shell(record, env, code, shell):
    (code / "train file.py").touch()
    with contextlib.closing(Terminal(SHELLS[shell], env, code)) as terminal:
        terminal.type(ON[shell])
        until(lambda: b"ready" in terminal.shown)
        terminal.type("allranks job sho\t")
        until(lambda: b"job show" in terminal.shown)
        terminal.type("cal\t")
        until(lambda: b"calm_otter" in terminal.shown)
        terminal.type("\x15allranks run --distribution tens\t")
        until(lambda: b"tensorflow" in terminal.shown)
        terminal.type("\x15allranks job create -f tra\t")
        until(lambda: b"train\\ file.py" in terminal.shown)


@pytest.mark.slow
@needs("fish")
def test_fish_completes(record, env, code):
    (code / "job.yml").touch()

    def asked(line):
        words = 'allranks completion fish | source; complete -C "$argv[1]"'
        argv = ["fish", "--no-config", "-c", words, line]
        done = subprocess.run(argv, env=env, cwd=code, text=True, capture_output=True)
        assert done.stderr == ""
        return done.stdout.splitlines()

    assert asked("allranks job sho") == ["show\tshow the details of a job"]
    assert asked("allranks job show c") == ["calm_otter\tCompleted"]
    assert asked("allranks job create -f j") == ["job.yml"]
    assert asked("allranks compute show ") == ["gpu", "local"]


def test_the_overview_stays_quick(env):
    """The best of a few, in CPU time: a machine that tests run on is busy."""

    def spent():
        times = os.times()
        return times.children_user + times.children_system

    def took():
        began = spent()
        subprocess.run(["allranks", "--help"], env=env, stdout=subprocess.DEVNULL, check=True)
        return spent() - began

    assert min(took() for _ in range(10)) < 0.15
