"""An early stopping in a script that waits for more epochs than a rank runs."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

_OPTION = re.compile(r"--([\w-]+)(?:=|[ \t]+)(\$\{\{.*?\}\}|\S+)")
_INPUT = re.compile(r"\$\{\{\s*inputs\.(\S+?)\s*\}\}")
_WHOLE: Mapping[str, Callable[[float], int]] = {
    "int": math.trunc,
    "ceil": math.ceil,
    "floor": math.floor,
}
# Expressions deeper than this are not followed: a name may stand for itself.
_DEEP = 20


class IdleStopping(NamedTuple):
    """The line of an early stopping that cannot stop the training, and the epochs of a rank."""

    line: int
    patience: float
    epochs: float


def idle_stopping(
    tree: ast.Module, command: str, inputs: Mapping[str, Any], processes: int
) -> IdleStopping | None:
    """The first in a script, None if there is none or a number depends on what only a run knows.
    ``processes`` is the world size by which Horovod's examples divide epochs; 0 if unknown."""
    script = _Script(tree, command, inputs, processes)
    epochs = [script.number(count) for count in script.epochs()]
    most = max((count for count in epochs if count is not None), default=None)
    if most is None or None in epochs:
        return None
    for call in script.calls:
        value = _keyword(call, "patience") if _last(call.func) == "EarlyStopping" else None
        patience = None if value is None else script.number(value)
        if patience is not None and patience >= most:
            return IdleStopping(call.lineno, patience, most)
    return None


class _Script:
    """A script with the options of its command."""

    def __init__(
        self, tree: ast.Module, command: str, inputs: Mapping[str, Any], processes: int
    ) -> None:
        nodes = [*ast.walk(tree)]
        self.calls = [node for node in nodes if isinstance(node, ast.Call)]
        self._loops = [node for node in nodes if isinstance(node, ast.For)]
        self._processes = processes
        self._names: dict[str, list[ast.expr]] = {}
        for node in nodes:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._names.setdefault(node.targets[0].id, []).append(node.value)
        self._options: dict[str, ast.expr] = {}
        for call in self.calls:
            default = _keyword(call, "default")
            if _last(call.func) == "add_argument" and default is not None:
                names = [str(name.value) for name in call.args if isinstance(name, ast.Constant)]
                self._options |= {_destination(name): default for name in names}
        for name, value in _OPTION.findall(command):
            text = _INPUT.sub(lambda match: str(inputs.get(match[1])), value)
            number = float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None
            self._options[_destination(name)] = ast.Constant(number)

    def epochs(self) -> Iterator[ast.expr]:
        """How many there are: arguments of `fit` and of trainers, and ranges of loops."""
        for call in self.calls:
            values = [_keyword(call, name) for name in ("epochs", "max_epochs")]
            yield from (value for value in values if value is not None)
        for loop in self._loops:
            if "epoch" in ast.unparse(loop.target):
                match loop.iter:
                    case ast.Call(func=ast.Name(id="range"), args=[end]):
                        yield end
                    case other:
                        yield other

    def number(self, node: ast.expr, depth: int = 0) -> float | None:
        """The value of an expression, None if it is not known."""
        if depth > _DEEP:
            return None
        match node:
            case ast.Constant(value=int() | float()):
                return float(node.value)  # type: ignore[arg-type]
            case ast.Name(id=name) if len(values := self._names.get(name, [])) == 1:
                return self.number(values[0], depth + 1)
            case ast.Attribute(attr=name) if name in self._options:
                return self.number(self._options[name], depth + 1)
            case ast.Call(args=[]) if _last(node.func) in ("size", "get_world_size"):
                return self._processes or None
            case ast.Call(args=[part]) if _last(node.func) in _WHOLE:
                value = self.number(part, depth + 1)
                return None if value is None else _WHOLE[_last(node.func)](value)
            case ast.BinOp(op=ast.Div() | ast.FloorDiv()):
                above = self.number(node.left, depth + 1)
                below = self.number(node.right, depth + 1)
                if above is None or not below:
                    return None
                return above // below if isinstance(node.op, ast.FloorDiv) else above / below
        return None


def _destination(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((word.value for word in call.keywords if word.arg == name), None)


def _last(function: ast.expr) -> str:
    """The last part of its name."""
    return ast.unparse(function).rpartition(".")[2]
