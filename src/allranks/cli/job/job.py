"""`allranks job show`, `cancel`, `preempt`, `release`, `wait` and `events`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.cli.job.follow_or_detach import SUCCESS, verdict
from allranks.cli.job_names import (
    OneOfSeveral,
    full_name,
    job_argument,
    whole_job_argument,
)
from allranks.cli.output import load, rank_table, show
from allranks.cli.output.failure import (
    exit_code,
    hold_hint,
    lost_output,
    metric_notes,
    unsaved,
    why,
)
from allranks.cli.parser import duration
from allranks.cli.report.goodput import summary
from allranks.core.amounts import counted
from allranks.errors import AllranksError, Unreachable, UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.jobs import interrupt
from allranks.sdk.jobs.goodput_facts import job_times
from allranks.sdk.jobs.metrics import across_ranks
from allranks.statuses import HELD, TERMINAL, JobStatus

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.api.jobs import (
        EnvironmentOfJob,
        EventAnswer,
        JobAnswer,
        NodeOfJob,
        ServiceAnswer,
        StateOfJob,
    )
    from allranks.api.metrics import NodeLoad, ShownJob
    from allranks.http_client import Client

# The number of metrics, nodes and ranks shown.
_MOST = 8
# Above this number of nodes their use is summed up.
_FEW_NODES = 4
# More jobs than anybody has running.
_ALL = 100_000
# Parameters in one line: trackers log them by the hundred.
_PARAMETERS = 20


def show_job_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)


def _by(job: Any) -> str:
    return "" if job["created_by"] == "owner" else f" by {job['created_by']}"


def _shape(job: Any) -> str:
    distribution = job["distribution"]
    several = [show.size(job)] + ([] if distribution == "none" else [distribution])
    if gpus := job["gpus_per_node"]:
        several.append(f"{counted(gpus, 'GPU')} per node")
    return ", ".join(several)


def show_job(options: argparse.Namespace) -> int:
    client = find_server.connect()
    job = client.ask(routes.show_job, options.name, peaks=True)
    if options.json:
        show.as_json(job)
        return 0
    if job["type"] != "command":
        from allranks.cli.job.parents import show_parent  # lazy: few jobs have children

        show_parent(job)
        return 0
    times = job_times(client, options.name)
    waits_for = "" if job["ended_at"] else job["status_reason"]
    remark = job["leftovers"] or waits_for
    reason = f" ({remark})" if remark else ""
    lines = [
        ("name", job["name"]),
        *_of_parent(job),
        *_parameters(job),
        *_labels(job),
        ("status", job["status"] + reason),
        ("experiment", job["experiment_name"]),
        ("compute", job["compute"] + (f" (its job {ref})" if (ref := job["cluster_job"]) else "")),
        ("environment", _environment(job["environment"])),
        *_pythons(job["environment"], job["nodes"]),
        ("command", job["command"]),
        ("size", _shape(job)),
        ("attempts", str(job["attempts"])),
        ("created", show.moment(job["created_at"]) + _by(job)),
        ("started", show.moment(job["started_at"])),
        ("ended", show.moment(job["ended_at"])),
        ("goodput", summary(times.goodput) or "-"),
        ("exit code", "-" if job["exit_code"] is None else str(job["exit_code"])),
        ("folder", job["folder"]),
        *_state(job["state"]),
        *_unsaved(job, times.events),
        *((f"output {name}", path) for name, path in job["outputs"].items()),
        *_network(job["node_states"], on_cluster=bool(job["cluster_job"])),
        *_metrics(job),
        *(_load(job["peaks"], ", at most") if job["ended_at"] else _load(job["load"])),
        *_ranks(job),
        *_notes(times.events, job["attempts"]),
        *_services(job["services"], client.url),
        *_settings_of(job["spec"]),
    ]
    for name, value in lines:
        show.field(name, value)
    if (job["status_reason"] or "").startswith(HELD):
        show.field("hint", hold_hint(job["name"]))
    if job["error"]:
        error = job["error"]
        show.field("error", f"{error['reason']} (blame: {error['blame']}): {error['message']}")
        for line in why(error):
            name, _, value = line.partition(": ") if line[0] != " " else ("", "", line.strip())
            show.field(name, value)
        if error["hint"]:
            show.field("hint", error["hint"])
    return 0


def _notes(events: Sequence[EventAnswer], attempt: int) -> list[tuple[str, str]]:
    """Lines that ranks logged for metrics and that are none, and that output may be missing."""
    notes = metric_notes(events, attempt)
    of_lines = (note["message"] for note in notes if "missed" not in note)
    messages = dict.fromkeys([*of_lines, *lost_output(events)])
    return [("note", message) for message in messages]


def _of_parent(job: ShownJob) -> list[tuple[str, str]]:
    """The job that it is a child of."""
    if not job["parent_job_name"]:
        return []
    reused = [("reused", job["reused"])] if job["reused"] else []
    return [("parent", job["parent_job_name"]), *reused]


def _parameters(job: ShownJob) -> list[tuple[str, str]]:
    """What a trial was given, flags of the command line, and what the script logged."""
    values = [f"{name}={value}" for name, value in job["parameters"].items()]
    more = f", and {len(values) - _PARAMETERS} more: --json" if len(values) > _PARAMETERS else ""
    return [("parameters", ", ".join(values[:_PARAMETERS]) + more)] if values else []


def _labels(job: ShownJob) -> list[tuple[str, str]]:
    """Its display name, tags and whether it is archived."""
    name, tags, archived = job["display_name"], job["tags"], job["archived_at"]
    lines = [("display name", name)] if name != job["name"] else []
    lines += [("tags", ", ".join(f"{k}={v}" if v else k for k, v in tags.items()))] if tags else []
    return [*lines, ("archived", show.moment(archived))] if archived else lines


def _state(state: StateOfJob) -> list[tuple[str, str]]:
    """The name and newest version of its state folder, if it has content."""
    if state["own"] and state["version"] is None:
        return []
    newest = f"version {state['version']}" if state["version"] else "no version yet"
    return [("state", f"{state['name']}, {newest}")]


def _unsaved(job: ShownJob, events: Sequence[EventAnswer]) -> list[tuple[str, str]]:
    """What a job that did not complete could not save."""
    if job["ended_at"] is None or job["status"] == SUCCESS:
        return []
    return [("unsaved", message) for message in unsaved(events, job["attempts"])]


def _environment(environment: EnvironmentOfJob) -> str:
    """The environment of the ranks, and what it replaces."""
    requested = environment.get("asked_for")
    return f"{_what(environment)} (requested: {requested})" if requested else _what(environment)


def _pythons(environment: EnvironmentOfJob, nodes: int) -> list[tuple[str, str]]:
    """The Python that ran, of each group of nodes that have the same."""
    lines = []
    for python in environment.get("pythons") or ():
        made = ""
        if python["packages"] is not None:
            is_current = environment["name"] == "current"
            source = "built from your current environment" if is_current else "built for the job"
            made = f", {source}: {python['packages']} packages"
        some = len(python["nodes"]) < nodes
        where = f" on node {', '.join(map(str, python['nodes']))}" if some else ""
        lines.append(("python", f"{python['version']} ({python['path']}{made}){where}"))
    return lines


def _what(environment: EnvironmentOfJob) -> str:
    """Its image or name, with packages on top of an image; otherwise its definition."""
    if environment.get("image"):
        packages = _packages(environment)
        return f"the image {environment['image']}" + (f" with {packages}" if packages else "")
    return str(environment["name"]) if environment.get("name") else _packages(environment)


def _packages(environment: EnvironmentOfJob) -> str:
    lines = environment.get("requirements") or []
    python = [f"python {environment['python']}"] if environment.get("python") else []
    more = f", … ({len(lines)} in all)" if len(lines) > 4 else ""
    return ", ".join([*python, *lines[:4]]) + more


def _metrics(job: ShownJob) -> list[tuple[str, str]]:
    """The last value of each metric with a sparkline."""
    if not job["metrics"]:
        return []
    answer = find_server.ask(routes.metrics_summary, job["name"], mean=True)
    rows = across_ranks(answer["series"])
    shown = rows[:_MOST]
    values = [show.number(row.last) for row in shown]
    names = [f"metric {row.name}" for row in shown]
    lines = [
        (
            name.ljust(max(map(len, names))),
            f"{value:<{max(map(len, values))}}  {show.sparkline(row.shape)}"
            + (f"  mean of {row.ranks} ranks" if row.ranks > 1 else ""),
        )
        for name, value, row in zip(names, values, shown, strict=True)
    ]
    rest = counted(len(rows) - _MOST, "metric")
    more = [("", f"and {rest} more: allranks job metrics {job['name']}")]
    return lines + (more if len(rows) > _MOST else [])


def _load(nodes: list[NodeLoad], suffix: str = "") -> list[tuple[str, str]]:
    """The resource use of each node, or of all together if there are many, with ``suffix`` at the
    end of each."""
    if len(nodes) > _FEW_NODES:
        (name, text), *rows = load.summary(nodes)
        return [(name, text + suffix), *rows]
    rows = []
    for node in nodes:
        name = f"node {node['node']}"
        rows.append((name, f"{load.own(node)}: this job{suffix}"))
        rows.append(("", f"{load.node(node['node_load'])}: all that runs there{suffix}"))
        rows += [(f"{name} gpu {gpu['gpu']}", load.gpu(gpu) + suffix) for gpu in node["gpus"]]
    return rows


def _ranks(job: ShownJob) -> list[tuple[str, str]]:
    """Who holds the others; of a job that runs, how its ranks go."""
    notices = rank_table.notices(job["slow_ranks"])
    rows = [("" if at else "slow", notice) for at, notice in enumerate(notices)]
    if job["ended_at"] or job["started_at"] is None or job["processes"] < 2:
        return rows
    table = find_server.ask(routes.job_ranks, job["name"])
    lines = rank_table.shown(table, _MOST, f": allranks top {job['name']}")
    return [*rows, *(("" if at else "ranks", line) for at, line in enumerate(lines))]


def _services(services: list[ServiceAnswer], url: str) -> list[tuple[str, str]]:
    """Each service, how it goes, and its page."""
    rows = list[tuple[str, str]]()
    for service in services:
        where = f" on node {service['node']}" if service["node"] else ""
        kind = f" ({service['type']})" if service["type"] else ""
        why = f": {service['message']}" if service["message"] else ""
        page = f", {url}{service['page']}" if service["page"] else ""
        text = f"{service['name']}{kind}{where}: {service['state']}{why}{page}"
        rows.append(("" if rows else "services", text))
    return rows


def _settings_of(spec: Document) -> list[tuple[str, str]]:
    """The tier and identity in the job file, if any."""
    tier = (spec.get("queue_settings") or {}).get("job_tier")
    size = (spec.get("resources") or {}).get("instance_type")
    lines = [("instance", size)] if size else []
    lines += [("tier", tier)] if tier else []
    identity = spec.get("identity") or {}
    return [*lines, ("identity", identity["type"])] if identity else lines


def _network(nodes: list[NodeOfJob], on_cluster: bool) -> list[tuple[str, str]]:
    """The nodes' hosts, by name where they are others, and network interfaces."""
    hosts = [
        (f"{node['host']} " if on_cluster and node["host"] != node["address"] else "")
        + f"{node['address']} ({node['interface'] or '?'})"
        for node in nodes
        if node["address"]
    ]
    more = f" and {len(hosts) - 4} more" if len(hosts) > 4 else ""
    return [("network", ", ".join(hosts[:4]) + more)] if hosts else []


