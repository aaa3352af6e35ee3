"""Azure's names, by module, and where ours are; and those that have none here."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.azure.names_v1 import ABSENT_V1, NAMES_V1, PACKAGES_V1

# By module, then by name: `module:name` of ours.
NAMES: Mapping[str, Mapping[str, str]] = {
    "azure.ai.ml": {
        **{
            name: f"allranks:{name}"
            for name in (
                *("Input", "MLClient", "MpiDistribution", "Output", "PyTorchDistribution"),
                *("RayDistribution", "TensorFlowDistribution", "command", "load_component"),
                *("load_job", "AmlTokenConfiguration", "ManagedIdentityConfiguration"),
                "UserIdentityConfiguration",
            )
        },
    },
    "azure.ai.ml.constants": {
        name: f"allranks.constants:{name}" for name in ("AssetTypes", "InputOutputModes")
    },
    "azure.ai.ml.dsl": {"pipeline": "allranks.dsl:pipeline"},
    "azure.ai.ml.entities": {
        name: f"allranks.entities:{name}"
        for name in (
            *("AmlCompute", "AmlTokenConfiguration", "BuildContext", "Command", "CommandJob"),
            *("CommandJobLimits", "Compute", "Data", "Datastore", "Environment"),
            *("JobResourceConfiguration", "JobService", "JupyterLabJobService"),
            *("ManagedIdentityConfiguration", "Model", "QueueSettings", "ResourceConfiguration"),
            *("SshJobService", "TensorBoardJobService", "UserIdentityConfiguration"),
            "VsCodeJobService",
        )
    },
    "azure.ai.ml.sweep": {
        name: f"allranks.sweep:{name}"
        for name in (
            *("BanditPolicy", "BayesianSamplingAlgorithm", "Choice", "GridSamplingAlgorithm"),
            *("LogNormal", "LogUniform", "MedianStoppingPolicy", "Normal", "Objective"),
            *("QLogNormal", "QLogUniform", "QNormal", "QUniform", "RandomSamplingAlgorithm"),
            *("Randint", "SweepJob", "SweepJobLimits", "TruncationSelectionPolicy", "Uniform"),
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
        name: f"allranks.azure.identity:{name}"
        for name in (
            *("AzureCliCredential", "ChainedTokenCredential", "ClientSecretCredential"),
            *("DefaultAzureCredential", "DeviceCodeCredential", "EnvironmentCredential"),
            *("InteractiveBrowserCredential", "ManagedIdentityCredential"),
        )
    },
    **NAMES_V1,
}
# What programs import and what has no counterpart, with what to do instead.
ABSENT: Mapping[str, Mapping[str, str]] = {
    "azure.ai.ml": {
        "automl": "there is no AutoML: run your own script, or a sweep",
        "load_environment": "`load_job` reads jobs; create it: ml_client.environments",
        "spark": "there are no Spark jobs: start Spark in a command job",
    },
    "azure.ai.ml.entities": {
        "KubernetesOnlineDeployment": "models are registered, not served",
        "ManagedOnlineDeployment": "models are registered, not served",
        "ManagedOnlineEndpoint": "models are registered, not served",
        "Workspace": "there are no workspaces: a server has one record",
    },
    **ABSENT_V1,
}
# Modules that are packages of the above.
PACKAGES = ("azure", "azure.ai", "azure.ai.ml", "azure.core", *PACKAGES_V1)
