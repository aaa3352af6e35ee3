"""Plain scalars by the rules of YAML 1.2, and output that YAML 1.1 and 1.2 read alike.

``on``, ``yes`` and ``2024-01-01`` are text (PyYAML's 1.1 would make ``retry.on`` the key ``True``),
``1e-3`` is a number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

TAG = "tag:yaml.org,2002:"
PLAIN = {
    "null": (re.compile(r"(?:~|null|Null|NULL|)\Z"), [*"~nN", ""]),
    "bool": (re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), [*"tTfF"]),
    "int": (re.compile(r"(?:[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+)\Z"), [*"-+0123456789"]),
    "float": (
        re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"),
        [*"-+.0123456789"],
    ),
    "merge": (re.compile(r"<<\Z"), ["<"]),
}


def written(data: Mapping[str, Any]) -> str:
    """The mapping as YAML, its keys in their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or 1.2 would not read as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _scalar(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    # Line breaks only in YAML 1.1: kept only in double quotes.
    if any(odd in text for odd in "\x85\u2028\u2029\r"):
        style = '"'
    return dumper.represent_scalar(TAG + "str", text, style=style)


for _tag, (_regex, _first) in PLAIN.items():
    _Dumper.add_implicit_resolver(TAG + _tag, _regex, _first)
_Dumper.add_representer(str, _scalar)
