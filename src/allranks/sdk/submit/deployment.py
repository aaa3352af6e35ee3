"""A deployment's file, and the job of its replicas."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from allranks.api import routes
from allranks.core.data.model_flavor import MLMODEL, script_problem
from allranks.core.environments import of_model
from allranks.core.packing import pack
from allranks.core.transfer_progress import OnProgress, unheard
from allranks.errors import NotFound, Problem, SpecError
from allranks.http_client import Client
from allranks.sdk.submit import paths
from allranks.sdk.submit.current_environment import tools
from allranks.sdk.submit.lock_for_compute import lock_for
from allranks.sdk.submit.prepare import prepare
from allranks.sdk.submit.send import Snapshots
from allranks.sdk.submit.shell import Shell
from allranks.spec.endpoint import (
    CodeConfiguration,
    Deployment,
    InlineModel,
    loads_model,
    parse_deployment,
    replica_job,
)
from allranks.spec.fields.problems import nearest, placed
from allranks.spec.fields.scalars import sendable
from allranks.spec.job_parts import Environment
from allranks.spec.yaml import load

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.spec.batch import BatchDeployment

AnyOfModel = TypeVar("AnyOfModel", "Deployment", "BatchDeployment")


def read(file: Path) -> tuple[Document, Path, Mapping[str, int]]:
    """The keys in a file, the folder that their paths start at, and their lines."""
    data, lines = load.read(load.content(file), file=str(file))
    return dict(data), file.absolute().parent, lines


def on_compute_of_endpoint(data: Mapping[str, Any], client: Client) -> Document:
    """The keys of a deployment, with its endpoint's compute if it names none: another machine needs
    the current Python. One without its endpoint is refused when it is sent."""
    keys = dict(data)
    if not keys.get("compute") and (name := keys.get("endpoint_name")):
        with contextlib.suppress(NotFound):
            if compute := client.ask(routes.show_endpoint, str(name))["compute"]:
                keys["compute"] = compute
    return keys


def prepare_deployment(
    data: Mapping[str, Any],
    base: Path,
    lines: Mapping[str, int] | None = None,
    file: str | None = None,
    *,
    is_batch: bool = False,
    note: Callable[[str], None] = lambda sentence: None,
    progress: OnProgress = unheard,
    allow_large: bool = False,
) -> tuple[Document, Snapshots]:
    """What the API wants for a deployment, and the snapshots of its code; of a batch one with the
    pipeline component of its jobs. Raises SpecError."""
    sent = sendable(dict(data))
    if is_batch:
        from allranks.sdk.submit.pipeline import Reader  # lazy: few deployments are batch ones
        from allranks.spec.batch import (  # lazy: as above
            BatchDeployment,
            component_of,
            parse_batch_deployment,
        )

        batch = parse_batch_deployment(sent, lines, file)
        if isinstance(batch, BatchDeployment):
            _require_script(batch.code_configuration, base, lines, file)
        if isinstance(batch, BatchDeployment):
            batch = _with_environment(batch, base)
        component = component_of(batch)
        shell = Shell()
        steps = component.get("jobs") if isinstance(component, Mapping) else None
        lock = lock_for({**sent, "jobs": steps}, shell)
        wheels = () if lock is None else lock.wheels
        reader = Reader(note, allow_large, progress, shell.packages, wheels)
        made = reader.pipeline({"component": component}, base, "")["component"]
        submitter: Document = {"base": shell.variables, "tools": tools()}
        if lock is not None:
            submitter["python"] = pack(lock.python)
        body = {"deployment": sent, "component": made, "submitter": submitter}
        paths.require_text(body)
        return body, reader.snapshots
    parsed = parse_deployment(sent, lines, file)
    _require_script(parsed.code_configuration, base, lines, file)
    if isinstance(parsed.model, InlineModel) and loads_model(parsed):
        folder = base / parsed.model.path
        files = [path.name for path in (folder, *folder.rglob("*")) if path.is_file()]
        if files and (problem := script_problem("the model", files)):
            raise SpecError([placed(problem, lines or {})], file=file)
    if (own := parsed.code_configuration) and _lacks_init(base / own.code / own.scoring_script):
        note(f"{own.scoring_script} has no init(): nothing is loaded before the first request")
    parsed = _with_environment(parsed, base)
    job = replica_job(parsed)
    submission, snapshots = prepare(
        job, base, note=note, allow_large=allow_large, progress=progress
    )
    submission["spec"].pop("name", None)
    if parsed.model is not None:
        submission.setdefault("tools", tools())  # its environment may be made
    return {"deployment": sent, "submission": submission}, snapshots


def _with_environment(made: AnyOfModel, base: Path) -> AnyOfModel:
    """The deployment of a model of this machine with the environment that the model brings."""
    is_here = isinstance(made.model, InlineModel) and "://" not in made.model.path
    if not is_here or made.environment is not None or getattr(made, "command", None):
        return made
    assert isinstance(made.model, InlineModel)
    top = base / Path(made.model.path.removeprefix("file:")).expanduser()
    files = [str(path.relative_to(top)) for path in top.rglob(MLMODEL) if path.is_file()]
    if (folder := of_model.folder_of(files)) is None:
        return made
    paths = {name: top / folder / name for name in of_model.FILES}
    texts = {
        name: path.read_text(errors="replace")
        for name, path in paths.items()
        if path.is_file() and path.stat().st_size <= of_model.LARGEST
    }
    own = of_model.environment_of(texts, made.model.name or top.name)
    return made if own is None else made.model_copy(update={"environment": Environment(**own)})


def _lacks_init(script: Path) -> bool:
    """Whether a script with Azure's ``run`` names no ``init``."""
    text = script.read_text(errors="replace") if script.is_file() else ""
    return bool(re.search(r"\bdef run\b", text)) and not re.search(r"\binit\b", text)


def _require_script(
    configuration: CodeConfiguration | None,
    base: Path,
    lines: Mapping[str, int] | None,
    file: str | None,
) -> None:
    """Raises SpecError if a folder of this machine lacks its scoring script."""
    if configuration is None:
        return
    script, folder = configuration.scoring_script, base / configuration.code
    leads_out = os.path.normpath(script).startswith("../")
    is_there = (folder / script).is_file() and not leads_out
    if not folder.is_dir() or Path(script).is_absolute() or is_there:
        return
    hint = nearest(script, (item.name for item in folder.iterdir()))
    if leads_out:
        above = os.path.normpath(f"{configuration.code}/{os.path.dirname(script)}")
        name = os.path.basename(script)
        hint = f"name the folder that is sent: --code {above} --script {name}"
    key = "code_configuration.scoring_script"
    why = f"the scoring script {script} is not in {folder}"
    problem = Problem(why, key, hint=hint or "its path starts at the folder `code`")
    raise SpecError([placed(problem, lines or {})], file=file)
