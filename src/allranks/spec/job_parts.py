"""The parts of a job: inputs, outputs, distributions, environment, resources, limits.

Names and defaults are Azure ML v2's. Unknown keys are errors, except in ``distribution``, because
Azure's own example has one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from allranks.spec.fields.base import Asset, Part
from allranks.spec.fields.metric_formats import BUILTIN, wrong
from allranks.spec.fields.scalars import (
    Count,
    Free,
    Integer,
    PathText,
    Port,
    Seconds,
    Several,
    Text,
    Texts,
    Wrong,
    matching,
)

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def snake(value: object) -> object:
    """Normalize ``PyTorch``, ``UriFolder`` and ``ro-mount`` to the schema's spelling."""
    if not isinstance(value, str):
        return value
    snaked = _WORD_START.sub("_", value.strip()).replace("-", "_").lower()
    return _JOINED.get(snaked, snaked)


# Names with other capitals, and words written together.
_JOINED = {
    "py_torch": "pytorch",
    "tensor_flow": "tensorflow",
    "deep_speed": "deepspeed",
    "ml_table": "mltable",
    "mlflowmodel": "mlflow_model",
    "ml_flow_model": "mlflow_model",
    "custommodel": "custom_model",
    "urifile": "uri_file",
    "urifolder": "uri_folder",
    "path": "uri_folder",  # Azure's older name for data of either kind
    "romount": "ro_mount",
    "rwmount": "rw_mount",
    "readonlymount": "ro_mount",
    "read_only_mount": "ro_mount",
    "readwritemount": "rw_mount",
    "read_write_mount": "rw_mount",
    "nodelost": "node_lost",
    "tritonmodel": "triton_model",
    "evalmount": "eval_mount",
    "evaldownload": "eval_download",
    "managedidentity": "managed",
    "managed_identity": "managed",
    "useridentity": "user_identity",
    "amltoken": "aml_token",
    "tensorboard": "tensor_board",
    "jupyterlab": "jupyter_lab",
    "vscode": "vs_code",
    "raydashboard": "ray_dashboard",
}


def _output_mode(value: object) -> object:
    snaked = snake(value)
    return "rw_mount" if snaked == "mount" else snaked


def _tier(value: object) -> object:
    # Azure's value for "none chosen".
    return None if value == "null" else snake(value)


def without(*keys: str) -> BeforeValidator:
    """Drops keys that Azure ML writes into a job and ignores when reading."""

    def drop(value: object) -> object:
        if isinstance(value, Mapping):
            return {key: item for key, item in value.items() if key not in keys}
        return value

    return BeforeValidator(drop)


_Snake = BeforeValidator(snake)
AssetType = Annotated[
    Literal["uri_file", "uri_folder", "mltable", "mlflow_model", "custom_model", "triton_model"],
    _Snake,
]
ModelType = Annotated[Literal["custom_model", "mlflow_model", "triton_model"], _Snake]
InputMode = Annotated[
    Literal["ro_mount", "download", "direct", "stream", "eval_mount", "eval_download"], _Snake
]
OutputMode = Annotated[Literal["rw_mount", "upload", "direct"], BeforeValidator(_output_mode)]
JobTier = Annotated[Literal["spot", "basic", "standard", "premium"] | None, BeforeValidator(_tier)]
Priority = Annotated[Literal["low", "medium", "high"], _Snake]


def _pattern(value: str) -> str:
    problem = None if value == BUILTIN else wrong(value)
    if problem is not None:
        raise Wrong(*problem)
    return value


def _rank(value: object) -> object:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise Wrong("must be the number of a rank, or `all`", "the first rank is 0")


Pattern = Annotated[Text, AfterValidator(_pattern)]
MetricName = Annotated[
    Text,
    AfterValidator(
        matching(
            r"[^\x00-\x1f\x7f]{1,250}",
            "must have 1 to 250 printable characters",
            "write `NAME: 'pattern'`",
        )
    ),
]


class Metric(Part):
    """A metric read from the output of ``rank``, or of all ranks (`all`). Without a ``pattern``,
    the built-in patterns of that name apply."""

    pattern: Pattern = BUILTIN
    rank: Annotated[Integer | Literal["all"], BeforeValidator(_rank)] = 0


