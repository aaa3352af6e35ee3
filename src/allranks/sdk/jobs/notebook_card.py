"""A job as HTML for notebooks: status, charts of metrics, load and last lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from allranks.core.amounts import size_text
from allranks.sdk.jobs.notebook_chart import chart

_COLOURS = {"Completed": "#2e7d32", "Failed": "#c62828", "Canceled": "#8d6e00"}
_RUNNING = "#1565c0"
# The limit of metrics and nodes shown.
MOST = 8

Answer = Mapping[str, Any]


def metric_names(job: Answer) -> list[str]:
    """The metrics that the card of a job shows."""
    return [*dict.fromkeys(key.partition("/rank_")[0] for key in job.get("metrics", ()))][:MOST]


def card(job: Answer, metrics: Iterable[Answer] = (), lines: Iterable[str] = ()) -> str:
    """``job`` is the output of `job show --json`, ``metrics`` are series with their points,
    ``lines`` the last output. No external resources; text from the job is escaped."""
    parts = [_head(job), _error(job)]
    charts = [_metrics(job, metrics), "" if job["ended_at"] else _load(job.get("load", ()))]
    text = "\n".join(lines)
    output = [f'<pre style="{_PRE}">{escape(text)}</pre>'] if text else []
    failed = (job.get("error") or {}).get("rank")
    if text and failed is not None:
        parts += [f"<div>The last lines of rank {failed}:</div>", *output, *charts]
    else:
        parts += [*charts, *output]
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
_CHARTS = "display:flex;flex-wrap:wrap;gap:6px;margin:6px 0"
_CELL = "padding:1px 14px 1px 0;text-align:left"


def _head(job: Answer) -> str:
    colour = _COLOURS.get(job["status"], _RUNNING)
    if "processes" not in job or "counts" in job:  # a sweep or a pipeline
        size = ", ".join(f"{count} {each.lower()}" for each, count in job["counts"].items())
    elif job["processes"] == 1:
        size = "1 rank"
    else:
        size = f"{job['nodes']} × {job['processes'] // max(1, job['nodes'])} ranks"
    why = f" ({job['status_reason']})" if job.get("status_reason") and not job["ended_at"] else ""
    tries = f", attempt {job['attempts']}" if job["attempts"] > 1 else ""
    return (
        f"<div><b>{escape(job['name'])}</b> "
        f'<span style="color:{colour};font-weight:600">{escape(job["status"])}</span>'
        f"{escape(why + tries)} · {escape(size)} on {escape(job['compute'])}</div>"
    )


def _error(job: Answer) -> str:
    error = job.get("error")
    if not error:
        return ""
    known = error.get("cause", "UNKNOWN") != "UNKNOWN"
    cause = f"<br/>cause: {escape(error['explanation'])}" if known else ""
    hint = f"<br/>hint: {escape(error['hint'])}" if error.get("hint") else ""
    return f'<div style="color:{_COLOURS["Failed"]}">{escape(error["message"])}{cause}{hint}</div>'


def _metrics(job: Answer, metrics: Iterable[Answer]) -> str:
    by_name: dict[str, list[Answer]] = {}
    for series in metrics:
        if series["points"]:
            by_name.setdefault(series["name"], []).append(series)
    drawn = [chart(_title(name, several), _joined(several)) for name, several in by_name.items()]
    more = len({key.partition("/rank_")[0] for key in job.get("metrics", ())}) - len(by_name)
    rest = f"<div>and {more} metrics more</div>" if by_name and more > 0 else ""
    return f'<div style="{_CHARTS}">{"".join(drawn)}</div>{rest}' if by_name else ""


def _joined(several: Sequence[Answer]) -> list[Answer]:
    """A curve for each rank: attempts follow one another, without the steps that were repeated."""
    curves: dict[int | None, Answer] = {}
    for series in sorted(several, key=lambda series: series["attempt"]):
        rank, points = series["rank"], series["points"]
        before = curves[rank]["points"] if rank in curves else []
        kept = [point for point in before if point[0] < points[0][0]]
        curves[rank] = {**series, "points": [*kept, *points]}
    return [*curves.values()]


def _title(name: str, several: Sequence[Answer]) -> str:
    """The metric with its last value."""
    step, _, value = max((each["points"][-1] for each in several), key=lambda point: point[1])
    return f"{name} {_number(value)} at step {step}"


def _load(nodes: Sequence[Answer]) -> str:
    rows = []
    for node in nodes[:MOST]:
        parts = [f"cpu {node['cpu']:.0f} %"] if "cpu" in node else []
        if "memory" in node:
            total = node.get("memory_total")
            of = f" of {size_text(total)}" if total else ""
            parts.append(f"memory {size_text(node['memory'])}{of}")
        for gpu in node["gpus"]:
            if "gpu_load" in gpu:
                parts.append(f"GPU {gpu['gpu']} {gpu['gpu_load']:.0f} %")
        if "cpu" in (whole := node.get("node_load", {})):
            parts.append(f"all of the node: cpu {whole['cpu']:.0f} %")
        text = escape(", ".join(parts))
        rows.append(
            f'<tr><td style="{_CELL}">node {node["node"]}</td><td style="{_CELL}">{text}</td></tr>'
        )
    return _table(rows, len(nodes), "nodes")


def _table(rows: Sequence[str], count: int, what: str) -> str:
    if not rows:
        return ""
    more = f"<div>and {count - len(rows)} {what} more</div>" if count > len(rows) else ""
    return f'<table style="margin:4px 0;border:0"><tbody>{"".join(rows)}</tbody></table>{more}'


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"
