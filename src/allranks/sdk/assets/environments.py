"""Environments that have names, for Python programs."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import version_path, versions_path
from allranks.sdk.submit.environment_files import inlined
from allranks.spec.job_parts import Environment

PATH = "/api/v1/environments"
# What the server tells beside the environment itself.
_TOLD = ("labels", "created_at", "curated", "created")


class Environments:
    """The operations on environments; all raise AllranksError, with a hint."""

    def create_or_update(
        self, environment: Environment, *, base: str | Path | None = None
    ) -> Environment:
        """Add a version, the next number unless it has one; the very same one twice is one. The
        files it names begin at ``base`` (the current folder) and are read now.

        A version that is there and is another is a Conflict: a version never changes.
        """
        data = environment.model_dump(mode="json", exclude_defaults=True)
        return _made(find_server.ask("POST", PATH, inlined(data, Path(base or ".").absolute())))

    def get(self, name: str, version: str | None = None, label: str = "latest") -> Environment:
        """A version, or the one that has the label."""
        return _made(find_server.ask("GET", version_path("environments", name, version, label)))

    def list(self, name: str | None = None) -> builtins.list[Environment]:
        """The newest version of each, or all versions of one."""
        return [_made(each) for each in find_server.ask("GET", versions_path("environments", name))]


def _made(told: dict[str, Any]) -> Environment:
    return Environment.model_validate({k: v for k, v in told.items() if k not in _TOLD})
