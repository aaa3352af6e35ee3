"""A round of chaos: what a seed makes of it, the script its ranks run, and what they know of it.

The ranks write down on the disk, beside all that allranks sees, what they did and when: against
that the record is held.
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

# Each line is one write, where there is room, and is written down only after it: what is written
# down was printed.
SCRIPT = """\
import os, sys, time
truth, lines, pace = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
rank, attempt = int(os.environ["RANK"]), os.environ["ALLRANKS_ATTEMPT"]
kept = os.path.join(os.environ["ALLRANKS_STATE_DIR"], "kept")
log = os.open(f"{truth}/{attempt}-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def known(word, number):
    os.write(log, f"{word} {number} {time.time()}\\n".encode())
def say(line):
    while line:
        line = line[os.write(1, line):]
def last(kind, error, trace):
    try:
        os.write(2, f"{kind.__name__}: {error}\\n".encode())
    except OSError:
        pass
sys.excepthook = last
try:
    first = int(open(kept).read())
except FileNotFoundError:
    first = 0
known("resumed", first)
for step in range(first, lines):
    say(f"{attempt} {rank} {step} n={step}\\n".encode())
    known("step", step)
    if rank == 0 and step % 5 == 4:
        with open(kept + ".new", "w") as file:
            file.write(str(step + 1))
        known("keeps", step + 1)
        os.rename(kept + ".new", kept)
        known("kept", step + 1)
    time.sleep(pace)
known("done", lines)
"""

# With which one begins that cannot write what it is to write.
LAST_WORDS = "OSError: "


class Misfortune(NamedTuple):
    """``what`` happens ``after`` so many seconds; what is stopped goes on ``pause`` seconds
    later."""

    after: float
    what: str
    pause: float = 0.0

    @property
    def beneath(self) -> str | None:
        """What fails beneath the job, if that does."""
        verb = self.what.partition(" ")[0]
        return {"fill": "disk", "freeze": "disk", "cut": "network"}.get(verb)


class Round(NamedTuple):
    """``at_work``: its misfortunes wait until its ranks run. ``hold``: seconds that a failed
    attempt is held; ``upload``: bytes of data that are uploaded meanwhile."""

    seed: int
    nodes: int
    procs: int
    attempts: int
    lines: int
    pace: float
    misfortunes: tuple[Misfortune, ...]
    at_work: bool = False
    hold: int = 0
    upload: int = 0

    @property
    def ranks(self) -> int:
        return self.nodes * self.procs

    def without(self, lacking: Container[str]) -> Round:
        """What becomes of it where there is no disk, or no network, that may fail."""
        left = (each for each in self.misfortunes if each.beneath not in lacking)
        return self._replace(misfortunes=tuple(left))


# What ends a job's attempt, and the reasons that may then be told. SIGTERM to a keeper is how an
# engine takes a node away; an agent that is stopped, or cut off, is lost once its lease has run
# out; ranks that cannot print on a full disk, or write their state, end by themselves.
ENDS = {
    "kill rank": {"RANK_KILLED"},
    "kill agent": {"NODE_LOST"},
    "kill keeper": {"NODE_LOST"},
    "kill gang": {"NODE_LOST"},
    "stop agent": {"NODE_LOST"},
    "take away": {"PREEMPTED", "NODE_LOST"},
    "cancel": {"CANCELED"},
    "fill disk": {"RANK_EXITED", "SETUP_FAILED"},
    "cut node": {"NODE_LOST"},
    "cut server": {"NODE_LOST"},
}
# What nobody may notice but by the time it takes.
HARMLESS = ("kill server", "stop server", "stop rank", "freeze disk", "nothing")
# What takes from a node what only it had.
HARD = {
    "kill agent",
    "kill keeper",
    "kill gang",
    "stop agent",
    "take away",
    "cut node",
    "cut server",
}
# What counts as an attempt of the user's.
COUNTED = {"kill rank", "fill disk", "cancel"}


def drawn(seed: int) -> Round:
    """The same for the same seed."""
    dice = random.Random(seed)
    lines, pace = dice.randint(20, 60), dice.choice((0.0, 0.01, 0.03))
    return Round(
        seed,
        dice.randint(1, 3),
        dice.randint(1, 2),
        dice.randint(1, 4),
        lines,
        pace,
        tuple(
            Misfortune(
                dice.uniform(0, 1.0 + lines * pace),
                dice.choice((*ENDS, *HARMLESS)),
                dice.choice((0.3, 1.0, 4.0)),
            )
            for _ in range(dice.choice((1, 1, 2, 3)))
        ),
        hold=dice.choice((0, 0, 1, 2)),
        upload=dice.choice((0, 1000, 3_000_000)),
    )


class Known(NamedTuple):
    """What a rank wrote down in an attempt: (word, number, when)."""

    attempt: int
    rank: int
    told: tuple[tuple[str, int, float], ...]

    def numbers(self, word: str) -> list[int]:
        return [number for each, number, _ in self.told if each == word]

    @property
    def begun(self) -> float:
        return self.told[0][2]

    @property
    def last(self) -> float:
        return self.told[-1][2]


def known(truth: Path) -> Iterator[Known]:
    """Of every attempt and rank that began; of the line a kill cut short nothing."""
    for path in truth.iterdir():
        attempt, rank = map(int, path.name.split("-"))
        lines = [line.split() for line in path.read_text().splitlines(keepends=True)]
        told = tuple((e[0], int(e[1]), float(e[2])) for e in lines if len(e) == 3)
        if told:
            yield Known(attempt, rank, told)