class OnFailure(Part):
    """``hold``: seconds for which a failed attempt stays as it is, 30 days at most."""

    hold: Annotated[Seconds, Field(le=30 * 86400)] = 1800.0


class Session(Part):
    """``idle_timeout``: seconds without use after which it ends; ``timeout``: those after which its
    command is over, which is said before. The server looks more often the shorter the first is."""

    idle_timeout: Annotated[Seconds, Field(ge=5)] | None = 3600.0
    timeout: Seconds | None = None


class Output(Part):
    """An output of a job. Without ``path`` it goes to the job's record."""

    type: AssetType = "uri_folder"
    path: PathText | None = None
    mode: OutputMode = "rw_mount"
    name: Text | None = None
    version: Text | None = None


def _place(value: object) -> object:
    return as_input(value).path if isinstance(value, Output) else value


class Input(Part):
    """An input of a job.

    ``path`` is as written, not yet resolved; it may be an output of a submitted job:
    ``Input(path=job.outputs.model)``. Ours are ``unpack`` (unpack archives), ``sharded`` (each node
    gets its share of the files) and the mode ``stream`` (a URL on the node that serves the files).
    """

    type: AssetType = "uri_folder"
    path: Annotated[PathText, Field(min_length=1), BeforeValidator(_place)]
    mode: InputMode = "ro_mount"
    datastore: Text | None = None
    unpack: bool = False
    sharded: bool = False

    if TYPE_CHECKING:  # otherwise editors would expect only str

        def __init__(
            self,
            *,
            path: str | os.PathLike[str] | Output,
            type: AssetType = ...,
            mode: InputMode = ...,
            datastore: str | None = ...,
            unpack: bool = ...,
            sharded: bool = ...,
        ) -> None: ...

    @model_validator(mode="after")
    def _eval_is_of_tables(self) -> Input:
        if self.mode.startswith("eval") and self.type != "mltable":
            raise Wrong(
                f"the mode `{self.mode}` is for the type `mltable`",
                "use `ro_mount` or `download`",
            )
        for key, mode in (("unpack", "direct"), ("sharded", "direct"), ("unpack", "stream")):
            if self.mode == mode and getattr(self, key):
                raise Wrong(
                    f"`{key}` has no effect with the mode `{mode}`, which does not copy data",
                    "use `ro_mount` or `download`",
                )
        return self


def as_input(output: Output) -> Input:
    """Convert the output of a submitted job into an input."""
    if output.path is None:
        raise Wrong(
            "this output has no path yet: its job is not submitted",
            "submit the job and use the returned job's output: `job.outputs.…`",
        )
    return Input.model_validate({"type": output.type, "path": output.path})


class _Distribution(Part):
    model_config = ConfigDict(extra="allow")


class _PerNode(_Distribution):
    process_count_per_instance: Count = 1


class NoDistribution(_PerNode):
    """Independent copies of the command on each node."""

    type: Literal["none"] = "none"


class PyTorchDistribution(_PerNode):
    type: Literal["pytorch"] = "pytorch"


def _implementation(value: object) -> object:
    """Accept ``Open MPI`` for ``openmpi``; other values must be a path."""
    if not isinstance(value, str) or "/" in value:
        return value
    name = re.sub(r"[-_ ]|mpi$", "", value.lower())
    supported = {"open": "openmpi", "mpich": "mpich", "intel": "intel"}
    if name not in supported:
        raise Wrong(
            f"`{value}` is not a supported MPI",
            "`openmpi`, `mpich`, `intel`, or the path of an mpirun",
        )
    return supported[name]


class MpiDistribution(_PerNode):
    """``implementation``: ``openmpi``, ``mpich``, ``intel`` or a path of an mpirun; None: the first
    on the PATH of the job's environment."""

    type: Literal["mpi"] = "mpi"
    implementation: Annotated[Text | None, BeforeValidator(_implementation)] = None


class DeepSpeedDistribution(_PerNode):
    type: Literal["deepspeed"] = "deepspeed"


class HorovodDistribution(_PerNode):
    type: Literal["horovod"] = "horovod"


class JaxDistribution(_PerNode):
    type: Literal["jax"] = "jax"


