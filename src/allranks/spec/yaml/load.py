"""Read a job from YAML with the line of every key, and write it back.

Plain scalars follow ``allranks.spec.fields.plain_words``. Tags and multiple documents are errors.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from allranks.errors import NotFound, Problem, SpecError, UsageError
from allranks.spec.any_job import AnyJob, parse_any
from allranks.spec.fields.plain_words import PLAIN, TAG, written
from allranks.spec.fields.scalars import Real, Whole
from allranks.spec.yaml.unused_overrides import ineffective, names

MAX_BYTES = 1_000_000
# A few lines of aliases can stand for billions of values ("billion laughs").
MAX_VALUES = 100_000
MAX_DEPTH = 50
MAX_LETTERS = 4 * MAX_BYTES

# PyYAML's messages, and ours.
_MISTAKES = (
    (
        "cannot start any token",
        "an unexpected character",
        "indent with spaces, not tabs; quote text that begins with `@`, `%` or a backtick",
    ),
    (
        "mapping values are not allowed",
        "an unexpected `:`",
        "put the text in quotes, or correct the indentation",
    ),
    (
        "expected <block end>",
        "the indentation does not match the lines above",
        "align the keys of one mapping",
    ),
    (
        "could not find expected ':'",
        "a key without its `:`",
        "write `key: value`, or quote the text",
    ),
    (
        "expected a single document",
        "a second document starts here",
        "use one file per job: remove the `---`",
    ),
    (
        "while parsing a flow",
        "unbalanced brackets or braces",
        "quote text within them: `{a: '${{inputs.x}}'}`",
    ),
    ("undefined alias", "an alias without its anchor", "define it first as `&name`"),
    ("while scanning a quoted scalar", "a quote that is not closed", "close it, or double it: ''"),
)
_OPENED = ("while parsing a flow", "while scanning a quoted scalar")


def load(
    path: str | Path, overrides: Sequence[str] = (), *, engines: Collection[str] = ()
) -> AnyJob:
    """The job in the file at ``path``, after ``a.b=c`` overrides. Its paths are unchanged and start
    at the file's folder. ``engines`` as in ``override_keys``.

    Raises NotFound, SpecError (everything wrong, with lines) and UsageError (an override).
    """
    job = loads(content(Path(path)), overrides, file=str(path), engines=engines)
    return job.based(Path(path).parent)


def loads(
    text: str,
    overrides: Sequence[str] = (),
    *,
    file: str | None = None,
    engines: Collection[str] = (),
) -> AnyJob:
    """The job in ``text``; ``file`` is its name in error messages."""
    data, lines = read(text, file=file)
    try:
        override_keys(data, lines, overrides, engines=engines)
    except SpecError as error:
        raise SpecError(error.problems, file=file) from None
    return parse_any(data, lines, file)


def override_keys(
    data: dict[str, Any],
    lines: dict[str, int],
    overrides: Sequence[str],
    *,
    typed: bool = False,
    engines: Collection[str] = (),
) -> None:
    """Set each ``a.b=c`` in place.

    ``typed``: the job comes from a command line. ``engines``: the valid names in
    `resources.properties`, if known. Raises UsageError for what is not ``a.b=c``, SpecError for
    overrides without effect.
    """
    before = names(data)
    for override in overrides:
        override_key(data, lines, override)
    paths = [override.partition("=")[0].strip() for override in overrides]
    if errors := ineffective(data, before, paths, typed=typed, engines=engines):
        raise SpecError(errors)


def changed_keys(spec: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The keys that ``overrides`` change, with what stays of them."""
    data = copy.deepcopy(dict(spec))
    for override in overrides:
        override_key(data, {}, override)
    for value in filter(lambda value: isinstance(value, dict), data.values()):
        for name in [name for name in value if value[name] is None]:
            del value[name]
    return {key: value for key, value in data.items() if value != spec.get(key)}


def read(text: str, *, file: str | None = None) -> tuple[dict[str, Any], dict[str, int]]:
    """The mapping in ``text``, and the line (from 1) of each dotted key: ``warm.0`` for items."""
    reader = _Reader()
    try:
        node = yaml.compose(text, Loader=_Loader)
        data = {} if node is None else reader.value(node, "")
    except yaml.YAMLError as error:
        raise SpecError(_mistake(error, text), file=file) from None
    except SpecError as error:
        raise SpecError(error.problems, file=file) from None
    except RecursionError:
        problem = Problem("the file nests too deeply", hint="a job needs at most five levels")
        raise SpecError(problem, file=file) from None
    if not isinstance(data, dict):
        hint = "write `key: value`, one per line"
        problem = Problem("this is not a mapping of keys to values", None, 1, hint)
        raise SpecError(problem, file=file)
    return data, reader.lines


