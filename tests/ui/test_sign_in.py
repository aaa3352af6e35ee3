"""One-time links, sealed cookies, and requests of other sites."""

import stat
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from starlette.datastructures import Headers

from allranks.errors import Forbidden
from allranks.ui import sign_in
from allranks.ui.api import Person
from allranks.ui.security import check_origin
from allranks.ui.sign_in import Doorkeeper, load_key


@pytest.fixture
def keeper() -> Doorkeeper:
    return Doorkeeper(Fernet.generate_key())


def test_a_link_is_valid_once(keeper: Doorkeeper) -> None:
    code = keeper.link("secret")
    assert keeper.redeem("other") is None
    assert keeper.token_of("other") is None
    assert keeper.token_of(code) == "secret"
    assert keeper.redeem(code) == "secret"
    assert keeper.redeem(code) is None


def test_a_link_grows_old(keeper: Doorkeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "LINK", 0.0)
    assert keeper.redeem(keeper.link("secret")) is None


def test_links_are_not_kept_without_end(
    keeper: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in, "_MOST", 3)
    codes = [keeper.link(str(number)) for number in range(6)]
    assert [keeper.redeem(code) for code in codes] == [None, None, "2", "3", "4", "5"]


def test_a_cookie_holds_the_token_sealed(keeper: Doorkeeper) -> None:
    cookie = keeper.cookie("secret")
    assert "secret" not in cookie
    signed = keeper.open(cookie)
    assert signed is not None
    assert signed.token == "secret"
    assert signed.forms != keeper.open(keeper.cookie("secret")).forms  # type: ignore[union-attr]
    for wrong in ("", "x", cookie[:-2], cookie.swapcase(), "é"):
        assert keeper.open(wrong) is None
    assert Doorkeeper(Fernet.generate_key()).open(cookie) is None


def test_a_cookie_grows_old(keeper: Doorkeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "COOKIE", -1)
    assert keeper.open(keeper.cookie("secret")) is None


def test_the_key_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = load_key(path)
    assert load_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("method", "headers", "allowed"),
    [
        ("GET", {}, True),
        ("POST", {"sec-fetch-site": "same-origin"}, True),
        ("POST", {"sec-fetch-site": "none"}, True),
        ("POST", {"sec-fetch-site": "same-site"}, False),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, False),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, False),
    ],
)
def test_requests_of_other_sites(method: str, headers: dict[str, str], allowed: bool) -> None:
    if allowed:
        check_origin(method, Headers(headers))
        return
    with pytest.raises(Forbidden):
        check_origin(method, Headers(headers))


def test_a_followed_link_is_allowed_a_form_is_not() -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    headers["sec-fetch-dest"] = "document"
    check_origin("GET", Headers(headers))
    with pytest.raises(Forbidden):
        check_origin("POST", Headers(headers))


def test_a_reader_is_told_who_gives_the_role() -> None:
    Person("ann", "member").require_member()
    with pytest.raises(Forbidden) as caught:
        Person("eve", "reader").require_member()
    assert "--role member" in (caught.value.hint or "")
