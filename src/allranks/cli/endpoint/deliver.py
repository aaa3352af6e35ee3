"""Send a deployment with its code, with progress and questions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from allranks.cli.output.sending import confirm_large_code, confirm_large_data, sending
from allranks.sdk.connection import find_server


class File(NamedTuple):
    """The keys of a deployment's file, the folder that its paths start at, and their lines."""

    data: dict[str, Any]
    base: Path
    lines: Mapping[str, int] | None


def deliver(
    options: argparse.Namespace,
    file: File,
    to: tuple[str, str],
    more: Mapping[str, Any],
    is_batch: bool = False,
) -> Any:
    """The server's answer to a request ``to`` a route. ``more`` are further keys of the body."""
    # lazy: imports the models
    from allranks.sdk.submit.deployment import on_compute_of_endpoint, prepare_deployment
    from allranks.sdk.submit.send import send
    from allranks.spec.fields.problems import in_file

    if not is_batch:
        file = file._replace(data=on_compute_of_endpoint(file.data, find_server.connect()))
    with sending(options) as (line, note):
        body, snapshots = confirm_large_code(
            options,
            lambda allow: prepare_deployment(
                *file,
                options.file,
                is_batch=is_batch,
                note=note,
                progress=line.report,
                allow_large=allow,
            ),
        )
        with in_file(options.file, file.lines or {}):
            return confirm_large_data(
                options,
                lambda allow: send(
                    find_server.connect(),
                    {**body, **more},
                    snapshots,
                    line.report,
                    to=to,
                    allow_large_data=allow,
                    note=note,
                ),
            )
