"""Folders and previews in a real browser. No file of a job runs anything."""

import json
from typing import Any

import pytest

from tests.browser.conftest import Site, Watched
from tests.browser.test_every_page import _axe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CALL = "window.pwned = 1"
DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
MARKDOWN = f"""\
# Title
<script>{CALL}</script> <img src=x onerror="{CALL}"> [bad](javascript:{CALL}) ![x](https://e.org/x.png)

| a | b |
|---|---|
| 1 | 2 |
"""
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["## Part\\n", f"<script>{CALL}</script>"]},
        {
            "cell_type": "code",
            "source": "plot()",
            "outputs": [
                {
                    "output_type": "display_data",
                    "data": {"image/png": DOT, "text/html": "<b>x</b>"},
                },
                {"output_type": "display_data", "data": {"image/png": f'" onload="{CALL}'}},
                {"output_type": "stream", "text": [f"<b onclick={CALL}>out"]},
                {"output_type": "error", "traceback": ["\\u001b[31mValueError\\u001b[0m"]},
                {
                    "output_type": "execute_result",
                    "data": {"text/html": f"<script>{CALL}</script>"},
                },
                7,
            ],
        },
        "none",
    ]
}
MAKE = f"""\
import base64, json, pathlib
out = pathlib.Path("outputs/deep/er")
out.mkdir(parents=True)
for step in (5, 100, 20):
    (out / f"sample_{{step}}.png").write_bytes(base64.b64decode("{DOT}"))
(out / "a.md").write_text({MARKDOWN!r})
(out / "a.ipynb").write_text({json.dumps(NOTEBOOK)!r})
(out / "bad.ipynb").write_text("[" * 5000)
for number in range(8):  # so many are shown by folder
    (out.parent / f"{{number}}.txt").touch()
(out / "a.wav").write_bytes(b"RIFF" + bytes(40))
(out / "bad.parquet").write_bytes(b"PAR1" + bytes(99) + b"PAR1")
try:
    import pyarrow, pyarrow.parquet
    table = pyarrow.table({{"n": range(5000), "<b>": ["<i>x</i>"] * 5000}})
    pyarrow.parquet.write_table(table, out / "a.parquet", row_group_size=500)
except ImportError:
    pass
"""


def test_folders_and_previews(site: Site, signed_in: Watched) -> None:
    page, base = signed_in.page, f"{site.url}/ui/jobs/files/files"
    page.context.add_init_script("window.pwned = 0")
    (site.code / "make.py").write_text(MAKE)
    done = site.allranks("run", "--name", "files", "-q", "--", "python", "make.py")
    assert done.returncode == 0, done.stderr
    signed_in.go(f"{site.url}/ui/jobs/good/files")  # so few that they need no folders
    assert page.get_by_role("link", name="artifacts/outputs/a.csv", exact=True).count() == 1
    signed_in.go(base)
    for folder in ("artifacts/outputs/deep/", "er/"):
        page.get_by_role("link", name=folder, exact=True).click()
        page.wait_for_load_state("load")
    steps = page.locator(".pictures span").all_inner_texts()
    assert steps == ["step 5", "step 20", "step 100"]

    def shown(name: str) -> Any:
        signed_in.go(f"{base}?path=artifacts/outputs/deep/er/{name}")
        page.evaluate(_axe())
        found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
        assert not found, (name, found[0]["id"], found[0]["nodes"][0]["html"])
        assert not page.evaluate("window.pwned")
        return page.locator("section.panel")

    note = shown("a.md")
    assert note.locator("h3").inner_text() == "Title"
    assert note.locator("td").all_inner_texts() == ["1", "2"]
    assert note.locator("script, img, a[href*=javascript]").count() == 0
    book = shown("a.ipynb")
    assert book.locator("img").count() == 1
    assert book.locator("pre").all_inner_texts()[0] == "plot()"
    assert "ValueError" in book.inner_text()
    assert book.locator("script, b").count() == 0
    assert "[[[" in shown("bad.ipynb").inner_text()
    assert shown("a.wav").locator("audio").count() == 1
    assert "cannot be read" in shown("bad.parquet").inner_text() or not _pyarrow()
    if _pyarrow():
        table = shown("a.parquet")
        assert table.locator("tr").count() == 201
        assert table.locator("tr").nth(2).inner_text().split() == ["1", "<i>x</i>"]
    signed_in.ok()


def _pyarrow() -> bool:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return False
    return True


def test_what_made_a_model_and_who_uses_it(site: Site, signed_in: Watched) -> None:
    words = ("model", "register", "drawn", "--job", "one", "--path", "user_logs")
    assert site.allranks(*words).returncode == 0
    use = "type: custom_model, path: 'azureml:drawn:1'"
    spec = f"name: user-of-drawn\ncommand: test -e ${{{{inputs.m}}}}\ninputs: {{m: {{{use}}}}}\n"
    (site.code / "user.yml").write_text(spec)
    assert site.allranks("job", "create", "-f", "user.yml", "--stream", "-q").returncode == 0
    signed_in.go(f"{site.url}/ui/assets/models/drawn:1")
    graph = signed_in.page.get_by_role("region", name="What made it")
    assert graph.locator("rect").count() == 4
    graph.get_by_role("link", name="user-of-drawn").click()
    signed_in.page.wait_for_url("**/jobs/user-of-drawn")
    signed_in.ok()
