"""`allranks deployment …` and `allranks model deploy`: replicas that answer for an endpoint."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.cli.endpoint.deliver import File, deliver
from allranks.cli.endpoint.endpoint import (
    is_batch,
    online_or_batch,
    ready_of,
    replica_of,
    set_option,
    traffic_of,
    type_option,
)
from allranks.cli.output import show
from allranks.cli.parser import duration
from allranks.cli.run_options import take
from allranks.errors import NotFound, UsageError
from allranks.sdk.connection import find_server

if TYPE_CHECKING:
    from allranks.api.endpoints import DeploymentAnswer, EndpointAnswer

# Seconds that `create` and `update` wait.
_PATIENCE = 1800.0
# Keys that may name files of this machine.
_OF_FILES = ("environment", "model")
# Seconds without a line where there is no terminal.
_SILENCE = 10.0


def _of_endpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a deployment")
    _endpoint(parser)


def _endpoint(parser: argparse.ArgumentParser, required: bool = True) -> None:
    parser.add_argument(
        *("-e", "--endpoint", "--endpoint-name"),
        required=required,
        metavar="NAME",
        help="its endpoint",
    )


def _from_file(parser: argparse.ArgumentParser, required: bool = True) -> None:
    add = parser.add_argument
    add("-f", "--file", required=required, metavar="FILE", help="the deployment's YAML; - is stdin")
    # SUPPRESS: where it is left out, it takes nothing from --name.
    words: dict[str, Any] = {"nargs": "?", "default": argparse.SUPPRESS, "metavar": "NAME"}
    add("name", help="its name, instead of the file's", **words)
    add("--name", metavar="NAME", help="the same")
    _endpoint(parser, required=False)
    _wait_options(parser)
    type_option(parser)
    set_option(parser)
    take(add, "--allow-large-code")
    take(add, "--allow-large-data")


def _wait_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--no-wait", action="store_true", help="do not wait until it is ready")
    time = f"stop waiting after so many seconds, with exit 124 ({_PATIENCE:g}); it goes on"
    add("--timeout", type=duration, default=_PATIENCE, metavar="TIME", help=time)


def create_options(parser: argparse.ArgumentParser) -> None:
    _from_file(parser)
    add = parser.add_argument
    add("--all-traffic", action="store_true", help="all requests go to it when it is ready")
    add("--set-default", action="store_true", help="the default one of its batch endpoint")
    add("--local", action="store_true", help="accepted: it runs on the server's machine anyway")


def create(options: argparse.Namespace) -> int:
    """Create a deployment, and wait until it is ready. One of a batch endpoint waits for jobs."""
    data, base, lines = _read(options)
    if _is_batch(options, data):
        from allranks.cli.endpoint.batch import put_deployment  # lazy: imports the models

        return put_deployment(options, data, base, lines, "created")
    more = {"all_traffic": True} if options.all_traffic else {}
    return _send(options, data, base, lines, more)


def update_options(parser: argparse.ArgumentParser) -> None:
    _from_file(parser, required=False)
    add = parser.add_argument
    add("--instance-count", type=int, metavar="N", help="change the number of replicas alone")
    add("--rollback", action="store_true", help="back to what it was before its last update")


def update(options: argparse.Namespace) -> int:
    """Update a deployment: new replicas are ready before the old ones stop."""
    if options.file is not None:
        data, base, lines = _read(options)
        if _is_batch(options, data):
            from allranks.cli.endpoint.batch import put_deployment  # lazy: imports the models

            return put_deployment(options, data, base, lines, "updated")
        return _send(options, data, base, lines, is_update=True)
    if options.name is None or options.endpoint is None:
        raise UsageError("which deployment?", hint="NAME -e ENDPOINT, or -f FILE")
    if options.type == "batch" or is_batch(online_or_batch(options.endpoint)):
        from allranks.cli.endpoint import batch  # lazy: imports the models

        return batch.update_deployment(options)
    body: dict[str, Any] = {"rollback": True} if options.rollback else {}
    if options.instance_count is not None:
        body = {"instance_count": options.instance_count}
    names = (options.endpoint, options.name)
    before = find_server.ask(routes.show_deployment, *names)
    from allranks.spec.yaml.load import changed_keys  # lazy: reads YAML

    changed = changed_keys(before["spec"], options.set)
    if _has_files(before["spec"], changed):
        return _send(options, {**before["spec"], **changed}, Path.cwd(), None, is_update=True)
    if changed:
        body = changed if changed.keys() == {"instance_count"} else {"changes": changed}
    if not body and options.set:  # it is so already
        return _ready(options, before)
    if not body:
        hint = "-f FILE, --set KEY=VALUE, --instance-count N or --rollback"
        raise UsageError("nothing to update", hint=hint)
    made = find_server.ask(routes.update_deployment, *names, body=body)
    if not options.rollback:
        return _ready(options, made)
    return _ready(options, made, f"is rolled back{_models(before['spec'], made['spec'])}")


def _has_files(before: Mapping[str, Any], changed: Mapping[str, Any]) -> bool:
    """Whether a change sends files of this machine: another script of the same code is there."""
    codes = [(spec.get("code_configuration") or {}).get("code") for spec in (before, changed)]
    is_other = "code_configuration" in changed and codes[0] != codes[1]
    return is_other or any(isinstance(changed.get(key), dict) for key in _OF_FILES)


def _models(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Another registered model than before, if it is another one."""
    models = [str(spec.get("model", "")) for spec in (before, now)]
    is_other = models[0] != models[1] and all(item.startswith("azureml:") for item in models)
    return f": {' → '.join(item.removeprefix('azureml:') for item in models)}" if is_other else ""


