"""Tables and colours: on a terminal they fit and mean something, in a pipe nothing changes."""

import io
import os
import pty
import re
import subprocess
import sys
import termios

import pytest

from allranks.cli.output import colours, tables
from allranks.cli.output.live_lines import width
from tests.support import CLI, PATIENCE, environment

HEAD = ("NAME", "STATUS", "RANKS", "TOOK", "TAGS")
ROWS = [
    ["calm_otter_7x2k9q", "Completed", "8 on 2", "2 min 05 s", "team=vision stage=final"],
    ["wise_heron", "Failed", "1", "-", "a=b"],
]


def lines(columns=None, coloured=False, rows=ROWS):
    return tables.fitted(HEAD, rows, columns, coloured)


def test_numbers_end_in_one_column():
    assert lines() == [
        "NAME               STATUS      RANKS        TOOK  TAGS",
        "calm_otter_7x2k9q  Completed  8 on 2  2 min 05 s  team=vision stage=final",
        "wise_heron         Failed          1           -  a=b",
    ]


def test_the_longest_text_is_cut_first_and_what_names_the_row_last():
    assert lines(60) == [
        "NAME               STATUS      RANKS        TOOK  TAGS",
        "calm_otter_7x2k9q  Completed  8 on 2  2 min 05 s  team=visi…",
        "wise_heron         Failed          1           -  a=b",
    ]
    assert "calm_otter_7x2k9q" in lines(56)[1]
    assert "8 on 2  2 min 05 s" in lines(44)[1]


@pytest.mark.parametrize("columns", range(8, 90))
def test_nothing_is_wider_than_the_terminal(columns):
    wide = [*ROWS, ["深度学习" * 5, "Running", "3", "1.5 s", "é" * 40]]
    for coloured in (False, True):
        shown = lines(columns, coloured, wide)
        assert max(width(re.sub(r"\033\[[\d;]*m", "", each)) for each in shown) <= columns


def test_a_status_has_its_colour():
    first, completed, failed = lines(60, coloured=True)
    assert "\033[32mCompleted\033[0m" in completed
    assert "\033[31mFailed\033[0m" in failed
    assert first.startswith("\033[1mNAME\033[0m ")
    plain = [re.sub(r"\033\[[\d;]*m", "", each) for each in (first, completed, failed)]
    assert plain == lines(60)


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.isatty = lambda: terminal


@pytest.mark.parametrize(
    ("variables", "terminal", "coloured"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"CLICOLOR_FORCE": "1"}, False, True),
        ({"CLICOLOR_FORCE": "0"}, False, False),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, True, False),
        ({"CLICOLOR_FORCE": "1", "TERM": "dumb"}, False, True),
    ],
)
def test_the_conventions(monkeypatch, variables, terminal, coloured):
    for name in ("NO_COLOR", "CLICOLOR_FORCE", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert colours.coloured(Stream(terminal)) is coloured


def on_a_terminal(home, folder, *words, columns=60, **variables):
    """What the command shows on a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    env = {**environment(home), "TERM": "xterm", **variables}
    argv = [sys.executable, "-c", CLI, *words]
    process = subprocess.Popen(argv, cwd=folder, env=env, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # so a terminal ends here
        pass
    os.close(ours)
    process.wait(20 * PATIENCE)
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.slow
def test_a_list_on_a_terminal_and_in_a_pipe(shared, shared_home, code):
    long = "the_name_of_a_job"
    words = ("run", "-q", "--name", long, "--tag", f"why={'x' * 50}", "--", "true")
    assert shared(*words).returncode == 0
    piped = shared("job", "list").stdout
    assert f"why={'x' * 50}" in piped
    assert "\033" not in piped
    shown = on_a_terminal(shared_home, code, "job", "list", "--limit", "1", columns=80)
    assert "\033[32mCompleted\033[0m" in shown
    plain = re.sub(r"\033\[[\d;]*m", "", shown)
    assert long in plain
    assert "…" in plain
    assert max(map(len, plain.splitlines())) <= 80
    assert "\033" not in on_a_terminal(shared_home, code, "job", "list", "--no-color")
    assert "\033" not in on_a_terminal(shared_home, code, "--no-color", "job", "list")
    assert "\033[32m" in shared("job", "list", env={"CLICOLOR_FORCE": "1"}).stdout


def test_an_error_has_colours(home, code):
    shown = on_a_terminal(home, code, "jobs")
    assert "\033[1;31merror:\033[0m" in shown
    assert "\033[1;36mhint:\033[0m" in shown
    assert "\033[1m`allranks job`\033[0m" in shown
    assert "\033" not in on_a_terminal(home, code, "jobs", "--no-color")
    assert "\033" not in on_a_terminal(home, code, "jobs", TERM="dumb")