class TensorFlowDistribution(_Distribution):
    """``worker_count`` None: one worker per instance.

    Parameter servers run beside workers. Ours are ``chief_count`` 1, for the coordinator that
    TensorFlow 2's parameter servers need (task ``chief`` on the first instance), and
    ``evaluator_count`` for tasks ``evaluator``.
    """

    type: Literal["tensorflow"] = "tensorflow"
    worker_count: Count | None = None
    parameter_server_count: Annotated[Integer, Field(ge=0)] = 0
    chief_count: Annotated[Integer, Field(ge=0, le=1)] = 0
    evaluator_count: Annotated[Integer, Field(ge=0)] = 0


class RayDistribution(_Distribution):
    """A Ray cluster over the job's nodes; the command runs on its head."""

    type: Literal["ray"] = "ray"
    port: Port | None = None
    address: Text | None = None
    include_dashboard: bool | None = None
    dashboard_port: Port | None = None
    head_node_additional_args: Text | None = None
    worker_node_additional_args: Text | None = None


def typed(value: object) -> object:
    """The mapping with its ``type`` in the schema's spelling."""
    if isinstance(value, dict) and "type" in value:
        return {**value, "type": snake(value["type"])}
    return value


Distribution = Annotated[
    NoDistribution
    | PyTorchDistribution
    | TensorFlowDistribution
    | MpiDistribution
    | DeepSpeedDistribution
    | HorovodDistribution
    | JaxDistribution
    | RayDistribution,
    Field(discriminator="type"),
    BeforeValidator(typed),
]


Image = Annotated[
    Text,
    AfterValidator(
        matching(
            r"(?:[A-Za-z0-9]|/(?=.*\.sif$))[A-Za-z0-9._/:@-]*",
            "must be the name of an image",
            "as in docker.io/library/python:3.11, or /images/trainer.sif",
        )
    ),
]


class BuildContext(Part):
    """An image to be built: the folder with its Dockerfile."""

    path: PathText
    dockerfile_path: Text | None = None
    without_containers: Free | None = None


class Environment(Asset):
    """An environment defined inline in a job.

    ``pip``, ``requirements``, ``constraints``, ``python``, ``torch_backend`` (uv's: `cpu`,
    `cu128`, `auto`), ``allow_builds`` (from source) and ``nearest_python`` (where the node lacks
    that Python, the nearest serves, with the nearest packages) are ours.
    """

    name: Text | None = None
    version: Text | None = None
    description: Text | None = None
    tags: Texts = Field(default_factory=dict)
    image: Image | None = None
    conda_file: PathText | Free | None = None
    build: BuildContext | None = None
    os_type: Annotated[Literal["linux", "windows"], _Snake] | None = None
    datastore: Text | None = None
    inference_config: Free | None = None
    pip: Several[Text] = ()
    requirements: PathText | None = None
    constraints: Several[Text] = ()
    python: Text | None = None
    torch_backend: Text | None = None
    allow_builds: bool = False
    nearest_python: bool = False

    @model_validator(mode="after")
    def _one_image(self) -> Environment:
        if self.image and self.build:
            raise Wrong("`image` and `build` cannot be used together", "remove one of the two")
        return self


class Resources(Part):
    """What a job requests from its compute; ``properties.<engine>`` holds options of an engine. A
    job without ``gpus_per_instance`` gets what `core/job/gpu_allocation.py` chooses; 0 means none.
    """

    instance_count: Count = 1
    instance_type: Text | None = None
    max_instance_count: Count | None = None
    shm_size: Text | None = None
    docker_args: Text | Several[Text] | None = None
    locations: Several[Text] = ()
    properties: Free = Field(default_factory=dict)
    gpus_per_instance: Annotated[Integer, Field(ge=0)] | None = None


class Limits(Part):
    """In seconds. ``timeout`` covers all attempts of a job. ``grace`` is the time from SIGTERM to
    SIGKILL on cancel, preemption and time limit; None means the server's default."""

    timeout: Seconds | None = None
    grace: Seconds | None = None


class QueueSettings(Part):
    """Tier and priority of a job."""

    job_tier: JobTier | None = None
    priority: Priority | None = None
