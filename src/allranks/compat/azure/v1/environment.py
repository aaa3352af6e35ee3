"""`azureml.core.Environment` and `CondaDependencies`."""

from __future__ import annotations

import builtins
import copy
import hashlib
import json
import re
import shlex
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from allranks import folder_trees, settings
from allranks.compat.azure.v1.exceptions import found, no_more, not_there
from allranks.errors import SpecError
from allranks.sdk import Client
from allranks.spec import job_parts
from allranks.spec.yaml import load

if TYPE_CHECKING:
    from allranks.api.common import Document

DEFAULT_CPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"
DEFAULT_GPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.6-cudnn8-ubuntu20.04"
# The files of ``save_to_directory``.
_DEFINITION, _CONDA_FILE = "azureml_environment.json", "conda_dependencies.yml"
_DOCKERFILE = "BaseDockerfile"
_CURATED = re.compile(
    r"azureml-.*|acpt-.*|(sklearn|lightgbm|xgboost|tensorflow|pytorch)-\d.*", re.I
)


class CondaDependencies:
    """A conda file: packages of conda's and, below `pip`, of pip's."""

    DEFAULT_NUMBER_OF_CONDA_PACKAGES = 0

    def __init__(
        self, conda_dependencies_file_path: str | None = None, _content: Any = None
    ) -> None:
        if conda_dependencies_file_path is not None:
            file = Path(conda_dependencies_file_path)
            _content = load.read(load.content(file), file=str(file))[0]
        content = _content if isinstance(_content, Mapping) else {}
        self._python, self._conda, self._pip = "", [], []  # type: str, list[str], list[str]
        self._channels: list[str] = list(content.get("channels") or [])
        for dependency in content.get("dependencies") or []:
            if isinstance(dependency, Mapping):
                self._pip += [str(line) for line in dependency.get("pip") or []]
            else:
                self.add_conda_package(str(dependency))

    @classmethod
    def create(
        cls,
        pip_indexurl: str | None = None,
        pip_packages: Sequence[str] | None = None,
        conda_packages: Sequence[str] | None = None,
        python_version: str | None = None,
        pin_sdk_version: bool = True,
    ) -> CondaDependencies:
        made = cls()
        for package in conda_packages or ():
            made.add_conda_package(package)
        for package in pip_packages or ():
            made.add_pip_package(package)
        if python_version is not None:
            made.set_python_version(python_version)
        if pip_indexurl:
            made.set_pip_option(f"--index-url {pip_indexurl}")
        return made

    def add_conda_package(self, conda_package: str) -> None:
        name = re.split(r"[=<>!~ ]", conda_package, maxsplit=1)[0]
        if name == "python":
            self._python = conda_package[len(name) :].strip()
        elif conda_package not in self._conda:
            self._conda.append(conda_package)

    def add_pip_package(self, pip_package: str) -> None:
        if pip_package not in self._pip:
            self._pip.append(pip_package)

    def add_channel(self, channel: str) -> None:
        self._channels.append(channel)

    def add_tensorflow_pip_package(
        self, core_type: str = "cpu", version: str | None = None
    ) -> None:
        self.add_pip_package("tensorflow" + (f"=={version}" if version else ""))

    def remove_pip_package(self, pip_package: str) -> None:
        self._pip = [each for each in self._pip if not _is(each, pip_package)]

    def remove_conda_package(self, conda_package: str) -> None:
        self._conda = [each for each in self._conda if not _is(each, conda_package)]

    def set_pip_option(self, pip_option: str) -> None:
        self._pip.insert(0, pip_option)

    def set_pip_requirements(self, pip_requirements: str) -> None:
        self._pip += [line for line in pip_requirements.splitlines() if line.strip()]

    def set_python_version(self, version: str) -> None:
        self._python = f"={version}"

    @property
    def pip_packages(self) -> list[str]:
        return list(self._pip)

    @property
    def conda_packages(self) -> list[str]:
        return list(self._conda)

    def get_python_version(self) -> str:
        return self._python.lstrip("= ")

    def as_dict(self) -> Document:
        lines: list[Any] = [f"python{self._python}"] if self._python else []
        lines += self._conda
        if self._pip:
            lines.append({"pip": list(self._pip)})
        return {"channels": self._channels or ["conda-forge"], "dependencies": lines}

    def serialize_to_string(self) -> str:
        return str(yaml.safe_dump(self.as_dict(), sort_keys=False))

    def save_to_file(self, base_directory: str, conda_file_path: str = "conda.yml") -> str:
        Path(base_directory, conda_file_path).write_text(self.serialize_to_string())
        return conda_file_path

    save = save_to_file


