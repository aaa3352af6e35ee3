"""Write the reference pages from the code: ``python docs/generate.py OUT_DIR``.

The site runs this before its build. Nothing that it writes is committed.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import allranks
from allranks.cli.commands import COMMANDS
from allranks.cli.examples import EXAMPLES
from allranks.cli.parser import parser_of
from allranks.engines.options import COMMON, Option
from allranks.engines.registry import KINDS
from allranks.plan.diagnosis.causes import TABLE
from allranks.settings import Clocks
from allranks.spec import environment_variables, job, job_parts, retry, schedule, services
from allranks.spec.compute import Compute
from allranks.spec.data import Data
from allranks.spec.datastore import CREDENTIALS, Datastore
from allranks.spec.descriptions import FIELDS
from allranks.spec.model import Model
from allranks.spec.pipeline import component, parallel
from allranks.spec.pipeline import job as pipeline
from allranks.spec.pipeline.nodes import ComponentNode
from allranks.spec.sweep import early_termination, search_space
from allranks.spec.sweep import job as sweep
from allranks.statuses import VERDICTS, JobStatus

PAGES = {
    "cli.md": "Command line",
    "job-file.md": "Job file",
    "sweep-file.md": "Sweep file",
    "pipeline-file.md": "Pipeline file",
    "component-file.md": "Component file",
    "schedule-file.md": "Schedule file",
    "assets.md": "Asset files",
    "variables.md": "Environment variables",
    "python.md": "Python SDK",
    "failures.md": "Statuses, reasons and failure causes",
}

Kinds = Mapping[str, tuple[type[BaseModel], ...]]

# The models of a job file, by the key that they stand under; `*` is a name of the user's.
JOB: Kinds = {
    "": (job.CommandJob,),
    "inputs.*": (job_parts.Input,),
    "outputs.*": (job_parts.Output,),
    "environment": (job_parts.Environment,),
    "environment.build": (job_parts.BuildContext,),
    "resources": (job_parts.Resources,),
    "distribution": (
        job_parts.PyTorchDistribution,
        job_parts.MpiDistribution,
        job_parts.TensorFlowDistribution,
        job_parts.DeepSpeedDistribution,
        job_parts.HorovodDistribution,
        job_parts.JaxDistribution,
        job_parts.RayDistribution,
        job_parts.NoDistribution,
    ),
    "limits": (job_parts.Limits,),
    "retry": (retry.Retry,),
    "retry.budgets": (retry.Budgets,),
    "metrics.*": (job_parts.Metric,),
    "queue_settings": (job_parts.QueueSettings,),
    "services.*": (
        services.JobService,
        services.SshJobService,
        services.JupyterLabJobService,
        services.TensorBoardJobService,
        services.VsCodeJobService,
    ),
    "identity": (
        services.ManagedIdentityConfiguration,
        services.UserIdentityConfiguration,
        services.AmlTokenConfiguration,
    ),
}
# The same of a sweep.
SWEEP: Kinds = {
    "": (sweep.SweepJob,),
    "trial": (sweep.Trial,),
    "objective": (sweep.Objective,),
    "limits": (sweep.SweepLimits,),
    "sampling_algorithm": (
        sweep.RandomSampling,
        sweep.GridSampling,
        sweep.BayesianSampling,
        sweep.AshaSampling,
    ),
    "search_space.*": search_space.DISTRIBUTIONS,
    "early_termination": early_termination.POLICIES,
}
# The same of a pipeline, with its components.
PIPELINE: Kinds = {
    "": (pipeline.PipelineJob,),
    "settings": (pipeline.Settings,),
    "limits": (pipeline.PipelineLimits,),
    "jobs.*": (ComponentNode,),
}
COMPONENT: Kinds = {
    "": (
        component.CommandComponent,
        component.PipelineComponent,
        component.ParallelComponent,
    ),
    "task": (parallel.ParallelTask,),
    "retry_settings": (parallel.RetrySettings,),
    "inputs.*": (component.ComponentInput,),
    "outputs.*": (component.ComponentOutput,),
}
SCHEDULE: Kinds = {
    "": (schedule.Schedule,),
    "trigger": (schedule.CronTrigger, schedule.RecurrenceTrigger),
    "trigger.schedule": (schedule.RecurrencePattern,),
}
ASSETS: Mapping[str, type[BaseModel]] = {
    "Compute": Compute,
    "Data asset": Data,
    "Datastore": Datastore,
    "Environment": job_parts.Environment,
    "Model": Model,
}
_WORDS: Mapping[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    Any: "any value",
    type(None): "nothing",
    dict: "mapping",
}
_RETRY: Mapping[bool | None, str] = {True: "yes", False: "no", None: "perhaps"}


def write(out: Path) -> list[Path]:
    """Write every page and ``index.md`` below ``out``. Returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    texts = {
        "cli.md": _cli(),
        "job-file.md": _job_file(),
        "sweep-file.md": _sweep_file(),
        "pipeline-file.md": _pipeline_file(),
        "component-file.md": _component_file(),
        "schedule-file.md": _schedule_file(),
        "assets.md": _assets(),
        "variables.md": _variables(),
        "python.md": _python(),
        "failures.md": _failures(),
    }
    index = [f"- [{title}]({name})" for name, title in PAGES.items()]
    lines = {name: ["# " + PAGES[name], "", *text] for name, text in texts.items()}
    lines["index.md"] = ["# Reference", "", "These pages are generated from the code.", "", *index]
    for name, page in lines.items():
        (out / name).write_text("\n".join(page).rstrip() + "\n", encoding="utf-8")
    return [out / name for name in lines]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _sentence(text: str) -> str:
    text = _cell(text)
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def _cli() -> Iterator[str]:
    for name, command in COMMANDS.items():
        parser = parser_of(name)
        yield from (f"## allranks {name}", "", _sentence(command.help), "")
        yield from ("```text", parser.format_usage().strip(), "```", "")
        rows = [row for action in parser._actions for row in _option(action)]
        yield from ("| Option | Default | Description |", "|---|---|---|", *rows, "")
        yield from ("Examples:", "", "```bash")
        yield from (f"allranks {name} {each}".rstrip() for each in EXAMPLES[name])
        yield from ("```", "")


