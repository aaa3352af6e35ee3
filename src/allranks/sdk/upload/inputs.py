"""The local inputs of a submission: upload what the server cannot see.

The server of one's own home is on the same machine and asked nothing. Another one proves first that
it sees the same data.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.api import routes
from allranks.core.amounts import counted, size_text
from allranks.core.transfer_progress import OnProgress, unheard
from allranks.errors import UsageError
from allranks.http_client import Client
from allranks.sdk.connection import find_server
from allranks.sdk.upload.listing import Note
from allranks.sdk.upload.send import Uploaded, upload
from allranks.store.files import same_data
from allranks.store.files.same_data import Range

if TYPE_CHECKING:
    from allranks.api.assets import Challenge, Proof


# The key of an input's path.
_PATH = re.compile(r"(?:jobs\.[^.]+\.|trial\.)?inputs\.[^.]+\.path")


class How(NamedTuple):
    """How data is uploaded; see ``upload``."""

    allow_large: bool = False
    note: Note = lambda sentence: None
    progress: OnProgress = unheard
    datastore: str = ""

    def upload(self, path: str, connect: Callable[[], Client] = find_server.connect) -> Uploaded:
        """Upload it and tell how much that was."""
        made = upload(
            connect,
            Path(path),
            datastore=self.datastore,
            allow_large=self.allow_large,
            note=self.note,
            progress=self.progress,
        )
        self.note(sentence(path, made))
        return made


def sentence(path: str, made: Uploaded) -> str:
    sent = f"{size_text(made.sent)} sent" if made.sent else "it was there already"
    return f"{path} is uploaded: {counted(made.files, 'file')}, {size_text(made.size)}, {sent}"


def bring(client: Client, submission: Any, how: How) -> Any:
    """The submission with the addresses of local inputs that a server elsewhere cannot see; they
    are uploaded. Raises as ``upload``, and UsageError for a folder to run in that it cannot see."""
    for job in submission if isinstance(submission, list) else [submission or {}]:
        folder = job.get("in_place")
        if folder and unproven(client, [folder]):
            raise UsageError(
                f"the server at {client.url} does not see this folder as it is here",
                where=f"--in-place: {folder}",
                hint="leave --in-place out, and the code goes along with the job; or work in a "
                "folder on a disk that both see at the same path",
            )
    local = {path for holder, key in _local(submission) for path in [holder[key]]}
    return replaced(submission, unproven(client, sorted(local)), how) if local else submission


def bring_set(client: Client, overrides: Sequence[str], how: How) -> list[str]:
    """The same for the overrides of a job's keys, each ``a.b=c``."""
    pairs = [(key, value) for key, _, value in (text.partition("=") for text in overrides)]
    local = {value for key, value in pairs if _PATH.fullmatch(key) and value.startswith("/")}
    unseen = unproven(client, sorted(local)) if local else []
    addresses = {path: how.upload(path).path for path in unseen}
    made = []
    for text, (key, value) in zip(overrides, pairs, strict=True):
        is_unseen = value in addresses and _PATH.fullmatch(key)
        made.append(f"{key}={addresses[value]}" if is_unseen else text)
    return made


def replaced(submission: Any, paths: Iterable[str], how: How) -> Any:
    """The submission with the addresses of these paths, which are uploaded."""
    addresses = {path: how.upload(path).path for path in paths}
    made = deepcopy(submission)
    for holder, key in _local(made):
        holder[key] = addresses.get(holder[key], holder[key])
    return made


def unproven(client: Client, paths: Sequence[str]) -> list[str]:
    """Those of these paths at which the server does not see the same data."""
    challenges: list[Challenge | None] = client.ask(routes.upload_challenges, body=[*paths])
    proofs = {
        path: proof
        for path, challenge in zip(paths, challenges, strict=True)
        if challenge is not None and (proof := _proof(path, challenge)) is not None
    }
    if not proofs:
        return [*paths]
    same: list[bool] = client.ask(routes.upload_proofs, body=[*proofs.values()])
    proven = {path for path, is_same in zip(proofs, same, strict=True) if is_same}
    return [path for path in paths if path not in proven]


def _proof(path: str, challenge: Challenge) -> Proof | None:
    ranges = [Range(*item) for item in challenge["ranges"]]
    try:
        digest = same_data.fingerprint(os.path.realpath(path), challenge["nonce"], ranges)
    except OSError:
        return None
    return {"nonce": challenge["nonce"], "sealed": challenge["sealed"], "digest": digest}


def _local(document: Any) -> Iterator[tuple[MutableMapping[str, Any], str]]:
    """Each local path of an input in a submission: what holds it, and its key there."""
    if isinstance(document, list):
        for item in document:
            yield from _local(item)
    if not isinstance(document, Mapping):
        return
    for key, value in document.items():
        if key == "inputs" and isinstance(value, Mapping):
            for item in value.values():
                path = item.get("path") if isinstance(item, MutableMapping) else None
                if isinstance(path, str) and path.startswith("/"):
                    yield item, "path"
        else:
            yield from _local(value)
