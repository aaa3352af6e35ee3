"""`allranks run --in`: a job on the nodes of a session."""

from __future__ import annotations

import argparse

from allranks.api import routes
from allranks.cli.output import show
from allranks.cli.parser import refuse_with
from allranks.core.amounts import counted
from allranks.core.job.sessions import session_name
from allranks.errors import NotFound, UsageError
from allranks.sdk.connection import find_server


def fill_from_session(options: argparse.Namespace) -> None:
    """Fill in what the options leave to the session: its nodes and ranks. Raises UsageError."""
    conflicts = {
        "-c/--compute": options.compute,
        "--in-place": options.in_place,
        "--sweep": options.sweep,
        "--rehearse": options.rehearse,
        "--dry-run": options.dry_run,
    }
    refuse_with("--in", conflicts)
    options.inside = session_name(options.inside)
    try:
        session = find_server.ask(routes.show_job, options.inside)
    except NotFound:
        hint = "`allranks dev list` lists them; `allranks dev` starts one"
        raise UsageError(f"no session named {options.inside!r}", where="--in", hint=hint) from None
    ranks = session["processes"] // session["nodes"]
    if options.nodes is None:
        options.nodes = session["nodes"]
    if options.procs_per_node is None:
        options.procs_per_node = ranks
    if options.code is None and options.nodes > 1 and session["status"] == "Running":
        from allranks.cli.job.session_files import spread  # lazy: few sessions have several nodes

        count = spread(options.inside, min(options.nodes, session["nodes"]))
        if count and not options.quiet:
            show.talk(f"note: {counted(count, 'file')} of node 0 copied to the other nodes")