def events_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)


def events(options: argparse.Namespace) -> int:
    answer = find_server.connect().ask(routes.job_events, options.name)
    if options.json:
        show.as_json(answer)
        return 0
    rows = [
        (
            event["at"][11:23],
            f"{event['launch']}.{event['attempt']}",
            "" if event["node"] is None else str(event["node"]),
            "" if event["rank"] is None else str(event["rank"]),
            event["kind"],
            ", ".join(f"{k}={_brief(value)}" for k, value in event["data"].items() if k != "since"),
        )
        for event in answer
    ]
    show.columns(("TIME", "ATTEMPT", "NODE", "RANK", "EVENT", ""), rows)
    return 0


def cancel_options(parser: argparse.ArgumentParser) -> None:
    name = "jobs: each a whole name, or - for the newest"
    parser.add_argument("name", nargs="*", type=OneOfSeveral, metavar="NAME", help=name)
    every = "all jobs of yours that have not ended, but for replicas of endpoints"
    parser.add_argument("--all", action="store_true", help=every)
    show.yes_option(parser.add_argument)
    force = "do not wait for a cluster that does not answer"
    parser.add_argument("--force", action="store_true", help=force)


def cancel(options: argparse.Namespace) -> int:
    """Tries all jobs; then raises the error of the one, or an error of those, that cannot be."""
    if bool(options.name) == options.all:
        hint = "allranks job cancel NAME …, or --all for all of yours that have not ended"
        raise UsageError("name the jobs to cancel, or give --all", where="NAME", hint=hint)
    jobs: list[JobAnswer] = []
    errors: dict[str, AllranksError] = {}
    with find_server.connect() as client:
        names = _unended(client) if options.all else list(dict.fromkeys(options.name))
        if not names:
            return show.result(options, [], "no job of yours is running or waiting")
        if options.all and not show.may_destroy(options, _question(names)):
            return 1
        for name in names:
            try:
                jobs.append(_canceled(client, name, options))
            except AllranksError as error:
                errors[name] = error
                if isinstance(error, Unreachable):
                    break
    if options.json and jobs:
        show.as_json(jobs[0] if len(options.name) == 1 else jobs)
    if errors:
        raise _combined(errors)
    return 0


