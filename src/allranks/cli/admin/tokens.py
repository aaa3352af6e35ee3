"""`allranks server token`: access tokens for users other than the owner of the home."""

from __future__ import annotations

import argparse

from allranks.api import routes
from allranks.cli.output import show
from allranks.cli.parser import days
from allranks.errors import UsageError
from allranks.sdk.connection import find_server

_ROLES = ("reader", "member", "admin")


def token_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", choices=("create", "list", "revoke"), help="create, list or revoke tokens")
    add("name", nargs="?", metavar="NAME", help="the user; each has one token")
    roles = "reader can look, member can submit jobs, admin can do everything (member)"
    add("--role", choices=_ROLES, help=roles)
    add("--expires", type=days, metavar="DAYS", help="days until it expires, or 12h, 4w (never)")
    parser.epilog = (
        "`create` prints the token once. Its user gives it to `allranks login URL`, or sets "
        "ALLRANKS_TOKEN to it and ALLRANKS_SERVER to this server's address."
    )


def token(options: argparse.Namespace) -> int:
    if (options.name is None) != (options.action == "list"):
        wrong = "NAME is missing" if options.name is None else "`list` takes no NAME"
        raise UsageError(wrong, hint="allranks server token create NAME | list | revoke NAME")
    if options.action != "create" and (options.role or options.expires is not None):
        raise UsageError("--role and --expires need `create`", hint="leave them out")
    return {"create": _create, "list": _list, "revoke": _revoke}[options.action](options)


def _create(options: argparse.Namespace) -> int:
    role = options.role or "member"
    request = {"name": options.name, "role": role, "expires_days": options.expires}
    created = find_server.ask(routes.create_token, body=request)
    if options.json:
        show.as_json(created)
        return 0
    show.line(created["token"])
    if not options.quiet:
        show.talk(f"token of {created['name']}, role {created['role']}; it is not shown again")
    return 0


def _list(options: argparse.Namespace) -> int:
    tokens = find_server.ask(routes.list_tokens)
    empty = (
        "no tokens yet; the owner of the home needs none\n\nhint: allranks server token create NAME"
    )
    rows = [
        (
            each["name"],
            each["role"],
            show.moment(each["expires_at"], "never"),
            show.moment(each["created_at"]),
            show.moment(each["last_used_at"], "never"),
        )
        for each in tokens
    ]
    head = ("NAME", "ROLE", "EXPIRES", "CREATED", "LAST USED")
    return show.listing(options, tokens, head, rows, empty)


def _revoke(options: argparse.Namespace) -> int:
    find_server.ask(routes.revoke_token, options.name)
    revoked = f"the token of {options.name} is revoked; their jobs keep running"
    return show.result(options, {"name": options.name}, revoked)
