"""Numbers that ranks print: what a pattern for them may be, and those that are known by name."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from threading import Lock
from typing import NamedTuple

# Whose warnings are caught is known of a whole process, not of a thread.
_WARNED = Lock()
# What is written where a pattern would be: those that are known by the metric's name.
BUILTIN = "builtin"
# Groups that say what they are, for a line that has its step before the number.
VALUE, STEP = "value", "step"


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
        hint = "put it in 'single quotes': shells and YAML leave alone what is in those"
        return f"is not a regular expression: {error}", hint
    except FutureWarning as warning:
        hint = r"inside `[…]` write a backslash before `[`, `-`, `&`, `|` and `~`"
        return f"may mean something else to another Python: {str(warning).lower()}", hint
    named = compiled.groupindex.keys()
    hint = f"a group may be named `(?P<{VALUE}>…)` or `(?P<{STEP}>…)`; one that groups is `(?:…)`"
    for name in named - {VALUE, STEP}:
        return f"has a group named `{name}`, which stands for nothing", hint
    if VALUE in named:
        return None
    if STEP in named:
        return f"has a group `{STEP}`, and none named `{VALUE}`", hint
    if compiled.groups == 0:
        hint = r"as in 'loss: ([0-9.]+)'; a second group may hold the step"
        return "must have a group around the number, and has none", hint
    if compiled.groups > 2:
        hint = "a group that only groups is `(?:…)`; or name the two: `(?P<value>…)`, `(?P<step>…)`"
        return f"must have one group, or two with the step's, and has {compiled.groups}", hint
    return None
