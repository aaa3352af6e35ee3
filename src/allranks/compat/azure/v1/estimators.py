"""`azureml.train.estimator` and `azureml.train.dnn`: what came before ScriptRunConfig."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allranks.compat.azure.v1.arguments import Bound, of_params
from allranks.compat.azure.v1.environment import Environment
from allranks.compat.azure.v1.exceptions import no_more
from allranks.compat.azure.v1.run_config import (
    MpiConfiguration,
    ScriptRunConfig,
    TensorflowConfiguration,
)

if TYPE_CHECKING:
    from allranks.api.common import Document

# Arguments that change nothing here.
_IDLE = ("vm_size", "use_gpu", "use_docker", "custom_docker_image", "user_managed")
_IDLE_ENDINGS = ("framework_version", "_enable_optimized_mode", "_disable_validation", "shm_size")


class Mpi:
    """`azureml.train.dnn.Mpi`, of older estimators."""

    def __init__(self, process_count_per_node: int = 1) -> None:
        self.process_count_per_node = process_count_per_node


class Nccl:
    """As above: the processes meet by NCCL."""


class Gloo:
    """As above: by gloo."""


class ParameterServer:
    """As above: workers and parameter servers."""

    def __init__(self, worker_count: int = 1, parameter_server_count: int = 1) -> None:
        self.worker_count, self.parameter_server_count = worker_count, parameter_server_count


class Estimator:
    """A script with its packages and nodes. Use ScriptRunConfig for new programs."""

    packages: tuple[str, ...] = ()

    def __init__(
        self,
        source_directory: str = ".",
        *,
        compute_target: Any = None,
        entry_script: str | None = None,
        script_params: Mapping[str, Any] | None = None,
        node_count: int = 1,
        process_count_per_node: int = 1,
        distributed_backend: str | None = None,
        distributed_training: Any = None,
        conda_packages: Sequence[str] | None = None,
        pip_packages: Sequence[str] | None = None,
        environment_definition: Environment | None = None,
        environment_variables: Mapping[str, str] | None = None,
        inputs: Sequence[Any] | None = None,
        max_run_duration_seconds: float | None = None,
        framework_version: str | None = None,
        vm_priority: str | None = None,
        **more: Any,
    ) -> None:
        kind = type(self).__name__
        message = f"{kind} estimators are deprecated: use ScriptRunConfig"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        no_more(kind, more, (*_IDLE, *_IDLE_ENDINGS))
        environment = environment_definition or Environment(kind.lower())
        own = environment.python.conda_dependencies
        for package in conda_packages or ():
            own.add_conda_package(package)
        named = {each.partition("=")[0] for each in pip_packages or ()}
        for package in (*(pip_packages or ()), *(p for p in self.packages if p not in named)):
            own.add_pip_package(package)
        self.script_run_config = ScriptRunConfig(
            source_directory,
            entry_script,
            of_params(script_params),
            compute_target=compute_target,
            environment=environment,
            distributed_job_config=_distribution(
                distributed_training or distributed_backend, node_count, process_count_per_node
            ),
            max_run_duration_seconds=max_run_duration_seconds,
        )
        self.script_run_config.run_config.environment_variables = dict(environment_variables or {})
        self.inputs, self._is_spot = list(inputs or ()), vm_priority == "lowpriority"

    @property
    def run_config(self) -> Any:
        return self.script_run_config.run_config

    def job(self) -> Document:
        """The command job, as a job file has it."""
        bound = Bound()
        for each in self.inputs:
            each.bind(bound)
        job = self.script_run_config.job(bound)
        return job | ({"queue_settings": {"job_tier": "spot"}} if self._is_spot else {})


class PyTorch(Estimator):
    """With PyTorch."""

    packages = ("torch",)


class TensorFlow(Estimator):
    """With TensorFlow."""

    packages = ("tensorflow-cpu",)


class SKLearn(Estimator):
    """With scikit-learn."""

    packages = ("scikit-learn",)


def _distribution(kind: Any, nodes: int, processes: int) -> Any:
    if isinstance(kind, ParameterServer):
        return TensorflowConfiguration(kind.worker_count, kind.parameter_server_count)
    if isinstance(kind, Mpi):
        return MpiConfiguration(kind.process_count_per_node, nodes)
    if kind == "ps":
        return TensorflowConfiguration(nodes, 1)
    if kind is None and nodes * processes == 1:
        return None
    return MpiConfiguration(processes, nodes)
