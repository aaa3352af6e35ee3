"""`allranks server …`: the home's server, for those who want to see it."""

from __future__ import annotations

import argparse
import json
import os
import signal
from typing import Any

from allranks import settings
from allranks.cli.output import show
from allranks.errors import AllranksError, ServerError, UsageError
from allranks.plan.amounts import counted
from allranks.sdk.connection import find_server
from allranks.settings import Home

# How long the jobs of this machine get to end, and then the server itself.
_JOBS, _SERVER = 40.0, 10.0
# How long a server may take to show that it can be spoken to at all.
_ANSWER = 3.0


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port < 65536:
        raise argparse.ArgumentTypeError(f"{port} is not a port: 1 to 65535")
    return port


def start_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=_port, metavar="N", help="its port (the home's own, kept for good)"
    )
    _front_options(parser)


def _front_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("for others, until it is started with --host 127.0.0.1")
    add = group.add_argument
    add("--host", metavar="ADDRESS", help="stand open there, too, under TLS; 0.0.0.0: everywhere")
    add("--host-port", type=_port, metavar="N", help="on that port (7443)")
    add("--certificate", metavar="FILE", help="key and certificates, as PEM (the home's own)")
    add("--no-tls", action="store_true", help="without TLS: behind a proxy that has it")


def start(options: argparse.Namespace) -> int:
    home = settings.home()
    was = find_server.look(home).alive
    found = find_server.start_server(home, options.port)
    asked = _front(options)
    front = None if asked is None else find_server.ask("PUT", "/api/v1/server/front", asked)
    if options.json:
        show.as_json({**_status(home, found), **({"front": front} if front else {})})
    elif not options.quiet:
        show.talk(
            f"the server {'already runs' if was else 'runs'} at {found.url} (pid {found.pid})"
        )
        if front is not None:
            _tell_front(front)
    return 0


def _front(options: argparse.Namespace) -> dict[str, Any] | None:
    """What was asked for of an address that others can call; None: nothing."""
    rest = {"port": options.host_port, "certificate": options.certificate}
    rest = {key: value for key, value in rest.items() if value is not None}
    if options.host is None:
        if rest or options.no_tls:
            hint = "--host ADDRESS says where, 0.0.0.0 on all addresses of this machine"
            raise UsageError("--host-port, --certificate and --no-tls are of --host", hint=hint)
        return None
    if options.host in ("127.0.0.1", "localhost", "::1"):
        return {"host": None}
    if "certificate" in rest:
        rest["certificate"] = os.path.abspath(rest["certificate"])
    return {"host": options.host, "tls": not options.no_tls, **rest}


def _tell_front(front: dict[str, Any]) -> None:
    if front["url"] is None:
        show.talk("nobody can call it from elsewhere")
        return
    show.talk(
        f"others find it with these, and a token (allranks server token create NAME):\n"
        f"  export ALLRANKS_SERVER={front['url']}"
    )
    if front["fingerprint"]:
        show.talk(f"  export ALLRANKS_FINGERPRINT={front['fingerprint']}")
    if front["url"].startswith("http:"):
        show.talk("without TLS whoever is on the way reads everything, tokens too")


def status_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exit 0 when it runs, 1 when it does not."


def status(options: argparse.Namespace) -> int:
    home = settings.home()
    found = find_server.look(home)
    if options.json:
        show.as_json(_status(home, found))
    elif found.alive:
        print(
            f"running   pid {found.pid}, {found.url}, allranks {found.version}\n"
            f"home      {home.root}{_for_others(home)}"
        )
    else:
        print(f"stopped   the next command that needs it starts it\nhome      {home.root}")
    return 0 if found.alive else 1


def _for_others(home: Home) -> str:
    """Where it stands open for them, if it does."""
    try:
        kept = json.loads(home.front.read_text())
    except (OSError, ValueError):
        return ""
    how = "TLS" if kept.get("tls") else "no TLS"
    return f"\nothers    {kept.get('host')}, port {kept.get('port')}, {how}"


def stop_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="end jobs on clusters too")


