"""Forty ways in which the ranks of a job disagree on a collective, and what may be said of each."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from allranks.core.diagnosis.collectives import Kind

# Each rank does some collectives with all others, and then what the argument says of it: calls of
# an operation with so many elements of a type in a group, or to end, or to do nothing.
SCRIPT = """
import json, os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
everyone = list(range(world))
members = {"all": everyone, "tensor": everyone, "data": everyone, "pair": [0, 1]}
groups = {name: dist.new_group(members[name], group_desc=name) for name in sorted(members)[1:]}
groups["all"] = None
def call(operation, size=8, kind="float", name="all"):
    group, size = groups[name], int(size)
    count, own = len(members[name]), torch.ones(size, dtype=getattr(torch, kind))
    several = [torch.ones_like(own) for _ in range(count)]
    if operation == "all_reduce": dist.all_reduce(own, group=group)
    elif operation == "broadcast": dist.broadcast(own, 0, group=group)
    elif operation == "reduce": dist.reduce(own, 0, group=group)
    elif operation == "barrier": dist.barrier(group=group)
    elif operation == "all_gather": dist.all_gather(several, own, group=group)
    elif operation == "gather": dist.gather(own, several if rank == 0 else None, 0, group=group)
    elif operation == "scatter": dist.scatter(own, several if rank == 0 else None, 0, group=group)
    elif operation == "all_to_all":
        dist.all_to_all_single(torch.ones(size * count), torch.ones(size * count), group=group)
    elif operation == "reduce_scatter":
        dist.reduce_scatter_tensor(own, torch.cat(several), group=group)
    elif operation == "object": dist.all_gather_object([None] * count, "x" * size, group=group)
    elif operation == "recv": dist.recv(own, (rank + 1) % count, group=group)
    elif operation == "exit": sys.exit(0)
    elif operation == "_exit": os._exit(0)
    elif operation == "abort": os.abort()
    elif operation == "nothing": time.sleep(600)
for _ in range(3): call("all_reduce")
for words in json.loads(sys.argv[1])[rank]: call(*words.split())
time.sleep(600)
"""

# A kind and the ranks that it may name.
Verdict = tuple[Kind, tuple[int, ...]]


class Variant(NamedTuple):
    """``calls``: those of each rank, separated by `;`. ``right``: what may be said, other than
    that it is not known; the first is what the recorders show if all ranks answer."""

    calls: tuple[str, ...]
    right: tuple[Verdict, ...]
    nodes: int = 1

    @property
    def name(self) -> str:
        text = "-".join("".join(c if c.isalnum() else "-" for c in call) for call in self.calls)
        return f"{text[:50].strip('-')}-{self.nodes}".replace("_", "-").replace("--", "-").lower()

    @property
    def argument(self) -> str:
        return json.dumps([[one.strip() for one in call.split(";")] for call in self.calls])

    def first(self, rank: int) -> list[str]:
        """What a rank calls first: the operation, and maybe size, type and group."""
        return self.calls[rank].partition(";")[0].split()

    def false_claims(self, message: str) -> list[str]:
        """What a message says of the ranks' calls and is not so."""
        false = []
        for claim in re.finditer(_CLAIM, message):
            for rank in _ranks(claim["ranks"]):
                operation, size = [*self.first(rank), "8"][:2]
                called = operation == claim["operation"]
                # Of these the recorder has other sizes, or none.
                if called and claim["size"] and operation not in ("all_to_all", "reduce_scatter"):
                    called = size == claim["size"]
                if claim["verb"].strip() == "called" and not called:
                    false.append(claim[0])
                if "ended" in claim["verb"] and not (
                    operation in ENDINGS or self.right[0][0] in (Kind.SHAPE, Kind.TYPE)
                ):
                    false.append(claim[0])
        return false


ENDINGS = ("exit", "_exit", "abort")
_CLAIM = (
    r"\branks? (?P<ranks>[\d, -]+) (?P<verb>called |ha(?:s|ve) ended)"
    r"(?:(?P<operation>\w+) #\d+(?: \[(?P<size>\d+)\])?)?"
)


def _ranks(text: str) -> list[int]:
    several: list[int] = []
    for part in text.split(","):
        low, _, high = part.strip().partition("-")
        several += range(int(low), int(high or low) + 1)
    return several


def _several(kind: Kind, *ranks: tuple[int, ...]) -> tuple[Verdict, ...]:
    return tuple((kind, each) for each in ranks)


_FLOAT, _MORE = "all_reduce 8", "all_reduce 9"
_OP, _SHAPE, _TYPE = Kind.OPERATION, Kind.SHAPE, Kind.TYPE
_NOT, _GONE = Kind.NOT_CALLED, Kind.GONE

