"""The umask and soft limits of the shell that submits a job, on their way to its ranks.

The server was started by another shell, maybe months ago. They travel beside the submitter's
variables, and apply where the agents run on the server's machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource

from allranks.settings import SHELL_LIMITS

# Those that the agent itself can live with.
_KINDS = ("NOFILE", "CORE", "STACK", "MEMLOCK")
_OF_OTHERS = 0o077


def read() -> dict[str, str]:
    """Those of this process, as a variable."""
    mask = os.umask(_OF_OTHERS)  # the only way to ask
    os.umask(mask)
    limits = {kind: resource.getrlimit(getattr(resource, f"RLIMIT_{kind}"))[0] for kind in _KINDS}
    return {SHELL_LIMITS: json.dumps({"umask": mask, **limits})}


def apply() -> None:
    """Take on those of this process's variable, which ranks inherit then. The hard limits bound
    them. What is malformed is ignored."""
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
        limits = json.loads(os.environ.pop(SHELL_LIMITS, "{}"))
        os.umask(limits["umask"] & _OF_OTHERS)
        for kind in _KINDS:
            number, soft = getattr(resource, f"RLIMIT_{kind}"), int(limits[kind])
            hard = resource.getrlimit(number)[1]
            if hard != resource.RLIM_INFINITY:
                soft = hard if soft == resource.RLIM_INFINITY else min(soft, hard)
            resource.setrlimit(number, (soft, hard))
