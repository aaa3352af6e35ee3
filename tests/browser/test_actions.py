"""What the page's forms do to jobs, by requests as a browser sends them."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.browser.conftest import Site
from tests.support import answer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("choice", "job", "resumed"),
    [("", "good", False), ("resume", "good", True), ("", "bad", True), ("fresh", "bad", False)],
)
def test_a_restart_by_the_rule_or_by_choice(
    site: Site, choice: str, job: str, resumed: bool
) -> None:
    with httpx.Client(base_url=site.url) as client:
        assert client.get(site.link()).status_code == 303
        shown = client.get(f"/ui/do/restart?job={job}").text
        secret = re.search(r'name="forms" value="([^"]+)"', shown)
        assert secret is not None
        form = {"job": job, "forms": secret[1], "choice": choice, "set": "display_name=again"}
        answered = client.post("/ui/do/restart", data=form)
        assert answered.status_code == 303, answered.text
        new = answered.headers["location"].rpartition("/")[2]
    site.allranks("job", "wait", new)
    assert answer(site.allranks, "job", "show", new)["display_name"] == "again"
    created = answer(site.allranks, "job", "events", new)[0]["data"]
    assert created["restarts"] == job
    assert ("message" in created) == resumed
    site.allranks("job", "delete", new)
