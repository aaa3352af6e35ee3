"""Which variables hold secrets, and what is shown of them instead."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECRET = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(^|_)KEY(_|$)|API_?KEY", re.I
)
MASK = "********"


def looks_secret(name: str) -> bool:
    """Whether a variable of that name is one not to show."""
    return bool(_SECRET.search(name))


def masked(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables with the values of secrets replaced."""
    return {name: MASK if looks_secret(name) else value for name, value in variables.items()}
