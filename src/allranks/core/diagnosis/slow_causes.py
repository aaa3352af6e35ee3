"""Why a rank may be slower than others, by what its node reports of it and of its host.

Pure. What is as bad on the other ranks, or hosts, explains nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from allranks.core.amounts import size_text


class _Sign(NamedTuple):
    """A measurement from which it counts, and its sentence."""

    name: str
    least: float
    sentence: Callable[[float], str]


def _share(text: str) -> Callable[[float], str]:
    return lambda value: text.format(f"{value:.0%}")


def _size(text: str) -> Callable[[float], str]:
    return lambda value: text.format(size_text(value))


_OF_RANK = (
    _Sign("stopped", 0.1, _share("a signal keeps it stopped {} of the time")),
    _Sign("throttled", 0.1, _share("its control group has used its CPUs up in {} of the periods")),
    _Sign("blocked", 0.15, _share("it waits for a disk {} of the time")),
    _Sign("starved", 0.15, _share("it waits {} of the time for a processor")),
    _Sign("swapped", 64e6, _size("{} of it is swapped out")),
)
_OF_HOST = (
    _Sign("others", 0.5, lambda value: f"other programs use {value:.1f} CPUs of its host"),
    _Sign("stolen", 0.05, _share("the hypervisor takes {} of its host's processors")),
    _Sign("swapping", 1e6, _size("its host swaps {} a second")),
    _Sign("memory", 0.1, _share("programs on its host wait {} of the time for memory")),
    _Sign("io", 0.3, _share("programs on its host wait {} of the time for a disk")),
    _Sign("slower", 0.3, _share("the processors of its host run {} below their highest clock")),
    _Sign("resent", 0.01, _share("its host sends {} of its TCP segments again")),
)
# How many times as much as the others.
_MORE = 1.5


def causes(
    slow: Collection[int],
    ranks: Mapping[int, Mapping[str, Any]],
    hosts: Mapping[int, Mapping[str, Any]],
    nodes: Mapping[int, int],
) -> list[str]:
    """The signs on the ``slow`` ranks and their hosts. ``ranks`` has the strain of each rank,
    ``hosts`` that of the host of each node, ``nodes`` the node of each rank."""
    own = [strain for rank, strain in ranks.items() if rank in slow]
    others = [strain for rank, strain in ranks.items() if rank not in slow]
    sentences = list(_signs(_OF_RANK, own, others))
    mine = {nodes[rank] for rank in slow if rank in nodes}
    here = [_with_slower(hosts[node]) for node in mine if node in hosts]
    elsewhere = [_with_slower(strain) for node, strain in hosts.items() if node not in mine]
    # On the only host, others' programs compete with all ranks; yet one may be kept from running.
    starved = any(text.endswith("for a processor") for text in sentences)
    if elsewhere or starved:
        signs = _OF_HOST if elsewhere else _OF_HOST[:1]
        sentences += _signs(signs, here, elsewhere)
        busiest = next((str(strain["busiest"]) for strain in here if strain.get("busiest")), "")
        if busiest and any("other programs" in text for text in sentences):
            sentences.append(f"the busiest of them is {busiest}")
    return sentences


def _with_slower(strain: Mapping[str, Any]) -> Mapping[str, Any]:
    clock = strain.get("clock")
    return strain if clock is None else {**strain, "slower": 1 - float(clock)}


def _signs(
    signs: Sequence[_Sign],
    own: Sequence[Mapping[str, Any]],
    others: Sequence[Mapping[str, Any]],
) -> Iterator[str]:
    for name, least, sentence in signs:
        value = max((float(strain.get(name, 0.0)) for strain in own), default=0.0)
        usual = median([float(strain.get(name, 0.0)) for strain in others] or [0.0])
        if value >= max(least, _MORE * usual):
            yield sentence(value)
