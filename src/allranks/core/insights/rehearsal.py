"""Whether a killed job resumes as if it had not been killed, decided from its metrics. Pure.

Three trails are compared: what was logged ``before`` a rank was killed, what the next attempt
logged ``after`` it, and what the same job logged without a kill (``uninterrupted``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple

from allranks.spec.fields.metric_formats import BUILTIN, KNOWN, STEP, VALUE

# The allowed relative difference between two values of a step, and the number of logged steps that
# suffice after the kill.
TOLERANCE, ENOUGH = 1e-3, 10

# Metrics that depend on the step alone, which prove nothing; and metrics that depend on the
# learnt state, without which nothing is verified.
_OF_THE_STEP = re.compile(
    r"(?:^|[^a-z])(?:lr|learning_rate|epochs?|steps?|iter(?:ation)?s?)$", re.I
)
_LEARNT = re.compile(
    r"(?:^|[^a-z])(?:loss|acc(?:uracy)?\d?|err(?:or)?|perplexity|ppl|score|reward|grad(?:ient)?_norm|"
    r"auc|f1|bleu)(?![a-z])(?!.*(?:time|seconds|sec|ms|bytes)$)",
    re.IGNORECASE,
)

# Metric → step → value of one attempt; steps in the order of logging.
Trail = Mapping[str, Mapping[int, float]]


class Verdict(StrEnum):
    """The result of a rehearsal; only the first two mean that resume is verified."""

    EXACT = "exact"
    WITHIN = "within tolerance"
    DIFFERS = "continues differently"
    FROM_ZERO = "starts from zero"
    FAILS = "fails to resume"
    NO_CHECKPOINT = "no checkpoint was written"
    NO_STEPS = "no metric has steps"
    TOO_LITTLE = "not enough data to compare"
    DISTURBED = "ended too early"
    NOT_REPRODUCIBLE = "not reproducible"
    NOT_SHOWN = "no metric shows it"


VERIFIED = (Verdict.EXACT, Verdict.WITHIN)

HINTS: Mapping[Verdict, str] = {
    Verdict.EXACT: "",
    Verdict.WITHIN: "",
    Verdict.DIFFERS: "save and load the complete state: optimizer, learning rate schedule, position"
    " in the data, and random generators",
    Verdict.FROM_ZERO: "when the script starts, look for a checkpoint where it writes"
    " them, in the working folder or ALLRANKS_STATE_DIR, and load it; write no other files to the"
    " latter: any file there counts as a checkpoint",
    Verdict.FAILS: "read the log of its second attempt",
    Verdict.NO_CHECKPOINT: "write checkpoints to the working folder, or to the folder in"
    " ALLRANKS_STATE_DIR",
    Verdict.NO_STEPS: r"print steps and collect them with -m loss='step (?P<step>\d+) loss"
    r" (?P<value>\S+)', or log metrics to MLflow with a step, from one rank",
    Verdict.TOO_LITTLE: "let the job train longer or write checkpoints earlier; write each to a"
    " temporary name and rename it, so that it is complete as soon as it appears",
    Verdict.DISTURBED: "read its log: a rehearsal needs a job that succeeds",
    Verdict.NOT_REPRODUCIBLE: "seed the random generators, or allow more: --tolerance",
    Verdict.NOT_SHOWN: "log a metric that depends on the learnt state and still changes after the"
    " kill, such as the loss of each step: constants, a loss of 0, schedules and timers do not show"
    " whether state was lost",
}


class Divergence(NamedTuple):
    """The first step whose values differ by more than allowed; ``difference`` is relative."""

    metric: str
    step: int
    resumed: float
    uninterrupted: float
    difference: float


class Result(NamedTuple):
    """``last`` is the last step before the kill and ``first`` the first after it, of the metric
    with the most steps; ``again`` steps were repeated, ``skipped`` steps logged by neither.

    The ``compared`` values after the kill differ by at most ``largest``; those before it by
    ``noise``. ``left_out`` metrics differ by more than allowed already before the kill.
    """

    verdict: Verdict
    last: int = 0
    first: int = 0
    again: int = 0
    skipped: int = 0
    compared: int = 0
    largest: float = 0.0
    noise: float = 0.0
    left_out: Mapping[str, float] = {}
    parted: Divergence | None = None


# ---------------------------------------------------------------- trails


def is_counted(name: str, metrics: Mapping[str, Any]) -> bool:
    """Whether the steps of a printed metric are mere counts, according to the job's ``metrics``.
    Such counts say nothing of the work done."""
    patterns = {
        metric: entry if isinstance(entry, str) else entry.get("pattern", BUILTIN)
        for metric, entry in metrics.items()
    }
    pattern = patterns.get(name, BUILTIN)
    if pattern != BUILTIN:
        compiled = re.compile(pattern)
        named = VALUE in compiled.groupindex
        return STEP not in compiled.groupindex if named else compiled.groups < 2
    formats = [known for key, text in patterns.items() if text == BUILTIN for known in KNOWN[key]]
    own = [known for known in formats if known.before and name.startswith(known.before)]
    formats = own or [known for known in formats if not known.before]
    return not any("n" in re.compile(known.line).groupindex for known in formats)


def trail(points: Mapping[str, Sequence[tuple[int, float]]]) -> Trail:
    """The trail of an attempt: only metrics whose steps never decrease, as they do if counted per
    epoch or logged by several ranks."""
    return {metric: dict(several) for metric, several in points.items() if not _goes_back(several)}


def backwards(points: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """A note on metrics that ``trail`` excludes; empty if there are none."""
    names = ", ".join(metric for metric, several in points.items() if _goes_back(several))
    hint = "count steps over all epochs, and log from one rank"
    return f"the steps of {names} go back ({hint})" if names else ""


def _goes_back(points: Sequence[tuple[int, float]]) -> bool:
    return any(one > other for (one, _), (other, _) in pairwise(points))


def clock(before: Trail) -> str | None:
    """The metric with the most steps; None if none has at least two."""
    several = {metric: len(steps) for metric, steps in before.items() if len(steps) > 1}
    return max(sorted(several), key=several.__getitem__, default=None)


def begins_anew(before: Trail, after: Trail) -> bool:
    """Whether the first step after the kill is the first of all."""
    by = clock(before)
    return by is not None and by in after and min(after[by]) <= min(before[by])


def is_enough(before: Trail, after: Trail, took: float, takes: float) -> bool:
    """Whether the second attempt has run for long enough: ENOUGH steps past the kill, or a single
    one if it has run for as long (``takes``, in seconds) as the first attempt (``took``)."""
    by = clock(before)
    if by is None or by not in after:
        return False
    past = sum(step > max(before[by]) for step in after[by])
    return past >= ENOUGH or (past > 0 and takes >= took)


def is_covered(before: Trail, after: Trail, uninterrupted: Trail) -> bool:
    """Whether the uninterrupted run has reached the steps to compare. Metrics that it does not log
    delay the answer by at most ENOUGH steps."""

    def ahead(metric: str) -> int:
        return sum(step >= max(after[metric]) for step in uninterrupted.get(metric, ()))

    by = clock(before)
    assert by is not None
    return by in after and (
        all(ahead(metric) for metric in after if metric in before) or ahead(by) > ENOUGH
    )


# ---------------------------------------------------------------- the decision


def judge(
    before: Trail, after: Trail, uninterrupted: Trail, tolerance: float = TOLERANCE
) -> Result:
    """The result for a job that was killed, resumed and logged some steps."""
    by = clock(before)
    if by is None:
        return Result(Verdict.NO_STEPS)
    if by not in after:
        return Result(Verdict.TOO_LITTLE, last=max(before[by]))
    last = max(before[by])
    first = min(after[by])
    # Logged steps stand for the steps between them.
    stride = min(other - one for one, other in pairwise(sorted(before[by])))
    result = Result(
        Verdict.FROM_ZERO,
        last=last,
        first=first,
        again=max(0, last - first + stride),
        skipped=max(0, first - last - stride),
    )
    return (
        result
        if begins_anew(before, after)
        else _compared(result, before, after, uninterrupted, tolerance)
    )


def _compared(
    result: Result, before: Trail, after: Trail, uninterrupted: Trail, tolerance: float
) -> Result:
    metrics = [
        metric for metric in after if after[metric].keys() & uninterrupted.get(metric, {}).keys()
    ]
    noises = {metric: _largest(before.get(metric, {}), uninterrupted[metric]) for metric in metrics}
    left_out = {metric: noise for metric, noise in noises.items() if noise > tolerance}
    kept = [metric for metric in metrics if metric not in left_out]
    result = result._replace(
        noise=max((noises[metric] for metric in kept), default=0.0), left_out=left_out
    )
    differences = [
        Divergence(
            metric,
            step,
            value,
            uninterrupted[metric][step],
            difference(value, uninterrupted[metric][step]),
        )
        for metric in kept
        for step, value in after[metric].items()
        if step in uninterrupted[metric]
    ]
    if not differences:
        return result._replace(verdict=Verdict.NOT_REPRODUCIBLE if left_out else Verdict.TOO_LITTLE)
    largest = max(divergence.difference for divergence in differences)
    divergent = [divergence for divergence in differences if divergence.difference > tolerance]
    verdict = Verdict.WITHIN if largest else Verdict.EXACT
    if divergent:
        verdict = Verdict.DIFFERS
    elif not any(
        _shows_lost_state(metric, after[metric], uninterrupted[metric], tolerance)
        for metric in kept
    ):
        verdict = Verdict.NOT_REPRODUCIBLE if left_out else Verdict.NOT_SHOWN
    elif any(map(_LEARNT.search, left_out)):
        verdict = Verdict.NOT_REPRODUCIBLE
    return result._replace(
        verdict=verdict,
        compared=len(differences),
        largest=largest,
        parted=min(divergent, key=lambda each: (each.step, each.metric), default=None),
    )


def _shows_lost_state(
    metric: str, after: Mapping[int, float], whole: Mapping[int, float], tolerance: float
) -> bool:
    """Whether a metric would show lost state: at least half of its compared values are finite and
    differ by more than allowed from those of the step before. A loss that comes down to 0, in the
    printed digits, is the same whatever was lost; so are values of the step alone."""
    steps = sorted(whole)
    changes = [
        math.isfinite(whole[step]) and difference(whole[before], whole[step]) > tolerance
        for before, step in pairwise(steps)
        if step in after
    ]
    moves = 2 * sum(changes) >= len(changes) > 0
    return moves and bool(_LEARNT.search(metric) or not _OF_THE_STEP.search(metric))


def difference(one: float, other: float) -> float:
    """The difference relative to the greater value; 0 only for equal values; NaN equals NaN."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.inf
    most = max(abs(one), abs(other))
    # Divided first, because the difference of two floats may overflow.
    return max(abs(one / most - other / most), math.ulp(0.0))


