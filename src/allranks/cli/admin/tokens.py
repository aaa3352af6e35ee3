"""`allranks server token`: who may use a server beside the owner of its home."""

from __future__ import annotations

import argparse
from urllib.parse import quote

from allranks.cli.output import show
from allranks.errors import UsageError
from allranks.sdk.connection import find_server

_TOKENS = "/api/v1/tokens"
_ROLES = ("reader", "member", "admin")


def token_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", choices=("create", "list", "revoke"), help="make one, tell whose there are, …")
    add("name", nargs="?", metavar="NAME", help="whose it is; one each")
    add("--role", choices=_ROLES, help="reader sees, member submits, admin does all (member)")
    add("--expires", type=float, metavar="DAYS", help="after which it opens nothing (never)")
    parser.epilog = (
        "`create` prints the token, which is told this once: its user sets ALLRANKS_TOKEN to it, "
        "and ALLRANKS_SERVER to this server's address."
    )


def token(options: argparse.Namespace) -> int:
    if (options.name is None) != (options.action == "list"):
        what = "whose token?" if options.name is None else "`list` takes no name"
        hint = "allranks server token create NAME | list | revoke NAME"
        raise UsageError(what, hint=hint)
    if options.action != "create" and (options.role or options.expires is not None):
        raise UsageError("--role and --expires are for `create`", hint="leave them out")
    return {"create": _create, "list": _list, "revoke": _revoke}[options.action](options)


def _create(options: argparse.Namespace) -> int:
    role = options.role or "member"
    asked = {"name": options.name, "role": role, "expires_days": options.expires}
    made = find_server.ask("POST", _TOKENS, asked)
    if options.json:
        show.as_json(made)
        return 0
    print(made["token"])
    if not options.quiet:
        show.talk(f"{made['name']} may use it as {made['role']}; it is not told again")
    return 0


def _list(options: argparse.Namespace) -> int:
    found = find_server.ask("GET", _TOKENS)
    if options.json:
        show.as_json(found)
    elif not found:
        show.talk("none yet; the owner of the home needs none: allranks server token create NAME")
    else:
        times = ("expires_at", "created_at", "last_used_at")
        rows = [(each["name"], each["role"], *(_day(each[t]) for t in times)) for each in found]
        show.columns(("NAME", "ROLE", "EXPIRES", "CREATED", "LAST USED"), rows)
    return 0


def _revoke(options: argparse.Namespace) -> int:
    with find_server.connect() as client:
        client.call("DELETE", f"{_TOKENS}/{quote(options.name, safe='')}")
    if options.json:
        show.as_json({"name": options.name})
    elif not options.quiet:
        show.talk(f"{options.name}'s token opens nothing from now on; their jobs go on")
    return 0


def _day(time: str | None) -> str:
    return "never" if time is None else time[:16].replace("T", " ")
