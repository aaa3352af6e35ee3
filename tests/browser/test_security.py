"""Nothing that a job says runs in the page, and nobody else's page can use it."""

import json
from typing import Any

import httpx
import pytest

from tests.browser.conftest import Site, Watched, watched
from tests.support import answer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_CALL = "window.pwned=1"
# Each would set window.pwned if it were taken for HTML, a script or an address.
HOSTILE = [
    f"<script>{_CALL}</script>",
    f"</script><script>{_CALL}</script>",
    f"<img src=x onerror={_CALL}>",
    f'"><img src=x onerror={_CALL}>',
    f"'><img src=x onerror={_CALL}>",
    f"<svg onload={_CALL}>",
    f"<svg><script>{_CALL}</script></svg>",
    f"<iframe srcdoc='<script>parent.{_CALL}</script>'></iframe>",
    f"<iframe src=javascript:parent.{_CALL}></iframe>",
    f"<a href=javascript:{_CALL}>x</a>",
    f"javascript:{_CALL}",
    f"data:text/html,<script>{_CALL}</script>",
    f"<body onload={_CALL}>",
    f"<details open ontoggle={_CALL}>",
    f"<input autofocus onfocus={_CALL}>",
    f"<video><source onerror={_CALL}></video>",
    f"<math><mtext></mtext><script>{_CALL}</script></math>",
    f"<style>@import'javascript:{_CALL}'</style>",
    f"<link rel=stylesheet href=javascript:{_CALL}>",
    f"<object data=javascript:{_CALL}></object>",
    f"<embed src=javascript:{_CALL}>",
    f"<form action=javascript:{_CALL}><button autofocus>x</button></form>",
    f"<base href=javascript:{_CALL}//>",
    f"<meta http-equiv=refresh content='0;javascript:{_CALL}'>",
    f"<marquee onstart={_CALL}>x</marquee>",
    f"<noscript><p title='</noscript><img src=x onerror={_CALL}>'>",
    f"--><script>{_CALL}</script><!--",
    f"]]><script>{_CALL}</script>",
    f"</title><script>{_CALL}</script>",
    f"</textarea><script>{_CALL}</script>",
    f"</pre><script>{_CALL}</script>",
    f"</style><script>{_CALL}</script>",
    f"{{{{constructor.constructor('{_CALL}')()}}}}",
    f"${{{_CALL}}}",
    f"{{% raw %}}<script>{_CALL}</script>",
    f"`-{_CALL}-`",
    f"';{_CALL};'",
    f'";{_CALL};"',
    f"\\';{_CALL};//",
    f"</a><img src=x onerror={_CALL}>",
    f"&lt;img src=x onerror={_CALL}&gt;",
    f"%3Cscript%3E{_CALL}%3C/script%3E",
    f"<ſcript>{_CALL}</ſcript>",
    f"<scr\u0000ipt>{_CALL}</script>".replace("\u0000", ""),
    f"\u202e<script>{_CALL}</script>",
    f"<b onmouseover={_CALL}>bold</b>",
    f"<sup onclick={_CALL}>x</sup>",
    f"<a href='data:text/html,{_CALL}'>x</a>",
    f"<template><script>{_CALL}</script></template>",
    f"<dialog open onclose={_CALL}>x</dialog>",
    f"<select autofocus onfocus={_CALL}>",
    f"<audio src=x onerror={_CALL}>",
    f"<frameset onload={_CALL}>",
    f"<isindex type=image src=1 onerror={_CALL}>",
    f"<x contenteditable onblur={_CALL}>x</x>",
    f"<svg><animate onbegin={_CALL} attributeName=x dur=1s>",
    f"<svg><a xlink:href=javascript:{_CALL}><text y=20>x</text></a></svg>",
    f"<img srcset='x' onerror={_CALL}>",
    f"<p style='background:url(javascript:{_CALL})'>",
    f"\x1b]8;;javascript:{_CALL}\x07x\x1b]8;;\x07",
]
WRITES = """\
import json, os, pathlib
texts = json.load(open("texts.json"))
pathlib.Path("outputs").mkdir(exist_ok=True)
for number, text in enumerate(texts):
    print(f"{text} value {number}", flush=True)
    name = text.replace("/", "_").replace("\\0", "")[:80]
    pathlib.Path("outputs", f"{number} {name}.html").write_text(text)
    pathlib.Path("outputs", f"{number}.csv").write_text(f'"{text}",1\\n')
pathlib.Path("outputs/a.svg").write_text(
    "<svg xmlns='http://www.w3.org/2000/svg'><script>top.pwned=1</script></svg>")
raise ValueError("".join(texts))
"""