VARIANTS = (
    # Shapes.
    Variant((_FLOAT, _MORE), _several(_SHAPE, (1,))),
    Variant((_FLOAT, _MORE), _several(_SHAPE, (1,)), nodes=2),
    Variant((_FLOAT, _FLOAT, _MORE), _several(_SHAPE, (2,))),
    Variant((_MORE, _FLOAT, _FLOAT), _several(_SHAPE, (0,))),
    Variant((_FLOAT, _MORE, _FLOAT, _FLOAT), _several(_SHAPE, (1,)), nodes=2),
    Variant(("all_reduce 1", "all_reduce 5000"), _several(_SHAPE, (1,))),
    Variant(("all_reduce 5000", "all_reduce 1"), _several(_SHAPE, (1,))),
    Variant(("all_reduce 100000", "all_reduce 99999", "all_reduce 100000"), _several(_SHAPE, (1,))),
    Variant(("broadcast 8", "broadcast 9", "broadcast 8"), _several(_SHAPE, (1,))),
    Variant(("broadcast 9", "broadcast 8"), _several(_SHAPE, (1,))),
    Variant(("reduce 8", "reduce 16", "reduce 8"), _several(_SHAPE, (1,))),
    Variant(("all_reduce 8 float tensor", "all_reduce 16 float tensor"), _several(_SHAPE, (1,))),
    Variant(
        ("all_reduce 8 float pair", "all_reduce 9 float pair", "nothing"), _several(_SHAPE, (1,))
    ),
    # Types.
    Variant((_FLOAT, "all_reduce 8 double"), _several(_TYPE, (1,))),
    Variant((_FLOAT, "all_reduce 8 double", _FLOAT), _several(_TYPE, (1,))),
    Variant((_FLOAT, "all_reduce 8 double"), _several(_TYPE, (1,)), nodes=2),
    Variant((_FLOAT, _FLOAT, "all_reduce 8 half"), _several(_TYPE, (2,))),
    Variant(("all_reduce 8 long", "all_reduce 8 int", "all_reduce 8 long"), _several(_TYPE, (1,))),
    Variant(("broadcast 8", "broadcast 8 double"), _several(_TYPE, (1,))),
    # Operations.
    Variant((_FLOAT, "broadcast 8"), _several(_OP, (1,))),
    Variant((_FLOAT, _FLOAT, "broadcast 8"), _several(_OP, (2,))),
    Variant((_FLOAT, "barrier", _FLOAT, _FLOAT), _several(_OP, (1,)), nodes=2),
    Variant((_FLOAT, "barrier"), _several(_OP, (1,))),
    Variant(("all_gather 8", "reduce 8", "all_gather 8"), _several(_OP, (1,))),
    Variant((_FLOAT, _FLOAT, "all_to_all 8"), _several(_OP, (2,))),
    Variant((f"{_FLOAT};broadcast 8", f"broadcast 8;{_FLOAT}"), _several(_OP, (1,))),
    Variant(("gather 8", "scatter 8", "gather 8"), _several(_OP, (1,))),
    Variant(("reduce_scatter 8", _FLOAT, "reduce_scatter 8"), _several(_OP, (1,))),
    # Ranks that have not called it, or that have ended.
    Variant((_FLOAT, "nothing"), _several(_NOT, (1,))),
    Variant((_FLOAT, "nothing"), _several(_NOT, (1,)), nodes=2),
    Variant((_FLOAT, "nothing", "nothing", _FLOAT), _several(_NOT, (1, 2))),
    Variant(("broadcast 8", "nothing", "broadcast 8"), _several(_NOT, (1,))),
    Variant((_FLOAT, "exit", _FLOAT), _several(_GONE, (1,))),
    Variant((_FLOAT, "_exit"), _several(_GONE, (1,)), nodes=2),
    Variant((_FLOAT, "abort", _FLOAT), _several(_GONE, (1,))),
    # Groups.
    Variant(
        ("all_reduce 8 float tensor", "all_reduce 8 float data"), _several(Kind.GROUPS, (0,), (1,))
    ),
    Variant(
        ("all_reduce 8 float tensor", "all_reduce 8 float data"),
        _several(Kind.GROUPS, (0,), (1,)),
        nodes=2,
    ),
    Variant((_FLOAT, "all_reduce 8 float pair", _FLOAT), _several(Kind.GROUPS, (0,), (1,), (0, 2))),
    # Nothing is wrong with these collectives, or nothing of them is recorded.
    Variant(("object 8", "object 5000", "object 1"), ((Kind.OUTSIDE, (0, 1, 2)),)),
    Variant(("recv 8", "nothing"), ((Kind.OUTSIDE, (0, 1)),)),
)
