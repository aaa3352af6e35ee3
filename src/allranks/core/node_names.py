"""Nodes in text for people: on a cluster a node's number does not find a machine. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

_NODE = re.compile(r"\bnode (\d+)\b(?! (?:\(|on ))")


def node_name(node: int | None, host: str | None) -> str:
    """``node 1 (gpu-07)``; without a host, as on this machine, ``node 1``."""
    return f"node {node} ({host})" if host else f"node {node}"


def with_host(text: str, host_of: Callable[[int], str | None]) -> str:
    """The text, with its host behind the first node that it names."""
    return _NODE.sub(lambda match: node_name(int(match[1]), host_of(int(match[1]))), text, count=1)
