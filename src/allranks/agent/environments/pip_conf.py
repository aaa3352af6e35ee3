"""pip's own configuration, as uv takes it: a site that has set up pip has set up environments.

Read as pip reads it (its user guide, "Configuration"): the machine's file, the user's, the
environment's, then the one that is named and the variables; of the sections `install` before
`global`; what is empty is not said. Handed on by environment: an address may hold a secret.
"""

from __future__ import annotations

import configparser
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

# pip's option, uv's variable, what stands between the values of a list there, and uv's other names
# for the same: who has told uv itself is heard instead.
_SAME: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
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
# What uv takes as lines of a requirements file, and in no variable or in one that lines hide.
_LINES = {"constraint": "-c", "only-binary": "--only-binary", "no-binary": "--no-binary"}
_INDEXES = ("index-url", "extra-index-url", "find-links")
_YES = ("1", "true", "yes", "on", "y", "t")


class PipConfiguration(NamedTuple):
    """Variables for uv, and lines for a requirements file; ``own_index``: the site names indexes or
    folders of wheels of its own."""

    variables: Mapping[str, str]
    lines: tuple[str, ...] = ()
    own_index: bool = False


def for_uv(environ: Mapping[str, str]) -> PipConfiguration:
    """What pip would do in that environment, in uv's words."""
    asked = _asked(environ)
    # pip takes the best version of all its indexes; uv by itself those of the first that has any.
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for option, (name, between, others) in _SAME.items():
        if option in asked and not any(each in environ for each in others):
            found[name] = between.join(asked[option].split()) if between else asked[option]
    for option, (name, value) in _SWITCHES.items():
        if _is_yes(asked.get(option)):
            found[name] = value
    # uv counts whole seconds.
    for option in ("default-timeout", "timeout"):
        if option in asked and "UV_HTTP_TIMEOUT" not in environ:
            try:
                found["UV_HTTP_TIMEOUT"] = str(math.ceil(float(asked[option])))
            except ValueError:
                continue  # pip itself complains of it
    lines = ["--no-index"] if _is_yes(asked.get("no-index")) else []
    for option, word in _LINES.items():
        values = asked.get(option, "")
        several = values.split() if option == "constraint" else [",".join(values.split())]
        lines += [f"{word} {value}" for value in several if value]
    uvs = [name for option in _INDEXES for name in _SAME[option][2]]
    own = bool(lines[:1] == ["--no-index"]) or any(each in asked for each in _INDEXES)
    return PipConfiguration(found, tuple(lines), own or any(each in environ for each in uvs))


def _is_yes(value: str | None) -> bool:
    return (value or "").lower() in _YES


def _asked(environ: Mapping[str, str]) -> dict[str, str]:
    """Every option that concerns installing, with what counts of all that was said of it."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for file in _files(environ):
        for section, options in sections.items():
            options |= _read(file, section)
    variables = {
        name.removeprefix("PIP_").lower().replace("_", "-"): value
        for name, value in environ.items()
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE"
    }
    several = (*sections.values(), variables)
    return {
        name: value for each in several for name, value in each.items() if value and value.strip()
    }


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    for each in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"):
        if each:
            yield Path(each, "pip/pip.conf")
    yield Path("/etc/pip.conf")
    # One that is named stands in the place of the user's.
    if not (named and Path(named).exists()):
        home = Path(environ.get("HOME") or "/nonexistent")
        yield home / ".pip" / "pip.conf"
        yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config", "pip/pip.conf")
    if prefix := environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX"):
        yield Path(prefix, "pip.conf")
    if named:
        yield Path(named)


def _read(file: Path, section: str) -> dict[str, str]:
    """The options of a section; nothing of a file that cannot be read."""
    parser = configparser.RawConfigParser()
    try:
        parser.read(file)
    except (configparser.Error, UnicodeDecodeError, OSError):
        return {}  # pip itself complains of it
    if not parser.has_section(section):
        return {}
    return {name.replace("_", "-"): value for name, value in parser.items(section)}
