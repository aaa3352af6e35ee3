"""Servers on other machines that `allranks login` keeps by name in the user's configuration.

``contexts.json`` in ``$XDG_CONFIG_HOME/allranks`` (``~/.config/allranks``) has mode 0600: it holds
tokens. Commands use the server that ALLRANKS_SERVER names, else the context that ALLRANKS_CONTEXT
names, else the context in use, else this machine's own server. Shells with another ALLRANKS_HOME
have another context in use: a login holds where it was made, and not in a home for tests.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from allranks.errors import NotFound, UsageError

LOCAL = "local"
"""The name of this machine's own server, which needs no login."""


class Server(NamedTuple):
    """``name`` is that of its context, empty for a server that only ALLRANKS_SERVER names."""

    url: str
    token: str = ""
    fingerprint: str = ""
    name: str = ""

    @property
    def source(self) -> str:
        """What has chosen it, for messages."""
        return f"context {self.name}" if self.name else "ALLRANKS_SERVER"


class Contexts(NamedTuple):
    """``in_use``: contexts by the folder in ALLRANKS_HOME, which is empty without the variable. A
    home that is not there uses this machine's own server."""

    servers: dict[str, Server]
    in_use: Mapping[str, str] = MappingProxyType({})

    def current(self, environ: Mapping[str, str] = os.environ) -> str:
        """The context in use; empty for this machine's own server."""
        return self.in_use.get(_home(environ), "")

    def using(self, name: str, environ: Mapping[str, str] = os.environ) -> Contexts:
        others = {home: used for home, used in self.in_use.items() if home != _home(environ)}
        return self._replace(in_use=others | ({_home(environ): name} if name else {}))


def chosen(environ: Mapping[str, str] = os.environ) -> Server | None:
    """The server that commands use; None for this machine's own. Raises NotFound for a context that
    is not there, UsageError for a file that cannot be read."""
    url = environ.get("ALLRANKS_SERVER", "").strip().rstrip("/")
    if url:
        contexts = read()
        same = [server for server in contexts.servers.values() if server.url == url]
        same.sort(key=lambda server: server.name != contexts.current(environ))
        return _with_variables(same[0] if same else Server(url), environ)._replace(name="")
    contexts = read()
    name = environ.get("ALLRANKS_CONTEXT", "").strip() or contexts.current(environ)
    return None if name in ("", LOCAL) else _with_variables(find(contexts, name), environ)


def _home(environ: Mapping[str, str]) -> str:
    home = environ.get("ALLRANKS_HOME", "").strip()
    return os.path.abspath(os.path.expanduser(home)) if home else ""


def _with_variables(server: Server, environ: Mapping[str, str]) -> Server:
    token = environ.get("ALLRANKS_TOKEN", "").strip() or server.token
    fingerprint = plain(environ.get("ALLRANKS_FINGERPRINT", "")) or server.fingerprint
    return server._replace(token=token, fingerprint=fingerprint)


def find(contexts: Contexts, name: str) -> Server:
    """Raises NotFound."""
    if name not in contexts.servers:
        hint = "`allranks context list` shows all; `allranks login URL` adds one"
        raise NotFound(f"context {name!r} not found", where=str(path()), hint=hint)
    return contexts.servers[name]


def path() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME", "").strip() or os.path.expanduser("~/.config")
    return Path(folder, "allranks", "contexts.json")


def read() -> Contexts:
    """Raises UsageError."""
    file = path()
    try:
        with open(file, "rb") as opened:
            if os.fstat(opened.fileno()).st_mode & 0o077:  # copied, perhaps
                os.fchmod(opened.fileno(), 0o600)
            content: dict[str, Any] = json.loads(opened.read())
        servers = {
            name: Server(entry["url"], entry["token"], entry["fingerprint"], name)
            for name, entry in content["contexts"].items()
        }
        in_use = content["in_use"] if "in_use" in content else {"": content["current"]}
        texts = [text for server in servers.values() for text in server] + [*in_use.values()]
        if all(isinstance(text, str) for text in texts):
            return Contexts(servers, {**in_use})
        reason = "is damaged"
    except (FileNotFoundError, NotADirectoryError):
        return Contexts({})
    except OSError as error:
        reason = f"cannot be read: {(error.strerror or str(error)).lower()}"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        reason = "is damaged"
    hint = "delete it, and log in again with `allranks login URL`"
    raise UsageError(f"the file of your servers {reason}", where=str(file), hint=hint)


def change(change: Callable[[Contexts], Contexts]) -> None:
    """Replace the file in one step, one process after the other. Raises UsageError and what
    ``change`` raises."""
    file = path()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(file.with_name("lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _write(file, change(read()))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = "set XDG_CONFIG_HOME to a folder of yours"
        raise UsageError(f"cannot be written: {reason}", where=str(file), hint=hint) from None


def _write(file: Path, contexts: Contexts) -> None:
    entries = {
        name: {"url": server.url, "token": server.token, "fingerprint": server.fingerprint}
        for name, server in contexts.servers.items()
    }
    text = json.dumps({"in_use": {**contexts.in_use}, "contexts": entries}, indent=2) + "\n"
    made = file.with_name(f"{file.name}.new")
    made.unlink(missing_ok=True)
    try:
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(text)
        made.rename(file)
    except OSError:
        made.unlink(missing_ok=True)
        raise


def plain(fingerprint: str) -> str:
    """A fingerprint as it is compared: lower case, without colons."""
    return fingerprint.strip().lower().replace(":", "")
