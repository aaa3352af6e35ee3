"""What all types of jobs have in common: paths relative to a file, and writing them back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, PrivateAttr

from allranks.errors import UsageError
from allranks.spec.fields.base import Part
from allranks.spec.fields.python_forms import as_in_a_file


class BaseJob(Part):
    """The base of command and sweep jobs."""

    _base: str | None = PrivateAttr(default=None)

    if not TYPE_CHECKING:  # as in Part

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, as_in_a_file(name, value))

    def __eq__(self, other: object) -> bool:
        """Compare by content, not by the file it was read from."""
        return isinstance(other, BaseJob) and self.__dict__ == other.__dict__

    @property
    def base(self) -> str | None:
        """The folder of the job's file; relative paths start there."""
        return self._base

    def based(self, folder: str | os.PathLike[str]) -> Self:
        """The same job with relative paths starting at ``folder``."""
        moved = self.model_copy()
        moved._base = os.path.abspath(folder)
        return moved

    def to_dict(self) -> dict[str, Any]:
        """JSON data without default values; ``parse`` restores the job from it."""
        data = self.model_dump(mode="json", by_alias=True, exclude_defaults=True, warnings=False)
        _add_types(data, self)
        return data

    def to_yaml(self, path: str | os.PathLike[str] | None = None) -> str:
        """The job as YAML, also written to ``path`` if given; ``load_job`` reads it back. Relative
        paths are unchanged and start at the new file's folder."""
        # lazy: a server reads and writes no YAML
        from allranks.spec.fields.plain_words import written

        text = written(self.to_dict())
        if path is not None:
            try:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                hint = "choose a writable file"
                raise UsageError(
                    f"cannot write the job: {reason}", where=str(path), hint=hint
                ) from error
        return text


def _add_types(data: dict[str, Any], model: BaseModel) -> None:
    """Add the ``type`` of each part that is one of several, although it is the part's default."""
    for name, value in model:
        if name not in data:
            continue
        parts = {name: value} if isinstance(value, BaseModel) else value
        if not isinstance(parts, Mapping):
            continue
        place = data if isinstance(value, BaseModel) else data[name]
        for key, part in parts.items():
            if isinstance(part, BaseModel) and isinstance(place.get(key), dict):
                _add_types(place[key], part)
                if kind := getattr(part, "type", None):
                    place[key] = {"type": str(kind), **place[key]}
