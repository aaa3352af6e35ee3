"""Network findings: interfaces, InfiniBand and the variables for ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from allranks.agent.network import interfaces
from allranks.cli.preflight.findings import BAD, NOTE, OK, Finding

Facts = Mapping[int, Mapping[str, Any]]


def named(nodes: Iterable[int]) -> str:
    """`nodes 0, 2, 5-31`."""
    runs: list[list[int]] = []
    for node in sorted(nodes):
        if runs and runs[-1][-1] == node - 1:
            runs[-1].append(node)
        else:
            runs.append([node])
    words = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"node{'s' * (sum(map(len, runs)) > 1)} {', '.join(words)}"


def grouped(values: Mapping[int, Any]) -> str:
    """`2.3.0 on nodes 0, 2; 2.4.0 on node 1`."""
    by_value: dict[Any, list[int]] = {}
    for node, value in sorted(values.items()):
        by_value.setdefault(value, []).append(node)
    return "; ".join(f"{value} on {named(nodes)}" for value, nodes in by_value.items())


def infiniband(fact: Mapping[str, Any]) -> bool:
    """Whether a node has an active port of InfiniBand."""
    return any(layer == interfaces.INFINIBAND for _, layer, _ in fact["ports"])


def networks(facts: Facts, own: Mapping[str, str]) -> Iterator[Finding]:
    """Findings on the nodes' networks; ``own`` are the job's own variables."""
    names = {n: f["interface"]["name"] for n, f in facts.items() if f["interface"]}
    unknown = sorted(set(facts) - set(names))
    if unknown:
        text = f"no single interface reaches all peers on {named(unknown)}"
        hint = "libraries choose one themselves; set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME"
        yield Finding("network", NOTE, text, hint)
    if len(set(names.values())) > 1:
        hint = "each node gets its own; Open MPI needs the same names everywhere"
        yield Finding("network", NOTE, grouped(names), hint)
    elif names:
        yield Finding("network", OK, interface_words(facts[min(names)]["interface"]))
    yield from _fabrics(facts)
    yield from _variables(facts[min(facts)], own)


def interface_words(interface: Mapping[str, Any]) -> str:
    """Describe an interface."""
    speed = interface["speed"]
    words = [f"{interface['name']} {interface['cidr']}", f"MTU {interface['mtu']}"]
    if speed:
        words.append(f"{speed / 1000:g} Gb/s")
    return ", ".join(words)


def _fabrics(facts: Facts) -> Iterator[Finding]:
    ported = [node for node, fact in facts.items() if fact["ports"]]
    down = {node: ", ".join(fact["down"]) for node, fact in facts.items() if fact["down"]}
    if ported:
        shown = fabric_words(facts[min(ported)]["ports"])
        yield Finding("InfiniBand", OK, f"{shown} on {named(ported)}")
        without = sorted(set(facts) - set(ported))
        if without:
            text = f"no active port on {named(without)}"
            hint = "libraries fall back to TCP there, which slows all nodes, or fail"
            yield Finding("InfiniBand", BAD, text, hint)
    if down:
        yield Finding("InfiniBand", NOTE, f"down: {grouped(down)}", "see `ibstat`")


def fabric_words(ports: Sequence[Sequence[Any]]) -> str:
    """Describe ports."""
    return ", ".join(
        f"{name} {layer}" + (f" {rate:g} Gb/s" if rate else "") for name, layer, rate in ports
    )


def _variables(fact: Mapping[str, Any], own: Mapping[str, str]) -> Iterator[Finding]:
    for variable in fact["variables"]:
        name, why = variable["name"], variable["why"]
        # The value that the rank really found counts.
        value = fact["set"].get(name, variable["value"])
        if name in own:
            text = f"{name}={value} is set by the job instead of {variable['value']}"
            yield Finding("variable", NOTE, text, f"reason for ours: {why}")
        else:
            yield Finding("variable", OK, f"{name}={value}  {why}")