def _is_batch(options: argparse.Namespace, data: Mapping[str, Any]) -> bool:
    from allranks.spec.batch import is_batch as is_batch_file  # lazy: imports the models

    if options.type is not None or is_batch_file(data):
        return bool(options.type != "online")
    from allranks.cli.endpoint.batch import find  # lazy: imports the models

    name = data.get("endpoint_name")
    return bool(name) and find(str(name)) is not None


def _read(options: argparse.Namespace) -> tuple[dict[str, Any], Path, Mapping[str, int]]:
    # lazy: both read YAML
    from allranks.sdk.submit.deployment import read
    from allranks.spec.yaml.load import override_keys

    data, base, lines = read(Path(options.file))
    override_keys(data, {}, options.set, typed=True)
    for key, value in (("name", options.name), ("endpoint_name", options.endpoint)):
        if value is not None:
            data[key] = value
    return data, base, lines


def _send(
    options: argparse.Namespace,
    data: dict[str, Any],
    base: Path,
    lines: Mapping[str, int] | None,
    more: Mapping[str, Any] = {},
    *,
    is_update: bool = False,
) -> int:
    # lazy: imports the models
    from allranks.spec.endpoint import parse_deployment
    from allranks.spec.fields.scalars import sendable

    parsed = parse_deployment(sendable(dict(data)), lines, options.file)
    to = routes.create_deployment.at(parsed.endpoint_name)
    if is_update:
        to = routes.update_deployment.at(parsed.endpoint_name, parsed.name)
    file = File(data, base, lines)
    made: DeploymentAnswer = deliver(options, file, to, more)
    return _ready(options, made)


def _ready(options: argparse.Namespace, made: DeploymentAnswer, outcome: str | None = None) -> int:
    """Wait, with progress; then say the outcome."""
    from allranks.sdk.assets.endpoints import wait  # lazy: as above

    for note in made["notes"]:
        show.talk(f"note: {note}")
    named = f"{made['endpoint']}/{made['name']}"
    if getattr(options, "no_wait", False):
        return show.result(options, made, f"{named} is on its way")
    line = show.StatusLine(options.quiet or options.json)
    try:
        made = wait(made["endpoint"], made["name"], _Progress(line, options).show, options.timeout)
    finally:
        line.clear()
    outcome = outcome or f"is ready: {made['ready']} of {made['instances']}"
    shown = _with_traffic(made) if options.json else made
    return show.result(options, shown, f"{named} {outcome}")


def _with_traffic(made: DeploymentAnswer) -> DeploymentAnswer:
    """For people one that has traffic takes some, not only one that waits for it."""
    traffic = find_server.ask(routes.show_endpoint, made["endpoint"])["traffic"]
    has_some = made["takes_traffic"] or bool(traffic.get(made["name"]))
    return {**made, "takes_traffic": has_some}


class _Progress:
    """A line that is overwritten; without a terminal, one after `_SILENCE` and one for each other
    reason since then."""

    def __init__(self, line: show.StatusLine, options: argparse.Namespace) -> None:
        self._line = line
        self._prints = not (line.is_on or options.quiet or options.json)
        self._began = time.monotonic()
        self._printed = ""

    def show(self, made: DeploymentAnswer) -> None:
        text = _progress(made)
        self._line.say(text)
        # Names of replicas and seconds are no other reason.
        reason = re.sub(r"-r\d+-\w{6}|\d+ s\b", "", text)
        is_late = time.monotonic() - self._began >= _SILENCE
        if self._prints and is_late and reason != self._printed:
            show.talk(text if self._printed else f"{text}; it goes on if you stop waiting: Ctrl-C")
            self._printed = reason