def _largest(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    return max(
        (difference(one[step], other[step]) for step in one.keys() & other.keys()), default=0.0
    )


# ---------------------------------------------------------------- text


def sentence(result: Result, tolerance: float, more: str = "") -> str:
    """The verdict as text, followed by ``more``."""
    status = "verified" if result.verdict in VERIFIED else "not verified"
    detail = f"{_detail(result, tolerance)}{f': {more}' if more else ''}"
    parts = [f"resume {status}: {result.verdict}{detail}"]
    if result.verdict in (*VERIFIED, Verdict.DIFFERS):
        parts.append(f"{_steps(result.again)} repeated")
        if result.skipped:
            parts.append(f"{_steps(result.skipped)} logged by neither attempt")
    return "; ".join(parts)


def notes(result: Result) -> list[str]:
    """Notes for the user."""
    notes = []
    if result.noise:
        notes.append(
            f"the script is not bitwise reproducible: the two runs differ by {result.noise:.2g}"
            " before the kill, so an exact result is not possible"
        )
    if result.left_out and result.verdict is not Verdict.NOT_REPRODUCIBLE:
        names = ", ".join(f"{name} (by {noise:.2g})" for name, noise in result.left_out.items())
        notes.append(f"ignored, because the two runs differ before the kill: {names}")
    return notes


def _steps(count: int) -> str:
    return f"{count or 'no'} step{'s were' if count > 1 else ' was'}"


def _detail(result: Result, tolerance: float) -> str:
    match result.verdict:
        case Verdict.WITHIN:
            return f" (the largest difference is {result.largest:.2g})"
        case Verdict.DIFFERS if result.parted is not None:
            at = result.parted
            return (
                f": at step {at.step}, {at.metric} is {at.resumed:.6g} instead of"
                f" {at.uninterrupted:.6g} (relative difference {at.difference:.2g}, allowed"
                f" {tolerance:g})"
            )
        case Verdict.FROM_ZERO:
            return f": a checkpoint existed at step {result.last}, but it begins at {result.first}"
        case Verdict.NOT_REPRODUCIBLE:
            metric = min(result.left_out, key=lambda name: (not _LEARNT.search(name), name))
            noise = result.left_out[metric]
            return f": {metric} differs by {noise:.2g} between two runs before the kill"
        case _:
            return ""
