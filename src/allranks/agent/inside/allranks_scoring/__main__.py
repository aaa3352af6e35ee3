"""Load a model, then answer requests until SIGTERM: those that are running end first.

    python -m allranks_scoring [--script FILE] [--model PATH [--model-name NAME]] [--threads N]
        [--timeout SECONDS]

It listens on the Unix socket of ``ALLRANKS_SERVE_SOCKET``, or on the port ``PORT`` of this host.
"""

from __future__ import annotations

import os
import sys

from allranks_standard import standard_modules  # type: ignore[import-not-found,unused-ignore]

with standard_modules():
    import argparse
    import http.server
    import json
    import signal
    import socket
    import socketserver
    import threading
    import time
    import traceback
    from typing import Any, ClassVar, Dict, NoReturn, Tuple
    from urllib.parse import urlsplit

    import allranks_model_folder  # type: ignore[import-not-found,unused-ignore]

    from . import models, scripts
    from .answers import JSON, Answer, BadRequest, Request, Score, as_json

_SCORE = ("/score", "/invocations")
_ALIVE = ("/", "/ping", "/health")
_TEXT = "text/plain; charset=utf-8"
# Bytes of a body, as the router's limit, and the digits of that number.
_LARGEST, _DIGITS = 1 << 30, 10
_STUCK = "all requests that run here have run for longer than anybody waits"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    # Set by ``main``.
    score: Score
    schema: ClassVar[Dict[str, Any]] = {}
    folder = ""  # of the script
    turns: threading.Semaphore
    threads, limit = 1, float("inf")
    # When requests began that are in ``score``, by thread.
    began: ClassVar[Dict[int, float]] = {}
    running = 0
    changed = threading.Condition()

    def answer(self) -> None:
        self._count(1)
        try:
            self._reply()
        finally:
            self._count(-1)

    @classmethod
    def _count(cls, more: int) -> None:
        with cls.changed:
            cls.running += more
            cls.changed.notify_all()

    def _reply(self) -> None:
        address = urlsplit(self.path)
        length = self.headers.get("content-length") or "0"
        if not length.isdigit() or len(length) > _DIGITS or int(length) > _LARGEST:
            self.close_connection = True
            self.send_error(413)
            return
        body = self.rfile.read(int(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, address.path, address.query, headers, body)
        answer = self._answer(request)
        self.send_response_only(answer.status)
        self.send_header("content-type", answer.content_type)
        self.send_header("content-length", str(len(answer.body)))
        for name, value in answer.headers:
            # A value from the caller must not begin a header, or an answer, of its own.
            self.send_header(name, " ".join(value.splitlines()))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        self.wfile.flush()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = answer

    def _answer(self, request: Request) -> Answer:
        if self._is_stuck():
            return as_json({"error": {"message": _STUCK}}, 503)
        if request.path in _ALIVE and request.method in ("GET", "HEAD"):
            return Answer(200, b"Healthy", _TEXT)
        if request.path == "/swagger.json":
            return _swagger(self.schema, self.folder, request.query)
        if request.path not in _SCORE:
            return Answer(404, b"not found; send requests to /score\n", _TEXT)
        began = time.monotonic()
        with self.turns:
            me = threading.get_ident()
            self.began[me] = time.monotonic()
            try:
                answer = _scored(type(self).score, request)
            finally:
                del self.began[me]
        spent = "%.3f" % ((time.monotonic() - began) * 1000)
        return answer._replace(headers=(*answer.headers, ("x-ms-run-fn-exec-ms", spent)))

    def _is_stuck(self) -> bool:
        """Whether all turns are taken by requests for whose answers nobody waits any more."""
        times = [*self.began.values()]
        return len(times) >= self.threads and time.monotonic() - max(times) > self.limit

    def address_string(self) -> str:
        return "router"

    def log_message(self, format: str, *args: Any) -> None:
        """The router has an access log."""


def _scored(score: Score, request: Request) -> Answer:
    try:
        return score(request)
    except BadRequest as error:
        return _failed(400, str(error))
    except (Exception, SystemExit) as error:
        # The script's own traceback, without the frames of this program.
        own = (
            error.__traceback__
            and error.__traceback__.tb_next
            and error.__traceback__.tb_next.tb_next
        )
        traceback.print_exception(type(error), error, own or error.__traceback__)
        # So that nobody takes it for what ended the process, if something ends it later.
        print("continuing: the request is answered with this error", file=sys.stderr, flush=True)
        message = str(error) or repr(error)
        return _failed(500, "%s: %s" % (type(error).__name__, message))


def _failed(status: int, message: str) -> Answer:
    answer = as_json({"error": {"message": message}}, status)
    return answer._replace(headers=(("x-ms-run-function-failed", "True"),))


def _swagger(schema: Dict[str, Any], folder: str, query: str) -> Answer:
    """The file that is beside the script, of `version=2` or `version=3`, or one from the schema."""
    is_third = "version=3" in query.split("&")
    file = os.path.join(folder, "swagger3.json" if is_third else "swagger2.json")
    if folder and os.path.isfile(file):
        with open(file, "rb") as content:
            return Answer(200, content.read())
    takes, gives = schema.get("input", {"type": "object"}), schema.get("output", {})
    about = {"title": os.environ.get("ALLRANKS_ENDPOINT", "model"), "version": "1.0"}
    post: Dict[str, Any] = {"operationId": "RunMLService"}
    response: Dict[str, Any] = {"description": "the answer of run()"}
    if is_third:
        post["requestBody"] = {"content": {JSON: {"schema": takes}}}
        response["content"] = {JSON: {"schema": gives}}
    else:
        post["parameters"] = [{"name": "body", "in": "body", "schema": takes}]
        response["schema"] = gives
    post["responses"] = {"200": response}
    version = {"openapi": "3.0.3"} if is_third else {"swagger": "2.0"}
    return as_json({**version, "info": about, "paths": {"/score": {"post": post}}})


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    request_queue_size = 1024
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, path: str, port: int) -> None:
        if path:
            self.address_family = socket.AF_UNIX
            # Through /proc, because a socket's path is limited to 107 bytes.
            folder = os.open(os.path.dirname(path), os.O_RDONLY)
            path = "/proc/self/fd/%d/%s" % (folder, os.path.basename(path))
            if os.path.exists(path):
                os.unlink(path)
        super().__init__(path or ("127.0.0.1", port), Handler)  # type: ignore[arg-type]

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):  # a caller that has gone
            super().handle_error(request, client_address)