def _option(action: argparse.Action) -> Iterator[str]:
    if action.help == argparse.SUPPRESS:
        return
    shown = action.metavar or (None if action.option_strings else action.dest.upper())
    if action.choices is not None and action.metavar is None:
        shown = ",".join(str(each) for each in action.choices)
    value = f" {shown or action.dest.upper()}" if action.nargs != 0 else ""
    what = ", ".join(action.option_strings) + value
    unset = action.default in (None, False, argparse.SUPPRESS, [], ())
    default = "" if unset else f"`{_cell(str(action.default))}`"
    yield f"| `{_cell(what.strip())}` | {default} | {_sentence(action.help or '')} |"


def _python() -> Iterator[str]:
    for name in allranks._HOMES:
        found = getattr(allranks, name)
        yield from (f"## {name}", "", *_signed(name, found))
        if inspect.isclass(found) and issubclass(found, BaseModel):
            yield from _fields(found)
        if not inspect.isclass(found) or issubclass(found, BaseException):
            continue
        yield from _methods(name, found)
        if found is allranks.Client:
            for part, client in vars(found()).items():
                yield from _methods(f"{name}.{part}", type(client))


def _methods(name: str, found: type) -> Iterator[str]:
    for method, member in vars(found).items():
        if not method.startswith("_") and inspect.isfunction(member) and member.__doc__:
            yield from (f"### {name}.{method}", "", *_signed(method, member))


def _signed(name: str, found: Any) -> Iterator[str]:
    is_model = inspect.isclass(found) and issubclass(found, BaseModel)
    call = _call(found) if is_model else str(inspect.signature(found))
    yield from ("```python", f"{name}{call}", "```", "")
    text = inspect.getdoc(found) or ""
    if is_model and not found.__doc__:  # else it would be that of a base
        text = describe(found, "type")
    yield from (text.strip(), "")


