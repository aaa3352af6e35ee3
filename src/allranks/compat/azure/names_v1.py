"""The names of Azure ML's first Python SDK, by module, and where ours are."""

from __future__ import annotations

from collections.abc import Mapping

_V1 = "allranks.compat.azure.v1"


def _of(module: str, *names: str) -> dict[str, str]:
    return {name: f"{_V1}.{module}:{name}" for name in names}


_COMPUTE = _of("compute", "AmlCompute", "ComputeInstance", "ComputeTarget")
_SECTIONS = _of("environment", "ContainerRegistry", "DockerSection", "PythonSection")
_CONDA = _of("environment", "CondaDependencies")
_DISTRIBUTIONS = _of(
    "run_config", "MpiConfiguration", "PyTorchConfiguration", "TensorflowConfiguration"
)
_DATA = _of("data.datasets", "FileDataset", "TabularDataset")
_OUTPUT = _of("data.output", "OutputFileDatasetConfig")
_REFERENCE = _of("data.datastore", "DataReference")
_EXCEPTIONS = _of(
    "exceptions",
    "ActivityFailedException",
    "AzureMLException",
    "ComputeTargetException",
    "ExperimentExecutionException",
    "ModelNotFoundException",
    "ProjectSystemException",
    "RunEnvironmentException",
    "UserErrorException",
    "WebserviceException",
    "WorkspaceException",
)
_PARALLEL = _of("parallel", "ParallelRunConfig", "ParallelRunStep")
_SCHEDULES = _of("published", "Schedule", "ScheduleRecurrence")
_SERVICES = _of("webservice", "AciWebservice", "AksWebservice", "LocalWebservice", "Webservice")
_CONFIG = {
    **_of("hyperdrive", "HyperDriveConfig", "HyperDriveRunConfig", "PrimaryMetricGoal"),
    **_of("run", "HyperDriveRun"),
}
_RUNS = {**_of("run", "PipelineRun"), "StepRun": f"{_V1}.experiment:Run"}
_HYPERDRIVE = {**_of("hyperdrive_step", "HyperDriveStep"), **_of("run", "HyperDriveStepRun")}
_EXPRESSIONS = _of(
    "hyperdrive",
    "choice",
    "lognormal",
    "loguniform",
    "normal",
    "qlognormal",
    "qloguniform",
    "qnormal",
    "quniform",
    "randint",
    "uniform",
)
_POLICIES = _of(
    "hyperdrive",
    "BanditPolicy",
    "MedianStoppingPolicy",
    "NoTerminationPolicy",
    "TruncationSelectionPolicy",
)
_SAMPLINGS = _of(
    "hyperdrive",
    "BayesianParameterSampling",
    "GridParameterSampling",
    "RandomParameterSampling",
)
NAMES_V1: Mapping[str, Mapping[str, str]] = {
    "azureml": {},
    "azureml.core": {
        **_of("workspace", "Workspace"),
        **_of("experiment", "Experiment"),
        # By way of the module that makes both: a run knows its experiment.
        **_of("experiment", "Run"),
        **_of("run_config", "RunConfiguration", "ScriptRunConfig"),
        **_of("environment", "Environment"),
        **_of("data.datasets", "Dataset"),
        **_of("data.datastore", "Datastore"),
        **_of("model", "Model"),
        **_of("webservice", "Webservice"),
        **_COMPUTE,
        **dict.fromkeys(("VERSION", "__version__"), "allranks.version:__version__"),
    },
    "azureml.core.authentication": _of(
        "authentication",
        "AbstractAuthentication",
        "AzureCliAuthentication",
        "InteractiveLoginAuthentication",
        "MsiAuthentication",
        "ServicePrincipalAuthentication",
        "Audience",
        "TokenAuthentication",
    ),
    "azureml.core.compute": _COMPUTE,
    "azureml.core.compute_target": _of("exceptions", "ComputeTargetException"),
    "azureml.core.conda_dependencies": _CONDA,
    "azureml.core.container_registry": _of("environment", "ContainerRegistry"),
    "azureml.core.dataset": _of("data.datasets", "Dataset"),
    "azureml.core.datastore": _of("data.datastore", "Datastore"),
    "azureml.core.environment": {
        **_of("environment", "Environment"),
        **_CONDA,
        **_SECTIONS,
    },
    "azureml.core.experiment": _of("experiment", "Experiment"),
    "azureml.core.model": {
        **_of("model", "InferenceConfig", "Model"),
        **_of("data.datasets", "Dataset"),
    },
    "azureml.core.run": {
        **_of("experiment", "Run"),
        "_OfflineRun": "allranks.agent.inside.azureml_run:OfflineRun",
    },
    "azureml.core.runconfig": {
        **_of("run_config", "DockerConfiguration", "RunConfiguration", "ScriptRunConfig"),
        **_DISTRIBUTIONS,
        **_of("environment", "DEFAULT_CPU_IMAGE", "DEFAULT_GPU_IMAGE", "Environment"),
        **_CONDA,
        **_SECTIONS,
    },
    "azureml.core.script_run_config": _of("run_config", "ScriptRunConfig"),
    "azureml.core.webservice": _SERVICES,
    "azureml.core.workspace": _of("workspace", "Workspace"),
    "azureml.contrib": {},
    "azureml.contrib.pipeline": {},
    "azureml.contrib.pipeline.steps": _PARALLEL,
    "azureml.data": {**_DATA, **_OUTPUT, **_of("data.output", "OutputAsInput")},
    "azureml.data.data_reference": _REFERENCE,
    "azureml.data.datapath": _of("data.datastore", "DataPath", "DataPathComputeBinding"),
    "azureml.data.dataset_consumption_config": _of("data.datasets", "DatasetConsumptionConfig"),
    "azureml.data.dataset_factory": {
        "FileDatasetFactory": f"{_V1}.data.datasets:Files",
        "TabularDatasetFactory": f"{_V1}.data.datasets:Tables",
    },
    "azureml.data.file_dataset": _of("data.datasets", "FileDataset"),
    "azureml.data.output_dataset_config": _OUTPUT,
    "azureml.data.tabular_dataset": _of("data.datasets", "TabularDataset"),
    "azureml.exceptions": _EXCEPTIONS,
    "azureml.pipeline": {},
    "azureml.pipeline.core": {
        **_of("pipeline", "Pipeline", "PipelineData", "PipelineParameter", "StepSequence"),
        **_of("pipeline", "TrainingOutput"),
        **_of("published", "PublishedPipeline"),
        **_of("pipeline_draft", "PipelineDraft"),
        **_of("pipeline_endpoint", "PipelineEndpoint"),
        **_SCHEDULES,
        **_RUNS,
    },
    "azureml.pipeline.core.graph": _of("pipeline", "PipelineParameter"),
    "azureml.pipeline.core.run": _RUNS,
    "azureml.pipeline.core.schedule": _SCHEDULES,
    "azureml.pipeline.steps": {
        **_of("pipeline", "CommandStep", "EstimatorStep", "PythonScriptStep"),
        **_PARALLEL,
        **_HYPERDRIVE,
    },
    "azureml.pipeline.steps.hyper_drive_step": _HYPERDRIVE,
    "azureml.telemetry": _of("widgets", "set_diagnostics_collection"),
    "azureml.train": {},
    "azureml.train.dnn": _of(
        "estimators", "Gloo", "Mpi", "Nccl", "ParameterServer", "PyTorch", "TensorFlow"
    ),
    "azureml.train.estimator": _of("estimators", "Estimator", "Mpi"),
    "azureml.train.hyperdrive": {**_CONFIG, **_EXPRESSIONS, **_POLICIES, **_SAMPLINGS},
    "azureml.train.hyperdrive.parameter_expressions": _EXPRESSIONS,
    "azureml.train.hyperdrive.policy": _POLICIES,
    "azureml.train.hyperdrive.run": _CONFIG,
    "azureml.train.hyperdrive.runconfig": _CONFIG,
    "azureml.train.hyperdrive.sampling": _SAMPLINGS,
    "azureml.train.sklearn": _of("estimators", "SKLearn"),
    "azureml.widgets": _of("widgets", "RunDetails"),
}
_SERVED = "images are not built: use Model.deploy"
_COMPUTE_HERE = "name a compute of allranks: allranks compute create"
_COPIES = "copy the data in a PythonScriptStep"
_SPARK = "start Spark in a job of its own"
_AUTO = "there is no AutoML: run your own script, or a sweep"
ABSENT_V1: Mapping[str, Mapping[str, str]] = {
    "azureml": {
        "automl": _AUTO,
        "interpret": "use the package `raiwidgets` or `shap` in a job",
        "mlflow": "use mlflow itself: docs/how-to/mlflow.md",
        "opendatasets": "download the files, and give them to Dataset.File.from_files",
        "tensorboard": "allranks job tensorboard NAME",
    },
    "azureml.core": {
        "Image": _SERVED,
        "Keyvault": "keep secrets in the environment: allranks run --env NAME",
    },
    "azureml.core.compute": {
        **dict.fromkeys(("AksCompute", "BatchCompute", "RemoteCompute"), _COMPUTE_HERE),
        **dict.fromkeys(("AdlaCompute", "DataFactoryCompute"), _COPIES),
        **dict.fromkeys(("DatabricksCompute", "HDInsightCompute", "SynapseCompute"), _SPARK),
    },
    "azureml.data": {"HDFSOutputDatasetConfig": _SPARK},
    "azureml.core.model": {"ModelProxy": _SERVED},
    "azureml.pipeline.core": {
        "Module": "use PythonScriptStep, or a component",
        "module": "use PythonScriptStep, or a component",
    },
    "azureml.pipeline.steps": {
        "AutoMLStep": _AUTO,
        "AdlaStep": _COPIES,
        "AzureBatchStep": "use CommandStep",
        "DataTransferStep": _COPIES,
        **dict.fromkeys(("DatabricksStep", "SynapseSparkStep"), _SPARK),
        "KustoStep": _COPIES,
        "ModuleStep": "use PythonScriptStep, or a component",
    },
    "azureml.train": {"automl": _AUTO},
    "azureml.train.dnn": {"Chainer": "use Estimator with pip_packages=['chainer']"},
}
PACKAGES_V1 = (
    "azureml",
    "azureml.contrib",
    "azureml.contrib.pipeline",
    "azureml.core",
    "azureml.data",
    "azureml.pipeline",
    "azureml.pipeline.core",
    "azureml.pipeline.steps",
    "azureml.train",
    "azureml.train.hyperdrive",
)
