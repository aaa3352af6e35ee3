"""`allranks server …`: start, stop and show the home's server."""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allranks import file_locks, settings
from allranks.api import routes
from allranks.cli.output import show
from allranks.core.amounts import counted
from allranks.errors import AllranksError, ServerError, Unreachable, UsageError
from allranks.sdk.connection import contexts, find_server
from allranks.settings import Home, read_json

if TYPE_CHECKING:
    from allranks.api.server import PublicEndpoint, PublicRequest

NO_TLS = "without TLS anybody on the network can read everything and tokens"
# Seconds: to end the jobs of this machine, to end the server, and to get any answer from it.
_JOBS_TIMEOUT, _SERVER_TIMEOUT, _ANSWER_TIMEOUT = 40.0, 10.0, 3.0
# The number of jobs that a question names.
_MOST = 8


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port < 65536:
        raise argparse.ArgumentTypeError(f"{port} is not a port number (1 to 65535)")
    return port


def start_options(parser: argparse.ArgumentParser) -> None:
    port = "its port (chosen once per home)"
    parser.add_argument("--port", type=_port, metavar="N", help=port)
    _public_options(parser)


def _public_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("for other machines, until --host 127.0.0.1").add_argument
    host = "also listen on this address, with TLS; 0.0.0.0 for all addresses"
    add("--host", metavar="ADDRESS", help=host)
    add("--host-port", type=_port, metavar="N", help="port of that address (7443)")
    add("--certificate", metavar="FILE", help="a PEM file with key and certificates (self-signed)")
    add("--no-tls", action="store_true", help="no TLS: for use behind a proxy that provides it")


def start(options: argparse.Namespace) -> int:
    home = own_home()
    request = _public_request(options)
    was_running = find_server.look(home).alive
    server = find_server.start_server(home, options.port)
    public = request and find_server.ask(routes.open_front, body=request)
    status = _status(home, server) | ({"front": public} if public else {})
    verb = "is already running" if was_running else "is running"
    sentence = f"the server {verb} at {server.url} (pid {server.pid})"
    return show.result(options, status, sentence, *(_public_sentences(public) if public else ()))


def _public_request(options: argparse.Namespace) -> PublicRequest | None:
    """The requested public address; ``host`` None closes it. None when no option was given."""
    rest = options.host_port is not None or options.certificate is not None or options.no_tls
    if options.host is None:
        if rest:
            hint = "add --host ADDRESS; 0.0.0.0 for all addresses of this machine"
            message = "--host-port, --certificate and --no-tls need --host: without it the server"
            raise UsageError(f"{message} listens on no address of other machines", hint=hint)
        return None
    if options.host in ("127.0.0.1", "localhost", "::1"):
        if rest:
            message = (
                f"--host {options.host} is this machine alone, which needs none of --host-port"
            )
            hint = "leave them out; 0.0.0.0 for all addresses of this machine"
            raise UsageError(f"{message}, --certificate and --no-tls", hint=hint)
        return {"host": None}
    request: PublicRequest = {"host": options.host, "tls": not options.no_tls}
    if options.host_port is not None:
        request["port"] = options.host_port
    if options.certificate is not None:
        request["certificate"] = os.path.abspath(options.certificate)
    return request


def _public_sentences(public: PublicEndpoint) -> list[str]:
    if public["url"] is None:
        return ["it is not reachable from other machines"]
    pinned = f" --fingerprint {public['fingerprint']}" if public["fingerprint"] else ""
    sentences = [
        "other users need a token (allranks server token create NAME) and this line:",
        f"  allranks login {public['url']}{pinned}",
    ]
    if public["url"].startswith("http:"):
        sentences.append(f"note: {NO_TLS}")
    return sentences


def status_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exits with 0 if the server runs or starts, 1 if not."


