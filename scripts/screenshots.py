"""Take the pictures of docs/how-to/page.md and docs/design/page.md: run the digits example, and
look at it in Chromium.

.venv/bin/python scripts/screenshots.py          (needs torch, scikit-learn, pillow and Chromium)
.venv/bin/python scripts/screenshots.py before   only those of the design, of code that is to change
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "examples/digits"
METRICS = ("-m", r"loss=epoch (?P<step>\d+).*loss (?P<value>\S+)", "-m", r"speed=(\S+) images/s")
METRICS += ("-m", r"accuracy=validation accuracy (\S+)")
TRAIN = ("python", "train.py", "--data", "${{inputs.data}}", "--epochs", "4")


class Picture(NamedTuple):
    """A page as a file below docs. Phones are 390 pixels wide."""

    file: str
    path: str
    width: int
    height: int
    scheme: Literal["light", "dark"] = "light"


GUIDE = (
    Picture("how-to/page-failed", "/jobs/digits-2", 1100, 760),
    Picture("how-to/page-metrics", "/jobs/digits-1/metrics", 1100, 900),
    Picture("how-to/page-sweep", "/jobs/rates", 1100, 620),
)
DESIGN = (
    Picture("design/page/{}-jobs", "/", 1100, 560),
    Picture("design/page/{}-failed-dark", "/jobs/digits-2", 1100, 620, "dark"),
    Picture("design/page/{}-jobs-390", "/", 390, 760),
    Picture("design/page/{}-failed-390", "/jobs/digits-2", 390, 760),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home, data = Path(folder, "home"), Path(folder, "digits")
        env = {**os.environ, "ALLRANKS_HOME": str(home), "PYTHONWARNINGS": "ignore"}
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        env["VIRTUAL_ENV"] = sys.prefix

        def allranks(*words: str, code: int = 0) -> str:
            done = subprocess.run(
                ["allranks", *words], cwd=DIGITS, env=env, capture_output=True, text=True
            )
            assert done.returncode == code, done.stderr
            return done.stdout

        subprocess.run([sys.executable, DIGITS / "make_data.py", data], check=True)
        run = ("run", "-q", "--experiment", "digits", "-i", f"data={data}", *METRICS)
        try:
            allranks(*run, "--name", "digits-1", "-n", "2", "--", *TRAIN)
            wrong = (*TRAIN, "--batch-size", "0")
            allranks(*run, "--name", "digits-2", "-n", "2", "--", *wrong, code=1)
            sweep = ("--sweep", "lr=loguniform(1e-4,1e-1)", "--sweep", "batch=choice(16,64)")
            sweep += ("--trials", "5", "--seed", "1", "--maximize", "accuracy")
            given = ("--lr", "${{search_space.lr}}", "--batch-size", "${{search_space.batch}}")
            allranks(*run, *sweep, "--name", "rates", "--", *TRAIN, *given)
            _take(
                allranks("ui", "--print-url").strip(),
                json.loads(allranks("server", "status", "--json"))["url"],
                home,
                sys.argv[1] if len(sys.argv) > 1 else "after",
            )
        finally:
            allranks("server", "stop")


def _take(link: str, url: str, home: Path, when: str) -> None:
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(locale="en-GB")
        page.goto(link)
        for picture in (*DESIGN, *(GUIDE if when == "after" else ())):
            page.set_viewport_size({"width": picture.width, "height": picture.height})
            page.emulate_media(color_scheme=picture.scheme)
            page.goto(f"{url}/ui{picture.path}")
            page.wait_for_timeout(2500)
            # The reader's own folders would stand where this machine's do.
            page.evaluate(
                """(paths) => document.querySelectorAll("pre, strong").forEach((each) => {
                    for (const [path, name] of paths)
                        each.textContent = each.textContent.replaceAll(path, name);
                })""",
                [[sys.prefix, "/home/ann/.venv"], [str(home), "/home/ann/.allranks"]],
            )
            file = ROOT / "docs" / f"{picture.file.format(when)}.png"
            # As small as it looks the same: pages have few colours.
            drawn = Image.open(BytesIO(page.screenshot()))
            drawn.convert("RGB").quantize(96).save(file, optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
