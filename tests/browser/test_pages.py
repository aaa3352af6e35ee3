"""Every page and every button in a real browser, against real jobs."""

import re
import zipfile
from typing import Any

import pytest
import yaml

from tests.browser.conftest import Site, Watched, bytes_sent, watched
from tests.support import answer, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_pages_are_light(site: Site, browser: Any) -> None:
    """60 kB as sent, without the chart library."""
    with watched(browser) as it:
        it.go(site.link())
        for place in ("/", "/jobs/bad", "/jobs/good/logs", "/jobs/good/metrics"):
            assert bytes_sent(it, f"{site.url}/ui{place}") <= 60_000, place


def test_without_a_mouse(site: Site, signed_in: Watched) -> None:
    """Pages, tabs, rows, a choice, the palette and the help, by keys alone."""
    page = signed_in.page

    def opened(url: str) -> None:
        """Wait until something of the page is drawn: before that Chromium drops keys."""
        page.wait_for_url(re.compile(url))
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")

    signed_in.go(f"{site.url}/ui/computes")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_selector("h1:text-is('Jobs')")
    page.keyboard.press("/")
    page.keyboard.type("good")
    page.keyboard.press("Enter")
    opened("name=good")
    good = page.get_by_label("Choose good", exact=True)

    def choose() -> bool:
        """Again until the script of the new page runs and no refresh comes between."""
        if not good.is_checked():
            page.keyboard.press("j")
            page.keyboard.press("x")
        return good.is_checked()

    until(choose)
    assert page.get_by_role("button", name="Compare").is_visible()
    page.keyboard.press("Enter")
    opened("/jobs/good$")
    page.keyboard.press("2")
    opened("/jobs/good/metrics")
    page.keyboard.press("]")
    opened("/jobs/good/ranks")
    page.keyboard.press("Control+k")
    page.keyboard.type("restart bad")
    page.wait_for_selector("[aria-selected=true] >> text=restart bad")
    page.keyboard.press("Enter")
    opened("/do/restart.job=bad")
    page.keyboard.press("?")
    box = page.get_by_role("checkbox", name="single keys too")
    box.uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.keyboard.press("Control+k")
    page.keyboard.type("exact")
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.times") == "exact"
    assert "/do/restart" in page.url, "single keys are off"
    signed_in.ok()


def test_a_failed_job_is_explained_first(site: Site, signed_in: Watched) -> None:
    signed_in.go(f"{site.url}/ui/jobs/bad")
    panel = signed_in.page.locator(".failed.panel")
    text = panel.inner_text()
    assert "ValueError: shapes (3, 4) and (5,) differ" in text
    assert "check train.py:7" in text
    assert "from good, the last job that completed" in text
    panel.locator("a", has_text="log of rank").click()
    signed_in.page.wait_for_selector("#log .error")
    signed_in.ok()


def test_a_running_job_is_shown_live(site: Site, signed_in: Watched, running: str) -> None:
    """Metrics, output and the end arrive without a reload."""
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/jobs/{running}")
    page.wait_for_selector("#nodes .node.RUNNING")
    signed_in.go(f"{site.url}/ui/computes")
    assert running in page.locator(".run").all_inner_texts()[0]
    signed_in.go(f"{site.url}/ui/jobs/{running}/logs?rank=1")
    page.wait_for_selector("#log div")
    seen = page.locator("#log div").count()
    until(lambda: page.evaluate(f"document.querySelectorAll('#log div').length > {seen + 3}"))
    signed_in.go(f"{site.url}/ui/jobs/{running}/logs?rank=all")
    until(lambda: page.evaluate("document.querySelector('#log').innerText.includes('[1] step')"))
    signed_in.go(f"{site.url}/ui/jobs/{running}/stacks")
    page.get_by_text("Take stacks now").click()
    page.wait_for_selector("details pre")
    assert "train.py" in page.locator("details pre").first.inner_text()
    signed_in.go(f"{site.url}/ui/jobs/{running}")
    site.allranks("job", "cancel", running)
    page.wait_for_selector("#head .status.Canceled", timeout=60_000)
    signed_in.ok()


