"""A job as HTML for notebooks: status, metrics, load and last lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from allranks.plan.amounts import size_text

_WIDTH, _HEIGHT = 150, 26
_COLOURS = {"Completed": "#2e7d32", "Failed": "#c62828", "Canceled": "#8d6e00"}
_RUNNING = "#1565c0"
# The limit of metrics and nodes shown.
_MOST = 8

Told = Mapping[str, Any]


def card(job: Told, metrics: Iterable[Told] = (), lines: Iterable[str] = ()) -> str:
    """``job`` is the output of `job show --json`, ``metrics`` are summaries, ``lines`` the last
    output. No external resources; text from the job is escaped."""
    parts = [_head(job), _error(job), _metrics([*metrics]), _load(job.get("load", ()))]
    text = "\n".join(lines)
    if text:
        parts.append(f'<pre style="{_PRE}">{escape(text)}</pre>')
    return f'<div class="allranks-job" style="{_BOX}">{"".join(parts)}</div>'


# Inline styles: notebooks do not keep others when they are saved.
_BOX = (
    "border:1px solid rgba(128,128,128,.4);border-radius:6px;padding:8px 12px;"
    "max-width:52em;font-family:system-ui,sans-serif;font-size:13px"
)
_PRE = (
    "margin:6px 0 0;padding:6px 8px;background:rgba(128,128,128,.1);border-radius:4px;"
    "font-size:12px;overflow-x:auto;white-space:pre"
)
_CELL = "padding:1px 14px 1px 0;text-align:left"


def _head(job: Told) -> str:
    colour = _COLOURS.get(job["status"], _RUNNING)
    size = f"{job['nodes']} × {job['processes'] // max(1, job['nodes'])} ranks"
    if job["processes"] == 1:
        size = "1 rank"
    why = f" ({job['status_reason']})" if job.get("status_reason") and not job["ended_at"] else ""
    tries = f", attempt {job['attempts']}" if job["attempts"] > 1 else ""
    return (
        f"<div><b>{escape(job['name'])}</b> "
        f'<span style="color:{colour};font-weight:600">{escape(job["status"])}</span>'
        f"{escape(why + tries)} · {size} on {escape(job['compute'])}</div>"
    )


def _error(job: Told) -> str:
    error = job.get("error")
    if not error:
        return ""
    hint = f"<br/>hint: {escape(error['hint'])}" if error.get("hint") else ""
    return f'<div style="color:{_COLOURS["Failed"]}">{escape(error["message"])}{hint}</div>'


def _metrics(several: Sequence[Told]) -> str:
    rows = [
        f'<tr><td style="{_CELL}">{escape(each["key"])}</td>'
        f'<td style="{_CELL}">{_number(each["last"][2])}</td>'
        f'<td style="{_CELL}">{line(each["shape"])}</td>'
        f'<td style="{_CELL}">step {each["last"][0]}</td></tr>'
        for each in several[:_MOST]
    ]
    return _table(rows, len(several), "metrics")


def _load(nodes: Sequence[Told]) -> str:
    rows = []
    for each in nodes[:_MOST]:
        told = [f"cpu {each['cpu']:.0f} %"] if "cpu" in each else []
        if "memory" in each:
            total = each.get("memory_total")
            of = f" of {size_text(total)}" if total else ""
            told.append(f"memory {size_text(each['memory'])}{of}")
        for gpu in each["gpus"]:
            if "gpu_load" in gpu:
                told.append(f"GPU {gpu['gpu']} {gpu['gpu_load']:.0f} %")
        if "cpu" in (whole := each.get("node_load", {})):
            told.append(f"all of the node: cpu {whole['cpu']:.0f} %")
        said = escape(", ".join(told))
        rows.append(
            f'<tr><td style="{_CELL}">node {each["node"]}</td><td style="{_CELL}">{said}</td></tr>'
        )
    return _table(rows, len(nodes), "nodes")


def _table(rows: Sequence[str], count: int, what: str) -> str:
    if not rows:
        return ""
    more = f"<div>and {count - len(rows)} {what} more</div>" if count > len(rows) else ""
    return f'<table style="margin:4px 0;border:0"><tbody>{"".join(rows)}</tbody></table>{more}'


def line(values: Sequence[Any]) -> str:
    """A sparkline with gaps for values that are not finite."""
    # Halved, because the difference of the largest numbers overflows.
    known = [each / 2 for each in values if isinstance(each, int | float)]
    if len(known) < 2:
        return ""
    least, span = min(known), (max(known) - min(known)) or 1.0
    step = _WIDTH / max(1, len(values) - 1)
    pieces: list[list[str]] = [[]]
    for number, each in enumerate(values):
        if isinstance(each, int | float):
            y = 2 + (_HEIGHT - 4) * (1 - (each / 2 - least) / span)
            pieces[-1].append(f"{number * step:.1f},{y:.1f}")
        elif pieces[-1]:
            pieces.append([])
    lines = "".join(
        f'<polyline points="{" ".join(each)}" fill="none" stroke="{_RUNNING}" stroke-width="1.5"/>'
        for each in pieces
        if each
    )
    return f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img">{lines}</svg>'


def _number(value: float | str) -> str:
    return escape(value) if isinstance(value, str) else f"{value:.6g}"
