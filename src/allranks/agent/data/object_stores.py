"""Stores, opened: buckets, containers and sites behind one interface, and what they answer when
something is wrong, as sentences.

Its one import beyond Python is ``obstore``; who uses it runs in an interpreter that has it.
"""

from __future__ import annotations

import base64
import configparser
import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import obstore
from obstore import exceptions, store

from allranks.agent.data.file_entry import Item
from allranks.errors import AllranksError, NotFound, Passing
from allranks.masking import without_credentials
from allranks.plan.data.addresses import CERTIFICATES, IDENTITY, Account, Address

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

    Opened = store.S3Store | store.AzureStore | store.GCSStore | store.HTTPStore

# Of requests: a part of a file is not long under way, and a stall is noticed sooner than that.
_CLIENT: ClientConfig = {
    "allow_http": True,
    "timeout": timedelta(minutes=10),
    "read_timeout": timedelta(seconds=60),
    "connect_timeout": timedelta(seconds=10),
    "user_agent": "allranks",
}
_RETRY: RetryConfig = {
    "max_retries": 6,
    "retry_timeout": timedelta(minutes=2),
    "backoff": {
        "init_backoff": timedelta(seconds=0.2),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    },
}
# A tag that looks like the content's MD5.
HASH = re.compile(r'"?[0-9a-f]{32}"?')
# What a transfer may raise that another try can mend.
PASSING = (exceptions.GenericError, exceptions.JoinError, TimeoutError, ConnectionError)
# Whatever a store says.
SAID = exceptions.BaseError
CHANGED = exceptions.PreconditionError
NO_RANGES = exceptions.NotSupportedError


# What stores say that are only busy.
_BUSY = (
    "SlowDown",
    "InternalError",
    "ServiceUnavailable",
    "RequestTimeout",
    "ServerBusy",
    "OperationTimedOut",
)


class Found(NamedTuple):
    """An object: its key, its size in bytes, when it was changed, and what changes with it."""

    key: str
    size: int
    mtime: float
    tag: str


def open_store(account: Account, place: Address) -> Opened:
    """The store that ``place`` is in; of a site, that place alone. Raises AllranksError for what an
    account cannot mean."""
    kind = account.store.kind
    if kind == "https":
        account = account._replace(store=account.store._replace(endpoint=str(place)))
    try:
        with _nobody() if account.credentials else contextlib.nullcontext():
            return _OPEN[kind](account)
    except (ValueError, exceptions.BaseError) as error:
        raise AllranksError(
            f"the store cannot be opened: {_first_line(error)}",
            where=str(Address(account.store)),
            hint="look at what its datastore says: allranks datastore list",
        ) from None


@contextlib.contextmanager
def _nobody() -> Iterator[None]:
    """Who has credentials is not mixed with whom the variables around name."""
    held = {name: os.environ.pop(name) for name in [*os.environ] if IDENTITY.match(name)}
    try:
        yield
    finally:
        os.environ.update(held)


def listing(opened: Opened, key: str) -> Iterator[Found]:
    """All objects below ``key``."""
    for several in obstore.list(opened, prefix=key or None, chunk_size=1000):
        for each in several:
            found = _found(each)
            # What a console writes to show an empty folder.
            if found.key != key or found.size:
                yield found


def look(opened: Opened, key: str) -> Found | None:
    """The object of that name, if there is one."""
    try:
        return _found(obstore.head(opened, key))
    except FileNotFoundError:
        return None


def asking(tag: str, span: tuple[int, int] | None = None) -> obstore.GetOptions:
    """For the content that ``tag`` is of, and for these bytes of it."""
    options: obstore.GetOptions = {}
    if _is_strong(tag):
        options["if_match"] = tag
    if span is not None:
        options["range"] = span
    return options


def is_another(meta: Mapping[str, Any], item: Item) -> bool:
    """Whether an answer is of another content than ``item`` was listed with, where the store could
    not be asked for that one alone."""
    if _is_strong(item.tag):
        return False
    found = _found(meta)
    # Listings know fractions of a second, answers do not.
    return int(found.mtime) != int(item.mtime) or (
        item.tag.startswith("W/") and found.tag != item.tag
    )


def _is_strong(tag: str) -> bool:
    """Weak ones (`W/"…"`) never match."""
    return tag.startswith('"') or HASH.fullmatch(tag) is not None


def is_final(error: Exception) -> bool:
    """Whether the store has said no, and will say so again."""
    text = str(error)
    if word := _code(text):
        return word not in _BUSY
    return re.search(r"status (4(?!08|29)\d\d)", text) is not None


def explained(error: Exception, place: Address, datastore: str) -> AllranksError:
    """What went wrong at a place, as a sentence."""
    text = str(error)
    said = re.search(r"<Message>([^<]+)</Message>", text)
    word = _code(text)
    who = f"the datastore {datastore!r}" if datastore else "this node"
    where = without_credentials(str(place))
    if word in ("NoSuchBucket", "ContainerNotFound"):
        what = f"there is no bucket {place.store.bucket!r}"
        return NotFound(what, where=where, hint="look at its name; is its endpoint the right one?")
    if isinstance(error, FileNotFoundError):
        hint = "look at the path; names in stores are case-sensitive"
        return NotFound("there is nothing at this address", where=where, hint=hint)
    refused = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
    if refused or word in _REFUSALS:
        why = f": {said[1].strip()}" if said else ""
        return AllranksError(
            f"{who} may not open it{why}",
            where=where,
            hint=_credentials_hint(place, datastore),
        )
    if _is_nobody(text):
        return AllranksError(
            f"{who} has no credentials for it",
            where=where,
            hint=_credentials_hint(place, datastore),
        )
    if isinstance(error, exceptions.InvalidPathError):
        hint = "empty steps (`a//b`), `.` and `..` are no names of files: rename it in the store"
        return AllranksError(
            f"a name there cannot be one here: {_first_line(error)}", where=where, hint=hint
        )
    hint = "does the node reach it? a proxy is taken from https_proxy and the like"
    return Passing(f"the store does not answer: {_first_line(error)}", where=where, hint=hint)


