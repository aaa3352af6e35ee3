"""`ParallelRunConfig`, `ParallelRunStep`: an entry script that gets mini-batches of a dataset."""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allranks.compat.azure.v1.arguments import Bindable
from allranks.compat.azure.v1.data.datasets import DatasetConsumptionConfig
from allranks.compat.azure.v1.exceptions import UserErrorException, no_more, not_there
from allranks.compat.azure.v1.pipeline import PipelineParameter, Step
from allranks.compat.azure.v1.run_config import PyTorchConfiguration, ScriptRunConfig
from allranks.spec.fields.identifiers import identifier

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.compat.azure.v1.environment import Environment

_RUNNER = "allranks_parallel_step"
# Azure's sizes of a mini-batch where the program gives none.
_FILES, _BYTES = "10", "1MB"


class ParallelRunConfig:
    """How an entry script runs. Sizes, counts and times may be PipelineParameters."""

    def __init__(
        self,
        environment: Environment | None = None,
        entry_script: str = "",
        error_threshold: Any = -1,
        output_action: str = "append_row",
        compute_target: Any = None,
        node_count: Any = 1,
        process_count_per_node: Any = None,
        mini_batch_size: Any = None,
        source_directory: str | None = None,
        description: str | None = None,
        logging_level: str = "INFO",
        run_invocation_timeout: Any = 60,
        run_max_try: Any = 3,
        append_row_file_name: str | None = None,
        partition_keys: Sequence[str] | None = None,
        environment_variables: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        no_more("ParallelRunConfig", more)
        if output_action not in ("append_row", "summary_only"):
            hint = "give append_row or summary_only"
            raise UserErrorException(f"{output_action!r} is no output_action", hint=hint)
        self.environment, self.entry_script = environment, entry_script
        self.error_threshold, self.output_action = error_threshold, output_action
        self.compute_target, self.node_count = compute_target, node_count
        self.process_count_per_node = process_count_per_node
        self.mini_batch_size, self.source_directory = mini_batch_size, source_directory
        self.description, self.logging_level = description, logging_level
        self.run_invocation_timeout, self.run_max_try = run_invocation_timeout, run_max_try
        self.append_row_file_name = append_row_file_name or "parallel_run_step.txt"
        self.partition_keys = list(partition_keys or ())
        self.environment_variables = dict(environment_variables or {})


class ParallelRunStep(Step):
    """An entry script with ``init()`` and ``run(mini_batch)``: a list of files, or a data frame of
    a tabular dataset. ``arguments`` are the script's."""

    def __init__(
        self,
        name: str,
        parallel_run_config: ParallelRunConfig,
        inputs: Sequence[Any],
        output: Any = None,
        side_inputs: Sequence[Any] | None = None,
        arguments: Sequence[Any] | None = None,
        allow_reuse: bool = True,
        **more: Any,
    ) -> None:
        no_more("ParallelRunStep", more, ("models", "tags", "properties", "version"))
        if len(inputs) != 1:
            not_there("a ParallelRunStep of several inputs", "give each a step of its own")
        how = self._how = parallel_run_config
        # No argument of the script, and yet the step's: what it reads and writes.
        words = [inputs[0], *([] if output is None else [output]), *(arguments or ())]
        config = ScriptRunConfig(
            how.source_directory,
            command=words,
            compute_target=how.compute_target,
            environment=how.environment,
        )
        config.script = how.entry_script
        config.arguments = list(arguments or ())
        config.run_config.environment_variables = how.environment_variables
        self._input, self._output = inputs[0], output
        live = (how.mini_batch_size, how.error_threshold, how.run_invocation_timeout)
        params = {value.name: value for value in live if isinstance(value, PipelineParameter)}
        several = [*inputs, *(side_inputs or ())]
        outputs = [] if output is None else [output]
        super().__init__(name, config, several, outputs, allow_reuse, params)

    def settings(self) -> list[PipelineParameter]:
        how = self._how
        counts = (how.node_count, how.process_count_per_node, how.run_max_try)
        return [value for value in counts if isinstance(value, PipelineParameter)]

    def _configured(self, values: Mapping[str, Any]) -> ScriptRunConfig:
        how, config = self._how, copy.copy(self._config)

        def number(value: Any) -> int:
            is_parameter = isinstance(value, PipelineParameter)
            return int(values[identifier(value.name)] if is_parameter else value or 1)

        dataset = _dataset(self._input)
        table = getattr(dataset, "table", None)
        options: Document = {
            "entry_script": how.entry_script,
            "mini_batch_size": _text(how.mini_batch_size or (_BYTES if table else _FILES)),
            "mini_batch_error_threshold": -1,
            "error_threshold": _text(how.error_threshold),
            "timeout": _text(how.run_invocation_timeout),
            "max_retries": number(how.run_max_try) - 1,
            "logging_level": how.logging_level,
            "file_name": how.append_row_file_name if how.output_action == "append_row" else None,
            "table": table,
        }
        if how.partition_keys:
            if not hasattr(dataset, "partition"):
                not_there("partition_keys of what a step has written", "group rows in the script")
            options["partition"] = dataset.partition(how.partition_keys)
        data, *words = map(self._argument, self._words)
        output = '""' if self._output is None else words.pop(0)
        words = [word if isinstance(word, Bindable) else shlex.quote(str(word)) for word in words]
        begin = ["python", "-m", _RUNNER, shlex.quote(json.dumps(options))]
        config.command = [*begin, data, output, "--", *words]
        processes = number(how.process_count_per_node)
        nodes = number(how.node_count)
        config.distributed_job_config = PyTorchConfiguration("Gloo", processes * nodes, nodes)
        return config


def _dataset(value: Any) -> Any:
    """The dataset that an input consumes; of a parameter, its default value."""
    if isinstance(value, DatasetConsumptionConfig):
        return _dataset(value.dataset)
    return value.default_value if isinstance(value, PipelineParameter) else value


def _text(value: Any) -> str:
    """A setting that `submit` may change: the expression of a parameter's value."""
    if isinstance(value, PipelineParameter):
        return f"${{{{inputs.{identifier(value.name)}}}}}"
    return str(value)