def override_key(data: dict[str, Any], lines: dict[str, int], override: str) -> None:
    """Set one ``a.b=c`` in place, creating mappings as needed."""
    path, equals, value = override.partition("=")
    steps = path.strip().split(".")
    if not equals or not all(steps):
        hint = "write `--set resources.instance_count=4`"
        raise UsageError(f"`{override}` is not `key=value`", where="--set", hint=hint)
    place: Any = data
    for step in steps[:-1]:
        if isinstance(place, dict) and place.get(step) is None:
            place[step] = {}
        place = _within(place, step, override)
    if isinstance(place, list):
        _within(place, steps[-1], override)
        place[int(steps[-1])] = _parse_value(value)
    elif isinstance(place, dict):
        place[steps[-1]] = _override_value(steps, value, place.get(steps[-1]))
    else:
        raise _unreachable(override)
    # The value is not from the file, so it has no line.
    lines[".".join(steps)] = 0


def dump(job: AnyJob) -> str:
    """The job as YAML without default values; ``loads`` reads it back."""
    return written(job.to_dict())


def content(path: Path) -> str:
    """The text of a YAML file, `-` for stdin. Raises SpecError if it cannot be read."""
    try:
        with path.open("rb") if str(path) != "-" else open(0, "rb", closefd=False) as file:
            raw = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        hint = "give the path of a file that is there"
        raise NotFound("file not found", where=str(path), hint=hint) from None
    except IsADirectoryError:
        raise _unreadable(path, "it is a folder", f"give the file: `{path}/job.yml`") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        hint = "check its path and its permissions"
        raise _unreadable(path, f"the file cannot be read: {reason}", hint) from None
    if len(raw) > MAX_BYTES:
        raise _unreadable(path, "the file is larger than 1 MB", "data belongs in `inputs`")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problem = Problem("the file is not UTF-8 text", None, line, "save it as UTF-8")
        raise SpecError(problem, file=str(path)) from None


def _unreadable(path: Path, message: str, hint: str) -> SpecError:
    return SpecError(Problem(message, hint=hint), file=str(path))


def _within(place: Any, step: str, override: str) -> Any:
    if isinstance(place, dict):
        return place[step]
    if isinstance(place, list) and step.isdecimal() and int(step) < len(place):
        return place[int(step)]
    raise _unreachable(override)


def _unreachable(override: str) -> UsageError:
    path = override.partition("=")[0]
    hint = "set the whole value, or a key inside a mapping"
    return UsageError(f"`{path}` goes into a value without keys", where="--set", hint=hint)


def _override_value(steps: Sequence[str], value: str, before: Any) -> Any:
    """The value of a key that was ``before``: what can only be text stays as typed, as does the
    new number of an input that is text in the file (`"1.10"`)."""
    # As in `jobs.train.inputs.x` and `trial.environment_variables.A`.
    section = steps[-2] if len(steps) > 1 else ""
    if section in _TEXTS and value.startswith(("[", "{")):
        return value
    parsed = _parse_value(value)
    is_text = "inputs" in steps[:-1] and isinstance(before, str)
    is_text |= section in _TEXTS and not isinstance(parsed, bool)
    return value if is_text and isinstance(parsed, int | float) else parsed


def _parse_value(value: str) -> Any:
    """The value after ``=``: a plain YAML scalar, or quotes, `[…]` and `{…}` in YAML syntax."""
    if value.startswith(("[", "{", '"', "'")):
        try:
            return _Reader().value(yaml.compose(value, Loader=_Loader), "")
        except yaml.YAMLError:
            return value
        except RecursionError:
            hint = "a job needs at most five levels"
            raise UsageError("the value nests too deeply", where="--set", hint=hint) from None
    tag = next((tag for tag, (regex, _) in PLAIN.items() if regex.match(value)), "str")
    return _scalar(TAG + tag, value)


