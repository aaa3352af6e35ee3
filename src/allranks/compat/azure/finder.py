"""Finds `azure.ai.ml` and what belongs to it: what is installed when the program begins and the
user's own modules beside it win, and what it installs later, such as a notebook's `%pip install
azure-ai-ml`, does not.

`simple_sagemaker` is found before others where boto3 is missing: its own programs put their `src`,
which cannot run without boto3, on `sys.path`."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from allranks.compat.azure.names import ABSENT, NAMES, PACKAGES

# In the folders that packages are installed to.
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages(?:[/\\]|$)")
# The modules of separate packages of Azure's.
_OF_PACKAGES = ("azure.ai.ml", "azure.core", "azure.identity", "azureml", "mldesigner")


def install() -> None:
    """Answer imports from now on, in this process."""
    if not any(isinstance(each, Finder) for each in sys.meta_path):
        absent = frozenset(name for name in _OF_PACKAGES if not _is_installed(name))
        sys.meta_path.append(Finder())
        sys.meta_path.insert(0, SageMakerFinder())
        sys.meta_path.insert(0, AbsentFinder(absent))


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


class AbsentFinder(Finder):
    """Finds the modules of packages that are ``absent`` when the program begins."""

    def __init__(self, absent: Collection[str]) -> None:
        self._absent = absent

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(name == top or name.startswith(f"{top}.") for top in self._absent):
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
        return spec


class SageMakerFinder(Finder):
    """Finds `simple_sagemaker` if boto3, which the real one needs, is not installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != "simple_sagemaker" or find_spec("boto3") is not None:
            return None
        return super().find_spec(name, path, target)


class _Loader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Answers(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        assert isinstance(module, _Answers)
        module.__all__ = sorted(NAMES.get(module.__name__, ()))


class _Answers(ModuleType):
    """A module of Azure's whose names are ours, loaded when they are used."""

    __all__: list[str]

    def __getattr__(self, name: str) -> Any:
        ours = NAMES.get(self.__name__, {}).get(name)
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
