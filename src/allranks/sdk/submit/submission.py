"""Turn a job's definition into a submission, for YAML, SDK and command line.

Paths are made absolute and checked on the client. Works on plain dictionaries, so `allranks run`
need not import the models; the server validates every job.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from allranks import settings
from allranks.errors import AllranksError, MissingCode, Problem, SpecError, Unreachable, UsageError
from allranks.http_client import Client
from allranks.masking import without_credentials
from allranks.plan.progress import OnProgress, Progress, unheard
from allranks.sdk.connection.counted_file import counted
from allranks.sdk.submit.current_environment import current, tools
from allranks.snapshot.git import Checkout, GitQuery, checkout, is_address
from allranks.snapshot.take import Snapshot, take_snapshot

# fmt: off
_ADJECTIVES = (
    "amber", "brave", "bright", "calm", "clever", "crisp", "eager", "gentle", "golden", "happy",
    "jolly", "keen", "kind", "lively", "lucky", "mellow", "merry", "nimble", "noble", "polite",
    "proud", "quick", "quiet", "sharp", "sunny", "witty",
)
_NOUNS = (
    "acorn", "anchor", "apple", "arrow", "badger", "beacon", "bridge", "candle", "cedar", "clover",
    "comet", "coral", "crane", "falcon", "feather", "harbor", "island", "lantern", "maple",
    "meadow", "otter", "pebble", "pepper", "river", "rocket", "sparrow", "tulip", "willow",
)
# fmt: on
# Seconds that a server may take to copy another job's files.
COPYING = 6 * 3600.0
JOBS = "/api/v1/jobs"
Snapshots = Sequence[Snapshot]
_ALPHABET = "bcdfghjkmnpqrstvwxz23456789"


def generate_name() -> str:
    """A name like ``calm_otter_7x2k9q``: easy to say, and unique."""
    dice = os.urandom(10)
    tail = "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in dice[2:])
    return f"{_ADJECTIVES[dice[0] % len(_ADJECTIVES)]}_{_NOUNS[dice[1] % len(_NOUNS)]}_{tail}"


def prepare(
    spec: Mapping[str, Any],
    base: Path,
    *,
    in_place: bool = False,
    note: Callable[[str], None] = lambda sentence: None,
    allow_large: bool = False,
    progress: OnProgress = unheard,
) -> tuple[dict[str, Any], Snapshots]:
    """The submission of a job and its snapshots; relative paths start at ``base``.

    Raises SpecError for missing files, and CodeTooLarge unless ``allow_large``. ``note`` receives
    messages for the user.
    """
    if spec.get("type") == "pipeline":
        # lazy: few jobs are pipelines
        from allranks.sdk.submit.pipeline import prepare_pipeline

        if in_place:
            hint = "leave it out: every step gets a copy of its own code"
            raise UsageError("a pipeline does not run in place", where="--in-place", hint=hint)
        return prepare_pipeline(spec, base, note, allow_large, progress)
    if isinstance(spec.get("trial"), Mapping):
        return _prepare_sweep(spec, base, in_place, note, allow_large, progress)
    spec = dict(spec)
    spec.setdefault("name", generate_name())
    code, fetched = find_code(spec.get("code"), base)
    folder = (code if code.is_dir() else code.parent) if code is not None else base
    own = folder.resolve().name if fetched is None else fetched.repository
    spec.setdefault("experiment_name", own or "Default")
    if "inputs" in spec:
        spec["inputs"] = {
            name: located_input(name, value, base) for name, value in (spec["inputs"] or {}).items()
        }
    if isinstance(spec.get("environment"), Mapping):
        spec["environment"] = environment_of(spec["environment"], base)
    if "outputs" in spec:
        spec["outputs"] = {
            name: located_output(value, base) for name, value in (spec["outputs"] or {}).items()
        }
    if limit := os.environ.get("ALLRANKS_KEEP_WORK"):
        spec.setdefault("keep_work", limit)
    submission: dict[str, Any] = {"spec": spec, "base": current()}
    brought = spec.get("environment") in (None, "current", "azureml:current@latest")
    if not brought or _moves_data(spec):
        submission["tools"] = tools(python=not brought)
    require_text(submission)
    if code is None:
        return submission, ()
    spec["code"] = str(code) if fetched is None else without_credentials(str(spec["code"]))
    if in_place:
        submission["in_place"] = str(folder.resolve())
        return submission, ()
    # Git runs while the files are read; a fetched commit is known already.
    query = GitQuery(folder.resolve()).result if fetched is None else lambda: fetched.git
    snapshot = take_snapshot(code, note, settings.home().snapshots, allow_large, progress)
    git = query()
    if git.properties:
        spec["properties"] = {**git.properties, **(spec.get("properties") or {})}
    if not snapshot.files:
        return submission, ()
    submission |= {"code": snapshot.digest, "diff": git.diff}
    return submission, (snapshot,)


def _prepare_sweep(
    spec: Mapping[str, Any],
    base: Path,
    in_place: bool,
    note: Callable[[str], None],
    allow_large: bool,
    progress: OnProgress,
) -> tuple[dict[str, Any], Snapshots]:
    """A sweep is prepared like one job with the code and environment of its trials."""
    trial = spec["trial"]
    flat = {key: value for key, value in spec.items() if key != "trial"}
    flat |= {key: trial[key] for key in _OF_TRIAL if key in trial}
    with _of_trial():
        submission, snapshots = prepare(
            flat, base, in_place=in_place, note=note, allow_large=allow_large, progress=progress
        )
    made = submission["spec"]
    moved = {key: made.pop(key) for key in _OF_TRIAL if key in made}
    return {**submission, "spec": {**made, "trial": {**trial, **moved}}}, snapshots


# The keys of a sweep's trial that `prepare` changes.
_OF_TRIAL = ("code", "environment", "keep_work")


@contextlib.contextmanager
def _of_trial() -> Iterator[None]:
    """Problems in a trial's keys get the keys of its sweep."""
    try:
        yield
    except SpecError as error:
        problems = [
            each._replace(where=f"trial.{each.where}")
            if str(each.where).partition(".")[0] in _OF_TRIAL
            else each
            for each in error.problems
        ]
        raise SpecError(problems, file=error.file) from None