def _call(model: type[BaseModel]) -> str:
    """How a model is made. Types are in the table of its fields; pydantic's own are unreadable."""
    words = []
    for name, field in model.model_fields.items():
        made = field.default is PydanticUndefined
        default = "" if field.is_required() else f"={'…' if made else repr(field.default)}"
        words.append(f"{name}{default}")
    return f"(*, {', '.join(words)})"


def _job_file() -> Iterator[str]:
    yield "The keys of a command job. A key that is not listed is an error, except inside"
    yield from ("`distribution`. Every key that is not required may be left out.", "")
    yield from _places(JOB, "The job")


def _sweep_file() -> Iterator[str]:
    yield "The keys of a sweep job. Keys that a command job has too, such as `inputs` or"
    yield from ("`trial.resources`, are described in [Job file](job-file.md).", "")
    yield from _places(SWEEP, "The sweep")


def _pipeline_file() -> Iterator[str]:
    yield "The keys of a pipeline job. A step has the keys of a command job, a sweep or a pipeline,"
    yield "or those below `jobs.NAME` if it runs a component. Keys that a command job has too are"
    yield from ("described in [Job file](job-file.md).", "")
    yield from _places(PIPELINE, "The pipeline")


def _component_file() -> Iterator[str]:
    yield "The keys of a component, which steps of pipelines run. Keys that a command job has too"
    yield from ("are described in [Job file](job-file.md).", "")
    yield from _places(COMPONENT, "The component")


def _schedule_file() -> Iterator[str]:
    yield from ("The keys of a schedule.", "")
    yield from _places(SCHEDULE, "The schedule")


def _places(kinds: Kinds, top: str) -> Iterator[str]:
    for place, models in kinds.items():
        yield from (f"## {place.replace('*', 'NAME') or top}", "")
        for model in models:
            if len(models) > 1:
                yield from (f"### {_kind(model)}", "")
            yield from _fields(model)


def _kind(model: type[BaseModel]) -> str:
    """How the file tells one model from the others at its place."""
    default = model.model_fields["type"].default
    return f"type: {default}" if default else "any other type"


def _assets() -> Iterator[str]:
    for title, model in ASSETS.items():
        yield from (f"## {title}", "", *_fields(model))
        if model is Compute:
            yield from ("### Options of every engine", "", *_options(COMMON))
            for name, kind in KINDS.items():
                if kind.options:
                    yield from (f"### Options of {name}", "", *_options(kind.options))
        if model is Datastore:
            yield from ("### Credentials", "", "| Type | Keys of `credentials` |", "|---|---|")
            for store, keys in CREDENTIALS.items():
                yield f"| `{store}` | {', '.join(f'`{each}`' for each in keys) or 'none'} |"
            yield ""


def _options(options: Sequence[Option]) -> Iterator[str]:
    yield from ("| Key | Type | Default | Description |", "|---|---|---|---|")
    for each in options:
        default = "" if each.default is None else f"`{_cell(str(each.default))}`"
        kind = ", ".join(f"`{word}`" for word in each.choices) or str(each.type)
        yield f"| `{each.name}` | {kind} | {default} | {_sentence(each.help)} |"
    yield ""


def _fields(model: type[BaseModel]) -> Iterator[str]:
    yield from ("| Key | Type | Default | Description |", "|---|---|---|---|")
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else _default(field.default)
        shown = _type(typing.get_type_hints(model, include_extras=True)[name])
        text = _sentence(describe(model, name))
        yield f"| `{field.alias or name}` | {_cell(shown)} | {default} | {text} |"
    yield ""


def _default(value: Any) -> str:
    if value in (None, (), PydanticUndefined):  # undefined: made by a factory, and empty
        return ""
    text = ", ".join(value) if isinstance(value, tuple) else value
    return f"`{text if isinstance(text, str) else json.dumps(text)}`"


