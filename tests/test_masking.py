"""What is shown of secrets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.masking import MASK, all_without_credentials, masked, without_credentials


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pw@host/x", f"https://{MASK}@host/x"),
        ("https://me:p@ss@host/x", f"https://{MASK}@host/x"),
        ("https://token@host", f"https://{MASK}@host"),
        ("a https://b/c and git+ssh://u:p@d/e", f"a https://b/c and git+ssh://{MASK}@d/e"),
        ("https://host/a@b", "https://host/a@b"),
        ("me@example.com", "me@example.com"),
        *(
            (f"https://host/x?a=1&{name}=abc&b=2 c", f"https://host/x?a=1&{name}={MASK}&b=2 c")
            for name in ("sig", "token", "access_token", "api_key", "apikey", "password")
        ),
        ("https://host/x?tokens=1", "https://host/x?tokens=1"),
    ],
)
def test_addresses(text: str, shown: str):
    assert without_credentials(text) == shown


def test_a_long_word_takes_no_time():
    word = "a" * 200_000
    assert (
        without_credentials(f"{word} {word}https://me:pw@host")
        == f"{word} {word}https://{MASK}@host"
    )


def test_variables_of_any_kind():
    given = {"A_TOKEN": "x", "N": 1, "http_proxy": "me:pw@proxy:3128", "OWN": "y", "URL": "x://u@h"}
    assert masked(given, {"allranks.passed_on": "OWN"}) == {
        "A_TOKEN": MASK,
        "N": "1",
        "http_proxy": f"{MASK}@proxy:3128",
        "OWN": MASK,
        "URL": f"x://{MASK}@h",
    }


def test_deep_in_an_environment():
    given = {
        "pip": ["-i https://u:p@h/s", "six"],
        "conda_file": {"variables": {"K_TOKEN": 1}},
        "n": 3,
    }
    assert all_without_credentials(given) == {
        "pip": [f"-i https://{MASK}@h/s", "six"],
        "conda_file": {"variables": {"K_TOKEN": MASK}},
        "n": 3,
    }


AZURES = ["abfss", "abfs", "wasbs", "wasb", "WASBS"]
containers = st.from_regex(r"[a-z0-9]([a-z0-9]|-(?=[a-z0-9])){2,61}[a-z0-9]", fullmatch=True)
words = st.text(st.characters(exclude_characters="/ ", exclude_categories=["Z", "C"]), min_size=1)
passwords = words.map(lambda word: f"pass{word}word")
hosts = st.sampled_from(["acct.dfs.core.windows.net", "acct.blob.core.windows.net", "host:10000"])


@given(st.sampled_from(AZURES), containers | st.just("$root"), hosts)
def test_a_container_is_no_secret(scheme: str, container: str, host: str):
    address = f"{scheme}://{container}@{host}/path/file.csv"
    assert without_credentials(f"cat {address} x") == f"cat {address} x"
    signed = f"{address}?sv=1&sig=abc%3D"
    assert without_credentials(signed) == f"{address}?sv=1&sig={MASK}"


@given(st.sampled_from([*AZURES, "https", "http", "s3", "gs", "git+ssh"]), words, passwords, hosts)
def test_a_password_is_one_in_every_scheme(scheme: str, user: str, password: str, host: str):
    shown = without_credentials(f"{scheme}://{user}:{password}@{host}/x")
    assert shown == f"{scheme}://{MASK}@{host}/x"


@given(st.sampled_from(["https", "http", "s3", "s3a", "gs", "ftp", "adl"]), containers, hosts)
@pytest.mark.medium
def test_a_user_alone_is_masked_elsewhere(scheme: str, user: str, host: str):
    assert without_credentials(f"{scheme}://{user}@{host}/x") == f"{scheme}://{MASK}@{host}/x"


@given(st.sampled_from(AZURES), passwords.filter(lambda text: not text.isalnum()), hosts)
def test_what_cannot_be_a_container_is_masked(scheme: str, secret: str, host: str):
    for text in (f"{secret}_", f"{secret}=", f"A{secret}", f"me@{secret}", "a" * 64):
        shown = without_credentials(f"{scheme}://{text}@{host}/x")
        assert shown == f"{scheme}://{MASK}@{host}/x"
