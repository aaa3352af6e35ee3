"""Locate the inputs and outputs of a job: on disk, in datastores, or in the outputs of jobs."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from allranks.agent.data.local_digest import digest_of
from allranks.core.data import addresses
from allranks.core.data.addresses import Located
from allranks.core.plan import OutputTask
from allranks.errors import NotFound, Problem, SpecError, UsageError
from allranks.server.assets import job_files
from allranks.server.assets.datastores import Datastores
from allranks.settings import Home
from allranks.spec.fields.azureml_references import ARTIFACTS, OutputOf, left_by
from allranks.spec.job import CommandJob
from allranks.spec.job_parts import Input
from allranks.spec.model import TYPES
from allranks.spec.shell.expressions import fill
from allranks.statuses import TERMINAL, JobStatus, SharedHome
from allranks.store.jobs.job_rows import JobRow


class NodeDisks(NamedTuple):
    """What the nodes of a compute see. ``home``: whether the disk of the server's home; ``mounts``:
    their folders that outlast them, if that is known; ``compare``: they compare what lies at a path
    with what the server sees there."""

    home: SharedHome = SharedHome.YES
    mounts: Sequence[str] | None = None
    compare: bool = False


_SHARED = NodeDisks()

# Looks up a job by name; raises NotFound. None: it has not been submitted yet.
Find = Callable[[str], JobRow | None]


def places(
    spec: CommandJob,
    datastores: Datastores,
    home: Home,
    find: Find | None = None,
    nodes: NodeDisks = _SHARED,
) -> Mapping[str, Located]:
    """The location of each input and output with a path, by `inputs.NAME` and `outputs.NAME`.

    Without ``find`` (a dry run) outputs of other jobs are assumed at their default place.
    Raises SpecError with every location that is missing or not ready.
    """
    located, problems = {}, []
    for key, path, model in _with_paths(spec, datastores.default()):
        where = f"{key}.path"
        try:
            of = left_by(path, where) if key.startswith("inputs.") else None
            if of is None:
                located[key] = datastores.locate(path, where, model=model)
                _refuse_own_api(located[key], path, home)
                is_output = key.startswith("outputs.")
                if is_output:
                    _require_writable(located[key], path)
                if nodes.home is not SharedHome.YES:
                    located[key] = _for_own_disks(located[key], path, home, nodes, is_output)
            else:
                located[key] = _place(of, home, find)
            if nodes.compare and key.startswith("inputs."):
                located[key] = _with_digest(located[key], home, nodes.mounts or ())
        except SpecError as error:
            problems += [problem._replace(where=where) for problem in error.problems]
    if problems:
        raise SpecError(problems)
    return located


def referred(inputs: Any) -> set[str]:
    """The names of jobs whose outputs a job takes as inputs, by its ``inputs`` as submitted."""
    names = set()
    for value in (inputs or {}).values():
        path = value.get("path") if isinstance(value, Mapping) else value
        with contextlib.suppress(SpecError):
            if isinstance(path, str) and (of := left_by(path, "")) is not None:
                names.add(of.job)
    return names


def _refuse_own_api(place: Located, path: str, home: Home) -> None:
    """Raise SpecError for data at this server's own address on the loopback. Where a
    redirect or a name leads later is seen by the API, which refuses requests for data (see
    `server.authentication`)."""
    if addresses.scheme(place.uri) not in ("http", "https"):
        return
    parts = urlsplit(place.uri)
    try:
        port = parts.port
    except ValueError:  # fetching it says so
        return
    if port in _own_ports(home) and _is_loopback(parts.hostname or ""):
        hint = f"name the job: azureml://jobs/JOB/outputs/{ARTIFACTS}/paths/PATH"
        raise SpecError(Problem(f"{path!r} is the API of this server, not data", hint=hint))


def _own_ports(home: Home) -> set[int]:
    ports = set()
    for file in (home.server, home.front):
        with contextlib.suppress(OSError, ValueError, KeyError):
            ports.add(int(json.loads(file.read_text())["port"]))
    return ports


def _is_loopback(host: str) -> bool:
    """Whether a name or an address, in any spelling, is this machine's loopback."""
    with contextlib.suppress(OSError):
        for answer in socket.getaddrinfo(host, None):
            address = ipaddress.ip_address(str(answer[4][0]).partition("%")[0])
            address = getattr(address, "ipv4_mapped", None) or address
            if address.is_loopback or address.is_unspecified:
                return True
    return False


