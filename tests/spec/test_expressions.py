"""Finding references and filling them in, as plain text."""

from __future__ import annotations

import subprocess
import sys

import pytest

from allranks.errors import SpecError
from allranks.spec.shell.expressions import fill, fill_shell, references


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("a $HOME ${x} $(y) {{z}}", []),
        ("${{inputs.x}}", ["inputs.x"]),
        ("${{ inputs.x }}/${{\toutputs.y}}", ["inputs.x", "outputs.y"]),
        ("$[[--a ${{inputs.a}} ${{inputs.b}}]] ${{name}}", ["inputs.a", "inputs.b", "name"]),
        ("${{parent.jobs.my-step.outputs.o}}", ["parent.jobs.my-step.outputs.o"]),
        ("grep 'a$[[:space:]]' ${{inputs.x}}", ["inputs.x"]),
        ("--n $[[inputs.n]] $[[ outputs.o ]]", ["inputs.n", "outputs.o"]),
    ],
)
def test_references_in_order(text: str, found: list[str]) -> None:
    assert references(text) == found


def test_optional_references_can_be_left_out() -> None:
    assert references("${{name}} $[[${{inputs.a}}]]", optional=False) == ["name"]
    assert references("$[[inputs.a]]", optional=False) == []


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("${{inputs.a}}-${{ inputs.b }}", "1-${{inputs.a}}"),
        ("x $[[--a ${{inputs.a}}]] y", "x --a 1 y"),
        ("x $[[--c ${{inputs.c}}]] y", "x  y"),
        ("x $[[--a ${{inputs.a}} --c ${{inputs.c}}]]", "x "),
        ("$[[ no reference ]]", "$[[ no reference ]]"),
        ("--a $[[inputs.a]] --c $[[inputs.c]] -d", "--a 1 --c inputs.c -d"),
    ],
)
def test_fill(text: str, filled: str) -> None:
    assert fill(text, {"inputs.a": "1", "inputs.b": "${{inputs.a}}"}) == filled


@pytest.mark.parametrize("filler", [fill, lambda text, values: fill_shell(text, values, [])])
@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        (
            "${{inputs.lrr}}",
            "`${{inputs.lrr}}` is not defined",
            "did you mean `${{inputs.lr}}`?",
        ),
        ("${{zzz}}", "`${{zzz}}` is not defined", "known here: `inputs.lr`"),
        ("a ${{inputs.lr", "`${{` is not closed in `${{inputs.lr`", "close it with `}}`"),
        ("${{inputs.lr} ${{inputs.lr}}", "`${{` is not closed", "close it with `}}`"),
        ("${{a b}}", "`${{a b}}` is not a reference", "dotted name"),
        ("${{}}", "`${{}}` is not a reference", "dotted name"),
        ("$[[--x ${{inputs.lr}}", "`$[[` is not closed", "close it with `]]`"),
    ],
)
def test_what_is_refused(filler, text: str, said: str, hint: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError) as caught:
        filler(text, {"inputs.lr": "1"})
    assert said in caught.value.message
    assert hint in str(caught.value.hint)


def test_all_unknown_names_are_told_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        fill("${{a}} ${{b}}", {})
    assert len(caught.value.problems) == 2


def test_a_long_word_is_read_in_no_time() -> None:
    word = "a" * 200_000
    text = f"x=1 python s.py {word} y={word} ${{{{inputs.x}}}}"
    assert fill_shell(text, {"inputs.x": "1"}, ()).startswith(f"x=1 python s.py {word} y={word} ")


def test_nothing_heavy_is_imported() -> None:
    heavy = {"pydantic", "yaml", "dataclasses", "inspect", "difflib", "asyncio", "subprocess"}
    code = "import sys, allranks.spec.shell.expressions; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not heavy & set(loaded.stdout.split())