def test_nothing_that_a_job_says_runs(site: Site, browser: Any) -> None:
    """60 texts, each in every field that a job controls."""
    assert len(HOSTILE) == 60
    (site.code / "texts.json").write_text(json.dumps(HOSTILE))
    (site.code / "writes.py").write_text(WRITES)
    text = "".join(HOSTILE)
    spec = {
        "command": "python writes.py",
        "display_name": text[:250],
        "description": text,
        "experiment_name": HOSTILE[2][:100],
        "tags": {f"t{number} {each}"[:100]: each for number, each in enumerate(HOSTILE)},
        "properties": {"p": text},
        "environment_variables": {"TEXT": text},
        "metrics": {
            f"m{n} {each}"[:100]: "value (\\d+)"
            for n, each in enumerate(HOSTILE)
            if each.isprintable()
        },
    }
    file = site.code / "hostile.yml"
    file.write_text(json.dumps({**spec, "code": "."}))
    done = site.allranks("job", "create", "-f", file, "--name", "hostile", "--stream", "-q")
    assert "ValueError" in done.stderr + done.stdout, done.stderr
    with watched(browser) as it:
        it.go(site.link())
        it.page.context.add_init_script("window.pwned = 0")
        places = ["", "/metrics", "/logs?rank=0", "/files", "/details", "/stacks"]
        places += ["/logs?rank=0&text=%3Cscript%3Ewindow.pwned=1%3C/script%3E"]
        found = answer(site.allranks, "job", "files", "hostile")
        files = found["files"] if isinstance(found, dict) else found
        paths = [each["path"] for each in files]
        for place in places:
            it.go(f"{site.url}/ui/jobs/hostile{place}")
            it.page.wait_for_timeout(700)
            assert not it.page.evaluate("window.pwned"), place
        for path in [*paths[:6], *[p for p in paths if p.endswith((".svg", "1.csv"))]]:
            it.go(f"{site.url}/ui/jobs/hostile/files?{httpx.QueryParams(path=path)}")
            it.page.wait_for_timeout(200)
            assert not it.page.evaluate("window.pwned"), path
            it.go(f"{site.url}/ui/jobs/hostile/file?{httpx.QueryParams(path=path, show=1)}")
            assert not it.page.evaluate("window.pwned"), path
        for place in (f"/?{httpx.QueryParams(name=HOSTILE[3], tag=HOSTILE[0])}", "/"):
            it.go(f"{site.url}/ui{place}")
            assert not it.page.evaluate("window.pwned"), place
        wrong = [each for each in it.wrong if "dialog" in each or "error:" in each]
        assert not wrong, wrong


