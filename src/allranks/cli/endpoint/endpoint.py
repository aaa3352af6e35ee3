"""`allranks endpoint …`: addresses that answer with models."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.cli.output import show
from allranks.errors import NotFound, UsageError
from allranks.sdk.connection import find_server

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from allranks.api.batch import BatchEndpointAnswer
    from allranks.api.endpoints import (
        DeploymentAnswer,
        EndpointAnswer,
        EndpointEvent,
        ReplicaAnswer,
    )


def online_or_batch(name: str) -> EndpointAnswer | BatchEndpointAnswer:
    """The endpoint of a name. Raises NotFound."""
    try:
        return find_server.ask(routes.show_endpoint, name)
    except NotFound:
        made: BatchEndpointAnswer | None = _batch().find(name)
        if made is None:
            raise
        return made


def is_batch(made: EndpointAnswer | BatchEndpointAnswer) -> TypeIs[BatchEndpointAnswer]:
    return made.get("type") == "batch"


def ready_of(made: DeploymentAnswer) -> str:
    """How many replicas are ready; after an update that failed only some of before it."""
    if made["state"] == "UpdateFailed":
        return f"{made['ready']} of before, 0 of {made['instances']}"
    return f"{made['ready']} of {made['instances']}"


def _batch() -> ModuleType:
    from allranks.cli.endpoint import batch  # lazy: imports the models of pipelines

    return batch


def type_option(parser: argparse.ArgumentParser) -> None:
    kinds = ("online", "batch")
    parser.add_argument("--type", choices=kinds, help="online or batch (that of its file)")


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="an endpoint")


def create_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="its name (the file's)")
    add("-f", "--file", metavar="FILE", help="the endpoint's YAML; - is stdin")
    add("--auth-mode", metavar="MODE", help="key (the default) or none")
    type_option(parser)
    set_option(parser)


def set_option(parser: argparse.ArgumentParser) -> None:
    how = "set a key of the file; repeat"
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=how)


def create(options: argparse.Namespace) -> int:
    """Create an endpoint: it answers when it has a deployment with traffic. A batch endpoint scores
    data in jobs."""
    # lazy: reads YAML and imports the models
    from allranks.sdk.submit.deployment import read
    from allranks.spec.batch import is_batch as is_batch_file
    from allranks.spec.endpoint import parse_endpoint
    from allranks.spec.fields.scalars import sendable
    from allranks.spec.yaml.load import override_keys

    data: dict[str, Any] = {}
    lines = None
    if options.file is not None:
        data, _, lines = read(Path(options.file))
    override_keys(data, {}, options.set, typed=True)
    if options.name is not None:
        data["name"] = options.name
    if options.auth_mode is not None:
        data["auth_mode"] = options.auth_mode
    if options.type == "batch" or (options.type is None and is_batch_file(data)):
        return int(_batch().create(options, data, lines))
    data = sendable(data)
    parse_endpoint(data, lines, options.file)
    made = find_server.ask(routes.create_endpoint, body=data)
    for note in made["notes"]:
        show.talk(f"note: {note}")
    return show.result(
        options, made, f"{made['name']} is created; next: allranks deployment create"
    )


list_endpoints_options = type_option


def list_endpoints(options: argparse.Namespace) -> int:
    rows: list[EndpointAnswer | BatchEndpointAnswer] = []
    if options.type != "batch":
        rows += find_server.ask(routes.list_endpoints)
    if options.type != "online":
        rows += find_server.ask(routes.list_batch_endpoints)
    head = ("NAME", "STATE", "TRAFFIC", "DEPLOYMENTS", "ADDRESS")
    empty = "no endpoints yet\n\nhint: allranks model deploy MODEL, or endpoint create -f FILE"
    return show.listing(options, rows, head, [_row(item) for item in rows], empty)


def _row(made: EndpointAnswer | BatchEndpointAnswer) -> tuple[str, ...]:
    if is_batch(made):
        row: tuple[str, ...] = _batch().row(made)
        return row
    deployments = " ".join(f"{item['name']} ({ready_of(item)})" for item in made["deployments"])
    return (
        made["name"],
        state_of(made),
        traffic_of(made),
        deployments or "-",
        made["scoring_uri"] or "-",
    )


def state_of(made: EndpointAnswer) -> str:
    """Its state, and which deployments without traffic failed."""
    failed = [
        f"{item['name']}, which has no traffic: {item['state']}"
        for item in made["deployments"]
        if item["state"] in ("Failed", "UpdateFailed") and not made["traffic"].get(item["name"])
    ]
    if not failed or not any(made["traffic"].values()):  # then its state is the worst of all
        return made["state"]
    return f"{made['state']} ({'; '.join(failed)})"


def traffic_of(made: EndpointAnswer) -> str:
    mirror = _shares(made["mirror_traffic"])
    shares = _shares(made["traffic"]) or "-"
    for item in made["deployments"]:
        share = made["traffic_when_ready"].get(item["name"])
        if item["takes_traffic"] and share != made["traffic"].get(item["name"]):
            shares += f" ({item['name']}={share} when it is ready)"
    return shares + (f", copied to {mirror}" if mirror else "")


def _shares(percents: Mapping[str, int]) -> str:
    return " ".join(f"{name}={share}" for name, share in percents.items() if share)


def replica_of(replica: ReplicaAnswer) -> str:
    state = "ready" if replica["ready"] else replica["reason"] or "starts"
    where = f" on {replica['host']}" if replica["host"] else ""
    return f"{replica['job']}{where} ({state})"


def unanswered(made: EndpointAnswer) -> list[str]:
    """Which requests of an endpoint nobody answers now, and why."""
    if not _shares(made["traffic"]):
        return ["no deployment has traffic: requests get 404"]
    return [
        f"no replica of {item['name']} is ready: its requests get 503 "
        f"({item['reason'] or 'none has started yet'})"
        for item in made["deployments"]
        if made["traffic"].get(item["name"]) and item["instances"] and not item["ready"]
    ]


get_credentials_options = _name


def show_endpoint_options(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    events = "what has happened to it and its deployments, and why"
    parser.add_argument("--events", action="store_true", help=events)


def delete_options(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    show.yes_option(parser.add_argument)


def show_endpoint(options: argparse.Namespace) -> int:
    """Show an endpoint, its deployments, and how they answer; or why a rollout went as it did."""
    if options.events:
        return _show_events(options)
    made = online_or_batch(options.name)
    if is_batch(made):
        return int(_batch().show_endpoint(options, made))
    if options.json:
        show.as_json(made)
        return 0
    show.field("name", made["name"])
    show.field("state", state_of(made))
    show.field("address", made["scoring_uri"] or "-")
    if made["public_uri"]:
        show.field("public URI", made["public_uri"])
    show.field("key", "none is asked for" if made["auth_mode"] == "none" else "as Bearer")
    show.field("traffic", traffic_of(made))
    for item in made["deployments"]:
        show.field(item["name"], f"{item['state']}, {ready_of(item)} ready")
        if item["model"]:
            show.field("  model", item["model"])
        if item["reason"]:
            show.field("  reason", item["reason"])
        if item["tries"]:
            show.field("  tries", item["tries"])
        if counts := item["counts"]:
            times = (
                ""
                if counts["p50"] is None
                else (f", {counts['p50']:.1f} ms in the median, {counts['p99']:.1f} ms at 99 %")
            )
            show.field(
                "  requests",
                f"{counts['requests']} ({counts['rate']:g} a second now), "
                f"{counts['errors']} failed, "
                f"{counts['refused']} refused{times}",
            )
        for replica in item["replicas"]:
            show.field("  replica", replica_of(replica))
    for note in made["notes"]:
        show.talk(f"note: {note}")
    return 0


def _show_events(options: argparse.Namespace) -> int:
    events = find_server.ask(routes.endpoint_events, options.name)
    rows = [
        (event["at"][:19].replace("T", " "), event["deployment"] or "-", _why(event))
        for event in events
    ]
    return show.listing(options, events, ("TIME", "DEPLOYMENT", "EVENT"), rows)


def _why(event: EndpointEvent) -> str:
    return event["message"] + (f" (by {event['by']})" if event["by"] else "")


def update_options(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    add = parser.add_argument
    add("--traffic", metavar="'A=90 B=10'", help="how requests are divided, in percent")
    add("--mirror-traffic", metavar="'B=10'", help="copied to this deployment, in percent")
    add("--default", metavar="DEPLOYMENT", help="of a batch endpoint: its default deployment")
    set_option(parser)


def update(options: argparse.Namespace) -> int:
    """Divide the requests of an endpoint in another way, or choose the default deployment of a
    batch endpoint."""
    from allranks.spec.yaml.load import changed_keys  # lazy: reads YAML

    data: dict[str, Any] = {}
    if options.default is not None or options.set:
        made = online_or_batch(options.name)
        if is_batch(made):
            return int(_batch().update(options, made))
        if options.default is not None:
            raise UsageError(
                "--default is for batch endpoints", where=options.name, hint="leave it out"
            )
        keys = ("description", "tags", "traffic", "mirror_traffic")
        data = changed_keys({key: made[key] for key in keys}, options.set)  # type: ignore[literal-required]
    data |= {
        key: shares(text, f"--{key.replace('_', '-')}")
        for key, text in (
            ("traffic", options.traffic),
            ("mirror_traffic", options.mirror_traffic),
        )
        if text is not None
    }
    if not data and not options.set:  # what is set may be so already
        raise UsageError("nothing to update", hint='--traffic "blue=90 green=10"')
    changed = find_server.ask(routes.update_endpoint, options.name, body=data)
    lines = [f"warning: {line}" for line in unanswered(changed)]
    return show.result(
        options, changed, f"{changed['name']}: traffic {traffic_of(changed)}", *lines
    )


def shares(text: str, option: str) -> dict[str, int]:
    """``blue=90 green=10``, or with commas. Raises UsageError."""
    percents: dict[str, int] = {}
    for word in text.replace(",", " ").split():
        name, equals, percent = word.partition("=")
        if not equals or not name or not percent.isdigit():
            hint = 'whole numbers from 0 to 100: "A=90 B=10"'
            raise UsageError(f"{word!r} is not NAME=PERCENT", where=option, hint=hint)
        percents[name] = int(percent)
    return percents


def delete(options: argparse.Namespace) -> int:
    """Delete an endpoint with its deployments."""
    made = online_or_batch(options.name)
    several = ", ".join(deployment["name"] for deployment in made["deployments"]) or "no deployment"
    if not show.may_destroy(options, f"delete {options.name} ({several})"):
        return 1
    if is_batch(made):
        return int(_batch().delete(options, made))
    find_server.ask(routes.delete_endpoint, options.name)
    return show.result(options, made, f"{made['name']} is deleted; its replicas stop")


def get_credentials(options: argparse.Namespace) -> int:
    """Print the two keys of an endpoint; either one is accepted."""
    keys = find_server.ask(routes.endpoint_keys, options.name)
    if options.json:
        show.as_json({"primaryKey": keys["primary"], "secondaryKey": keys["secondary"]})
    else:
        show.field("primary", keys["primary"])
        show.field("secondary", keys["secondary"])
    return 0


def regenerate_keys_options(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    which = "primary (the default) or secondary"
    parser.add_argument("--key-type", default="primary", metavar="KEY", help=which)


def regenerate_keys(options: argparse.Namespace) -> int:
    """Replace a key: the old one is refused from then on."""
    body = {"key": options.key_type.lower()}
    keys = find_server.ask(routes.renew_endpoint_key, options.name, body=body)
    return show.result(options, keys, f"{options.name} has a new {body['key']} key")


def invoke_options(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    add = parser.add_argument
    add("-r", "--request-file", metavar="FILE", help="the body of the request; - is stdin")
    add(
        "--data", metavar="TEXT", help="the body itself; @FILE is the content of a file, as in curl"
    )
    add("-d", "--deployment", "--deployment-name", metavar="NAME", help="not by the traffic")
    add("--local", action="store_true", help="the only deployment, if none has traffic")
    add("--content-type", default="application/json", metavar="TYPE", help="that of the body")
    _batch_options(parser)


def _batch_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("batch endpoints").add_argument
    add("--input", metavar="PATH", help="the data to score: a folder, a file or an address")
    add("--input-type", metavar="TYPE", help="uri_folder, uri_file or mltable (by the path)")
    add("-f", "--file", metavar="FILE", help="inputs and outputs as YAML; - is stdin")
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="inputs.lr=0.1, output_file_name=a.csv; repeat",
    )
    add("--output-path", metavar="ADDRESS", help="where the output `score` goes")
    add("--mini-batch-size", type=int, metavar="N", help="instead of the deployment's")
    add("--instance-count", type=int, metavar="N", help="instead of the deployment's")
    add("--job-name", metavar="NAME", help="the name of the job")
    add("--experiment-name", metavar="NAME", help="the job's experiment (the endpoint)")


def invoke(options: argparse.Namespace) -> int:
    """Send a request to an endpoint, and print the answer; of a batch endpoint, submit a job that
    scores data, and print its name."""
    has_body = options.request_file is not None or options.data is not None
    names_job = options.input is not None or options.file is not None or options.set
    if names_job or (not has_body and is_batch(online_or_batch(options.name))):
        if has_body:
            hint = "--input for a batch endpoint; --data or --request-file for an online one"
            raise UsageError("a request has a body or an input, not both", hint=hint)
        return int(_batch().invoke(options))
    from allranks.sdk.assets.endpoints import invoke as send  # lazy: few commands send requests

    if (options.request_file is None) == (options.data is None):
        raise UsageError(
            "what is the request?",
            hint="--request-file FILE, or --data TEXT; of batch --input PATH",
        )
    file = options.request_file
    if options.data is not None and options.data.startswith("@"):
        file = options.data[1:]
    if file is None:
        body = options.data.encode()
    elif file == "-":
        body = sys.stdin.buffer.read()
    else:
        body = _content(Path(file))
    answer = send(options.name, body, options.deployment, options.content_type, options.local)
    text = "\n".join(show.safe_lines(answer)) if sys.stdout.isatty() else answer
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    return 0


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        why = error.strerror or str(error)
        hint = "a file with the body of the request, or - for stdin"
        raise UsageError(f"cannot read the request: {why}", where=str(file), hint=hint) from None
