"""Judge a program for Azure's SDKs without running it: names, members and arguments that it uses.

What our classes do not have is a problem. What cannot be followed here is a doubt: the type of a
value, data elsewhere, packages at a version. A program without either runs.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import allranks
from allranks.agent.inside import azureml_run
from allranks.cli.importing import downloads
from allranks.cli.importing.finding import prefix_of
from allranks.cli.importing.keywords import KEYS_OF_JOBS, keywords_of
from allranks.compat.azure.absent import Absent
from allranks.compat.azure.names import NAMES
from allranks.compat.azure.v2 import CommandWithComponent
from allranks.core.environments import curated
from allranks.core.environments.recipe import Compute, Resolved, resolve
from allranks.errors import AllranksError, Problem, SpecError
from allranks.sdk.assets.data import DataAssets
from allranks.sdk.assets.environments import Environments
from allranks.sdk.assets.models import Models
from allranks.sdk.client import Job
from allranks.sdk.pipelines.components import Components
from allranks.sdk.submit.command import Command
from allranks.sdk.submit.nodes import SECTIONS, Node
from allranks.spec.fields.azureml_references import Asset
from allranks.spec.job_parts import Environment

PIN = re.compile(r"[A-Za-z][\w.-]*(?:\[[\w,]+\])?[=~<>!]=\s*\d[\w.*]*")
_ASSET = re.compile(r"azureml:(?!//jobs/)\S+|AzureML-\S+")
# A place for the outputs of each job, in a datastore that every workspace has.
_OUTPUT = re.compile(
    r"azureml://(?:[^\s\"]+/)?datastores/(?:workspaceblobstore|\$\{\{default_datastore\}\})/paths/"
    r"\S*\$\{\{\S*"
)
# What the user has to write, but for the names of a workspace, which change nothing.
_PLACEHOLDER = re.compile(r"<(?!SUBSCRIPTION|RESOURCE_GROUP|(?:\w+_)?WORKSPACE)[A-Z]+_[A-Z_]+>")
# Packages that allranks answers: here, or to the ranks of `ssm`'s tasks.
ANSWERED = {"azureml", "azure", "mldesigner", "simple_sagemaker", "worker_toolkit"}
# Calls that look up what the workspace has, and a server may not.
_LOOKED_UP = ("get_by_name", "get_by_id", "get_model_path")
# By the class whose `get` returns them: the kind of the asset, and its words.
_ASSETS = {
    DataAssets: ("data", "data asset"),
    Models: ("model", "model"),
    Environments: ("environment", "environment"),
    Components: ("component", "component"),
}
# Calls whose `name` is no asset's that they create.
_CREATE_NO_ASSET = re.compile(
    r"(?:get|list|delete|archive|restore|download|share|\w*(?:Compute|Endpoint|Deployment|Schedule))"
)
# Members whose values are no objects of ours, though a type hint is `Any` or missing.
_OF_OTHERS = {"to_pandas_dataframe", *dir(str), *dir(dict), *dir(list)}
# Names of the keywords that a function takes whatever they are: without effect.
_IGNORED = ("_", "__", "settings")
_STEPS = (Node, Command, CommandWithComponent)
_CODE = ("code", "source_directory")
_PLAIN = (str, int, float, bool, bytes, type(None), list, dict)


class _Value(NamedTuple):
    """An instance of a class of ours, or with ``is_made`` False the class or function itself.
    ``type`` None: it comes from ours, and its type is not known. ``owner``: of a method.
    ``inner``: what a generic class, such as Poller, or a collection is of."""

    type: Any
    is_made: bool = True
    owner: Any = None
    inner: Any = None


_UNKNOWN = _Value(None)
IsRegistered = Callable[[str, str, str | None], bool]


class Judge:
    """``problems`` are what is not there, ``doubts`` what was not tried, ``data`` the addresses,
    each in the order of the text. ``folder``: the program's, whose modules it may import.
    ``is_registered(kind, name, version)``: whether an asset is there; version None is any."""

    def __init__(
        self, tree: ast.AST, folder: Path, is_registered: IsRegistered = lambda *_: False
    ) -> None:
        self._folder = folder
        self._is_registered = is_registered
        self.problems: dict[str, None] = {}
        self.doubts: dict[str, None] = {}
        self.data: dict[str, None] = {}
        self._values: dict[str, _Value] = {}
        nodes = list(ast.walk(tree))
        self._constants = dict(_constants(nodes))
        self._created = {text for node in _names_of_assets(nodes) for text in self._texts(node)}
        # The names that are read, and those of imports that never are.
        self._read = {node.id for node in nodes if isinstance(node, ast.Name)}
        self.unused: set[tuple[str, str]] = set()
        for node in nodes:
            if isinstance(node, ast.Import):
                self._expect_installed(*(alias.name for alias in node.names))
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self._import(node.module, node.names)
        # Assignments come before uses in the text, but not in the tree.
        placed = [node for node in nodes if isinstance(node, ast.expr | ast.stmt)]
        for part in sorted(placed, key=_place):
            self._look(part)

    def _look(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            value = self._value(node.value)
            for target in node.targets:
                self._bind(target, value)
        elif isinstance(node, ast.For):
            several = self._value(node.iter)
            self._bind(node.target, several and _element(several))
        elif isinstance(node, ast.Attribute | ast.Call):
            self._value(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            self._text(node.value)

    def _doubt(self, text: str) -> None:
        self.doubts[text] = None

    def _import(self, module: str, names: list[ast.alias]) -> None:
        if module not in NAMES:
            self._expect_installed(module)
        for alias in names:
            if (alias.asname or alias.name) not in self._read:
                self.unused.add((module, alias.name))
            if target := NAMES.get(module, {}).get(alias.name):
                file, _, name = target.partition(":")
                value = getattr(importlib.import_module(file), name)
                self._values[alias.asname or alias.name] = _Value(value, is_made=False)

    def _expect_installed(self, *modules: str) -> None:
        for module in modules:
            top = module.partition(".")[0]
            own = (self._folder / top, self._folder / f"{top}.py")
            if top in ANSWERED or any(path.exists() for path in own):
                continue
            if find_spec(top) is None:
                self._doubt(f"the module {top} is not in this Python")

    def _bind(self, target: ast.expr, value: _Value | None) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._bind(part, value and _UNKNOWN)
        elif isinstance(target, ast.Name):
            self._values.pop(target.id, None)
            if value is not None:
                self._values[target.id] = value

    def _value(self, node: ast.expr) -> _Value | None:
        """What an expression is; None if it has nothing to do with ours."""
        if isinstance(node, ast.Name):
            return self._values.get(node.id)
        if isinstance(node, ast.Subscript):
            whole = self._value(node.value)
            return whole and _element(whole)
        if isinstance(node, ast.Call):
            return self._called(node, self._value(node.func))
        if isinstance(node, ast.Attribute) and (base := self._value(node.value)) is not None:
            member = self._member(base.type, node.attr)
            return member and member._replace(inner=member.inner or base.inner)
        return None

    def _member(self, owner: Any, name: str) -> _Value | None:
        """What a member is; None if it has nothing to do with ours."""
        live = getattr(owner, "live_type", None)
        if live is not None and hasattr(live, name):
            return self._member(live, name)  # it does the work while the program runs
        # Of steps keys, and outputs whose names are the user's.
        if owner in _STEPS and (name in SECTIONS or name == "outputs"):
            return None
        if owner is None and name in _OF_OTHERS:
            return None
        if not inspect.isclass(owner):
            self._doubt(f"whether .{name} is there")
            return _UNKNOWN
        if owner in _PLAIN:
            return None
        member = inspect.getattr_static(owner, name, None)
        if member is None and (other := _other_with(owner, name)) is not None:
            return self._member(other, name)
        if isinstance(member, property):
            return _of_hint(member.fget, "return")
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        if inspect.isfunction(member):
            return _Value(member, is_made=False, owner=owner)
        if inspect.isclass(member):
            return _Value(member, is_made=False)
        own = [base for base in owner.__mro__ if base.__module__.startswith("allranks")]
        sources = {base: _source(base) for base in own}
        for base, text in sources.items():
            if made := re.search(rf"\bself\.{name} = (\w+)\(", text):
                return _Value(getattr(sys.modules[base.__module__], made[1], None))
        source = "\n".join(sources.values())
        if name in getattr(owner, "KEYS", ()) or (owner is Job and name in KEYS_OF_JOBS):
            return _UNKNOWN
        if member is None and not hasattr(owner, "KEYS"):
            # Names of the user's own, such as those of outputs.
            getter = inspect.getattr_static(owner, "__getattr__", None)
            if (
                inspect.isfunction(getter)
                and (value := _of_hint(getter, "return")).type is not None
            ):
                return value
        if member is None and not re.search(rf"\bself\.{name}\b|^    {name}: ", source, re.M):
            what = f"{owner.__name__.lstrip('_')}.{name}"
            open_ones = (base for base in own if base is not Absent and not hasattr(base, "KEYS"))
            if any("__getattr__" in vars(base) for base in open_ones):
                self._doubt(f"whether {what} is there")
            else:
                self.problems[f"{what} is not there"] = None
        return _of_hint(owner, name)

    def _called(self, node: ast.Call, function: _Value | None) -> _Value | None:
        if function is None or function.type is None:
            return function
        if function.is_made:
            call = inspect.getattr_static(function.type, "__call__", None)
            if not inspect.isfunction(call):
                return _UNKNOWN
            result = _of_hint(call, "return")
            return function if result.type is None else result  # a job with other inputs is one
        name = ast.unparse(node.func)
        if name.rpartition(".")[2] in _LOOKED_UP:
            self._doubt(f"{name} asks for what the workspace has")
        if function.owner is not None and name.endswith(".get"):
            self._expect_registered(node, function.owner)
        for keyword in node.keywords:
            if keyword.arg in _CODE and isinstance(keyword.value, ast.Constant):
                self._code(self._folder / str(keyword.value.value))
        if getattr(function.type, "__annotations__", {}).get("return") == "NoReturn":
            self.problems[f"{name} is not there"] = None  # it is refused by name
            return _UNKNOWN
        if not name.endswith(".log_row"):  # its keywords are columns
            self._check_keywords(function, name, [keyword.arg for keyword in node.keywords])
            self._check_positions(function, name, node.args)
        if inspect.isclass(function.type):
            return _Value(function.type)
        if function.type.__name__ == "get_context":
            return _Value(azureml_run.Run)
        made = self._overloaded(node, function.type) or _of_hint(function.type, "return")
        if made.type is None and function.inner is not None:
            return _Value(function.inner)
        if made.type is None and name.rpartition(".")[2] in _OF_OTHERS:
            return None
        is_own = function.owner is not None and made.type in function.owner.__mro__
        return _Value(function.owner) if is_own else made  # such as from_config

    def _expect_registered(self, node: ast.Call, owner: type) -> None:
        """Doubt an asset that a client gets, and neither the program nor anybody else created."""
        kinds = [kind for listed, kind in _ASSETS.items() if issubclass(owner, listed)]
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        named = {**dict(zip(("name", "version"), node.args, strict=False)), **named}
        name = named.get("name")
        if not kinds or name is None or self._texts(name) & self._created:
            return
        if isinstance(name, ast.Attribute) and self._value(name.value) is not None:
            return  # the name of an object that the program has
        kind, words = kinds[0]
        text = self._constant(name)
        version = self._constant(named["version"]) if "version" in named else None
        if text is not None and self._is_registered(kind, text, version):
            return
        which = f"{text or ast.unparse(name)}{(version and f':{version}') or ''}"
        self._doubt(f"the {words} {which} has to be registered first")

    def _constant(self, node: ast.expr) -> str | None:
        """The text of a constant, or of a variable that is one; None of other expressions."""
        if isinstance(node, ast.Name):
            return self._constants.get(node.id)
        return str(node.value) if isinstance(node, ast.Constant) else None

    def _texts(self, node: ast.expr) -> set[str]:
        """The expression itself and, as far as that is known, its text."""
        return {ast.unparse(node), self._constant(node) or ""} - {""}

    def _code(self, folder: Path) -> None:
        if folder.is_dir() and folder.resolve() != self._folder.resolve():
            for doubt in downloads.doubts(folder):
                self._doubt(doubt)

    def _overloaded(self, node: ast.Call, function: Any) -> _Value | None:
        """What a function returns for the type of its first argument."""
        for overload in typing.get_overloads(function):
            parameter = next(
                name for name in inspect.signature(overload).parameters if name != "self"
            )
            keywords = [word.value for word in node.keywords if word.arg == parameter]
            argument = self._value([*node.args, *keywords][0]) if node.args or keywords else None
            if argument is None or not inspect.isclass(argument.type):
                return None
            parameter_type = typing.get_type_hints(overload).get(parameter)
            kinds = typing.get_args(parameter_type) or (parameter_type,)
            classes = tuple(kind for kind in kinds if inspect.isclass(kind))
            if issubclass(argument.type, classes):
                return _of_hint(overload, "return")
        return None

    def _check_positions(self, value: _Value, name: str, arguments: list[ast.expr]) -> None:
        parameters = list(inspect.signature(value.type).parameters.values())
        if value.owner is not None:
            parameters = [p for p in parameters if p.name not in ("self", "cls")]
        kinds = [parameter.kind for parameter in parameters]
        is_open = inspect.Parameter.VAR_POSITIONAL in kinds
        if is_open or any(isinstance(argument, ast.Starred) for argument in arguments):
            return
        if (takes := getattr(value.type, "by_position", None)) is not None:
            try:
                takes(arguments)
            except TypeError as error:
                self.problems[str(error)] = None
            return
        most = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if len(arguments) > most:
            what = f"{name} takes {most or 'no'} arguments by position, not {len(arguments)}"
            self.problems[what] = None

    def _check_keywords(self, value: _Value, name: str, keywords: list[str | None]) -> None:
        function = behind = value.type
        if value.owner is not None:
            # A method that passes its keywords on to the one that it extends.
            same = (vars(base).get(function.__name__) for base in value.owner.__mro__)
            behind = [function, *(each for each in same if inspect.isfunction(each))][-1]
        elif function.__module__ == "allranks.compat.azure.v2":
            # It passes its keywords on to our own one of that name.
            behind = getattr(allranks, function.__name__, function)
        last = inspect.signature(behind).parameters
        if any(e.kind is e.VAR_KEYWORD and e.name in _IGNORED for e in last.values()):
            return
        # Models refuse other keys, or note them.
        fields = getattr(behind, "model_fields", {})
        more = any(e.kind is e.VAR_KEYWORD and e.annotation != "Never" for e in last.values())
        names = {*inspect.signature(function).parameters, *last, *fields, *_unpacked(behind), None}
        names |= set(getattr(_of_hint(function, "return").type, "model_fields", ()))
        names |= set(keywords_of(function))
        for keyword in keywords:
            if keyword not in names and (fields or more):
                self._doubt(f"the argument {keyword} of {name}")
            elif keyword not in names:
                self.problems[f"{name} has no argument {keyword}"] = None

    def _text(self, text: str) -> None:
        if text.startswith(("s3://", "gs://")) or "core.windows.net/" in prefix_of(text):
            self.data[text] = None
            self._doubt(f"whether {prefix_of(text)} can be read")
        for pin in PIN.findall(text):
            self._doubt(f"whether {pin} installs")
        for placeholder in _PLACEHOLDER.findall(text):
            self._doubt(f"what {placeholder} is")
        is_known = _OUTPUT.fullmatch(text) or _is_built_in(text)
        if _ASSET.fullmatch(text) and not is_known:
            self._doubt(f"whether {text} is there")


@cache
def _source(kind: type) -> str:
    """The text of a class. It takes a tenth of a second to find."""
    return inspect.getsource(kind)


def _constants(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """The variables that are one text, with it."""
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            yield from ((name, str(node.value.value)) for name in names)


def _names_of_assets(nodes: list[ast.AST]) -> Iterator[ast.expr]:
    """What a program says under `name`, `registered_model_name` and the like."""
    for node in nodes:
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            if not _CREATE_NO_ASSET.fullmatch(called):
                yield from (word.value for word in node.keywords if (word.arg or "")[-4:] == "name")


def _place(node: ast.expr | ast.stmt) -> tuple[int, int]:
    """Where a node takes effect: a name is bound after the value, which may use what it was."""
    if isinstance(node, ast.Assign | ast.For):
        value = node.value if isinstance(node, ast.Assign) else node.iter
        return value.end_lineno or value.lineno, value.end_col_offset or value.col_offset
    return node.lineno, node.col_offset


def _other_with(owner: Any, name: str) -> Any:
    """A class that has a member which ``owner`` lacks: of those derived from it, of which the
    object may be, as a run may be that of a sweep."""
    return next((kind for kind in owner.__subclasses__() if hasattr(kind, name)), None)


def _element(several: _Value) -> _Value:
    """What a collection holds."""
    return _UNKNOWN if several.inner is None else _Value(several.inner)


def _unpacked(function: Any) -> Iterator[str]:
    """The names of the keywords that `**keywords: Unpack[…]` lists."""
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        return
    for hint in hints.values():
        if typing.get_origin(hint) is typing.Unpack:
            yield from typing.get_args(hint)[0].__annotations__


def _is_built_in(text: str) -> bool:
    """Whether an environment's name stands for a built-in one, wherever the program runs."""

    def find(asset: Asset) -> Resolved:
        if asset.name not in curated.ENVIRONMENTS:
            raise SpecError(Problem(f"environment {asset} not found"))
        return Resolved(asset.name, Environment())

    try:
        return resolve(text, Compute(), curated.TABLE, find).environment is not None
    except AllranksError:
        return False


def _of_hint(thing: Any, name: str) -> _Value:
    """The value of a type hint. Python's own types have nothing of ours to be judged."""
    try:
        hint = typing.get_type_hints(thing).get(name)
    # Another hint is imported for type checkers only.
    except (NameError, TypeError, AttributeError):
        text = getattr(thing, "__annotations__", {}).get(name, "")
        hint = getattr(sys.modules[thing.__module__], text, None) or text
    # Of several types that of ours, such as Job of `Job | list[Job]`.
    classes = [member for member in typing.get_args(hint) if inspect.isclass(member)]
    ours = [member for member in classes if member.__module__.startswith("allranks")]
    origin = typing.get_origin(hint)
    if inspect.isclass(origin) and origin.__module__.startswith("allranks"):
        return _Value(origin, inner=ours[0] if ours else None)
    if isinstance(hint, types.UnionType) and len(ours) == 1:
        return _Value(ours[0])
    if origin is not None and len(ours) == 1:
        return _Value(list, inner=ours[0])
    is_class = inspect.isclass(hint) and (hint.__module__.startswith("allranks") or hint in _PLAIN)
    return _Value(hint) if is_class else _UNKNOWN
