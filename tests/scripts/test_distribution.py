"""What `python -m build` makes: a wheel with all that the package needs, and an sdist that builds
the same wheel. The wheel is installed in an empty environment and used far from this checkout.

Installing takes the packages that allranks depends on from a package index, or from uv's cache.
"""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from allranks.version import __version__
from tests.support import PATIENCE, environment, leave_nothing

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "allranks"

pytestmark = pytest.mark.slow


def build(*options: object, source: Path = ROOT) -> None:
    """The tools are those of this environment, so that nothing is fetched."""
    argv = [sys.executable, "-m", "build", "--no-isolation", *map(str, options), str(source)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build("--wheel", "--outdir", folder)
    (path,) = folder.iterdir()
    return path


def record(wheel: Path) -> set[str]:
    """The files of a wheel, each with its hash and size."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"allranks-{__version__}.dist-info/RECORD").decode()
    return set(text.splitlines())


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    listed = ["git", "ls-files", "-co", "--exclude-standard", "--deduplicate", "."]
    done = subprocess.run(listed, cwd=PACKAGE, capture_output=True, text=True, check=True)
    expected = {
        f"allranks/{name}" for name in done.stdout.splitlines() if (PACKAGE / name).exists()
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name for name in names if not name.startswith(f"allranks-{__version__}.")} == expected


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    build("--sdist", "--outdir", tmp_path)
    (sdist,) = tmp_path.iterdir()
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    build("--wheel", "--outdir", tmp_path, source=tmp_path / f"allranks-{__version__}")
    (other,) = tmp_path.glob("*.whl")
    assert other.name == wheel.name
    assert record(other) == record(wheel)


@pytest.mark.end_to_end
def test_the_first_job_takes_two_commands_without_a_checkout(wheel: Path, tmp_path: Path) -> None:
    """The README's first lines, with the wheel instead of the checkout; then the page."""
    first = re.search(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert first is not None
    install, run = first[1].splitlines()
    assert install == "pip install -e ."
    home, folder, venv = tmp_path / "home", tmp_path / "elsewhere", tmp_path / "venv"
    folder.mkdir()
    env = environment(home) | {
        "VIRTUAL_ENV": str(venv),
        "PATH": f"{venv}/bin:/usr/local/bin:/usr/bin:/bin",
    }
    env.pop("PYTHONPATH", None)

    def output(*argv: object) -> str:
        done = subprocess.run(
            [*map(str, argv)],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=180 * PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    output(sys.executable, "-m", "venv", "--without-pip", venv)
    # As pip does, in a tenth of the time.
    output(Path(sys.prefix, "bin", "uv"), "pip", "install", "-q", f"{wheel}[ui]")
    used = output("python", "-c", "import allranks; print(allranks.__file__)").strip()
    assert Path(used).is_relative_to(venv)
    assert output("allranks", "--version") == f"allranks {__version__}\n"
    try:
        assert "rank 2 of 3, meet at 127." in output("bash", "-c", run)
        address = output("allranks", "ui", "-", "--print-url").strip()
        with httpx.Client(follow_redirects=True) as browser:
            page = browser.get(address)
            assert page.status_code == 200
            assert "/ui/jobs/" in str(page.url)
            assets = set(re.findall(r'(?:src|href)="(/ui/static/[^"]+)"', page.text))
            assert {re.sub(r".*\.|\?.*", "", each) for each in assets} >= {"css", "js", "svg"}
            for each in sorted(assets):
                answer = browser.get(urljoin(address, each))
                assert (answer.status_code, bool(answer.content)) == (200, True), each
    finally:
        output("allranks", "server", "stop")
        leave_nothing(home)
