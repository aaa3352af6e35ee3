"""A model of MLflow's without a scoring script, for the files of a batch deployment."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List

from . import models
from .answers import dumps, plain


class Mlflow:
    """``run`` reads each file of a mini-batch as a table. A row of the result is a list of the
    number of the row in its file, the prediction, and the file's name."""

    def __init__(self, path: str) -> None:
        self._path = path

    def init(self) -> None:
        self._predict = models.mlflow_predict(self._path)

    def run(self, mini_batch: List[str]) -> List[str]:
        rows = []
        for file in mini_batch:
            values = plain(self._predict(_table(file)))
            name = os.path.basename(file)
            rows += [dumps([row, item, name]) for row, item in enumerate(values)]
        return rows


def _table(file: str) -> Any:
    # lazy: only for such a model
    import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

    readers: Dict[str, Callable[[str], Any]] = {
        ".csv": pandas.read_csv,
        ".tsv": lambda path: pandas.read_csv(path, sep="\t"),
        ".json": pandas.read_json,
        ".jsonl": lambda path: pandas.read_json(path, lines=True),
        ".parquet": pandas.read_parquet,
        ".pqt": pandas.read_parquet,
    }
    ending = os.path.splitext(file)[1].lower()
    if ending not in readers:
        raise ValueError(
            "%s is no table that is read without a scoring script: %s"
            % (os.path.basename(file), ", ".join(sorted(readers)))
        )
    return readers[ending](file)
