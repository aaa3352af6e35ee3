"""Turn a job's definition into a submission, for YAML, SDK and command line.

Works on plain dictionaries, so `allranks run` need not import the models; the server validates
every job.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks import settings
from allranks.core.job.code_packages import NOT_RECORDED
from allranks.core.packing import pack
from allranks.core.transfer_progress import OnProgress, unheard
from allranks.errors import SpecError, UsageError
from allranks.masking import without_credentials
from allranks.sdk.submit import paths
from allranks.sdk.submit.current_environment import is_current, tools
from allranks.sdk.submit.lock_for_compute import lock_for
from allranks.sdk.submit.names import generate_name
from allranks.sdk.submit.send import Snapshots
from allranks.sdk.submit.shell import Shell
from allranks.snapshot.git import GitQuery, GitState
from allranks.snapshot.take import take_snapshot

if TYPE_CHECKING:
    from allranks.api.common import Document


def prepare(
    spec: Mapping[str, Any],
    base: Path,
    *,
    shell: Shell | None = None,
    in_place: bool = False,
    note: Callable[[str], None] = lambda sentence: None,
    allow_large: bool = False,
    progress: OnProgress = unheard,
) -> tuple[Document, Snapshots]:
    """The submission of a job and its snapshots; relative paths start at ``base``.

    Raises SpecError for missing files, and CodeTooLarge unless ``allow_large``. ``note`` receives
    messages for the user.
    """
    shell = shell or Shell()
    if spec.get("type") == "pipeline":
        if in_place:
            hint = "leave it out: every step gets a copy of its own code"
            raise UsageError("a pipeline does not run in place", where="--in-place", hint=hint)
        from allranks.sdk.submit.pipeline import prepare_pipeline  # lazy: few jobs are pipelines

        return prepare_pipeline(spec, base, shell, note, allow_large, progress)
    of_type = _sweep if isinstance(spec.get("trial"), Mapping) else _command
    return of_type(spec, base, shell, in_place, note, allow_large, progress)


def _command(
    spec: Mapping[str, Any],
    base: Path,
    shell: Shell,
    in_place: bool,
    note: Callable[[str], None],
    allow_large: bool,
    progress: OnProgress,
) -> tuple[Document, Snapshots]:
    spec = dict(spec)
    spec.setdefault("name", generate_name())
    code, fetched = paths.find_code(spec.get("code"), base)
    folder = (code if code.is_dir() else code.parent) if code is not None else base
    own = folder.resolve().name if fetched is None else fetched.repository
    spec.setdefault("experiment_name", own or "Default")
    if "inputs" in spec:
        spec["inputs"] = {
            name: paths.located_input(name, value, base)
            for name, value in (spec["inputs"] or {}).items()
        }
    if paths.has_files(spec.get("environment")):
        spec["environment"] = paths.environment_of(spec["environment"], base)
    if "outputs" in spec:
        spec["outputs"] = {
            name: paths.located_output(value, base)
            for name, value in (spec["outputs"] or {}).items()
        }
    if limit := os.environ.get("ALLRANKS_KEEP_WORK"):
        spec.setdefault("keep_work", limit)
    submission: Document = {"spec": spec, "base": {**shell.variables}}
    brought = is_current(spec.get("environment"))
    lock = lock_for(spec, shell) if brought else None
    if lock is not None:
        submission["python"] = pack(lock.python)
    if not brought or lock is not None or paths.moves_data(spec):
        submission["tools"] = tools(python=not brought, elsewhere=lock is not None)
    paths.require_text(submission)
    if code is not None:
        spec["code"] = str(code) if fetched is None else without_credentials(str(spec["code"]))
        if in_place:
            submission["in_place"] = str(folder.resolve())
            return submission, ()
    if code is None and spec.get("inside"):
        return submission, ()  # all that it needs is there
    packages = shell.packages if brought else []
    wheels = () if lock is None else lock.wheels
    if code is None and not wheels and all(package.only_inside for package in packages):
        return submission, ()
    # Git runs while the files are read; a fetched commit is known already.
    query = GitQuery(folder.resolve()).result if fetched is None else lambda: fetched.git
    snapshot = take_snapshot(
        code,
        note,
        settings.home().snapshots,
        allow_large,
        progress,
        is_commit=fetched is not None,
        packages=packages,
        wheels=wheels,
    )
    git = query() if code is not None else GitState()
    properties = {**git.properties}
    if snapshot.left:
        properties[NOT_RECORDED] = "; ".join(snapshot.left)
    if properties:
        spec["properties"] = {**properties, **(spec.get("properties") or {})}
    if not snapshot.files:
        return submission, ()
    submission |= {"code": snapshot.digest, "diff": git.diff}
    return submission, (snapshot,)


def _sweep(
    spec: Mapping[str, Any],
    base: Path,
    shell: Shell,
    in_place: bool,
    note: Callable[[str], None],
    allow_large: bool,
    progress: OnProgress,
) -> tuple[Document, Snapshots]:
    """A sweep is prepared like one job with the code and environment of its trials."""
    trial = spec["trial"]
    flat = {key: value for key, value in spec.items() if key != "trial"}
    flat |= {key: trial[key] for key in _OF_TRIAL if key in trial}
    with _of_trial():
        submission, snapshots = _command(flat, base, shell, in_place, note, allow_large, progress)
    made = submission["spec"]
    moved = {key: made.pop(key) for key in _OF_TRIAL if key in made}
    return {**submission, "spec": {**made, "trial": {**trial, **moved}}}, snapshots


# The keys of a sweep's trial that `_command` changes.
_OF_TRIAL = ("code", "environment", "keep_work")


@contextlib.contextmanager
def _of_trial() -> Iterator[None]:
    """Problems in a trial's keys get the keys of its sweep."""
    try:
        yield
    except SpecError as error:
        problems = [
            problem._replace(where=f"trial.{problem.where}")
            if str(problem.where).partition(".")[0] in _OF_TRIAL
            else problem
            for problem in error.problems
        ]
        raise SpecError(problems, file=error.file) from None
