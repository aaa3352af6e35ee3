"""Datastores as people write them."""

from typing import Any

import pytest

from allranks.errors import SpecError
from allranks.spec.datastore import parse


def test_azures_own_words() -> None:
    made, credentials = parse(
        {
            "$schema": "https://azuremlschemas.azureedge.net/latest/azureBlob.schema.json",
            "name": "blobs",
            "type": "AzureBlob",
            "account_name": "acct",
            "container_name": "box",
            "protocol": "https",
            "credentials": {"sas_token": " ?sv=1 "},
        }
    )
    assert (made.type, made.account_name) == ("azure_blob", "acct")
    assert credentials == {"sas_token": "?sv=1"}


@pytest.mark.parametrize(
    ("data", "where", "said"),
    [
        ({"type": "s3"}, "name", ""),
        ({"name": "a/b", "type": "s3", "bucket": "b"}, "name", "letters"),
        ({"name": "x", "type": "s3"}, "bucket", "is required"),
        ({"name": "x", "type": "s3", "bucket": "b", "url": "https://x"}, "url", "not a key"),
        ({"name": "x", "type": "s3", "bucket": "b", "endpoint": "x:1"}, "endpoint", "is not a URL"),
        ({"name": "x", "type": "file", "path": "data"}, "path", "absolute"),
        ({"name": "x", "type": "ftp"}, "type", "must be one of"),
        ({"name": "x", "type": "s3", "bucket": "b", "bukket": "c"}, "bukket", "is not a key"),
        (
            {"name": "x", "type": "s3", "bucket": "b", "credentials": {"account_key": "k"}},
            "credentials",
            "`account_key` is not a credential",
        ),
        (
            {"name": "x", "type": "s3", "bucket": "b", "credentials": {"access_key_id": 7}},
            "credentials",
            "a text",
        ),
        (
            {"name": "x", "type": "file", "path": "/d", "credentials": {"a": "b"}},
            "credentials",
            "not a credential",
        ),
    ],
)
def test_what_is_wrong_is_told_by_key(data: dict[str, Any], where: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        parse(data)
    told = [each for each in error.value.problems if each.where == where]
    assert told, error.value.problems
    assert said in told[0].message
