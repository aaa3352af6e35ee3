"""The output of all ranks as one log: by time, each line once, however it is cut into windows."""

import time
from pathlib import Path

import pytest

from allranks.errors import UsageError
from allranks.server.api.routes.merged_log import place_of
from allranks.server.jobs import merged_log
from allranks.server.jobs.merged_log import MergedLog, Window
from allranks.store.files.log_times import LogTimes
from allranks.store.files.logs import Logs


def made(folder: Path, pieces: list[tuple[int, bytes, float]]) -> MergedLog:
    """``pieces``: rank, output, and how many seconds ago it was printed, as they arrive."""
    logs, sizes = Logs(folder), dict.fromkeys(range(3), 0)
    for rank, data, age in pieces:
        logs.append(1, rank, f"{rank}.txt", 0, b"")
        sizes[rank] = logs.append(1, rank, f"{rank}.txt", sizes[rank], data, age)
    paths = {rank: logs.path(1, f"{rank}.txt") for rank in sizes}
    return MergedLog(LogTimes(folder, 1), paths)


def texts(log: MergedLog, window: Window) -> list[str]:
    return [f"{line['rank']} {line['text']}" for line in log.lines(window)]


PIECES = [
    (0, b"a\nb", 0.0),
    (1, b"c\n", 5.0),
    (0, b"b\n10%\r20%\r\n", 0.0),
    (1, b"long" * 30, 0.0),
    (1, b"\nend", 0.0),
    (2, b"\xff\n", 0.0),
]


def test_lines_are_in_the_order_in_which_they_were_printed(tmp_path: Path) -> None:
    log = made(tmp_path, PIECES)
    whole = log.before(log.pieces)
    assert whole == (0, len(PIECES))
    long = "long" * 30
    assert texts(log, whole) == ["1 c", "0 a", "0 bb", "0 20%", f"1 {long}", "2 �"]
    assert [(line["rank"], line["text"]) for line in log.unfinished()] == [(1, "end")]
    # A place is the byte at which the line begins.
    assert log.find([(0, 5), (1, 2)]) == 2
    assert log.find([(1, 9999)]) is None


@pytest.mark.parametrize("size", [1, 4, 150])
def test_windows_have_each_line_once(tmp_path: Path, size: int) -> None:
    log = made(tmp_path, PIECES)
    forward, backward, end = list[str](), list[str](), 0
    while end < log.pieces:
        window = log.after(end, size)
        forward, end = forward + texts(log, window), window.end
    while end:
        window = log.before(end, size)
        backward, end = texts(log, window) + backward, window.begin
    assert sorted(forward) == sorted(backward) == sorted(texts(log, log.before(log.pieces)))


def test_output_without_times_is_rank_after_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_log, "_PIECE", 2)
    made(tmp_path, PIECES)
    (tmp_path / "log-times/1").unlink()
    log = MergedLog(LogTimes(tmp_path, 1), {0: Logs(tmp_path).path(1, "0.txt")})
    assert not log.ordered
    assert texts(log, log.before(log.pieces)) == ["0 a", "0 bb", "0 20%"]
    assert log.find([(0, 2)]) == 1


@pytest.mark.parametrize("text", ["", "1", "a:1", "1:-1", "0:" + "9" * 5000])
def test_a_place_that_is_none(text: str) -> None:
    with pytest.raises(UsageError):
        place_of(text)


def test_a_record_that_a_job_made_larger_is_read_within_bounds(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.append(1, 0, "0.txt", 0, b"hello\n")
    for path in (logs.path(1, "0.txt"), *(tmp_path / "log-times").iterdir()):
        with path.open("r+b") as file:
            file.truncate(1 << 42)
    began = time.process_time()
    log = MergedLog(LogTimes(tmp_path, 1), {0: logs.path(1, "0.txt")})
    assert not log.ordered
    window = log.before(log.pieces)
    shown = [line["text"].strip("\0") for line in log.lines(window)]
    assert time.process_time() - began < 3
    assert [text for text in shown if text] == ["hello"]