def find_code(given: Any, base: Path) -> tuple[Path | None, Checkout | None]:
    """The local path of the code; a repository is fetched."""
    if given is None:
        return None, None
    if isinstance(given, str):
        given = without_scheme(given)
        if is_address(given):
            found = checkout(given, settings.home().code)
            return found.folder, found
        if is_uri(given):
            hint = "give a local folder, or a repository: git+https://HOST/PATH.git@REF#FOLDER"
            raise SpecError(Problem(f"code cannot be read from {given!r}", "code", hint=hint))
    return absolute(given, base), None


def send(
    client: Client,
    submission: Mapping[str, Any] | None,
    snapshots: Snapshots = (),
    progress: OnProgress = unheard,
    *,
    where: str = JOBS,
    timeout: float | None = None,
) -> dict[str, Any]:
    """Submit to ``where``, uploading code that the server lacks; returns the server's job. If
    interrupted, tell the server to discard the upload."""
    sent: list[str] = []
    if submission and submission.get("continues"):
        timeout = COPYING
    try:
        while True:
            try:
                body = json.dumps(submission).encode()
                told = client.call("POST", where, body, timeout=timeout)
                made: dict[str, Any] = json.loads(told.body)
                return made
            except MissingCode:
                if not snapshots:
                    raise
                for each in snapshots:
                    send_code(client, each, progress, sent)
    except BaseException as error:
        if isinstance(error, Unreachable) and error.asked and submission and where == JOBS:
            name = submission["spec"]["name"]
            error.hint = f"{name} may have been submitted: check with `allranks job show {name}`"
        if sent:
            client.close()  # the connection may be in the middle of a request
            with contextlib.suppress(AllranksError):
                client.json("POST", "/api/v1/blobs/discard", sent)
        raise


