"""Of Azure's names that may be imported, those that work in part or not. Data for the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class PartialSupport(NamedTuple):
    """``works`` is `partly` or `not`."""

    works: str
    why: str


_V1, _PARTLY, _NOT = "allranks.compat.azure.v1", "partly", "not"
# By ``module:name`` of ours.
PARTLY: Mapping[str, PartialSupport] = {
    f"{_V1}.{name}": PartialSupport(works, why)
    for name, works, why in (
        ("compute:AmlCompute", _PARTLY, "a name of a compute; sizes and counts have no effect"),
        ("compute:ComputeInstance", _PARTLY, "as AmlCompute"),
        ("compute:ComputeTarget", _PARTLY, "as AmlCompute"),
        (
            "data.datasets:Dataset",
            _PARTLY,
            "files at one address; of several a copy",
        ),
        ("data.datasets:TabularDataset", _PARTLY, "jobs get the files; data frames need pandas"),
        ("data.datastore:Datastore", _PARTLY, "uploads to folders of this machine only"),
        ("data.output:OutputFileDatasetConfig", _PARTLY, "without `source`"),
        ("environment:DockerSection", _PARTLY, "image, Dockerfile and shm_size"),
        ("estimators:Estimator", _PARTLY, "with a warning"),
        ("hyperdrive:HyperDriveConfig", _PARTLY, "of scripts; without warm starts"),
        ("model:Model", _PARTLY, "without `package` and `profile`"),
        ("pipeline:EstimatorStep", _NOT, "use PythonScriptStep"),
        ("pipeline:TrainingOutput", _PARTLY, "of a HyperDriveStep; metrics are no data of steps"),
        ("parallel:ParallelRunStep", _PARTLY, "of one input"),
        ("published:Schedule", _PARTLY, "without watching datastores"),
        ("run_config:DockerConfiguration", _PARTLY, "`shm_size`"),
        ("webservice:AciWebservice", _PARTLY, "on the server's machine; sizes have no effect"),
        ("webservice:AksWebservice", _PARTLY, "as AciWebservice; scales by load"),
        ("workspace:Workspace", _PARTLY, "stands for the server"),
    )
} | {
    f"allranks.compat.azure.v2:{name}": PartialSupport(_PARTLY, why)
    for name, why in (
        ("Workspace", "stands for the server"),
        ("parallel_run_function", "files by count; error_threshold and partitions have no effect"),
        ("RunFunction", "without `model`"),
    )
}
