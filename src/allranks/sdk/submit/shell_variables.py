"""Variables of the submitter's shell that ALLRANKS_PASS_ENV names, for the jobs of a shell or a
program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from allranks.core.job.shell_variables import passed_by_default
from allranks.masking import PASSED_ON

if TYPE_CHECKING:
    from allranks.api.common import Document


def with_shell_variables(spec: Document) -> Document:
    """Add the variables that ALLRANKS_PASS_ENV names, without overriding the job's own.

    Their values are masked in the record, as those of ``--env KEY`` are.
    """
    if spec.get("type") == "pipeline":
        return spec
    if isinstance(trial := spec.get("trial"), Mapping):
        inner = with_shell_variables({**trial, "properties": spec.get("properties")})
        properties = inner.pop("properties")
        return {**spec, "trial": inner, **({"properties": properties} if properties else {})}
    passed = passed_by_default(os.environ.get("ALLRANKS_PASS_ENV", ""), os.environ)
    own = spec.get("environment_variables") or {}
    new = [name for name in passed if name not in own]
    if not new or not isinstance(own, Mapping):
        return spec
    properties = spec.get("properties") or {}
    masked = [name for name in str(properties.get(PASSED_ON) or "").split(",") if name]
    return {
        **spec,
        "environment_variables": {**passed, **own},
        "properties": {**properties, PASSED_ON: ",".join([*masked, *new])},
    }
