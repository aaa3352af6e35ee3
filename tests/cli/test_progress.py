"""How far long work is: one type, one line on a terminal, nothing in a pipe."""

import os
import pty
import re
import subprocess
import sys
import termios
import threading

import pytest

from allranks.cli.output import show
from allranks.core.job.code_size import MOST_FILES
from allranks.core.transfer_progress import Meter, Progress, amounts, percent
from tests.support import CLI, environment


def test_the_rate_is_of_the_last_seconds_and_of_one_kind_of_work():
    meter = Meter()
    assert meter.rate(Progress("a", 0, 100), 0.0) == 0.0
    assert meter.rate(Progress("a", 20, 100), 2.0) == 10.0
    assert meter.rate(Progress("a", 60, 100), 6.0) == 10.0
    assert meter.rate(Progress("b", 5, 100), 7.0) == 0.0
    # What already exists was not fetched.
    fetched = Meter()
    fetched.rate(Progress("", 50, 100, moved=0), 0.0)
    assert fetched.rate(Progress("", 60, 100, moved=10), 1.0) == 10.0


def test_the_words():
    half = Progress("sending the code", 15_000_000, 30_000_000)
    assert percent(half) == "50 %"
    assert amounts(half, 3e6, show.seconds) == "15.0 MB of 30.0 MB, 3.0 MB/s, 5.0 s left"
    assert percent(Progress("copying", 15)) == ""
    assert amounts(Progress("copying", 15_000_000), 3e6, show.seconds) == "15.0 MB, 3.0 MB/s"
    assert amounts(Progress("copying"), 0.0, show.seconds) == ""
    assert percent(Progress("", 31, 30)) == "100 %"


class Terminal:
    """A command on a terminal; ``said`` is all that it has written there."""

    def __init__(self, home, folder, *words):
        self.fd, other = pty.openpty()
        termios.tcsetwinsize(other, (24, 120))
        env = {**environment(home), "TERM": "xterm", "NO_COLOR": "1"}
        argv = [sys.executable, "-c", CLI, *words]
        self._process = subprocess.Popen(
            argv, cwd=folder, env=env, stdin=other, stdout=other, stderr=other
        )
        os.close(other)
        self.said = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.answers = {"send it anyway? [y/N] ": "y\n"}

    def _read(self):
        data = b""
        try:
            while piece := os.read(self.fd, 65536):
                data += piece
                self.said = data.decode(errors="ignore")
                for question in [each for each in self.answers if each in self.said]:
                    os.write(self.fd, self.answers.pop(question).encode())
        except OSError:  # so a terminal ends here
            pass

    def wait(self):
        try:
            return self._process.wait(240)
        finally:
            self._process.kill()
            self._reader.join()
            os.close(self.fd)


SENDING = re.compile(r"sending the code: \d+ %, [\d.]+ MB of 240.0 MB, [\d.]+ MB/s, [\d.]+ s left")


def large(folder):
    """Code that takes more than a moment to send."""
    for each in range(4):
        with (folder / f"{each}.bin").open("wb") as file:
            file.write(os.urandom(60_000_000))


@pytest.mark.slow
def test_a_restart_with_other_code_shows_how_far_it_is_and_asks(allranks, home, code, tmp_path):
    (code / "a.py").write_text("print('a')")
    assert allranks("run", "--name", "first", "--", "cat", "a.py").returncode == 0
    other = tmp_path / "other"
    other.mkdir()
    large(other)
    shown = Terminal(home, code, "job", "restart", "first", "-C", str(other))
    assert shown.wait() == 0, shown.said
    assert SENDING.search(shown.said), shown.said
    piped = allranks("job", "restart", "first", "-C", str(other))
    assert "sending" not in piped.stderr
    (other / "many").mkdir()
    for each in other.glob("*.bin"):
        each.unlink()
    for number in range(MOST_FILES + 1):
        (other / "many" / str(number)).touch()
    refused = allranks("job", "restart", "first", "-C", str(other))
    assert refused.returncode == 2
    assert "--allow-large-code" in refused.stderr
    asked = Terminal(home, code, "job", "restart", "first", "-C", str(other))
    assert asked.wait() == 0, asked.said
    assert "send it anyway?" in asked.said


@pytest.mark.slow
def test_a_backup_shows_how_far_it_is(allranks, home, code, tmp_path):
    large(code)
    assert allranks("run", "--", "true").returncode == 0
    shown = Terminal(home, code, "server", "backup", str(tmp_path / "home.tar"))
    assert shown.wait() == 0, shown.said
    assert re.search(r"(writing|reading) the backup: \d+ %, [\d.]+ MB of \d+", shown.said)
    allranks("server", "stop")
    back = Terminal(home, code, "server", "restore", "--yes", "--force", str(tmp_path / "home.tar"))
    assert back.wait() == 0, back.said
    # How far it is read shows only where that takes half a second.
    assert "checking the database" in back.said