def _progress(made: DeploymentAnswer) -> str:
    from allranks.sdk.assets.endpoints import why_not_ready  # lazy: as above

    why = why_not_ready(made) or "starts"
    return (
        f"{made['endpoint']}/{made['name']}: {made['ready']} of {made['instances']} ready ({why})"
    )


def list_deployments_options(parser: argparse.ArgumentParser) -> None:
    _endpoint(parser)


def list_deployments(options: argparse.Namespace) -> int:
    endpoint = online_or_batch(options.endpoint)
    if is_batch(endpoint):
        from allranks.cli.endpoint import batch  # lazy: imports the models

        return batch.list_deployments(options, endpoint)
    rows = endpoint["deployments"]
    from allranks.sdk.assets.endpoints import why_not_ready  # lazy: as above

    head = ("NAME", "STATE", "READY", "TRAFFIC", "MODEL", "REQUESTS", "REASON")
    shares = endpoint["traffic"]
    return show.listing(
        options,
        rows,
        head,
        [
            (
                item["name"],
                item["state"],
                ready_of(item),
                f"{shares.get(item['name'], 0)} %",
                (item["model"] or "-").removeprefix("azureml:"),
                str((item["counts"] or {"requests": 0})["requests"]),
                why_not_ready(item) or "-",
            )
            for item in rows
        ],
    )


show_deployment_options = _of_endpoint


def delete_options(parser: argparse.ArgumentParser) -> None:
    _of_endpoint(parser)
    show.yes_option(parser.add_argument)


def show_deployment(options: argparse.Namespace) -> int:
    """Show a deployment and its replicas."""
    if is_batch(online_or_batch(options.endpoint)):
        from allranks.cli.endpoint import batch  # lazy: imports the models

        return batch.show_deployment(options)
    made = find_server.ask(routes.show_deployment, options.endpoint, options.name)
    if options.json:
        show.as_json(_with_traffic(made))
        return 0
    show.field("name", f"{made['endpoint']}/{made['name']}")
    show.field("state", f"{made['state']}, {ready_of(made)} ready")
    show.field("revision", str(made["revision"]))
    if made["model"]:
        show.field("model", made["model"])
    if made["reason"]:
        show.field("reason", made["reason"])
    if made["tries"]:
        show.field("tries", made["tries"])
    for item in made["replicas"]:
        show.field("replica", replica_of(item))
    return 0


def delete(options: argparse.Namespace) -> int:
    """Delete a deployment that has no traffic, or one of a batch endpoint."""
    endpoint = online_or_batch(options.endpoint)
    if not show.may_destroy(options, f"delete {options.endpoint}/{options.name}"):
        return 1
    if is_batch(endpoint):
        from allranks.cli.endpoint import batch  # lazy: imports the models

        return batch.delete_deployment(options)
    made = find_server.ask(routes.delete_deployment, options.endpoint, options.name)
    return show.result(options, made, f"{made['endpoint']}/{made['name']} is deleted")


def logs_options(parser: argparse.ArgumentParser) -> None:
    _of_endpoint(parser)
    tail = "the last N lines of each replica"
    parser.add_argument("-l", "--tail", "--lines", type=int, metavar="N", help=tail)


def logs(options: argparse.Namespace) -> int:
    """Print what the replicas of a deployment have printed, the latest one's last. One that has
    failed is first, until another is ready."""
    made = find_server.ask(routes.show_deployment, options.endpoint, options.name)
    names = [item["job"] for item in made["replicas"]]
    failed = made["failed_job"]
    if failed and made["reason"]:
        names.insert(0, failed)
    elif failed:
        show.talk(f"the last one that failed: allranks job logs {failed}")
    if not names:
        earlier = f"allranks job list --archived --name {options.endpoint}-{options.name}-r"
        show.talk(f"{options.endpoint}/{options.name} has no replica now; earlier ones: {earlier}")
        return 0
    from allranks.cli.main import run_words  # lazy: it imports this

    code = 0
    for name in names:
        if len(names) > 1:
            show.talk(f"{name}:")
        tail = ["--tail", str(options.tail)] if options.tail is not None else []
        code = run_words(["job", "logs", name, *tail]) or code
    return code


