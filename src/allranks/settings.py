"""The layout of a home, and all intervals and timeouts.

A home is one folder with database, blobs, job records, port and token. Homes are isolated from each
other. Times are in seconds; each can be set with ``ALLRANKS_<NAME>``, which tests use to run fast.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from allranks.errors import ServerError, UsageError

# Set for the local engine's fork server. /proc shows its environment for all that it forks, not
# their own.
FORK_SERVER = "ALLRANKS_FORK_SERVER"
# The umask and limits of the shell that submits a job: see `shell_limits.py`.
SHELL_LIMITS = "ALLRANKS_LIMITS"
# In the folder of warm servers: the last request for one.
LAST_WARM = "last.json"

_Json = TypeVar("_Json", dict[str, Any], list[Any])


class Home(NamedTuple):
    """The folder ``ALLRANKS_HOME`` and the fixed places inside it."""

    root: Path

    @property
    def database(self) -> Path:
        return self.root / "allranks.db"

    @property
    def database_url(self) -> Path:
        """The file with the URL of the PostgreSQL database, if there is one."""
        return self.root / "database.url"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def nodes(self) -> Path:
        """Temporary working folders of agents on this disk, one per gang."""
        return self.root / "nodes"

    @property
    def engines(self) -> Path:
        return self.root / "engines"

    @property
    def warm(self) -> Path:
        """Sockets of processes that have imported modules for the ranks of later jobs."""
        return self.root / "warm"

    @property
    def pinned(self) -> Path:
        """Copies of the agent's code, by content, from which agents run: `engines/pinned_code`."""
        return self.root / "pinned"

    @property
    def environments(self) -> Path:
        """Virtual environments of jobs, each built once."""
        return self.root / "environments"

    @property
    def python(self) -> Path:
        """What packages the current Python has, for nodes that lack it."""
        return self.root / "python"

    @property
    def elsewhere(self) -> Path:
        """A file that exists if jobs that name no compute run on another than this machine."""
        return self.root / "elsewhere"

    @property
    def cache(self) -> Path:
        """The cache of downloaded inputs of nodes that share this disk."""
        return self.root / "cache"

    @property
    def data(self) -> Path:
        """The default datastore."""
        return self.root / "data"

    @property
    def uploads(self) -> Path:
        """Data that was uploaded, in the default datastore."""
        return self.data / "uploads"

    @property
    def digests(self) -> Path:
        """The cache of hashes of data that was uploaded from here, by file size and time."""
        return self.root / "digests"

    @property
    def models(self) -> Path:
        """The files of models, by content."""
        return self.root / "models"

    @property
    def states(self) -> Path:
        """State folders, named ones and those of jobs."""
        return self.root / "states"

    @property
    def secrets(self) -> Path:
        """The key that encrypts the credentials in the database."""
        return self.root / "secrets.key"

    @property
    def code(self) -> Path:
        """Fetched commits of remote repositories."""
        return self.root / "code"

    @property
    def dockerfiles(self) -> Path:
        """Dockerfiles of programs for Azure's first SDK, by content, each in a folder."""
        return self.root / "dockerfiles"

    @property
    def snapshots(self) -> Path:
        """The cache of code hashes by file size and time."""
        return self.root / "snapshots.json"

    @property
    def terminals(self) -> Path:
        """The jobs submitted from each terminal of this machine, whichever server they went to."""
        return self.root / "terminals"

    @property
    def downloads(self) -> Path:
        """Which job's files `job download` put into each folder."""
        return self.root / "downloads"

    @property
    def token(self) -> Path:
        return self.root / "token"

    @property
    def marks(self) -> Path:
        """Files that no other folder has, by which nodes know that they see this home."""
        return self.root / "marks"

    @property
    def agents_port(self) -> Path:
        """``{"port"}`` of the agents' listener for other hosts, if it was ever opened."""
        return self.root / "door.json"

    @property
    def certificate(self) -> Path:
        """Key and certificate of the agents' listener."""
        return self.root / "door.pem"

    @property
    def front(self) -> Path:
        """The address on which the server accepts other machines, if enabled."""
        return self.root / "front.json"

    @property
    def serve(self) -> Path:
        """The log, lock and sockets of the router of endpoints."""
        return self.root / "serve"

    @property
    def ui(self) -> Path:
        """The key, log and socket of the web page's server."""
        return self.root / "ui"

    @property
    def mlflow(self) -> Path:
        """The database and artifacts of MLflow's server, if it was ever used."""
        return self.root / "mlflow"

    @property
    def restoring(self) -> Path:
        """A restored backup, until everything is moved into place."""
        return self.root / ".restoring"

    @property
    def backups(self) -> Path:
        """Where the last backups of this home were written, the newest last."""
        return self.root / "backups.json"

    @property
    def lock(self) -> Path:
        return self.root / "server.lock"

    @property
    def server(self) -> Path:
        """``{"pid", "port", "version", "url", "started"}`` of the server that last ran in this
        home."""
        return self.root / "server.json"

    @property
    def handover(self) -> Path:
        """Which Python the server is to become: see `server/handover.py`."""
        return self.root / "handover.json"

    @property
    def log(self) -> Path:
        return self.root / "server.log"


