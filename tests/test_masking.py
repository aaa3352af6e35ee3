"""What is shown of secrets."""

import pytest

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
