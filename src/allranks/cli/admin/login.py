"""`allranks login` and `allranks context`: servers on other machines, by name."""

from __future__ import annotations

import argparse
import getpass
import os
import re
import sys

from allranks.api import routes
from allranks.cli.admin.server import NO_TLS
from allranks.cli.output import show
from allranks.errors import NotFound, Unreachable, UsageError
from allranks.http_client import Client, fingerprint_of, host, shaped
from allranks.sdk.connection import contexts
from allranks.sdk.connection.contexts import LOCAL, Contexts, Server

# As `server start --host` opens it.
_PORT = 7443
_OWN = "this machine's own server"
_LOOPBACK = ("127.", "localhost", "::1")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def login_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("url", metavar="URL", help=f"the server's address: [https://]HOST[:{_PORT}]")
    add("--name", metavar="NAME", help="the name of its context (its host)")
    add("--token-stdin", action="store_true", help="read the token from standard input")
    add("--fingerprint", metavar="HEX", help="the fingerprint of its own certificate")
    parser.epilog = (
        "The token is asked for, or that of ALLRANKS_TOKEN. Commands, programs and pages use the "
        "server from then on; `allranks context use local` goes back to this machine's own."
    )


def login(options: argparse.Namespace) -> int:
    url = whole_url(options.url)
    name = options.name or re.sub(r"[^A-Za-z0-9.]+", "-", host(url)).strip("-.")
    if name == LOCAL or not _NAME.fullmatch(name):
        wrong = "names this machine's own server" if name == LOCAL else "is not a valid name"
        raise UsageError(f"{name!r} {wrong}", where="--name", hint="choose another, such as gpu1")
    pinned = options.fingerprint
    fingerprint = _trusted(url) if pinned is None else _fingerprint(pinned, url)
    server = Server(url, _token(options.token_stdin), fingerprint, name)
    with Client(url, server.token, fingerprint=fingerprint) as client:
        answer = shaped(client.ask(routes.show_server), {"user": str, "role": str})

    def added(stored: Contexts) -> Contexts:
        return stored._replace(servers={**stored.servers, name: server}).using(name)

    contexts.change(added)
    open_to_all = url.startswith("http:") and not host(url).startswith(_LOOPBACK)
    return show.result(
        options,
        {"name": name, "url": url, "user": answer["user"], "role": answer["role"]},
        f"logged in to {url} as {answer['user']} ({answer['role']}); commands use it now",
        *[f"note: {NO_TLS}"] * open_to_all,
        *_overruled(),
    )


def whole_url(text: str) -> str:
    """The URL with its scheme and port, and without a path. Raises UsageError."""
    scheme, separator, rest = text.strip().rpartition("://")
    address = rest.partition("/")[0]
    if address.count(":") > 1 and not address.startswith("["):
        address = f"[{address}]"  # a bare IPv6 address
    url = f"{scheme.lower() if separator else 'https'}://{address}"
    if not re.search(r":\d+$", url):
        url += f":{_PORT}"
    host(url)  # raises
    return url


def _fingerprint(text: str, url: str) -> str:
    """As it is compared. Raises UsageError."""
    fingerprint = contexts.plain(text)
    if not re.fullmatch("[0-9a-f]{64}", fingerprint):
        hint = "give all that `allranks server start --host` prints there, 64 hexadecimal digits"
        raise UsageError(f"{text!r} is not a fingerprint", where="--fingerprint", hint=hint)
    if not url.startswith("https:"):
        hint = "leave it out, or write https"
        raise UsageError("without TLS there is no certificate", where="--fingerprint", hint=hint)
    return fingerprint


