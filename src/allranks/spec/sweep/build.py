"""Make a sweep of a command job, with the keywords of azure.ai.ml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from allranks.spec.fields.base import plain
from allranks.spec.job import CommandJob
from allranks.spec.job_keys import JobKeys
from allranks.spec.sweep.job import LATER, SweepJob, Trial, default_trials

_LIMITS = ("max_total_trials", "max_concurrent_trials", "timeout", "trial_timeout")
# Keys of a command job that a sweep has at its top level.
_SHARED = {*JobKeys.model_fields, "services"} - {"schema_", "name"}


def build_sweep(
    job: CommandJob,
    space: Mapping[str, Any],
    primary_metric: str,
    goal: str,
    keywords: Mapping[str, Any],
) -> SweepJob:
    """See ``CommandJob.sweep``."""
    options = dict(keywords)
    data = job.to_dict()
    # The command is written for inputs; a parameter is no input of the sweep.
    data["command"] = with_parameters(data["command"], space)
    limits = {key: options.pop(key) for key in _LIMITS if options.get(key) is not None}
    if (own := job.limits.timeout) is not None:
        limits.setdefault("trial_timeout", own)
    policy = options.pop("early_termination_policy", None)
    sweep: dict[str, Any] = {
        **{key: data[key] for key in _SHARED if key in data},
        "trial": {key: data[key] for key in Trial.model_fields if key in data},
        "search_space": {**space, **(options.pop("search_space", None) or {})},
        "objective": {"goal": goal, "primary_metric": primary_metric},
        **{key: value for key, value in options.items() if value is not None},
    }
    if policy is not None:
        sweep["early_termination"] = policy
    sweep["search_space"] = {name: plain(value) for name, value in sweep["search_space"].items()}
    if "max_total_trials" not in limits and (most := default_trials(sweep)) is not None:
        limits["max_total_trials"] = most
    limits.setdefault("max_total_trials", LATER)
    made = SweepJob.parse({**{key: plain(value) for key, value in sweep.items()}, "limits": limits})
    return made.based(job.base) if job.base is not None else made


def with_parameters(command: str, names: Mapping[str, Any]) -> str:
    """The command with references to these inputs changed into parameters of the search space."""
    for name in names:
        pattern = rf"(\$\{{\{{\s*)inputs\.{re.escape(name)}(\s*\}}\}})"
        command = re.sub(pattern, rf"\g<1>search_space.{name}\g<2>", command)
    return command