# Mappings of names to texts.
_TEXTS = ("environment_variables", "tags", "properties")
_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class _Loader(yaml.BaseLoader):
    """Only composes nodes, with YAML 1.2's plain scalars."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # PyYAML needs seconds for a thousand open brackets.
        if self.depth == MAX_DEPTH:
            raise RecursionError
        self.depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        if isinstance(node, yaml.ScalarNode) and _HALVES.search(node.value):
            # JSON, which is YAML, may write a letter as two: "\ud83d\ude00".
            halves = node.value.encode("utf-16", "surrogatepass")
            node.value = halves.decode("utf-16", "surrogatepass")
        return node


for _tag, (_regex, _first) in PLAIN.items():
    _Loader.add_implicit_resolver(TAG + _tag, _regex, _first)


class _Reader:
    """Values of YAML nodes, counted, with the line of each key."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self.values = 0
        self.letters = 0

    def value(self, node: yaml.Node | None, path: str) -> Any:
        if node is None:
            return None
        self.count(node)
        if isinstance(node, yaml.MappingNode) and node.tag == TAG + "map":
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == TAG + "seq":
            return [self.item(item, f"{path}.{i}") for i, item in enumerate(node.value)]
        is_standard = isinstance(node, yaml.ScalarNode) and node.tag.startswith(TAG)
        if is_standard and node.tag.removeprefix(TAG) in (*PLAIN, "str"):
            return _scalar(node.tag, node.value)
        tag = node.tag.replace(TAG, "!!")
        hint = "write the plain value without the tag"
        raise SpecError(
            Problem(f"the tag `{tag}` is not supported", path or None, _line(node), hint)
        )

    def item(self, node: yaml.Node, path: str) -> Any:
        self.lines.setdefault(path, _line(node))
        return self.value(node, path)

    def mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == TAG + "merge":
                merged = {**self.merged(value_node, path), **merged}
                continue
            key = self.key(key_node, path)
            dotted = f"{path}.{key}" if path else key
            if key in own:
                hint = f"it also stands on line {self.lines[dotted]}: remove one of the two"
                problem = Problem(f"`{key}` is given twice", dotted, _line(key_node), hint)
                raise SpecError(problem)
            self.lines[dotted] = _line(key_node)
            own[key] = self.value(value_node, dotted)
        return {**merged, **own}

    def merged(self, node: yaml.Node, path: str) -> dict[str, Any]:
        several = node.value if isinstance(node, yaml.SequenceNode) else [node]
        result: dict[str, Any] = {}
        for one in several:
            if not isinstance(one, yaml.MappingNode):
                hint = "write `<<: *name`, where `&name` marks a mapping"
                raise SpecError(Problem("`<<` needs a mapping", path, _line(one), hint))
            before, self.lines = self.lines, {}
            self.count(one)
            result = {**self.mapping(one, path), **result}
            for key, line in self.lines.items():
                before.setdefault(key, line)
            self.lines = before
        return result

    def key(self, node: yaml.Node, path: str) -> str:
        if isinstance(node, yaml.ScalarNode):
            self.count(node)
            return str(node.value)
        hint = "a key is a plain word: quote text that begins with `[`, `{` or `?`"
        raise SpecError(
            Problem("a key cannot be a list or mapping", path or None, _line(node), hint)
        )

    def count(self, node: yaml.Node) -> None:
        self.values += 1
        self.letters += len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        if self.values > MAX_VALUES or self.letters > MAX_LETTERS:
            hint = "its aliases multiply: write out the values"
            raise SpecError(Problem("the file expands to too many values", None, _line(node), hint))


def _scalar(tag: str, text: str) -> Any:
    kind = tag.removeprefix(TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    try:
        if kind == "int":
            whole = Whole(text, 0 if text[:2] in ("0x", "0o") else 10)
            whole.written = text
            return int(whole) if str(int(whole)) == text else whole
        if kind == "float":
            real = Real(text)
            real.written = text
            if math.isfinite(real):
                return float(real) if str(float(real)) == text else real
    except ValueError:  # thousands of digits, or `!!int` before something else
        return text
    return text


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _mistake(error: yaml.YAMLError, text: str) -> Problem:
    line, why = None, str(error)
    if isinstance(error, yaml.MarkedYAMLError):
        why = f"{error.context or ''} {error.problem or ''}".strip()
        # What is never closed is noticed lines later.
        opened = error.context_mark if why.startswith(_OPENED) else None
        mark = opened or error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
    elif isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, int(error.position)) + 1
        hint = "remove it, or write it as an escape in double quotes"
        return Problem("the file contains a control character", None, line, hint)
    for theirs, ours, hint in _MISTAKES:
        if theirs in why:
            return Problem(f"this is not YAML: {ours}", None, line, hint)
    return Problem(f"this is not YAML: {why}", None, line, "correct the line, or the one above it")


__all__ = ["dump", "load", "loads", "override_key", "override_keys", "read"]
