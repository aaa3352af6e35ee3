"""Open S3, Azure, GCS and HTTPS stores through obstore, and explain their errors.

Only the mover imports it: its interpreter has ``obstore``.
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

from allranks.agent.data.file_entry import FileEntry
from allranks.core.data.addresses import CERTIFICATES, IDENTITY, USER_AGENT, Account, Address
from allranks.errors import AllranksError, NotFound, Passing
from allranks.masking import without_credentials

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

    Opened = store.S3Store | store.AzureStore | store.GCSStore | store.HTTPStore

_CLIENT: ClientConfig = {
    "allow_http": True,
    "timeout": timedelta(minutes=10),
    "read_timeout": timedelta(seconds=60),
    "connect_timeout": timedelta(seconds=10),
    # The server refuses it, wherever a redirect or a name leads.
    "user_agent": USER_AGENT,
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
# A tag that may be the MD5 of the content.
HASH = re.compile(r'"?[0-9a-f]{32}"?')
RETRYABLE = (exceptions.GenericError, exceptions.JoinError, TimeoutError, ConnectionError)
STORE_ERRORS = exceptions.BaseError
CHANGED = exceptions.PreconditionError
NO_RANGES = exceptions.NotSupportedError
_API_HINT = "of a job's files, name the job: azureml://jobs/JOB/outputs/artifacts/paths/PATH"
# Error codes of stores that are overloaded.
_BUSY = (
    "SlowDown",
    "InternalError",
    "ServiceUnavailable",
    "RequestTimeout",
    "ServerBusy",
    "OperationTimedOut",
)


class StoredObject(NamedTuple):
    """An object: its key, size in bytes, mtime in Unix seconds, and a tag that changes with it."""

    key: str
    size: int
    mtime: float
    tag: str


def open_store(account: Account, place: Address, public: bool = False) -> Opened:
    """Open the store of an address; of an HTTPS site, only that URL. ``public``: read it without
    credentials. Raises AllranksError for an invalid account."""
    kind = account.store.kind
    if public:
        account = account._replace(credentials={"skip_signature": "true"})
    if kind == "https":
        account = account._replace(store=account.store._replace(endpoint=str(place)))
    try:
        with _without_environment_identity() if account.credentials else contextlib.nullcontext():
            return _OPEN[kind](account)
    except (ValueError, exceptions.BaseError) as error:
        raise AllranksError(
            f"cannot open the store: {_first_line(error)}",
            where=str(Address(account.store)),
            hint="check the options of its datastore: allranks datastore list",
        ) from None


@contextlib.contextmanager
def _without_environment_identity() -> Iterator[None]:
    """Hide variables with credentials, so that obstore does not mix them with given ones."""
    held = {name: os.environ.pop(name) for name in [*os.environ] if IDENTITY.match(name)}
    try:
        yield
    finally:
        os.environ.update(held)


def listing(opened: Opened, key: str) -> Iterator[StoredObject]:
    """List all objects below ``key``."""
    for batch in obstore.list(opened, prefix=key or None, chunk_size=1000):
        for meta in batch:
            entry = _stored_object(meta)
            # Consoles mark an empty folder with an empty object of its name.
            if entry.key != key or entry.size:
                yield entry


def head(opened: Opened, key: str) -> StoredObject | None:
    """The object of that key, or None."""
    try:
        return _stored_object(obstore.head(opened, key))
    except FileNotFoundError:
        return None


def get_options(tag: str, span: tuple[int, int] | None = None) -> obstore.GetOptions:
    """Options that request a byte range, and fail with CHANGED if the content has another tag."""
    options: obstore.GetOptions = {}
    if _is_strong(tag):
        options["if_match"] = tag
    if span is not None:
        options["range"] = span
    return options


def is_different(meta: Mapping[str, Any], item: FileEntry) -> bool:
    """Whether an answer belongs to other content than ``item`` was listed with. Strong tags were
    already checked by the store."""
    if _is_strong(item.tag):
        return False
    entry = _stored_object(meta)
    # Listings have fractions of a second, answers do not.
    return int(entry.mtime) != int(item.mtime) or (
        item.tag.startswith("W/") and entry.tag != item.tag
    )


def _is_strong(tag: str) -> bool:
    """Whether If-Match works with the tag: weak tags (`W/"…"`) never match."""
    return tag.startswith('"') or HASH.fullmatch(tag) is not None


def is_final(error: Exception) -> bool:
    """Whether a retry would get the same refusal."""
    text = str(error)
    if code := _error_code(text):
        return code not in _BUSY
    return re.search(r"status (?:code: )?(4(?!08|29)\d\d)", text) is not None


def explain(error: Exception, place: Address, datastore: str) -> AllranksError:
    """The error to show for an exception of a store."""
    text = str(error)
    where = without_credentials(str(place))
    code = _error_code(text)
    if code in ("NoSuchBucket", "ContainerNotFound"):
        what = f"bucket {place.store.bucket!r} not found"
        return NotFound(what, where=where, hint="check the bucket's name and the endpoint")
    if isinstance(error, FileNotFoundError):
        hint = "check the path; names in stores are case-sensitive"
        return NotFound("nothing found at this address", where=where, hint=hint)
    if "421 Misdirected" in text:
        what = "this address leads to the API of an allranks server, which is not data"
        return AllranksError(what, where=where, hint=_API_HINT)
    who = f"the datastore {datastore!r}" if datastore else "this node"
    refused = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
    if refused or code in _REFUSALS:
        message = re.search(r"<Message>([^<]+)</Message>", text)
        reason = f": {message[1].strip()}" if message else ""
        return AllranksError(
            f"the store refused access to {who}{reason}",
            where=where,
            hint=_credentials_hint(place, datastore),
        )
    if _lacks_credentials(text):
        return AllranksError(
            f"{who} has no credentials for this address",
            where=where,
            hint=_credentials_hint(place, datastore),
        )
    if isinstance(error, exceptions.InvalidPathError):
        return AllranksError(
            f"an object's name is not a valid file name: {_first_line(error)}",
            where=where,
            hint="empty steps (`a//b`), `.` and `..` are not allowed: rename it in the store",
        )
    return Passing(
        f"the store does not answer: {_first_line(error)}",
        where=where,
        hint="check that the node reaches it; a proxy is taken from https_proxy and similar "
        "variables; to read a copy instead: allranks data map PREFIX FOLDER/",
    )


# Error codes for unknown or expired credentials; then also for missing permissions.
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
    """Whether the credentials are valid but do not allow listing; they may still allow writing."""
    text = str(error)
    # obstore raises no exception of its own for a refused listing.
    refused = isinstance(error, exceptions.PermissionDeniedError) or "403 Forbidden" in text
    return refused and not _lacks_credentials(text) and _error_code(text) not in _UNKNOWN


def _error_code(text: str) -> str:
    """The store's own error code, or ''."""
    match = re.search(r"<Code>(\w+)</Code>", text)
    return match[1] if match else ""