@pytest.fixture
def client(site: Site) -> Any:
    """A browser's requests by hand, signed in as the owner."""
    with httpx.Client(base_url=site.url) as found:
        assert found.get(site.link()).status_code == 303
        yield found


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
def test_another_sites_page_is_refused(client: httpx.Client, method: str) -> None:
    cross = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    for path in ("/ui/", "/ui/jobs/good", "/ui/do/cancel?job=good", "/ui/sign-out"):
        assert client.request(method, path, headers=cross).status_code == 403
        framed = {**cross, "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
        assert client.request(method, path, headers=framed).status_code == 403
        origin = {"origin": "http://evil.example"}
        assert client.request(method, path, headers=origin).status_code == 403
        rebound = {"host": "evil.example"}
        assert client.request(method, path, headers=rebound).status_code == 403


def test_a_link_from_another_site_works(client: httpx.Client) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    headers["sec-fetch-dest"] = "document"
    assert client.get("/ui/jobs/good", headers=headers).status_code == 200


def test_a_form_without_the_pages_secret_is_refused(client: httpx.Client, site: Site) -> None:
    for form in ({}, {"forms": "x"}, {"forms": ""}):
        answered = client.post("/ui/do/delete", data={"job": "good", **form})
        assert answered.status_code == 403
        assert client.post("/ui/sign-out", data=form).status_code == 403
    assert answer(site.allranks, "job", "show", "good")["status"] == "Completed"


def test_the_headers(client: httpx.Client) -> None:
    answered = client.get("/ui/")
    policy = answered.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answered.headers["x-content-type-options"] == "nosniff"
    path = "artifacts/outputs/b.html"
    shown = client.get("/ui/jobs/good/file", params={"path": path, "show": 1})
    assert shown.headers["content-security-policy"].startswith("sandbox;")
    saved = client.get("/ui/jobs/good/file", params={"path": path})
    assert saved.headers["content-disposition"].startswith("attachment")


def test_a_link_signs_in_once(site: Site) -> None:
    link = site.link()
    with httpx.Client() as first, httpx.Client() as second:
        cookie = first.get(link).headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        answered = second.get(link)
        assert answered.status_code == 401
        assert "used already" in answered.text
        assert "set-cookie" not in answered.headers


def test_without_signing_in(site: Site) -> None:
    with httpx.Client(base_url=site.url) as client:
        html = {"accept": "text/html"}
        sent = client.get("/ui/jobs/good?x=1", headers=html)
        assert sent.status_code == 303
        assert sent.headers["location"] == "/ui/sign-in?back=%2Fui%2Fjobs%2Fgood%3Fx%3D1"
        assert client.get("/ui/jobs/good/metrics.json").status_code == 401
        for back in ("//evil.example", "https://evil.example", "/\\evil.example", "/ui/\\evil"):
            token = (site.home / "token").read_text().strip()
            place = f"/ui/sign-in?{httpx.QueryParams(back=back)}"
            answered = client.post(place, data={"token": token})
            assert answered.headers["location"] == "/ui/", back
        wrong = client.post("/ui/sign-in", data={"token": "wrong"})
        assert wrong.status_code == 401
        client.cookies.set(f"allranks_{site.url.rpartition(':')[2]}", "forged")
        assert client.get("/ui/", headers=html).status_code == 303


def test_a_reader_sees_no_button_that_would_be_refused(site: Site, browser: Any) -> None:
    made = answer(site.allranks, "server", "token", "create", "eve", "--role", "reader")
    with watched(browser) as it:
        it.go(f"{site.url}/ui/")
        it.page.fill("input[name=token]", made["token"])
        it.page.get_by_role("button", name="Sign in").click()
        it.page.wait_for_selector("text=(reader)")
        for place in ("/", "/jobs/good", "/jobs/sweep", "/jobs/pipe"):
            it.go(f"{site.url}/ui{place}")
            assert it.page.locator("a[href*='/ui/do/'], [formaction*='/ui/do/']").count() == 0
        it.ok()
        # A token that is revoked signs out at the next look.
        answer(site.allranks, "server", "token", "revoke", "eve")
        it.go(f"{site.url}/ui/jobs/good")
        assert "/ui/sign-in" in it.page.url


def test_a_member_sees_buttons_of_their_own_jobs(site: Site, browser: Any) -> None:
    made = answer(site.allranks, "server", "token", "create", "ann", "--role", "member")
    env = {"ALLRANKS_SERVER": site.url, "ALLRANKS_TOKEN": made["token"]}
    done = site.allranks("run", "--name", "anns", "-q", "--", "true", env=env)
    assert done.returncode == 0, done.stderr
    with watched(browser) as it:
        it.go(site.allranks("ui", "--print-url", env=env).stdout.strip())
        it.page.wait_for_selector("text=(member)")
        for name, shown in (("anns", True), ("good", False)):
            it.go(f"{site.url}/ui/jobs/{name}")
            assert (it.page.locator("a[href*='/ui/do/']").count() > 0) == shown
        it.ok()


def test_signing_out(site: Site, signed_in: Watched) -> None:
    signed_in.go(f"{site.url}/ui/")
    signed_in.page.get_by_role("button", name="Sign out").click()
    signed_in.page.wait_for_url("**/ui/sign-in")
    signed_in.go(f"{site.url}/ui/jobs/good")
    assert "/ui/sign-in" in signed_in.page.url
