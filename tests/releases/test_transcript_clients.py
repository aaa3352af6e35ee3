"""Clients of this version with the server of a released one: its answers are the transcript's."""

import contextlib
import os
import sys
from pathlib import Path

import pytest

from tests.releases.player import Desk, play
from tests.releases.transcript import PEOPLE, TRANSCRIPTS, load
from tests.support import Allranks

# Commands of the transcript, their exit codes, and what they print.
CALLS = {
    "job show plain": (0, "Completed"),
    "job list": (0, "search"),
    "job events plain": (0, "drained"),
    "job metrics plain": (0, "loss"),
    "job logs plain": (0, "goes on from 6 with words"),
    "job logs -f busy": (0, "loss: 1"),
    "job wait plain": (0, ""),
    "job cancel busy": (0, ""),
    "job exec busy -- sh -c echo inside; echo error >&2; exit 3": (3, "inside\n"),
    "job download plain -p fetched": (0, ""),
    "model download birds -p fetched": (0, ""),
    "state show plain": (0, "step-0"),
    "data upload data/words.txt --name words --version 1": (0, ""),
}


@pytest.mark.slow
@pytest.mark.end_to_end
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.parent.name)
def test_commands_understand_its_server(path: Path, code: Path, allranks: Allranks) -> None:
    (code / "data").mkdir()
    (code / "data" / "words.txt").write_text("words\n")
    names = {"@ROOT@": str(code), "@HOME@": "/home", "@HOST@": os.uname().nodename}
    names |= {"@ENVIRONMENT@": sys.prefix, "@PYTHON@": sys.base_prefix}
    people = [each for each in load(path, names) if each.call and each.path.startswith(PEOPLE)]
    wrong = []
    for call, (expected, text) in CALLS.items():
        desk = Desk([each for each in people if each.call == call], people)
        words = call.split(" -- ")
        argv = [*words[0].split(), *(["--", *words[1].split(" ", 2)] if words[1:] else [])]
        with contextlib.contextmanager(play)(desk) as url:
            done = allranks(*argv, env={"ALLRANKS_SERVER": url, "ALLRANKS_TOKEN": "t"})
        if (done.returncode, text in done.stdout, desk.unknown) != (expected, True, []):
            wrong.append((call, done.returncode, done.stdout[-300:], done.stderr, desk.unknown))
    assert not wrong, "\n".join(map(str, wrong))
    assert (code / "fetched").is_dir()
