"""Credentials of ``azure.identity`` that ask nobody: a server of allranks has tokens of its own."""

from __future__ import annotations

import time
from typing import Any, NamedTuple


class AccessToken(NamedTuple):
    """``expires_on`` in seconds since the epoch."""

    token: str
    expires_on: int


class DefaultAzureCredential:
    """Takes any arguments; its tokens open nothing of Azure's."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def get_token(self, *_: str, **__: Any) -> AccessToken:
        """A token that is valid for an hour, and nowhere."""
        return AccessToken("allranks", int(time.time()) + 3600)

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> DefaultAzureCredential:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AzureCliCredential(DefaultAzureCredential):
    """As above."""


class ChainedTokenCredential(DefaultAzureCredential):
    """As above."""


class ClientSecretCredential(DefaultAzureCredential):
    """As above."""


class DeviceCodeCredential(DefaultAzureCredential):
    """As above."""


class EnvironmentCredential(DefaultAzureCredential):
    """As above."""


class InteractiveBrowserCredential(DefaultAzureCredential):
    """As above."""


class ManagedIdentityCredential(DefaultAzureCredential):
    """As above."""


class AzureAuthorityHosts:
    """Hosts that sign people in at Azure; no credential here asks one."""

    AZURE_PUBLIC_CLOUD = "login.microsoftonline.com"
    AZURE_CHINA = "login.chinacloudapi.cn"
    AZURE_GOVERNMENT = "login.microsoftonline.us"
