"""pip's own configuration, as uv takes it: a site that has set up pip has set up environments.

Read as pip reads it (its user guide, "Configuration"): the machine's file, the user's, then the
variables, each over the one before. Handed on by environment: an index's address may hold a secret.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

# pip's option, uv's variable, and what stands between the values of a list there.
_SAME = {
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "cert": ("SSL_CERT_FILE", ""),
    "timeout": ("UV_HTTP_TIMEOUT", ""),
    "default-timeout": ("UV_HTTP_TIMEOUT", ""),
    "proxy": ("ALL_PROXY", ""),
}
_UVS_INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")
_YES = ("1", "true", "yes", "on")


class Told(NamedTuple):
    """Variables for uv; whether no index is to be asked, for which it has none; and whether the
    site names indexes or folders of wheels of its own."""

    variables: Mapping[str, str]
    no_index: bool = False
    own_index: bool = False


def for_uv(environ: Mapping[str, str]) -> Told:
    """What pip would do in that environment, in uv's words."""
    asked: dict[str, str] = {}
    for file in _files(environ):
        asked |= _read(file)
    for name, value in environ.items():
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE" and value.strip():
            asked[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    # pip takes the best version of all its indexes; uv by itself those of the first that has any.
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for option, (name, between) in _SAME.items():
        if value := asked.get(option, "").strip():
            found[name] = between.join(value.split()) if between else value
    if asked.get("pre", "").lower() in _YES:
        found["UV_PRERELEASE"] = "allow"
    indexes = ("index-url", "extra-index-url", "find-links", "no-index")
    return Told(
        found,
        asked.get("no-index", "").lower() in _YES,
        any(asked.get(each) for each in indexes) or any(each in environ for each in _UVS_INDEXES),
    )


def _files(environ: Mapping[str, str]) -> list[Path]:
    named = environ.get("PIP_CONFIG_FILE")
    if named == "/dev/null":
        return []
    home = Path(environ.get("HOME") or "/nonexistent")
    shared = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    own = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    found = [Path(each, "pip/pip.conf") for each in shared if each]
    found += [Path("/etc/pip.conf"), home / ".pip" / "pip.conf", own / "pip" / "pip.conf"]
    if prefix := environ.get("VIRTUAL_ENV"):
        found.append(Path(prefix, "pip.conf"))
    return [*found, *([Path(named)] if named else [])]


def _read(file: Path) -> dict[str, str]:
    """The options of a file that concern installing; nothing of one that cannot be read."""
    parser = configparser.RawConfigParser()
    try:
        parser.read(file)
    except (configparser.Error, UnicodeDecodeError, OSError):
        return {}  # pip itself complains of it
    found: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            found |= {name.replace("_", "-"): value for name, value in parser.items(section)}
    return found
