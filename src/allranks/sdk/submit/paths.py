"""Paths of a job, relative to its file, as absolute ones. They are checked on the client."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from allranks import settings
from allranks.errors import Problem, SpecError, UsageError
from allranks.snapshot.git import Checkout, checkout, is_address

if TYPE_CHECKING:
    from allranks.api.common import Document


def find_code(code: Any, base: Path) -> tuple[Path | None, Checkout | None]:
    """The local path of the code; a repository is fetched."""
    if code is None:
        return None, None
    if isinstance(code, str):
        code = without_scheme(code)
        if is_address(code):
            fetched = checkout(code, settings.home().code)
            return fetched.folder, fetched
        if is_uri(code):
            hint = "give a local folder, or a repository: git+https://HOST/PATH.git@REF#FOLDER"
            raise SpecError(Problem(f"code cannot be read from {code!r}", "code", hint=hint))
    return absolute(code, base), None


def moves_data(spec: Mapping[str, Any]) -> bool:
    """Whether nodes may need an environment for moving data."""
    values = [*(spec.get("inputs") or {}).values(), *(spec.get("outputs") or {}).values()]
    several = [value for value in values if isinstance(value, Mapping)]
    return any(
        value.get("unpack")
        or value.get("sharded")
        or value.get("mode") == "stream"
        or is_uri(str(value.get("path") or ""))
        for value in several
    )


def located_input(name: str, value: Any, base: Path) -> Any:
    if not isinstance(value, Mapping) or not isinstance(value.get("path"), str):
        return value
    return {**value, "path": _existing(value["path"], f"inputs.{name}.path", base)}


def located_output(value: Any, base: Path) -> Any:
    if not isinstance(value, Mapping) or not isinstance(value.get("path"), str):
        return value
    path = without_scheme(value["path"])
    return value if is_uri(path) else {**value, "path": str(absolute(path, base))}


def placed_data(value: Mapping[str, Any], base: Path) -> Document:
    """A data asset for upload, with an absolute path and a detected type.

    Raises SpecError if the path does not exist.
    """
    data = dict(value)
    if isinstance(data.get("path"), str | os.PathLike):
        data["path"] = _existing(os.fspath(data["path"]), "path", base)
        if "type" not in data and os.path.isfile(data["path"]):
            data["type"] = "uri_file"
    return data


def has_files(environment: Any) -> bool:
    """Whether it is ``environment_of`` that reads its files: written in place, or `file:PATH`."""
    is_file = isinstance(environment, str) and environment.startswith("file:")
    return is_file or isinstance(environment, Mapping)


def environment_of(value: Mapping[str, Any] | str, base: Path) -> Mapping[str, Any]:
    """An environment for upload: file contents instead of paths, relative to ``base``. Raises
    NotFound or SpecError with the file."""
    # lazy: few jobs define one inline
    from allranks.sdk.submit.environment_files import from_file, inlined

    if isinstance(value, str):
        return from_file(absolute(without_scheme(value), base))
    return inlined(value, base)


def _existing(path: str, where: str, base: Path) -> str:
    """The absolute path; URIs are unchanged. Raises SpecError if it does not exist."""
    path = without_scheme(path)
    if is_uri(path):
        return path
    file = absolute(path, base)
    if not file.exists():
        raise SpecError(
            Problem(f"{str(file)!r} not found", where, hint=f"relative paths start at {base}")
        )
    return str(file)


def local(path: Any, base: Path) -> Path | None:
    """The local file that a path of a job refers to, existing or not; None for URIs and other
    values."""
    if not isinstance(path, str) or is_uri(plain := without_scheme(path)):
        return None
    return absolute(plain, base)


def require_text(submission: Mapping[str, Any]) -> None:
    """Raise UsageError for names or values that cannot be stored."""
    try:
        json.dumps(submission, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"a name or value is not UTF-8: {error.object[: error.end][-40:]!r}",
            hint="rename the file or folder, or leave the value out",
        ) from error


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
