"""Whether a job that was killed goes on as if it had not been: told from what it logged. Pure.

Three trails are compared: what was logged ``before`` a rank was killed, what ``after`` it by the
next attempt, and what the same job logged that nobody touched, the ``whole``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple

from allranks.spec.fields.patterns import BUILTIN, KNOWN, STEP, VALUE

# The relative difference that two values of one step may have, and so many logged steps after the
# kill are enough.
TOLERANCE, ENOUGH = 1e-3, 10

# By their names: what follows from the step alone, which a script that has forgotten all tells the
# same; and what follows from what was learnt, without which nothing is verified.
_OF_THE_STEP = re.compile(
    r"(?:^|[^a-z])(?:lr|learning_rate|epochs?|steps?|iter(?:ation)?s?)$", re.I
)
_LEARNT = re.compile(
    r"(?:^|[^a-z])(?:loss|acc(?:uracy)?\d?|err(?:or)?|perplexity|ppl|score|reward|grad(?:ient)?_norm|"
    r"auc|f1|bleu)(?![a-z])(?!.*(?:time|seconds|sec|ms|bytes)$)",
    re.IGNORECASE,
)

# Of one attempt: metric → step → value, steps in the order in which they were logged.
Trail = Mapping[str, Mapping[int, float]]


class Verdict(StrEnum):
    """What a rehearsal has found; the first two are what one wants."""

    EXACT = "exact"
    WITHIN = "within tolerance"
    PARTS = "does not go on as before"
    FROM_ZERO = "starts from zero"
    FAILS = "fails when it is to go on"
    NO_CHECKPOINT = "no checkpoint was written"
    NO_STEPS = "no metric has steps"
    TOO_LITTLE = "there is too little to compare"
    DISTURBED = "ended too early"
    UNLIKE = "does not repeat itself"
    UNTOLD = "no metric tells it"


VERIFIED = (Verdict.EXACT, Verdict.WITHIN)

HINTS: Mapping[Verdict, str] = {
    Verdict.EXACT: "",
    Verdict.WITHIN: "",
    Verdict.PARTS: "what it goes on from lacks something: the optimizer, the schedule, the place in"
    " the data, or what its random generators were at",
    Verdict.FROM_ZERO: "look for a checkpoint in ALLRANKS_STATE_DIR when the script begins, and"
    " load it; write nothing there before the first one: any file is taken for it",
    Verdict.FAILS: "see what its second attempt printed",
    Verdict.NO_CHECKPOINT: "write them to the folder that ALLRANKS_STATE_DIR names",
    Verdict.NO_STEPS: r"print them, and read them with -m loss='step (?P<step>\d+) loss"
    r" (?P<value>\S+)', or log them to MLflow with a step, from one rank",
    Verdict.TOO_LITTLE: "give it more to do, have it write checkpoints sooner, and each beside its"
    " place and then renamed: one that is written in place is whole at the end only",
    Verdict.DISTURBED: "see why: a rehearsal needs a job that runs well",
    Verdict.UNLIKE: "seed its random generators, or allow more: --tolerance",
    Verdict.UNTOLD: "log one that follows from what was learnt, such as the loss of each step: one"
    " that never changes, a schedule or a clock is the same whatever was forgotten",
}


class Parting(NamedTuple):
    """The first step at which the two differ by more than they may; ``difference`` is relative."""

    metric: str
    step: int
    resumed: float
    uninterrupted: float
    difference: float


class Found(NamedTuple):
    """``last`` step before the kill and ``first`` after it, of the metric with the most steps;
    ``again`` and ``skipped`` are how many were done twice, and how many nobody has logged.

    ``compared`` values after the kill differ by ``largest`` at most; before it, where both runs are
    alike, by ``noise``. ``left_out`` are metrics that differ by more than allowed there already,
    and by how much.
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
    parted: Parting | None = None


# ---------------------------------------------------------------- trails


