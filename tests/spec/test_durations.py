"""One way to write how long: at options and in files."""

from __future__ import annotations

import pytest

from allranks.cli.parser import parser_of
from allranks.errors import UsageError
from allranks.spec.fields.durations import seconds_of
from allranks.spec.job import parse

OPTIONS = {
    "run": ("timeout", "hang_timeout"),
    "dev": ("timeout", "idle_timeout"),
    "job wait": ("timeout",),
    "job profile": ("seconds",),
    "compute wait": ("timeout",),
    "model deploy": ("timeout",),
    "top": ("interval",),
}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90", 90), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("7d", 604800), ("2w", 1209600)),
        *(
            (" 2W ", 1209600),
            (".5", 0.5),
            ("0", 0),
            ("30 m", 1800),
            ("1e4", 10000),
            ("1_000", 1000),
        ),
    ],
)
def test_seconds(text: str, seconds: float):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "m", "-1", "nan", "inf", "1e400", "3x", "1h30m", "٣s", "9" * 400]
)
def test_what_is_none(text: str):
    with pytest.raises(ValueError, match=r"is not a duration, such as 90s, 30m, 1\.5h, 7d or 2w"):
        seconds_of(text)


@pytest.mark.parametrize(("command", "key"), [(c, k) for c, keys in OPTIONS.items() for k in keys])
def test_options(command: str, key: str):
    option = f"--{key.replace('_', '-')}"
    name = [] if command in ("run", "dev", "top") else ["x"]
    for text, seconds in (("2", 2.0), ("1.5h", 5400.0), ("2w", 1209600.0)):
        assert getattr(parser_of(command).parse_args([option, text, *name]), key) == seconds
    with pytest.raises(UsageError, match=f"{option}.* 'soon' is not a duration"):
        parser_of(command).parse_args([option, "soon", *name])


def test_keys():
    written = {"command": "x", "limits": {"timeout": "1.5h"}, "hang_timeout": "90"}
    job = parse(written)
    assert (job.limits.timeout, job.hang_timeout) == (5400.0, 90.0)
