"""What the page's forms do to jobs, by requests as a browser sends them."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from allranks.ui.pages.actions import ACTIONS
from tests.browser.conftest import Site, Watched
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
    site.allranks("job", "delete", "--yes", new)


def post(site: Site, path: str, form: dict[str, Any], **more: Any) -> httpx.Response:
    """A form of the page as a browser sends it."""
    with httpx.Client(base_url=site.url) as client:
        assert client.get(site.link()).status_code == 303
        secret = re.search(r'name="forms" value="([^"]+)"', client.get("/ui/").text)
        assert secret is not None
        return client.post(path, data={"forms": secret[1], **form}, **more)


def test_values_that_the_job_does_not_have_are_refused(site: Site) -> None:
    refused = post(site, "/ui/do/restart", {"job": "good", "set.inputs.nosuch": "1"})
    assert refused.status_code == 400
    assert "no value 'inputs.nosuch'" in refused.text
    file = {"files": ("../x", b"y")}
    refused = post(site, "/ui/upload", {"name": "out"}, files=file)
    assert refused.status_code == 400
    assert "leads out" in refused.text or "not a name of a file" in refused.text


def test_every_action_describes_what_it_does_to_several_jobs(site: Site) -> None:
    with httpx.Client(base_url=site.url) as client:
        assert client.get(site.link()).status_code == 303
        for action in ACTIONS:
            shown = client.get(f"/ui/do/{action}?job=good&job=bad")
            assert shown.status_code == 200, action


@pytest.mark.timeout(600)
def test_a_form_with_an_error_leads_back_to_what_was_entered(
    site: Site, signed_in: Watched
) -> None:
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/do/restart?job=good")
    page.get_by_label("Other keys").fill("limits.timout=5")
    page.get_by_role("button", name="Restart").click()
    page.get_by_text("did you mean timeout?").wait_for()
    page.get_by_role("button", name="Back to the form").click()
    page.wait_for_url("**/do/restart?job=good")
    assert page.get_by_label("Other keys").input_value() == "limits.timout=5"


@pytest.mark.timeout(600)
def test_forms_have_the_present_values(site: Site, signed_in: Watched) -> None:
    page = signed_in.page
    words = ("run", "--name", "form", "--env", "LR=0.1", "-q", "--", "bash", "-c")
    assert site.allranks(*words, "echo $LR; echo x > outputs/m.txt").returncode == 0

    def press(name: str) -> None:
        page.locator("main form.panel").get_by_role("button", name=name, exact=True).click()
        page.wait_for_load_state("load")

    signed_in.go(f"{site.url}/ui/do/restart?job=form")
    assert page.get_by_label("environment_variables.LR").input_value() == "0.1"
    page.get_by_label("environment_variables.LR").fill("0.2")
    press("Restart")
    assert page.get_by_role("status").first.inner_text() == "form-r2 runs"
    again = answer(site.allranks, "job", "wait", "form-r2")
    assert again["spec"]["environment_variables"] == {"LR": "0.2"}
    assert (
        again["spec"]["command"] == answer(site.allranks, "job", "show", "form")["spec"]["command"]
    )

    signed_in.go(f"{site.url}/ui/do/tag?job=form")
    page.get_by_label("New tags").fill("a=1 b=2")
    press("Set tags")
    signed_in.go(f"{site.url}/ui/do/tag?job=form")
    page.get_by_label("a", exact=True).fill("")
    press("Set tags")
    assert answer(site.allranks, "job", "show", "form")["tags"] == {"b": "2"}

    signed_in.go(f"{site.url}/ui/do/note?job=form")
    page.get_by_label("Note in Markdown").fill(
        "# Why\n<img src=x onerror=alert(1)> [x](javascript:a)"
    )
    press("Save")
    note = page.get_by_label("Note", exact=True)
    assert note.locator("h3").inner_text() == "Why"
    assert note.locator("img, a").count() == 0
    page.get_by_role("button", name="Star").click()
    page.get_by_text("form is starred").wait_for()
    signed_in.go(f"{site.url}/ui/?status=Completed&sort=-created")  # the form of the filters
    assert page.locator("tbody tr").first.locator("[title=starred]").count() == 1
    signed_in.go(f"{site.url}/ui/")
    assert page.locator("tbody tr", has_text="form").first.locator("[title=starred]").count() == 1
    assert "mlflow.note" not in page.locator("#list").inner_text()

    signed_in.go(f"{site.url}/ui/do/archive?job=form")
    press("Archive")
    press("Undo")
    assert answer(site.allranks, "job", "show", "form")["archived_at"] is None
    signed_in.go(f"{site.url}/ui/do/register?job=form")
    assert "outputs/m.txt" in page.locator("#paths").inner_html()
    page.get_by_label("Name").fill("of-form")
    press("Register")
    page.wait_for_url("**/assets/models/of-form:1")
    assert page.get_by_role("status").first.inner_text() == "of-form:1 is registered"

    signed_in.go(f"{site.url}/ui/?name=form&status=Completed")
    page.get_by_label("Save these filters as").fill("mine")
    page.get_by_role("button", name="Save view").click()
    signed_in.go(f"{site.url}/ui/")
    page.get_by_role("link", name="mine").click()
    page.wait_for_url(re.compile("status=Completed"))

    signed_in.go(f"{site.url}/ui/upload")
    page.get_by_label("Name").fill("page-data")
    files = [{"name": f"{n}.csv", "mimeType": "text/csv", "buffer": b"a,b\n"} for n in "xy"]
    page.get_by_label("Files").set_input_files(files)
    press("Upload")
    page.get_by_text("page-data is uploaded").wait_for()
    out = answer(site.allranks, "data", "show", "page-data")
    assert out["type"] == "uri_folder"
    signed_in.ok()
