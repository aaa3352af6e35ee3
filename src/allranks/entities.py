"""The names of ``azure.ai.ml.entities`` that training programs use."""

from __future__ import annotations

from allranks.sdk.submit.command import Command
from allranks.spec.batch import (
    BatchDeployment,
    BatchEndpoint,
    BatchRetrySettings,
    ModelBatchDeployment,
    ModelBatchDeploymentSettings,
    PipelineComponentBatchDeployment,
)
from allranks.spec.compute import AmlCompute, Compute
from allranks.spec.data import Data
from allranks.spec.datastore import Datastore
from allranks.spec.endpoint import CodeConfiguration, DefaultScaleSettings
from allranks.spec.endpoint import Deployment as ManagedOnlineDeployment
from allranks.spec.endpoint import Endpoint as ManagedOnlineEndpoint
from allranks.spec.endpoint import Probe as ProbeSettings
from allranks.spec.endpoint import RequestSettings as OnlineRequestSettings
from allranks.spec.endpoint import ScaleSettings as TargetUtilizationScaleSettings
from allranks.spec.job import CommandJob
from allranks.spec.job_parts import BuildContext, Environment, QueueSettings
from allranks.spec.job_parts import Limits as CommandJobLimits
from allranks.spec.job_parts import Resources as JobResourceConfiguration
from allranks.spec.job_parts import Resources as ResourceConfiguration
from allranks.spec.model import Model
from allranks.spec.services import (
    AmlTokenConfiguration,
    JobService,
    JupyterLabJobService,
    ManagedIdentityConfiguration,
    SshJobService,
    TensorBoardJobService,
    UserIdentityConfiguration,
    VsCodeJobService,
)

__all__ = [
    "AmlCompute",
    "AmlTokenConfiguration",
    "BatchDeployment",
    "BatchEndpoint",
    "BatchRetrySettings",
    "BuildContext",
    "CodeConfiguration",
    "Command",
    "CommandJob",
    "CommandJobLimits",
    "Compute",
    "Data",
    "Datastore",
    "DefaultScaleSettings",
    "Environment",
    "JobResourceConfiguration",
    "JobService",
    "JupyterLabJobService",
    "ManagedIdentityConfiguration",
    "ManagedOnlineDeployment",
    "ManagedOnlineEndpoint",
    "Model",
    "ModelBatchDeployment",
    "ModelBatchDeploymentSettings",
    "OnlineRequestSettings",
    "PipelineComponentBatchDeployment",
    "ProbeSettings",
    "QueueSettings",
    "ResourceConfiguration",
    "SshJobService",
    "TargetUtilizationScaleSettings",
    "TensorBoardJobService",
    "UserIdentityConfiguration",
    "VsCodeJobService",
]
