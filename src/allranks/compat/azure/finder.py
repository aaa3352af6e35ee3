"""Finds `azure.ai.ml` and what belongs to it, whatever is installed: a notebook's `%pip install
azure-ai-ml` changes nothing for it and the next ones. The user's own modules win, and with
ALLRANKS_IMPORTS=0 what is installed when the program begins.

`simple_sagemaker` is found before others where boto3 is missing: its own programs put their `src`,
which cannot run without boto3, on `sys.path`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

from allranks.compat.azure.names import ABSENT, NAMES, PACKAGES

# In the folders that packages are installed to.
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages(?:[/\\]|$)")
# The modules of separate packages of Azure's.
_OF_PACKAGES = ("azure.ai.ml", "azure.core", "azure.identity", "azureml", "mldesigner")
# Of these, other packages of Azure's, such as those for its storage, need what we have not.
_SHARED = ("azure.core", "azure.identity")


def install() -> None:
    """Answer imports from now on, in this process."""
    if not any(isinstance(each, Finder) for each in sys.meta_path):
        ours = [name for name in _OF_PACKAGES if comes_first() or not _is_installed(name)]
        sys.meta_path.append(Finder())
        sys.meta_path.insert(0, SageMakerFinder())
        sys.meta_path.insert(0, FirstFinder(ours))


def comes_first() -> bool:
    """Whether allranks answers, and not what is installed."""
    return os.environ.get("ALLRANKS_IMPORTS") != "0"


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


class Finder(MetaPathFinder):
    """Finds the modules of ``NAMES``."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in NAMES or name in PACKAGES:
            return ModuleSpec(name, _Loader(), is_package=name in PACKAGES)
        parent = name.rpartition(".")[0]
        module = sys.modules.get(parent)
        if parent in NAMES and isinstance(module, _Answers):
            module.refuse(name.rpartition(".")[2])
        return None


class FirstFinder(Finder):
    """Finds the modules of ``packages`` before those that are installed."""

    def __init__(self, packages: Collection[str]) -> None:
        self._packages = packages

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _is_of(name, self._packages):
            return None
        everywhere = sys.path if path is None else path
        # As Python does, without what is no text, such as a Path.
        texts = [place for place in everywhere if isinstance(place, str)]
        places = [place for place in texts if not _INSTALLED.search(place)]
        own = PathFinder.find_spec(name, places, target)
        if own is not None and own.loader is not None:
            return own
        spec = super().find_spec(name, path, target) if name in NAMES or name in PACKAGES else None
        if spec is not None and own is not None and spec.submodule_search_locations is not None:
            # A folder without `__init__.py`, whose modules are the user's.
            spec.submodule_search_locations.extend(own.submodule_search_locations or ())
        if spec is not None and _is_of(name, _SHARED):
            theirs = PathFinder.find_spec(name, texts, target)
            spec.loader = _Loader(theirs)
            if spec.submodule_search_locations is not None and theirs is not None:
                spec.submodule_search_locations.extend(theirs.submodule_search_locations or ())
        return spec


def _is_of(name: str, packages: Collection[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


class SageMakerFinder(Finder):
    """Finds `simple_sagemaker` if boto3, which the real one needs, is not installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != "simple_sagemaker" or find_spec("boto3") is not None:
            return None
        return super().find_spec(name, path, target)


class _Loader(Loader):
    """``theirs``: the installed module of that name, which has what ours has not."""

    def __init__(self, theirs: ModuleSpec | None = None) -> None:
        self._theirs = theirs

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Answers(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        assert isinstance(module, _Answers)
        module.__all__ = sorted(NAMES.get(module.__name__, ()))
        module._theirs = self._theirs


class _Answers(ModuleType):
    """A module of Azure's whose names are ours, loaded when they are used."""

    __all__: list[str]
    _theirs: ModuleSpec | ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        ours = NAMES.get(self.__name__, {}).get(name)
        if ours is None and self._theirs is not None and name not in ("__path__", "__file__"):
            return self._of_theirs(name)
        if ours is None and name.startswith("__"):
            raise AttributeError(name)
        if ours is not None:
            module, _, attribute = ours.partition(":")
            value = getattr(import_module(module), attribute)
            if isinstance(value, type) and (".v1." in module or ".ssm." in module):
                from allranks.compat.azure.v1.idle import watch  # lazy: few programs

                watch(value)
            setattr(self, name, value)
            return value
        if (instead := ABSENT.get(self.__name__, {}).get(name)) is not None:
            from allranks.compat.azure.absent import refusing  # lazy: few programs

            return refusing(f"{self.__name__}.{name}", instead)
        if f"{self.__name__}.{name}" in NAMES:
            return import_module(f"{self.__name__}.{name}")
        return self.refuse(name)

    def _of_theirs(self, name: str) -> Any:
        spec = self._theirs
        if isinstance(spec, ModuleSpec):
            self._theirs = module_from_spec(spec)
            if spec.loader is not None:
                spec.loader.exec_module(self._theirs)
        return getattr(self._theirs, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *NAMES.get(self.__name__, ())]

    def refuse(self, name: str) -> None:
        """Say that allranks has no such name. Raises ImportError, and not AttributeError: Python
        would leave our words out."""
        from allranks.spec.fields.problems import nearest  # lazy: only for a name that is not there

        names = NAMES.get(self.__name__, {})
        instead = ABSENT.get(self.__name__, {}).get(name)
        hint = instead or nearest(name, names) or "see docs/how-to/python.md"
        raise ImportError(f"{self.__name__}.{name} is not there in allranks: {hint}")
