"""An HTTP client for Ray's dashboard: its jobs API and its state API. It does not import Ray.

Each request uses its own connection and times out after five seconds. Raises EngineError if nothing
answers, and Refused if the answer is not Ray's or if Ray denies access.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from allranks.engines.answers import whole
from allranks.errors import EngineError, Refused

TIMEOUT = 5.0
PORT = 8265
_DENIED = (401, 403)


class Answer(NamedTuple):
    """A response. ``text`` is JSON if ``status`` is 200, otherwise a message or a traceback."""

    status: int
    text: str

    @property
    def ok(self) -> bool:
        return self.status < 400

    def last_line(self) -> str:
        """The last line of the text: the message, if it is a traceback."""
        lines = [line.strip() for line in self.text.splitlines() if len(line.strip()) > 1]
        return lines[-1] if lines else f"HTTP status {self.status}"


class Dashboard:
    """The dashboard at ``address``. ``token_file`` is read again for each request."""

    def __init__(self, address: str, token_file: str = "") -> None:
        self.url = address if "://" in address else f"http://{address}"
        self._token_file = token_file

    def json(self, path: str) -> Any:
        """GET ``path`` and return the decoded JSON."""
        answer = self.request("GET", path)
        try:
            if answer.ok:
                return json.loads(answer.text)
        except ValueError:
            raise self.not_ray() from None
        if answer.status == 404:
            raise self.not_ray()
        raise EngineError(f"Ray at {self.url} answered with an error: {answer.last_line()}")

    def state(self, path: str) -> list[dict[str, Any]]:
        """GET a list of the state API and return its rows."""
        rows: list[dict[str, Any]] = self.json(path)["data"]["result"]["result"]
        return rows

    def request(self, method: str, path: str, body: bytes | None = None) -> Answer:
        """Send one request. Raises Refused for status 401 and 403, for no other."""
        import http.client  # lazy: 45 ms, and only the Ray engine needs it

        secure, host, port, prefix = self._endpoint()
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(host, port, timeout=TIMEOUT)
        try:
            connection.request(method, prefix + path, body, self._headers())
            reply = connection.getresponse()
            answer = Answer(reply.status, whole(reply.read).decode(errors="replace"))
        except OSError as error:
            raise EngineError(
                f"Ray does not answer at {self.url}: {_message(error)}",
                hint="check that Ray's head runs and that its dashboard is reachable from here: "
                "`ray start --head --dashboard-host=0.0.0.0` accepts other hosts",
            ) from None
        except http.client.HTTPException:
            raise self.not_ray() from None
        finally:
            connection.close()
        if answer.status in _DENIED:
            raise self._denied()
        return answer

    def _endpoint(self) -> tuple[bool, str, int, str]:
        """Return whether it uses TLS, the host, the port and the path's prefix."""
        try:
            url = urlsplit(self.url)
            host, port = url.hostname or "", url.port
        except ValueError:
            raise self.not_ray() from None
        if url.scheme not in ("http", "https") or not host:
            raise self.not_ray()
        secure = url.scheme == "https"
        return secure, host, port or (443 if secure else PORT), url.path.rstrip("/")

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if self._token_file:
            try:
                token = Path(self._token_file).read_text().strip()
            except (OSError, ValueError) as error:
                raise Refused(
                    f"cannot read the file with Ray's token: {_message(error)}",
                    where=self._token_file,
                    hint="set `token_file` to a file that the server can read",
                ) from None
            headers["authorization"] = f"Bearer {token}"
        return headers

    def _denied(self) -> Refused:
        if self._token_file:
            return Refused(
                f"Ray at {self.url} rejects the token in {self._token_file}",
                hint="use the token of that cluster, in the file that RAY_AUTH_TOKEN_PATH names",
            )
        return Refused(
            f"Ray at {self.url} requires a token",
            hint="set `token_file` to the file that contains it",
        )

    def not_ray(self) -> Refused:
        return Refused(
            f"the server at {self.url} is not Ray's dashboard",
            hint=f"set `address` to the address of the dashboard, usually http://HOST:{PORT}",
        )


def _message(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