def test_a_live_page_takes_few_bytes(site: Site, signed_in: Watched, running: str) -> None:
    """Only new points, and pages compressed, without their forms' secret, which stays in the page
    that is open."""
    page = signed_in.page
    protocol = page.context.new_cdp_session(page)
    protocol.send("Network.enable")
    sizes: list[int] = []
    protocol.on("Network.dataReceived", lambda each: sizes.append(each["encodedDataLength"]))
    refreshes: list[Any] = []
    page.on(
        "response",
        lambda each: "x-allranks-refresh" in each.request.headers and refreshes.append(each),
    )
    for place in ("/", f"/jobs/{running}/metrics"):
        signed_in.go(f"{site.url}/ui{place}")
        refreshes.clear()
        until(lambda: page.evaluate("1") and len(refreshes) >= 2)
        sizes.clear()
        page.wait_for_timeout(6000)
        assert 0 < sum(sizes) < 60_000, place
    steps = "document.querySelector('#charts .plot').data[0].x"
    before = len(page.evaluate(steps))
    until(lambda: page.evaluate(f"{steps}.length") > before + 10)
    drawn = page.evaluate(steps)
    assert drawn == [*range(len(drawn))], "no point twice, and none left out"
    answer = refreshes[-1]
    assert answer.headers["content-encoding"] == "gzip"
    secret = page.locator("input[name=forms]").last.input_value()
    assert secret
    assert secret not in answer.text()
    values = "[...document.querySelectorAll('input[name=forms]')].map((each) => each.value)"
    assert set(page.evaluate(values)) == {secret}
    signed_in.ok()


def test_what_comes_while_a_page_is_open(site: Site, signed_in: Watched) -> None:
    """Opened before there is anything to see."""
    (site.code / "late.py").write_text(
        "import os, time\nwhile not os.path.exists(os.environ['GO']): time.sleep(0.05)\n"
        "for n in range(600): print('late:', n, flush=True); time.sleep(0.1)\n"
    )
    go = site.home.parent / "go"
    words = ("run", "--detach", "--name", "late", "--env", f"GO={go}", "-m", r"late=late: (\d+)")
    assert site.allranks(*words, "--", "python", "late.py").returncode == 0
    signed_in.go(f"{site.url}/ui/jobs/late")
    signed_in.page.wait_for_selector("text=No metric has arrived yet.")
    other = signed_in.page.context.new_page()
    other.goto(f"{site.url}/ui/jobs/late/metrics")
    other.wait_for_selector("text=This job has no metrics yet.")
    go.touch()
    signed_in.page.wait_for_selector("#metrics td", timeout=60_000)
    other.wait_for_selector("#charts .gtitle", timeout=60_000)
    site.allranks("job", "cancel", "late")
    signed_in.page.wait_for_selector("#head .status.Canceled", timeout=60_000)
    signed_in.ok()


def test_the_buttons(site: Site, signed_in: Watched, running: str) -> None:
    """Each says what it does, names the command line, and does it."""
    page = signed_in.page

    def click(name: str) -> None:
        page.locator(".actions").get_by_role("link", name=name, exact=True).click()

    def confirm() -> None:
        page.locator("main form.panel button").click()
        page.wait_for_load_state("load")

    signed_in.go(f"{site.url}/ui/jobs/{running}")
    click("Tag")
    page.fill("input[name=text]", "team=vision stage='a b'")
    confirm()
    tags = answer(site.allranks, "job", "show", running)["tags"]
    assert tags == {"team": "vision", "stage": "a b"}
    click("Cancel")
    assert f"allranks job cancel {running}" in page.locator("main").inner_text()
    confirm()
    answer(site.allranks, "job", "wait", running, code=1)
    signed_in.go(f"{site.url}/ui/jobs/{running}")
    click("Archive")
    confirm()
    assert answer(site.allranks, "job", "show", running)["archived_at"]
    click("Restore")
    confirm()
    assert not answer(site.allranks, "job", "show", running)["archived_at"]
    click("Delete")
    confirm()
    assert page.url == f"{site.url}/ui/"
    assert site.allranks("job", "show", running).returncode == 2
    signed_in.go(f"{site.url}/ui/jobs/good")
    click("Register a model")
    page.fill("input[name=text]", "net")
    page.fill("input[name=path]", "outputs/a.json")
    confirm()
    assert answer(site.allranks, "model", "show", "net")["job"] == "good"
    assert page.url == f"{site.url}/ui/assets/models/net:1"
    signed_in.go(f"{site.url}/ui/jobs/good")
    click("Restart")
    page.fill("textarea[name=set]", "tags.from=page\nenvironment_variables.PAUSE=a=b")
    confirm()
    name = page.url.rpartition("/")[2]
    again = answer(site.allranks, "job", "wait", name)
    assert again["status"] == "Completed"
    assert again["tags"]["from"] == "page"
    assert again["spec"]["environment_variables"] == {"PAUSE": "a=b"}
    signed_in.ok()