def describe(model: type[BaseModel], name: str) -> str:
    """The description of a field, of the model or of the nearest base that has one."""
    for each in model.__mro__:
        if found := FIELDS.get(each.__name__, {}).get(name):
            return found
    return ""


def _type(kind: Any) -> str:
    """A field's type in words. That it may be absent is not part of it."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _type(inner[0])
    if origin is typing.Literal:
        return " or ".join(f"`{each}`" for each in inner)
    if origin in (typing.Union, types.UnionType):
        words = [_type(each) for each in inner if each is not type(None)]
        return " or ".join(dict.fromkeys(words))
    if origin is tuple:
        return f"list of {_type(inner[0])}"
    if origin is list:
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return "mapping" if inner[1] is Any else f"mapping of names to {_type(inner[1])}"
    if kind is job.Outputs:
        return f"mapping of names to {_type(job_parts.Output)}"
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        return _link(kind)
    return _WORDS[kind]


def _link(model: type[BaseModel]) -> str:
    """A link to the model's keys: by the place, which has a heading."""
    pages = (
        ("job-file.md", JOB),
        ("sweep-file.md", SWEEP),
        ("pipeline-file.md", PIPELINE),
        ("component-file.md", COMPONENT),
        ("schedule-file.md", SCHEDULE),
    )
    page, place = next(
        (page, place) for page, kinds in pages for place, models in kinds.items() if model in models
    )
    heading = place.replace("*", "NAME")
    return f"[`{heading}`]({page}#{anchor(heading)})"


def anchor(heading: str) -> str:
    """The anchor that GitHub and MkDocs both give a heading."""
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in " -_")
    return kept.strip().replace(" ", "-")


def _variables() -> Iterator[str]:
    yield from ("## Variables that you may set", "")
    yield from _pairs("Variable", environment_variables.USER)
    yield from ("## Times of the server", "", "In seconds. They are read when a server starts.", "")
    yield from ("| Variable | Default | Description |", "|---|---|---|")
    for name, text in environment_variables.CLOCKS.items():
        default = Clocks._field_defaults[name.removeprefix("ALLRANKS_").lower()]
        yield f"| `{name}` | {default:g} | {_sentence(text)} |"
    yield from ("", "## Variables of each rank", "")
    yield from ("A value of your own wins over any of these.", "")
    for group, names in environment_variables.RANK.items():
        yield from (f"### {group}", "", *_pairs("Variable", names))


def _pairs(head: str, names: Mapping[str, str]) -> Iterator[str]:
    yield from (f"| {head} | Description |", "|---|---|")
    yield from (f"| `{name}` | {_sentence(text)} |" for name, text in names.items())
    yield ""


def _failures() -> Iterator[str]:
    yield from ("## Statuses", "", "A job has one of these statuses:", "")
    yield from (f"- `{status}`" for status in JobStatus)
    yield from ("", "## Reasons", "", "Why an attempt or a job ended.", "")
    yield from (
        "| Reason | Status | Meaning | What to do | Who can fix it |",
        "|---|---|---|---|---|",
    )
    for reason, verdict in VERDICTS.items():
        hint = _sentence(verdict.hint) if verdict.hint else ""
        row = (f"`{reason}`", verdict.outcome, _sentence(verdict.sentence), hint, verdict.blame)
        yield f"| {' | '.join(row)} |"
    yield from ("", "## Causes", "", "What a failure is explained by.", "")
    yield from (
        "| Cause | Meaning | What to do | Who can fix it | Does a retry help? |",
        "|---|---|---|---|---|",
    )
    for cause, told in TABLE.items():
        entry = (f"`{cause}`", _sentence(told.sentence), _sentence(told.fix), str(told.blame))
        yield f"| {' | '.join((*entry, _RETRY[told.retryable]))} |"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/generate.py OUT_DIR")
    write(Path(sys.argv[1]))
