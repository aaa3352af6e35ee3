"""A job may put links and pipes where its agent, and the server after it, write and read."""

import contextlib
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from allranks.agent.monitoring.metric_scraper import Scraper
from allranks.agent.monitoring.stacks import _open_nameless, with_text
from allranks.agent.processes.ranks import last_lines
from allranks.agent.transport.tails import Feed, Tail
from allranks.core.diagnosis.stacks import Frame
from allranks.server.loop import dead_agent_files
from allranks.store.metric_points import Source

SECRET = b"an owner's token\n"


@pytest.fixture(params=["link", "pipe"])
def odd(request, tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "attempt").mkdir()
    path = tmp_path / "attempt/rank-0.log"
    if request.param == "link":
        path.symlink_to(tmp_path / "secret")
    else:
        os.mkfifo(path)
    return path


def test_logs_and_points_are_not_read_elsewhere(odd: Path):
    assert Tail(1, 0, odd).rest() == b""
    assert Feed(1, "metrics", odd).rest() == b""
    assert last_lines(odd) == []
    stored: list[bytes] = []
    points = SimpleNamespace(add_from_agent=lambda *words: stored.append(words[-1]) or 0)
    source = Source(1, 1, 0, "metrics")
    dead_agent_files._collect_points(odd, points, source)  # type: ignore[arg-type]
    assert not any(stored)


def test_points_are_not_written_elsewhere(odd: Path, tmp_path: Path):
    request = {"metrics": [], "logs": {}, "into": str(odd)}
    if odd.is_symlink():
        with pytest.raises(OSError):
            Scraper(request)
    assert (tmp_path / "secret").read_bytes() == SECRET


def test_a_rank_shows_lines_of_files_that_it_sees(odd: Path, tmp_path: Path):
    """Here it sees what the agent sees; a link to a source file is one."""
    source = tmp_path / "train.py"
    source.write_text("a = 1\nb = 2\n")
    texts = [with_text(Frame(str(source), line, "f"), os.getpid()).text for line in (-1, 0, 2, 9)]
    assert texts == ["", "", "b = 2", ""]
    if not odd.is_symlink():
        assert with_text(Frame(str(odd), 1, "f"), os.getpid()).text == ""
    assert with_text(Frame("/dev/zero", 1, "f"), os.getpid()).text == ""


@pytest.mark.parametrize("kind", ["named", "read-only", "pipe", "none"])
def test_a_process_marks_a_file_as_that_of_its_stacks(kind: str, tmp_path: Path):
    """Asking for its stack empties that file. Here the process is this one."""
    path = tmp_path / "allranks-stacks"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(SECRET)
    flags = {"named": os.O_RDWR, "read-only": os.O_RDONLY, "pipe": os.O_PATH, "none": os.O_RDWR}
    fd = os.open(path, flags[kind])
    if kind == "none":
        path.unlink()
    try:
        opened = None
        with contextlib.suppress(OSError):
            opened = _open_nameless(f"/proc/self/fd/{fd}")
        assert (opened is not None) == (kind == "none")
        if opened is not None:
            os.close(opened)
    finally:
        os.close(fd)
