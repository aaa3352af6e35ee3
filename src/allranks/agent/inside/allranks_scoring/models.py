"""Models that need no scoring script: MLflow's, ONNX files, pickled estimators and TorchScript.

Requests are Azure ML's (``{"input_data": …}``), MLflow's (``dataframe_split``,
``dataframe_records``, ``instances``, ``inputs``), or the bare data.
"""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

from .answers import Answer, BadRequest, Request, Score, as_json, plain

_TABLES = ("dataframe_split", "dataframe_records")
_TENSORS = ("instances", "inputs", "data")
_PICKLES = (".pkl", ".pickle", ".joblib")
# A model's function from data to a prediction, and whether it wants a pandas table.
Predict = Callable[[Any], Any]


def load(path: str) -> Score:
    """What answers requests with the model at ``path``, a file or a folder."""
    folder = _mlflow_folder(path)
    if folder is not None:
        return _score(_mlflow(folder), tables=True)
    for endings, loader in ((".onnx", _onnx), (_PICKLES, _pickle), ((".pt", ".pth"), _torch)):
        matches = _file(path, endings)
        if matches is not None:
            return _score(loader(matches), tables=False)
    has = ", ".join(_files(path)[:10]) or "no files"
    raise SystemExit(
        "error: this model needs a scoring script: it is neither MLflow's, ONNX, a pickle nor "
        "TorchScript, but has %s\nhint: --script FILE, or code_configuration: {code: FOLDER, "
        "scoring_script: FILE}, with init() and run(data)" % has
    )


def mlflow_predict(path: str) -> Predict:
    """The function of the MLflow model in a folder."""
    folder = _mlflow_folder(path)
    if folder is None:
        raise SystemExit(
            "error: only a model of MLflow's needs no scoring script: %s has no MLmodel\nhint: "
            "code_configuration: {code: FOLDER, scoring_script: FILE} with init() and "
            "run(mini_batch)" % path
        )
    return _mlflow(folder)


def _score(predict: Predict, tables: bool) -> Score:
    def score(request: Request) -> Answer:
        data = _data(request, tables)
        try:
            matches = plain(predict(data))
        except (KeyError, IndexError) as error:
            raise BadRequest("the model does not take this input: %r" % error) from error
        wrapped = request.path.endswith("/invocations")
        return as_json({"predictions": matches} if wrapped else matches)

    return score


def _data(request: Request, tables: bool) -> Any:
    """The model's input in a request. Raises BadRequest."""
    kind = request.headers.get("content-type", "").split(";")[0].strip()
    if kind == "text/csv":
        return _pandas().read_csv(io.BytesIO(request.body))
    body = request.json()
    if not isinstance(body, dict):
        return body
    payload = body.get("input_data", body)
    if isinstance(payload, dict):
        for key in _TABLES:
            if key in payload:
                return _table(payload[key], key)
        if "columns" in payload and "data" in payload:
            return _table(payload, _TABLES[0]) if tables else payload["data"]
        for key in _TENSORS:
            if len(payload) == 1 and key in payload:
                return payload[key]
    elif tables and isinstance(payload, list) and payload and isinstance(payload[0], dict):
        return _table(payload, _TABLES[1])
    return payload


def _table(data: Any, key: str) -> Any:
    pandas = _pandas()
    try:
        if key == _TABLES[1]:
            return pandas.DataFrame.from_records(data)
        return pandas.DataFrame(data["data"], data.get("index"), data["columns"])
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise BadRequest("%s is no table: %s" % (key, error)) from None


def _pandas() -> Any:
    # lazy: only for such a model
    import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

    return pandas


# ---------------------------------------------------------------- kinds of models


def _mlflow(folder: str) -> Predict:
    # lazy: only for such a model
    import mlflow.pyfunc  # type: ignore[import-not-found,import-untyped,unused-ignore]

    print(_loaded_by(os.path.join(folder, "MLmodel")), file=sys.stderr, flush=True)
    return mlflow.pyfunc.load_model(folder).predict  # type: ignore[no-any-return,unused-ignore]


