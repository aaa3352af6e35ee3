"""All errors that allranks reports to users.

    AllranksError            one sentence, where it is, how to mend it
    ├── UsageError           a wrong command line or API call                     exit 2
    │   ├── CodeTooLarge     a code folder that is most likely a wrong one
    │   └── DataTooLarge     data to upload that is most likely a wrong one
    ├── SpecError            a job that cannot be run as written (1…n problems)   exit 2
    ├── NotFound             no such job, file, rank, …                           exit 2
    │   ├── MissingCode      the snapshot has to be sent first                    (mended by sdk)
    │   └── MissingData      an input has to be uploaded first                    (mended by sdk)
    ├── Conflict             the name is taken, the state forbids it              exit 2
    ├── Unsupported          in the contract, not built yet in this version       exit 2
    ├── Unauthorized         a token that does not match                          exit 2
    ├── Passing              a store, a network or a disk: it may go by itself       (tried again)
    ├── Forbidden            a token that does not open this                      exit 2
    ├── TooLarge             more than a server takes in at once                  exit 2
    ├── TimedOut             the time that was given is up                        exit 124
    ├── ServerError          the server is missing, another version, or broken    exit 2
    │   └── Unreachable      nothing answers at its address                       exit 2
    └── EngineError          an engine could not do what it was asked             exit 1
        └── Refused          it never will: the gang cannot fit, ever             exit 2

``kind`` travels over HTTP; ``from_body`` makes the same exception again on the other side.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# Full or failing disk, missing mount, network down, or node out of resources.
_PASSING = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.EROFS,
        errno.ESTALE,
        errno.ENOTCONN,
        errno.ETIMEDOUT,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EMFILE,
        errno.ENFILE,
    }
)
# Of the system, of quotas, and of SQLite.
_FULL = ("no space left on device", "disk quota exceeded", "disk is full")

# The hint for a process of ours that was killed.
OUT_OF_MEMORY = "the node may have run out of memory: see `dmesg` there"


class Problem(NamedTuple):
    """One problem of a job: ``where`` is the key (``inputs.lr``), ``line`` counts from 1."""

    message: str
    where: str | None = None
    line: int | None = None
    hint: str | None = None

    def below(self, key: str) -> Problem:
        """The same of a whole that has the job, or its part, at ``key``."""
        return self._replace(where=".".join(filter(None, (key, self.where))) or None)

    def located(self, file: str | None = None) -> str:
        """The message, prefixed with its location: ``job.yml:4: limits.timeout: …``."""
        place = file or ""
        if self.line is not None:
            place = f"{place or 'line'}:{self.line}" if place else f"line {self.line}"
        return ": ".join(part for part in (place, self.where, self.message) if part)


class AllranksError(Exception):
    """The base class.

    ``message`` is one sentence, ``where`` a file, key, node or rank, ``hint`` how to fix it. The
    hint is also a note (PEP 678), so an uncaught traceback ends with it.
    """

    kind = "error"
    http = 500
    exit_code = 2

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self._notes: list[str] = []

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # computed, not assigned
        return [*self._hints(), *self._notes]

    def add_note(self, note: str) -> None:
        self._notes.append(note)

    def _hints(self) -> list[str]:
        return [f"hint: {self.hint}"] if self.hint else []

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    def body(self) -> dict[str, Any]:
        """The error as JSON, for ``--json`` and for HTTP."""
        return {
            "error": self.kind,
            "message": self.message,
            "where": self.where,
            "hint": self.hint,
        }


class UsageError(AllranksError):
    kind, http = "usage", 400


class CodeTooLarge(UsageError):
    """The code folder is over the limit. ``allow_large`` submits it anyway."""


class DataTooLarge(UsageError):
    """So much data is uploaded only if somebody says so. ``allow_large_data`` does."""


class NotFound(AllranksError):
    kind, http = "not_found", 404


class MissingCode(NotFound):
    kind = "missing_code"


class MissingData(NotFound):
    kind = "missing_data"


class Conflict(AllranksError):
    kind, http = "conflict", 409


class Unsupported(AllranksError):
    kind, http = "unsupported", 422


class Unauthorized(AllranksError):
    kind, http = "unauthorized", 401


class Passing(AllranksError):
    """The error may pass with time, or on another node."""

    kind, http, exit_code = "passing", 503, 1


class Forbidden(AllranksError):
    kind, http = "forbidden", 403


class TooLarge(AllranksError):
    kind, http = "too_large", 413


class TimedOut(AllranksError):
    kind, http, exit_code = "timed_out", 504, 124


class ServerError(AllranksError):
    kind, http = "server", 503


class Unreachable(ServerError):
    """``sent``: the request may have arrived, and only the answer was lost. ``untrusted``: a server
    answers, with a certificate that is not trusted."""

    kind = "unreachable"
    sent = untrusted = False


class EngineError(AllranksError):
    kind, http, exit_code = "engine", 502, 1


class Refused(EngineError):
    kind, http, exit_code = "refused", 422, 2


class SpecError(AllranksError):
    """The job cannot run as written. ``problems`` holds all problems found."""

    kind, http = "spec", 422

    def __init__(self, problems: Sequence[Problem] | Problem, *, file: str | None = None) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        self.file = file
        first = self.problems[0]
        super().__init__(first.message, where=first.where, hint=first.hint)
        self.line = first.line
        self.args = (self.problems,)  # pickle calls the constructor with them

    def _hints(self) -> list[str]:
        if len(self.problems) == 1:
            return super()._hints()
        several = [problem for problem in self.problems if problem.hint]
        return [f"hint: {problem.where or problem.message}: {problem.hint}" for problem in several]

    def __str__(self) -> str:
        return "\n".join(problem.located(self.file) for problem in self.problems)

    def body(self) -> dict[str, Any]:
        return {
            **super().body(),
            "line": self.line,
            "file": self.file,
            "problems": [problem._asdict() for problem in self.problems],
        }


_KINDS: Mapping[str, type[AllranksError]] = {
    cls.kind: cls
    for cls in (
        AllranksError,
        UsageError,
        NotFound,
        MissingCode,
        MissingData,
        Conflict,
        Unsupported,
        Unauthorized,
        Passing,
        Forbidden,
        TooLarge,
        TimedOut,
        ServerError,
        Unreachable,
        EngineError,
        Refused,
    )
}


def from_body(body: Mapping[str, Any]) -> AllranksError:
    """Recreate the exception that ``body()`` described, on the other side of HTTP. Raises KeyError,
    TypeError and the like if it describes none."""
    if body["error"] == SpecError.kind and body.get("problems"):
        return SpecError([Problem(**p) for p in body["problems"]], file=body.get("file"))
    cls = _KINDS.get(str(body["error"]), AllranksError)
    message = str(body.get("message", "the server did not give a reason"))
    where, hint = (None if body.get(key) is None else str(body[key]) for key in ("where", "hint"))
    return cls(message, where=where, hint=hint)


def is_disk_full(error: Exception | str) -> bool:
    """Whether a disk is full, by an error of this machine, or by one that a server or another
    process reported as text."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return any(text in str(error).lower() for text in _FULL)


def is_passing(error: Exception) -> bool:
    """Whether the error may pass with time, or on another node."""
    if isinstance(error, OSError):
        return error.errno in _PASSING
    return isinstance(error, Passing | Unreachable)
