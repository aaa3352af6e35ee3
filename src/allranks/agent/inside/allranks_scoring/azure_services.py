"""`azureml.contrib.services` for scoring scripts whose Python has no such package: ``rawhttp``,
``AMLRequest`` and ``AMLResponse``."""

from __future__ import annotations

import email
import email.utils
import importlib
import io
import shutil
import sys
from types import ModuleType
from typing import Any, Callable, Dict, List, Optional, Tuple
from urllib.parse import parse_qsl

from .answers import JSON, Answer, Request, dumps

_RAW = "_allranks_raw_http"


class AMLRequest:
    """A request as a script with ``@rawhttp`` gets it: the parts of Flask's that scripts use."""

    def __init__(self, request: Request) -> None:
        self.method, self.path = request.method, request.path
        self.headers = _Headers(request.headers)
        self.full_path = "%s?%s" % (request.path, request.query)
        self.args = _Several(parse_qsl(request.query, keep_blank_values=True))
        self.content_type = request.headers.get("content-type")
        self.data, self._request = request.body, request
        self.stream = io.BytesIO(request.body)
        fields, files = _form(request)
        self.form, self.files = _Several(fields), _Several(files)

    def get_data(self, cache: bool = True, as_text: bool = False) -> Any:
        return self.data.decode() if as_text else self.data

    def get_json(self, force: bool = False, silent: bool = False) -> Any:
        return self._request.json()

    json = property(get_json)


class AMLResponse:
    """An answer with a status and headers. ``json_str``: the message is written as JSON. Azure's
    releases differ in the order of what follows the status."""

    def __init__(
        self,
        message: Any,
        status_code: int,
        *more: Any,
        json_str: bool = False,
        response_headers: Optional[Dict[str, str]] = None,
        **_: Any,
    ) -> None:
        self.status_code = status_code
        self.headers: Dict[str, str] = dict(response_headers or {})
        for value in more:
            if isinstance(value, dict):
                self.headers.update(value)
        json_str = json_str or more[:1] == (True,) or isinstance(message, (dict, list))
        self.data = dumps(message) if json_str else message
        self.mimetype = JSON if json_str else "text/html; charset=utf-8"

    def set_data(self, data: Any) -> None:
        self.data = data


class _Several(Dict[str, Any]):
    """The first value of each name, as werkzeug's; ``getlist`` has all."""

    def __init__(self, pairs: List[Tuple[str, Any]]) -> None:
        super().__init__(reversed(pairs))
        self._pairs = pairs

    def getlist(self, name: str) -> List[Any]:
        return [value for other, value in self._pairs if other == name]


class _File(io.BytesIO):
    """A file of a form, as werkzeug's."""

    def __init__(self, content: bytes, name: str, filename: str, content_type: str) -> None:
        super().__init__(content)
        self.name, self.filename = name, filename
        self.content_type = self.mimetype = content_type
        self.stream = self

    def save(self, dst: Any, buffer_size: int = 1 << 14) -> None:
        if hasattr(dst, "write"):
            shutil.copyfileobj(self, dst, buffer_size)
            return
        with open(dst, "wb") as file:
            shutil.copyfileobj(self, file, buffer_size)


def _form(request: Request) -> Tuple[List[Tuple[str, Any]], List[Tuple[str, Any]]]:
    """The fields and the files of a form, by name and in order."""
    about = email.message_from_string("content-type: %s" % request.headers.get("content-type", ""))
    fields = []  # type: List[Tuple[str, Any]]
    files = []  # type: List[Tuple[str, Any]]
    if about.get_content_type() == "application/x-www-form-urlencoded":
        text = request.body.decode("utf-8", "replace")
        return list(parse_qsl(text, keep_blank_values=True)), files
    boundary = about.get_boundary()
    if about.get_content_type() != "multipart/form-data" or not boundary:
        return fields, files
    for part in (b"\r\n" + request.body).split(b"\r\n--" + boundary.encode())[1:]:
        head, separator, content = part.partition(b"\r\n\r\n")
        if not separator:
            continue  # the last one
        of_part = email.message_from_string(head.decode("utf-8", "replace").strip())
        name = of_part.get_param("name", "", "content-disposition")
        text = email.utils.collapse_rfc2231_value(name)
        filename, kind = of_part.get_filename(), of_part.get_content_type()
        if filename is None:
            fields.append((text, content.decode("utf-8", "replace")))
        else:
            files.append((text, _File(content, text, filename, kind)))
    return fields, files


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
    """Answer imports of Azure's two packages of these names unless they are installed."""
    for name in ("azureml.contrib.services", "azureml_inference_server_http.api"):
        _install(name)


def _install(name: str) -> None:
    try:
        importlib.import_module(name + ".aml_request")
    except ImportError:
        names = {
            **{name[:dot]: {} for dot in range(len(name)) if name[dot] == "."},
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
