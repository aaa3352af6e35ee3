"""What a submission takes over from a job that may have changed its record."""

import os
from pathlib import Path

import pytest

from allranks.server.submission.submit import diff_of
from tests.server.serving import served
from tests.support import until


def link(file: Path, secret: Path) -> None:
    file.symlink_to(secret)


def pipe(file: Path, _: Path) -> None:
    os.mkfifo(file)


def not_text(file: Path, _: Path) -> None:
    file.write_bytes(b"\xff")


@pytest.mark.medium
@pytest.mark.parametrize("put", [link, pipe, not_text])
def test_a_restart_reads_no_diff_that_a_job_put_elsewhere(tmp_path, put):
    with served(tmp_path / "h") as server:
        server.submit("j")
        server.people.post("/api/v1/jobs/j/cancel")
        until(lambda: server.people.get("/api/v1/jobs/j").json()["ended_at"] is not None)
        file = diff_of(str(server.home.jobs / "j"))
        file.parent.mkdir(parents=True, exist_ok=True)
        put(file, server.home.token)
        answer = server.people.post("/api/v1/jobs/j/restart", timeout=10)
        assert answer.status_code == 201, answer.text
        copy = diff_of(str(server.home.jobs / answer.json()["name"]))
        assert not copy.exists() or server.token() not in copy.read_text()
