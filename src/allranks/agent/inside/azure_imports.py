"""Answers imports of Azure ML's packages in a job whose Python has none: `azureml.core.Run` logs to
the job, and all else is a name that says what to do when it is used. For any Python from 3.7 on.

Where allranks itself is installed and the job knows its server (ALLRANKS_SERVER or ALLRANKS_HOME),
allranks answers, so that a job can submit others.
"""

import os
import sys

from allranks_standard import standard_modules  # type: ignore[import-not-found,unused-ignore]

with standard_modules():
    from importlib.machinery import ModuleSpec
    from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

# The modules that a job without allranks finds, with the names of ``azureml_run`` in them.
_OURS = {
    "azureml": (),
    "azureml.core": ("Run", "Experiment", "Model"),
    "azureml.core.model": ("Model",),
    "azureml.core.run": ("Run", "_OfflineRun"),
    "azureml.core.experiment": ("Experiment",),
    "azureml.exceptions": ("RunEnvironmentException",),
}  # type: dict[str, tuple[str, ...]]
_PACKAGES = ("azureml", "azureml.core", "azureml.data")
_HINT = (
    "give data and models to the job as inputs. To submit jobs from a job, install allranks in its "
    "environment and pass ALLRANKS_HOME or ALLRANKS_SERVER on"
)


def find_spec(name):  # type: (str) -> Optional[ModuleSpec]
    """The module that answers ``name``, or None. Libraries that only look whether Azure ML is
    there, as transformers does, are told the truth."""
    if _imported_by_library():
        return None
    if os.environ.get("ALLRANKS_SERVER") or os.environ.get("ALLRANKS_HOME"):
        try:
            from allranks.compat.azure.finder import Finder  # lazy: it may not be installed
        except ImportError:
            pass
        else:
            return Finder().find_spec(name)
    if name in _OURS or name.startswith(("azureml.core.", "azureml.data")):
        return ModuleSpec(name, _Loader(), is_package=name in _PACKAGES)  # type: ignore[arg-type]
    return None


def _imported_by_library():  # type: () -> bool
    frame = sys._getframe(1)  # type: Any
    while frame is not None:
        file = frame.f_code.co_filename
        ours = os.path.dirname(os.path.abspath(file)) == os.path.dirname(os.path.abspath(__file__))
        if not (ours or file.startswith("<frozen importlib") or "importlib" in file):
            return "site-packages" in file or "dist-packages" in file
        frame = frame.f_back
    return False


class _Loader(object):
    def create_module(self, spec):  # type: (ModuleSpec) -> ModuleType
        return _Module(spec.name)

    def exec_module(self, module):  # type: (ModuleType) -> None
        pass


class _Module(ModuleType):
    def __getattr__(self, name):  # type: (str) -> Any
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _OURS.get(self.__name__, ()):
            with standard_modules():
                import azureml_run  # type: ignore[import-not-found] # lazy: beside this file

            return getattr(azureml_run, name.lstrip("_"))
        if name.startswith("_") or "%s.%s" % (self.__name__, name) in _OURS:
            raise AttributeError(name)
        return type(name, (_Absent,), {"_where": "%s.%s" % (self.__name__, name)})


class _Meta(type):
    def __getattr__(cls, name):  # type: (str) -> Any
        if name.startswith("__"):
            raise AttributeError(name)
        return _refuse(cls)


class _Absent(_Meta("_Base", (object,), {})):  # type: ignore[misc]
    """A name that may be imported, not used."""

    _where = ""

    def __init__(self, *_, **__):  # type: (Any, Any) -> None
        _refuse(type(self))


def _refuse(cls):  # type: (Any) -> Any
    raise NotImplementedError("%s is not there in a job. hint: %s" % (cls._where, _HINT))