class Clocks(NamedTuple):
    """In seconds. ``lease``: an agent without heartbeats for this long is lost. ``patience``: how
    long an agent without work waits for a server before it exits; ``unsent``: the same if its
    node's disk goes with it, and what is not sent; and how long a job that is done waits for space
    on a full disk, or for a server that has not all of its state. ``grace``: from SIGTERM to
    SIGKILL on cancel, preemption and time limit; ``peer_grace``: the same after another rank
    failed; ``look``: the interval between scans of a state folder; ``pace``: the interval between
    reports on which rank others wait for, which is named after three of them; ``idle``: how long
    nodes that a parent keeps may wait for a child."""

    tick: float = 0.5
    lease: float = 9.0
    patience: float = 120.0
    unsent: float = 24 * 3600.0
    grace: float = 10.0
    peer_grace: float = 0.5
    hello: float = 120.0
    look: float = 2.0
    pace: float = 20.0
    idle: float = 60.0


def prefetches(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a starting server imports what the last job with `warm` imported."""
    return environ.get("ALLRANKS_WARM_PREFETCH") == "1"


def home(environ: Mapping[str, str] = os.environ) -> Home:
    """The home named by ``ALLRANKS_HOME`` (default ``~/.allranks``). It is not created.

    Raises UsageError for a user without a home folder, and for another user's that others may
    write: its database says what runs, and its ``server.json`` where commands go.
    """
    named = environ.get("ALLRANKS_HOME", "").strip()
    try:
        home = Home(Path(named or "~/.allranks").expanduser().absolute())
        there = os.stat(home.root)
        if there.st_uid in (os.getuid(), 0) or not there.st_mode & (
            0o022 if os.getuid() else 0o002
        ):
            return home
        hint = "set ALLRANKS_HOME to a folder of yours"
        message = "this folder is another user's, and others may write there"
        raise UsageError(message, where=str(home.root), hint=hint)
    except OSError:
        return home  # it is not there yet, or what needs it says why not
    except RuntimeError:  # a user id without an entry in /etc/passwd
        hint = "set HOME, or ALLRANKS_HOME to a folder of yours"
        raise UsageError("you have no home folder", where="HOME", hint=hint) from None


def make(home: Home) -> None:
    """Create the home's folders, readable by the owner only. Raises ServerError if that fails."""
    try:
        home.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        _narrow(home.root)
        for folder in (home.jobs, home.nodes, home.blobs, home.engines):
            folder.mkdir(exist_ok=True, mode=0o700)
        if not os.access(home.root, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise unusable(home, error) from error


def database(home: Home, environ: Mapping[str, str] = os.environ) -> Path | str:
    """The home's database: its file, or the URL that ALLRANKS_DATABASE had when the home was
    created. Raises ServerError if ALLRANKS_DATABASE names another one now."""
    named = environ.get("ALLRANKS_DATABASE", "").strip()
    try:
        kept = home.database_url.read_text().strip()
    except OSError:
        kept = ""
    if not named or _but_password(named) == _but_password(kept):
        return named or kept or home.database
    if kept or home.database.exists():
        raise ServerError(
            "this home uses another database than ALLRANKS_DATABASE",
            where=str(home.database_url if kept else home.database),
            hint="unset it, or move the home: `allranks server backup`, then `allranks server "
            "restore` with it set and a new ALLRANKS_HOME",
        )
    return named


def has_record(home: Home) -> bool:
    """Whether the home has a database."""
    return home.database.exists() or home.database_url.exists()


def restore_hint(home: Home) -> str:
    """The command that restores the newest backup of this home that is still there."""
    newest = next(filter(os.path.isfile, reversed(written_backups(home))), None)
    if newest is not None:
        import shlex  # lazy: commands that start a job need not wait for it

        return f"restore the newest backup: allranks server restore {shlex.quote(newest)} --force"
    return "restore a backup: allranks server restore FILE --force"


def written_backups(home: Home) -> list[str]:
    """The files to which this home was backed up, the newest last."""
    return [str(path) for path in read_json(home.backups, list)]


def read_json(file: Path, kind: type[_Json]) -> _Json:
    """The content of a file that can be done without; empty if it is missing, damaged, or of
    another kind."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return kind()
    return content if isinstance(content, kind) else kind()


def require_no_jobs(home: Home) -> None:
    """Raise ServerError if the home, which has no record, has the files of jobs: a new record would
    give their folders to new jobs."""
    jobs = [name for name in os.listdir(home.jobs) if name[0] != "."] if home.jobs.is_dir() else []
    if jobs:
        raise ServerError(
            f"the database is empty, but {home.jobs} has files of jobs, such as {min(jobs)}",
            where=str(home.database),
            hint=f"{restore_hint(home)}; or move that folder away, to start with an empty record",
        )


def keep_database(home: Home) -> Path | str:
    """Like ``database``, and store the choice. Needs the home's lock."""
    where = database(home)
    if isinstance(where, str):
        beside = home.root / "database.url.new"
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{where}\n")
        beside.replace(home.database_url)
    return where


def _but_password(url: str) -> str:
    return re.sub(r"(?<=//)([^:@/]*):[^@/]*@", r"\1@", url)


def _narrow(folder: Path) -> None:
    """Restrict it to its owner, independent of the umask; this protects everything below it."""
    there = folder.stat()
    if there.st_uid == os.getuid() and there.st_mode & 0o077:
        folder.chmod(0o700)


def unusable(home: Home, error: OSError) -> ServerError:
    """The error for a home that cannot be used."""
    return ServerError(
        f"the home cannot be used: {(error.strerror or str(error)).lower()}",
        where=str(home.root),
        hint="set ALLRANKS_HOME to a writable folder on a disk with free space",
    )


def clocks(environ: Mapping[str, str] = os.environ) -> Clocks:
    """The clocks, with overrides such as ``ALLRANKS_LEASE=2``."""
    overrides: dict[str, float] = {}
    for name in Clocks._fields:
        key = f"ALLRANKS_{name.upper()}"
        text = environ.get(key)
        if text is None:
            continue
        try:
            overrides[name] = float(text)
        except ValueError:
            overrides[name] = -1.0
        if overrides[name] <= 0:
            raise UsageError(
                f"{text!r} is not a positive number of seconds",
                where=key,
                hint=f"unset {key}, or give a number such as {Clocks._field_defaults[name]}",
            )
    return Clocks(**overrides)
