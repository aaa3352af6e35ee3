"""Arguments of Azure's first SDK and of simple-sagemaker that have no effect: noted when given.

There is no list of them: an argument that its function's code never reads has none.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
from collections.abc import Callable
from typing import Any

from allranks.compat.azure.notes import without_effect

# What these ask for is so here: there is one workspace, files are replaced, nothing is provisioned.
SO_HERE = {"self", "cls", "workspace", "exist_ok", "exists_ok", "overwrite", "output_overwrite"}
SO_HERE |= {"wait_for_provisioning", "wait_timeout"}
SO_HERE |= {"create_new_version", "show_progress", "validate", "wait_post_processing"}
_OURS = "allranks.compat."


def unread(function: Callable[..., Any]) -> set[str]:
    """The parameters that a function's code never reads; none of one that only refuses."""
    code = function.__code__
    if {"not_there", "locals"} & {*code.co_names}:
        return set()
    reads = {*code.co_cellvars}
    for step in dis.get_instructions(code):
        if step.opname.startswith("LOAD"):
            # Newer Pythons load two at once.
            reads |= {*step.argval} if isinstance(step.argval, tuple) else {step.argval}
    return {*inspect.signature(function).parameters} - reads - SO_HERE


def watch(kind: type) -> None:
    """Note the arguments without effect of the methods of a class and its bases, from now on."""
    for cls in kind.__mro__ if kind.__module__.startswith(_OURS) else ():
        for name, member in [*vars(cls).items()]:
            function = getattr(member, "__func__", member)
            is_public = not name.startswith("_") or name == "__init__"
            own = inspect.isfunction(function) and function.__module__.startswith(_OURS)
            if is_public and own and not hasattr(function, "__wrapped__") and unread(function):
                watched = _watched(function, f"{cls.__name__}.{name}".removesuffix(".__init__"))
                setattr(cls, name, watched if member is function else type(member)(watched))


def _watched(function: Callable[..., Any], of: str) -> Callable[..., Any]:
    signature, names = inspect.signature(function), unread(function)

    @functools.wraps(function)
    def call(*values: Any, **keywords: Any) -> Any:
        with contextlib.suppress(TypeError):  # for the function itself to refuse
            passed = signature.bind(*values, **keywords).arguments
            idle = {key: value for key, value in passed.items() if key in names}
            others = [idle.pop(key, None) for key in ("_", "__")]
            for more in others:
                idle |= more if isinstance(more, dict) else {}
            without_effect(of, {key: idle[key] for key in idle if key not in SO_HERE})
        return function(*values, **keywords)

    return call
