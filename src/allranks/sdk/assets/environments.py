"""Named environments, for Python programs."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.api import routes
from allranks.sdk.connection import find_server
from allranks.sdk.connection.references import reference
from allranks.sdk.submit.environment_files import inlined
from allranks.spec.job_parts import Environment

if TYPE_CHECKING:
    from allranks.api.assets import EnvironmentAnswer

# Keys that the server adds.
_SERVER_KEYS = ("labels", "created_at", "curated", "created")


class Environments:
    """Operations on environments. All raise AllranksError with a hint."""

    def create_or_update(
        self, environment: Environment, *, base: str | Path | None = None
    ) -> Environment:
        """Create a version; its number is the next one if not set.

        Creating the same version again changes nothing; another content raises Conflict. Files it
        refers to are read now, relative to ``base`` (the current folder).
        """
        data = environment.model_dump(mode="json", exclude_defaults=True)
        body = inlined(data, Path(base or ".").absolute())
        return _made(find_server.ask(routes.create_environment, body=body))

    def get(self, name: str, version: str | None = None, label: str = "latest") -> Environment:
        """A version, by number or label."""
        return _made(find_server.ask(routes.show_environment, reference(name, version, label)))

    def list(self, name: str | None = None) -> builtins.list[Environment]:
        """The newest version of every asset, or all versions of one."""
        return [_made(each) for each in find_server.ask(routes.list_environments, name=name)]


def _made(answer: EnvironmentAnswer) -> Environment:
    return Environment.model_validate({k: v for k, v in answer.items() if k not in _SERVER_KEYS})