def stop(options: argparse.Namespace) -> int:
    """End the server, after the jobs of this machine; no process of theirs stays."""
    home = own_home("ends the one of a home", "ends it")
    found = find_server.look(home)
    if not found.alive:
        left = _end_the_rest(home)
        what = f"ended what {counted(left, 'job')} had left running"
        said = what if left else "no server was running"
        _ended(options, home, found, said)
        return 0
    canceled = _end_jobs(options)
    for number in (signal.SIGTERM, signal.SIGKILL):
        find_server.end(home, number)
        if find_server.wait_gone(home, _SERVER):
            _end_the_rest(home)
            what = f" and {counted(len(canceled), 'job')}" if canceled else ""
            _ended(options, home, find_server.look(home), f"ended the server{what}")
            return 0
    raise ServerError("the server does not end", where=str(home.root), hint=f"see {home.log}")


def run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=_port, metavar="N", help="its port (the home's own)")
    _front_options(parser)


def run(options: argparse.Namespace) -> int:
    """Serve in the foreground until Ctrl-C."""
    from allranks.server.__main__ import serve  # lazy: the whole server

    home = settings.home()
    _keep_front(home, _front(options))
    if not options.quiet:
        show.talk(f"serving {home.root}; Ctrl-C ends it, running jobs go on")
    serve(home, options.port)
    return 0


def own_home(what: str, does: str) -> Home:
    """The home of this machine, for what is done to it and not to a server elsewhere. Raises
    UsageError when ALLRANKS_SERVER names one."""
    if os.environ.get("ALLRANKS_SERVER"):
        raise UsageError(
            f"ALLRANKS_SERVER names a server, and this command {what}",
            where="ALLRANKS_SERVER",
            hint=f"unset it; who runs that server {does} where it runs",
        )
    return settings.home()


def _keep_front(home: Home, asked: dict[str, Any] | None) -> None:
    """The server that starts next will find it."""
    from allranks.server.http import public_listener as front  # lazy: the whole server

    if asked is None:
        return
    settings.make(home)
    if asked["host"] is None:
        home.front.unlink(missing_ok=True)
    else:
        front.keep(home, front.PublicAddress(**asked))


def _end_jobs(options: argparse.Namespace) -> list[str]:
    """Cancel what runs here and wait until it has ended; a deaf server is no reason to stay."""
    try:
        client = find_server.connect(start=False, any_version=True)
        client.call("GET", "/api/v1/server", timeout=_ANSWER)
        which = f"all={str(options.all).lower()}"
        told = client.json("POST", f"/api/v1/server/stop?{which}")
        canceled: list[str] = told["canceled"]
        line = show.StatusLine(options.quiet)
        ended, stay = [], []
        for name in canceled:
            line.say(f"waiting for {name} to end")
            where = f"/api/v1/jobs/{name}/wait?timeout={_JOBS}"
            job = json.loads(client.call("GET", where, timeout=_JOBS + 5).body)
            if job["ended_at"] is None:
                stay.append(f"{name} ({job['status_reason'] or job['status']})")
            else:
                ended.append(name)
        line.clear()
        if stay and not options.quiet and not options.json:
            show.talk(f"not ended yet, the next server goes on with it: {', '.join(stay)}")
        if told.get("left") and not options.quiet and not options.json:
            show.talk(f"left on clusters: {counted(told['left'], 'job')} (--all ends them, too)")
        return ended
    except AllranksError:
        return []


def _end_the_rest(home: Home) -> int:
    """End what a server that was killed, is deaf, or has a full disk could not; how many gangs."""
    left = len(list(home.engines.glob("*/*/")))
    if left:
        from allranks.server.app import end_what_runs_here  # lazy: seldom anything is left

        end_what_runs_here(home)
    return left


def _ended(options: argparse.Namespace, home: Home, found: find_server.Running, said: str) -> None:
    if options.json:
        show.as_json(_status(home, found))
    elif not options.quiet:
        show.talk(said)


def _status(home: Home, found: find_server.Running) -> dict[str, Any]:
    return {
        "pid": found.pid if found.alive else None,
        "url": found.url if found.alive else None,
        "version": found.version if found.alive else None,
        "home": str(home.root),
        "running": found.alive,
    }
