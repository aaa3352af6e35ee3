"""Restart an ended job, unchanged or with other code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.api import routes
from allranks.core.transfer_progress import OnProgress, unheard
from allranks.errors import UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.submit.current_environment import is_current
from allranks.sdk.submit.prepare import prepare
from allranks.sdk.submit.send import COPYING, Snapshots, send

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.api.jobs import RestartedJob


# The current Python, in a submission.
OF_PYTHON = ("python", "base", "tools")


def restart(
    name: str,
    *,
    resume: bool = False,
    fresh: bool = False,
    code: str | None = None,
    limits: Mapping[str, int] | None = None,
    overrides: Sequence[str] = (),
    note: Callable[[str], None] = lambda sentence: None,
    allow_large: bool = False,
    allow_large_data: bool = False,
    progress: OnProgress = unheard,
) -> RestartedJob:
    """Restart the job; returns the new one, in whose ``restarted`` the server says whether it goes
    on from the outputs and state of the ended job: by default if that did not complete, always with
    ``resume``, never with ``fresh``. ``code`` is a folder, file or repository that replaces its
    code; ``overrides`` change its spec, each ``a.b=c``; ``limits`` replace those of a sweep, which
    continues under its own name. ``note`` and ``progress`` receive messages and progress."""
    to = routes.restart_job.at(name, resume=resume, fresh=fresh)
    data: Document | None = {"limits": dict(limits)} if limits else None
    snapshots: Snapshots = ()
    if code is not None:
        # Check the name before reading the code.
        job = find_server.ask(routes.show_job, name)
        environment = job["spec"].get("environment")
        # Only packages of an environment that is the submitter's own go along with the code.
        environment = None if is_current(environment) else str(environment)
        read, snapshots = prepare(
            {
                "name": name,
                "code": code,
                "environment": environment,
                "compute": job["spec"].get("compute"),
            },
            Path.cwd(),
            note=note,
            allow_large=allow_large,
            progress=progress,
        )
        if not snapshots:
            hint = "give the folder with the code: -C DIR"
            raise UsageError("there is no code to run", where=code, hint=hint)
        spec = read["spec"]
        data = {"code": read["code"], "path": spec["code"], "diff": read["diff"]}
        data["properties"] = spec.get("properties") or {}
        # The packages that go along with the code are those of now.
        data |= {key: read[key] for key in OF_PYTHON if "python" in read}
    with find_server.connect() as client:
        if overrides and find_server.of_another_home():
            from allranks.sdk.upload.inputs import How, bring_set  # lazy: as in `send`

            overrides = bring_set(client, overrides, How(allow_large_data, note, progress))
        if overrides:
            data = {**(data or {}), "set": [*overrides]}
        made: RestartedJob = send(client, data, snapshots, progress, to=to, timeout=COPYING)
        return made
