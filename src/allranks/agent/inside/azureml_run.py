"""`azureml.core.Run` of Azure ML's first Python SDK, for scripts in a job. For any Python from 3.7
on, with nothing installed.

Numbers are appended to the file ALLRANKS_METRICS_FILE, from which the agent sends them. What is no
number, and tables and images, are kept in the job's ``logs/azureml``. Outside of a job, a run
prints what it is given, as Azure's offline runs do.
"""

import json
import math
import os
import re
import shutil
import sys
import time
import uuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Mapping, Optional

# Folders of a working folder that hold what is no file of the run.
_LEFT_OUT = frozenset(("__pycache__", ".git"))
_NUMBERS = (int, float)
# Tags whose names begin so are the properties of Azure's runs.
PROPERTY = "azureml.property."


class RunEnvironmentException(Exception):
    """There is no run here."""


class Missing(NotImplementedError):
    """allranks has no such thing inside of a job. The message says what to do instead."""


def _missing(what, instead):  # type: (str, str) -> Missing
    return Missing("%s is not there in a job of allranks. hint: %s" % (what, instead))


class Experiment(object):
    """The experiment of a run: its name."""

    def __init__(self, name):  # type: (str) -> None
        self.name = name

    @property
    def workspace(self):  # type: () -> Any
        from azureml.core import Workspace  # type: ignore[import-not-found] # lazy: ours, or a refusal

        return Workspace()


def _identifier(text):  # type: (str) -> str
    """As in `allranks.spec.fields.identifiers`."""
    name = re.sub("[^A-Za-z0-9_]+", "_", text).strip("_").lower() or "data"
    return "_" + name if name[0].isdigit() else name


class Model(object):
    """A model that the job has as an input `model_NAME`."""

    def __init__(self, *_, **__):  # type: (Any, Any) -> None
        raise _missing("Model(…)", "use Model.get_model_path(NAME)")

    @staticmethod
    def get_model_path(model_name, version=None, _workspace=None):
        # type: (str, Optional[int], Any) -> str
        """The path of its file, or of its folder."""
        name = "model_" + _identifier(model_name)
        path = _named("AZURE_ML_INPUT_").get(name)
        if path is None or version is not None:
            instead = "give the job an input %s with this version's files" % name
            raise _missing("the model %s:%s" % (model_name, version or "latest"), instead)
        files = (
            [name for name in os.listdir(path) if name != "MLmodel"] if os.path.isdir(path) else []
        )
        only = os.path.join(path, files[0]) if len(files) == 1 else path
        return only if os.path.isfile(only) else path


def changed_property(before, properties):
    # type: (Mapping[str, str], Mapping[str, Any]) -> str
    """Why properties cannot be set: one has another value already. Empty if they can."""
    for key, value in properties.items():
        if before.get(key, str(value)) != str(value):
            text = "the property %s is %r already, and properties do not change"
            return text % (key, before[key])
    return ""


