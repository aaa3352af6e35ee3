"""Which variables hold secrets, and what is shown of them instead."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECRET = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(^|_)KEY(_|$)|API_?KEY", re.I
)
MASK = "********"
# The property of a job that names the variables of `--env KEY`, whose values nobody typed.
PASSED_ON = "allranks.passed_on"


def looks_secret(name: str) -> bool:
    """Whether a variable of that name is one not to show."""
    return bool(_SECRET.search(name))


def masked(
    variables: Mapping[str, str], properties: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables with the values of secrets replaced: those that look like one, and those that
    the job's ``properties`` name as passed on from their submitter's own environment."""
    passed = ((properties or {}).get(PASSED_ON) or "").split(",")
    return {
        name: MASK if looks_secret(name) or name in passed else value
        for name, value in variables.items()
    }
