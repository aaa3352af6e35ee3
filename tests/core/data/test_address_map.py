"""Which address a site's map takes for another, however both are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.data.address_map import mapped, spellings

AZURE = [
    "abfss://c@acct.dfs.core.windows.net",
    "abfs://c@acct.dfs.core.windows.net",
    "wasbs://c@acct.blob.core.windows.net",
    "wasb://c@acct.blob.core.windows.net",
    "https://acct.blob.core.windows.net/c",
    "https://acct.dfs.core.windows.net/c",
    "WASBS://c@acct.blob.core.windows.net",
]


@pytest.mark.parametrize("written", AZURE)
@pytest.mark.parametrize("known", AZURE)
def test_one_place_written_in_two_ways(written: str, known: str) -> None:
    for end in ("", "/"):
        assert mapped(f"{written}/a/b.csv", {known + end: "/mnt/c"}) == "/mnt/c/a/b.csv"
        assert mapped(f"{written}/a/b.csv", {f"{known}/a{end}": "/mnt/a"}) == "/mnt/a/b.csv"
        assert mapped(f"{written}/ab", {f"{known}/a{end}": "/mnt/a"}) == f"{written}/ab"
    assert mapped(f"{written}/", {known: "/mnt/c"}) == "/mnt/c"


@pytest.mark.parametrize("written", AZURE)
def test_a_whole_account_and_a_half_written_one(written: str) -> None:
    account = {"https://acct.blob.core.windows.net/": "/mnt"}
    assert mapped(f"{written}/a", account) == "/mnt/c/a"
    assert mapped(f"{written}/a", {"abfss://c@": "/any"}) == "/any/acct.dfs.core.windows.net/a"


def test_the_entry_that_matches_most_wins() -> None:
    table = {
        "https://acct.blob.core.windows.net/c": "/whole",
        "abfss://c@acct.dfs.core.windows.net/a": "/part",
        "s3a://b": "s3://c",
        "/mnt/old": "/mnt/new",
    }
    assert mapped("wasbs://c@acct.blob.core.windows.net/a/x", table) == "/part/x"
    assert mapped("wasbs://c@acct.blob.core.windows.net/b/x", table) == "/whole/b/x"
    assert mapped("s3://b/k", table) == "s3://c/k"
    assert mapped("/mnt/old/x", table) == "/mnt/new/x"
    assert mapped("/mnt/older/x", table) == "/mnt/older/x"


def test_what_is_a_sites_own_stays_there() -> None:
    table = {"https://host/x": "/mnt", "https://acct.blob.core.windows.net/c": "/data"}
    assert mapped("https://host/x/a%20b?sig=1", table) == "/mnt/a b"
    assert mapped("https://acct.blob.core.windows.net/c/a%20b", table) == "/data/a b"
    assert mapped("abfss://c@acct.dfs.core.windows.net/a b", table) == "/data/a b"
    assert mapped("https://host/x/a%20b?v=1", {"https://host": "https://mirror"}) == (
        "https://mirror/x/a%20b?v=1"
    )


keys = st.lists(
    st.text("abcXYZ0189-_. %äß\n", min_size=1, max_size=6).filter(lambda t: t not in (".", "..")),
    max_size=3,
).map("/".join)


@given(keys, st.sampled_from(AZURE), st.sampled_from(AZURE))
def test_every_spelling_leads_to_one_file(key: str, written: str, known: str) -> None:
    path = f"abfss://c@acct.dfs.core.windows.net/{key}"
    once = [*spellings(path)]
    assert path in once
    goals = {mapped(each, {known: "/mnt"}) for each in once}
    assert len(goals) == 1


@given(st.text(max_size=20), st.text(max_size=10))
def test_any_text_is_no_error(path: str, beginning: str) -> None:
    mapped(path, {beginning: "/mnt"})