# The first are said of who asks, the others of what is asked for.
_UNKNOWN = (
    "ExpiredToken",
    "TokenRefreshRequired",
    "InvalidToken",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AuthenticationFailed",
)
_REFUSALS = (*_UNKNOWN, "AccessDenied", "AuthorizationFailure")


def may_not_list(error: Exception) -> bool:
    """Whether somebody known may not see what there is, and yet perhaps write."""
    text = str(error)
    # Of a listing, obstore has no exception of its own for it.
    refused = isinstance(error, exceptions.PermissionDeniedError) or "403 Forbidden" in text
    return refused and not _is_nobody(text) and _code(text) not in _UNKNOWN


def _code(text: str) -> str:
    """A store's own word for what is wrong, if it has one."""
    found = re.search(r"<Code>(\w+)</Code>", text)
    return found[1] if found else ""


def _is_nobody(text: str) -> bool:
    """Whether no credentials were found: the last thing asked for some is the machine itself."""
    return "169.254" in text or ("token" in text.lower() and "metadata" in text.lower())


def _credentials_hint(place: Address, datastore: str) -> str:
    if datastore:
        return f"give it others: allranks datastore create {datastore} … --replace"
    kind = "azure_blob" if place.store.kind == "azure" else place.store.kind
    return f"say who may: allranks datastore create NAME --type {kind} … --credentials-from-env"


def _first_line(error: Exception) -> str:
    """What an error says, without the Rust structure that it is printed with at length."""
    text = str(error).split("\n\nDebug source", 1)[0].strip().splitlines()
    return text[0][:300] if text else type(error).__name__


def _found(each: Mapping[str, Any]) -> Found:
    changed = each["last_modified"].timestamp()
    tag = each.get("e_tag") or each.get("version") or f"{changed}"
    return Found(each["path"], each["size"], changed, tag)


# ---------------------------------------------------------------- opening


def _s3(account: Account) -> store.S3Store:
    given, known = account.store, dict(account.credentials)
    if not known:
        known = _of_profile(os.environ)
    endpoint = given.endpoint or known.pop("endpoint", "")
    region = given.region or known.pop("region", "")
    config: dict[str, Any] = {k: v for k, v in known.items() if k not in ("endpoint", "region")}
    if endpoint:
        config |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
    if region or not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        config["region"] = region or "us-east-1"
    return store.S3Store(given.bucket, config=config, **_how())  # type: ignore[arg-type]


def _azure(account: Account) -> store.AzureStore:
    given, known = account.store, account.credentials
    config: dict[str, Any] = {"account_name": given.account}
    if given.endpoint:
        config["endpoint"] = given.endpoint
    for name, theirs in (
        ("account_key", "account_key"),
        ("sas_token", "sas_key"),
        ("tenant_id", "tenant_id"),
        ("client_id", "client_id"),
        ("client_secret", "client_secret"),
    ):
        if name in known:
            config[theirs] = known[name]
    return store.AzureStore(given.bucket, config=config, **_how())  # type: ignore[arg-type]


def _gcs(account: Account) -> store.GCSStore:
    config: dict[str, Any] = dict(account.credentials)
    if account.store.endpoint:
        config["url"] = account.store.endpoint
    return store.GCSStore(account.store.bucket, config=config, **_how())  # type: ignore[arg-type]


def _site(account: Account) -> store.HTTPStore:
    known = account.credentials
    how = _how()
    if "token" in known:
        how["client_options"]["default_headers"] = {"authorization": f"Bearer {known['token']}"}
    elif "username" in known:
        pair = f"{known['username']}:{known.get('password', '')}".encode()
        basic = base64.b64encode(pair).decode()
        how["client_options"]["default_headers"] = {"authorization": f"Basic {basic}"}
    return store.HTTPStore(account.store.endpoint, **how)


_OPEN: Mapping[str, Callable[[Account], Opened]] = {
    "s3": _s3,
    "azure": _azure,
    "gcs": _gcs,
    "https": _site,
}


def _how() -> dict[str, Any]:
    client: dict[str, Any] = {**_CLIENT}
    # A site's own certificates, where its programs are told of them.
    for name in CERTIFICATES:
        if (file := os.environ.get(name)) and os.path.isfile(file):
            client["root_certificate"] = Path(file).read_bytes()
            break
    return {"client_options": client, "retry_config": _RETRY}


def _of_profile(environ: Mapping[str, str]) -> dict[str, str]:
    """What the files of AWS's own programs say of a profile, where the variables say nothing."""
    if environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    home = Path(environ.get("HOME", "/nonexistent"), ".aws")
    profile = environ.get("AWS_PROFILE") or "default"
    files = {
        environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials": profile,
        environ.get("AWS_CONFIG_FILE") or home / "config": profile
        if profile == "default"
        else f"profile {profile}",
    }
    names = {
        "aws_access_key_id": "access_key_id",
        "aws_secret_access_key": "secret_access_key",
        "aws_session_token": "session_token",
        "region": "region",
        "endpoint_url": "endpoint",
    }
    found: dict[str, str] = {}
    for file, section in files.items():
        read = configparser.RawConfigParser()
        try:
            read.read(file)
        except configparser.Error:
            continue
        if read.has_section(section):
            pairs = {names[k]: v for k, v in read.items(section) if k in names}
            found = {**pairs, **found}
    return found