def test_several_jobs_at_once(site: Site, signed_in: Watched) -> None:
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/")
    for name in ("good", "bad"):
        page.get_by_label(f"Choose {name}", exact=True).check()
    page.get_by_role("button", name="Compare").click()
    page.wait_for_selector("text=What differs")
    assert "RANK_EXITED" in page.locator("main").inner_text()
    signed_in.go(f"{site.url}/ui/?name=nosuch")
    assert "No job matches" in page.locator("#list").inner_text()
    signed_in.ok()


def test_filters_live_in_the_address(site: Site, signed_in: Watched) -> None:
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/")
    page.select_option("select[name=status]", "Failed")
    page.wait_for_url(re.compile("status=Failed"))
    shown = page.locator("tbody td.name a").all_inner_texts()
    assert "bad" in shown
    assert "good" not in shown
    signed_in.go(f"{site.url}/ui/?sort=-loss")
    assert (
        page.locator("select[name=sort] option:checked").inner_text() == "last loss, greatest first"
    )
    row = page.get_by_role("row", name="Choose sweep", exact=False)
    assert re.search(r"best\s+loss\s+0.33", row.inner_text()), "a sweep has its best"
    page.select_option("select[name=sort]", "best loss, greatest first")
    page.wait_for_url(re.compile("sort=-best.loss"))
    assert re.search(r"best\s+loss\s+1\b", row.inner_text()), "of its whole history"
    signed_in.go(f"{site.url}/ui/jobs/good/metrics?log=on&smooth=0.5&find=loss")
    page.wait_for_selector(".chart .gtitle")
    assert page.locator("#charts .chart").count() == 1
    page.fill("input[name=find]", "acc")
    page.wait_for_url(re.compile("find=acc"))
    assert page.locator("#charts .plot").get_attribute("data-name") == "acc"
    signed_in.ok()


def test_the_list_begins_with_what_needs_the_reader(
    site: Site, signed_in: Watched, running: str
) -> None:
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/")
    news = page.locator("#news")
    assert "shapes (3, 4) and (5,) differ" in news.inner_text()
    assert running in news.locator(".panel:has-text('Running')").inner_text()
    news.get_by_role("link", name="Failed").click()
    page.wait_for_url(re.compile("mine=true.*status=Failed.*since_visit=true"))
    assert "bad" in page.locator("td.name a").all_inner_texts()
    assert news.inner_text() == "", "only above the whole list"
    signed_in.ok()


def test_columns_are_chosen_and_sort_the_list(site: Site, signed_in: Watched) -> None:
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/?status=Completed&status=Failed")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("checkbox", name="loss").check()
    page.get_by_role("button", name="Show columns").click()
    page.wait_for_url("**column=loss**")
    assert page.get_by_role("columnheader", name="loss").is_visible()
    page.get_by_role("columnheader", name="loss").get_by_role("link").click()
    page.wait_for_url("**sort=-loss**")
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("loss")
    page.get_by_role("columnheader", name="loss").get_by_role("link").click()
    page.wait_for_url("**sort=loss**")
    values = page.locator("tr:not(.below-others) > td.own").all_inner_texts()
    numbers = [float(value.split()[-1]) for value in values if value]
    assert numbers == sorted(numbers)
    signed_in.go(f"{site.url}/ui/")  # kept for the reader
    assert page.get_by_role("columnheader", name="loss").is_visible()
    signed_in.go(f"{site.url}/ui/?column=")
    assert page.get_by_role("columnheader", name="loss").count() == 0
    signed_in.ok()


def test_a_search_in_a_log(site: Site, signed_in: Watched) -> None:
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/jobs/bad/logs?rank=0")
    page.fill("#search input[name=text]", "LOSS")
    page.get_by_role("button", name="Find").click()
    until(lambda: page.evaluate("document.getElementById('found').innerText === '3 lines'"))
    page.fill("#search input[name=text]", "")
    page.select_option("#search select", "error")
    page.get_by_role("button", name="Find").click()
    until(lambda: "ValueError" in page.locator("#matches").inner_text())
    assert "step 0 loss" not in page.locator("#matches").inner_text()
    signed_in.ok()


def test_a_search_in_all_ranks(site: Site, signed_in: Watched) -> None:
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/jobs/good/logs?rank=all")
    page.fill("#search input[name=text]", "LOSS 0.0500")
    page.get_by_role("button", name="Find").click()
    until(lambda: page.locator("#found").inner_text() == "2 lines")
    found = page.locator("#matches").inner_text().splitlines()
    assert found == [f"[{rank}] step 19 loss 0.0500 acc 0.950" for rank in range(2)]
    signed_in.ok()


