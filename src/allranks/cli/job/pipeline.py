"""Show a pipeline and its steps on a terminal or in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from allranks.cli.job.children import ENDED, ChildrenViewer, progress
from allranks.cli.output import show

if TYPE_CHECKING:
    from allranks.api.jobs import JobAnswer, StepAnswer, StreamedJob
    from allranks.sdk.jobs.follow import Children

_MARKS = {"Completed": "✓", "Failed": "✗", "Canceled": "–", None: "○"}
_RUNNING, _REUSED = "●", "↺"
# Steps beside each other in the graph; more are counted.
_WIDE = 8


class PipelineViewer(ChildrenViewer):
    """Follows a pipeline: a line for each step that starts or ends."""

    def lines(self, job: StreamedJob, children: Children) -> Iterator[tuple[str, str]]:
        for step in cast("Sequence[StepAnswer]", children):
            started = step["status"] in ("Running", *ENDED)
            if started and self.is_new(f"{step['job']} {step['status'] in ENDED}"):
                yield step_line(step), step["status"] or ""

    def label(self, child: str) -> str:
        return child.removeprefix(f"{self._name}_")

    def progress(self, job: StreamedJob) -> str:
        return progress(job, job["total_steps"], "steps")


def step_line(step: StepAnswer) -> str:
    """One step that has started or ended."""
    text = f"{step['step']}: {step['status']}"
    if step["reused"]:
        text += f", reused from {step['reused']}"
    elif step["status"] in ENDED and step["duration"] is not None:
        text += f" after {show.seconds(step['duration'])}"
    if step["status"] == "Failed" and step["error"]:
        text += f"  {step['error']}"
    return show.one_line(text)


def show_result(job: JobAnswer, took: str) -> None:
    """Print how the pipeline ended and where its outputs are."""
    reused = sum(1 for step in job["steps"].values() if step["reused"])
    more = f", {reused} reused" if reused else ""
    show.talk(f"{job['name']}: {job['status']}{took}, {_ends(job)}{more}", job["status"])
    for name, path in job["outputs"].items():
        show.talk(f"output {name}: {path}")


def _ends(job: JobAnswer) -> str:
    """How many steps completed; unless all did, also how the others ended."""
    counts, total = job["counts"], job["total_steps"]
    text = f"{counts.get('Completed', 0)} of {total} steps"
    others = {word: counts.get(word.capitalize(), 0) for word in ("failed", "canceled")}
    others["not run"] = total - sum(counts.values())
    if not any(others.values()):
        return text
    return f"{text} completed" + "".join(f", {n} {word}" for word, n in others.items() if n)


def fields(job: JobAnswer) -> list[tuple[str, str]]:
    """What only a pipeline has."""
    return [("steps", progress(job, job["total_steps"], "steps").partition(": ")[2])]


def show_children(job: JobAnswer) -> None:
    """The graph of a pipeline and its steps."""
    print()
    for line in graph(job["steps"]):
        show.line(line)
    print()
    show.columns(("step", "status", "after", "took", "job"), _rows(job["steps"]))


def graph(steps: Mapping[str, StepAnswer]) -> list[str]:
    """The steps as lines: those of a line depend on lines above it."""
    depth: dict[str, int] = {}
    for name, step in steps.items():
        depth[name] = 1 + max((depth[each] for each in step["after"]), default=-1)
    levels: dict[int, list[str]] = {}
    for name, at in depth.items():
        levels.setdefault(at, []).append(f"{_mark(steps[name])} {name}")
    lines: list[str] = []
    for at in sorted(levels):
        shown, more = levels[at][:_WIDE], len(levels[at]) - _WIDE
        text = "   ".join(shown) + (f"   and {more} more" if more > 0 else "")
        lines += ["  ↓", text] if lines else [text]
    return [show.one_line(line) for line in lines]


def _mark(step: StepAnswer) -> str:
    return _REUSED if step["reused"] else _MARKS.get(step["status"], _RUNNING)


def _rows(steps: Mapping[str, StepAnswer]) -> list[tuple[str, ...]]:
    return [
        (
            name,
            step["status"] or "-",
            ", ".join(step["after"]) or "-",
            "-" if step["duration"] is None else show.seconds(step["duration"]),
            f"{step['job'] or '-'}" + (f" (from {step['reused']})" if step["reused"] else ""),
        )
        for name, step in steps.items()
    ]