def send_code(
    client: Client,
    snapshot: Snapshot,
    progress: OnProgress = unheard,
    sent: list[str] | None = None,
) -> None:
    """Upload missing chunks, and the manifest last, so that it never refers to missing chunks.
    ``sent`` gets each digest before its upload."""
    told = [] if sent is None else sent
    missing = client.json("POST", "/api/v1/blobs/missing", [*snapshot.parts])
    sizes = {digest: sum(f.status.st_size for f in snapshot.parts[digest]) for digest in missing}
    total, done = sum(sizes.values()), 0
    for digest in missing:
        told.append(digest)
        with snapshot.open(digest) as file:
            body = counted(file, Progress("sending the code", done, total), progress)
            client.call("PUT", f"/api/v1/blobs/{digest}", body, timeout=600.0)
        done += sizes[digest]
    told.append(snapshot.digest)
    client.call("PUT", f"/api/v1/blobs/{snapshot.digest}", snapshot.manifest, timeout=600.0)


def require_text(submission: Mapping[str, Any]) -> None:
    """Raise UsageError for names or values that cannot be stored."""
    try:
        json.dumps(submission, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"a name or value is not UTF-8: {error.object[: error.end][-40:]!r}",
            hint="rename the file or folder, or leave the value out",
        ) from error


def _moves_data(spec: Mapping[str, Any]) -> bool:
    """Whether nodes may need an environment for moving data."""
    given = [*(spec.get("inputs") or {}).values(), *(spec.get("outputs") or {}).values()]
    several = [each for each in given if isinstance(each, Mapping)]
    return any(
        each.get("unpack")
        or each.get("sharded")
        or each.get("mode") == "stream"
        or is_uri(str(each.get("path") or ""))
        for each in several
    )


def located_input(name: str, value: Any, base: Path) -> Any:
    if not isinstance(value, Mapping) or not isinstance(value.get("path"), str):
        return value
    return {**value, "path": _found(value["path"], f"inputs.{name}.path", base)}


def placed_data(value: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """A data asset for upload, with an absolute path and a detected type.

    Raises SpecError if the path does not exist.
    """
    found = dict(value)
    if isinstance(found.get("path"), str | os.PathLike):
        found["path"] = _found(os.fspath(found["path"]), "path", base)
        if "type" not in found and os.path.isfile(found["path"]):
            found["type"] = "uri_file"
    return found


def environment_of(value: Mapping[str, Any], base: Path) -> Mapping[str, Any]:
    """An environment for upload: file contents instead of paths, relative to ``base``. Raises
    NotFound or SpecError with the file."""
    from allranks.sdk.submit.environment_files import inlined  # lazy: few jobs define one inline

    return inlined(value, base)


def _found(path: str, where: str, base: Path) -> str:
    """The absolute path; URIs are unchanged. Raises SpecError if it does not exist."""
    path = without_scheme(path)
    if is_uri(path):
        return path
    found = absolute(path, base)
    if not found.exists():
        raise SpecError(
            Problem(f"{str(found)!r} not found", where, hint=f"relative paths start at {base}")
        )
    return str(found)


def located_output(value: Any, base: Path) -> Any:
    if not isinstance(value, Mapping) or not isinstance(value.get("path"), str):
        return value
    path = without_scheme(value["path"])
    return value if is_uri(path) else {**value, "path": str(absolute(path, base))}


def local(path: Any, base: Path) -> Path | None:
    """The local file that a path of a job refers to, existing or not; None for URIs and other
    values."""
    if not isinstance(path, str) or is_uri(plain := without_scheme(path)):
        return None
    return absolute(plain, base)


def without_scheme(path: str) -> str:
    """The path of a `file:` URI; relative ones are allowed: `file:./data`."""
    rest = path.removeprefix("file:")
    if rest == path:
        return path
    if rest.startswith("//"):
        host, _, rest = rest[2:].partition("/")
        if host not in ("", "localhost"):
            return path
        rest = unquote(f"/{rest}")
    return rest


def is_uri(path: str) -> bool:
    head, colon, _ = path.partition(":")
    return bool(colon) and "/" not in head


def absolute(path: str | os.PathLike[str], base: Path) -> Path:
    return Path(os.path.abspath(base / Path(path).expanduser()))
