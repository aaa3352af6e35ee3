"""``${{inputs.x}}`` and ``$[[--opt ${{inputs.x}}]]``: find and replace references.

In ``$[[inputs.x]]``, which public files have, the braces were forgotten: it is the input's value
and, as on Azure, its own text if there is none.

Agents import this module at start-up, so it only uses the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from allranks.errors import Problem, SpecError
from allranks.spec.shell.quoting import Held
from allranks.spec.shell.substitute import weave

_OPEN = re.compile(r"\$\{\{|\$\[\[")
_NAME = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*\}\}")
BARE = re.compile(r"\$\[\[\s*((?:in|out)puts\.[\w.-]+)\s*\]\]")


class _Reference(NamedTuple):
    """``otherwise``: its text if it has no value, where it may have none."""

    name: str
    otherwise: str | None = None


class _Option(NamedTuple):
    pieces: list[str | _Reference]


def references(text: str, *, optional: bool = True) -> list[str]:
    """The dotted names in ``text``, in order; ``optional=False`` leaves out those in ``$[[ ]]``.

    Raises SpecError where a ``${{`` is not closed or does not hold a name.
    """
    names: list[str] = []
    for piece in _pieces(text):
        if isinstance(piece, _Option):
            names += [p.name for p in piece.pieces if isinstance(p, _Reference) and optional]
        elif isinstance(piece, _Reference) and (optional or piece.otherwise is None):
            names.append(piece.name)
    return names


def fill(text: str, values: Mapping[str, str]) -> str:
    """``text`` with every reference replaced by its value.

    Values are not searched for references. Raises SpecError for a name not in ``values``, except in
    ``$[[ ]]``, which is then dropped.
    """
    return "".join(
        values[piece.name] if isinstance(piece, _Reference) else piece
        for piece in _remaining_pieces(text, values)
    )


def fill_shell(text: str, values: Mapping[str, str], paths: Collection[str]) -> str:
    """``text`` as a bash command in which no value can be executed.

    A value in quotes, or one of ``paths``, arrives unchanged. A literal outside quotes is what a
    variable of bash is there, without globbing: split at blanks, and no word if it is empty. Raises
    SpecError for an unknown name, and for a value that no quoting makes safe at its position (see
    ``allranks.spec.shell.substitute``).
    """
    atoms: list[str | Held] = []
    for piece in _remaining_pieces(text, values):
        if isinstance(piece, _Reference):
            atoms.append(Held(piece.name, values[piece.name], piece.name in paths))
        else:
            atoms.extend(piece)
    return weave(atoms)


def unknown(name: str, defined: Iterable[str], *, where: str | None = None) -> Problem:
    """The problem of an undefined reference, with the most similar name as its hint."""
    from difflib import get_close_matches  # lazy: agents import this module, only errors need it

    names = sorted(defined)
    near = get_close_matches(name, names, n=1)
    if near:
        hint = f"did you mean `${{{{{near[0]}}}}}`?"
    elif names:
        hint = "known here: " + ", ".join(f"`{n}`" for n in names)
    else:
        hint = "declare it under `inputs` or `outputs`"
    return Problem(f"`${{{{{name}}}}}` is not defined", where=where, hint=hint)


def _remaining_pieces(text: str, values: Mapping[str, str]) -> Iterator[str | _Reference]:
    """The pieces that remain for these values. Raises one SpecError for all unknown names."""
    missing: list[Problem] = []
    for piece in _pieces(text):
        if isinstance(piece, _Option):
            if all(p.name in values for p in piece.pieces if isinstance(p, _Reference)):
                yield from piece.pieces
        elif isinstance(piece, _Reference) and piece.name not in values:
            if piece.otherwise is None:
                missing.append(unknown(piece.name, values))
            else:
                yield piece.otherwise
        else:
            yield piece
    if missing:
        raise SpecError(missing)


def _pieces(text: str) -> Iterator[str | _Reference | _Option]:
    at = 0
    closing = _finder(text, "]]")
    naming = _finder(text, "${{")
    while opened := _OPEN.search(text, at):
        start, inner = opened.span()
        if text[at:start]:
            yield text[at:start]
        if opened[0] == "${{":
            name, at = _reference(text, start)
            yield _Reference(name)
            continue
        if bare := BARE.match(text, start):
            yield _Reference(bare[1], otherwise=bare[1])
            at = bare.end()
            continue
        end = closing(inner)
        named = naming(inner)
        if end < 0 <= named:
            raise _broken("$[[", text[start:], "close it with `]]`")
        if not 0 <= named < end:
            # `$[[:space:]]` of a regular expression belongs to the command.
            yield "$[["
            at = inner
            continue
        yield _Option(list(_plain_pieces(text[inner:end])))
        at = end + 2
    if text[at:]:
        yield text[at:]


def _finder(text: str, what: str) -> Callable[[int], int]:
    """``text.find(what, at)`` for an ``at`` that only grows: all calls scan the text once."""
    position = text.find(what)

    def find(at: int) -> int:
        nonlocal position
        if 0 <= position < at:
            position = text.find(what, at)
        return position

    return find


def _plain_pieces(text: str) -> Iterator[str | _Reference]:
    at = 0
    while (start := text.find("${{", at)) >= 0:
        if text[at:start]:
            yield text[at:start]
        name, at = _reference(text, start)
        yield _Reference(name)
    if text[at:]:
        yield text[at:]


def _reference(text: str, start: int) -> tuple[str, int]:
    """The name in the ``${{`` at ``start``, and the end of the reference."""
    if matched := _NAME.match(text, start + 3):
        return matched[1], matched.end()
    end = text.find("}}", start)
    if end < 0 or "${{" in text[start + 3 : end]:
        raise _broken("${{", text[start:], "close it with `}}`, as in `${{inputs.x}}`")
    problem = f"`{_short(text[start : end + 2])}` is not a reference"
    raise SpecError(Problem(problem, hint="write a dotted name, as in `${{inputs.x}}`"))


def _broken(opening: str, rest: str, hint: str) -> SpecError:
    return SpecError(Problem(f"`{opening}` is not closed in `{_short(rest)}`", hint=hint))


def _short(text: str) -> str:
    line = text.splitlines()[0]
    return line if len(line) <= 40 else line[:39] + "…"
