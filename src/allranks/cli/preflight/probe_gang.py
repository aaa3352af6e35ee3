"""The probe job on a job's compute.

It is an ordinary job named `preflight-…`, followed to a deadline and canceled on every exit path.
If this process is killed, its time limit ends it.
"""

from __future__ import annotations

import json
import queue
import shlex
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from allranks import agent
from allranks.api import routes
from allranks.cli.preflight.probe_questions import ProbeAnswers
from allranks.errors import AllranksError, Unreachable
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.follow import Following
from allranks.sdk.submit.names import generate_name
from allranks.sdk.submit.prepare import prepare
from allranks.sdk.submit.send import send

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.api.jobs import CreatedJob

# The part of this package that is sent, beside `__main__.py` and the questions.
_FILES = ("probes/probe.py", "probes/facts.py", "probes/wire.py", "network/interfaces.py")
_MAIN = "from allranks.agent.probes.probe import main\n\nmain()\n"
FOLDER = "preflight"

# Shares of the time limit: until present probes continue without missing ones, and until the end.
MEET, TOTAL = 0.3, 0.6
# The probe job's own time limit, if it is not canceled.
_LIMIT = 1.5
# Seconds reserved for canceling.
_RESERVE = 0.8

Answer = TypeVar("Answer")


def spec_of(
    job: Mapping[str, Any], python: str | None, inputs: Mapping[str, Any], seconds: float
) -> Document:
    """The gang's job: the compute, nodes, environment and variables of the other, one probe a
    node, tried once. Without a ``python`` of the job's own, any that is there. A container is given
    nothing but its job's ``inputs``, which have absolute paths: so the gang has them, too. It is
    given ``seconds``."""
    program = shlex.quote(python) if python else '"$(command -v python || command -v python3)"'
    kept = ("compute", "environment", "resources", "queue_settings", "identity")
    spec = {name: job[name] for name in kept if name in job}
    variables = job.get("environment_variables") or {}
    # Its inputs are not the gang's.
    plain = {name: value for name, value in variables.items() if "${{" not in str(value)}
    return {
        **spec,
        "name": f"preflight-{generate_name()}",
        "experiment_name": "preflight",
        "command": f"exec {program} -B {FOLDER}",
        "code": ".",
        "limits": {"timeout": _LIMIT * seconds},
        **({"environment_variables": plain} if plain else {}),
        **({"inputs": inputs} if isinstance(job.get("environment"), Mapping) and inputs else {}),
    }


def rehearse(
    spec: Mapping[str, Any],
    request: Mapping[str, Any],
    until: float,
    say: Callable[[str], None] = lambda text: None,
) -> ProbeAnswers:
    """Run the probe job until it has ended or until the monotonic time ``until``."""
    gang = _Gang(spec, request)
    lines: list[Mapping[str, Any]] = []
    rests: dict[int, str] = {}
    job: Mapping[str, Any] = {}
    try:
        for kind, news in gang.news(until - _RESERVE):
            if kind == "error":
                return ProbeAnswers(tuple(lines), job, error=news)
            if kind == "piece":
                *whole, rests[news["rank"]] = (rests.get(news["rank"], "") + news["log"]).split(
                    "\n"
                )
                lines += _probes(whole)
                if _all_reported(lines):
                    break
                continue
            job = news
            say(f"the gang is {job['status']}")
            if kind == "end":
                return ProbeAnswers(tuple(lines), job, ended=True)
        whole_job = within(0.4, lambda: _get(str(spec["name"]))) if job else None
        return ProbeAnswers(tuple(lines), whole_job or job)
    finally:
        gang.stop(max(_RESERVE, until - time.monotonic()))


def _all_reported(lines: list[Mapping[str, Any]]) -> bool:
    """Whether all answering probes have reported everything.

    If all nodes are present, the job ends by itself.
    """
    reports: dict[str, dict[int, Mapping[str, Any]]] = {}
    for line in lines:
        reports.setdefault(line["preflight"], {})[line["node"]] = line
    facts = reports.get("facts", {})
    met = reports.get("met", {})
    if not facts or any(node not in met or node not in reports.get("looked", {}) for node in facts):
        return False
    together = [line for line in met.values() if not line["why"]]
    if any(len(line["present"]) == line["of"] for line in together):
        return False
    return all(line["node"] in reports.get("sum", {}) for line in together)


def _probes(lines: list[str]) -> Iterator[Mapping[str, Any]]:
    """The probe's messages in a rank's output."""
    for line in lines:
        if line.startswith('{"preflight"'):
            try:
                yield json.loads(line)
            except ValueError:
                continue


class _Gang:
    """The probe job, followed in its own thread, so that a slow server cannot delay the caller."""

    def __init__(self, spec: Mapping[str, Any], request: Mapping[str, Any]) -> None:
        self._spec, self._request = dict(spec), request
        self._name = str(spec["name"])
        self._news: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._stopping = False
        self._submitted = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def news(self, until: float) -> Iterator[tuple[str, Any]]:
        while (left := until - time.monotonic()) > 0:
            try:
                kind, data = self._news.get(timeout=left)
            except queue.Empty:
                return
            yield kind, data
            if kind in ("end", "error"):
                return

    def stop(self, seconds: float) -> None:
        """Cancel it, if it exists."""
        self._stopping = True
        until = time.monotonic() + seconds
        # A request without an answer may still have created the job.
        self._submitted.wait(seconds / 2)
        if self._thread.is_alive():
            within(seconds / 2, self._cancel)
            self._thread.join(max(0.0, until - time.monotonic()))

    def _follow(self) -> None:
        try:
            try:
                job = self._submit()
            finally:
                self._submitted.set()
            self._news.put(("job", job))
            following = Following(
                find_server.connect,
                self._name,
                changed=lambda job, _: self._news.put(("job", job)),
            )
            for piece in following.pieces():
                self._news.put(("piece", piece))
            self._news.put(("end", following.job))
        except AllranksError as error:
            self._news.put(("error", error))
        except OSError as error:
            self._news.put(("error", Unreachable(f"it could not be tested: {error.strerror}")))

    def _submit(self) -> CreatedJob:
        with tempfile.TemporaryDirectory(prefix="allranks-") as folder:
            write(Path(folder), self._request)
            submission, snapshots = prepare(self._spec, Path(folder))
            with find_server.connect() as client:
                job: CreatedJob = send(client, submission, snapshots)
        if self._stopping:
            self._cancel()
        return job

    def _cancel(self) -> None:
        with find_server.connect(start=False) as client:
            client.call(*routes.cancel_job.at(self._name))


def write(folder: Path, request: Mapping[str, Any]) -> None:
    """The code of the probe job: only what a bare Python needs."""
    root = folder / FOLDER
    package = root / "allranks" / "agent"
    folders = {Path(name).parent for name in _FILES}
    for each in (package.parent, package, *(package / folder for folder in folders)):
        each.mkdir(parents=True, exist_ok=True)
        (each / "__init__.py").touch()
    for name in _FILES:
        shutil.copy(Path(agent.__path__[0], name), package / name)
    (root / "__main__.py").write_text(_MAIN)
    (root / "asked.json").write_text(json.dumps(request))


def _get(job: str) -> Document:
    with find_server.connect(start=False) as client:
        return {**client.ask(routes.show_job, job)}


def within(seconds: float, do: Callable[[], Answer]) -> Answer | None:
    """The result of ``do``, or None if it fails or takes too long; it then continues in the
    background."""
    results: list[Answer] = []

    def work() -> None:
        try:
            results.append(do())
        except (AllranksError, OSError):
            return

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(seconds)
    return results[0] if results else None