def deploy_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="NAME[:VERSION]", help="a registered model")
    add("--name", metavar="NAME", help="the endpoint (the model's name)")
    add(
        "--deployment",
        default="default",
        metavar="NAME",
        help="the deployment (default)",
    )
    share = "percent that it gets when it is ready (the first one 100, a further one 0)"
    add("--traffic", type=int, metavar="N", help=share)
    add("--code", metavar="FOLDER", help="the folder of the scoring script")
    add("--script", metavar="FILE", help="a scoring script with init() and run(data)")
    add("--environment", metavar="ENV", help="azureml:NAME:VERSION (the current Python)")
    add("-c", "--compute", metavar="COMPUTE", help="where its replicas run (this machine)")
    add("--instances", type=int, metavar="N", help="the number of replicas (1)")
    gpus = "GPUs of each replica (one, if the nodes have GPUs)"
    add("--gpus", type=int, metavar="G", help=gpus)
    warm = "modules that replicas find imported, e.g. sklearn (repeat)"
    add("--warm", action="append", default=[], metavar="MODULE", help=warm)
    add("--auth-mode", metavar="MODE", help="of a new endpoint: key or none")
    _wait_options(parser)
    take(add, "--allow-large-code")
    take(add, "--allow-large-data")


def deploy(options: argparse.Namespace) -> int:
    """Let a registered model answer requests: an endpoint with one deployment. One that is there
    keeps what is not given: its script and code, environment, replicas, …"""
    name = (
        options.name or options.model.removeprefix("azureml:").partition(":")[0].partition("@")[0]
    )
    name = name.replace("_", "-").replace(".", "-")
    deployment: dict[str, Any] = {
        "name": options.deployment,
        "endpoint_name": name,
        "model": "azureml:" + options.model.removeprefix("azureml:"),
    }
    if options.instances is not None:
        deployment["instance_count"] = options.instances
    for key in ("environment", "compute"):
        if getattr(options, key) is not None:
            deployment[key] = getattr(options, key)
    if options.warm:
        deployment["warm"] = options.warm
    if options.gpus is not None:
        deployment["resources"] = {"gpus_per_instance": options.gpus}
    options.file = None
    try:
        made: EndpointAnswer | None = find_server.ask(routes.show_endpoint, name)
    except NotFound:
        made = None
    deployments = made["deployments"] if made else []
    before = next((e for e in deployments if e["name"] == options.deployment), None)
    has_code = options.script is not None or options.code is not None
    if has_code:
        deployment["code_configuration"] = _code(options, before)
    is_new = made is None
    _prepare_endpoint(name, made, options)
    more = {"traffic": options.traffic} if options.traffic else {}
    if before is not None and not has_code:
        body = {"changes": deployment, **more}
        names = (name, options.deployment)
        code = _ready(options, find_server.ask(routes.update_deployment, *names, body=body))
    elif before is not None:
        changed = {**before["spec"], **deployment}
        code = _send(options, changed, Path.cwd(), None, more, is_update=True)
    else:
        if options.traffic is None and not (made and any(made["traffic"].values())):
            more = {"traffic": 100}
        try:
            code = _send(options, deployment, Path.cwd(), None, more)
        except BaseException:
            made = find_server.ask(routes.show_endpoint, name)
            if is_new and not made["deployments"]:
                find_server.ask(routes.delete_endpoint, name)
            raise
    if not options.json and code == 0:
        made = find_server.ask(routes.show_endpoint, name)
        now = next((e for e in made["deployments"] if e["name"] == options.deployment), None)
        change = _models(before["spec"], now["spec"]) if before and now else ""
        if change and not options.no_wait:
            show.talk(f"{name}/{options.deployment}{change}")
        show.talk(f"it answers at {made['scoring_uri']}; traffic: {traffic_of(made)}")
        alone = ""
        if now and not (made["traffic"].get(now["name"]) or now["takes_traffic"]):
            alone = f" -d {options.deployment}"
            how = f'allranks endpoint update {name} --traffic "{options.deployment}=100"'
            show.talk(f"{options.deployment} has no traffic; to give it all: {how}")
        show.talk(f"try it: allranks endpoint invoke {name}{alone} --data '…'")
    return code


def _code(options: argparse.Namespace, before: DeploymentAnswer | None) -> dict[str, str]:
    """The folder and the script in it, by default that of the deployment. Raises UsageError."""
    own = (before["spec"].get("code_configuration") or {}) if before else {}
    script = options.script or own.get("scoring_script")
    if script is None:
        hint = "name it, as seen from the folder: --script FILE"
        raise UsageError("which script of the folder answers?", where="--code", hint=hint)
    return {"code": options.code or ".", "scoring_script": script}


def _prepare_endpoint(name: str, made: EndpointAnswer | None, options: argparse.Namespace) -> None:
    """Make the endpoint if it is missing. Raises UsageError if it is there with another mode."""
    if made is None:
        body = {"name": name, "auth_mode": options.auth_mode or "key"}
        find_server.ask(routes.create_endpoint, body=body)
    elif options.auth_mode not in (None, made["auth_mode"]):
        hint = "leave --auth-mode out, or make another endpoint: --name NAME"
        raise UsageError(f"{name} is there, with auth_mode {made['auth_mode']}", hint=hint)
