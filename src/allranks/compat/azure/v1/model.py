"""`azureml.core.Model`: models of the registry."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from allranks.compat.azure.notes import without_effect
from allranks.compat.azure.v1 import webservice
from allranks.compat.azure.v1.environment import Environment
from allranks.compat.azure.v1.exceptions import ModelNotFoundException, no_more, not_there
from allranks.errors import NotFound
from allranks.sdk import Client
from allranks.spec.fields.identifiers import identifier

if TYPE_CHECKING:
    from allranks.api.common import Document

# What Azure shows of a model and serving needs.
SHOWN = (
    "model_framework",
    "model_framework_version",
    "datasets",
    "resource_configuration",
    "sample_input_dataset",
    "sample_output_dataset",
)


class Framework:
    """The names of frameworks. Here models are known by their files."""

    CUSTOM, ONNX, TENSORFLOW, SCIKITLEARN = "Custom", "Onnx", "TensorFlow", "ScikitLearn"
    TFKERAS, PYTORCH, MULTI = "TfKeras", "PyTorch", "Multi"


class Model:
    """A version of a model, the newest by default. Raises ModelNotFoundException."""

    Framework = Framework

    def __init__(
        self,
        workspace: object,
        name: str | None = None,
        id: str | None = None,
        tags: object = None,
        version: str | int | None = None,
        **_: Any,
    ) -> None:
        if id is not None:
            name, _colon, suffix = id.partition(":")
            version = version or suffix or None
        try:
            model = Client().models.get(str(name), None if version is None else str(version))
        except NotFound as error:
            raise ModelNotFoundException(error.message, hint=error.hint) from None
        self.workspace, self.name, self._version = workspace, model.name, model
        self.version = int(model.version) if model.version.isdigit() else model.version
        self.id = f"{model.name}:{model.version}"
        self.tags = dict(model.tags)
        self.properties = dict(model.properties)
        self.description = model.description
        self.url = f"models/{self.id}"

    @classmethod
    def register(
        cls,
        workspace: object,
        model_path: str,
        model_name: str,
        tags: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        **more: Any,
    ) -> Model:
        """Create a version from files of this machine."""
        no_more("Model.register", more, SHOWN)
        made = Client().models.register(
            model_name, model_path, tags=tags, properties=properties, description=description
        )
        return cls(workspace, model_name, version=made.version)

    @classmethod
    def list(
        cls, workspace: object, name: str | None = None, latest: bool = False, **_: Any
    ) -> list[Model]:
        models = Client().models.list(name)
        return [cls(workspace, model.name, version=model.version) for model in models]

    @staticmethod
    def get_model_path(model_name: str, version: int | None = None, _workspace: Any = None) -> str:
        """Download a version; returns the path of its file, or of its folder."""
        return Model(_workspace, model_name, version=version).download("azureml-models")

    def download(self, target_dir: str = ".", exist_ok: bool = False, **_: Any) -> str:
        """Download its files; returns the path of the file, or of the folder of several."""
        folder = Client().models.download(self.name, str(self.version), target_dir)
        files = [path for path in folder.iterdir() if path.name != "MLmodel"]
        if len(files) == 1 and files[0].is_file():
            target = Path(target_dir, files[0].name)
            shutil.copyfile(files[0], target)
            return str(target)
        return str(folder)

    def delete(self) -> None:
        Client().models.delete(self.name, str(self.version))

    @staticmethod
    def deploy(
        workspace: object,
        name: str,
        models: Sequence[Model],
        inference_config: InferenceConfig | None = None,
        deployment_config: webservice.DeploymentConfiguration | None = None,
        deployment_target: object = None,
        overwrite: bool = False,
        show_output: bool = False,
    ) -> webservice.Webservice:
        """Begin to deploy a model: an endpoint with one deployment, on the server's machine."""
        webservice.note_target(deployment_target)
        made = webservice.deploy(
            workspace, name, models, inference_config, deployment_config, overwrite
        )
        if show_output:
            made.wait_for_deployment(show_output=True)
        return made

    @staticmethod
    def package(*_: Any, **__: Any) -> NoReturn:
        """Raises NotThere."""
        not_there("Model.package", "images are not built: deploy the model with Model.deploy")

    @staticmethod
    def profile(*_: Any, **__: Any) -> NoReturn:
        """Raises NotThere."""
        not_there("Model.profile", "allranks endpoint show NAME has the latencies")

    def __repr__(self) -> str:
        return f"Model(name={self.name}, id={self.id}, version={self.version})"


def used_models(script: Path, words: Iterable[Any]) -> Document:
    """The inputs of a job whose script asks for ``Model.get_model_path``: the models whose names
    it has as texts, or gets among its arguments."""
    text = script.read_text(errors="replace") if script.is_file() else ""
    if "get_model_path" not in text:
        return {}
    names = {*re.findall(r"""["']([\w.-]+)["']""", text), *map(str, words)}
    return {
        f"model_{identifier(model.name)}": {
            "type": model.type,
            "path": f"azureml:{model.name}:{model.version}",
        }
        for model in Client().models.list()
        if model.name in names
    }


class InferenceConfig:
    """A scoring script, the folder of its code, and its environment."""

    def __init__(
        self,
        entry_script: str,
        runtime: str | None = None,
        conda_file: str | None = None,
        extra_docker_file_steps: str | None = None,
        source_directory: str | None = None,
        enable_gpu: bool | None = None,
        description: str | None = None,
        environment: Environment | None = None,
        **more: Any,
    ) -> None:
        no_more("InferenceConfig", {**more, "extra_docker_file_steps": extra_docker_file_steps})
        without_effect("InferenceConfig", {"runtime": runtime, "enable_gpu": enable_gpu})
        if environment is None and conda_file is not None:
            file = str(Path(source_directory or ".", conda_file))
            environment = Environment.from_conda_specification("inference", file)
        self.entry_script, self.source_directory = entry_script, source_directory
        self.environment, self.description = environment, description
