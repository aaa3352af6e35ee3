"""Where data lies that is on no disk of a node: buckets, containers and sites. Pure.

One URI means one place, however it was written: ``wasbs://`` and ``https://…blob.core…`` are
``abfss://`` here, ``s3a://`` is ``s3://``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from allranks.errors import UsageError


class Store(NamedTuple):
    """A bucket, a container or a site. ``kind``: `s3`, `azure`, `gcs` or `https`. ``account`` is
    Azure's; ``endpoint`` is where it is asked, when that is not the provider's own place; of a site
    the part of its URLs that all share."""

    kind: str
    bucket: str = ""
    account: str = ""
    endpoint: str = ""
    region: str = ""


class Address(NamedTuple):
    """A place in a store: the name of an object, or what such names begin with; of a site as it
    stands in its URL."""

    store: Store
    key: str = ""

    def __str__(self) -> str:
        store = self.store
        head = {
            "s3": f"s3://{store.bucket}",
            "gcs": f"gs://{store.bucket}",
            "azure": f"abfss://{store.bucket}@{store.account}.dfs.core.windows.net",
            "https": store.endpoint,
        }[store.kind]
        return f"{head}/{self.key}"


class Account(NamedTuple):
    """What opens a store: the store itself with what a datastore says of it, and its
    ``credentials``, which nobody writes down."""

    store: Store
    credentials: Mapping[str, str] = {}


class Located(NamedTuple):
    """Where data lies: a ``path`` on the disks of nodes, or a ``uri``, and the name of the
    datastore that opens it, if one does; ``asset`` is its name and version, if it is one.
    ``digest``: of what the server sees at the path, if nodes compare it with what they see."""

    path: str = ""
    uri: str = ""
    datastore: str = ""
    asset: str = ""
    digest: str = ""


# Variables by which the providers' own programs are told who asks.
IDENTITY = re.compile(r"AWS_(?!CA_BUNDLE$)|AZURE_|GOOGLE_")
# Variables that name a file of certificates, the first of them that there is.
CERTIFICATES = ("SSL_CERT_FILE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
# How requests for data call themselves: the API refuses them.
USER_AGENT = "allranks-data"
SCHEMES = "s3://, gs://, abfss://, wasbs:// and https://"
_HEAD = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")
_AZURE_HOST = re.compile(
    r"(?P<account>[a-z0-9]{3,24})\.(blob|dfs)\.(?P<cloud>core\.[a-z.]+|fabric\.microsoft\.com)"
)
_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._$-]{0,254}")


def scheme(text: str) -> str:
    """In lower case; empty where there is none."""
    match = _HEAD.match(text)
    return match["scheme"].lower() if match else ""


def address(uri: str) -> Address:
    """The place a URI means. Raises UsageError for one that cannot be read, or whose scheme is
    none of ``SCHEMES``."""
    kind = scheme(uri)
    read = _READERS.get(kind)
    if read is None:
        hint = f"known are {SCHEMES}, and paths of datastores and data assets"
        raise UsageError(f"{uri!r}: cannot read {kind or 'such addresses'}", hint=hint)
    return read(uri)


def within(start: Address, path: str) -> Address:
    """What lies at ``path`` below ``start``. Raises UsageError for one that leads out of it."""
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if ".." in steps:
        raise UsageError(f"{path!r} leads outside of its folder", hint="a path without `..`")
    if start.store.kind == "https":
        steps = [quote(step) for step in steps]
    return start._replace(key="/".join(part for part in (start.key, *steps) if part))


def covers(start: Address, place: Address) -> bool:
    """Whether ``place`` is ``start`` or below it, wherever the store itself is asked."""
    same = _names(start.store) == _names(place.store)
    return same and (not start.key or f"{place.key}/".startswith(f"{start.key}/"))


def _names(store: Store) -> tuple[str, ...]:
    site = store.endpoint if store.kind == "https" else ""
    return (store.kind, store.bucket, store.account, site)


def _bucket(kind: str) -> Callable[[str], Address]:
    def read(uri: str) -> Address:
        # By hand: `?` and `#` are letters like any other in the name of an object.
        bucket, _, key = uri.partition("://")[2].partition("/")
        if not _BUCKET.fullmatch(bucket):
            raise UsageError(f"{uri!r} has no bucket", hint=f"as in {kind}://BUCKET/PATH")
        return within(Address(Store("gcs" if kind == "gs" else kind, bucket)), key)

    return read


def _azure(uri: str) -> Address:
    place, _, key = uri.partition("://")[2].partition("/")
    container, at, host = place.partition("@")
    match = _AZURE_HOST.fullmatch(host.lower())
    if not at or not container or match is None:
        hint = "as in abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
        raise UsageError(f"{uri!r} has no container and storage account", hint=hint)
    _hold_to_cloud(match["cloud"])
    return within(Address(Store("azure", container, match["account"])), key)


def _hold_to_cloud(name: str) -> None:
    """The same account name elsewhere is somebody else's."""
    if name != "core.windows.net":
        hint = "create a datastore with its `endpoint`: allranks datastore create"
        raise UsageError(f"an address of the cloud {name!r} needs an endpoint", hint=hint)


def _site(uri: str) -> Address:
    parts = urlsplit(uri)
    if parts.username or parts.password:
        hint = "create a datastore with the credentials: allranks datastore create"
        raise UsageError("an address must not contain a password", hint=hint)
    if not parts.hostname:
        raise UsageError(f"{uri!r} has no host", hint="as in https://HOST/PATH")
    match = _AZURE_HOST.fullmatch(parts.hostname)
    container, _, key = parts.path.lstrip("/").partition("/")
    if match is not None and container and not parts.query:
        _hold_to_cloud(match["cloud"])
        return within(Address(Store("azure", container, match["account"])), unquote(key))
    path = parts.path.lstrip("/")
    if ".." in unquote(path).split("/"):
        raise UsageError(f"{uri!r} leads outside of its folder", hint="a path without `..`")
    if parts.query:
        path += f"?{parts.query}"
    return Address(Store("https", endpoint=f"{parts.scheme.lower()}://{parts.netloc}"), path)


_READERS: Mapping[str, Callable[[str], Address]] = {
    "s3": _bucket("s3"),
    "s3a": lambda uri: _bucket("s3")(f"s3{uri[3:]}"),
    "gs": _bucket("gs"),
    "abfss": _azure,
    "abfs": _azure,
    "wasbs": _azure,
    "wasb": _azure,
    "https": _site,
    "http": _site,
}
