"""Translate pip's configuration to uv, so that a site that has configured pip needs nothing else.

Precedence as in pip (user guide, "Configuration"): the system's file, the user's, the
environment's, PIP_CONFIG_FILE, variables; section `install` over `global`; empty values are
ignored. Values are passed as variables, because URLs may contain passwords.
"""

from __future__ import annotations

import configparser
import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

# pip's option: uv's variable, the separator of its values, and the variables of uv that override
# it.
_OPTIONS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "index-url": ("UV_DEFAULT_INDEX", "", ("UV_DEFAULT_INDEX", "UV_INDEX_URL")),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " ", ("UV_EXTRA_INDEX_URL", "UV_INDEX")),
    "find-links": ("UV_FIND_LINKS", ",", ("UV_FIND_LINKS",)),
    "trusted-host": ("UV_INSECURE_HOST", " ", ("UV_INSECURE_HOST",)),
    "cert": ("SSL_CERT_FILE", "", ("SSL_CERT_FILE",)),
    "client-cert": ("SSL_CLIENT_CERT", "", ("SSL_CLIENT_CERT",)),
    "proxy": ("ALL_PROXY", "", ("ALL_PROXY",)),
}
_SWITCHES: Mapping[str, tuple[str, str]] = {
    "pre": ("UV_PRERELEASE", "allow"),
    "require-hashes": ("UV_REQUIRE_HASHES", "1"),
    "no-build-isolation": ("UV_NO_BUILD_ISOLATION", "1"),
}
# Options that have no variable in uv, or one that lines of a requirements file override.
_LINE_OPTIONS = {"constraint": "-c", "only-binary": "--only-binary", "no-binary": "--no-binary"}
_INDEXES = ("index-url", "extra-index-url", "find-links")
_TRUE = ("1", "true", "yes", "on", "y", "t")


class PipConfiguration(NamedTuple):
    """Variables for uv, and lines for a requirements file. ``own_index``: the site has configured
    its own indexes or wheel folders; ``own_default``: the one that stands for PyPI, too."""

    variables: Mapping[str, str]
    lines: tuple[str, ...] = ()
    own_index: bool = False
    own_default: bool = False


def for_uv(environ: Mapping[str, str]) -> PipConfiguration:
    """Translate the pip configuration that is in effect with these variables."""
    options = _pip_options(environ)
    # pip takes the best version of all indexes; uv's default takes the first index with any.
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for option, (name, separator, overrides) in _OPTIONS.items():
        if option in options and not any(variable in environ for variable in overrides):
            value = options[option]
            variables[name] = separator.join(value.split()) if separator else value
    for option, (name, value) in _SWITCHES.items():
        if _is_true(options.get(option)):
            variables[name] = value
    for option in ("default-timeout", "timeout"):
        if option in options and "UV_HTTP_TIMEOUT" not in environ:
            with contextlib.suppress(ValueError):  # pip itself reports it
                variables["UV_HTTP_TIMEOUT"] = str(math.ceil(float(options[option])))
    lines = ["--no-index"] if _is_true(options.get("no-index")) else []
    own_index = bool(lines) or any(index in options for index in _INDEXES)
    for option, flag in _LINE_OPTIONS.items():
        words = options.get(option, "").split()
        values = words if option == "constraint" else [",".join(words)]
        lines += [f"{flag} {value}" for value in values if value]
    overrides = tuple(name for option in _INDEXES for name in _OPTIONS[option][2])
    own_index = own_index or any(variable in environ for variable in overrides)
    own_default = "index-url" in options or any(
        variable in environ for variable in _OPTIONS["index-url"][2]
    )
    return PipConfiguration(variables, tuple(lines), own_index, own_default)


def _is_true(value: str | None) -> bool:
    return (value or "").lower() in _TRUE


def _pip_options(environ: Mapping[str, str]) -> dict[str, str]:
    """pip's effective options for `pip install`."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for file in _files(environ):
        for section, options in sections.items():
            options |= _read(file, section)
    variables = {
        name.removeprefix("PIP_").lower().replace("_", "-"): value
        for name, value in environ.items()
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE"
    }
    levels = (*sections.values(), variables)
    return {
        name: value for level in levels for name, value in level.items() if value and value.strip()
    }


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    for folder in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"):
        if folder:
            yield Path(folder, "pip/pip.conf")
    yield Path("/etc/pip.conf")
    # PIP_CONFIG_FILE replaces the user's file.
    if not (named and Path(named).exists()):
        home = Path(environ.get("HOME") or "/nonexistent")
        yield home / ".pip" / "pip.conf"
        yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config", "pip/pip.conf")
    if prefix := environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX"):
        yield Path(prefix, "pip.conf")
    if named:
        yield Path(named)


def _read(file: Path, section: str) -> dict[str, str]:
    """The options of a section; none if the file cannot be read."""
    parser = configparser.RawConfigParser()
    try:
        parser.read(file)
    except (configparser.Error, UnicodeDecodeError, OSError):
        return {}  # pip itself reports it
    if not parser.has_section(section):
        return {}
    return {name.replace("_", "-"): value for name, value in parser.items(section)}
