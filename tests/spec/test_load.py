"""YAML in and out: lines, plain words, mistakes, overrides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allranks.errors import NotFound, SpecError, UsageError
from allranks.spec.job import parse
from allranks.spec.yaml.load import dump, load, loads, override_key, read

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
)
LONG = "a: &a " + "x" * 100_000 + "\nb: [" + ",".join(["*a"] * 100) + "]"


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("1", 1),
        ("-2", -2),
        ("0x1f", 31),
        ("1.5", 1.5),
        ("1e-3", 0.001),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("yes", "yes"),
        ("on", "on"),
        ("2024-01-01", "2024-01-01"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("1.2.3", "1.2.3"),
        ("1e999", "1e999"),
        ("'1'", "1"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_plain_words(word: str, value: Any) -> None:
    data, _ = read(f"a: {word}")
    assert data == {"a": value}
    assert isinstance(data["a"], type(value))


def test_a_letter_that_json_writes_as_two() -> None:
    text = json.dumps({"name": "x 🎉", "tags": {"ü": "🏃🧪"}})
    assert "\\ud83c" in text
    assert read(text)[0] == {"name": "x 🎉", "tags": {"ü": "🏃🧪"}}
    assert read('{"a": "\\udf89\\ud83c"}')[0] == {"a": "\udf89\ud83c"}


def test_anchors_and_merges() -> None:
    text = "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: *a\non: 1"
    data, lines = read(text)
    assert data == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2}, "on": 1}
    assert lines["b.y"] == 4


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2", 4, "`c` is given twice", "line 3"),
        ("a: 1\n\tb: 2", 2, "not YAML", "indent with spaces"),
        ("a: b: c", 1, "an unexpected `:`", "quotes"),
        ("a: 'x", 1, "a quote that is not closed", "close it"),
        ("a: 1\nb: [1, 2\nc: 3\nd: 4", 2, "brackets or braces", "quote text"),
        ('a: 1\nb: "x\nc: 3\n', 2, "a quote that is not closed", "close it"),
        ("a: *b", 1, "an alias without its anchor", "&name"),
        ("a: 1\n---\nb: 2", 2, "a second document", "remove the `---`"),
        ("a: 1\nb: \x07", 2, "a control character", "remove it"),
        ("a: {b: ${{inputs.x}}}", 1, "brackets or braces", "quote text"),
        ("a:\n  b: 1\n c: 2", 3, "not YAML", ""),
        ("- a", 1, "this is not a mapping", "key: value"),
        ("just text", 1, "this is not a mapping", "key: value"),
        ("a: !!python/object/apply:os.system [id]", 1, "the tag `!!python", "without the tag"),
        ("a: !x y", 1, "the tag `!x` is not supported", "without the tag"),
        ("? [a]\n: b", 1, "a key cannot be a list or mapping", "plain word"),
        ("a:\n  <<: 1", 2, "`<<` needs a mapping", "&name"),
        (BOMB, 1, "expands to too many values", "write out the values"),
        (LONG, 1, "expands to too many values", "write out the values"),
        ("a: &a [*a]", None, "nests too deeply", "levels"),
        ("a: " + "[" * 100_000, None, "nests too deeply", "levels"),
    ],
)
def test_mistakes(text: str, line: int | None, message: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(text, file="job.yml")
    assert caught.value.line == line
    assert caught.value.file == "job.yml"
    assert message in caught.value.message
    assert caught.value.hint
    assert hint in caught.value.hint


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "jöb a.yml"
    path.write_text("\ufeffcommand: échø\n", encoding="utf-8")
    assert load(path).command == "échø"
    assert load(str(path), ["resources.instance_count=2"]).resources.instance_count == 2


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="file not found") as caught:
        load(tmp_path / "x.yml")
    assert caught.value.hint
    assert "x.yml" in str(caught.value.where)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a: 1\nb: \xff", "not UTF-8"), (b"#" * 1_000_001, "larger than 1 MB"), (None, "a folder")],
)
def test_files_that_are_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(SpecError, match=message) as caught:
        load(path)
    assert caught.value.hint
    assert caught.value.file == str(path)


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("a=1", "a", 1),
        ("a=", "a", None),
        ("a=1e-3", "a", 0.001),
        ("a=x: y # z", "a", "x: y # z"),
        ("a=b=c", "a", "b=c"),
        ("a='1'", "a", "1"),
        ("a=[1, b]", "a", [1, "b"]),
        ("a=[[ x ]] && y", "a", "[[ x ]] && y"),
        ("n.m.o=1", "n", {"m": {"o": 1}}),
        ("r.s=2", "r", {"s": 2, "t": 1}),
        ("l.0=z", "l", ["z"]),
        ("e.f=1", "e", {"f": 1}),
    ],
)
def test_overrides(override: str, key: str, value: Any) -> None:
    data: dict[str, Any] = {"r": {"t": 1}, "l": ["y"], "e": None}
    override_key(data, {}, override)
    assert data[key] == value


@pytest.mark.parametrize("override", ["a", "=1", "a..b=1", "s.x=1", "l.5=1", "l.x=1", "s.x.y=1"])
def test_overrides_that_are_refused(override: str) -> None:
    with pytest.raises(UsageError) as caught:
        override_key({"s": "text", "l": ["y"]}, {}, override)
    assert caught.value.where == "--set"
    assert caught.value.hint


def test_an_override_is_not_blamed_on_the_file() -> None:
    with pytest.raises(SpecError) as caught:
        loads("command: x\nresources:\n  shm_size: 1g", ["resources.instance_cout=2"])
    assert caught.value.line is None
    assert caught.value.where == "resources.instance_cout"


texts = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
words = st.sampled_from(
    ["1e-3", "1_0", "on", "null", "0o7", "1.", "~", "<<", "=", "a: b", "# x", ""]
)
scalars = texts | words | st.integers() | st.booleans() | st.floats(allow_nan=False)


@settings(max_examples=60)
@given(
    command=texts.filter(lambda t: t != "" and "$" not in t),
    tags=st.dictionaries(texts | words, texts | words, max_size=3),
    inputs=st.dictionaries(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True),
        scalars.filter(lambda v: v not in (float("inf"), -float("inf"))),
        max_size=4,
    ),
)
@example(command="0", tags={}, inputs={"A": "\x85", "B": "\u2028\n\r"})
def test_every_job_comes_back(command: str, tags: dict[str, str], inputs: dict[str, Any]) -> None:
    job = parse({"command": command, "tags": tags, "inputs": inputs})
    again = loads(dump(job))
    assert again == job
    assert [type(v) for v in again.inputs.values()] == [type(v) for v in inputs.values()]