def _canceled(client: Client, name: str, options: argparse.Namespace) -> JobAnswer:
    if isinstance(name, OneOfSeveral):
        name, note = full_name(name, yes=options.yes)
        if note and not options.quiet:
            show.talk(f"note: {note}")
    job = client.ask(routes.cancel_job, name, force=options.force or None)
    if not (options.json or options.quiet):
        _show_canceled(job, force=options.force)
    return job


def _combined(errors: dict[str, AllranksError]) -> AllranksError:
    several = list(errors.values())
    if len(several) == 1:
        return several[0]
    hints = dict.fromkeys(error.hint for error in several if error.hint)
    message = f"cannot cancel {counted(len(errors), 'job')}: {'; '.join(map(str, several))}"
    return UsageError(message, where=", ".join(errors), hint="; ".join(hints))


def _unended(client: Client) -> list[str]:
    """The caller's jobs that have not ended, without those that another job submitted, and without
    the replicas of endpoints, which would be started again."""
    me = client.ask(routes.show_server)
    statuses = [status for status in JobStatus if status not in TERMINAL]
    jobs = client.ask(routes.list_jobs, status=statuses, limit=_ALL, archived="all")
    endpoints = client.ask(routes.list_endpoints)
    deployments = [item for endpoint in endpoints for item in endpoint["deployments"]]
    replicas = {replica["job"] for item in deployments for replica in item["replicas"]}
    own = (job["name"] for job in jobs if job["created_by"] == me["user"])
    return [name for name in own if name not in replicas]


