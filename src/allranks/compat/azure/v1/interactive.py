"""`Experiment.start_logging`: a run that this program logs to, recorded by a job that waits for it.

The job says where its metrics and files go, and blocks on a lock that this process holds: it ends
when the run is completed, and also when this process is gone.
"""

from __future__ import annotations

import atexit
import dis
import fcntl
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn

from allranks.agent.inside import azureml_run  # type: ignore[import-not-found, unused-ignore]
from allranks.compat.azure.notes import note
from allranks.compat.azure.v1.compute import LOCAL
from allranks.compat.azure.v1.exceptions import RunEnvironmentException
from allranks.compat.azure.v1.run import Run
from allranks.sdk import Client, Job
from allranks.spec.job import CommandJob

# The folder's files: where the job logs, what is locked, and the exit code.
_PLACE, _LOCK, _CODE = "place", "lock", "code"
_WAIT = """
import fcntl, json, os, sys
folder = sys.argv[1]
place = os.path.join(folder, "place")
with open(place + ".part", "w") as file:
    json.dump([os.environ["ALLRANKS_METRICS_FILE"], os.getcwd()], file)
os.rename(place + ".part", place)
with open(os.path.join(folder, "lock")) as file:
    fcntl.flock(file, fcntl.LOCK_SH)
code = os.path.join(folder, "code")
sys.exit(int(open(code).read()) if os.path.exists(code) else 0)
"""
# Seconds between two looks whether the job has begun, at first and at most, and until a note says
# what it waits for.
_SOON, _SELDOM, _LONG = 0.02, 2.0, 5.0


class InteractiveRun(Run):
    """A run of this program. What logs and uploads works until ``complete`` or ``fail``; the rest
    is as of any run. ``live_type``: what has the members that work until then."""

    live_type = azureml_run.Run

    def __init__(self, experiment: Any, options: Mapping[str, Any]) -> None:
        """Raises RunEnvironmentException if its job does not start here."""
        self.folder = tempfile.mkdtemp(prefix="allranks-run-")
        self._remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self._process = os.getpid()
        self._exits = Exits.watched()
        self._lock = open(Path(self.folder, _LOCK), "w")  # noqa: SIM115  # until the run ends
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        made = Client().jobs.create_or_update(
            CommandJob.parse(_job(experiment.name, self.folder, options))
        )
        super().__init__(experiment, made.name)
        metrics_file, folder = self._started(made)
        self._live = azureml_run.Run(made.name)
        self._live._file, self._live._root = metrics_file, folder
        atexit.register(self._at_exit)

    def _started(self, job: Job) -> list[str]:
        place = Path(self.folder, _PLACE)
        pause, waited = _SOON, 0.0
        while not place.exists():
            if job.refresh().status in ("Completed", "Failed", "Canceled"):
                why = job.error["message"] if job.error else job.status
                hint = "submit the script: Experiment.submit"
                raise RunEnvironmentException(f"the job {job.name} did not start: {why}", hint=hint)
            if waited < _LONG <= waited + pause:
                why = f"{job.status_reason or job.status}; see allranks job show {job.name}"
                note(f"waiting for the job {job.name}: {why}")
            time.sleep(pause)
            waited += pause
            pause = min(2 * pause, _SELDOM)
        return [str(item) for item in json.loads(place.read_text())]

    def __getattribute__(self, name: str) -> Any:
        # While the job waits, what a script's own run has is done by that.
        if name in _LIVE and not object.__getattribute__(self, "_lock").closed:
            return getattr(object.__getattribute__(self, "_live"), name)
        return super().__getattribute__(name)

    def complete(self, _set_status: bool = True) -> None:
        """End the run, and wait until its files are in the record. A second call does nothing."""
        self._end(0)

    def fail(self, error_details: Any = None, error_code: str | None = None, **_: Any) -> None:
        """End the run as failed."""
        self._end(1)

    def cancel(self) -> None:
        super().cancel()
        self._end(1)

    def _at_exit(self) -> None:
        self._end(1 if _has_crashed() else self._exits.code())

    def _end(self, code: int) -> None:
        if os.getpid() != self._process:  # a forked one, which has the open lock too
            self._remove.detach()
            return
        if self._lock.closed:
            return
        atexit.unregister(self._at_exit)
        Path(self.folder, _CODE).write_text(str(code))
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._lock.close()
        self._job.wait(False)
        self._remove()

    def __enter__(self) -> InteractiveRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._end(0 if kind is None else 1)


class Exits:
    """With which code this program ends by `sys.exit`, which reaches no hook.

    ``frame`` is its outermost one: whether it returned, or SystemExit ended it, is known by the
    instruction that it stopped at."""

    def __init__(self, frame: FrameType) -> None:
        self._frame = frame
        self._codes: list[object] = []

    @classmethod
    @cache
    def watched(cls) -> Exits:
        frame = sys._getframe()
        while frame.f_back is not None:
            frame = frame.f_back
        exits, original = cls(frame), sys.exit

        def exit(code: Any = None, /) -> NoReturn:
            exits._codes.append(code)
            original(code)

        sys.exit = exit
        return exits

    def code(self) -> int:
        stopped_at = self._frame.f_code.co_code[self._frame.f_lasti]
        if not self._codes or dis.opname[stopped_at].startswith("RETURN"):
            return 0
        code = self._codes[-1]
        if code is None or isinstance(code, int):
            return int(code or 0) & 0xFF
        return 1


def _has_crashed() -> bool:
    """Whether an exception ended this program, or the last cell of its notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None:
        return not shell.last_execution_succeeded
    # What Python sets before it calls sys.excepthook, whoever has replaced that.
    return getattr(sys, "last_value", None) is not None


_LIVE = frozenset(
    (
        *(name for name in vars(azureml_run.Run) if name.startswith(("log", "upload_"))),
        *(
            "child_run",
            "create_children",
            "flush",
            "get_metrics",
            "get_file_names",
            "download_file",
        ),
    )
)


def _job(experiment: str, folder: str, options: Mapping[str, Any]) -> dict[str, Any]:
    job: dict[str, Any] = {
        "type": "command",
        "command": f"exec python -c {shlex.quote(_WAIT)} {shlex.quote(folder)}",
        "environment": "current",
        "compute": LOCAL[0],
        "experiment_name": experiment,
    }
    if code := options.get("snapshot_directory"):
        job["code"] = os.path.abspath(code)
    if name := options.get("display_name"):
        job["display_name"] = name
    return job
