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

from allranks.cli.admin.complete_words import Kind, complete
from allranks.cli.admin.completion import SCRIPTS
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
    return [each.text for each in complete(words).words]


def test_commands_and_what_is_behind_them():
    assert {"run", "job", "compute", "completion"} <= {*texts("")}
    assert {"list", "show", "stream"} <= {*texts("job", "")}
    assert {"scaling", "goodput", "--json"} <= {*texts("report", "-")}
    assert texts("nosuch", "") == texts("job", "nosuch", "") == []


def test_options_and_their_values():
    assert {"--status", "--sort", "--json"} <= {*texts("job", "list", "-")}
    # One that was given is not offered again, unless it may be repeated.
    given = texts("job", "list", "--status", "Failed", "--tag", "a", "-")
    assert "--status" not in given
    assert "--tag" in given
    assert "Completed" in texts("job", "list", "--status", "")
    assert "--status=Completed" in texts("job", "list", "--status=")
    assert "horovod" in texts("run", "-d", "")
    assert texts("server", "token", "") == ["create", "list", "revoke"]
    assert "slurm" in texts("compute", "create", "gpu", "--type", "")
    assert complete(["run", "-C", ""]).kind is Kind.FOLDERS
    assert complete(["job", "create", "-f", ""]).kind is Kind.FILES
    assert complete(["run", "-n", "2", "--", "python", ""]).kind is Kind.FILES
    assert complete(["run", "-n", ""]) == ([], Kind.WORDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_completed(home, name):
    assert complete([*name.split(), "-"]).words
    complete([*name.split(), ""])
    assert not home.exists()


def answered(env, shell, *words):
    argv = ["allranks", "__complete", shell, *words]
    return subprocess.run(argv, env=env, text=True, capture_output=True)


@pytest.mark.slow
def test_names_come_from_the_record_and_no_server_is_started(record, env, allranks):
    assert answered(env, "fish", "job", "show", "").stdout == "words\ncalm_otter\tCompleted\n"
    assert answered(env, "bash", "compute", "show", "").stdout == "words\nlocal\ngpu\n"
    assert answered(env, "bash", "run", "-e", "").stdout == "files\ntrain\n"
    assert answered(env, "bash", "run", "--from=", "").stdout == "files\n"
    assert answered(env, "bash", "run", "--from", "=", "ca").stdout == "words\ncalm_otter\n"
    assert not allranks("server", "status").stdout.startswith("running")


@pytest.mark.slow
def test_names_come_from_the_server_that_the_shell_names(record, env, allranks):
    status = answer(allranks, "server", "start")
    token = (record / "token").read_text().strip()
    env |= {"ALLRANKS_SERVER": status["url"], "ALLRANKS_TOKEN": token}
    env["ALLRANKS_HOME"] += "-elsewhere"
    assert answered(env, "fish", "job", "show", "").stdout == "words\ncalm_otter\tCompleted\n"
    assert answered(env, "bash", "compute", "show", "").stdout == "words\ngpu\nlocal\n"
    assert "train" in answered(env, "bash", "environment", "show", "").stdout.splitlines()


def test_a_damaged_record_completes_nothing_and_says_nothing(env, home):
    home.mkdir()
    (home / "allranks.db").write_text("no database")
    done = answered(env, "bash", "job", "show", "")
    assert (done.returncode, done.stdout, done.stderr) == (0, "words\n", "")


def test_the_command_prints_scripts_and_where_they_go(allranks):
    help = allranks("completion", "--help").stdout
    for shell, script in SCRIPTS.items():
        assert f"allranks completion {shell}" in help
        assert allranks("completion", shell).stdout == script
    unknown = allranks("completion", "tcsh")
    assert (unknown.returncode, "bash" in unknown.stderr) == (2, True)


BASH = """
eval "$(allranks completion bash)"
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _allranks; echo "${COMPREPLY[*]}"; }
ask allranks job st
ask allranks job list --status = Com
ask allranks completion z
ask allranks run -d ten
"""


@needs("bash")
def test_bash_calls_the_function(env):
    done = subprocess.run(["bash", "-c", BASH], env=env, text=True, capture_output=True)
    assert done.stdout.splitlines() == ["stream stacks", "Completed", "zsh", "tensorflow"]
    assert done.stderr == ""


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
@pytest.mark.end_to_end
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
