"""A client of the server for Python programs and notebooks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlencode

from allranks.sdk import finding
from allranks.sdk.addresses import job_path
from allranks.sdk.download import download
from allranks.sdk.following import Following
from allranks.sdk.submission import prepare, send
from allranks.spec.job import CommandJob


class Job:
    """A job as the server last told; ``refresh`` asks again. Every key of `job show --json` is an
    attribute: ``job.status``, ``job.exit_code``, ``job.error``…"""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told

    def __getattr__(self, name: str) -> Any:
        try:
            return self._told[name]
        except KeyError:
            raise AttributeError(f"a job has no {name!r}") from None

    def __repr__(self) -> str:
        return f"Job(name={self.name!r}, status={self.status!r})"

    def to_dict(self) -> dict[str, Any]:
        return dict(self._told)


class Client:
    """The server of ALLRANKS_SERVER, else the home's own, started when it is not running."""

    def __init__(self) -> None:
        self.jobs = Jobs()


class Jobs:
    """The operations on jobs; all raise AllranksError, with a hint."""

    def create_or_update(self, job: CommandJob, *, base: str | Path = ".") -> Job:
        """Submit a job; relative paths in it are relative to ``base``. An existing name is a
        Conflict: an ended job is never changed."""
        submission, snapshot = prepare(job.to_dict(), Path(base).absolute())
        with finding.connect() as client:
            return Job(send(client, submission, snapshot))

    def get(self, name: str) -> Job:
        return Job(_ask("GET", job_path(name)))

    def list(self, *, status: str | None = None, limit: int = 50) -> list[Job]:
        """The newest first."""
        query = {"limit": limit} | ({"status": status} if status else {})
        return [Job(each) for each in _ask("GET", f"/api/v1/jobs?{urlencode(query)}")]

    def cancel(self, name: str) -> Job:
        return Job(_ask("POST", job_path(name, "/cancel")))

    def stream(self, name: str, *, to: TextIO | None = None) -> Job:
        """Write every rank's output to ``to`` (stdout) until the job has ended."""
        following, goal = Following(finding.connect, name), to or sys.stdout
        for piece in following.pieces():
            goal.write(piece["log"].encode(errors="surrogateescape").decode(errors="replace"))
            goal.flush()
        return Job(following.job)

    def wait(self, name: str) -> Job:
        """Return once the job has ended."""
        following = Following(finding.connect, name, wanted={"ranks": []})
        for _ in following.pieces():
            pass
        return Job(following.job)

    def download(self, name: str, download_path: str | Path = ".", *, all: bool = True) -> Path:
        """Fetch ``artifacts/`` and, with ``all``, ``named-outputs/`` into the folder."""
        with finding.connect() as client:
            download(client, name, Path(download_path), everything=all)
        return Path(download_path)


def _ask(method: str, path: str) -> Any:
    with finding.connect() as client:
        return client.json(method, path)