def is_counted(name: str, asked: Mapping[str, Any]) -> bool:
    """Whether the steps of a printed metric are only how often it was seen, as far as its job's
    ``metrics`` tell: they begin anew with every attempt, and say nothing."""
    given = {
        each: told if isinstance(told, str) else told.get("pattern", BUILTIN)
        for each, told in asked.items()
    }
    pattern = given.get(name, BUILTIN)
    if pattern != BUILTIN:
        compiled = re.compile(pattern)
        named = VALUE in compiled.groupindex
        return STEP not in compiled.groupindex if named else compiled.groups < 2
    formats = [known for each, told in given.items() if told == BUILTIN for known in KNOWN[each]]
    own = [known for known in formats if known.before and name.startswith(known.before)]
    formats = own or [known for known in formats if not known.before]
    return not any("n" in re.compile(known.line).groupindex for known in formats)


def trail(points: Mapping[str, Sequence[tuple[int, float]]]) -> Trail:
    """Of the points of an attempt, as they were logged: those metrics whose steps never go back,
    as they do where they are counted by epoch, or told by several ranks."""
    return {metric: dict(several) for metric, several in points.items() if not _goes_back(several)}


def backwards(points: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Which metrics are no trail for that, in words; empty when none is."""
    names = ", ".join(metric for metric, several in points.items() if _goes_back(several))
    what = "log one that goes on over epochs, and from one rank"
    return f"the steps of {names} go back ({what})" if names else ""


def _goes_back(points: Sequence[tuple[int, float]]) -> bool:
    return any(one > other for (one, _), (other, _) in pairwise(points))


def clock(before: Trail) -> str | None:
    """The metric that tells best how far a job is; None where none has at least two steps."""
    several = {metric: len(steps) for metric, steps in before.items() if len(steps) > 1}
    return max(sorted(several), key=several.__getitem__, default=None)


def begins_anew(before: Trail, after: Trail) -> bool:
    """Whether the first step after the kill is the first there is."""
    by = clock(before)
    return by is not None and by in after and min(after[by]) <= min(before[by])


def is_enough(before: Trail, after: Trail, took: float, takes: float) -> bool:
    """Whether the second attempt has gone on for long enough: some steps past the kill, or a single
    one when it ``takes`` already as long as the first one ``took``."""
    by = clock(before)
    if by is None or by not in after:
        return False
    past = sum(step > max(before[by]) for step in after[by])
    return past >= ENOUGH or (past > 0 and takes >= took)


def is_covered(before: Trail, after: Trail, whole: Trail) -> bool:
    """Whether the whole trail goes as far as there is something to compare it with; what it does
    not tell is not waited for longer than for some steps."""

    def ahead(metric: str) -> int:
        return sum(step >= max(after[metric]) for step in whole.get(metric, ()))

    by = clock(before)
    assert by is not None
    return by in after and (
        all(ahead(metric) for metric in after if metric in before) or ahead(by) > ENOUGH
    )


# ---------------------------------------------------------------- the decision


def judge(before: Trail, after: Trail, whole: Trail, tolerance: float = TOLERANCE) -> Found:
    """What became of a job that was killed and went on, and had time to log some of it."""
    by = clock(before)
    if by is None:
        return Found(Verdict.NO_STEPS)
    if by not in after:
        return Found(Verdict.TOO_LITTLE, last=max(before[by]))
    last, first = max(before[by]), min(after[by])
    # Steps that are logged every so often stand for those in between.
    stride = min(other - one for one, other in pairwise(sorted(before[by])))
    found = Found(
        Verdict.FROM_ZERO,
        last=last,
        first=first,
        again=max(0, last - first + stride),
        skipped=max(0, first - last - stride),
    )
    return (
        found if begins_anew(before, after) else _compared(found, before, after, whole, tolerance)
    )


def _compared(found: Found, before: Trail, after: Trail, whole: Trail, tolerance: float) -> Found:
    metrics = [metric for metric in after if after[metric].keys() & whole.get(metric, {}).keys()]
    noises = {metric: _largest(before.get(metric, {}), whole[metric]) for metric in metrics}
    left_out = {metric: noise for metric, noise in noises.items() if noise > tolerance}
    kept = [metric for metric in metrics if metric not in left_out]
    found = found._replace(
        noise=max((noises[metric] for metric in kept), default=0.0), left_out=left_out
    )
    differences = [
        Parting(metric, step, value, whole[metric][step], difference(value, whole[metric][step]))
        for metric in kept
        for step, value in after[metric].items()
        if step in whole[metric]
    ]
    if not differences:
        return found._replace(verdict=Verdict.UNLIKE if left_out else Verdict.TOO_LITTLE)
    largest = max(each.difference for each in differences)
    parted = [each for each in differences if each.difference > tolerance]
    verdict = Verdict.WITHIN if largest else Verdict.EXACT
    if parted:
        verdict = Verdict.PARTS
    elif not any(_tells(metric, whole[metric].values(), tolerance) for metric in kept):
        verdict = Verdict.UNLIKE if left_out else Verdict.UNTOLD
    elif any(map(_LEARNT.search, left_out)):
        verdict = Verdict.UNLIKE
    return found._replace(
        verdict=verdict,
        compared=len(differences),
        largest=largest,
        parted=min(parted, key=lambda each: (each.step, each.metric), default=None),
    )


def _tells(metric: str, values: Iterable[float], tolerance: float) -> bool:
    """Whether it would be another if something was forgotten: it changes by more than is allowed,
    and not with the step alone."""
    finite = [each for each in values if math.isfinite(each)]
    moves = bool(finite) and difference(min(finite), max(finite)) > tolerance
    return moves and bool(_LEARNT.search(metric) or not _OF_THE_STEP.search(metric))


def difference(one: float, other: float) -> float:
    """Between two values, relative to the greater; 0 only for the same, NaN is the same as NaN."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.inf
    most = max(abs(one), abs(other))
    # Each by itself: what two numbers differ by may be greater than all numbers.
    return max(abs(one / most - other / most), math.ulp(0.0))


def _largest(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    return max(
        (difference(one[step], other[step]) for step in one.keys() & other.keys()), default=0.0
    )


# ---------------------------------------------------------------- words


def sentence(found: Found, tolerance: float, more: str = "") -> str:
    """The verdict in words; ``more`` is told behind it."""
    word = "verified" if found.verdict in VERIFIED else "not verified"
    told = [f"resume {word}: {found.verdict}{_how(found, tolerance)}{f': {more}' if more else ''}"]
    if found.verdict in (*VERIFIED, Verdict.PARTS):
        told.append(f"{_steps(found.again)} done again")
        if found.skipped:
            told.append(f"{_steps(found.skipped)} logged by nobody")
    return "; ".join(told)


def notes(found: Found) -> list[str]:
    """What else a person should know."""
    told = []
    if found.noise:
        told.append(
            f"the script does not repeat itself to the bit: before the kill the two runs differ by"
            f" {found.noise:.2g} already, so exact cannot be asked of it"
        )
    if found.left_out and found.verdict is not Verdict.UNLIKE:
        names = ", ".join(f"{name} (by {noise:.2g})" for name, noise in found.left_out.items())
        told.append(f"left out, because the two runs differ there before the kill: {names}")
    return told


def _steps(count: int) -> str:
    return f"{count or 'no'} step{'s were' if count > 1 else ' was'}"


def _how(found: Found, tolerance: float) -> str:
    match found.verdict:
        case Verdict.WITHIN:
            return f" (the largest difference is {found.largest:.2g})"
        case Verdict.PARTS if found.parted is not None:
            at = found.parted
            return (
                f": at step {at.step} {at.metric} is {at.resumed:.6g}, without the kill"
                f" {at.uninterrupted:.6g} (a difference of {at.difference:.2g}, {tolerance:g} is"
                " allowed)"
            )
        case Verdict.FROM_ZERO:
            return f": a checkpoint was there at step {found.last}, and it begins at {found.first}"
        case Verdict.UNLIKE:
            metric = min(found.left_out, key=lambda name: (not _LEARNT.search(name), name))
            noise = found.left_out[metric]
            return f": {metric} of two runs differs by {noise:.2g} before anything is killed"
        case _:
            return ""
