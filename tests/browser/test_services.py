"""Services of a job, opened from its page in a real browser."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import watched
from tests.browser.test_jupyterlab import run_all
from tests.frameworks.environments import environment as frameworks
from tests.support import Allranks, until

# What a service says is a job's: it tries for what is the page's.
HOSTILE = """\
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ("<h1>service</h1><pre>" + (self.headers["Cookie"] or "no cookie") + "</pre>"
                "<script>document.cookie = 'own=1'; localStorage.x = 1;"
                "document.title = document.cookie</script>").encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("set-cookie", "mine=2")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""


def submitted(allranks: Allranks, code: Path, job: dict[str, Any], service: str) -> str:
    (code / "job.yml").write_text(
        json.dumps({"command": "sleep 600", "environment": "current"} | job)
    )
    name = str(json.loads(allranks("job", "create", "-f", "job.yml", "--json").stdout)["name"])

    def runs() -> bool:
        services = json.loads(allranks("job", "show", name, "--json").stdout)["services"]
        return any(one["name"] == service and one["state"] == "Running" for one in services)

    until(runs, seconds=120)
    return name


def opened(page: Any, service: str) -> Any:
    with page.context.expect_page() as others:
        page.locator("#services tr", has_text=service).get_by_role("link").click()
    return others.value


@pytest.mark.slow
def test_a_service_has_an_origin_of_its_own(allranks: Allranks, browser: Any, code: Path) -> None:
    (code / "web.py").write_text(HOSTILE)
    web = {"command": f"exec {sys.executable} web.py"}
    services = {"web": web, "bad": {"command": "exit 3"}}
    name = submitted(allranks, code, {"code": ".", "services": services}, "web")
    with watched(browser) as seen:
        page = seen.page
        seen.go(allranks("ui", name, "--print-url").stdout.strip())
        assert "Failed: exited with code 3" in page.locator("#services").inner_text()
        other = opened(page, "web")
        other.get_by_role("heading", name="service").wait_for()
        assert other.url.startswith("http://service-")
        assert "code=" not in other.url
        assert other.locator("pre").inner_text() == "no cookie"
        other.reload()
        assert other.locator("pre").inner_text() in ("mine=2; own=1", "own=1; mine=2")
        assert "allranks" not in other.title()
        # Without its cookie nobody gets in, and its page may not call ours.
        alone = browser.new_context().new_page()
        assert alone.goto(other.url).status == 403
        call = (
            f"fetch('{page.url}', {{credentials: 'include'}}).then(() => 'read', () => 'refused')"
        )
        assert other.evaluate(call) == "refused"
        assert allranks("job", "cancel", name).returncode == 0
        allranks("job", "wait", name)
        until(lambda: alone.goto(other.url).status == 403 and other.reload().status == 403)
        seen.wrong.clear()


@pytest.mark.slow
@pytest.mark.frameworks
@pytest.mark.timeout(600)
def test_jupyterlab_beside_the_ranks(allranks: Allranks, browser: Any, code: Path) -> None:
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    source = "import os; print('got', 6 * 7, os.environ['MARK'], open('made').read())"
    cell = {"cell_type": "code", "id": "a", "source": source, "metadata": {}, "outputs": []}
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}}
    book["cells"] = [cell | {"execution_count": None}]
    (code / "a.ipynb").write_text(json.dumps(book))
    path = f"{frameworks('notebook') / 'bin'}:/usr/bin:/bin"
    job = {
        "code": ".",
        "command": "echo by the rank >made; sleep 600",
        "environment_variables": {"PATH": path, "MARK": "m7"},
        "services": {"my_jupyter": {"job_service_type": "jupyter_lab"}},
    }
    name = submitted(allranks, code, job, "my_jupyter")
    with watched(browser) as seen:
        seen.go(allranks("ui", name, "--print-url").stdout.strip())
        lab = opened(seen.page, "my_jupyter")
        lab.wait_for_url("**/lab**")
        lab.goto(f"{lab.url.partition('/lab')[0]}/lab/tree/a.ipynb")
        lab.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').wait_for(timeout=120_000)
        until(lambda: run_all(lab), seconds=60)
        lab.get_by_text("got 42 m7 by the rank").wait_for(timeout=60_000)
    allranks("job", "cancel", name)
    allranks("job", "wait", name)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("code-server"), reason="needs code-server on the PATH")
@pytest.mark.timeout(600)
def test_vs_code_beside_the_ranks(
    allranks: Allranks, browser: Any, code: Path, tmp_path: Path
) -> None:
    """Its editor shows and saves a file of the rank's working folder: over its WebSocket."""
    code_server = shutil.which("code-server")
    assert code_server is not None
    job = {
        "code": ".",
        "command": "echo by the rank >made.txt; sleep 600",
        "environment_variables": {
            "PATH": f"{Path(code_server).parent}:/usr/bin:/bin",
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
        },
        "services": {"my_code": {"job_service_type": "vs_code"}},
    }
    name = submitted(allranks, code, job, "my_code")
    with watched(browser) as seen:
        seen.go(allranks("ui", name, "--print-url").stdout.strip())
        editor = opened(seen.page, "my_code")
        made = editor.locator(".explorer-folders-view").get_by_text("made.txt")
        trust = editor.get_by_role("button", name="Yes, I trust the authors")
        editor.add_locator_handler(trust, lambda: trust.click())
        made.dblclick(timeout=120_000)
        lines = editor.locator(".monaco-editor .view-lines")
        lines.get_by_text("by the rank").wait_for(timeout=60_000)
        lines.first.click()
        editor.keyboard.press("Control+Home")
        editor.keyboard.type("seen ")
        editor.keyboard.press("Control+s")
        shown = ("job", "exec", name, "--", "cat", "made.txt")
        until(lambda: allranks(*shown).stdout == "seen by the rank\n", seconds=30)
        seen.wrong.clear()  # its own pages look for what is not there
    allranks("job", "cancel", name)
    allranks("job", "wait", name)