def status(options: argparse.Namespace) -> int:
    if (chosen := contexts.chosen()) is not None:
        return _remote_status(options, chosen)
    home = settings.home()
    server = find_server.look(home)
    if server.alive and find_server.was_killed(server.pid):
        server = server._replace(alive=False)
    if options.json:
        show.as_json(_status(home, server))
    elif server.alive and not os.path.exists(f"/proc/{server.pid}"):
        print(f"starting\nhome      {home.root}")  # the file, if there is one, is of the last one
    elif server.alive:
        print(
            f"running   pid {server.pid}, {server.url}, allranks {server.version}\n"
            f"home      {home.root}{_public_line(home)}"
        )
    else:
        print(f"stopped   starts with the next command that needs it\nhome      {home.root}")
    return 0 if server.alive else 1


def _remote_status(options: argparse.Namespace, chosen: contexts.Server) -> int:
    """Raises AllranksError if the server does not answer."""
    try:
        answer = find_server.ask(routes.show_server)
    except Unreachable as error:
        if not error.untrusted:
            leave = "allranks context use local" if chosen.name else "unset ALLRANKS_SERVER"
            error.hint = f"start it on its machine (allranks server start), or leave it: {leave}"
        raise
    if options.json:
        show.as_json({**answer, "url": chosen.url, "running": True})
    else:
        show.line(f"running   {chosen.url} ({chosen.source}), allranks {answer['version']}")
        show.line(f"home      {answer['home']}")
        show.line(f"you are   {answer['user']}, {answer['role']}")
    return 0


def _public_line(home: Home) -> str:
    if not (public := read_json(home.front, dict)):
        return ""
    tls = "TLS" if public.get("tls") else "no TLS"
    fingerprint = _fingerprint(home)
    line = f"\n          fingerprint {fingerprint}" if fingerprint else ""
    return f"\npublic    {public.get('host')}, port {public.get('port')}, {tls}{line}"


def stop_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="also stop jobs on clusters")
    parser.add_argument("--yes", action="store_true", help="do not ask about running jobs")


def stop(options: argparse.Namespace) -> int:
    """Stop the jobs of this machine, then the server. Leaves no process of theirs."""
    home = own_home()
    server = find_server.look(home)
    if not server.alive:
        count, left = _end_leftovers(home)
        sentence = f"stopped {counted(count, 'job')} of a server that has ended"
        return _stop_result(options, home, sentence if count else "no server is running", left)
    if not _confirmed(options):
        show.talk("nothing is stopped")
        return 1
    stopped = _stop_jobs(options)
    for number in (signal.SIGTERM, signal.SIGKILL):
        find_server.end(home, number)
        if find_server.wait_gone(home, _SERVER_TIMEOUT):
            _, left = _end_leftovers(home)
            jobs = f" and {counted(stopped, 'job')}" if stopped else ""
            return _stop_result(options, home, f"stopped the server{jobs}", left)
    raise ServerError("the server does not stop", where=str(home.root), hint=f"see {home.log}")


def _confirmed(options: argparse.Namespace) -> bool:
    """Ask about running jobs on a terminal; elsewhere, and if the server does not answer, no."""
    if options.yes or not show.can_ask():
        return True
    try:
        with find_server.connect(start=False, any_version=True) as client:
            patience = _ANSWER_TIMEOUT
            names = client.ask(routes.jobs_to_stop, all=options.all, patience=patience)
    except AllranksError:
        return True
    shown = ", ".join(names[:_MOST]) + (", …" if len(names) > _MOST else "")
    question = f"this cancels {counted(len(names), 'job')} ({shown}); stop the server?"
    return not names or show.confirmed(question)


def _stop_result(
    options: argparse.Namespace, home: Home, sentence: str, left: Sequence[str]
) -> int:
    """Report the stop; exits with 1 if processes are ``left``."""
    status = {**_status(home, find_server.look(home)), "leftovers": [*left]}
    more = (f"could not end {', '.join(left)}",) if left else ()
    show.result(options, status, sentence, *more)
    return 1 if left else 0


def run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=_port, metavar="N", help="its port (chosen once per home)")
    _public_options(parser)


