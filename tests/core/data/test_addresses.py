"""One place is one URI, however it was written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.data.addresses import Address, Store, address, covers, within
from allranks.errors import UsageError

AZURE = "abfss://box@acct.dfs.core.windows.net"


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3a://bucket/a//b/./c/", "s3://bucket/a/b/c"),
        ("s3://bucket", "s3://bucket/"),
        ("s3://bucket/what?#is%20this", "s3://bucket/what?#is%20this"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("abfss://box@acct.dfs.core.windows.net/a b", f"{AZURE}/a b"),
        ("wasbs://box@acct.blob.core.windows.net/a", f"{AZURE}/a"),
        ("https://acct.blob.core.windows.net/box/a%20b", f"{AZURE}/a b"),
        ("https://host:8/a%20b?v=%2F1", "https://host:8/a%20b?v=%2F1"),
        ("HTTP://host/x", "http://host/x"),
    ],
)
def test_written_in_one_way(written: str, means: str) -> None:
    found = address(written)
    assert str(found) == means
    assert address(str(found)) == found


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("s3://", "has no bucket"),
        ("s3://b u/x", "has no bucket"),
        ("s3://bucket/a/../b", "leads out"),
        ("https://host/%2e%2e/x", "leads out"),
        ("https:///x", "has no host"),
        ("https://a:b@host/x", "password"),
        ("abfss://acct.dfs.core.windows.net/x", "has no container"),
        ("hdfs://x/y", "cannot read hdfs"),
        ("x", "cannot read such addresses"),
    ],
)
def test_what_is_no_address(written: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        address(written)
    assert error.value.hint


KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(st.sampled_from(["s3", "gs"]), KEYS)
def test_any_key_is_read_back(scheme: str, key: str) -> None:
    try:
        found = address(f"{scheme}://bucket/{key}")
    except UsageError:
        assert ".." in key.split("/")
        return
    assert address(str(found)) == found


@given(KEYS, KEYS)
@pytest.mark.medium
def test_what_is_within_is_covered(start: str, path: str) -> None:
    try:
        begin = within(Address(Store("s3", "bucket")), start)
        inside = within(begin, path)
    except UsageError:
        return
    assert covers(begin, inside)
    assert not covers(begin, inside._replace(store=Store("s3", "other")))


def test_a_name_that_only_begins_alike_is_not_inside() -> None:
    assert not covers(address("s3://b/data"), address("s3://b/database/x"))
    assert covers(address("s3://b/data"), address("s3://b/data"))
    assert covers(address("https://host/"), address("https://host/x"))
    assert not covers(address("https://host/"), address("https://other/x"))
