"""How many GPUs each node of a job gets, and why. Pure.

In this order: what the job asks for; what the engine's options ask for by themselves; what its
`instance_type` has; the default of the compute; one for each process, as far as the nodes have
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from allranks.core.amounts import counted
from allranks.core.job import instance_types

_NONE, _SOME = "--gpus 0 for none", "--gpus G for some"


class Request(NamedTuple):
    """``requested`` is the job's own number, None where it says nothing; ``sizes`` the site's map
    of instance types; ``options`` what the engine's options ask for by themselves, None for
    nothing; ``default`` the compute's own number; ``processes`` of a node that take a GPU each,
    None for a job whose one process gives all GPUs of its node out.

    ``hosts`` are the GPUs of each host of the compute, None where nobody can say; ``shared``: all
    nodes of the job are on the one host."""

    requested: int | None = None
    instance_type: str | None = None
    sizes: Mapping[str, int] = {}
    options: int | None = None
    default: int | None = None
    hosts: Sequence[int] | None = ()
    shared: bool = False
    nodes: int = 1
    processes: int | None = 1


class Choice(NamedTuple):
    """``per_node`` for each node. ``reason`` is a sentence for who submits, empty where there is
    nothing to say; ``note`` another one, about an instance type that nobody knows."""

    per_node: int
    reason: str = ""
    note: str = ""


def choose(request: Request) -> Choice:
    """The GPUs of each node of a job."""
    if request.requested is not None:
        return Choice(request.requested)
    if request.options is not None:
        reason = f"GPUs: {request.options} per node, from the options of the compute; {_NONE}"
        return Choice(request.options, reason if request.options else "")
    size = request.instance_type
    if size is None:
        return _default(request)
    has = instance_types.gpus(size, request.sizes)
    if has is not None:
        return _of_size(size, has, request)
    note = f"the instance type {size} is not known: allranks instance map {size} --gpus G"
    return _default(request)._replace(note=note)


def _of_size(size: str, has: int, request: Request) -> Choice:
    most = available(request)
    if most is None and request.default is not None:
        most = request.default
    if most is not None and has > most:
        got = f"{most} per node" if most else "none"
        return Choice(most, f"GPUs: {got}: {size} has {has}, a node here has {most}")
    if has:
        return Choice(has, f"GPUs: {has} per node, as {size} has; {_NONE}")
    return Choice(0, f"GPUs: none, as {size} has none; {_SOME}" if any(request.hosts or ()) else "")


def _default(request: Request) -> Choice:
    if request.default is not None:
        if request.default:
            reason = f"GPUs: {request.default} per node, the default of the compute; {_NONE}"
            return Choice(request.default, reason)
        reason = (
            f"GPUs: none, the default of the compute; {_SOME}" if any(request.hosts or ()) else ""
        )
        return Choice(0, reason)
    most = available(request)
    if most is None:
        reason = "GPUs: none, because the compute does not report how many its nodes have"
        return Choice(0, f"{reason}; {_SOME}")
    if not most:
        has = sum(request.hosts or ())
        reason = f"GPUs: none, {counted(request.nodes, 'node')} need one each, and there are {has}"
        return Choice(0, f"{reason}; {_SOME}" if has else "")
    if request.processes is None:
        return Choice(most, f"GPUs: {most} per node, all it has; {_NONE}")
    count = min(request.processes, most)
    if count < request.processes:
        reason = f"{count} per node for {request.processes} processes, all a node has"
    else:
        reason = f"{count} per node, one per process (a node has {most})"
    return Choice(count, f"GPUs: {reason}; {_NONE}")


def available(request: Request) -> int | None:
    """The GPUs that each of so many nodes can have; None where nobody can say."""
    if request.hosts is None:
        return None
    hosts = sorted(request.hosts, reverse=True)
    if request.shared:
        return sum(hosts) // request.nodes
    # The hosts with the most that are enough for all nodes: a partition may hold others, too.
    return hosts[min(request.nodes, len(hosts)) - 1] if hosts else 0