class DockerSection:
    """``enabled`` has no effect: a compute decides whether it runs containers."""

    def __init__(self) -> None:
        self.enabled = False
        self.base_image: str | None = DEFAULT_CPU_IMAGE
        self.base_dockerfile: str | None = None
        self.base_image_registry = ContainerRegistry()
        self.arguments: list[str] = []
        self.shm_size: str | None = None
        self.shared_volumes = self.gpu_support = True


class ContainerRegistry:
    """Where images are, if not at Docker Hub."""

    def __init__(self) -> None:
        self.address: str | None = None
        self.username: str | None = None
        self.password: str | None = None


class PythonSection:
    """With ``user_managed_dependencies`` ranks run in the submitter's Python."""

    def __init__(self) -> None:
        self.conda_dependencies = CondaDependencies()
        self.user_managed_dependencies = False
        self.interpreter_path = "python"
        self.conda_dependencies_file: str | None = None


class Environment:
    """An environment: a curated one, packages, an image, a Dockerfile or the current Python."""

    def __init__(self, name: str = "default", **more: Any) -> None:
        no_more("Environment", more, ("_skip_defaults",))
        self.name = name
        self.version: str | None = None
        self.python = PythonSection()
        self.docker = DockerSection()
        self.environment_variables: dict[str, str] = {}
        # Azure's notebooks set `spark.precache_packages`.
        self.spark = types.SimpleNamespace()
        self.inferencing_stack_version: str | None = None
        # The environment of the server that this is, or is more than.
        self._base: str | None = None

    # ------------------------------------------------------------ made from something

    @classmethod
    def get(
        cls, workspace: object, name: str, version: str | None = None, label: str | None = None
    ) -> Environment:
        """A registered or curated one. Raises UserErrorException."""
        made = cls(name)
        made.version = None if version in (None, "Autosave") else str(version)
        made._base = f"{name}:{made.version}" if made.version else f"{name}@{label or 'latest'}"
        if not _CURATED.fullmatch(name):  # Azure's own are other environments here: `map`
            with found():
                Client().environments.get(name, made.version, label or "latest")
        return made

    @classmethod
    def list(cls, workspace: object) -> dict[str, Environment]:
        return {each.name: cls.get(workspace, each.name) for each in _named()}

    @classmethod
    def from_conda_specification(cls, name: str, file_path: str) -> Environment:
        made = cls(name)
        made.python.conda_dependencies = CondaDependencies(file_path)
        return made

    @classmethod
    def from_pip_requirements(
        cls, name: str, file_path: str, pip_version: str | None = None
    ) -> Environment:
        made = cls(name)
        lines = (each.strip() for each in Path(file_path).read_text().splitlines())
        for line in lines:
            if line and not line.startswith("#"):
                made.python.conda_dependencies.add_pip_package(line)
        return made

    @classmethod
    def from_docker_image(
        cls,
        name: str,
        image: str,
        container_registry: object = None,
        conda_specification: str | None = None,
        pip_requirements: str | None = None,
    ) -> Environment:
        made = cls._with_files(name, conda_specification, pip_requirements)
        made.docker.base_image = image
        return made

    @classmethod
    def from_dockerfile(
        cls,
        name: str,
        dockerfile: str,
        conda_specification: str | None = None,
        pip_requirements: str | None = None,
    ) -> Environment:
        made = cls._with_files(name, conda_specification, pip_requirements)
        is_file = "\n" not in dockerfile and Path(dockerfile).is_file()
        made.docker.base_dockerfile = Path(dockerfile).read_text() if is_file else dockerfile
        return made

    @classmethod
    def from_existing_conda_environment(cls, name: str, conda_environment_name: str) -> Environment:
        """The current Python: activate that environment before you submit."""
        made = cls(name)
        made.python.user_managed_dependencies = True
        return made

    @classmethod
    def _with_files(cls, name: str, conda: str | None, pip: str | None) -> Environment:
        if conda is not None:
            return cls.from_conda_specification(name, conda)
        if pip is not None:
            return cls.from_pip_requirements(name, pip)
        made = cls(name)
        made.python.user_managed_dependencies = True
        return made

    # ------------------------------------------------------------ used

    def clone(self, new_name: str) -> Environment:
        made = copy.deepcopy(self)
        made.name, made.version = new_name, None
        return made

    def register(self, workspace: object) -> Environment:
        """Create a version of it. Raises SpecError."""
        spec = self.as_spec()
        if isinstance(spec, dict):
            made = Client().environments.create_or_update(
                job_parts.Environment.model_validate({**spec, "name": self.name})
            )
            self.version = made.version
        elif spec == "current":
            not_there("registering the current Python", "submit jobs with this object instead")
        return self

    def build(self, workspace: object, image_build_compute: object = None) -> Build:
        """Environments are built on the nodes, by the first job that uses them."""
        self.register(workspace)
        return Build()

    build_local = build

    def add_private_pip_wheel(self, *_: Any, **__: Any) -> None:
        not_there("Environment.add_private_pip_wheel", "name the wheel's path in the pip packages")

    def save_to_directory(self, path: str, overwrite: bool = False) -> None:
        """Write Azure's files of it to a folder: its definition, conda file and Dockerfile."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=overwrite)
        self.python.conda_dependencies.save_to_file(path, _CONDA_FILE)
        if self.docker.base_dockerfile is not None:
            (folder / _DOCKERFILE).write_text(self.docker.base_dockerfile)
        definition = {
            "name": self.name,
            "version": self.version,
            "environmentVariables": self.environment_variables,
            "python": {"userManagedDependencies": self.python.user_managed_dependencies},
            "docker": {"baseImage": self.docker.base_image, "shmSize": self.docker.shm_size},
        }
        (folder / _DEFINITION).write_text(json.dumps(definition, indent=4))

    def as_spec(self) -> str | Document:
        """The environment of a job file."""
        own = self.python.conda_dependencies
        packages = own.as_dict()["dependencies"]
        docker = self.docker
        default = docker.base_image in (None, DEFAULT_CPU_IMAGE, DEFAULT_GPU_IMAGE)
        if self._base is not None and not packages and default and not docker.base_dockerfile:
            return f"azureml:{self._base}"
        if self._base is not None:
            curated = re.sub("@.*", ":latest", self._base.lower())
            return _built(f"FROM mcr.microsoft.com/azureml/curated/{curated}\n", own)
        if docker.base_dockerfile is not None:
            return _built(docker.base_dockerfile, own)
        image = None if default else docker.base_image
        if image is not None and (self.python.user_managed_dependencies or not packages):
            return {"image": image}
        if self.python.user_managed_dependencies or not packages:
            return "current"
        conda = {"conda_file": own.as_dict()}
        return conda if image is None else {"image": image, **conda}

    def __repr__(self) -> str:
        return f"Environment(name={self.name}, version={self.version})"


class Build:
    """The build of an image, which is none here."""

    status = "Succeeded"

    def wait_for_completion(self, show_output: bool = True) -> Build:
        if show_output:
            print("Nothing to build: nodes make the environment when the first job needs it.")
        return self


def _built(dockerfile: str, own: CondaDependencies) -> Document:
    """A build of an image, with packages on top. Nodes build it long after the program's end: its
    Dockerfile stays in the home, once for each content."""
    text = dockerfile if dockerfile.endswith("\n") else f"{dockerfile}\n"
    if own.conda_packages:
        text += f"RUN conda install -y {shlex.join(own.conda_packages)}\n"
    if own.pip_packages:
        text += f"RUN pip install {shlex.join(own.pip_packages)}\n"
    home = settings.home()
    folder = home.dockerfiles / hashlib.sha256(text.encode()).hexdigest()[:16]
    home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "Dockerfile").exists():
        folder_trees.write_file(folder / "Dockerfile", text)
    return {"build": {"path": str(folder), "dockerfile_path": "Dockerfile"}}


def _named() -> builtins.list[Any]:
    try:
        return [each for each in Client().environments.list() if each.name]
    except SpecError:
        return []


def _is(line: str, name: str) -> bool:
    return re.split(r"[=<>!~ \[]", line, maxsplit=1)[0] == name
