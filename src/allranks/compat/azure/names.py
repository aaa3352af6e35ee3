"""Azure's names, by module, and where ours are; and those that have none here."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.compat.azure.names_v1 import ABSENT_V1, NAMES_V1, PACKAGES_V1


def _v2(*names: str) -> dict[str, str]:
    return {name: f"allranks.compat.azure.v2:{name}" for name in names}


_CONSTANTS = ("AssetTypes", "BatchDeploymentOutputAction", "InputOutputModes")
# By module, then by name: `module:name` of ours.
NAMES: Mapping[str, Mapping[str, str]] = {
    "azure.ai.ml": {
        **{
            name: f"allranks:{name}"
            for name in (
                "MpiDistribution",
                "PyTorchDistribution",
                "RayDistribution",
                "TensorFlowDistribution",
                "load_component",
                "load_job",
                "AmlTokenConfiguration",
                "ManagedIdentityConfiguration",
                "UserIdentityConfiguration",
            )
        },
        **_v2("Input", "Output", "command", "load_compute", "load_data", "load_datastore"),
        **_v2("MLClient", "load_environment", "load_model"),
    },
    "azure.ai.ml._version": {"VERSION": "allranks.version:__version__"},
    "azure.ai.ml.constants": {
        **_v2("ListViewType"),
        **{name: f"allranks.constants:{name}" for name in _CONSTANTS},
        **_v2("TimeZone"),
    },
    "azure.ai.ml.dsl": {"pipeline": "allranks.dsl:pipeline"},
    "azure.ai.ml.entities": {
        name: f"allranks.entities:{name}"
        for name in (
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
        )
    }
    | _v2("CommandComponent", "CronTrigger", "ParallelComponent", "RecurrenceTrigger")
    | {
        "Component": "allranks:Component",
        "Job": "allranks:Job",
        "JobSchedule": "allranks.sdk.assets.schedules:JobSchedule",
        "PipelineJob": "allranks:PipelineJob",
        "RecurrencePattern": "allranks.spec.schedule:RecurrencePattern",
        "Workspace": "allranks.compat.azure.v2:Workspace",
    },
    "azure.ai.ml.exceptions": {
        **_v2("JobException"),
        "DeploymentException": "allranks.sdk.assets.endpoints:RequestFailed",
        "MlException": "allranks.errors:AllranksError",
        "UserErrorException": "allranks.errors:UsageError",
        "ValidationException": "allranks.errors:SpecError",
    },
    "azure.ai.ml.parallel": _v2("RunFunction", "parallel_run_function"),
    "azure.ai.ml.sweep": {
        name: f"allranks.sweep:{name}"
        for name in (
            "BanditPolicy",
            "BayesianSamplingAlgorithm",
            "Choice",
            "GridSamplingAlgorithm",
            "LogNormal",
            "LogUniform",
            "MedianStoppingPolicy",
            "Normal",
            "Objective",
            "QLogNormal",
            "QLogUniform",
            "QNormal",
            "QUniform",
            "RandomSamplingAlgorithm",
            "Randint",
            "SweepJob",
            "SweepJobLimits",
            "TruncationSelectionPolicy",
            "Uniform",
        )
    },
    "azure.core.exceptions": {
        "AzureError": "allranks.errors:AllranksError",
        "ClientAuthenticationError": "allranks.errors:Unauthorized",
        "HttpResponseError": "allranks.errors:AllranksError",
        "ResourceExistsError": "allranks.errors:Conflict",
        "ResourceNotFoundError": "allranks.errors:NotFound",
    },
    "azure.identity": {
        name: f"allranks.compat.azure.identity:{name}"
        for name in (
            "AzureAuthorityHosts",
            "AzureCliCredential",
            "ChainedTokenCredential",
            "ClientSecretCredential",
            "DefaultAzureCredential",
            "DeviceCodeCredential",
            "EnvironmentCredential",
            "InteractiveBrowserCredential",
            "ManagedIdentityCredential",
        )
    },
    **NAMES_V1,
    "mldesigner": {
        "command_component": "allranks.compat.azure.designer:command_component",
        **_v2("Input", "Output"),
    },
    "simple_sagemaker": {},
    "simple_sagemaker.sm_project": {
        name: f"allranks.compat.ssm.project:{name}"
        for name in ("SageMakerProject", "SageMakerTask")
    },
    "simple_sagemaker.sm_task": {"SageMakerTask": "allranks.compat.ssm.project:SageMakerTask"},
}
# What programs import and what has no counterpart, with what to do instead.
ABSENT: Mapping[str, Mapping[str, str]] = {
    "azure.ai.ml": {
        "automl": "there is no AutoML: run your own script, or a sweep",
        "finetuning": "run your own script",
        "load_registry": "there are no registries: all clients of this server see its assets",
        "spark": "there are no Spark jobs: start Spark in a command job",
    },
    "azure.ai.ml.entities": {
        "KubernetesOnlineDeployment": "use ManagedOnlineDeployment",
        **dict.fromkeys(
            (
                "AzureMLOnlineInferencingServer",
                "BaseEnvironment",
                "ModelConfiguration",
                "ModelPackage",
            ),
            "give the deployment the model itself",
        ),
        **dict.fromkeys(
            ("DataImport", "ImportDataSchedule"), "download it, and give its folder to Data"
        ),
        **dict.fromkeys(
            ("MarketplaceSubscription", "ServerlessEndpoint"),
            "deploy a model of your own: ManagedOnlineDeployment",
        ),
        **dict.fromkeys(
            ("ManagedNetwork", "PrivateEndpointDestination"), "networks are not made here"
        ),
        **dict.fromkeys(
            ("AccessKeyConfiguration", "UsernamePasswordConfiguration"),
            "create a datastore with its credentials",
        ),
        "IdentityConfiguration": "leave it out: no machines are made, so none has an identity",
        "ComputeInstance": "name a compute of allranks: allranks compute create",
        "SynapseSparkCompute": "start Spark in a command job",
        "WorkspaceConnection": "create a datastore with its credentials",
    },
    **ABSENT_V1,
}
# Modules that are packages of the above.
PACKAGES = ("simple_sagemaker", "azure", "azure.ai", "azure.ai.ml", "azure.core", *PACKAGES_V1)
