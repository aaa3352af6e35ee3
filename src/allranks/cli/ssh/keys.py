"""The folder of one entry of OpenSSH's: its keys and its part of a configuration.

The keys are made for one job, and removed once it has ended. They are worth nothing elsewhere: who
may enter is decided by the server, from the token of whoever runs the proxy.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from allranks import settings
from allranks.errors import UsageError
from allranks.sdk.connection import contexts

# Variables that choose the server, without secrets.
_VARIABLES = (
    "ALLRANKS_HOME",
    "ALLRANKS_SERVER",
    "ALLRANKS_CONTEXT",
    "ALLRANKS_FINGERPRINT",
    "XDG_CONFIG_HOME",
)
_CONFIG = """\
Host {host}
    ProxyCommand {proxy}
    IdentityFile "{folder}/key"
    UserKnownHostsFile "{folder}/known_hosts"
    StrictHostKeyChecking yes
    ServerAliveInterval 30
"""


class Entry(NamedTuple):
    """Where a host of OpenSSH's leads: rank 0 without a rank and a node."""

    job: str
    rank: int | None
    node: int | None

    @property
    def host(self) -> str:
        if self.rank is not None:
            return f"{self.job}.rank-{self.rank}.allranks"
        return (
            f"{self.job}.allranks" if self.node is None else f"{self.job}.node-{self.node}.allranks"
        )

    @property
    def folder(self) -> Path:
        return own_folder() / self.host


def all_folders() -> Path:
    """The folders of all servers."""
    return contexts.path().parent / "ssh"


def own_folder() -> Path:
    """The folder of the entries of the server that commands use."""
    server = contexts.chosen()
    name = str(settings.home().root) if server is None else server.url
    return all_folders() / hashlib.sha256(name.encode()).hexdigest()[:12]


def library() -> None:
    """Raise UsageError unless asyncssh is installed."""
    try:
        import asyncssh  # noqa: F401  # lazy: an extra
    except ImportError:
        hint = f"{shlex.quote(sys.executable)} -m pip install 'allranks[ssh]'"
        raise UsageError("this Python has no asyncssh, which speaks ssh", hint=hint) from None


def write(entry: Entry) -> Path:
    """Write the entry, with new keys unless it has some; returns its configuration file."""
    import asyncssh  # lazy: an extra

    folder = entry.folder
    config = folder / "config"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (folder / "known_hosts").exists():
            own, host = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
            for key, name in ((own, "key"), (host, "host_key")):
                _write_private(folder / name, key.export_private_key())
            (folder / "key.pub").write_bytes(own.export_public_key())
            line = b"%b %b" % (entry.host.encode(), host.export_public_key())
            (folder / "known_hosts").write_bytes(line)
        config.write_text(_text(entry))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = "set XDG_CONFIG_HOME to a folder of yours"
        raise UsageError(f"cannot be written: {reason}", where=str(folder), hint=hint) from None
    return config


def _text(entry: Entry) -> str:
    chosen = [f"{name}={os.environ[name]}" for name in _VARIABLES if os.environ.get(name)]
    where = [] if entry.rank is None else ["--rank", str(entry.rank)]
    where += [] if entry.node is None else ["--node", str(entry.node)]
    module = [sys.executable, "-P", "-m", "allranks.cli.ssh.proxy"]
    proxy = shlex.join(["env", *chosen, *module, entry.job, *where])
    # A `%` begins what OpenSSH replaces.
    folder = str(entry.folder).replace("%", "%%")
    return _CONFIG.format(host=entry.host, proxy=proxy.replace("%", "%%"), folder=folder)


def remove(job: str) -> None:
    """Remove all entries of a job, and the folders that are then empty."""
    for folder in _folders_of(job):
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # there are others, or none
        own_folder().rmdir()
        all_folders().rmdir()


def jobs() -> set[str]:
    """The jobs that have entries."""
    hosts = own_folder().glob("*.allranks")
    return {re.sub(r"(\.(rank|node)-\d+)?\.allranks$", "", folder.name) for folder in hosts}


def _folders_of(job: str) -> list[Path]:
    hosts = (f"{job}.allranks", f"{job}.rank-*.allranks", f"{job}.node-*.allranks")
    return [folder for host in hosts for folder in own_folder().glob(host)]


def _write_private(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
