"""Ray's dashboard, asked over HTTP: its jobs API and its state API. Nothing of Ray is imported.

Each question is a connection of its own and takes five seconds at most. Nobody answering is an
EngineError, something else than Ray answering, or Ray not wanting us, is Refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from allranks.errors import EngineError, Refused

TIMEOUT = 5.0
PORT = 8265
_DENIED = (401, 403)


class Answer(NamedTuple):
    """``text`` is JSON where ``status`` is 200, and else a sentence or a traceback."""

    status: int
    text: str

    @property
    def ok(self) -> bool:
        return self.status < 400

    def last_line(self) -> str:
        """Of a traceback that is what went wrong."""
        lines = [line.strip() for line in self.text.splitlines() if len(line.strip()) > 1]
        return lines[-1] if lines else f"HTTP status {self.status}"


class Dashboard:
    """The dashboard at ``address``; ``token_file`` is read anew for each question."""

    def __init__(self, address: str, token_file: str = "") -> None:
        self.url = address if "://" in address else f"http://{address}"
        self._token_file = token_file

    def json(self, path: str) -> Any:
        """What a GET of ``path`` brings."""
        answer = self.ask("GET", path)
        try:
            if answer.ok:
                return json.loads(answer.text)
        except ValueError:
            raise self._not_ray() from None
        if answer.status == 404:
            raise self._not_ray()
        raise EngineError(f"Ray at {self.url} could not say: {answer.last_line()}")

    def state(self, path: str) -> list[dict[str, Any]]:
        """The rows of a list of the state API."""
        found: list[dict[str, Any]] = self.json(path)["data"]["result"]["result"]
        return found

    def ask(self, method: str, path: str, body: bytes | None = None) -> Answer:
        """One request, whatever the status of its answer, unless that is "who are you?"."""
        import http.client  # lazy: 45 ms, and only who uses Ray needs it

        scheme, host, port, prefix = self._place()
        secure = scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(host, port, timeout=TIMEOUT)
        try:
            connection.request(method, prefix + path, body, self._headers())
            reply = connection.getresponse()
            answer = Answer(reply.status, reply.read().decode(errors="replace"))
        except OSError as error:
            raise EngineError(
                f"Ray does not answer at {self.url}: {_said(error)}",
                hint="is its head up, and may its dashboard be reached from here? "
                "`ray start --head --dashboard-host=0.0.0.0` lets others in",
            ) from None
        except http.client.HTTPException:
            raise self._not_ray() from None
        finally:
            connection.close()
        if answer.status in _DENIED:
            raise self._denied()
        return answer

    def _place(self) -> tuple[str, str, int, str]:
        try:
            url = urlsplit(self.url)
            host, port = url.hostname or "", url.port
        except ValueError:
            raise self._not_ray() from None
        if url.scheme not in ("http", "https") or not host:
            raise self._not_ray()
        secure = url.scheme == "https"
        return url.scheme, host, port or (443 if secure else PORT), url.path.rstrip("/")

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if self._token_file:
            try:
                token = Path(self._token_file).read_text().strip()
            except (OSError, ValueError) as error:
                raise Refused(
                    f"the file with Ray's token cannot be read: {_said(error)}",
                    where=self._token_file,
                    hint="name with `token_file` a file that the server may read",
                ) from None
            headers["authorization"] = f"Bearer {token}"
        return headers

    def _denied(self) -> Refused:
        if self._token_file:
            return Refused(
                f"Ray at {self.url} does not take the token in {self._token_file}",
                hint="it has to be the token of that cluster: the file RAY_AUTH_TOKEN_PATH names",
            )
        return Refused(
            f"Ray at {self.url} wants a token",
            hint="name the file that has it with `token_file`",
        )

    def _not_ray(self) -> Refused:
        return Refused(
            f"what answers at {self.url} is not Ray's dashboard",
            hint=f"give the dashboard's address, http://HOST:{PORT} as a rule",
        )


def _said(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
