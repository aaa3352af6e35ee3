"""`allranks dev`: interactive sessions on nodes that are kept."""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.api import routes
from allranks.cli.dev import notes
from allranks.cli.job.enter import open_shell
from allranks.cli.job.list_jobs import age
from allranks.cli.output import show
from allranks.cli.output.interrupts import act_on_interrupt
from allranks.cli.parser import duration
from allranks.cli.run_options import take
from allranks.cli.submit.run import environment_of, resources_of
from allranks.cli.submit.send import submit
from allranks.core.amounts import seconds_text
from allranks.core.job.sessions import TAG, session_name
from allranks.errors import AllranksError, Conflict, SpecError, UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.submit.current_environment import asked_for
from allranks.sdk.submit.names import generate_name
from allranks.sdk.submit.shell_variables import with_shell_variables
from allranks.statuses import TERMINAL

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.api.jobs import ListedJob
    from allranks.api.metrics import ShownJob

_JUPYTER = "jupyter"
# Seconds between two looks at a session that waits for its nodes.
_LOOK = 0.3


def dev_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    take(add, "--nodes", default=1)
    take(add, "--procs-per-node", default=1)
    take(add, "--gpus", help="GPUs per node")
    take(add, "--cpus", help="CPUs per node that it waits for (none)")
    take(add, "--memory", help="memory per node, such as 4g (no limit)")
    take(add, "--environment", help="as of `allranks run` (current)")
    take(add, "--image", help="in a container of this image")
    take(add, "--allow-builds", help=argparse.SUPPRESS)
    take(add, "--compute", help="where (the default compute)")
    take(add, "--code", default=".", help="the folder that is put there (.)")
    take(add, "--in-place", help="work in the folder itself, without copying it")
    take(add, "--allow-large-code")
    take(add, "--env", help="a variable there")
    take(add, "--name", help="its name; its job is dev-NAME (generated)")
    take(add, "--timeout", default=8 * 3600.0, help="it ends after this time (8h)")
    idle = "it ends if nothing uses it for this time (1h)"
    add("--idle-timeout", type=duration, default=3600.0, metavar="TIME", help=idle)
    add("--no-jupyter", action="store_true", help="start no JupyterLab there")
    take(add, "--detach", help="open no shell, and do not wait for the nodes")


def dev(options: argparse.Namespace) -> int:
    """Keep nodes with your code in place, and open a shell there. `allranks run --in NAME -- …`
    runs jobs on them at once, `allranks dev pull NAME` fetches what was changed. It goes on
    when you leave, until its time is over, nothing uses it for a while, or `allranks dev stop`."""
    name = session_name(options.name or generate_name())
    mark = notes.add(name, notes.note_of(Path(options.code), in_place=options.in_place))
    spec = {**_spec(options, name), "properties": {notes.PROPERTY: mark}}
    try:
        options.allow_large_data = False
        made = submit(options, with_shell_variables(spec), Path.cwd())
    except AllranksError as error:
        if not getattr(error, "sent", False):  # else the session may be there
            notes.remove(name, mark)
        if isinstance(error, Conflict) and str(error.where).endswith("name"):
            error.hint = (
                f"if it runs, enter it: allranks dev attach {name}; else use another --name, or "
                f"first: allranks job delete {name}"
            )
        if isinstance(error, SpecError):
            from allranks.cli.submit.option_words import in_option_words  # lazy: only for errors

            raise in_option_words(error, options) from None
        raise
    if not options.quiet:
        for note in made["notes"]:
            # How to open JupyterLab is said once the nodes are there.
            if options.detach or not note.startswith(f"to open {_JUPYTER}:"):
                show.talk(f"note: {note}")
    if options.detach:
        show.as_json({"name": name, "status": made["status"]}) if options.json else print(name)
        if not options.json and not options.quiet:
            show.talk(f"to enter it: allranks dev attach {name}")
        act_on_interrupt(options)
        return 0
    return _enter(options, name)


def _spec(options: argparse.Namespace, name: str) -> Document:
    ranks = options.nodes * options.procs_per_node
    distribution = {"type": "pytorch", "process_count_per_instance": options.procs_per_node}
    spec: Document = {
        "name": name,
        "command": f"sleep {math.ceil(options.timeout)}",
        "code": options.code,
        "compute": options.compute,
        "environment": environment_of(options),
        "environment_variables": asked_for(options.env, False),
        "resources": resources_of(options),
        "distribution": distribution if ranks > 1 else None,
        "session": {"timeout": options.timeout, "idle_timeout": options.idle_timeout},
        "services": {} if options.no_jupyter else {_JUPYTER: {"type": "jupyter_lab"}},
        "tags": {TAG: "dev"},
    }
    return {key: value for key, value in spec.items() if value not in (None, {})}