def test_all_files_at_once(site: Site, signed_in: Watched) -> None:
    signed_in.go(f"{site.url}/ui/jobs/good/files?find=outputs")
    with signed_in.page.expect_download() as waited:
        signed_in.page.get_by_text("Download these as ZIP").click()
    with zipfile.ZipFile(waited.value.path()) as archive:
        assert archive.testzip() is None
        assert archive.read("artifacts/outputs/a.csv") == b"x,y\n1,2\n"
        assert not [each for each in archive.namelist() if "outputs" not in each]


def test_zooming_brings_the_points_between(site: Site, signed_in: Watched) -> None:
    script = "import time\nfor n in range(6000): print('zoom:', n, flush=True); time.sleep(0.001)"
    words = ("run", "--name", "many", "-q", "-m", r"zoom=zoom: (\d+)", "--", "python", "-c", script)
    assert site.allranks(*words).returncode == 0
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/jobs/many/metrics")
    page.wait_for_selector(".chart .gtitle")
    box = "document.querySelector('#charts .plot')"
    inside = f"{box}.data[0].x.filter((x) => x >= 4000 && x <= 4100).length"
    assert page.evaluate(inside) < 50
    span = "{'xaxis.range[0]': 4000, 'xaxis.range[1]': 4100}"
    page.evaluate(f"Plotly.relayout({box}, {span})")
    until(lambda: page.evaluate(inside) == 101)
    page.evaluate(f"Plotly.relayout({box}, 'xaxis.autorange', true)")
    until(lambda: page.evaluate(inside) < 50)
    signed_in.ok()


def test_how_work_scales(site: Site, signed_in: Watched) -> None:
    signed_in.go(f"{site.url}/ui/compare?job=good&job=one")
    text = signed_in.page.locator("main").inner_text()
    assert "Scaling by nodes" in text
    assert "Efficiency" in text
    signed_in.go(f"{site.url}/ui/compare?job=good&job=bad")
    assert "Scaling" not in signed_in.page.locator("main").inner_text()


def test_what_made_it_and_who_uses_it(site: Site, signed_in: Watched) -> None:
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/jobs/one/details")
    page.get_by_role("link", name="azureml:numbers:1").click()
    assert page.locator("h1").inner_text() == "numbers:1"
    page.get_by_role("link", name="one", exact=True).click()
    until(lambda: page.locator(".timeline .checkpoint").count() == 1)
    assert "1 checkpoint" in page.locator("#timeline").inner_text()
    signed_in.ok()


def test_a_guessed_address_leads_to_the_page(site: Site, signed_in: Watched) -> None:
    page = signed_in.page
    signed_in.go(f"{site.url}/jobs/good")
    assert page.url == f"{site.url}/ui/jobs/good"
    page.goto(f"{site.url}/nosuch")
    assert page.locator("h1").inner_text() == "That did not work"
    answer = page.request.get(f"{site.url}/api/v1/jobs", headers={"accept": "text/html"})
    assert answer.status == 401


def test_every_version_of_an_asset_is_reachable(site: Site, signed_in: Watched) -> None:
    """From the list, with its label, its date, and the jobs that use it."""
    page = signed_in.page
    for text in ("a", "b", "c"):
        (site.code / f"birds-{text}").write_text(text)
        words = ("data", "create", "birds", "--path", f"birds-{text}", "--label", f"is-{text}")
        assert site.allranks(*words).returncode == 0
    made = site.allranks("run", "--name", "watcher", "-i", "b=azureml:birds:1", "-q", "--", "true")
    assert made.returncode == 0, made.stderr
    for name in ("good", "one"):
        made = site.allranks("model", "register", "grown", "--job", name, "--path", "outputs")
        assert made.returncode == 0, made.stderr
    signed_in.go(f"{site.url}/ui/assets/data")
    page.get_by_role("row", name="birds").get_by_role("link", name="3", exact=True).click()
    versions = page.get_by_role("region", name="Versions").locator("tbody tr")
    cells = [each.locator("td").all_inner_texts() for each in versions.all()]
    assert [(each[0], each[1], each[4]) for each in cells] == [
        ("3", "is-c", "0 jobs"),
        ("2", "is-b", "0 jobs"),
        ("1", "is-a", "1 job"),
    ]
    page.get_by_role("link", name="1 job", exact=True).click()
    assert page.locator("h1").inner_text() == "Jobs that use birds:1"
    assert page.locator("td.name a").all_inner_texts() == ["watcher"]
    page.fill("input[name=name]", "watch")
    page.keyboard.press("Enter")
    page.wait_for_url("**name=watch*uses=birds*")
    assert page.locator("td.name a").all_inner_texts() == ["watcher"]
    signed_in.go(f"{site.url}/ui/assets/models/grown")
    rows = page.get_by_role("region", name="Versions").locator("tbody tr").all_inner_texts()
    assert ["one" in rows[0], "good" in rows[1]] == [True, True]
    versions.last.get_by_role("link", name="1", exact=True).click()
    page.wait_for_url("**/models/grown*1")
    signed_in.ok()


