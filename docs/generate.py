"""Write the reference pages from the code: ``python docs/generate.py OUT_DIR``.

The site runs this before its build. Nothing that it writes is committed.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from azure_keys import VERSION, verdicts
from file_keys import (
    ASSETS,
    BATCH_DEPLOYMENT,
    BATCH_ENDPOINT,
    COMPONENT,
    DEPLOYMENT,
    ENDPOINT,
    JOB,
    PIPELINE,
    SCHEDULE,
    SWEEP,
    cell,
    describe,
    fields,
    places,
    sentence,
)
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import allranks
from allranks.cli.commands import COMMANDS
from allranks.cli.examples import EXAMPLES
from allranks.cli.parser import parser_of
from allranks.compat.azure.names import ABSENT, NAMES
from allranks.compat.azure.partial_support import PARTLY
from allranks.compat.ssm.parser import IDLE_FLAGS
from allranks.core.diagnosis.causes import TABLE
from allranks.engines.options import COMMON, Option
from allranks.engines.registry import KINDS
from allranks.settings import Clocks
from allranks.spec import environment_variables
from allranks.spec.compute import Compute
from allranks.spec.datastore import CREDENTIALS, Datastore
from allranks.statuses import VERDICTS, JobStatus

PAGES = {
    "cli.md": "Command line",
    "job-file.md": "Job file",
    "sweep-file.md": "Sweep file",
    "pipeline-file.md": "Pipeline file",
    "component-file.md": "Component file",
    "schedule-file.md": "Schedule file",
    "endpoint-file.md": "Endpoint and deployment files",
    "assets.md": "Asset files",
    "variables.md": "Environment variables",
    "python.md": "Python SDK",
    "azure-names.md": "Names of Azure's SDKs",
    "azure-keys.md": "Keys of Azure's files",
    "failures.md": "Statuses, reasons and failure causes",
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
        "endpoint-file.md": _endpoint_file(),
        "assets.md": _assets(),
        "variables.md": _variables(),
        "python.md": _python(),
        "azure-names.md": _azure_names(),
        "azure-keys.md": _azure_keys(),
        "failures.md": _failures(),
    }
    index = [f"- [{title}]({name})" for name, title in PAGES.items()]
    lines = {name: ["# " + PAGES[name], "", *text] for name, text in texts.items()}
    about = f"These pages are generated from the code of allranks {allranks.__version__}."
    lines["index.md"] = ["# Reference", "", about, "", *index]
    for name, page in lines.items():
        (out / name).write_text("\n".join(page).rstrip() + "\n", encoding="utf-8")
    return [out / name for name in lines]


def _cli() -> Iterator[str]:
    for name, command in COMMANDS.items():
        parser = parser_of(name)
        yield from (f"## allranks {name}", "", sentence(command.help), "")
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
    default = "" if unset else f"`{cell(str(action.default))}`"
    yield f"| `{cell(what.strip())}` | {default} | {sentence(action.help or '')} |"


def _python() -> Iterator[str]:
    for name in allranks._HOMES:
        found = getattr(allranks, name)
        yield from (f"## {name}", "", *_signed(name, found))
        if inspect.isclass(found) and issubclass(found, BaseModel):
            yield from fields(found)
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
    yield "Times are seconds, or `90s`, `30m`, `1.5h`, `7d`, `2w`."
    yield ""
    yield "The keys of a command job. A key that is not listed is an error, except inside"
    yield from ("`distribution`. Every key that is not required may be left out.", "")
    yield from places(JOB, "The job")


def _sweep_file() -> Iterator[str]:
    yield "The keys of a sweep job. Keys that a command job has too, such as `inputs` or"
    yield from ("`trial.resources`, are described in [Job file](job-file.md).", "")
    yield from places(SWEEP, "The sweep")


def _pipeline_file() -> Iterator[str]:
    yield "The keys of a pipeline job. A step has the keys of a command job, a sweep or a pipeline,"
    yield "or those below `jobs.NAME` if it runs a component. Keys that a command job has too are"
    yield from ("described in [Job file](job-file.md).", "")
    yield from places(PIPELINE, "The pipeline")


def _component_file() -> Iterator[str]:
    yield "The keys of a component, which steps of pipelines run. Keys that a command job has too"
    yield from ("are described in [Job file](job-file.md).", "")
    yield from places(COMPONENT, "The component")


def _schedule_file() -> Iterator[str]:
    yield from ("The keys of a schedule.", "")
    yield from places(SCHEDULE, "The schedule")


def _endpoint_file() -> Iterator[str]:
    yield from ("The keys of online and batch endpoints, and of their deployments.", "")
    yield from places(ENDPOINT, "The endpoint")
    yield from places(DEPLOYMENT, "The deployment")
    yield from places(BATCH_ENDPOINT, "The batch endpoint")
    yield from places(BATCH_DEPLOYMENT, "The batch deployment")


def _assets() -> Iterator[str]:
    for title, model in ASSETS.items():
        yield from (f"## {title}", "", *fields(model))
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
        default = "" if each.default is None else f"`{cell(str(each.default))}`"
        kind = ", ".join(f"`{word}`" for word in each.choices) or str(each.type)
        yield f"| `{each.name}` | {kind} | {default} | {sentence(each.help)} |"
    yield ""


def _variables() -> Iterator[str]:
    yield from ("## Variables that you may set", "")
    yield from _pairs("Variable", environment_variables.USER)
    yield from ("## Times of the server", "", "In seconds. They are read when a server starts.", "")
    yield from ("| Variable | Default | Description |", "|---|---|---|")
    for name, text in environment_variables.CLOCKS.items():
        default = Clocks._field_defaults[name.removeprefix("ALLRANKS_").lower()]
        yield f"| `{name}` | {default:g} | {sentence(text)} |"
    yield from ("", "## Variables of each rank", "")
    yield from ("A value of your own wins over any of these.", "")
    for group, names in environment_variables.RANK.items():
        yield from (f"### {group}", "", *_pairs("Variable", names))


def _pairs(head: str, names: Mapping[str, str]) -> Iterator[str]:
    yield from (f"| {head} | Description |", "|---|---|")
    yield from (f"| `{name}` | {sentence(text)} |" for name, text in names.items())
    yield ""


def _azure_names() -> Iterator[str]:
    yield from ("What `allranks python` answers where Azure's packages are not installed.", "")
    for module, names in NAMES.items():
        absent = ABSENT.get(module, {})
        if not (names or absent):
            continue
        yield from (f"## {module}", "", "| Name | Works | Here, or instead |", "|---|---|---|")
        for name, ours in sorted(names.items()):
            partly = PARTLY.get(ours)
            where = f"`{ours.replace(':', '.')}`"
            works = "yes" if partly is None else partly.works
            yield f"| `{name}` | {works} | {where if partly is None else cell(partly.why)} |"
        for name, instead in sorted(absent.items()):
            yield f"| `{name}` | not | {cell(instead)} |"
        yield ""


def _azure_keys() -> Iterator[str]:
    yield f"What becomes of each key of the schemas of azure-ai-ml {VERSION}: it is used, noted at"
    yield from ("submission or creation as without effect, or refused.", "")
    for kind, several in itertools.groupby(verdicts(), lambda verdict: verdict.kind):
        yield from (f"## {kind}", "", "| Key | Here | Why, or instead |", "|---|---|---|")
        yield from (f"| `{v.key}` | {v.status} | {cell(v.why) or '-'} |" for v in several)
        yield ""
    yield from ("## Options of ssm without effect", "", "They are noted.", "")
    yield from ("| Option | Why |", "|---|---|")
    yield from (f"| `{flag}` | {cell(why)} |" for flag, why in IDLE_FLAGS.items())


def _failures() -> Iterator[str]:
    yield from ("## Statuses", "", "A job has one of these statuses:", "")
    yield from (f"- `{status}`" for status in JobStatus)
    yield from ("", "## Reasons", "", "Why an attempt or a job ended.", "")
    yield from (
        "| Reason | Status | Meaning | What to do | Who can fix it |",
        "|---|---|---|---|---|",
    )
    for reason, verdict in VERDICTS.items():
        hint = sentence(verdict.hint) if verdict.hint else ""
        row = (f"`{reason}`", verdict.outcome, sentence(verdict.sentence), hint, verdict.blame)
        yield f"| {' | '.join(row)} |"
    yield from ("", "## Causes", "", "What a failure is explained by.", "")
    yield from (
        "| Cause | Meaning | What to do | Who can fix it | Does a retry help? |",
        "|---|---|---|---|---|",
    )
    for cause, told in TABLE.items():
        entry = (f"`{cause}`", sentence(told.sentence), sentence(told.fix), str(told.blame))
        yield f"| {' | '.join((*entry, _RETRY[told.retryable]))} |"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/generate.py OUT_DIR")
    write(Path(sys.argv[1]))
