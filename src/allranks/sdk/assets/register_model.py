"""Register a model from files of a job or of this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.core.transfer_progress import OnProgress, Progress, unheard
from allranks.errors import MissingCode, Problem, SpecError
from allranks.http_client import Client
from allranks.sdk.connection.counted_file import counted
from allranks.sdk.submit.paths import local
from allranks.store.files import trees

if TYPE_CHECKING:
    from allranks.api.assets import CreatedModel, SentFile

# In seconds: the server copies and reads all files.
_PATIENCE = 6 * 3600.0


def register(
    client: Client,
    model: Mapping[str, Any],
    base: Path,
    labels: Sequence[str] = (),
    report: OnProgress = unheard,
) -> CreatedModel:
    """Create a version of a model and return the server's record.

    A relative path starts at ``base``, or in the ``job``. ``report`` receives the progress. Raises
    SpecError for missing files, UsageError for what is not a plain file, Conflict.
    """
    path = None if model.get("job") else local(model.get("path"), base)
    files: dict[str, trees.Source] = {}
    data = dict(model)
    if path is not None:
        if not path.exists():
            hint = f"relative paths start at {base}; of a job: --job JOB --path outputs/…"
            raise SpecError(Problem(f"{str(path)!r} not found", "path", hint=hint))
        report(Progress("reading its files"))
        files = trees.model_files(path, path.resolve() if path.is_dir() else path.resolve().parent)
        data["path"] = str(path)
        data["files"] = [_entry(name, file) for name, file in files.items()]
    while True:
        try:
            report(Progress("the server stores its files"))
            return client.ask(routes.create_model, body=data, label=labels, patience=_PATIENCE)
        except MissingCode:
            _send(client, data["files"], files, report)


def _entry(name: str, file: trees.Source) -> SentFile:
    if isinstance(file, str):
        return {"path": name, "size": 0, "sha256": "", "target": file}
    with file.open("rb") as opened:
        sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
        return {"path": name, "size": opened.tell(), "sha256": sha256}


def _send(
    client: Client,
    entries: Sequence[Mapping[str, Any]],
    files: Mapping[str, trees.Source],
    report: OnProgress,
) -> None:
    of_entries = ((entry["sha256"], files[entry["path"]]) for entry in entries)
    by_hash = {sha256: file for sha256, file in of_entries if isinstance(file, Path)}
    missing = client.ask(routes.missing_blobs, body=[*by_hash])
    sizes = {entry["sha256"]: entry["size"] for entry in entries}
    total, done = sum(sizes[digest] for digest in missing), 0
    for number, digest in enumerate(missing):
        with by_hash[digest].open("rb") as file:
            so_far = Progress("sending its files", done, total, number, len(missing))
            body = counted(file, so_far, report)
            client.call(*routes.put_blob.at(digest), body, timeout=_PATIENCE)
        done += sizes[digest]
