"""Objects as YAML that people read: texts of several lines as blocks, no anchors. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml


def documents(objects: Sequence[dict[str, Any]]) -> str:
    """Return the objects as YAML documents."""
    return str(yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True))


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
    style = "|" if "\n" in data else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style)


_Dumper.add_representer(str, _text)
