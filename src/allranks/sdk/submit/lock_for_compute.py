"""Whether a job may run on another machine, which may lack the current Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from allranks import settings
from allranks.sdk.connection.contexts import LOCAL
from allranks.sdk.submit.shell import Shell

if TYPE_CHECKING:
    from allranks.sdk.submit.python_lock import Lock


def lock_for(spec: Mapping[str, Any], shell: Shell) -> Lock | None:
    """The list of the current Python's packages; None for a job that only runs on this machine."""
    # This machine's compute has the name of its server.
    named = {name.removeprefix("azureml:") for name in _computes(spec)}
    by_default = not named and settings.home().elsewhere.exists()
    if not (by_default or named - {LOCAL} or shell.other_server):
        return None
    from allranks.sdk.submit.python_lock import lock  # lazy: most jobs run on this machine

    return lock(shell.variables)


def _computes(spec: Mapping[str, Any]) -> Iterator[str]:
    """The computes that a job and its steps name."""
    of_steps = spec.get("settings")
    names = [spec.get("compute")]
    names += [of_steps.get("default_compute")] if isinstance(of_steps, Mapping) else []
    yield from (name for name in names if isinstance(name, str) and name)
    steps = spec.get("jobs")
    for step in steps.values() if isinstance(steps, Mapping) else ():
        if isinstance(step, Mapping):
            yield from _computes(step)
