"""Answers that take long: each is computed once, and never do all threads wait for them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from allranks.errors import Passing
from allranks.server.http import answer_cache
from allranks.server.http.answer_cache import AnswerCache


def test_a_long_one_does_not_hold_up_others() -> None:
    cache, began, end = AnswerCache(), threading.Event(), threading.Event()
    computed: list[str] = []

    def long() -> bytes:
        computed.append("long")
        began.set()
        assert end.wait(60)
        return b"long"

    with ThreadPoolExecutor(3) as several:
        twice = [several.submit(cache.get, "long", long) for _ in range(2)]
        try:
            assert began.wait(60)
            short = several.submit(cache.get, "short", lambda: b"short")
            assert short.result(20) == b"short"
        finally:
            end.set()
        assert [answer.result() for answer in twice] == [b"long", b"long"]
    assert cache.get("long", long) == b"long"
    assert computed == ["long"]


def test_a_long_queue_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_cache, "_MOST_REQUESTS", 1)
    cache = AnswerCache()

    def nested() -> bytes:
        with pytest.raises(Passing, match="many charts"):
            cache.get("b", lambda: b"")
        raise ValueError

    with pytest.raises(ValueError):
        cache.get("a", nested)
    assert cache.get("a", lambda: b"again") == b"again"


def test_large_answers_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_cache, "_LARGE", 2)
    cache = AnswerCache()
    assert cache.get("a", lambda: b"123") == b"123"
    assert cache.get("a", lambda: b"12") == b"12"
    assert cache.get("a", lambda: b"1") == b"12"
