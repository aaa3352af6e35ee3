"""A site's map of addresses: which beginnings are taken for others. Pure.

An address matches however it is written: a map that names ``abfss://c@a.dfs.core.windows.net/`` is
meant for ``wasbs://`` and ``https://a.blob.core.windows.net/c/`` too, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import quote, unquote

from allranks.core.data.addresses import Address, address, scheme
from allranks.errors import UsageError

_SITES = ("http", "https")


def mapped(path: str, table: Mapping[str, str]) -> str:
    """The path with its beginning replaced by the entry that matches the most of it; the path
    itself where none does."""
    written = list(spellings(path))
    best: tuple[int, str] | None = None
    for beginning, target in table.items():
        for spelling in spellings(beginning):
            for whole in written:
                rest = _rest(whole, spelling)
                if rest is None or (best is not None and best[0] <= len(rest)):
                    continue
                best = len(rest), _joined(target, rest, scheme(whole) in _SITES)
    return path if best is None else best[1]


def spellings(text: str) -> Iterator[str]:
    """An address as it is written, then in every other way that means the same place."""
    yield text
    try:
        place = address(text)
    except UsageError:
        return
    yield from (other for other in _others(place) if other != text)


def _others(place: Address) -> Iterator[str]:
    store, key = place
    if store.kind == "s3":
        yield from (f"{word}://{store.bucket}/{key}" for word in ("s3", "s3a"))
    elif store.kind == "azure":
        yield str(place)
        for words, service in ((("abfss", "abfs"), "dfs"), (("wasbs", "wasb"), "blob")):
            host = f"{store.account}.{service}.core.windows.net"
            yield from (f"{word}://{store.bucket}@{host}/{key}" for word in words)
            yield from (f"{word}://{host}/{store.bucket}/{quote(key)}" for word in _SITES)


def _rest(path: str, beginning: str) -> str | None:
    """What follows the beginning in the path; None where it does not begin so."""
    if path == beginning or path.startswith(beginning.rstrip("/") + "/"):
        return path[len(beginning.rstrip("/")) :].lstrip("/")
    if beginning.endswith((":", "@")) and path.startswith(beginning):
        return path[len(beginning) :]
    return None


def _joined(target: str, rest: str, of_a_site: bool) -> str:
    if of_a_site and scheme(target) not in _SITES:
        rest = unquote(rest.partition("?")[0])  # what is a site's own does not go elsewhere
    return f"{target.rstrip('/')}/{rest.lstrip('/')}" if rest else target
