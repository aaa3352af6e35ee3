"""`azureml.contrib.services` for scoring scripts whose Python has no such package: ``rawhttp``,
``AMLRequest`` and ``AMLResponse``."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, Callable, Dict, Optional
from urllib.parse import parse_qsl

from .answers import JSON, Answer, Request, dumps

_RAW = "_allranks_raw_http"


class AMLRequest:
    """A request as a script with ``@rawhttp`` gets it: the parts of Flask's that scripts use."""

    def __init__(self, request: Request) -> None:
        self.method, self.path = request.method, request.path
        self.headers = _Headers(request.headers)
        self.args = arguments(request)
        self.content_type = request.headers.get("content-type")
        self.data, self._request = request.body, request

    def get_data(self, cache: bool = True, as_text: bool = False) -> Any:
        return self.data.decode() if as_text else self.data

    def get_json(self, force: bool = False, silent: bool = False) -> Any:
        return self._request.json()

    json = property(get_json)


class AMLResponse:
    """An answer with a status and headers. ``json_str``: the message is written as JSON."""

    def __init__(self, message: Any, status_code: int, json_str: bool = False, **_: Any) -> None:
        self.status_code = status_code
        self.headers: Dict[str, str] = {}
        self.data = dumps(message) if json_str else message
        self.mimetype = JSON if json_str else "text/html; charset=utf-8"

    def set_data(self, data: Any) -> None:
        self.data = data


class _Headers(Dict[str, str]):
    """Headers by names in any case."""

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


def rawhttp(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give ``function`` the request itself."""
    setattr(function, _RAW, True)
    return function


def is_raw(function: Callable[..., Any]) -> bool:
    return bool(getattr(function, _RAW, False))


def arguments(request: Request) -> Dict[str, str]:
    """Those of the address."""
    return dict(parse_qsl(request.query))


def answer_of(result: Any) -> Optional[Answer]:
    """What a script returned as a whole answer, of ours or Flask's class; None: as data."""
    if not hasattr(result, "status_code") or not hasattr(result, "headers"):
        return None
    data = result.get_data() if hasattr(result, "get_data") else result.data
    body = data.encode() if isinstance(data, str) else bytes(data)
    own = {str(name): str(value) for name, value in dict(result.headers).items()}
    kinds = [name for name in own if name.lower() == "content-type"]
    kind = own.pop(kinds[0]) if kinds else str(getattr(result, "mimetype", JSON))
    own = {name: value for name, value in own.items() if name.lower() != "content-length"}
    return Answer(int(result.status_code), body, kind, tuple(own.items()))


def install() -> None:
    """Answer imports of `azureml.contrib.services` unless the package is installed."""
    name = "azureml.contrib.services"
    try:
        importlib.import_module(name + ".aml_request")
    except ImportError:
        names = {
            "azureml": {},
            "azureml.contrib": {},
            name: {},
            name + ".aml_request": {"AMLRequest": AMLRequest, "rawhttp": rawhttp},
            name + ".aml_response": {"AMLResponse": AMLResponse},
        }  # type: Dict[str, Dict[str, Any]]
        for module_name, members in names.items():
            module = sys.modules.get(module_name)
            if module is None:
                module = sys.modules[module_name] = ModuleType(module_name)
                module.__path__ = []
            vars(module).update(members)
