"""The last lines of a log, from its end."""

import errno
import itertools
import os
import resource
import time
from pathlib import Path

import pytest

from allranks.server.jobs.merged_log import MergedLog
from allranks.store.files import logs as files
from allranks.store.files.log_times import LogTimes
from allranks.store.files.logs import Logs

NAME = "user_logs/std_log.txt"


def logs(folder, content: bytes) -> Logs:
    made = Logs(folder)
    assert made.append(1, 0, NAME, 0, content) == len(content)
    return made


@pytest.mark.medium
@pytest.mark.parametrize("block", [1, 2, 3, 1 << 18])
def test_the_last_lines_are_those_of_the_whole_file(tmp_path, monkeypatch, block):
    monkeypatch.setattr(files, "_BLOCK", block)
    for number, parts in enumerate(itertools.product([b"", b"a", b"bc\n", b"\n"], repeat=4)):
        content = b"".join(parts)
        made = logs(tmp_path / str(number), content)
        for lines in (1, 2, 3, 9):
            last = b"".join(content.splitlines(keepends=True)[-lines:])
            assert content[made.offset_of_last(1, NAME, lines) :] == last


def test_a_log_that_does_not_exist_has_none(tmp_path):
    assert Logs(tmp_path).offset_of_last(1, NAME, 3) == 0


def test_the_end_of_ten_gigabytes_is_there_at_once(tmp_path):
    made = logs(tmp_path, b"first\n")
    os.truncate(made.path(1, NAME), 10 << 30)
    made.append(1, 0, NAME, 10 << 30, b"\nlast but one\nlast\n")
    began = time.process_time()
    offset = made.offset_of_last(1, NAME, 2)
    assert made.read(1, NAME, offset) == b"last but one\nlast\n"
    assert time.process_time() - began < 0.1


def test_of_a_log_with_a_limit_the_newest_lines_are_kept(tmp_path: Path) -> None:
    logs, line, limit = Logs(tmp_path), b"x" * 999 + b"\n", 4 << 20
    size = 0
    for _ in range(12):
        size = logs.append(1, 0, "log.txt", size, line * 1000, limit=limit)
    path = logs.path(1, "log.txt")
    assert path.stat().st_size == size == 12_000_000
    if path.stat().st_blocks * 512 >= size:
        pytest.skip("this file system cannot free a part of a file")
    assert path.stat().st_blocks * 512 <= limit + (2 << 20)
    first = logs.kept_from(1, "log.txt", 0)
    assert size - limit - (2 << 20) < first <= size - limit + 1000
    assert logs.read(1, "log.txt", first).startswith(line)
    assert logs.kept_from(1, "log.txt", size - 10) == size - 10
    assert logs.kept_from(1, "log.txt", size) == size
    assert logs.offset_of_last(1, "log.txt", 2) == size - 2000
    assert logs.offset_of_last(1, "log.txt", 10**6) == first


@pytest.mark.timeout(20)  # a pipe is not waited for
@pytest.mark.parametrize("kind", ["link", "pipe", "folder above"])
def test_what_a_job_puts_in_place_of_its_log(tmp_path: Path, kind: str):
    secret, made = tmp_path / "secret", logs(tmp_path / "job", b"mine\n")
    secret.write_bytes(b"secret\n")
    log = made.path(1, NAME)
    log.unlink()
    if kind == "link":
        log.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(log)
    else:
        log.parent.rmdir()
        log.parent.symlink_to(tmp_path)
        (tmp_path / log.name).write_bytes(b"secret\n")
    times = tmp_path / "job" / "log-times" / "1"
    times.unlink()
    os.mkfifo(times)
    assert made.read(1, NAME, 0) == b""
    assert made.offset_of_last(1, NAME, 1) == 0
    assert made.kept_from(1, NAME, 0) == 0
    if kind == "folder above":
        with pytest.raises(OSError):
            made.append(1, 0, NAME, 5, b"more\n")
    else:
        assert made.append(1, 0, NAME, 5, b"more\n") == 0, "the sender begins again"
        assert made.append(1, 0, NAME, 0, b"mine\nmore\n") == 10
        assert made.read(1, NAME, 0) == b"mine\nmore\n"
    assert secret.read_bytes() == b"secret\n"


def test_what_no_job_causes_is_not_an_empty_log(tmp_path: Path) -> None:
    made = logs(tmp_path, b"mine\n")
    file = made.path(1, NAME)
    merged = MergedLog(LogTimes(tmp_path, 1), {0: file})
    readers = (
        lambda: made.read(1, NAME, 0),
        lambda: made.offset_of_last(1, NAME, 1),
        lambda: made.kept_from(1, NAME, 0),
        lambda: list(merged.unfinished()),
    )
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_one = os.dup(0)
    os.close(next_one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, most))
    try:
        for read in readers:
            with pytest.raises(OSError) as error:
                read()
            assert error.value.errno == errno.EMFILE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))
    file.unlink()
    file.mkdir()
    assert made.read(1, NAME, 0) == b""