def _trusted(url: str) -> str:
    """The fingerprint of a certificate that no authority vouches for, if the user trusts it; empty
    if none is needed."""
    try:
        with Client(url, timeout=10.0) as client:
            client.reach()
        return ""
    except Unreachable as error:
        if not error.untrusted:
            raise
    fingerprint = fingerprint_of(url)
    stored = {s.fingerprint for s in contexts.read().servers.values() if s.url == url} - {""}
    if fingerprint in stored:
        return fingerprint
    what = "the server's certificate has changed" if stored else "no authority vouches for it"
    if not sys.stdin.isatty():
        hint = "add --fingerprint HEX, which `allranks server start --host` prints there"
        raise UsageError(f"its certificate is not trusted: {what}", where=url, hint=hint)
    show.talk(f"The certificate of {url} is not trusted: {what}.")
    for old in sorted(stored):
        show.talk(f"  it was  {old}")
    show.talk(f"  it is   {fingerprint}")
    show.talk("It must be the fingerprint that `allranks server start --host` printed there.")
    if not show.confirmed("Trust it?"):
        raise UsageError("the server is not trusted", where=url, hint="ask who runs it")
    return fingerprint


def _token(from_stdin: bool) -> str:
    if from_stdin:
        token = sys.stdin.readline().strip()
    else:
        token = os.environ.get("ALLRANKS_TOKEN", "").strip()
        if not token and sys.stdin.isatty():
            token = getpass.getpass("Token: ").strip()
    if not token:
        hint = "add --token-stdin, or set ALLRANKS_TOKEN (`allranks server token create` makes one)"
        if from_stdin:
            hint = "standard input has no line: pipe the token into it"
        raise UsageError("no token was given", hint=hint)
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("this is not a token", hint="copy it again; it begins with `allranks_`")
    return token


def _overruled() -> list[str]:
    """A note if a variable of this shell wins over the context."""
    for name in ("ALLRANKS_SERVER", "ALLRANKS_CONTEXT"):
        if os.environ.get(name, "").strip():
            return [f"note: {name} of this shell goes before it"]
    return []


# ---------------------------------------------------------------- allranks context


def list_contexts_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "The one in use is marked with *. Tokens are not shown."


def list_contexts(options: argparse.Namespace) -> int:
    stored = contexts.read()
    try:
        chosen = contexts.chosen()
        current = (chosen.name or chosen.url) if chosen is not None else LOCAL
    except NotFound:  # of ALLRANKS_CONTEXT
        chosen, current = None, ""
    servers = [(LOCAL, _OWN), *((s.name, s.url) for s in stored.servers.values())]
    if chosen is not None and not chosen.name:
        servers.append((chosen.url, "ALLRANKS_SERVER"))
    data = [{"name": name, "url": url, "current": name == current} for name, url in servers]
    rows = [
        ("*" if entry["current"] else " ", str(entry["name"]), str(entry["url"])) for entry in data
    ]
    return show.listing(options, data, ("", "NAME", "SERVER"), rows)


def use_context_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=f"a context, or {LOCAL}")


def use_context(options: argparse.Namespace) -> int:
    name = "" if options.name == LOCAL else options.name
    sentence = f"commands use {_OWN} now"
    if name:
        sentence = f"commands use {contexts.find(contexts.read(), name).url} now"
    contexts.change(lambda stored: stored.using(name))
    return show.result(options, {"name": options.name}, sentence, *_overruled())


def delete_context_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a context")
    show.yes_option(parser.add_argument)


def delete_context(options: argparse.Namespace) -> int:
    if not show.may_destroy(options, f"delete the context {options.name} and its token"):
        return 1
    in_use = contexts.read().current() == options.name

    def without(stored: Contexts) -> Contexts:
        contexts.find(stored, options.name)
        servers = {name: s for name, s in stored.servers.items() if name != options.name}
        homes = {home: name for home, name in stored.in_use.items() if name != options.name}
        return Contexts(servers, homes)

    contexts.change(without)
    sentence = f"the context {options.name} and its token are deleted"
    more = [f"commands use {_OWN} now"] if in_use else []
    return show.result(options, {"name": options.name}, sentence, *more)
