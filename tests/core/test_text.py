"""What can be stored and shown, and what becomes of what cannot."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.text import DEEPEST, LONGEST, flaw, may_have_flaw, printable, repaired

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=20,
)


@given(VALUES)
@pytest.mark.medium
def test_what_has_no_flaw_is_unchanged_and_all_else_can_be_repaired(value: object) -> None:
    found = repaired(value)
    assert flaw(found) is None
    json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    if flaw(value) is None:
        assert found == value


@given(VALUES, st.booleans(), st.sampled_from(["utf-8", "utf-16", "utf-32-le"]))
@pytest.mark.medium
def test_a_body_that_is_not_looked_at_has_no_flaw(value: object, ascii: bool, code: str) -> None:
    body = json.dumps(value, ensure_ascii=ascii).encode(code, errors="surrogatepass")
    assert may_have_flaw(body) or flaw(json.loads(body)) is None


@pytest.mark.parametrize(
    "body",
    [
        b"1e400",
        b"9" * 400,
        b"9" * 299 + b"e99",
        b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1),
        b'"' + b"x" * (LONGEST + 1) + b'"',
        '"\\u0000"'.encode("utf-16-le"),
    ],
)
def test_a_body_with_a_flaw_is_looked_at(body: bytes) -> None:
    assert may_have_flaw(body)
    assert not may_have_flaw(b'[{"kind": "ready", "at": 1795945919.764222, "id": "15d64fe3"}]')


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": ["x", {"b": "\ud800"}]}, "spec.a.1.b"),
        ({"a": {"\udfff": 1}}, r"spec.a.\udfff"),
        ([1.0, math.inf], "spec.1"),
        ("\0", "spec"),
        ("x" * (LONGEST + 1), "spec"),
        ({"n": -(10**400)}, "spec.n"),
    ],
)
def test_a_flaw_says_where(value: object, where: str) -> None:
    found = flaw(value, "spec")
    assert found is not None
    assert found.where == where
    assert found.message.isascii()


def test_names_of_files_may_be_any_bytes() -> None:
    name = b"\xff\x80.txt".decode(errors="surrogateescape")
    assert flaw(name, names=True) is None
    assert flaw(name) is not None
    assert flaw("\ud800", names=True) is not None


def test_what_nests_for_ever_is_found_without_going_there() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    found = flaw(value)
    assert found is not None
    assert "deep" in found.message
    assert repaired(value) is not None


def test_text_is_shown_as_text_and_controls_as_escapes():
    assert printable("Zürich 模型.pt") == "Zürich 模型.pt"
    assert printable("a\x1b[2J\n\u202e\udce9") == "a\\x1b[2J\\n\\u202e\\udce9"
    assert len(printable("x" * 500)) == 200
