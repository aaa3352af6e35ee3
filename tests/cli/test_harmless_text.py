"""What ranks print cannot steer the terminal of who looks at it."""

import contextlib
import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.cli.az.print_answer import print_answer
from allranks.cli.output import errors, show
from allranks.cli.output.rank_output import Printer, harmless
from allranks.errors import AllranksError, Problem, SpecError
from allranks.sdk.jobs import follow
from tests.support import CLI, Allranks, environment

COLOURS = (
    b"\x1b[31mred\x1b[0m \x1b[1;38;5;9mx\x1b[m \x1b[38:2:1:2:3mx \x1b[01;31m\x1b[Kmatch\x1b[0K"
)
STEERING = [
    (b"\x1b]0;title\x07", b"^[]0;title^G"),
    (b"\x1b]52;c;ZXZpbA==\x1b\\", b"^[]52;c;ZXZpbA==^[\\"),
    (b"\x1b]8;;http://x\x1b\\y", b"^[]8;;http://x^[\\y"),
    (b"\x1b[2J\x1b[H\x1b[3J", b"^[[2J^[[H^[[3J"),
    (b"\x1b[1A\x1b[2K\x1b[1Kx", b"^[[1A^[[2K^[[1Kx"),
    (b"\x1bc \x1bP1$q\x1b\\ \x1b_x \x1b[?1049h", b"^[c ^[P1$q^[\\ ^[_x ^[[?1049h"),
    (b"\x1b[>4;2m \x1b[?4m \x1b[31", b"^[[>4;2m ^[[?4m ^[[31"),
    (b"\x9b2J \xc2\x9b2J \xc2\x9d0;x\xc2\x9c", b"\\x9b2J \\x9b2J \\x9d0;x\\x9c"),
    ("\xe9".encode() + b"\x9d0;x \xe9", "\xe9".encode() + b"\\x9d0;x \xe9"),
    (b"\x00\x05\x08\x0b\x0c\x0e\x0f\x7f", b"^@^E^H^K^L^N^O^?"),
    ("a\u202eb\u2066c\u2069\u200f\u061c".encode(), b"a\\u202eb\\u2066c\\u2069\\u200f\\u061c"),
    (b"\x1b\n]0;x\x07", b"^[\n]0;x^G"),
]
INTACT = [
    COLOURS,
    b"a\tb\r\n",
    "шаг → 🎉 שלום عربى \u200d\u200c café".encode(),
    b"",
    b"\xe9t\xe9 \xff",
]
PIECES = st.lists(
    st.one_of(
        st.sampled_from([piece for pair in STEERING for piece in pair]),
        st.sampled_from([*INTACT, b"\x1b", b"[", b"]", b"m", b"\xe2", b"\x80", b"\n", b"31"]),
        st.binary(max_size=3),
    )
).map(b"".join)


@pytest.mark.parametrize(("text", "expected"), STEERING)
def test_what_steers_a_terminal_is_text(text: bytes, expected: bytes) -> None:
    assert harmless(text) == expected


@pytest.mark.parametrize("text", INTACT)
def test_colours_and_letters_stay(text: bytes) -> None:
    assert harmless(text) == text


def _steers(text: str) -> bool:
    """Read letter by letter, unlike the pattern."""
    at = 0
    while at < len(text):
        if text.startswith("\x1b[", at):
            end = at + 2
            while text[end : end + 1] in [*"0123456789;:"]:
                end += 1
            if text[end : end + 1] != "m" and text[at + 2 : end + 1] not in ("K", "0K"):
                return True
            at = end
        letter = text[at]
        if letter not in "\t\r\n" and (letter < " " or "\x7f" <= letter <= "\x9f"):
            return True
        if "\u202a" <= letter <= "\u202e" or "\u2066" <= letter <= "\u2069":
            return True
        if "\udc80" <= letter <= "\udc9f" or letter in "\u200e\u200f\u061c":
            return True
        at += 1
    return False


@given(text=PIECES)
def test_no_text_steers_a_terminal(text: bytes) -> None:
    shown = harmless(text)
    assert not _steers(shown.decode(errors="surrogateescape"))
    assert harmless(shown) == shown
    if not _steers(text.decode(errors="surrogateescape")):
        assert shown == text


class Terminal:
    """A stream that says it is a terminal."""

    def __init__(self) -> None:
        self.read_end, write_end = os.pipe()
        self.buffer = os.fdopen(write_end, "wb")

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.buffer.fileno()

    def read(self) -> bytes:
        self.buffer.close()
        with os.fdopen(self.read_end, "rb") as stream:
            return stream.read()


