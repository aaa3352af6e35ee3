"""./check --changed: which tests a change can reach."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.changed_tests import Project, reached_by

ROOT = Path(__file__).parents[2]
FILES = {
    "src/allranks/errors.py": "",
    "src/allranks/core/fold.py": "",
    "src/allranks/store/__init__.py": "",
    "src/allranks/store/rows.py": "from typing import TYPE_CHECKING\n"
    "if TYPE_CHECKING:\n    from allranks.server import app",
    "src/allranks/server/__init__.py": "",
    "src/allranks/server/app.py": "def f():\n    from allranks.store import rows",
    "src/allranks/server/endpoints/keeper.py": "",
    "src/allranks/ui/__init__.py": "",
    "src/allranks/ui/pages.py": "",
    "bench/rounds.py": "",
    "tests/conftest.py": "",
    "tests/counting.py": "",
    "tests/stores/conftest.py": "import tests.counting",
    "tests/stores/test_s3.py": "",
    "tests/store/test_rows.py": "import allranks.store.rows",
    "tests/server/test_app.py": "def test(monkeypatch):\n    patch('allranks.server.app.f')",
    "tests/server/test_started.py": "def test(home): ...",
    "tests/cli/test_endpoint.py": "def test(allranks): ...",
    "tests/cli/test_job.py": "class TestIt:\n    @mark.end_to_end\n    def test(self, shared): ...",
    "tests/ui/test_pages.py": "import allranks.ui.pages",
    "tests/bench/test_bench.py": "",
    "tests/docs/test_words.py": "ROOT / 'docs'",
    "tests/spec/test_examples.py": "'examples/a'",
}


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> Project:
    root = tmp_path_factory.mktemp("tree")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Project(root, gone=["allranks.store.gone"])


END = "cli/test_job.py::TestIt::test"


@pytest.mark.parametrize(
    ("path", "reached"),
    [
        # Through others, lazily, by a name in a string; not for types alone.
        ("src/allranks/store/rows.py", {"store/test_rows.py", "server/test_app.py", END}),
        ("src/allranks/server/app.py", {"server/test_app.py", END}),
        # What is started: a test of the command line whose name has a word of the module's.
        ("src/allranks/server/endpoints/keeper.py", {"cli/test_endpoint.py", END}),
        # A package reaches what imports any module in it.
        ("src/allranks/store/__init__.py", {"store/test_rows.py", "server/test_app.py", END}),
        ("src/allranks/ui/templates/a.html", {"ui/test_pages.py", END}),
        ("tests/store/test_rows.py", {"store/test_rows.py"}),
        ("tests/counting.py", {"stores/test_s3.py"}),
        ("tests/stores/some.yaml", {"stores/test_s3.py"}),
        ("bench/rounds.py", {"bench/test_bench.py"}),
        ("docs/index.md", {"docs/test_words.py"}),
        ("examples/a/train.py", {"spec/test_examples.py"}),
    ],
)
def test_a_change_reaches(tests: Project, path: str, reached: set[str]) -> None:
    started = {"server/test_started.py"} if path.startswith("src/allranks/s") else set()
    assert reached_by(path, tests) == {f"tests/{test}" for test in reached | started}


@pytest.mark.parametrize(
    "path",
    [
        *("src/allranks/errors.py", "src/allranks/core/fold.py", "src/allranks/spec/a.yaml"),
        *("tests/conftest.py", "tests/support.py", "pyproject.toml"),
    ],
)
def test_what_all_stand_on_reaches_all(tests: Project, path: str) -> None:
    assert reached_by(path, tests) == tests.all


@pytest.mark.slow
@pytest.mark.parametrize("base", ["HEAD", "nothing"])
def test_the_project_itself(base: str) -> None:
    argv = [sys.executable, "scripts/changed_tests.py", base]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if base == "nothing":
        assert (done.returncode, done.stdout) == (1, "")
        assert "nothing" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert done.stdout == "tests\n" or "tests/house/test_imports.py\n" in done.stdout
