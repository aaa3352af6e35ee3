"""`azureml.core.authentication`: credentials that ask nobody; a server has tokens of its own."""

from __future__ import annotations

from typing import Any

from allranks.compat.azure.v1.published import PublishedPipeline
from allranks.sdk.connection import find_server


class AbstractAuthentication:
    """Takes any arguments."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def get_authentication_header(self) -> dict[str, str]:
        """The header for a published pipeline's endpoint. In a program that has none it opens
        nothing: there it may be for hosts of Azure's, which are to have no token of this server."""
        if not PublishedPipeline.is_used:
            return {"Authorization": "Bearer allranks"}
        with find_server.connect() as client:
            return {"Authorization": f"Bearer {client.token}"}


class InteractiveLoginAuthentication(AbstractAuthentication):
    """As above."""


class AzureCliAuthentication(AbstractAuthentication):
    """As above."""


class MsiAuthentication(AbstractAuthentication):
    """As above."""


class ServicePrincipalAuthentication(AbstractAuthentication):
    """As above."""


class TokenAuthentication(AbstractAuthentication):
    """As above."""

    def get_token(self, audience: object = None) -> str:
        """What it is given to get one with is not called."""
        return "allranks"


class Audience:
    """For whom a token is."""

    aml, arm = "aml", "arm"
