"""`HyperDriveStep`: a sweep as a step of a pipeline."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from allranks.compat.azure.v1.arguments import Bound
from allranks.compat.azure.v1.hyperdrive import HyperDriveConfig
from allranks.compat.azure.v1.pipeline import PipelineData, Step, is_metrics
from allranks.compat.azure.v1.run import METRICS_OUTPUT
from allranks.compat.azure.v1.run_config import ScriptRunConfig
from allranks.spec.fields.identifiers import identifier

if TYPE_CHECKING:
    from allranks.api.common import Document

_FIRST_RANK = '[ "${RANK:-${OMPI_COMM_WORLD_RANK:-0}}" = 0 ]'


class HyperDriveStep(Step):
    """A sweep. Its outputs are those of the best trial; the metrics of all trials are one of the
    pipeline's."""

    def __init__(
        self,
        name: str,
        hyperdrive_config: HyperDriveConfig,
        estimator_entry_script_arguments: Sequence[Any] | None = None,
        inputs: Sequence[Any] | None = None,
        outputs: Sequence[Any] | None = None,
        metrics_output: PipelineData | None = None,
        allow_reuse: bool = True,
        version: str | None = None,
    ) -> None:
        self._sweep = hyperdrive_config
        config = hyperdrive_config.script()
        if estimator_entry_script_arguments is not None:
            config.arguments = list(estimator_entry_script_arguments)
        produced = list(outputs or ())
        self._metrics = [data for data in produced if is_metrics(data)]
        self._metrics += [] if metrics_output is None else [metrics_output]
        files = [data for data in produced if not is_metrics(data)]
        read = [*(inputs or ()), *getattr(hyperdrive_config.run_config, "inputs", ())]
        super().__init__(name, config, read, files, allow_reuse)
        for data in self._metrics:
            data.producer = self

    def job_of(self, config: ScriptRunConfig, bound: Bound) -> Document:
        sweep = self._sweep.job(bound, config)
        for data in self._outputs:
            if training := getattr(data, "training", None):
                # The trial leaves its model where Azure takes it from.
                port = f"${{{{outputs.{identifier(data.name)}}}}}"
                copy = f'cp -rT {shlex.quote(training.model_file)} "{port}"'
                sweep["trial"]["command"] += f" && if {_FIRST_RANK}; then {copy}; fi"
        if self._metrics:
            names = [data.of_pipeline or data.name for data in self._metrics]
            sweep["tags"] = {METRICS_OUTPUT: " ".join(names)}
        return sweep