def _require_writable(place: Located, path: str) -> None:
    """Raise SpecError for places that cannot be written to."""
    if place.asset:
        hint = "give a path; with `name:` the output becomes the next version"
        raise SpecError(
            Problem(f"{path!r} is a version of a data asset, which never changes", hint=hint)
        )
    if place.uri and addresses.address(place.uri).store.kind == "https":
        hint = f"use a bucket or a container: {addresses.SCHEMES.rpartition(' and ')[0]}"
        raise SpecError(Problem(f"{path!r} is a web site, which accepts no uploads", hint=hint))


def _for_own_disks(
    place: Located, path: str, home: Home, nodes: NodeDisks, is_output: bool
) -> Located:
    """The place of data of nodes that do not share the disk of the home: they get inputs from the
    server, and what they send of an output is put there. Raises SpecError where that cannot be."""
    if not place.path:
        return place
    target = Path(os.path.normpath(place.path))
    if nodes.home is SharedHome.AUTO:
        return place._replace(path=str(target))  # a node that does not see it says so
    if not target.is_relative_to(home.root):
        if is_output and nodes.mounts is not None:
            _require_outlasts_nodes(target, path, nodes.mounts)
    elif is_output and home.data not in target.parents:
        hint = "leave `path` out, and the output goes to the job's record; or use a datastore"
        message = f"the nodes cannot write to {path!r}, because they do not share the server's disk"
        raise SpecError(Problem(message, hint=hint))
    elif is_output:
        for each in (target, *target.parents[: target.parents.index(home.data)]):
            if each.is_symlink() or (each.exists() and each != target and not each.is_dir()):
                message = f"{path!r} is not a folder of the store: {each}"
                hint = "name another path; files from such nodes are put through no link"
                raise SpecError(Problem(message, hint=hint))
    return place._replace(path=str(target))


def _require_outlasts_nodes(target: Path, path: str, mounts: Sequence[str]) -> None:
    """Raise SpecError for an output that would be gone with its node."""
    if any(target.is_relative_to(mount) for mount in mounts):
        return
    raise SpecError(
        Problem(
            f"{path!r} would be gone with its node: no volume is mounted there",
            hint="leave `path` out, and the output goes to the job's record; or name a path in "
            "a datastore, such as azureml://datastores/default/paths/NAME; or mount a volume",
        )
    )


def _with_digest(place: Located, home: Home, mounts: Sequence[str]) -> Located:
    """With what the server sees at a path of its own disks. In the home nodes know it by its mark,
    and in their volumes the path is theirs."""
    path = Path(os.path.normpath(place.path)) if place.path else home.root
    if path.is_relative_to(home.root) or any(path.is_relative_to(mount) for mount in mounts):
        return place
    return place._replace(digest=digest_of(path))


def _with_paths(spec: CommandJob, default: str) -> Iterator[tuple[str, str, bool]]:
    """The key and path of each, and whether it is a model."""
    for name, value in spec.inputs.items():
        if isinstance(value, Input):
            yield f"inputs.{name}", value.path, value.type in TYPES
    for name, output in spec.outputs.items():
        if output is not None and output.path:
            values = {"name": spec.name or "", "default_datastore": default}
            yield f"outputs.{name}", fill(output.path, values), False


def _by_default(reference: OutputOf, home: Home) -> Located:
    named = reference.output not in ("", ARTIFACTS)
    folder = f"named-outputs/{reference.output}" if named else ARTIFACTS
    return Located(str(Path(home.jobs, reference.job, folder, reference.path)))


def _place(reference: OutputOf, home: Home, find: Find | None) -> Located:
    try:
        row = None if find is None else find(reference.job)
        if row is not None and find is not None:
            row, reference = job_files.written_by(row, reference, find)
    except NotFound as error:
        raise SpecError(Problem(error.message, hint=error.hint)) from None
    if row is None:
        return _by_default(reference, home)
    status = row.record.status
    left = job_files.find(home, row, reference)
    if status is not JobStatus.COMPLETED:
        raise SpecError(_not_ready(row.name, status))
    if left.output is not None and left.output.uri:
        return _in_store(left.output, reference)
    if not left.path.exists():
        raise SpecError(job_files.left_nothing(home, row, reference))
    return Located(str(left.path))


def _not_ready(name: str, status: JobStatus) -> Problem:
    ended = (
        f"start a job from its files: allranks run --from {name}; "
        f"or download them: allranks job download {name} --path PATH"
    )
    hint = ended if status in TERMINAL else f"wait for it: allranks job wait {name}"
    return Problem(f"the job {name!r} is {status}: its outputs may be incomplete", hint=hint)


def _in_store(output: OutputTask, reference: OutputOf) -> Located:
    try:
        place = addresses.within(addresses.address(output.uri), reference.path)
    except UsageError as error:
        raise SpecError(Problem(error.message, hint=error.hint)) from None
    return Located(uri=str(place), datastore=output.datastore)