def run(options: argparse.Namespace) -> int:
    """Serve in the foreground until Ctrl-C."""
    from allranks.server.__main__ import serve  # lazy: the whole server

    home = own_home()
    _store_public_address(home, _public_request(options))
    if not options.quiet:
        show.talk(f"serving {home.root}; Ctrl-C stops the server, not its jobs")
    serve(home, options.port)
    return 0


def own_home() -> Home:
    """The home of this machine. Raises UsageError when another server is chosen."""
    server = contexts.chosen()
    if server is not None:
        leave = "`allranks context use local`" if server.name else "unset it"
        raise UsageError(
            f"this command works on the home of this machine, not on {server.url}",
            where=server.source,
            hint=f"{leave}, or run the command on the machine of that server",
        )
    return settings.home()


def _store_public_address(home: Home, request: PublicRequest | None) -> None:
    """Save the public address for the server that starts next."""
    from allranks.server.http import public_listener  # lazy: the whole server

    if request is None:
        return
    settings.make(home)
    keys: Mapping[str, Any] = request
    if request["host"] is None:
        home.front.unlink(missing_ok=True)
    else:
        public_listener.save(home, public_listener.PublicAddress(**keys))


def _stop_jobs(options: argparse.Namespace) -> int:
    """Cancel the running jobs and wait for all of them, `_JOBS_TIMEOUT` at most; returns how many
    ended. A server that does not answer is stopped without that."""
    talk = show.talk if not (options.quiet or options.json) else (lambda text: None)
    line = show.StatusLine(options.quiet)
    ended, running = 0, []
    try:
        with find_server.connect(start=False, any_version=True) as client:
            client.ask(routes.show_server, patience=_ANSWER_TIMEOUT)
            report = client.ask(routes.stop_server, all=options.all)
            until = time.monotonic() + _JOBS_TIMEOUT  # they end together
            for name in report["canceled"]:
                line.say(f"waiting for {name} to stop")
                remaining = max(0.0, until - time.monotonic())
                wait = {"timeout": f"{remaining:.3f}"}
                job = client.ask(routes.wait_for_job, name, patience=remaining + 5, **wait)
                if job["ended_at"] is None:
                    running.append(f"{name} ({job['status_reason'] or job['status']})")
                else:
                    ended += 1
        line.clear()
        if running:
            talk(f"not ended yet, the next server continues to stop: {', '.join(running)}")
        if report["left"]:
            talk(f"still running on clusters: {counted(report['left'], 'job')} (--all stops them)")
    except AllranksError:
        return 0
    finally:
        line.clear()
    return ended


def _end_leftovers(home: Home) -> tuple[int, list[str]]:
    """End the gangs that a killed or unreachable server left, and the warm servers of this home.
    Return how many gangs there were, and the processes that could not be ended."""
    count = len(list(home.engines.glob("*/*/")))
    if not count and not home.warm.is_dir() and not home.serve.is_dir():
        return 0, []
    from allranks.server.leftovers import end_what_runs_here  # lazy: imports the engines

    # Held, because a server that another command starts meanwhile has gangs of its own.
    lock = file_locks.take(home.lock)
    if lock is None:
        return 0, []
    try:
        return count, end_what_runs_here(home)
    finally:
        os.close(lock)


def _status(home: Home, server: find_server.Running) -> dict[str, Any]:
    return {
        "pid": server.pid if server.alive else None,
        "url": server.url if server.alive else None,
        "version": server.version if server.alive else None,
        "home": str(home.root),
        "running": server.alive,
        "fingerprint": _fingerprint(home),
    }


def _fingerprint(home: Home) -> str | None:
    """Of the home's own certificate, if that is what other machines see."""
    import hashlib  # lazy: few ask
    import ssl  # lazy: as above

    public = read_json(home.front, dict)
    try:
        text = home.certificate.read_text()
    except (OSError, ValueError):
        return None
    if not public.get("tls") or public.get("certificate"):
        return None
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[text.index(ssl.PEM_HEADER) :])).hexdigest()
