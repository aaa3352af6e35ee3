"""The ranks of a job in a table: how fast, what they wait for, what they use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from allranks.cli.output import load, show
from allranks.core.amounts import counted, size_text
from allranks.core.node_names import node_name

if TYPE_CHECKING:
    from allranks.api.jobs import SlowRank
    from allranks.api.metrics import RankRow, RankTable

HEAD = ("RANK", "NODE", "STEP", "STEP TIME", "WAITS", "CPU", "MEMORY", "GPU", "DISK", "NETWORK", "")


def rows(table: RankTable) -> list[tuple[str, ...]]:
    return [_row(rank) for rank in table["ranks"]]


def shown(table: RankTable, most: int, hint: str = "") -> list[str]:
    """Its lines without empty columns; of many ranks those that are slow or wait least, and how
    many there are more, with the hint where."""
    ranks = table["ranks"]
    rest = len(ranks) - most
    if rest > 0:
        waits = [rank["waiting"] for rank in ranks]
        first = sorted(range(len(ranks)), key=lambda at: (not ranks[at]["slow"], waits[at] or 0.0))
        ranks = [ranks[at] for at in sorted(first[:most])]
    cells = [_row(rank) for rank in ranks]
    filled = [at for at, _ in enumerate(HEAD) if any(row[at] not in ("-", "") for row in cells)]
    lines = show.table([HEAD[at] for at in filled], [[row[at] for at in filled] for row in cells])
    return [*lines, f"and {counted(rest, 'rank')} more{hint}"] if rest > 0 else lines


def notices(several: Sequence[SlowRank]) -> list[str]:
    """Who holds the others, and who did; the hint is of the last."""
    lines = []
    for one in several[-3:]:
        until = f" (until {one['until'][:19]})" if one["until"] else ""
        lines.append(f"{one['message']}{until}")
    return lines


def _row(rank: RankRow) -> tuple[str, ...]:
    waiting, seconds = rank["waiting"], rank["step_time"]
    return (
        str(rank["rank"]),
        node_name(rank["node"], rank["host"]).removeprefix("node "),
        "-" if rank["step"] is None else str(rank["step"]),
        "-" if seconds is None else f"{seconds:.3g} s",
        "-" if waiting is None else f"{waiting:.0%}",
        load.percent(rank["cpu"]),
        "-" if rank["memory"] is None else size_text(float(rank["memory"])),
        load.percent(rank["gpu"]),
        "-" if rank["disk"] is None else f"{size_text(rank['disk'])}/s",
        "-" if rank["network"] is None else f"{size_text(rank['network'])}/s",
        "holds the others" if rank["slow"] else "",
    )
