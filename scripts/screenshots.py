"""Take the pictures of docs/how-to/page.md: run the digits example, and look at it in Chromium.

.venv/bin/python scripts/screenshots.py       (needs torch, scikit-learn, pillow and Chromium)
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "examples/digits"
METRICS = ("-m", r"loss=epoch (?P<step>\d+).*loss (?P<value>\S+)", "-m", r"speed=(\S+) images/s")
METRICS += ("-m", r"accuracy=validation accuracy (\S+)")
TRAIN = ("python", "train.py", "--data", "${{inputs.data}}", "--epochs", "4")
# Name, address, and the height of the picture.
PICTURES = (
    ("page-failed", "/jobs/digits-2", 760),
    ("page-metrics", "/jobs/digits-1/metrics", 900),
    ("page-sweep", "/jobs/rates", 620),
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
            )
        finally:
            allranks("server", "stop")


def _take(link: str, url: str, home: Path) -> None:
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 700}, locale="en-GB")
        page.goto(link)
        for name, path, height in PICTURES:
            page.set_viewport_size({"width": 1100, "height": height})
            page.goto(f"{url}/ui{path}")
            page.wait_for_timeout(2500)
            # The reader's own folders would stand where this machine's do.
            page.evaluate(
                """(paths) => document.querySelectorAll("pre, strong").forEach((each) => {
                    for (const [path, name] of paths)
                        each.textContent = each.textContent.replaceAll(path, name);
                })""",
                [[sys.prefix, "/home/ann/.venv"], [str(home), "/home/ann/.allranks"]],
            )
            page.screenshot(path=ROOT / f"docs/how-to/{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