def _loaded_by(mlmodel: str) -> str:
    """Which Python loads a model, and which one saved it, if that is another."""
    with open(mlmodel, encoding="utf-8", errors="replace") as file:
        match = re.search(r"^ +python_version: *['\"]?([0-9.]+)", file.read(1 << 16), re.M)
    here = "%d.%d.%d" % sys.version_info[:3]
    is_other = match is not None and match[1].split(".")[:2] != here.split(".")[:2]
    saved = "; it was saved with Python %s" % match[1] if match and is_other else ""
    return "the model is loaded with Python %s%s" % (here, saved)


def _onnx(file: str) -> Predict:
    # lazy: only for such a model
    import numpy  # type: ignore[import-not-found,unused-ignore]

    # lazy: only for such a model
    import onnxruntime  # type: ignore[import-not-found,import-untyped,unused-ignore]

    session = onnxruntime.InferenceSession(file, providers=onnxruntime.get_available_providers())
    inputs = {node.name: _numpy_type(numpy, node.type) for node in session.get_inputs()}
    names = [node.name for node in session.get_outputs()]

    def predict(data: Any) -> Any:
        if not isinstance(data, dict):
            if len(inputs) != 1:
                raise BadRequest("the model has the inputs %s: name them" % ", ".join(inputs))
            data = {next(iter(inputs)): data}
        if set(data) != set(inputs):
            raise BadRequest("the model has the inputs %s, not %s" % (_list(inputs), _list(data)))
        feeds = {name: numpy.asarray(value, inputs[name]) for name, value in data.items()}
        matches = session.run(names, feeds)
        return matches[0] if len(names) == 1 else dict(zip(names, matches, strict=False))

    return predict


def _list(names: Any) -> str:
    return ", ".join(sorted(names))


def _numpy_type(numpy: Any, text: str) -> Any:
    """Of ``tensor(float)`` and the like."""
    name = text[text.find("(") + 1 : -1]
    names = {"float": "float32", "double": "float64", "string": "str", "bool": "bool"}
    return numpy.dtype(names.get(name, name))


def _pickle(file: str) -> Predict:
    try:
        # lazy: only for such a model
        import joblib  # type: ignore[import-not-found,import-untyped,unused-ignore]

        model = joblib.load(file)
    except ImportError:
        # lazy: only for such a model
        import pickle

        with open(file, "rb") as content:
            model = pickle.load(content)
    if not hasattr(model, "predict"):
        raise SystemExit(
            "error: %s holds a %s, which has no predict(): it needs a scoring script with init() "
            "and run(data), --script FILE" % (os.path.basename(file), type(model).__name__)
        )
    return model.predict  # type: ignore[no-any-return]


def _torch(file: str) -> Predict:
    # lazy: only for such a model
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        model: Any = torch.jit.load(file, map_location=device)
    except RuntimeError as error:
        if "CUDA" in str(error):
            raise
        raise SystemExit(
            "error: %s is no TorchScript: weights alone say nothing of the network\nhint: write a "
            "scoring script that makes the network in init(), and give it: --script FILE"
            % os.path.basename(file)
        ) from None
    model.eval()

    def predict(data: Any) -> Any:
        with torch.inference_mode():
            return model(torch.as_tensor(data, dtype=torch.float32, device=device))

    return predict


# ---------------------------------------------------------------- files


def _files(path: str) -> List[str]:
    if os.path.isfile(path):
        return [os.path.basename(path)]
    matches = []
    for folder, _, names in os.walk(path):
        matches += [os.path.relpath(os.path.join(folder, name), path) for name in names]
    return sorted(matches)


def _file(path: str, endings: Any) -> Optional[str]:
    """The one file with one of these endings."""
    if os.path.isfile(path):
        return path if path.endswith(endings) else None
    matches = [name for name in _files(path) if name.endswith(endings)]
    return os.path.join(path, matches[0]) if len(matches) == 1 else None


def _mlflow_folder(path: str) -> Optional[str]:
    for name in _files(path) if os.path.isdir(path) else ():
        if os.path.basename(name) == "MLmodel":
            return os.path.dirname(os.path.join(path, name))
    return None
