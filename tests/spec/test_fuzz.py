"""Whatever a job file or a command says: a job or a sentence, and soon."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.errors import AllranksError, UsageError
from allranks.spec.job import parse
from allranks.spec.shell.expressions import fill, fill_shell, references
from allranks.spec.yaml.load import dump, loads, override_key, read
from tests.server.http.test_fuzz import SPEC, examples, nearly


def sentence(ask: Callable[[], Any]) -> Any:
    """What it gives; or nothing, and an error that is whole."""
    try:
        return ask()
    except AllranksError as told:
        error = told
    assert error.message
    assert error.hint
    json.dumps(error.body())
    return None


PIECES = ["command: ", "a: ", "- ", "? ", ": ", "{", "}", "[", "]", "&a ", "*a", "<<: ", "!!int "]
PIECES += ["!x ", "|\n", "> \n", "'", '"', "\n", "  ", "\t", "#", "---\n", "...\n", "%YAML 1.1\n"]
PIECES += [
    "0x",
    "9" * 400,
    "1e999",
    ".inf",
    "~",
    "\x00",
    "\x07",
    "\ud800",
    "\u2028",
    "\x85",
    "\ufeff",
]
PIECES += ["inputs:\n", "  x: 1\n", "instance_count: ", "\\x00", "\\ud800", "\\U00110000", "${{"]
PIECES += ["}}", "$[[", "]]", "retry: ", "environment: ", "distribution: ", "metrics: "]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=40).map("".join)


@examples(150)
@given(texts, st.booleans())
def test_any_text_is_a_job_or_a_mistake(text: str, command: bool) -> None:
    sentence(lambda: loads("command: x\n" * command + text))


@examples(150)
@given(nearly(SPEC))
def test_jobs_that_are_nearly_right(body: bytes) -> None:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return
    job = sentence(lambda: parse(data)) if isinstance(data, dict) else None
    written = None if job is None else sentence(lambda: dump(job))
    if written is not None:
        assert job is not None
        assert loads(written).to_dict() == job.to_dict()


@pytest.mark.parametrize("key", ["environment", "command", "compute", "code", "name", "tags"])
def test_half_a_character(key: str) -> None:
    rest = "" if key == "command" else "command: x\n"
    sentence(lambda: loads(f'{rest}{key}: "\\uD800"\n'))


@examples(60)
@given(st.text(max_size=12), texts)
def test_overrides(key: str, value: str) -> None:
    sentence(lambda: override_key({"a": [{"b": 1}]}, {}, f"{key}={value}"))


@pytest.mark.parametrize("value", ["[" * 1000, "{a: &a [*a]}", "{a: " * 200])
def test_an_override_that_nests_without_end(value: str) -> None:
    with pytest.raises(UsageError, match="nests too deeply"):
        override_key({}, {}, f"x={value}")


SHELL = ["${{inputs.x}}", "${{", "}}", "$[[", "]]", "$[[--x ${{a.b}}]]", "$(", "`", '"', "'", "\\"]
SHELL += ["$((", "))", "<<E\n", "E\n", "<<-'E'\n", "case x in", "esac", "#", "${", "}", "\n", "a=("]
VALUES = {"inputs.x": "1; rm -rf / $(id)"}


@examples(200)
@given(st.lists(st.sampled_from(SHELL) | st.text(max_size=4), max_size=25).map("".join))
def test_any_command(text: str) -> None:
    sentence(lambda: references(text))
    sentence(lambda: fill(text, VALUES))
    sentence(lambda: fill_shell(text, VALUES, ()))


BIG = {
    "keys": "".join(f"k{i}: {i}\n" for i in range(8_000)),
    "values": "a: [" + "1," * 49_000 + "]",
    "merges": "<<: &a {x: 1}\n" + "".join(f"b{i}: {{<<: *a}}\n" for i in range(5_000)),
    "openings": "command: '" + "$[[ " * 24_000 + "'",
    "options": "command: '" + "$[[ ${{inputs.x}} ]] " * 4_000 + "'\ninputs: {x: 1}",
    "substitutions": "command: '" + "$(" * 45_000 + "'",
    "quotes": "a: '" + "''" * 49_000 + "'",
    "brackets": "{" * 99_000,
    "documents": "command: |\n " + "<<E\\n" * 16_000,
    "group": "command: x\nmetrics:\n  a: '" + "(" * 24_000 + ")" * 24_000 + "'",
}


@pytest.mark.parametrize("name", BIG)
@pytest.mark.medium
def test_a_hundred_kilobytes_do_not_take_long(name: str) -> None:
    text = BIG[name]
    assert len(text) < 110_000
    began = time.process_time()
    sentence(lambda: loads(text))
    # Half a second to two of it are PyYAML's own; what was quadratic took a minute and more.
    assert time.process_time() - began < 20


def test_merges_keep_the_line_of_who_wrote_first() -> None:
    _, lines = read("a: &a {x: 1}\nb:\n  <<: *a\n  y: 1\nc:\n  x: 2\n  <<: *a")
    assert (lines["b.x"], lines["b.y"], lines["c.x"]) == (1, 4, 6)
