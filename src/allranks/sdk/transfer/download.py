"""Download the files of a job in the layout of `az ml job download`. Running it again continues."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from allranks import folder_trees
from allranks.agent.data.file_entry import FileEntry
from allranks.api import routes
from allranks.core.data import kept_files
from allranks.core.data.node_files import WRITTEN
from allranks.core.data.state_manifest import stays_inside
from allranks.core.job.file_addresses import address, downloaded
from allranks.core.shared_work import Shared, Worker, large_first
from allranks.core.transfer_progress import OnProgress, Progress, unheard
from allranks.errors import AllranksError, NotFound, ServerError
from allranks.http_client import Client, shaped
from allranks.sdk.jobs.files import folder_times, leads_to_folder, link_targets, selected
from allranks.sdk.transfer.fetch import SMALL, Entry, Fetcher, Place, Tally
from allranks.sdk.transfer.from_store import StoreFetcher, own_data
from allranks.sdk.transfer.from_store import entries as stored_entries
from allranks.sdk.transfer.write_files import (
    beside,
    checked,
    is_there,
    make_folder,
    place_link,
    set_folder_times,
)

if TYPE_CHECKING:
    from allranks.api.assets import DataAnswer, ModelAnswer, ModelFile
    from allranks.api.jobs import FileAnswer
    from allranks.api.metrics import ShownJob

# What answers have to be like.
_JOB = {"type": str, "spec": dict, "outputs": dict, "attempts": int, "ended_at": object}
_ASSET = {"name": str, "version": str, "path": str}
_FILES_OF = [{"path": str, "size": int, "mtime_ns": int}]
# The folders of a job's record; `torn` is for what a kill cut short.
_RECORD = {"torn", *(folder.partition("/")[0] for folder in WRITTEN)}
# Small files are sent in bundles of at most this many bytes and files.
_BUNDLE, _FILES = 2 << 20, 128


class Fetched(NamedTuple):
    """The content of the folder: all files, those that were already ``there``, the bytes
    ``received``, files ``gone`` before their download, skipped symbolic ``links``, paths of other
    files ``left_out``, ``replaced`` files, whose size, time or content differed, and files and
    folders of the job whose path is ``too_long`` to be read."""

    files: list[tuple[Path, int]]
    there: set[Path]
    received: int
    gone: list[str]
    links: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    replaced: tuple[Path, ...] = ()
    too_long: tuple[str, ...] = ()


Unit = list[Entry]


def download(
    connect: Callable[[], Client],
    name: str,
    folder: Path,
    *,
    output: str | None = None,
    everything: bool = False,
    paths: Sequence[str] = (),
    is_flat: bool = False,
    needs_files: bool = False,
    progress: OnProgress = unheard,
) -> Fetched:
    """Fetch ``artifacts/`` (outputs, logs, and the last attempt's user_logs), one named
    ``output`` (``is_flat``: without folders above it), ``everything``, or the files at ``paths``
    (addresses of files or folders, patterns with `*`), over a few connections.

    A file is complete and equal to the server's, or absent. Existing files with the server's size
    and time are skipped; interrupted large files continue. A growing file is downloaded up to its
    size at the start. Folders that the job made come along with their times, and links to files
    and folders of the job; other links and special files are left out.

    Raises NotFound for an output or a file the job has not got, or did not keep, and with
    ``needs_files`` if it has ended and there are none; ServerError where
    one may not write, when the server names files that would lie elsewhere, or when a file keeps
    changing; Unreachable when the server stays away.
    """
    with connect() as client:
        job: ShownJob = shaped(client.ask(routes.show_job, name), _JOB)
        if output is not None:
            _check_output(job, name, output)
        record = _record(client, job, name)
    chosen = _chosen(job, record, paths) if paths else set()
    attempts = job["attempts"]
    everything = everything or job["type"] == "pipeline"  # it has nothing but outputs

    def target(path: str) -> str | None:
        if paths:
            place = downloaded(path, attempts) if path in chosen else None
        else:
            place = _target(path, attempts, output, everything)
        if place is not None:
            checked(place, _RECORD)
        return place.split("/", 2)[2] if place and is_flat else place

    targets = {file["path"]: target(file["path"]) for file in record.files}
    above = "./" if is_flat else ""
    to_link = _links(folder, record.files, targets, above)
    copied = [file for file in record.files if targets[file["path"]] not in to_link]
    entries = list(_entries(copied, targets))
    times = _placed(record.folders, target)
    links = {place: path for path in record.links if (place := target(path))}
    to_link |= _folder_links(record, links, target)
    is_empty = not (entries or times or record.too_long or links)
    if is_empty and (record.not_kept or (needs_files and job["ended_at"])):
        raise _no_files(job, name, output, record)
    served = Place(routes.job_file, routes.job_bundle, routes.job_checksum, name)
    fetched = _served(connect, served, folder, entries, progress)
    for path in times:
        make_folder(folder, path)
    linked = {p for p, text in to_link.items() if place_link(folder, p, text, above)}
    set_folder_times(folder, times)
    not_linked = [place for place in {**links, **to_link} if place not in linked]
    unasked = [path for path in targets if targets[path] is None and output is None and not paths]
    return fetched._replace(
        links=tuple(not_linked),
        too_long=tuple(address(path, attempts) for path in record.too_long),
        left_out=tuple(address(path, attempts) for path in unasked),
    )


class _Record(NamedTuple):
    """What the server lists of a job's record: files, the text of other ``links``, '' for special
    files, and the times of ``folders``; and what was not kept, in sentences."""

    files: list[FileAnswer]
    links: dict[str, str]
    folders: dict[str, int]
    too_long: list[str]
    not_kept: list[str]


def _record(client: Client, job: ShownJob, name: str) -> _Record:
    events = client.ask(routes.job_events, name) if job["ended_at"] else []
    shaped(events, [{"attempt": object, "data": dict}])
    return _Record(
        shaped(client.ask(routes.job_files, name), _FILES_OF),
        link_targets(client.ask(routes.job_links, name, targets=True)),
        {p: t for p, t in folder_times(client, routes.job_files, name).items() if _is_of_job(p)},
        shaped(client.ask(routes.job_files, name, too_long=True), [str]),
        kept_files.sentences(kept_files.summary(events, job["attempts"])),
    )


def _check_output(job: ShownJob, name: str, output: str) -> None:
    """Raises NotFound for an output that is not in the job's record."""
    has = {**(job["spec"].get("outputs") or {}), **job["outputs"]}
    if output not in has:
        hint = f"it has: {', '.join(has) or 'none'}"
        raise NotFound(f"{name} has no output {output!r}", hint=hint)
    if "://" in (place := job["outputs"].get(output, "")):
        uri = f"azureml://jobs/{name}/outputs/{output}/paths/"
        hint = f"read it as an input of another job (-i NAME={uri}) or with the store's own tool"
        message = f"the output {output} is not stored in the job's record"
        raise NotFound(message, where=place, hint=hint)


def _chosen(job: ShownJob, record: _Record, paths: Sequence[str]) -> Set[str]:
    """The paths of the record that were asked for. Raises NotFound."""
    listing = [*record.files, *({"path": path} for path in record.folders)]
    try:
        return selected(job, listing, paths, [*record.links])
    except NotFound as error:
        hint = "; ".join(filter(None, [*record.not_kept, error.hint]))
        raise NotFound(error.message, where=error.where, hint=hint) from None


def _no_files(job: ShownJob, name: str, output: str | None, record: _Record) -> NotFound:
    what = f"the output {output} of {name}" if output is not None else name
    rest = f"what it has: allranks job files {name}"
    if job["type"] == "sweep":
        rest = f"each trial has its own: allranks job download {name}_0"
    return NotFound(f"{what} has no files", hint="; ".join([*record.not_kept, rest]))


def download_model(
    connect: Callable[[], Client],
    reference: str,
    folder: Path,
    *,
    progress: OnProgress = unheard,
) -> Fetched:
    """Download a version of a model into a folder of its name in ``folder``, like ``download``, and
    verify its SHA-256.

    Raises ServerError for a damaged file, NotFound for an unknown model.
    """
    with connect() as client:
        model: ModelAnswer = shaped(client.ask(routes.show_model, reference), _ASSET)
        name, version = _same_name(model["name"], reference), model["version"]
        hashed = [{**_FILES_OF[0], "sha256": str}]
        exact = f"{name}:{version}"
        listing = shaped(client.ask(routes.model_manifest, exact), hashed)
        answer = shaped(client.ask(routes.model_manifest, exact, links=True), [dict])
    # Of a server of 0.1 those are the files again.
    texts = link_targets([each for each in answer if "target" in each])
    listing = [file for file in listing if file["path"] not in texts]
    place = Place(routes.model_file, routes.model_bundle, routes.model_checksum, exact)
    entries = list(_entries(listing, {file["path"]: f"{name}/{file['path']}" for file in listing}))
    fetched = _served(connect, place, folder, entries, progress)
    if fetched.gone:
        hint = "register it again from an intact copy"
        message = f"a file of {name}:{version} is missing on the server"
        raise ServerError(message, where=fetched.gone[0], hint=hint)
    links = {f"{name}/{path}": text for path, text in texts.items()}
    times = folder_trees.newest_times({f"{name}/{f['path']}": f["mtime_ns"] for f in listing})
    return fetched._replace(links=_place_all(folder, links, times))


def download_data(
    connect: Callable[[], Client],
    reference: str,
    folder: Path,
    *,
    progress: OnProgress = unheard,
) -> Fetched:
    """Download a version of a data asset into a folder of its name in ``folder``, like
    ``download``; from an object store without the server, if this machine's own credentials open
    it. Links that could lead out of the folder are skipped.

    Raises NotFound for an unknown version, and for one that is not on the server's disk.
    """
    with connect() as client:
        asset: DataAnswer = shaped(client.ask(routes.show_data, reference), _ASSET)
        name = _same_name(asset["name"], reference)
        stored, files = None, list[FileEntry]()
        with contextlib.suppress(AllranksError):  # refused, perhaps: the server may have better
            if (stored := own_data(client, asset)) is not None:
                files = stored.files()
        if stored is not None and files:
            return _fetched(
                lambda tally, stop: StoreFetcher(stored, files, folder, tally, stop),
                folder,
                stored_entries(name, files),
                progress,
            )
        exact = f"{name}:{asset['version']}"
        listing = shaped(client.ask(routes.data_files, exact), _FILES_OF)
        link = {"path": str, "target": str}
        links = shaped(client.ask(routes.data_links, exact), [link])
        folders = folder_times(client, routes.data_files, exact)
    place = Place(routes.data_file, routes.data_bundle, routes.data_checksum, exact)
    entries = list(_entries(listing, {file["path"]: f"{name}/{file['path']}" for file in listing}))
    fetched = _served(connect, place, folder, entries, progress)
    times = {f"{name}/{path}": folders[path] for path in folders}
    for path in times:
        make_folder(folder, path)
    paths = {f"{name}/{link['path']}": link["target"] for link in links}
    return fetched._replace(links=_place_all(folder, paths, times))


def _place_all(folder: Path, links: Mapping[str, str], times: Mapping[str, int]) -> tuple[str, ...]:
    """Make links, then set the times of folders; returns the links that cannot be made."""
    skipped = [path for path, target in links.items() if not place_link(folder, path, target)]
    set_folder_times(folder, times)
    return tuple(skipped)


def download_state(
    connect: Callable[[], Client],
    name: str,
    folder: Path,
    version: int | None = None,
    *,
    progress: OnProgress = unheard,
) -> Fetched:
    """Download the files of a state, or of a ``version``, into a folder of its name in ``folder``,
    like ``download_model``.

    Raises ServerError for a damaged file, NotFound for an unknown state or version.
    """
    with connect() as client:
        answer = client.ask(routes.state_manifest, name, version=version)
        listing = shaped(answer, [{"what": str, "path": str}])
    files = [each for each in listing if each["what"] == "file"]
    shaped(files, [{**_FILES_OF[0], "sha256": str}])
    taken = {checked(f"{name}/{file['path']}") for file in files}
    entries = [
        Entry(e["sha256"], e["size"], written, target, beside(target, taken), e["sha256"])
        for e in files
        for target, written in [(f"{name}/{e['path']}", e.get("written_ns", e["mtime_ns"]))]
    ]
    place = Place(routes.state_file, routes.state_bundle, routes.state_checksum, name)
    fetched = _served(connect, place, folder, entries, progress)
    if fetched.gone:
        hint = f"another version may be intact: allranks state show {name}"
        raise ServerError("a file of the state is missing on the server", where=name, hint=hint)
    others = {f"{name}/{e['path']}": e for e in listing if e["what"] != "file"}
    folders = {path: e for path, e in others.items() if e["what"] == "folder"}
    for path in folders:
        make_folder(folder, path)
    texts = {path: str(e.get("target", "")) for path, e in others.items() if e["what"] == "link"}
    times = {path: e["written_ns"] for path, e in folders.items() if _is_time(e.get("written_ns"))}
    return fetched._replace(links=_place_all(folder, texts, times))


def _same_name(name: str, reference: str) -> str:
    """The name of the asset that was asked for. Raises ServerError if the server has another."""
    return checked(name, re.split("[:@/]", reference))


def _is_time(mtime_ns: object) -> bool:
    """Whether it is a time that was kept: 0.1 has not kept those of folders."""
    return type(mtime_ns) is int and mtime_ns > 0


def _placed(times: Mapping[str, int], target: Callable[[str], str | None]) -> dict[str, int]:
    return {place: times[path] for path in times if (place := target(path)) is not None}


def _folder_links(
    record: _Record, links: Mapping[str, str], target: Callable[[str], str | None]
) -> dict[str, str]:
    """Of the links by their places those to folders that come along."""
    texts = dict[str, str]()
    for place, path in links.items():
        folder_path = leads_to_folder(path, record.links, record.folders)
        if folder_path and (there := target(folder_path)):
            texts[place] = os.path.relpath(there, os.path.dirname(place) or ".")
    return texts


def _is_of_job(path: str) -> bool:
    """Whether the job made that folder of its record, not we."""
    return path.startswith(("artifacts/", "named-outputs/")) and path.count("/") > 1


def _served(
    connect: Callable[[], Client],
    place: Place,
    folder: Path,
    entries: list[Entry],
    progress: OnProgress,
) -> Fetched:
    """Download from the server."""
    one_at_a_time = threading.Lock()

    def connected() -> Client:
        with one_at_a_time:  # one of several connections starts a missing server
            return connect()

    def fetcher(tally: Tally, stop: threading.Event) -> Fetcher:
        return Fetcher(connected, place, folder, tally, stop)

    return _fetched(fetcher, folder, entries, progress)


def _fetched(
    worker: Callable[[Tally, threading.Event], Worker[Unit]],
    folder: Path,
    entries: list[Entry],
    progress: OnProgress,
) -> Fetched:
    there = [w for w in entries if is_there(folder, w.target, w.size, w.mtime_ns, w.sha256)]
    missing = sorted(set(entries).difference(there))
    differing = [entry for entry in missing if os.path.lexists(folder / entry.target)]
    tally = Tally()
    stop = threading.Event()
    before, whole = (sum(entry.size for entry in files) for files in (there, entries))

    def so_far() -> Progress:
        files = len(there) + len(tally.done) + len(tally.gone)
        return Progress("", before + tally.size, whole, files, len(entries), tally.received)

    units = large_first(missing, lambda entry: entry.size, SMALL, _BUNDLE, _FILES)
    Shared(units, stop).run(lambda: worker(tally, stop), lambda: progress(so_far()))
    gone = {entry.path for entry in tally.gone}
    return Fetched(
        files=[(folder / entry.target, entry.size) for entry in entries if entry.path not in gone],
        there={folder / entry.target for entry in there},
        received=tally.received,
        gone=sorted(gone),
        replaced=tuple(folder / entry.target for entry in differing if entry.path not in gone),
    )


def _entries(
    listing: Sequence[FileAnswer | ModelFile], targets: Mapping[str, str | None]
) -> Iterator[Entry]:
    taken = {checked(target) for target in targets.values() if target is not None}
    for file in listing:
        target = targets[file["path"]]
        if target is not None:
            part = beside(target, taken)
            sha256 = cast("ModelFile", file).get("sha256", "")
            yield Entry(file["path"], file["size"], file["mtime_ns"], target, part, sha256)


def _links(
    folder: Path, listing: Sequence[FileAnswer], targets: Mapping[str, str | None], above: str
) -> dict[str, str]:
    """The links to make, and where they lead. One is a link again if the file that it leads to
    comes along, too; else it is downloaded as that file."""
    links = dict[str, str]()
    for file in listing:
        place, there = targets[file["path"]], targets.get(str(file.get("link", "")))
        if place is None or there is None:
            continue
        target, before = os.path.relpath(there, os.path.dirname(place) or "."), folder / place
        if stays_inside(above + place, target) and (before.is_symlink() or not before.exists()):
            links[place] = target
    return links


def _target(path: str, attempts: int, output: str | None, everything: bool) -> str | None:
    """The local path of a file of the record, or None if it was not requested."""
    if output is not None:
        return path if path.startswith(f"named-outputs/{output}/") else None
    local = downloaded(path, attempts)
    return local if everything or local.startswith("artifacts/") else None