def _question(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST]) + (", …" if len(names) > _MOST else "")
    return f"cancel {counted(len(names), 'job')} ({shown})"


def _show_canceled(job: JobAnswer, *, force: bool) -> None:
    ended = job["ended_at"] is not None
    outcome = f"already ended: {job['status']}" if ended else "canceling"
    show.talk(f"{job['name']} {outcome}")
    if "does not answer" in (job["status_reason"] or "") and not force:
        show.talk("\nhint: its cluster does not answer; if it is gone, add --force")


def preempt_options(parser: argparse.ArgumentParser) -> None:
    whole_job_argument(parser)
    parser.add_argument("--node", type=int, metavar="N", help="only this node (all)")


def preempt(options: argparse.Namespace) -> int:
    job = interrupt.preempt(options.name, options.node)
    if options.json:
        show.as_json(job)
    elif not options.quiet:
        which = "all nodes" if options.node is None else f"node {options.node}"
        show.talk(f"{job['name']}: preempting {which}; its ranks have the grace period to end")
        if job["spec"].get("retry", {}).get("max_attempts", 1) == 1:
            show.talk(
                "\nhint: it will not restart by itself; submit with --max-attempts 2 for that"
            )
    return 0


def release_options(parser: argparse.ArgumentParser) -> None:
    whole_job_argument(parser)
    retry = "start another attempt on the same nodes, even if --max-attempts is used up"
    parser.add_argument("--retry", action="store_true", help=retry)


def release(options: argparse.Namespace) -> int:
    """End a job that is held after a failure; its ranks end as they would have."""
    job = interrupt.release(options.name, retry=options.retry)
    if options.json:
        show.as_json(job)
    elif not options.quiet:
        what = f"attempt {job['attempts'] + 1} follows" if options.retry else "it ends"
        show.talk(f"{job['name']} is released: {what}")
    return 0


def wait_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    parser.add_argument(
        "--timeout", type=duration, metavar="TIME", help="give up after it, such as 90 or 30m"
    )


def wait(options: argparse.Namespace) -> int:
    """Exits with the job's exit code; 124 on timeout."""
    until = None if options.timeout is None else time.monotonic() + options.timeout
    find_server.connect().ask(routes.show_job, options.name)
    while True:
        left = 20.0 if until is None else max(0.0, min(20.0, until - time.monotonic()))
        job = _waited(options.name, left)
        if job["ended_at"] is not None:
            break
        if until is not None and time.monotonic() >= until:
            why = f": {job['status_reason']}" if job["status_reason"] else ""
            show.talk(f"{job['name']} is still {job['status']} after {options.timeout:g} s{why}")
            if options.json:
                show.as_json(job)
            return 124
    if options.json:
        show.as_json(job)
        return exit_code(job)
    return verdict(job, quiet=options.quiet)


def _waited(name: str, seconds: float) -> JobAnswer:
    """One wait; if the server goes away, find it and wait again."""
    for attempt in range(3):
        try:
            return find_server.connect().ask(routes.wait_for_job, name, timeout=seconds)
        except AllranksError:
            if attempt == 2:
                raise
            time.sleep(0.2)
    raise AssertionError


def _brief(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"
