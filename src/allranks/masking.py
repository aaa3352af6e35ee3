"""Which variables hold secrets, and what is shown of them instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SECRET = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(^|_)KEY(_|$)|API_?KEY", re.I
)
# Up to the last @ before the path begins.
_CREDENTIALS = re.compile(r"([a-z][a-z0-9+.-]*://)([^/\s]*)@", re.I)
# In Azure's own schemes the name of a container stands there: what cannot be one is still a secret.
_AZURES = ("abfs://", "abfss://", "wasb://", "wasbs://")
_CONTAINER = re.compile(r"\$?[a-z0-9](?:-?[a-z0-9]){0,62}")
# What opens an address to whoever has it.
_SIGNED = re.compile(
    r"([?&](?:sig|signature|x-amz-signature|x-amz-security-token|x-goog-signature|"
    r"(?:access_)?token|api_?key|password)=)[^&\s]+",
    re.I,
)
_PROXY = re.compile(r"_proxy$", re.I)
MASK = "********"
# The property of a job that names the variables of `--env KEY`, whose values nobody typed.
PASSED_ON = "allranks.passed_on"


def looks_secret(name: str) -> bool:
    """Whether a variable of that name is one not to show."""
    return bool(_SECRET.search(name))


def masked(
    variables: Mapping[str, Any], properties: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables with the values of secrets replaced: those that look like one, and those that
    the job's ``properties`` name as passed on from their submitter's own environment."""
    passed = ((properties or {}).get(PASSED_ON) or "").split(",")
    return {
        name: MASK if looks_secret(name) or name in passed else _shown(name, value)
        for name, value in variables.items()
    }


def _shown(name: str, given: Any) -> str:
    value = str(given)  # as it was written it may be a number
    # A proxy may be written without its scheme.
    if _PROXY.search(name) and "://" not in value and "@" in value:
        return f"{MASK}@{value.rpartition('@')[2]}"
    return without_credentials(value)


def without_credentials(text: str) -> str:
    """The text with who and by what password masked in the addresses it holds, and signatures."""
    return _SIGNED.sub(rf"\1{MASK}", _CREDENTIALS.sub(_without_user, text))


def _without_user(found: re.Match[str]) -> str:
    scheme, user = found.groups()
    if scheme.lower() in _AZURES and _CONTAINER.fullmatch(user):
        return found[0]
    return f"{scheme}{MASK}@"


def all_without_credentials(value: Any) -> Any:
    """Plain JSON with every text in it as ``without_credentials`` has it, and what is called
    `variables` as ``masked``."""
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, Mapping):
        return {
            key: masked(each)
            if key == "variables" and isinstance(each, Mapping)
            else all_without_credentials(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [all_without_credentials(each) for each in value]
    return value
