"""Parallel components: an entry script with ``init()`` and ``run(mini_batch)`` over many files."""

from __future__ import annotations

import json
import re
import shlex
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from allranks.errors import Problem, SpecError
from allranks.spec.fields.base import Part
from allranks.spec.fields.scalars import Count, Integer, PathText, Seconds, Text
from allranks.spec.job_keys import AnyEnvironment
from allranks.spec.job_parts import Resources, snake
from allranks.spec.pipeline.bindings import whole

# The program that runs the entry script. It is sent with the code.
RUNNER = "allranks_parallel_step.py"
# Azure ML's size of a mini-batch of files.
_FILES = 10


class ParallelTask(Part):
    """What runs on each mini-batch: ``run(mini_batch)`` of the entry script."""

    type: Annotated[Literal["run_function", "function"], BeforeValidator(snake)] = "run_function"
    code: PathText | None = None
    snapshot: Text | None = None
    entry_script: Text
    program_arguments: Text | None = None
    environment: AnyEnvironment | None = None
    append_row_to: Text | None = None


class RetrySettings(Part):
    """Of a mini-batch: ``timeout`` in seconds, and how often it is tried again."""

    timeout: Seconds = 60.0
    max_retries: Annotated[Integer, Field(ge=0)] = 3


class ParallelKeys(Part):
    """The keys that say how a parallel step works."""

    task: ParallelTask
    input_data: Text
    mini_batch_size: Count | Text = _FILES
    mini_batch_error_threshold: Annotated[Integer, Field(ge=-1)] = -1
    max_concurrency_per_instance: Count = 1
    retry_settings: RetrySettings = Field(default_factory=RetrySettings)
    logging_level: Text | None = None
    partition_keys: list[Text] | None = None
    error_threshold: Integer | None = None
    resources: Resources = Field(default_factory=Resources)


def command_job(keys: ParallelKeys) -> dict[str, Any]:
    """The keys of the command job that runs a parallel step. Raises SpecError."""
    task = keys.task
    data = whole(keys.input_data) or ""
    if not data.startswith("inputs."):
        hint = "write `input_data: ${{inputs.NAME}}`"
        problem = Problem(f"`{keys.input_data}` is not an input", "input_data", hint=hint)
        raise SpecError(problem)
    output = whole(task.append_row_to) or ""
    if task.append_row_to and not output.startswith("outputs."):
        hint = "write `append_row_to: ${{outputs.NAME}}`"
        message = f"`{task.append_row_to}` is not an output"
        raise SpecError(Problem(message, "task.append_row_to", hint=hint))
    size = str(keys.mini_batch_size)
    if re.fullmatch(r"[1-9]\d*([kmg]b)?", size.lower()) is None:
        hint = "give the number of files in a mini-batch, or their size as in `10kb`"
        problem = Problem(f"`{size}` is not a number of files", "mini_batch_size", hint=hint)
        raise SpecError(problem)
    options = {
        "entry_script": task.entry_script,
        "mini_batch_size": size,
        "mini_batch_error_threshold": keys.mini_batch_error_threshold,
        **keys.retry_settings.model_dump(),
    }
    words = [
        "python",
        RUNNER,
        shlex.quote(json.dumps(options)),
        f'"${{{{{data}}}}}"',
        f'"${{{{{output}}}}}"' if output else '""',
        "--",
        *([task.program_arguments] if task.program_arguments else []),
    ]
    dumped = task.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    own = ("code", "snapshot", "environment")
    made: dict[str, Any] = {key: dumped[key] for key in own if key in dumped}
    resources = keys.resources.model_dump(mode="json", exclude_defaults=True)
    count = keys.max_concurrency_per_instance
    return {
        **made,
        "command": " ".join(words),
        "distribution": {"type": "pytorch", "process_count_per_instance": count},
        **({"resources": resources} if resources else {}),
    }
