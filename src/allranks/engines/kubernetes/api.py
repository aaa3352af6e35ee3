"""Requests to a cluster's API server, with plain dictionaries.

The official client reads the kubeconfig (exec plugins, tokens, certificates, proxies) and speaks
HTTP; it is imported with the first request, because that takes a third of a second.
Raises Denied if the server denies a request, QuotaExceeded if a quota does, Refused if it rejects
the request, EngineError if it does not answer.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from allranks.engines.answers import whole
from allranks.engines.kubernetes import kubeconfig
from allranks.engines.kubernetes.kubeconfig import Denied
from allranks.errors import AllranksError, EngineError, Refused

# Seconds to connect, and to read an answer.
_TIMEOUT = (3.0, 10.0)
_DENIED = (401, 403)
# Bytes of an event; etcd keeps objects of 1.5 MB.
_LONGEST_EVENT = 16 << 20
# Answers that say nothing about the request: too many requests, or a fault of the server.
_LATER = (408, 409, 410, 429)
# How the server denies what a quota has no room for, also to those who have the right.
_QUOTA = re.compile(r"exceeded quota: ([^,]+), (.+)")

Object = dict[str, Any]


class Answer(NamedTuple):
    """A response: its HTTP status, and its JSON."""

    status: int
    body: Object

    @property
    def message(self) -> str:
        return str(self.body.get("message") or f"HTTP status {self.status}")


class Expired(EngineError):
    """The cluster no longer knows the resource version of a watch: list again (410)."""


class QuotaExceeded(EngineError):
    """A quota of the namespace is used up; it may be free later."""


class Connection(NamedTuple):
    """The loaded configuration, its HTTP client, and the namespace of its context."""

    configuration: Any
    rest: Any
    namespace: str


class Api:
    """The API server that a compute's options select. Thread-safe."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    @property
    def namespace(self) -> str:
        return str(self._options.get("namespace") or self._connected().namespace)

    @property
    def host(self) -> str:
        """The API server's name or number."""
        return urlsplit(self._connected().configuration.host).hostname or ""

    def path(self, kind: str, name: str = "") -> str:
        """The path of a namespaced kind, such as ``jobs``, or of one object of it."""
        group = {"jobs": "/apis/batch/v1"}.get(kind, "/api/v1")
        path = f"{group}/namespaces/{quote(self.namespace)}/{kind}"
        return f"{path}/{quote(name)}" if name else path

    def get(self, path: str, **parameters: str) -> Object:
        answer = self.request("GET", path, None, **parameters)
        return self.good(answer, f"GET {path}").body

    def create(self, kind: str, body: Object, **parameters: str) -> Object | None:
        """Create the object; None if its name is taken."""
        answer = self.request("POST", self.path(kind), body, **parameters)
        if answer.status == 409 and answer.body.get("reason") == "AlreadyExists":
            return None
        return self.good(answer, f"create a {body['kind']}").body

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **parameters: str
    ) -> Answer:
        """Send a request and return the answer, whatever its status."""
        return self._answer(self._send(method, path, body, parameters, _TIMEOUT))

    def _answer(self, reply: Any) -> Answer:
        try:
            text = whole(reply.response.read)
        except EngineError:
            raise
        except Exception as error:  # of urllib3, which only the client imports
            raise self._silent(error) from None
        finally:
            reply.response.release_conn()
        try:
            body = json.loads(text) if text else {}
        except ValueError:
            body = {"message": text.decode(errors="replace").strip()[:300]}
        return Answer(reply.status, body if isinstance(body, dict) else {})

    def watch(self, path: str, seconds: int, **parameters: str) -> Iterator[Object]:
        """Open a watch, and return its events until the server ends it, after ``seconds``. The
        events raise Expired if the list has to be read again."""
        parameters |= {"watch": "true", "allowWatchBookmarks": "true"}
        parameters["timeoutSeconds"] = str(seconds)
        reply = self._send("GET", path, None, parameters, (_TIMEOUT[0], seconds + 10.0))
        if reply.status == 200:
            return self._events(reply.response)
        answer = self._answer(reply)
        raise self._expired(answer) if reply.status == 410 else self._error(answer, f"watch {path}")

    def _events(self, response: Any) -> Iterator[Object]:
        try:
            for line in _lines(response):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    failed = event["object"]
                    raise self._expired(Answer(int(failed.get("code") or 500), failed))
                yield event
        except AllranksError:
            raise
        except Exception as error:  # of urllib3, or a line that was cut
            raise self._silent(error) from None
        finally:
            response.close()

    def good(self, answer: Answer, action: str) -> Answer:
        """Return the answer if it is a success. Raises Refused or EngineError."""
        if answer.status < 400:
            return answer
        raise self._error(answer, action)

    # ------------------------------------------------------------ HTTP

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        parameters: Mapping[str, str],
        timeout: tuple[float, float],
    ) -> Any:
        connection = self._connected()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Accept": "application/json", "Content-Type": kind}
        url = f"{connection.configuration.host}{path}"
        if parameters:
            url += f"?{urlencode(parameters)}"

        def send(connection: Connection) -> Any:
            try:
                sent = {**headers, **self._credentials(connection)}
                return connection.rest.request(method, url, sent, body, _request_timeout=timeout)
            except Exception as error:  # of urllib3, and of exec plugins
                raise self._silent(error) from None

        reply = send(connection)
        if reply.status != 401:
            return reply
        # A rotated token, or one that an exec plugin renews.
        reply.response.release_conn()
        return send(self._connected(renew=True))

    def _credentials(self, connection: Connection) -> dict[str, str]:
        with self._lock:  # the client renews a token in place
            settings = connection.configuration.auth_settings()
        return {
            setting["key"]: setting["value"] for setting in settings.values() if setting["value"]
        }

    def _connected(self, renew: bool = False) -> Connection:
        with self._lock:
            if self._connection is None or renew:
                self._connection = _connect(self._options)
            return self._connection

    # ------------------------------------------------------------ errors

    def _error(self, answer: Answer, action: str) -> AllranksError:
        where = self._where()
        if answer.status == 403 and (quota := _QUOTA.search(answer.message)):
            numbers = re.sub(r"(requested|used|limited): ", r"\1 ", quota[2])
            return QuotaExceeded(
                f"the quota {quota[1]!r} of the namespace is used up: {numbers}",
                where=where,
                hint="`kubectl describe quota` shows it; end what uses it, or ask for more",
            )
        if answer.status in _DENIED:
            return Denied(
                f"the cluster denies access: {answer.message}",
                where=where,
                hint="ask for the rights that `allranks compute render kubernetes` prints"
                if answer.status == 403
                else "log in to the cluster again; `kubectl auth whoami` shows who you are",
            )
        if answer.status in _LATER or answer.status >= 500:
            return EngineError(f"the cluster cannot {action} now: {answer.message}", where=where)
        if answer.status == 404:
            return Denied(
                answer.message,
                where=where,
                hint="check that the address is that of a Kubernetes API server and that the "
                "namespace exists",
            )
        return Refused(
            answer.message,
            where=where,
            hint="change the option of the job (resources.properties.kubernetes) or of its compute "
            "that the message is about",
        )

    def _expired(self, answer: Answer) -> AllranksError:
        if answer.status in (410, 504):
            return Expired(answer.message)
        return EngineError(f"the watch ended: {answer.message}", where=self._where())

    def _silent(self, error: Exception) -> EngineError:
        reason = getattr(error, "reason", None)
        text = str(reason if isinstance(reason, Exception) else error).strip()
        # urllib3 puts an object's address in front.
        text = text.rpartition(">: ")[2].partition("\n")[0] or type(error).__name__
        return EngineError(
            f"the cluster does not answer: {text[:300]}",
            where=self._where(),
            hint="`kubectl get pods` with the same kubeconfig shows whether the cluster is up",
        )

    def _where(self) -> str | None:
        return None if self._connection is None else str(self._connection.configuration.host)


def _connect(options: Mapping[str, Any]) -> Connection:
    """Read the kubeconfig, or the service account of this pod. Raises Refused."""
    try:
        from kubernetes.client.configuration import Configuration  # lazy: a third of a second
        from kubernetes.client.rest import RESTClientObject  # lazy: as above

        configuration = Configuration()
        configuration.retries = False  # the callers retry
        configuration.connection_pool_maxsize = 8
        namespace = kubeconfig.load(configuration, options)
    except ImportError:
        hint = "install it for the server: pip install 'allranks[kubernetes]'"
        raise Refused("the client library for Kubernetes is not installed", hint=hint) from None
    return Connection(configuration, RESTClientObject(configuration), namespace)


def _lines(response: Any) -> Iterator[bytes]:
    """Yield the lines of a response as they arrive."""
    rest = b""
    for piece in response.stream(1 << 16, decode_content=False):
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > _LONGEST_EVENT:
            raise EngineError(f"a cluster's event does not end: {len(rest)} bytes so far")
        yield from filter(None, lines)