def attach_options(parser: argparse.ArgumentParser) -> None:
    _session_argument(parser)
    parser.add_argument("--node", type=int, default=0, metavar="N", help="the node to enter (0)")


def attach(options: argparse.Namespace) -> int:
    """Open a shell in a session, and say how else to get in; as often as you like, from any machine
    that is logged in."""
    return _enter(options, _named(options), options.node)


def _enter(options: argparse.Namespace, name: str, node: int = 0) -> int:
    try:
        act_on_interrupt(options)
        job = _running(name, options.quiet or options.json)
    except KeyboardInterrupt:
        show.talk(f"\n{name} goes on\n\nhint: allranks dev attach {name}, allranks dev stop {name}")
        return 130
    ways = _ways(job)
    if options.json:
        show.as_json({"name": name, "status": job["status"], **ways})
        return 0
    for what, way in ways.items():
        # Each on one line, to be copied.
        print(f"{what:<11} {show.one_line(way)}")
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        return 0
    show.talk(f"a shell on node {node} of {name}: `exit` leaves, and the session goes on")
    code = open_shell(name, None, node)
    if not options.quiet:
        show.talk(f"{name} goes on: allranks dev attach | pull | stop {name}")
    return code


def _running(name: str, quiet: bool) -> ShownJob:
    """Wait until the session runs. Raises Conflict if it has ended."""
    line, began = show.StatusLine(quiet), time.monotonic()
    try:
        while True:
            job = notes.session_job(name)
            if job["status"] == "Running":
                return job
            if job["status"] in TERMINAL:
                error = job["error"]
                message = error["message"] if error else job["status"]
                hint = f"allranks job explain {name}; another one: allranks dev"
                raise Conflict(f"{name} has ended: {message}", hint=hint)
            reason = f": {job['status_reason']}" if job["status_reason"] else ""
            took = seconds_text(int(time.monotonic() - began)).replace(".0 s", " s")
            line.say(f"{name} {job['status']} ({took}){reason}")
            time.sleep(_LOOK)
    finally:
        line.clear()


def _ways(job: ShownJob) -> dict[str, str]:
    """How to get in, beside a shell."""
    name, ways = job["name"], dict[str, str]()
    try:
        from allranks.cli.ssh.ssh_config import written  # lazy: an extra may be missing

        config, host = written(name, None, None)
        ways["ssh"] = f"ssh -F {config} {host}"
    except AllranksError as error:
        ways["ssh"] = f"not available: {error.message}"
    for service in job["services"]:
        if service["name"] == _JUPYTER and service["state"] == "Failed":
            ways[_JUPYTER] = f"not available: {service['message']}"
        elif service["name"] == _JUPYTER:
            with find_server.connect() as client:
                page = f"{client.url}{service['page']} or " if service["page"] else ""
            ways[_JUPYTER] = f"{page}allranks job port-forward {name} {_JUPYTER}"
    ways["run"] = f"allranks run --in {name} -- python train.py"
    return ways


def list_sessions_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="also those that have ended")


def list_sessions(options: argparse.Namespace) -> int:
    jobs = [job for job in _sessions() if options.all or job["status"] not in TERMINAL]
    rows = [
        (
            job["name"],
            job["status"],
            show.size(job),
            job["compute"],
            job["created_by"],
            age(job),
        )
        for job in jobs
    ]
    head = ("NAME", "STATUS", "SIZE", "COMPUTE", "BY", "AGE")
    return show.listing(options, jobs, head, rows, "no session: allranks dev starts one")


def stop_options(parser: argparse.ArgumentParser) -> None:
    _session_argument(parser)


def stop(options: argparse.Namespace) -> int:
    """End a session, with the jobs in it: each gets its time to save. What was changed there and
    not fetched is in the job's files: `allranks job files NAME`."""
    from allranks.cli.ssh import keys  # lazy: few commands use ssh

    name = _named(options)
    job = notes.session_job(name)
    if job["status"] in TERMINAL:
        keys.remove(name)
        return show.result(options, job, f"{name} has ended already")
    canceled = find_server.ask(routes.cancel_job, name)
    keys.remove(name)
    return show.result(options, canceled, f"{name} ends")


def _session_argument(parser: argparse.ArgumentParser) -> None:
    name = "the session (the only one that runs)"
    parser.add_argument("name", nargs="?", metavar="NAME", help=name)


def _named(options: argparse.Namespace) -> str:
    if options.name is not None:
        return session_name(options.name)
    live = [job["name"] for job in _sessions() if job["status"] not in TERMINAL]
    if len(live) != 1:
        hint = "`allranks dev` starts one" if not live else f"name one: {', '.join(live)}"
        raise UsageError("no session runs" if not live else "several sessions run", hint=hint)
    return live[0]


def _sessions() -> list[ListedJob]:
    return find_server.ask(routes.list_jobs, tag=f"{TAG}=dev", limit=200)
