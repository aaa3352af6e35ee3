"""Endpoints in a real browser: how they answer, a request, and a model that is deployed."""

import json
import re
from typing import Any

import pytest

from tests.browser.conftest import Site, Watched, bytes_sent, watched
from tests.browser.test_every_page import problems_of
from tests.support import answer, until

pytestmark = [pytest.mark.slow, pytest.mark.end_to_end, pytest.mark.timeout(600)]

SCORE = "import json\ndef run(data):\n    return [each * 2 for each in json.loads(data)['data']]\n"

BOTH = {"blue": 90, "green": 10}

_REQUESTS_AND_LATENCIES = """() => {
    const [requests, , latency] = [...document.querySelectorAll("#series .plot")];
    return requests.data[0].y.map((value, at) => [value, latency.data[0].y[at]]);
}"""


def test_endpoints(site: Site, browser: Any) -> None:
    folder = site.code / "doubler"
    folder.mkdir()
    (folder / "weights.pkl").write_text("w")
    (folder / "serving_input_example.json").write_text('{"data": [1, 2]}')
    (site.code / "score.py").write_text(SCORE)
    assert site.allranks("model", "create", "doubler", "--path", "doubler").returncode == 0
    words = ("--script", "score.py", "--deployment", "blue")
    made = site.allranks("model", "deploy", "doubler", *words, timeout=120)
    assert made.returncode == 0, made.stderr
    with watched(browser) as it:
        page = it.page
        it.go(site.link())
        it.go(f"{site.url}/ui/endpoints")
        row = page.locator("#endpoints tbody tr").inner_text()
        assert re.split(r"\s*\t\s*|\n+", row)[:4] == ["doubler", "Ready", "blue", "doubler:1"], row
        page.get_by_role("link", name="doubler", exact=True).click()
        page.get_by_role("link", name="Try a request").click()
        assert json.loads(page.input_value("textarea")) == {"data": [1, 2]}
        page.fill("textarea", '{"data": [3, 4]}')
        page.select_option("select", "blue")
        page.get_by_role("button", name="Send").click()
        page.wait_for_selector("h2:has-text('200')")
        assert json.loads(page.locator("main pre").inner_text()) == [6, 8]
        assert "by blue, doubler:1, id " in page.locator("h2").inner_text()

        # A deployment that cannot start, from the model's page: its last lines say why.
        it.go(f"{site.url}/ui/assets/models/doubler:1")
        assert page.get_by_role("link", name="doubler/blue").is_visible()
        page.get_by_role("link", name="Deploy").click()
        page.fill("input[name=deployment]", "green")
        page.get_by_role("button", name="Deploy").click()
        page.wait_for_selector("text=doubler starts to answer")
        page.wait_for_selector("#deployments pre:has-text('UnpicklingError')")
        assert answer(site.allranks, "endpoint", "show", "doubler")["traffic"] == {"blue": 100}
        page.wait_for_selector("#series .gtitle")
        names = page.locator("#series .gtitle").all_text_contents()
        assert names == ["Requests", "Errors and refusals", "Latency", "Queue", "Replicas"]
        drawn = page.evaluate(_REQUESTS_AND_LATENCIES)
        assert drawn
        assert all((requests > 0) == (latency is not None) for requests, latency in drawn)
        assert "created; its first replicas start" in page.locator("#events").inner_text()
        # Forms need the secret of the pages.
        for place in ("endpoints/doubler/try", "deploy?model=doubler:1"):
            refused = page.request.post(f"{site.url}/ui/{place}", form={"body": "{}", "name": "x"})
            assert refused.status == 403
        places = ("endpoints", "endpoints/doubler", "endpoints/doubler/try")
        places = (*places, "deploy?model=doubler:1", "assets/models/doubler:1")
        assert bytes_sent(it, f"{site.url}/ui/endpoints/doubler") <= 60_000
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            for place in places:
                it.go(f"{site.url}/ui/{place}")
                assert not problems_of(page), (scheme, place)
        _canary(site, it)
        it.ok()
    assert site.allranks("endpoint", "delete", "--yes", "doubler").returncode == 0
    until(lambda: not answer(site.allranks, "endpoint", "list"))


def _canary(site: Site, it: Watched) -> None:
    """Two clicks give a second deployment some traffic; one takes it back."""
    words = ("--name", "doubler", "--deployment", "green", "--script", "score.py")
    made = site.allranks("model", "deploy", "doubler:1", *words, timeout=120)
    assert made.returncode == 0, made.stderr
    it.go(f"{site.url}/ui/endpoints/doubler")
    page = it.page
    page.get_by_role("button", name="Canary: 10 %").click()
    assert page.locator("#change").inner_text() == "green 0 → 10 %, blue 100 → 90 %"
    page.get_by_role("button", name="Apply").click()
    page.wait_for_selector("[role=status]:has-text('blue 100 → 90 %, green 0 → 10 %')")
    assert answer(site.allranks, "endpoint", "show", "doubler")["traffic"] == BOTH
    assert not problems_of(page)
    failed = site.allranks("endpoint", "invoke", "doubler", "-d", "green", "--data", "{}")
    assert failed.returncode != 0
    page.wait_for_selector("summary:has-text('1 request failed')")
    page.get_by_text("1 request failed").click()
    page.wait_for_selector("details pre:has-text('KeyError')")
    page.get_by_role("button", name="Undo").click()
    page.wait_for_selector("[role=status]:has-text('blue 90 → 100 %, green 10 → 0 %')")
    assert answer(site.allranks, "endpoint", "show", "doubler")["traffic"]["blue"] == 100
    colours = "(box) => box.data?.map((each) => each.line.color)"
    lines = f"[...document.querySelectorAll('#series .plot')].map({colours})"
    until(lambda: all(page.evaluate(lines)))
    rates, _, latencies, *_ = page.evaluate(lines)
    assert latencies == [color for color in rates for _ in range(3)], "a colour a deployment"
