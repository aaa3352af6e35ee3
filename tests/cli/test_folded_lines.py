"""Equal lines of many ranks are printed once on a terminal; nothing is lost or reordered."""

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.cli.output.folded_lines import FoldedLines
from allranks.cli.output.rank_output import Printer
from tests.cli.test_progress_bars import Pipe, Screen, on_a_terminal, put
from tests.support import CLI, environment, until

LINES = st.lists(st.sampled_from([b"", b"a", b"b", b"c"]), max_size=8)


def taken(folded, before):
    return list(folded.take(before))


@given(st.lists(LINES, min_size=1, max_size=5), st.randoms())
def test_each_rank_has_its_lines_once_and_in_order(outputs, chance):
    folded = FoldedLines(len(outputs))
    left = {rank: list(lines) for rank, lines in enumerate(outputs)}
    released, now = [], 0.0
    while any(left.values()):
        rank = chance.choice([rank for rank, lines in left.items() if lines])
        count = chance.randint(1, len(left[rank]))
        folded.put(rank, left[rank][:count], now)
        del left[rank][:count]
        now += 1.0
        released += taken(folded, now - chance.randint(0, 3))
    released += taken(folded, float("inf"))
    for rank, lines in enumerate(outputs):
        assert [line for ranks, line in released if rank in ranks] == lines
    assert taken(folded, float("inf")) == []


def test_a_line_that_few_ranks_print_does_not_part_those_after_it():
    folded = FoldedLines(3)
    folded.put(0, [b"start", b"epoch 1", b"epoch 2"], 0.0)
    folded.put(1, [b"start", b"slow disk", b"epoch 1", b"epoch 2"], 0.0)
    folded.put(2, [b"start", b"epoch 1", b"", b"epoch 2"], 0.0)
    everyone = [0, 1, 2]
    assert taken(folded, 1.0) == [
        (everyone, b"start"),
        ([1], b"slow disk"),
        (everyone, b"epoch 1"),
        ([2], b""),
        (everyone, b"epoch 2"),
    ]


def test_lines_wait_for_other_ranks_unless_all_have_them():
    folded = FoldedLines(3)
    folded.put(0, [b"a", b"b"], 1.0)
    folded.put(1, [b"a"], 2.0)
    assert taken(folded, 1.0) == []
    folded.put(2, [b"a"], 3.0)
    assert taken(folded, 1.0) == [([0, 1, 2], b"a")]
    assert taken(folded, 1.1) == [([0], b"b")]


def test_a_terminal_shows_what_nine_ranks_print_once(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with on_a_terminal() as (screen, terminal):
        printer = Printer(1, terminal, fold=9)
        for rank in range(9):
            put(printer, b"hello\n" if rank != 4 else b"hello\nodd\n", rank=rank)
        printer.end()
        until(lambda: screen.lines == ["ranks 0–8 | hello", "rank 4 | odd", ""])


@pytest.mark.parametrize(("fold", "words"), [(8, {}), (9, {"prefixed": False}), (9, {"raw": True})])
def test_few_ranks_and_lines_as_they_were_written_are_not_folded(monkeypatch, fold, words):
    monkeypatch.setenv("TERM", "xterm")
    with on_a_terminal() as (_, terminal):
        assert not Printer(1, terminal, fold=fold, **words).folds
    assert not Printer(1, Pipe(), fold=fold, prefixed=True).folds


@pytest.mark.slow
def test_run_and_logs_fold_on_a_terminal_and_never_in_a_pipe(home, code, allranks):
    (code / "say.py").write_text(
        "import os\nprint('ready', flush=True)\n"
        "if os.environ['RANK'] == '3': print('only here', flush=True)\nprint('done')\n"
    )
    folded = ["ranks 0–8 | ready", "rank 3 | only here", "ranks 0–8 | done"]

    def shown(*words):
        screen = Screen(rows=50, columns=100)
        env = {**environment(home), "TERM": "xterm"}
        argv = [sys.executable, "-c", CLI, *words]
        with open(os.devnull, "w") as nothing:
            process = subprocess.Popen(
                argv, cwd=code, env=env, stdin=screen.other, stdout=screen.other, stderr=nothing
            )
        try:
            assert process.wait(60) == 0
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        # All that it wrote has been read.
        os.write(screen.other, b"\nend")
        until(lambda: screen.lines[-1] == "end")
        return [line for line in screen.lines[:-1] if line]

    run = ("run", "-p", "9", "--name", "nine", "--", "python", "say.py")
    lines = shown(*run)
    # Ranks that start late may part a line.
    assert sum("only here" in line for line in lines) == 1
    assert any(line.startswith("ranks ") for line in lines)
    assert shown("job", "logs", "nine") == folded
    single = shown("job", "logs", "nine", "--no-fold")
    assert len(single) == 19
    assert single[0] == "rank 0 | ready"
    piped = allranks("job", "logs", "nine", "--prefix").stdout.splitlines()
    assert piped == single
