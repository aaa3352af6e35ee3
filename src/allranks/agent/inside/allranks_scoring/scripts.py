"""Scoring scripts: Azure ML's ``init`` and ``run``, and SageMaker's handlers."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sys
import traceback
from types import ModuleType
from typing import Any, Callable, Dict, Tuple

from allranks_standard import give_way  # type: ignore[import-not-found,unused-ignore]

from . import azure_services
from .answers import JSON, Answer, BadRequest, Request, Score, as_json, plain

_HANDLERS = ("model_fn", "predict_fn", "transform_fn", "input_fn", "output_fn")
# The name under which a script is imported: pickles and `inspect` find it there.
_MODULE = "entry_module"


def load(path: str, model: str) -> Tuple[Score, Dict[str, Any]]:
    """What answers requests by a script, and its schema. Raises what the script raises."""
    azure_services.install()
    module = _imported(path)
    if callable(getattr(module, "run", None)):
        init = getattr(module, "init", None)
        if init is not None:
            _begin(init, os.path.dirname(os.path.abspath(path)))
        return _azure(module.run)
    if any(hasattr(module, name) for name in _HANDLERS):
        return _sagemaker(module, model), {}
    raise SystemExit(
        "error: %s has neither run(data), as Azure ML's scoring scripts, nor %s, as SageMaker's\n"
        "hint: define init() and run(data)" % (path, " or ".join(_HANDLERS[:2]))
    )


def _begin(init: Callable[[], object], folder: str) -> None:
    """Call ``init``. If it fails, its line is named, and its own part of the traceback printed."""
    try:
        init()
    except Exception as error:
        own = error.__traceback__ and error.__traceback__.tb_next
        lines = [
            "%s:%s" % (os.path.relpath(item.filename, folder), item.lineno)
            for item in traceback.extract_tb(own)
            if item.filename.startswith(folder + os.sep)
        ]
        # Before the traceback: what stands at the end says the cause.
        print("init() failed at", (lines or ["an unknown line"])[-1], file=sys.stderr)
        traceback.print_exception(type(error), error, own)
        raise SystemExit(1) from None


def _imported(path: str) -> ModuleType:
    if not os.path.isfile(path):
        here = ", ".join(sorted(os.listdir("."))[:20]) or "nothing"
        raise SystemExit(
            "error: the scoring script %s was not found in the code\n"
            "hint: its path starts at the folder `code`, which has: %s" % (path, here)
        )
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    give_way()
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- Azure ML


def _azure(run: Callable[..., Any]) -> Tuple[Score, Dict[str, Any]]:
    with_keywords, schema = _schema(run)
    is_raw = azure_services.is_raw(run)

    def score(request: Request) -> Answer:
        if is_raw:
            result = run(azure_services.AMLRequest(request))
        elif request.method == "GET":
            result = run(**azure_services.arguments(request))
        elif with_keywords:
            data = request.json()
            if not isinstance(data, dict):
                raise BadRequest("the body must be a JSON object with the arguments of run()")
            result = run(**data)
        else:
            result = run(request.body.decode())
        answer = azure_services.answer_of(result)
        return as_json(result) if answer is None else answer

    return score, schema


def _schema(run: Callable[..., Any]) -> Tuple[bool, Dict[str, Any]]:
    """Whether a function has inference_schema's decorators, and its schema."""
    try:
        # lazy: few scripts need it
        from inference_schema import (  # type: ignore[import-not-found,unused-ignore]
            schema_util,
        )
    except ImportError:
        return False, {}
    if not schema_util.is_schema_decorated(run):
        return False, {}
    return True, {
        "input": schema_util.get_input_schema(run),
        "output": schema_util.get_output_schema(run),
    }


# ---------------------------------------------------------------- SageMaker


def _sagemaker(module: ModuleType, folder: str) -> Score:
    """The handlers of a script; those that it lacks are SageMaker's defaults for JSON, CSV and
    numpy."""
    if not hasattr(module, "model_fn"):
        raise SystemExit("error: the scoring script has no model_fn(model_dir)\nhint: define it")
    model = module.model_fn(folder)

    def score(request: Request) -> Answer:
        content_type = request.headers.get("content-type", JSON).split(";")[0].strip()
        accept = request.headers.get("accept", JSON).split(",")[0].split(";")[0].strip()
        accept = JSON if accept in ("", "*/*") else accept
        body: Any = (
            request.body
            if "octet" in content_type or "npy" in content_type
            else request.body.decode()
        )
        if hasattr(module, "transform_fn"):
            return _to_answer(module.transform_fn(model, body, content_type, accept), accept)
        data = getattr(module, "input_fn", _input)(body, content_type)
        predicted = module.predict_fn(data, model) if hasattr(module, "predict_fn") else model(data)
        return _to_answer(getattr(module, "output_fn", _output)(predicted, accept), accept)

    return score


def _to_answer(result: Any, accept: str) -> Answer:
    """What ``output_fn`` returned: a body, or a body and its type."""
    body, kind = result if isinstance(result, tuple) else (result, accept)
    return Answer(200, body.encode() if isinstance(body, str) else bytes(body), kind)


def _input(body: Any, kind: str) -> Any:
    if kind == JSON:
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise BadRequest("the body is no JSON: %s" % error) from None
    if kind == "text/csv":
        return [[float(cell) for cell in line.split(",")] for line in body.splitlines() if line]
    if kind == "application/x-npy":
        # lazy: few scripts need it
        import numpy  # type: ignore[import-not-found,unused-ignore]

        return numpy.load(io.BytesIO(body))
    raise BadRequest("the script has no input_fn, and %s is not known without one" % kind)


def _output(predicted: Any, kind: str) -> Any:
    values = plain(predicted)
    if kind == "text/csv":
        rows = [row if isinstance(row, list) else [row] for row in values]
        return "".join(",".join(map(str, row)) + "\n" for row in rows)
    return json.dumps(values), JSON
