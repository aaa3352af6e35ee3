"""Where a home keeps its things, and the clocks everything runs by.

A home is one folder: database, blobs, records, the port, the token. Two homes never meet.
The clocks are seconds; each can be set by ``ALLRANKS_<NAME>`` so that tests run at a small clock.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from allranks.errors import ServerError, UsageError


class Home(NamedTuple):
    """The folder ``ALLRANKS_HOME`` and the fixed places inside it."""

    root: Path

    @property
    def database(self) -> Path:
        return self.root / "allranks.db"

    @property
    def database_url(self) -> Path:
        """Where the record is, if not in ``database``: the URL of a PostgreSQL database."""
        return self.root / "database.url"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def nodes(self) -> Path:
        """Working folders of agents on this disk, one per gang; short-lived."""
        return self.root / "nodes"

    @property
    def engines(self) -> Path:
        return self.root / "engines"

    @property
    def environments(self) -> Path:
        """Virtual environments of jobs, each made once."""
        return self.root / "environments"

    @property
    def cache(self) -> Path:
        """Data from elsewhere that jobs of nodes which share this disk were given."""
        return self.root / "cache"

    @property
    def data(self) -> Path:
        """The default datastore."""
        return self.root / "data"

    @property
    def models(self) -> Path:
        """The files of models, by what is in them."""
        return self.root / "models"

    @property
    def states(self) -> Path:
        """State folders: with a name, and of jobs."""
        return self.root / "states"

    @property
    def secrets(self) -> Path:
        """The key of the credentials in the database."""
        return self.root / "secrets.key"

    @property
    def code(self) -> Path:
        """Commits of repositories elsewhere that were asked for."""
        return self.root / "code"

    @property
    def snapshots(self) -> Path:
        """What is known of code by how its files look."""
        return self.root / "snapshots.json"

    @property
    def token(self) -> Path:
        return self.root / "token"

    @property
    def door(self) -> Path:
        """``{"port"}`` of the agents' door for other hosts, if it was ever opened."""
        return self.root / "door.json"

    @property
    def certificate(self) -> Path:
        """The agents' door's key and certificate."""
        return self.root / "door.pem"

    @property
    def front(self) -> Path:
        """On which address others may call the server, if somebody asked for that."""
        return self.root / "front.json"

    @property
    def mlflow(self) -> Path:
        """MLflow's server: its database and its artifacts, if it was ever used."""
        return self.root / "mlflow"

    @property
    def restoring(self) -> Path:
        """What a backup held, until all of it is in its place."""
        return self.root / ".restoring"

    @property
    def lock(self) -> Path:
        return self.root / "server.lock"

    @property
    def server(self) -> Path:
        """``{"pid", "port", "version", "url"}`` of the server that last ran here."""
        return self.root / "server.json"

    @property
    def log(self) -> Path:
        return self.root / "server.log"


class Clocks(NamedTuple):
    """Seconds. ``lease``: an agent unheard of for so long is lost. ``patience``: how long an agent
    that has nothing left to run waits for a server before it leaves. ``grace``: between SIGTERM and
    SIGKILL on cancel, preemption and time limit; ``peer_grace`` when another rank has failed;
    ``look``: between two looks at a state folder."""

    tick: float = 0.5
    lease: float = 9.0
    patience: float = 120.0
    grace: float = 10.0
    peer_grace: float = 0.5
    hello: float = 120.0
    look: float = 2.0


def home(environ: Mapping[str, str] = os.environ) -> Home:
    """The home that ``ALLRANKS_HOME`` names (default ``~/.allranks``); not created here."""
    named = environ.get("ALLRANKS_HOME", "").strip()
    return Home(Path(named or "~/.allranks").expanduser().absolute())


def make(home: Home) -> None:
    """The home's folders, for its owner only; raises ServerError when they cannot be used."""
    try:
        home.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        _narrow(home.root)
        for each in (home.jobs, home.nodes, home.blobs, home.engines):
            each.mkdir(exist_ok=True, mode=0o700)
        if not os.access(home.root, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise unusable(home, error) from error


def database(home: Home, environ: Mapping[str, str] = os.environ) -> Path | str:
    """Where the home's record is: the file in it, or the URL that ALLRANKS_DATABASE gave when it
    was new. A home keeps its database: raises ServerError when another is named."""
    named = environ.get("ALLRANKS_DATABASE", "").strip()
    try:
        kept = home.database_url.read_text().strip()
    except OSError:
        kept = ""
    if not named or _but_password(named) == _but_password(kept):
        return named or kept or home.database
    if kept or home.database.exists():
        raise ServerError(
            "this home's record is in another database than ALLRANKS_DATABASE names",
            where=str(home.database_url if kept else home.database),
            hint="unset it; or move: `allranks server backup`, then `allranks server restore` with "
            "it set and a new ALLRANKS_HOME",
        )
    return named


def has_record(home: Home) -> bool:
    """Whether anything was ever recorded in it."""
    return home.database.exists() or home.database_url.exists()


def keep_database(home: Home) -> Path | str:
    """The same, kept for good: by who holds the home's lock."""
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
    """For its owner only, whoever made it and with what umask: below it nothing else has to be."""
    there = folder.stat()
    if there.st_uid == os.getuid() and there.st_mode & 0o077:
        folder.chmod(0o700)


def unusable(home: Home, error: OSError) -> ServerError:
    """The sentence for a home that the system will not let us use."""
    return ServerError(
        f"the home cannot be used: {(error.strerror or str(error)).lower()}",
        where=str(home.root),
        hint="set ALLRANKS_HOME to a folder that you may write, on a disk with room",
    )


def clocks(environ: Mapping[str, str] = os.environ) -> Clocks:
    """The clocks, with ``ALLRANKS_LEASE=2`` and the like taken over."""
    found: dict[str, float] = {}
    for name in Clocks._fields:
        key = f"ALLRANKS_{name.upper()}"
        text = environ.get(key)
        if text is None:
            continue
        try:
            found[name] = float(text)
        except ValueError:
            found[name] = -1.0
        if found[name] <= 0:
            raise UsageError(
                f"{text!r} is not a positive number of seconds",
                where=key,
                hint=f"unset {key}, or give a number such as {Clocks._field_defaults[name]}",
            )
    return Clocks(**found)
