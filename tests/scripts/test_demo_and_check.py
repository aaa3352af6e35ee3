"""./demo and ./check fail with one clear line and a hint when something is missing.

A copy of the scripts runs with only a few tools on PATH. Tests that are not about the set-up use a
fake Python whose `-m venv` creates a .venv with a fake pip, fake data and a fake job.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = "awk basename bash cat chmod cp date df dirname env grep id ln mkdir readlink sed sha256sum"
TOOLS += " rm sh sleep tail tee"

# Replaces .venv/bin/python: logs its arguments, and obeys FAKE_*.
FAKE_VENV_PYTHON = """#!/bin/sh
echo "$*" >>asked
case "$*" in
    "-c import sys, pip"*) exit 0 ;;
    *urlopen*) exit "$FAKE_NO_NETWORK" ;;
    "-m pip"*) exit 0 ;;
    *--last-failed*) echo "PASSED tests/a.py::b c"; exit "$FAKE_RERUN_CODE" ;;
    *changed_tests.py*) printf 'tests/a b.py\\ntests/c.py::d\\n'; exit "$FAKE_CHANGED_CODE" ;;
    "-m $FAKE_BROKEN_TOOL"*) echo "$FAKE_BROKEN_TOOL is not happy"; exit "$FAKE_CODE" ;;
    "-m "* | *.py | *.py\\ * | *lint-imports) exit 0 ;;
esac
exec "{real}" "$@"
"""

# Replaces .venv/bin/allranks.
FAKE_ALLRANKS = """#!/bin/sh
case "$1 $2" in
    "run "*) exit "$FAKE_RUN_CODE" ;;
    "job show") echo '{"status": "Completed"}' ;;
    "job download")
        mkdir -p "$5/artifacts/outputs"
        echo "$FAKE_METRICS" >"$5/artifacts/outputs/metrics.json" ;;