def _lacks_credentials(text: str) -> bool:
    """Whether no credentials were found: the last resort is the cloud's metadata service."""
    return "169.254" in text or ("token" in text.lower() and "metadata" in text.lower())


def may_be_public(error: Exception) -> bool:
    """Whether what was refused to this node's own identity, or for want of one, may be read without
    any."""
    text = str(error)
    refused = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
    return refused or _lacks_credentials(text) or _error_code(text) in _REFUSALS


def _credentials_hint(place: Address, datastore: str) -> str:
    if datastore:
        return f"replace its credentials: allranks datastore create {datastore} … --replace"
    kind = "azure_blob" if place.store.kind == "azure" else place.store.kind
    return (
        "create a datastore with credentials: "
        f"allranks datastore create NAME --type {kind} … --credentials-from-env"
    )


def _first_line(error: Exception) -> str:
    """An error's first line, without the Rust debug output that follows."""
    text = str(error).split("\n\nDebug source", 1)[0].strip().splitlines()
    return text[0][:300] if text else type(error).__name__


def _stored_object(meta: Mapping[str, Any]) -> StoredObject:
    changed = meta["last_modified"].timestamp()
    tag = meta.get("e_tag") or meta.get("version") or f"{changed}"
    return StoredObject(meta["path"], meta["size"], changed, tag)


# ---------------------------------------------------------------- opening


def _s3(account: Account) -> store.S3Store:
    config: dict[str, Any] = dict(account.credentials) or _aws_profile(os.environ)
    profile_endpoint = config.pop("endpoint", "")
    profile_region = config.pop("region", "")
    endpoint = account.store.endpoint or profile_endpoint
    region = account.store.region or profile_region
    if endpoint:
        config |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
    if region or not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        config["region"] = region or "us-east-1"
    return store.S3Store(account.store.bucket, config=config, **_client_options())  # type: ignore[arg-type]


def _azure(account: Account) -> store.AzureStore:
    place, credentials = account.store, account.credentials
    config: dict[str, Any] = {"account_name": place.account}
    if place.endpoint:
        config["endpoint"] = place.endpoint
    names = ("account_key", "sas_token", "tenant_id", "client_id", "client_secret")
    for name in (*names, "skip_signature"):
        if name in credentials:
            config["sas_key" if name == "sas_token" else name] = credentials[name]
    return store.AzureStore(place.bucket, config=config, **_client_options())  # type: ignore[arg-type]


def _gcs(account: Account) -> store.GCSStore:
    config: dict[str, Any] = dict(account.credentials)
    if account.store.endpoint:
        config["url"] = account.store.endpoint
    return store.GCSStore(account.store.bucket, config=config, **_client_options())  # type: ignore[arg-type]


def _http(account: Account) -> store.HTTPStore:
    credentials = account.credentials
    options = _client_options()
    authorization = ""
    if "token" in credentials:
        authorization = f"Bearer {credentials['token']}"
    elif "username" in credentials:
        pair = f"{credentials['username']}:{credentials.get('password', '')}".encode()
        authorization = f"Basic {base64.b64encode(pair).decode()}"
    if authorization:
        options["client_options"]["default_headers"] = {"authorization": authorization}
    return store.HTTPStore(account.store.endpoint, **options)


_OPEN: Mapping[str, Callable[[Account], Opened]] = {
    "s3": _s3,
    "azure": _azure,
    "gcs": _gcs,
    "https": _http,
}


def _client_options() -> dict[str, Any]:
    client: dict[str, Any] = {**_CLIENT}
    # Custom CA certificates, from the variables that other programs use.
    for name in CERTIFICATES:
        if (file := os.environ.get(name)) and os.path.isfile(file):
            client["root_certificate"] = Path(file).read_bytes()
            break
    return {"client_options": client, "retry_config": _RETRY}


def _aws_profile(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings of a profile in AWS's configuration files, unless variables have credentials."""
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
    settings: dict[str, str] = {}
    for file, section in files.items():
        parser = configparser.RawConfigParser()
        try:
            parser.read(file)
        except configparser.Error:
            continue
        if parser.has_section(section):
            pairs = {names[k]: v for k, v in parser.items(section) if k in names}
            settings = {**pairs, **settings}
    return settings
