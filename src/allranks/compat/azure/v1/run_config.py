"""`azureml.core.ScriptRunConfig`, `azureml.core.runconfig`: jobs to submit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.compat.azure.v1.arguments import REFERENCE, Bindable, Bound, command_of
from allranks.compat.azure.v1.compute import LOCAL, is_spot
from allranks.compat.azure.v1.environment import Environment
from allranks.compat.azure.v1.exceptions import UserErrorException, no_more
from allranks.compat.azure.v1.model import used_models
from allranks.spec.fields.identifiers import identifier

if TYPE_CHECKING:
    from allranks.api.common import Document


class MpiConfiguration:
    """``process_count_per_node`` processes on each of ``node_count`` nodes, started by mpirun."""

    def __init__(self, process_count_per_node: int = 1, node_count: int = 1) -> None:
        self.process_count_per_node, self.node_count = process_count_per_node, node_count

    def job(self) -> tuple[int, Document | None]:
        """The number of nodes and the distribution of a job file."""
        if self.node_count * self.process_count_per_node == 1:
            return 1, None
        per_node = self.process_count_per_node
        return self.node_count, {"type": "mpi", "process_count_per_instance": per_node}


class PyTorchConfiguration:
    """``process_count`` processes on ``node_count`` nodes; one on each if left out."""

    def __init__(
        self,
        communication_backend: str = "Nccl",
        process_count: int | None = None,
        node_count: int = 1,
    ) -> None:
        self.communication_backend, self.node_count = communication_backend, node_count
        self.process_count = process_count or node_count

    def job(self) -> tuple[int, Document | None]:
        """As above. Raises UserErrorException."""
        per_node, rest = divmod(self.process_count, self.node_count)
        if rest or not per_node:
            message = f"{self.process_count} processes cannot be shared by {self.node_count} nodes"
            raise UserErrorException(message, hint="process_count must be a multiple of node_count")
        return self.node_count, {"type": "pytorch", "process_count_per_instance": per_node}


class TensorflowConfiguration:
    """Workers, one on each node, and parameter servers."""

    def __init__(self, worker_count: int = 1, parameter_server_count: int = 0) -> None:
        self.worker_count, self.parameter_server_count = worker_count, parameter_server_count

    def job(self) -> tuple[int, Document | None]:
        """As above."""
        distribution = {"type": "tensorflow", "worker_count": self.worker_count}
        if self.parameter_server_count:
            distribution["parameter_server_count"] = self.parameter_server_count
        return self.worker_count, distribution


class ParallelTaskConfiguration:
    """Not there: see ``job``."""

    def __init__(self, *_: Any, **__: Any) -> None:
        hint = "use MpiConfiguration or PyTorchConfiguration"
        raise UserErrorException("ParallelTaskConfiguration is not there in allranks", hint=hint)


class DockerConfiguration:
    """``use_docker`` has no effect: a compute decides whether it runs containers."""

    def __init__(
        self,
        use_docker: bool = False,
        shared_volumes: bool = True,
        arguments: Sequence[str] | None = None,
        shm_size: str | None = None,
    ) -> None:
        self.use_docker, self.shared_volumes = use_docker, shared_volumes
        self.arguments, self.shm_size = list(arguments or ()), shm_size


class RunConfiguration:
    """Where and in what a script runs. Its attributes may be set."""

    def __init__(
        self,
        script: str | None = None,
        arguments: Iterable[Any] | None = None,
        framework: str | None = None,
        communicator: str | None = None,
        conda_dependencies: Any = None,
        **more: Any,
    ) -> None:
        no_more("RunConfiguration", more, ("_history_enabled", "_path", "_name"))
        self.script, self.arguments = script, list(arguments or ())
        self.framework, self.communicator = framework or "Python", communicator
        self.target: Any = "local"
        self.environment = Environment("default")
        if conda_dependencies is not None:
            self.environment.python.conda_dependencies = conda_dependencies
        self.environment_variables: dict[str, str] = {}
        self.node_count = 1
        self.mpi = MpiConfiguration()
        self.pytorch = PyTorchConfiguration()
        self.tensorflow = TensorflowConfiguration()
        self.docker = DockerConfiguration()
        self.data_references: Document = {}
        self.data: Document = {}
        self.output_data: Document = {}
        self.max_run_duration_seconds: float | None = None
        self.auto_prepare_environment = True
        self.credential_passthrough = False

    def distribution(self) -> Any:
        """The configuration that ``framework`` and ``communicator`` name, or None."""
        if self.framework.lower() == "tensorflow" and self.communicator in (
            "ParameterServer",
            "Collective",
        ):
            return self.tensorflow
        if self.framework.lower() == "pytorch" and self.communicator in ("Nccl", "Gloo"):
            return self.pytorch
        if self.communicator in ("Mpi", "IntelMpi", "OpenMpi") or self.node_count > 1:
            return MpiConfiguration(self.mpi.process_count_per_node, self.node_count)
        return None


class ScriptRunConfig:
    """A script, or a command, to run. ``arguments`` may hold data and outputs."""

    run_config: RunConfiguration

    def __init__(
        self,
        source_directory: str | os.PathLike[str] | None = None,
        script: str | None = None,
        arguments: Sequence[Any] | None = None,
        run_config: RunConfiguration | None = None,
        _telemetry_values: object = None,
        compute_target: Any = None,
        environment: Environment | None = None,
        distributed_job_config: Any = None,
        resume_from: Any = None,
        max_run_duration_seconds: float | None = None,
        command: Sequence[Any] | str | None = None,
        docker_runtime_config: DockerConfiguration | None = None,
    ) -> None:
        if script is not None and command is not None:
            raise UserErrorException("`script` and `command` exclude each other", hint="leave one")
        config = run_config or RunConfiguration()
        self.source_directory = os.fspath(source_directory or ".")
        self.script = script or config.script
        self.arguments = list(arguments) if arguments is not None else list(config.arguments)
        self.command, self.run_config = command, config
        self.distributed_job_config = distributed_job_config
        self.resume_from = resume_from
        if compute_target is not None:
            config.target = compute_target
        if environment is not None:
            config.environment = environment
        if docker_runtime_config is not None:
            config.docker = docker_runtime_config
        if max_run_duration_seconds is not None:
            config.max_run_duration_seconds = max_run_duration_seconds

    def job(self, bound: Bound | None = None) -> Document:
        """The command job, as a job file has it. Raises UserErrorException."""
        bound = bound or Bound()
        if self.command is not None:
            line = command_of(self.command, bound, quoted=False)
        elif self.script is not None:
            line = command_of(["python", self.script, *self.arguments], bound)
        else:
            raise UserErrorException("nothing to run", hint="give `script` or `command`")
        config = self.run_config
        for name, value in {**config.data_references, **config.data, **config.output_data}.items():
            if isinstance(value, Bindable):
                value.bind(bound)
            else:
                bound.input(name, value)
        if self.script is not None:
            script = Path(self.source_directory, self.script)
            for name, value in used_models(script, self.arguments).items():
                bound.input(name, value)
        job: Document = {
            "type": "command",
            "command": line,
            "code": self.source_directory,
            "environment": config.environment.as_spec(),
        }
        variables = {
            **{
                REFERENCE[1:] + e: f"${{{{inputs.{identifier(e)}}}}}"
                for e in config.data_references
            },
            **config.environment.environment_variables,
            **config.environment_variables,
        }
        if variables:
            job["environment_variables"] = {key: str(each) for key, each in variables.items()}
        if (target := target_name(config.target)) is not None:
            job["compute"] = target
        if is_spot(config.target):
            job["queue_settings"] = {"job_tier": "spot"}
        distributed = self.distributed_job_config or config.distribution()
        nodes, distribution = (1, None) if distributed is None else distributed.job()
        resources: Document = {"instance_count": nodes} if nodes > 1 else {}
        shm = config.docker.shm_size or config.environment.docker.shm_size
        job["resources"] = resources | ({"shm_size": shm} if shm else {})
        if distribution is not None:
            job["distribution"] = distribution
        if config.max_run_duration_seconds:
            job["limits"] = {"timeout": config.max_run_duration_seconds}
        if self.resume_from is not None:
            bound.input("resume_from", self.resume_from.data())
        return job | _parts(bound)


def _parts(bound: Bound) -> Document:
    parts = {"inputs": bound.inputs, "outputs": bound.outputs}
    return {key: each for key, each in parts.items() if each}


def target_name(target: Any) -> str | None:
    """The name of a compute; None for this machine's default one."""
    name = getattr(target, "name", target)
    return None if name is None or str(name) in LOCAL else str(name)


def parameter(name: str) -> str:
    """A hyperparameter such as `--learning-rate` as the name of one."""
    return identifier(name)


class Data:
    """`azureml.core.runconfig.Data`: an input as the attributes of an older SDK."""

    def __init__(self, *_: Any, **__: Any) -> None:
        hint = "pass the dataset as an argument: dataset.as_named_input('x').as_mount()"
        raise UserErrorException("runconfig.Data is not there in allranks", hint=hint)


DataReferenceConfiguration = Data