class Run(object):
    """A run, as ``Run.get_context()`` returns it.

    ``id`` is the job's name. ``prefix`` stands before the names of metrics: that of a child.
    """

    def __init__(self, run_id, name="", prefix=""):  # type: (str, str, str) -> None
        self.id = self.run_id = run_id
        self.name = self.display_name = name or run_id
        self.number = 1
        self.experiment = Experiment(os.environ.get("AZUREML_EXPERIMENT_NAME", "Default"))
        self.tags = {}  # type: Dict[str, str]
        self.properties = {}  # type: Dict[str, str]
        self._prefix, self._status = prefix, "Running"
        self._file = os.environ.get("ALLRANKS_METRICS_FILE", "")
        self._rank = int(_first("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK") or 0)
        self._root = os.environ.get("AZUREML_CR_EXECUTION_WORKING_DIR_PATH") or os.getcwd()
        self._values = {}  # type: Dict[str, List[Any]]
        # How many points each metric has.

    @classmethod
    def get_context(cls, allow_offline=True, used_for_context_manager=False, **_):
        # type: (bool, bool, Any) -> Run
        """The run of the job that runs this; elsewhere one that prints, or with ``allow_offline``
        False RunEnvironmentException."""
        if "ALLRANKS_METRICS_FILE" in os.environ:
            return _current()
        if not allow_offline:
            raise RunEnvironmentException("this is not a job: there is no run to log to")
        return OfflineRun("OfflineRun_%s" % uuid.uuid4())

    @property
    def is_offline(self):  # type: () -> bool
        return not self._file

    # ------------------------------------------------------------ numbers

    def log(self, name, value, description="", step=None):
        # type: (str, Any, str, Optional[int]) -> None
        """Record a value; a number is a point of the metric."""
        plain = _plain(value)
        self._values.setdefault(name, []).append(plain)
        if self.is_offline:
            print("Attempted to log scalar metric %s:\n%s" % (name, value))
        elif isinstance(plain, _NUMBERS):
            self._points([(name, plain, step)])
        else:
            self._keep({"name": name, "value": str(plain)})

    def log_list(self, name, value, description=""):  # type: (str, Iterable[Any], str) -> None
        """Record values, each a point."""
        values = [_plain(item) for item in value]
        self._values.setdefault(name, []).extend(values)
        if self.is_offline:
            print("Attempted to log list metric %s:\n%s" % (name, values))
            return
        self._points([(name, item, None) for item in values if isinstance(item, _NUMBERS)])
        if not all(isinstance(item, _NUMBERS) for item in values):
            self._keep({"name": name, "list": values})

    def log_row(self, name, description=None, **columns):  # type: (str, Optional[str], Any) -> None
        """Record a row of a table. Its numbers are points of ``NAME/COLUMN``."""
        row = {key: _plain(value) for key, value in columns.items()}
        self._table("row", name, row, {key: [value] for key, value in row.items()})

    def log_table(self, name, value, description=""):
        # type: (str, Mapping[str, Any], str) -> None
        """Record a table: a list, or one value, for each column."""
        columns = {
            key: [_plain(x) for x in each] if isinstance(each, (list, tuple)) else _plain(each)
            for key, each in value.items()
        }
        listed = {k: v if isinstance(v, list) else [v] for k, v in columns.items()}
        self._table("table", name, columns, listed)

    def log_image(self, name, path=None, plot=None, description=""):
        # type: (str, Optional[str], Any, str) -> None
        """Keep an image file, or a figure of matplotlib."""
        if (path is None) == (plot is None):
            raise ValueError("log_image takes either `path` or `plot`")
        if self.is_offline:
            print("Attempted to log image metric %s:\n%s" % (name, path or plot))
            return
        kind = os.path.splitext(path)[1] if path else ".png"
        safe = "".join(char if char.isalnum() or char in "-_. " else "_" for char in name)
        file = "logs/azureml/%s_%d%s" % (safe, time.time() * 1000, kind)
        target = self._made(file)
        if path:
            shutil.copyfile(path, target)
        else:
            plot.savefig(target, format="png")
        self._values.setdefault(name, []).append(file)
        self._keep({"name": name, "image": file})

    def log_accuracy_table(self, name, value, description=""):  # type: (str, Any, str) -> None
        self._json("accuracy_table", name, value)

    def log_confusion_matrix(self, name, value, description=""):  # type: (str, Any, str) -> None
        self._json("confusion_matrix", name, value)

    def log_predictions(self, name, value, description=""):  # type: (str, Any, str) -> None
        self._json("predictions", name, value)

    def log_residuals(self, name, value, description=""):  # type: (str, Any, str) -> None
        self._json("residuals", name, value)

    def get_metrics(self, name=None, **_):  # type: (Optional[str], Any) -> Dict[str, Any]
        """What this process has logged: the value, or a list of several."""
        metrics = {key: each[0] if len(each) == 1 else each for key, each in self._values.items()}
        return metrics if name is None else {key: metrics[key] for key in metrics if key == name}

    # ------------------------------------------------------------ files

    def upload_file(self, name, path_or_stream, datastore_name=None):
        # type: (str, Any, Optional[str]) -> None
        """Copy a file, or what an open one holds, to ``name`` among the job's files."""
        target = self._made(name)
        if hasattr(path_or_stream, "read"):
            content = path_or_stream.read()
            with open(target, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
        elif not (os.path.exists(target) and os.path.samefile(target, path_or_stream)):
            shutil.copyfile(path_or_stream, target)

    def upload_files(self, names, paths, return_artifacts=False, timeout_seconds=None, **_):
        # type: (List[str], List[str], bool, Optional[int], Any) -> None
        if len(names) != len(paths):
            raise ValueError("upload_files takes as many names as paths")
        for name, path in zip(names, paths):  # noqa: B905  # old Pythons have no `strict`
            self.upload_file(name, path)

    def upload_folder(self, name, path, datastore_name=None):
        # type: (str, str, Optional[str]) -> None
        for folder, _, files in os.walk(path):
            for file in files:
                source = os.path.join(folder, file)
                self.upload_file(os.path.join(name, os.path.relpath(source, path)), source)

    def get_file_names(self):  # type: () -> List[str]
        """The files in `outputs` and `logs`."""
        paths = []
        for top in ("outputs", "logs"):
            for folder, folders, files in os.walk(os.path.join(self._root, top)):
                folders[:] = [name for name in folders if name not in _LEFT_OUT]
                paths += [os.path.relpath(os.path.join(folder, f), self._root) for f in files]
        return sorted(paths)

    def download_file(self, name, output_file_path=None, **_):
        # type: (str, Optional[str], Any) -> None
        target = output_file_path or os.path.basename(name)
        if os.path.isdir(target):
            target = os.path.join(target, os.path.basename(name))
        shutil.copyfile(os.path.join(self._root, name), target)

    # ------------------------------------------------------------ the run itself

    @property
    def parent(self):  # type: () -> Optional[Run]
        """The run of the sweep or pipeline, or None."""
        root = os.environ.get("AZUREML_ROOT_RUN_ID", self.id)
        return None if self.is_offline or root == self.id else _Other(root)

    @property
    def input_datasets(self):  # type: () -> Dict[str, str]
        """The paths of the job's inputs, by name."""
        return _named("AZURE_ML_INPUT_")

    @property
    def output_datasets(self):  # type: () -> Dict[str, str]
        """The paths of the job's outputs, by name."""
        return _named("AZURE_ML_OUTPUT_")

    def child_run(self, name=None, run_id=None, outputs=None):
        # type: (Optional[str], Optional[str], Optional[str]) -> Run
        """A part of this run: its metrics are `NAME/METRIC`."""
        own = name or run_id or "child_%s" % uuid.uuid4().hex[:8]
        child = Run(run_id or "%s_%s" % (self.id, own), own, "%s%s/" % (self._prefix, own))
        child._file, child._root = self._file, self._root
        return child

    def create_children(self, count=None, tag_key=None, tag_values=None):
        # type: (Optional[int], Optional[str], Any) -> List[Run]
        """Parts of this run: ``count``, or one for each of the values of a tag, as it is named."""
        if tag_key is None:
            return [self.child_run() for _ in range(count or 0)]
        return [self.child_run("%s_%s" % (tag_key, value)) for value in tag_values or ()]

    def tag(self, key, value=None):  # type: (str, Optional[str]) -> None
        self.set_tags({key: "" if value is None else value})

    def set_tags(self, tags):  # type: (Mapping[str, Any]) -> None
        """Tag the job."""
        self.tags.update({key: str(value) for key, value in tags.items()})
        self._append({"tags": {str(key): str(value) for key, value in tags.items()}})

    def get_tags(self):  # type: () -> Dict[str, str]
        return dict(self.tags)

    def add_properties(self, properties):  # type: (Mapping[str, Any]) -> None
        """Add properties, which do not change any more. Raises ValueError for one that is set."""
        changed = changed_property(self.properties, properties)
        if changed:
            raise ValueError(changed)
        self.properties.update({key: str(value) for key, value in properties.items()})
        self._append({"tags": {PROPERTY + key: str(value) for key, value in properties.items()}})

    def get_properties(self):  # type: () -> Dict[str, str]
        return dict(self.properties)

    def get_status(self):  # type: () -> str
        return self._status

    def get_details(self):  # type: () -> Dict[str, Any]
        return {"runId": self.id, "status": self._status, "properties": self.get_properties()}

    def complete(self, _set_status=True):  # type: (bool) -> None
        """The job itself is completed when its command has ended with code 0."""
        self._status = "Completed"

    def fail(self, error_details=None, error_code=None, _set_status=True):
        # type: (Any, Optional[str], bool) -> None
        """End this program with code 1, so that the job fails."""
        self._status = "Failed"
        if not self.is_offline:
            sys.exit("the run was failed: %s" % (error_details or error_code or "no reason given"))

    def flush(self, timeout_seconds=300):  # type: (float) -> None
        """Nothing is held back."""

    def __enter__(self):  # type: () -> Run
        return self

    def __exit__(self, *_):  # type: (Any) -> None
        self.complete()

    def __repr__(self):  # type: () -> str
        return "Run(Experiment: %s,\nId: %s)" % (self.experiment.name, self.id)

    def __getattr__(self, name):  # type: (str) -> Any
        if name.startswith("_"):
            raise AttributeError(name)
        raise _missing("Run.%s" % name, "do it where the job is submitted, after it has ended")

    # ------------------------------------------------------------ parts

    def _points(self, points):  # type: (Iterable[Any]) -> None
        now = time.time()
        line = []
        for name, value, step in points:
            name = self._prefix + str(name)
            # None: after the last one, which may be of the attempt before.
            number = None if step is None else int(step)
            line.append([name, self._rank, number, now, float(value)])
        if line:
            self._append({"points": line})

    def _append(self, line):  # type: (Dict[str, Any]) -> None
        """In one call, so that the lines of several processes do not mix."""
        if self._file:
            with open(self._file, "ab", buffering=0) as file:
                file.write(json.dumps(line).encode() + b"\n")

    def _keep(self, line):  # type: (Dict[str, Any]) -> None
        """Add a line to what is no number."""
        line["name"] = self._prefix + line["name"]
        with open(self._made("logs/azureml/rank-%d.jsonl" % self._rank), "a") as file:
            file.write(json.dumps(line) + "\n")

    def _table(self, kind, name, value, columns):
        # type: (str, str, Dict[str, Any], Mapping[str, List[Any]]) -> None
        self._values.setdefault(name, []).append(value)
        if self.is_offline:
            print("Attempted to log %s metric %s:\n%s" % (kind, name, value))
            return
        self._keep({"name": name, kind: value})
        for key, several in columns.items():
            numbers = [number for number in several if isinstance(number, _NUMBERS)]
            self._points([("%s/%s" % (name, key), number, None) for number in numbers])

    def _json(self, kind, name, value):  # type: (str, str, Any) -> None
        if self.is_offline:
            print("Attempted to log %s metric %s:\n%s" % (kind, name, value))
        else:
            self._keep({"name": name, kind: json.loads(value) if isinstance(value, str) else value})

    def _made(self, name):  # type: (str) -> str
        """The path of a file of the run, in a folder that exists."""
        path = os.path.normpath(os.path.join(self._root, name))
        if not path.startswith(os.path.join(os.path.normpath(self._root), "")):
            raise ValueError("%r is not below the run's folder" % name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path


class OfflineRun(Run):
    """The run of a script outside of jobs: it prints what it is given."""


class _Other(Run):
    """The run of a sweep or pipeline, of which a job only knows the name."""

    def log(self, name, value, description="", step=None):
        # type: (str, Any, str, Optional[int]) -> None
        raise _missing("logging to the parent run", "log to this run: the parent lists its jobs")

    log_list = log_row = log_table = log_image = log  # type: ignore[assignment]

    def set_tags(self, tags):  # type: (Mapping[str, Any]) -> None
        raise _missing("tagging the parent run", "tag this run, or the parent where you submit it")


_RUNS = []  # type: List[Run]


def _current():  # type: () -> Run
    if not _RUNS:
        _RUNS.append(Run(os.environ.get("AZUREML_RUN_ID", "")))
    return _RUNS[0]


def _plain(value):  # type: (Any) -> Any
    """A number as Python's own, such as those of numpy and torch; anything else as it is."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, _NUMBERS) or value is None or isinstance(value, (str, list, dict)):
        return value
    if hasattr(value, "item"):
        try:
            return _plain(value.item())
        except (TypeError, ValueError, RuntimeError):
            pass
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return int(number) if math.isfinite(number) and number == int(number) else number


def _first(*names):  # type: (str) -> str
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _named(prefix):  # type: (str) -> Dict[str, str]
    size = len(prefix)
    return {key[size:]: value for key, value in os.environ.items() if key.startswith(prefix)}
