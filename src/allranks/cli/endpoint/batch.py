"""Batch endpoints, for the commands of `allranks endpoint` and `allranks deployment`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.cli.endpoint.deliver import File, deliver
from allranks.cli.output import show
from allranks.errors import NotFound, UsageError
from allranks.sdk.assets import batch
from allranks.sdk.connection import find_server
from allranks.spec.batch import DEPLOYMENT_TAG, SETTINGS
from allranks.spec.fields.scalars import sendable

if TYPE_CHECKING:
    from allranks.api.batch import BatchDeploymentAnswer, BatchEndpointAnswer


def find(name: str) -> BatchEndpointAnswer | None:
    try:
        return find_server.ask(routes.show_batch_endpoint, name)
    except NotFound:
        return None


def create(
    options: argparse.Namespace, data: Mapping[str, Any], lines: Mapping[str, int] | None
) -> int:
    from allranks.spec.batch import parse_batch_endpoint  # lazy: imports the models

    keys = sendable({key: value for key, value in data.items() if key != "type"})
    made = parse_batch_endpoint(keys, lines, options.file)
    answer = find_server.ask(routes.put_batch_endpoint, made.name, body=keys)
    _notes(answer["notes"])
    return show.result(options, answer, f"{made.name} is created; next: allranks deployment create")


def row(made: BatchEndpointAnswer) -> tuple[str, ...]:
    """In the list of endpoints."""
    names = " ".join(item["name"] for item in made["deployments"]) or "-"
    return made["name"], "Batch", made["default_deployment"] or "-", names, "-"


def show_endpoint(options: argparse.Namespace, made: BatchEndpointAnswer) -> int:
    if options.json:
        show.as_json(made)
        return 0
    show.field("name", made["name"])
    show.field("type", "batch")
    show.field("default", made["default_deployment"] or "-")
    for item in made["deployments"]:
        show.field(item["name"], item["model"] or item["type"])
    _notes(made["notes"])
    return 0


def update(options: argparse.Namespace, made: BatchEndpointAnswer) -> int:
    """Change its default deployment, or other keys."""
    from allranks.spec.yaml.load import changed_keys  # lazy: reads YAML

    data = changed_keys(made["spec"], options.set)
    if options.default is not None:
        data["defaults"] = {"deployment_name": options.default}
    if not data and not options.set:  # what is set may be so already
        raise UsageError("nothing to update", hint="--default DEPLOYMENT, or --set KEY=VALUE")
    answer = find_server.ask(routes.put_batch_endpoint, made["name"], body=data)
    default = answer["default_deployment"] or "none"
    return show.result(options, answer, f"{made['name']}: the default deployment is {default}")


def delete(options: argparse.Namespace, made: BatchEndpointAnswer) -> int:
    answer = find_server.ask(routes.delete_batch_endpoint, made["name"])
    return show.result(options, answer, f"{made['name']} is deleted; its jobs stay")


def invoke(options: argparse.Namespace) -> int:
    """Submit the job of a batch deployment, and print its name."""
    # lazy: both read YAML
    from allranks.sdk.submit.deployment import read
    from allranks.spec.yaml.load import override_keys

    data: dict[str, Any] = {}
    base = Path.cwd()
    if options.file is not None:
        data, base, _ = read(Path(options.file))
    override_keys(data, {}, options.set, typed=True)
    inputs = dict(data.pop("inputs", None) or {})
    outputs = dict(data.pop("outputs", None) or {})
    if options.input is not None:
        kind = options.input_type or _type_of(options.input, Path.cwd())
        folder = Path(options.input.removeprefix("file:"))
        if folder.is_dir() and not any(item.is_file() for item in folder.rglob("*")):
            hint = "name the folder that has them, or one file"
            raise UsageError(f"{folder} has no files to score", where="--input", hint=hint)
        inputs[""] = {"type": kind, "path": options.input}
        base = Path.cwd()
    if options.output_path is not None:
        path = options.output_path.removeprefix("folder:")
        outputs["score"] = {"type": "uri_folder", "path": path}
    keys = {"name": options.job_name, "experiment_name": options.experiment_name}
    numbers = {
        "mini_batch_size": options.mini_batch_size,
        "instance_count": options.instance_count,
    }
    overrides = {**(data.pop("settings", None) or {})}
    overrides |= {key: data.pop(key) for key in SETTINGS & data.keys()}
    overrides |= {key: value for key, value in numbers.items() if value is not None}
    data |= {"name": name} if (name := data.pop("job_name", None)) else {}
    job = batch.submit(
        options.name,
        options.deployment,
        inputs,
        base,
        outputs=outputs,
        overrides=overrides,
        keys=data | {key: value for key, value in keys.items() if value is not None},
    )
    _notes(job["notes"])
    show.talk(f"{job['name']} scores it: allranks job stream {job['name']}")
    show.line(job["name"])
    return 0


def _type_of(path: str, base: Path) -> str:
    return "uri_file" if (base / path.removeprefix("file:")).is_file() else "uri_folder"


def list_jobs_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a batch endpoint")
    parser.add_argument("-d", "--deployment", metavar="NAME", help="only jobs of this one")


def list_jobs(options: argparse.Namespace) -> int:
    """List the jobs of a batch endpoint, the newest first."""
    find_server.ask(routes.show_batch_endpoint, options.name)
    rows = batch.jobs_of(options.name, options.deployment)
    head = ("NAME", "STATUS", "DEPLOYMENT", "CREATED")
    cells = [
        (e["name"], e["status"], e["tags"][DEPLOYMENT_TAG], show.moment(e["created_at"]))
        for e in rows
    ]
    return show.listing(options, rows, head, cells)


# ---------------------------------------------------------------- deployments


def put_deployment(
    options: argparse.Namespace,
    data: dict[str, Any],
    base: Path,
    lines: Mapping[str, int] | None,
    verb: str,
) -> int:
    """Create or replace a deployment."""
    from allranks.spec.batch import parse_batch_deployment  # lazy: imports the models

    made = parse_batch_deployment(sendable(data), lines, options.file)
    to = routes.put_batch_deployment.at(made.endpoint_name, made.name)
    more = {"default": True} if getattr(options, "set_default", False) else {}
    file = File(data, base, lines)
    answer: BatchDeploymentAnswer = deliver(options, file, to, more, is_batch=True)
    _notes(answer["notes"])
    named = f"{answer['endpoint']}/{answer['name']}"
    return show.result(options, answer, f"{named} is {verb}; it runs when it is invoked")


def update_deployment(options: argparse.Namespace) -> int:
    """Change keys of a deployment without its file."""
    from allranks.spec.batch import with_changes  # lazy: imports the models
    from allranks.spec.yaml.load import changed_keys  # lazy: reads YAML

    if options.rollback:
        hint = "update it with -f FILE or --set"
        raise UsageError("a batch deployment has no version before", where="--rollback", hint=hint)
    changed = list(options.set)
    if options.instance_count is not None:
        changed.append(f"resources.instance_count={options.instance_count}")
    if not changed:
        hint = "-f FILE, --set KEY=VALUE, or --instance-count N"
        raise UsageError("nothing to update", hint=hint)
    before = batch.deployment_of(options.endpoint, options.name)
    changes = changed_keys(before["spec"], changed)
    spec, component = with_changes(before["spec"], before["component"], changes)
    body = {"deployment": spec, "component": component}
    to = (options.endpoint, options.name)
    answer = find_server.ask(routes.put_batch_deployment, *to, body=body)
    return show.result(options, answer, f"{'/'.join(to)} is updated; it runs when it is invoked")


def list_deployments(options: argparse.Namespace, made: BatchEndpointAnswer) -> int:
    cells = [
        (item["name"], item["type"], _mark(made, item), item["model"] or "-")
        for item in made["deployments"]
    ]
    return show.listing(options, made["deployments"], ("NAME", "TYPE", "DEFAULT", "MODEL"), cells)


def _mark(endpoint: BatchEndpointAnswer, made: BatchDeploymentAnswer) -> str:
    return "yes" if endpoint["default_deployment"] == made["name"] else "-"


def show_deployment(options: argparse.Namespace) -> int:
    made = batch.deployment_of(options.endpoint, options.name)
    if options.json:
        show.as_json(made)
        return 0
    show.field("name", f"{made['endpoint']}/{made['name']}")
    show.field("type", made["type"])
    if made["model"]:
        show.field("model", made["model"])
    _notes(made["notes"])
    return 0


def delete_deployment(options: argparse.Namespace) -> int:
    made = find_server.ask(routes.delete_batch_deployment, options.endpoint, options.name)
    return show.result(options, made, f"{made['endpoint']}/{made['name']} is deleted")


def _notes(notes: Sequence[str]) -> None:
    for note in notes:
        show.talk(f"note: {note}")