def test_a_model_says_what_it_is_made_of_in_words(site: Site, signed_in: Watched) -> None:
    made = site.allranks("model", "register", "words", "--job", "good", "--path", "outputs")
    assert made.returncode == 0, made.stderr
    signed_in.go(f"{site.url}/ui/assets/models/words:1")
    text = signed_in.page.locator("main").inner_text()
    assert re.search(r"experiment\s+code\s+status\s+Completed\s+attempt\s+1", text)
    assert not re.search(r"[{}]", text)


def test_a_job_without_outputs_is_restarted_rather_than_registered(
    site: Site, signed_in: Watched
) -> None:
    assert site.allranks("run", "--name", "bare", "-q", "--", "true").returncode == 0
    for name, main in (("bare", "Restart"), ("good", "Register a model")):
        signed_in.go(f"{site.url}/ui/jobs/{name}")
        assert signed_in.page.locator(".actions .primary").inner_text() == main
        assert signed_in.page.get_by_role("link", name="Register").count() == (name == "good")


def test_the_command_of_a_restart_changes_a_value_that_the_job_has(
    site: Site, signed_in: Watched
) -> None:
    for name, option in (("good", ""), ("one", " --set inputs.numbers.path=azureml:numbers:1")):
        signed_in.go(f"{site.url}/ui/do/restart?job={name}")
        command = signed_in.page.locator("main > p code").inner_text()
        assert command == f"allranks job restart {name}{option}"


def test_the_plan(site: Site, signed_in: Watched) -> None:
    signed_in.go(f"{site.url}/ui/jobs/good/details")
    text = signed_in.page.locator("main").inner_text()
    assert "What each rank gets" in text
    assert re.search(r"RANK\s+\{rank\}", text)
    assert "WORLD_SIZE" not in text
    signed_in.page.get_by_text("variables that all ranks share").click()
    assert re.search(r"WORLD_SIZE\s+2", signed_in.page.locator("main").inner_text())


def test_the_job_file_and_events_in_words(site: Site, signed_in: Watched) -> None:
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/jobs/bad/details")
    written = yaml.safe_load(
        page.locator("section", has_text="As it was submitted").locator("pre").inner_text()
    )
    assert written["command"] == "python train.py 3 0 fail"
    last = page.locator("#events tbody tr").last.locator("td").all_inner_texts()
    assert re.fullmatch(r"\d+\.\d s", last[0])
    assert last[1:3] == ["the job has ended", ""]
    assert "status Failed" in last[3]
    for link, key in (("As JSON", "command"), ("All as JSON", "kind")):
        address = page.get_by_role("link", name=link, exact=True).get_attribute("href")
        answer = page.request.get(f"{site.url}{address}").json()
        assert key in (answer[0] if isinstance(answer, list) else answer)
    signed_in.ok()


def test_a_server_that_goes_away_and_comes_back(site: Site, signed_in: Watched) -> None:
    """The page says so and goes on."""
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/")
    page.wait_for_timeout(500)
    assert site.allranks("server", "stop").returncode == 0
    page.wait_for_selector("#offline:not([hidden])", timeout=60_000)
    assert site.allranks("server", "start").returncode == 0
    page.wait_for_selector("#offline", state="hidden", timeout=60_000)
    name = "after-" + str(id(page))
    assert site.allranks("run", "--name", name, "-q", "--", "true").returncode == 0
    until(lambda: page.get_by_text(name, exact=True).count() == 1)


def test_what_changed_in_the_code(site: Site, signed_in: Watched) -> None:
    file = site.code / "part.py"
    for number, text in enumerate(("a = 1\nb = 2\n", "a = 1\nb = '<i>'\n")):
        file.write_text(text)
        assert site.allranks("run", "--name", f"code{number}", "-q", "--", "true").returncode == 0
    signed_in.go(f"{site.url}/ui/jobs/code1/code")
    signed_in.page.fill("input[name=against]", "code0")
    signed_in.page.get_by_role("button", name="Compare").click()
    signed_in.page.get_by_role("listitem").get_by_role("link", name="part.py").click()
    lines = signed_in.page.locator(".diff").inner_text().splitlines()
    assert lines[2:6] == ["@@ -1,2 +1,2 @@", " a = 1", "-b = 2", "+b = '<i>'"]
    signed_in.ok()
