"""Detect secrets in variables, addresses and names of files, and mask them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SECRET = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(^|_)KEY(_|$)|API_?KEY", re.I
)
# Up to the last @ before the path. Schemes are short: without a limit a long word takes minutes.
# (These are compiled when a text may have one: most commands see none.)
_CREDENTIALS = r"(?i)([a-z][a-z0-9+.-]{0,30}://)([^/\s]*)@"
# In Azure's schemes this is the container's name; anything else is a secret.
_AZURES = ("abfs://", "abfss://", "wasb://", "wasbs://")
_CONTAINER = r"\$?[a-z0-9](?:-?[a-z0-9]){0,62}"
# Query parameters that grant access.
_SIGNED = (
    r"(?i)([?&](?:sig|signature|x-amz-signature|x-amz-security-token|x-goog-signature|"
    r"(?:access_)?token|api_?key|password)=)[^&\s]+"
)
# Files with the credentials of their owner, by name; private keys of ssh have any name after `id_`,
# but no suffix, as data such as `id_map.json` has.
_SECRET_FOLDERS = frozenset({".aws", ".ssh", ".kube"})
_SECRET_NAME = (
    r"(?is)\.env.*|\.netrc|\.git-credentials|\.pypirc|.*\.(pem|key)"
    r"|id_(rsa|dsa|ecdsa|ed25519).*|id_[^.]*"
)
# The same for git, which has no pattern for a name without a suffix.
SECRET_FILES = (
    *(".env*", ".netrc", ".git-credentials", ".pypirc", "*.pem", "*.key"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".aws/**", ".ssh/**", ".kube/**"),
)
MASK = "********"
# The keys of conda's files, and of those of jobs, components and deployments.
_VARIABLES = ("variables", "environment_variables")
# The job property that lists the variables of `--env KEY`, whose values came from the shell.
PASSED_ON = "allranks.passed_on"


def looks_secret(name: str) -> bool:
    """Whether a variable of that name probably holds a secret."""
    return bool(_SECRET.search(name))


def holds_secrets(path: str) -> bool:
    """Whether a file is named as those with credentials are."""
    *folders, name = path.split("/")
    return bool(re.fullmatch(_SECRET_NAME, name)) or not _SECRET_FOLDERS.isdisjoint(folders)


def masked(
    variables: Mapping[str, Any], properties: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables with secret values masked: those that look like secrets, and those that the
    job's ``properties`` list as passed from the submitter's environment."""
    passed = ((properties or {}).get(PASSED_ON) or "").split(",")
    return {
        name: MASK if looks_secret(name) or name in passed else _shown(name, value)
        for name, value in variables.items()
    }


def _shown(name: str, raw: Any) -> str:
    value = str(raw)  # as it was written it may be a number
    # A proxy may be written without its scheme.
    if name.lower().endswith("_proxy") and "://" not in value and "@" in value:
        return f"{MASK}@{value.rpartition('@')[2]}"
    return without_credentials(value)


def without_credentials(text: str) -> str:
    """The text with users, passwords and signatures in addresses masked."""
    if "://" in text:
        text = re.sub(_CREDENTIALS, _without_user, text)
    return re.sub(_SIGNED, rf"\1{MASK}", text) if "=" in text else text


def _without_user(match: re.Match[str]) -> str:
    scheme, user = match.groups()
    if scheme.lower() in _AZURES and re.fullmatch(_CONTAINER, user):
        return match[0]
    return f"{scheme}{MASK}@"


def all_without_credentials(value: Any, properties: Mapping[str, str] | None = None) -> Any:
    """JSON data with ``without_credentials`` applied to every text and ``masked`` to all variables,
    with the ``properties`` of the job that they are of."""
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, Mapping):
        own = value.get("properties")
        properties = own if isinstance(own, Mapping) else properties
        return {
            key: masked(member, properties)
            if key in _VARIABLES and isinstance(member, Mapping)
            else all_without_credentials(member, properties)
            for key, member in value.items()
        }
    if isinstance(value, list | tuple):
        return [all_without_credentials(item, properties) for item in value]
    return value