esac
"""

FAKE_PYTHON = """#!/bin/sh
case "$*" in
    "-m venv"*) mkdir -p .venv/bin && cp "{fakes}"/* .venv/bin/ ;;
    *ensurepip*) exit {ensurepip} ;;
    *) exec "{real}" "$@" ;;
esac
"""


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


class Checkout:
    """A copy of the scripts in a folder with a blank and a quote in its name."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "all ranks' copy"
        self.bin = tmp_path / "bin"
        self.bin.mkdir()
        for tool in TOOLS.split():
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)
        (self.root / "scripts").mkdir(parents=True)
        for name in ("demo", "check", "scripts/venv.sh", "pyproject.toml"):
            shutil.copy(ROOT / name, self.root / name)
        self.env = {
            "PATH": str(self.bin),
            "HOME": str(tmp_path),
            "PIP_NO_INDEX": "1",  # a mistake here must not download anything
            "PIP_CONFIG_FILE": os.devnull,
            "FAKE_RUN_CODE": "0",
            "FAKE_METRICS": json.dumps({"accuracy": 0.97}),
            "FAKE_BROKEN_TOOL": "none",
            "FAKE_CODE": "1",
            "FAKE_RERUN_CODE": "0",
            "FAKE_CHANGED_CODE": "0",
            "FAKE_NO_NETWORK": "0",
        }

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [str(self.root / words[0]), *words[1:]]
        return subprocess.run(
            command, env=self.env, cwd="/", text=True, capture_output=True, timeout=60
        )

    def pretend_python(self, *, ensurepip: int = 0) -> None:
        fakes = self.bin.parent / "fakes"
        fakes.mkdir()
        executable(fakes / "python", FAKE_VENV_PYTHON.format(real=sys.executable))
        executable(fakes / "allranks", FAKE_ALLRANKS)
        text = FAKE_PYTHON.format(fakes=fakes, ensurepip=ensurepip, real=sys.executable)
        executable(self.bin / "python3", text)
        self.pretend_free_disk(99 * 1024**2)

    def pretend_free_disk(self, kib: int) -> None:
        (self.bin / "df").unlink(missing_ok=True)
        row = f"/dev/x 9999999 9999 {kib} 99% /"
        executable(self.bin / "df", f"#!/bin/sh\necho Header\necho '{row}'\n")

    def asked(self) -> list[str]:
        return (self.root / "asked").read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def refusal(result: "subprocess.CompletedProcess[str]") -> str:
    """The one line of a refusal; its hint stands below it and nothing else."""
    assert result.returncode == 1, result
    what, hint = result.stderr.splitlines()
    assert hint.startswith("hint: ")
    return what


@pytest.mark.parametrize("script", ["demo", "check"])
def test_no_python_and_an_old_one(checkout: Checkout, script: str) -> None:
    needed = f"{script}: Python 3.11 or newer is needed, and"
    assert refusal(checkout.run(script)) == f"{needed} no Python was found"
    old = '#!/bin/sh\n[ "$1" = -V ] && echo Python 3.9.2 || exit 1\n'
    executable(checkout.bin / "python3", old)
    assert refusal(checkout.run(script)) == f"{needed} Python 3.9.2 was found"


def test_a_requested_python_that_does_not_start(checkout: Checkout) -> None:
    checkout.pretend_python()
    checkout.env["ALLRANKS_PYTHON"] = "/nowhere/python"
    what = refusal(checkout.run("demo"))
    assert what == "demo: ALLRANKS_PYTHON=/nowhere/python is not a Python 3.11 or newer"


def test_no_venv_module(checkout: Checkout) -> None:
    checkout.pretend_python(ensurepip=1)
    result = checkout.run("demo")
    assert refusal(result).endswith("has no venv module")
    assert "apt-get install python3-venv" in result.stderr


def test_a_full_disk(checkout: Checkout) -> None:
    checkout.pretend_python()
    checkout.pretend_free_disk(2097152)
    what = refusal(checkout.run("demo"))
    assert what == f"demo: only 2048 MiB are free in {checkout.root}, and 3 GiB are needed"
    assert not (checkout.root / ".venv").exists()


@pytest.mark.slow
@pytest.mark.end_to_end
def test_no_network(checkout: Checkout) -> None:
    """With the real Python, venv and pip: the last word of pip is in the line."""
    checkout.env["ALLRANKS_PYTHON"] = sys.executable
    what = refusal(checkout.run("demo"))
    assert "pip could not install torch: ERROR: No matching distribution" in what
    # And again, from the half-made .venv.
    assert "pip could not install torch" in refusal(checkout.run("demo"))


def test_the_demo_prints_where_its_files_are(checkout: Checkout) -> None:
    checkout.pretend_python()
    result = checkout.run("demo")
    assert (result.returncode, result.stderr) == (0, "")
    assert "Validation accuracy 0.9700" in result.stdout
    for kept in ("user_logs/", "outputs/metrics.json", "outputs/model.pt"):
        assert f"/artifacts/{kept}\n" in result.stdout


CPU_TORCH = "https://download.pytorch.org/whl/cpu"
HAS_GPU = any(map(os.path.exists, ("/proc/driver/nvidia/version", "/dev/dxg")))


def torch_line(checkout: Checkout) -> str:
    """How pip was called for torch alone."""
    (line,) = [line for line in checkout.asked() if line.endswith(" torch==2.13.0")]
    return line


@pytest.mark.skipif(HAS_GPU, reason="this machine has a GPU: torch comes with CUDA")
def test_without_a_gpu_torch_comes_without_cuda(checkout: Checkout) -> None:
    checkout.pretend_python()
    assert checkout.run("demo").returncode == 0
    assert f"--index-url {CPU_TORCH} torch" in torch_line(checkout)
    (checkout.root / "asked").unlink()
    assert checkout.run("demo").returncode == 0
    assert not any("urlopen" in line for line in checkout.asked())


@pytest.mark.skipif(HAS_GPU, reason="this machine has a GPU: torch comes with CUDA")
def test_an_index_that_cannot_be_reached_is_left_with_a_word(checkout: Checkout) -> None:
    checkout.pretend_python()
    checkout.env["FAKE_NO_NETWORK"] = "1"
    result = checkout.run("demo")
    assert (result.returncode, result.stderr) == (0, "")
    (line,) = [line for line in result.stdout.splitlines() if CPU_TORCH in line]
    assert "cannot be reached" in line
    assert "about 3 GB" in line
    assert "--index-url" not in torch_line(checkout)


def test_the_index_that_is_named_is_taken(checkout: Checkout) -> None:
    checkout.pretend_python()
    checkout.env["ALLRANKS_TORCH_INDEX"] = "https://example.com/wheels"
    assert checkout.run("demo").returncode == 0
    assert "--index-url https://example.com/wheels torch" in torch_line(checkout)
    assert not any("urlopen" in line for line in checkout.asked())


def test_pip_runs_again_only_when_pyproject_changes(checkout: Checkout) -> None:
    checkout.pretend_python()

    def asks_pip() -> bool:
        (checkout.root / "asked").unlink(missing_ok=True)
        assert checkout.run("demo").returncode == 0
        return any(line.startswith("-m pip") for line in checkout.asked())

    assert asks_pip()
    assert not asks_pip()
    with (checkout.root / "pyproject.toml").open("a") as file:
        file.write("\n# another dependency\n")
    assert asks_pip()


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("FAKE_METRICS", '{"accuracy": 0.9499}', "validation accuracy is 0.9499"),
        ("FAKE_METRICS", "<html>", "demo: the job kept no readable metrics.json"),
        ("FAKE_RUN_CODE", "37", "ended with exit code 37"),
    ],
)
def test_the_demo_fails(checkout: Checkout, variable: str, value: str, message: str) -> None:
    checkout.pretend_python()
    checkout.env[variable] = value
    result = checkout.run("demo")
    assert result.returncode == 1
    assert message in result.stderr


@pytest.mark.parametrize("flags", [[], ["--fast"]])
def test_check_passes_when_all_steps_pass(checkout: Checkout, flags: list[str]) -> None:
    checkout.pretend_python()
    result = checkout.run("check", *flags)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1].startswith("check: all 7 steps passed in ")
    assert any("torch" in line for line in checkout.asked() if "-m pip" in line) == (not flags)


def test_building_the_docs_keeps_environments(checkout: Checkout) -> None:
    checkout.pretend_python()
    kept, stale = (checkout.root / ".cache" / name for name in ("environments", "123"))
    kept.mkdir(parents=True)
    stale.mkdir()
    assert checkout.run("check", "--fast").returncode == 0
    assert "-m zensical build --strict" in checkout.asked()
    assert kept.exists()
    assert not stale.exists()


def test_the_tests_of_gpus_run_alone_and_one_after_the_other(checkout: Checkout) -> None:
    checkout.pretend_python()
    done = checkout.run("check", "--gpu")
    assert done.returncode == 0, done.stderr
    (asked,) = [line for line in checkout.asked() if line.startswith("-m pytest")]
    assert asked == "-m pytest -rs -m gpu"
    assert "check: all 1 steps passed" in done.stdout


@pytest.mark.parametrize("tool", ["ruff", "mypy", "zensical", "pytest"])
def test_check_runs_every_step_after_one_fails(checkout: Checkout, tool: str) -> None:
    checkout.pretend_python()
    checkout.env["FAKE_BROKEN_TOOL"] = tool
    result = checkout.run("check", "--fast")
    steps = {"ruff": "format, lint", "mypy": "types", "zensical": "docs", "pytest": "tests"}
    assert refusal(result).endswith(f" s: {steps[tool]}")
    assert f"{tool} is not happy" in result.stdout
    assert any(line.startswith("-m pytest") for line in checkout.asked())


@pytest.mark.parametrize("code", [0, 1, 5])
def test_failed_tests_run_once_more_only_with_rerun(checkout: Checkout, code: int) -> None:
    checkout.pretend_python()
    checkout.env |= {"FAKE_BROKEN_TOOL": "pytest", "FAKE_RERUN_CODE": str(code)}
    again = checkout.run("check", "--rerun")
    assert again.returncode == (1 if code else 0)
    assert "pytest is not happy" in again.stdout
    assert refusal(checkout.run("check")).endswith(" s: tests")


def test_what_was_repeated_into_green_is_named_at_the_end(checkout: Checkout) -> None:
    checkout.pretend_python()
    checkout.env["FAKE_BROKEN_TOOL"] = "pytest"
    said, name, last = checkout.run("check", "--rerun").stdout.splitlines()[-3:]
    assert "passed when they ran once more" in said
    assert name == "    tests/a.py::b c"
    assert "all 7 steps passed" in last


@pytest.mark.parametrize("base", [[], ["HEAD~3"]])
def test_only_what_a_change_can_reach(checkout: Checkout, base: list[str]) -> None:
    checkout.pretend_python()
    done = checkout.run("check", "--changed", *base, "--fast")
    assert done.returncode == 0, done.stderr
    assert " ".join(["scripts/changed_tests.py", *base]) in checkout.asked()
    (asked,) = [line for line in checkout.asked() if line.startswith("-m pytest")]
    assert " tests/a b.py tests/c.py::d -m not slow" in asked


def test_a_commit_that_is_not_there_is_refused(checkout: Checkout) -> None:
    checkout.pretend_python()
    checkout.env["FAKE_CHANGED_CODE"] = "1"
    what = refusal(checkout.run("check", "--changed", "nothing"))
    assert what == "check: what a change can reach is not known"


@pytest.mark.parametrize("code", [2, 3, 5])
def test_an_interrupted_test_run_is_not_repeated(checkout: Checkout, code: int) -> None:
    checkout.pretend_python()
    checkout.env |= {"FAKE_BROKEN_TOOL": "pytest", "FAKE_CODE": str(code)}
    assert refusal(checkout.run("check", "--rerun")).endswith(" s: tests")


@pytest.mark.parametrize("script", ["demo", "check"])
def test_help_and_unknown_options(checkout: Checkout, script: str) -> None:
    helped = checkout.run(script, "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout.startswith(f"usage: ./{script}")
    assert checkout.run(script, "--fats").returncode == 2
