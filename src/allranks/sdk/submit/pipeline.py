"""Turn a pipeline into a submission: components in place of their files, and all their code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import allranks.agent
from allranks import settings
from allranks.core.job.code_packages import NOT_RECORDED
from allranks.core.packing import pack
from allranks.core.transfer_progress import OnProgress, unheard
from allranks.errors import Problem, SpecError
from allranks.sdk.submit import paths
from allranks.sdk.submit.current_environment import is_current, tools
from allranks.sdk.submit.lock_for_compute import lock_for
from allranks.sdk.submit.names import generate_name
from allranks.sdk.submit.python_packages import packages
from allranks.sdk.submit.send import Snapshots
from allranks.sdk.submit.shell import Shell
from allranks.snapshot.git import GitQuery
from allranks.snapshot.packages import Package
from allranks.snapshot.take import Snapshot, take_snapshot
from allranks.spec.fields.problems import below, in_file
from allranks.spec.pipeline.bindings import is_bound
from allranks.spec.pipeline.component import is_data, parse_component
from allranks.spec.pipeline.job import PACKAGES
from allranks.spec.pipeline.parallel import RUNNER
from allranks.spec.yaml import load

if TYPE_CHECKING:
    from allranks.api.common import Document

# Pipelines in pipelines; deeper ones are most likely a file that names itself.
_DEPTH = 16


def prepare_pipeline(
    spec: Mapping[str, Any],
    base: Path,
    shell: Shell,
    note: Callable[[str], None],
    allow_large: bool,
    progress: OnProgress,
) -> tuple[Document, Snapshots]:
    """The submission of a pipeline and the snapshots of its steps' code. Raises like ``prepare``,
    with keys of the pipeline."""
    git = GitQuery(base.resolve())
    lock = lock_for(spec, shell)
    wheels = () if lock is None else lock.wheels
    reader = Reader(cache(note), allow_large, progress, shell.packages, wheels)
    made = reader.pipeline(dict(spec), base, "")
    made.setdefault("name", generate_name())
    made.setdefault("experiment_name", base.resolve().name or "Default")
    text = packages(shell.variables)
    properties = {**git.result().properties, **({PACKAGES: text} if text else {})}
    if left := {sentence for snapshot in reader.snapshots for sentence in snapshot.left}:
        properties[NOT_RECORDED] = "; ".join(sorted(left))
    if properties:
        made["properties"] = {**properties, **(made.get("properties") or {})}
    submission = {"spec": made, "base": shell.variables, "tools": tools()}
    if lock is not None:
        submission["python"] = pack(lock.python)
    paths.require_text(submission)
    return submission, reader.snapshots


def prepare_component(
    data: Mapping[str, Any],
    base: Path,
    note: Callable[[str], None] = lambda sentence: None,
    allow_large: bool = False,
    progress: OnProgress = unheard,
) -> tuple[Document, Snapshots]:
    """A component to be registered, with the snapshots of its code. Raises like ``prepare``."""
    reader = Reader(note, allow_large, progress)
    made = reader.component(data, base, "")
    paths.require_text(made)
    return made, reader.snapshots


def anchored(data: Mapping[str, Any], base: Path) -> Document:
    """A component or a step with absolute paths of its code, components and environment files."""
    made = dict(data)
    for key in ("code", "component", "trial", "task"):
        if isinstance(made.get(key), str):
            made[key] = _anchored(made[key], base)
        elif isinstance(made.get(key), Mapping):
            made[key] = anchored(made[key], base)
    if made.get("additional_includes"):
        made["additional_includes"] = [_anchored(e, base) for e in made["additional_includes"]]
    if paths.has_files(made.get("environment")):
        made["environment"] = paths.environment_of(made["environment"], base)
    if isinstance(made.get("jobs"), Mapping):
        made["jobs"] = {name: anchored(each, base) for name, each in made["jobs"].items()}
    return made


def _anchored(path: str, base: Path) -> str:
    plain = paths.without_scheme(path)
    return path if paths.is_uri(plain) else str(paths.absolute(plain, base))


class Reader:
    """Reads components, and takes each code folder once. ``packages`` are those of the current
    Python in development, ``wheels`` what else of it goes along."""

    def __init__(
        self,
        note: Callable[[str], None],
        allow_large: bool,
        progress: OnProgress,
        packages: Sequence[Package] = (),
        wheels: Sequence[Path] = (),
    ) -> None:
        self._note, self._allow_large, self._progress = note, allow_large, progress
        self._packages, self._wheels = packages, wheels
        self._taken: dict[tuple[object, ...], Snapshot] = {}
        self._depth = 0

    @property
    def snapshots(self) -> Snapshots:
        return [each for each in self._taken.values() if each.files]

    def pipeline(self, data: Document, base: Path, at: str) -> Document:
        """A pipeline with its components, inputs and outputs, which start at ``base``."""
        made = self._with_data(data, base, at)
        if made.get("component") is not None:
            made["component"] = self._component_of(made["component"], base, _key(at, "component"))
        if isinstance(made.get("jobs"), Mapping):
            made["jobs"] = self._nodes(made["jobs"], base, _key(at, "jobs"))
        return made

    def _nodes(self, jobs: Document, base: Path, at: str) -> Document:
        return {
            name: self._node(dict(node), base, f"{at}.{name}")
            if isinstance(node, Mapping)
            else node
            for name, node in jobs.items()
        }

    def _node(self, node: Document, base: Path, at: str) -> Document:
        if node.get("component") is not None:
            component = self._component_of(node["component"], base, _key(at, "component"))
            node["component"] = component
            return self._with_data(self._with_environment(node, base, at), base, at, component)
        if "trial" in node:
            trial = node["trial"]
            where = _key(at, "trial")
            if isinstance(trial, Mapping) and not trial.keys() & {"inputs", "outputs", "name"}:
                node["trial"] = self._with_code(dict(trial), base, where)
                return self._with_data(node, base, at)
            node["trial"] = self._component_of(trial, base, where)
            return self._with_data(node, base, at, node["trial"])
        if "jobs" in node:
            return self.pipeline(node, base, at)
        if isinstance(node.get("task"), Mapping):
            node["task"] = self._task(node["task"], base, _key(at, "task"))
            return self._with_data(node, base, at)
        return self._with_data(self._with_code(node, base, at), base, at)

    def _component_of(self, component: Any, base: Path, at: str) -> Any:
        """A component: written in place, or from its file. Registered ones stay names."""
        if isinstance(component, Mapping):
            return self.component(component, base, at)
        if not isinstance(component, str):
            return component
        path = paths.without_scheme(component)
        if paths.is_uri(path) or (path.startswith("/") and "/components/" in path):
            return component
        file = paths.absolute(path, base)
        if not file.is_file():
            hint = f"relative paths start at {base}; a registered one is azureml:NAME:VERSION"
            raise SpecError(Problem(f"component file {str(file)!r} not found", at, hint=hint))
        data, lines = load.read(load.content(file), file=str(file))
        parse_component(data, lines, str(file))
        if self._depth == _DEPTH:
            hint = f"does {file.name} name itself?"
            raise SpecError(Problem("components are nested too deeply", at, hint=hint))
        self._depth += 1
        try:
            with in_file(file, lines):
                return self.component(data, file.parent, "")
        finally:
            self._depth -= 1

    def component(self, data: Mapping[str, Any], base: Path, at: str) -> Document:
        """A component with its code and environment, or its steps; paths start at ``base``."""
        made = {key: value for key, value in data.items() if value is not None}
        if isinstance(made.get("jobs"), Mapping):
            made["jobs"] = self._nodes(made["jobs"], base, _key(at, "jobs"))
            return made
        if isinstance(made.get("task"), Mapping):
            made["task"] = self._task(made["task"], base, _key(at, "task"))
            return made
        return self._with_code(made, base, at)

    def _task(self, task: Mapping[str, Any], base: Path, at: str) -> Document:
        """The task of a parallel step. The program that runs its entry script is sent as well."""
        runner = Path(allranks.agent.__file__).parent / "inside" / RUNNER
        return self._with_code({**task, "additional_includes": [str(runner)]}, base, at)

    def _with_code(self, data: Document, base: Path, at: str) -> Document:
        """The keys of a command with the digest of its code."""
        data = self._with_environment(data, base, at)
        includes = [
            paths.absolute(each, base) for each in data.pop("additional_includes", None) or ()
        ]
        value = data.get("code")
        if "snapshot" in data:
            return data
        brought = is_current(data.get("environment"))
        packages = self._packages if brought else ()
        wheels = self._wheels if brought else ()
        code, fetched = None, None
        if value is not None:
            with below(at):
                code, fetched = paths.find_code(value, base)
        elif includes:
            code = includes.pop(0)
        elif not wheels and all(package.only_inside for package in packages):
            return data
        if code is not None:
            data["code"] = str(code)
        key = (code, *includes, bool(packages), bool(wheels))
        if key not in self._taken:
            self._taken[key] = take_snapshot(
                code,
                self._note,
                settings.home().snapshots,
                self._allow_large,
                self._progress,
                includes,
                is_commit=fetched is not None,
                packages=packages,
                wheels=wheels,
            )
        if self._taken[key].files:
            data["snapshot"] = self._taken[key].digest
        return data

    def _with_environment(self, data: Document, base: Path, at: str) -> Document:
        if paths.has_files(data.get("environment")):
            with below(at):
                data["environment"] = paths.environment_of(data["environment"], base)
        return data

    def _with_data(self, data: Document, base: Path, at: str, component: Any = None) -> Document:
        """Inputs and outputs with absolute paths. A text is a path where the component declares
        data."""
        declared = component.get("inputs") or {} if isinstance(component, Mapping) else {}
        inputs = {}
        for name, value in (data.get("inputs") or {}).items():
            definition = declared.get(name)
            declares_data = isinstance(definition, Mapping) and is_data(definition)
            if isinstance(value, str) and declares_data and not is_bound(value):
                value = {"path": value}
            if isinstance(value, Mapping) and not is_bound(value.get("path")):
                with below(at):
                    value = paths.located_input(name, value, base)
            inputs[name] = value
        outputs = {
            name: value
            if isinstance(value, Mapping) and is_bound(value.get("path"))
            else paths.located_output(value, base)
            for name, value in (data.get("outputs") or {}).items()
        }
        data |= {"inputs": inputs} if inputs else {}
        return data | ({"outputs": outputs} if outputs else {})


def _key(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key
