"""Patterns for metrics in the output of ranks, and the built-in ones."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from threading import Lock
from typing import NamedTuple

# Catching warnings is global to the process, not to a thread.
_WARNED = Lock()
# Written instead of a pattern to use the built-in ones.
BUILTIN = "builtin"
# Named groups, for lines with the step before the number.
VALUE, STEP = "value", "step"
# An escaped character, a set of characters, or a group without another one in it, which is kept.
_GROUPS = re.compile(r"\\.|\[\^?\]?[^]]*\]|\((?!\?)((?:\\.|\[\^?\]?[^]]*\]|[^()\\])*)\)")
# What a group holds that takes whole numbers only.
_WHOLE = re.compile(r"(?:\\d|\[0-9\])(?:[*+]\??|\{\d*,?\d*\})?")


class Known(NamedTuple):
    """How a program reports. Lines in which ``line`` is found are read: each match of ``pair``, a
    name and a number, is a point of the metric ``names`` gives that name, or else of that name.

    The step is that of ``line``'s groups, `n` of `of` in `epoch`; without them points are counted.
    Where ``heads`` is found, its group `epoch` holds for the lines that follow. ``last``: only
    lines whose `n` is `of` count. ``before`` is put before the names. ``redrawn``: a step's line is
    shown several times, of which the last is right.
    """

    line: str
    pair: str
    names: Mapping[str, str] = {}
    heads: str = ""
    last: bool = False
    before: str = ""
    redrawn: bool = False


_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)"
_IMAGENET = {
    "Time": "batch_time",
    "Data": "data_time",
    "Loss": "loss",
    "Acc@1": "acc1",
    "Acc@5": "acc5",
}

KNOWN: dict[str, tuple[Known, ...]] = {
    # PyTorch's examples/imagenet: each step's own values, not their averages in parentheses.
    "imagenet": (
        Known(
            r"Epoch: \[(?P<epoch>\d+)\]\[\s*(?P<n>\d+)/(?P<of>\d+)\]",
            rf"\t(Time|Data|Loss|Acc@1|Acc@5)\s+({_NUMBER})\s+\(",
            names=_IMAGENET,
        ),
        Known(r"^ \* ", rf"(Acc@1|Acc@5)\s+({_NUMBER})", names=_IMAGENET, before="val_"),
    ),
    # Lightning's progress bar, by tqdm or by rich, which breaks its lines.
    "lightning": (
        Known(
            r"^Epoch (?P<epoch>\d+):.*?\s(?P<n>\d+)/(?P<of>\d+) \[",
            rf"[,\s]([A-Za-z][\w./-]*)=({_NUMBER})(?=[,\]])",
            redrawn=True,
        ),
        Known(
            r"^Epoch (?P<epoch>\d+)/\d+ .* (?P<n>\d+)/(?P<of>\d+) .*it/s",
            rf" ([A-Za-z][\w./-]*): ({_NUMBER})(?=\s|$)",
            redrawn=True,
        ),
        Known(r"^ {30,}[A-Za-z]", rf" ([A-Za-z][\w./-]*): ({_NUMBER})(?=\s|$)"),
    ),
    # The transformers Trainer: one dictionary a line.
    "transformers": (
        Known(
            r"^\{'[\w/.-]+': .*\}\s*$",
            rf"'([\w/.-]+)': '?({_NUMBER})'?(?=[,}}])",
        ),
    ),
    # Keras's `fit`: what stands at the end of an epoch.
    "keras": (
        Known(
            r"^\s*(?P<n>\d+)/(?P<of>\d+) ",
            rf" - ([A-Za-z]\w*): ({_NUMBER})",
            heads=r"^Epoch (?P<epoch>\d+)/\d+",
            last=True,
            redrawn=True,
        ),
    ),
}


def _compiled(pattern: str) -> re.Pattern[str]:
    """Raises FutureWarning for what Python would else complain of on somebody's screen."""
    with _WARNED, warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        return re.compile(pattern)


def wrong(pattern: str) -> tuple[str, str] | None:
    """What is wrong with a pattern and how to mend it, completing "`name` …"; None if nothing."""
    try:
        compiled = _compiled(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        hint = r"write `\(` for a bracket of the text; 'single quotes' keep the backslash"
        return f"is not a regular expression: {error}", hint
    except FutureWarning as warning:
        hint = r"inside `[…]` write a backslash before `[`, `-`, `&`, `|` and `~`"
        return f"is ambiguous: {str(warning).lower()}", hint
    named = compiled.groupindex.keys()
    hint = f"name groups `(?P<{VALUE}>…)` or `(?P<{STEP}>…)`; write others as `(?:…)`"
    for name in named - {VALUE, STEP}:
        return f"has an unknown group name `{name}`", hint
    if VALUE in named:
        return None
    if STEP in named:
        return f"has a group `{STEP}` but none named `{VALUE}`", hint
    if compiled.groups == 0:
        hint = r"as in 'loss: ([0-9.]+)'; a second group may hold the step"
        return "needs a group around the number", hint
    if compiled.groups > 2:
        hint = "write other groups as `(?:…)`, or name the two: `(?P<value>…)`, `(?P<step>…)`"
        return f"must have one group, or two with the step, not {compiled.groups}", hint
    if named_groups := _with_step_first(pattern):
        return "has the step first: without names the first group is the number", named_groups
    return None


def _with_step_first(pattern: str) -> str:
    """The hint to name the two groups of a pattern, if only the second may hold a fraction."""
    groups = [group for group in _GROUPS.finditer(pattern) if group[1] is not None]
    if len(groups) != 2 or not _WHOLE.fullmatch(groups[0][1]) or _WHOLE.fullmatch(groups[1][1]):
        return ""
    step, value = (group.start() + 1 for group in groups)
    named = f"{pattern[:step]}?P<{STEP}>{pattern[step:value]}?P<{VALUE}>{pattern[value:]}"
    return f"name the groups: `{named}`"