def _loaded(script: str, model: str, name: str) -> Tuple[Score, Dict[str, Any]]:
    if model:
        os.environ["AZUREML_MODEL_DIR"] = allranks_model_folder.make(model, name)
        folder = model if os.path.isdir(model) else os.path.dirname(model)
        os.environ["SM_MODEL_DIR"] = folder
    if script:
        return scripts.load(script, os.environ.get("SM_MODEL_DIR", ""))
    return models.load(model), {}


def _name_exits() -> None:
    """Print who calls `os._exit`, which leaves no traceback. Forked children end by it, too."""
    process, end_process = os.getpid(), os._exit

    def end(status: int) -> NoReturn:
        if os.getpid() == process and status:
            caller = sys._getframe(1)
            where = "%s:%d" % (os.path.relpath(caller.f_code.co_filename), caller.f_lineno)
            print("%s: os._exit(%r) is called" % (where, status), file=sys.stderr, flush=True)
        end_process(status)

    os._exit = end


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m allranks_scoring")
    parser.add_argument("--script", default="")
    parser.add_argument("--model", default="")
    parser.add_argument("--model-name", default="")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=float("inf"))
    return parser.parse_args()


def main() -> None:
    with standard_modules():  # argparse imports more as it goes on
        options = _options()
    _name_exits()
    sys.path.insert(0, os.getcwd())
    Handler.score, Handler.schema = _loaded(options.script, options.model, options.model_name)
    Handler.folder = os.path.dirname(os.path.abspath(options.script)) if options.script else ""
    Handler.turns = threading.Semaphore(options.threads)
    Handler.threads, Handler.limit = options.threads, options.timeout
    path = os.environ.get("ALLRANKS_SERVE_SOCKET", "")
    server = Server(path, int(os.environ.get("PORT", "0")))

    def close(*_: Any) -> None:
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, close)
    print("ready for requests", flush=True)
    server.serve_forever(poll_interval=0.2)
    if path:
        os.unlink(path)
    server.server_close()
    with Handler.changed:
        Handler.changed.wait_for(lambda: Handler.running == 0)


if __name__ == "__main__":
    main()