@pytest.mark.parametrize("prefixed", [True, False])
@given(text=PIECES, cuts=st.lists(st.integers(0, 40), max_size=5))
def test_it_does_not_matter_where_the_output_is_cut(
    prefixed: bool, text: bytes, cuts: list[int]
) -> None:
    text, shown = text.replace(b"\r", b""), []
    for places in ([], sorted(cuts)):
        terminal = Terminal()
        with mock.patch.dict(os.environ, TERM="dumb"):  # without live lines
            printer = Printer(2, terminal, prefixed)
        for start, end in zip([0, *places], [*places, len(text)], strict=True):
            log = text[start:end].decode(errors="surrogateescape")
            printer.put({"rank": 0, "node": 0, "attempt": 1, "log": log})
        printer.end()
        shown.append(terminal.read())
    assert shown[0] == shown[1]


def _on_a_terminal(home: Path, code: Path, *words: str) -> str:
    """What a command writes to its terminal."""
    master, slave = pty.openpty()
    argv = [sys.executable, "-c", CLI, *words]
    env = {**environment(home), "TERM": "dumb"}
    with os.fdopen(master, "rb", buffering=0) as screen:
        with os.fdopen(slave, "wb") as terminal:
            process = subprocess.Popen(argv, cwd=code, env=env, stdout=terminal, stderr=terminal)
        shown = b""
        with contextlib.suppress(OSError):  # its end
            while piece := screen.read(65536):
                shown += piece
    assert process.wait() == 0
    return shown.decode()


@pytest.mark.medium
def test_on_a_terminal_and_in_a_pipe(shared: Allranks, shared_home: Path, code: Path) -> None:
    text = "\x1b]0;title\x07\x1b[32mgreen\x1b[0m\x1b[2J\u202e"
    name = shared("run", "--name", "steers", "--detach", "--", "printf", "%s\\n", text).stdout
    assert shared("job", "wait", name.strip()).returncode == 0
    assert shared("job", "logs", "steers").stdout == f"{text}\n"
    harmless_text = "^[]0;title^G\x1b[32mgreen\x1b[0m^[[2J\\u202e"
    for words, expected in (
        (("job", "logs", "steers"), harmless_text),
        (("job", "stream", "steers"), harmless_text),
        (("run", "--", "printf", "%s\\n", text), harmless_text),
        (("job", "logs", "steers", "--raw"), text),
        (("job", "stream", "steers", "--raw"), text),
        (("run", "--raw", "--", "printf", "%s\\n", text), text),
    ):
        assert expected in _on_a_terminal(shared_home, code, *words), words


HOSTILE = "\x1b]0;title\x07 \x9b2J \u202e \x7f"


def test_what_servers_and_jobs_say_is_shown_without_controls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    errors.print_error(AllranksError(HOSTILE, where=HOSTILE, hint=HOSTILE))
    errors.print_error(SpecError([Problem(HOSTILE, hint=HOSTILE)], file=HOSTILE))
    show.field(HOSTILE, HOSTILE)
    show.columns([HOSTILE], [[HOSTILE]])
    for output in ("json", "yaml", "tsv", "table"):
        print_answer([{"name": HOSTILE}], output, "")
    shown = "".join(capsys.readouterr())
    assert {char for char in shown if not char.isprintable()} == {"\n"}
    assert "title" in shown


def test_what_a_folder_of_others_is_called_is_text(allranks: Allranks, tmp_path: Path) -> None:
    schema = "$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json\n"
    keys = 'command: echo\nenvironment: "azureml:x\\x1b]0;t\\a"\ncompute: "azureml:\\e[2J"\n'
    (tmp_path / "a\x1b[31m.yml").write_text(schema + keys)
    answer = allranks("import", str(tmp_path), check=False)
    assert "x?]0;t?" in answer.stdout
    assert "\x1b" not in answer.stdout + answer.stderr


def test_what_a_server_notes_is_text() -> None:
    stream = io.StringIO()
    job: Any = {"name": "n", "notes": ["a\x1b[2Jb"], "environment": {"notes": ["\x9b2J"]}}
    follow.submission_notes(job, stream)
    job = {"name": "m", "environment": {"name": "e\x07", "asked_for": "\x1bc"}}
    follow.substitute_note(stream)(job, [])
    assert stream.getvalue() == ("note: a?[2Jb\nnote: ?2J\nnote: environment: e? (requested: ?c)\n")
