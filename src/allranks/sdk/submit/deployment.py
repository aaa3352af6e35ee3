"""A deployment's file, and the job of its replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.core.transfer_progress import OnProgress, unheard
from allranks.sdk.submit import paths
from allranks.sdk.submit.current_environment import current, tools
from allranks.sdk.submit.prepare import prepare
from allranks.sdk.submit.send import Snapshots
from allranks.spec.endpoint import parse_deployment, replica_job
from allranks.spec.fields.scalars import sendable
from allranks.spec.yaml import load

if TYPE_CHECKING:
    from allranks.api.common import Document


def read(file: Path) -> tuple[Document, Path, Mapping[str, int]]:
    """The keys in a file, the folder that their paths start at, and their lines."""
    data, lines = load.read(load.content(file), file=str(file))
    return dict(data), file.absolute().parent, lines


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
        from allranks.spec.batch import component_of, parse_batch_deployment  # lazy: as above

        component = component_of(parse_batch_deployment(sent, lines, file))
        reader = Reader(note, allow_large, progress)
        made = reader.pipeline({"component": component}, base, "")["component"]
        submitter = {"base": current(), "tools": tools()}
        body = {"deployment": sent, "component": made, "submitter": submitter}
        paths.require_text(body)
        return body, reader.snapshots
    job = replica_job(parse_deployment(sent, lines, file))
    submission, snapshots = prepare(
        job, base, note=note, allow_large=allow_large, progress=progress
    )
    submission["spec"].pop("name", None)
    return {"deployment": sent, "submission": submission}, snapshots
