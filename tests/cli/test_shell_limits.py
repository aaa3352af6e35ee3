"""The umask and soft limits of the submitting shell, not of the one that started the server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import CLI, Allranks, environment

WARM = "import os, resource; print(resource.getrlimit(7)[0], oct(os.umask(0)))"


@pytest.mark.slow
def test_a_job_of_this_machine_has_them_and_its_restart(
    shared: Allranks, shared_home: Path, code: Path
):
    shared("run", "--", "true")  # the server runs
    (code / "limits.py").write_text(WARM)

    def run(*words: str) -> str:
        shell = 'ulimit -Sn 345; umask 027; exec "$0" "$@"'
        argv = ["bash", "-c", shell, sys.executable, "-c", CLI, *words]
        done = subprocess.run(
            argv, cwd=code, env=environment(shared_home), capture_output=True, text=True, timeout=90
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("run", "--name", "cold", "--", "python", "limits.py") == "345 0o27\n"
    assert run("run", "--warm", "json", "--", "python", "limits.py") == "345 0o27\n"
    assert "ALLRANKS_LIMITS" not in run("run", "--", "env")
    again = shared("job", "restart", "cold", "--stream")
    assert "345 0o27" in again.stdout


@pytest.mark.medium
@pytest.mark.parametrize(
    ("limits", "printed"),
    [
        ({"umask": 0o777, "NOFILE": -1}, "True 0o77"),
        ({"umask": 0, "NOFILE": 1 << 40}, "True 0o0"),
        ({"umask": "x"}, "False 0o22"),
        ({"umask": 0o27, "NOFILE": [1]}, "False 0o27"),
        ([], "False 0o22"),
    ],
)
def test_the_hard_limit_bounds_them_and_what_is_malformed_is_ignored(limits, printed):
    script = (
        "import os, resource; os.umask(0o022); resource.setrlimit(7, (200, 300));"
        "from allranks import shell_limits; shell_limits.apply();"
        "soft, hard = resource.getrlimit(7); print(soft == hard, oct(os.umask(0)))"
    )
    rest = dict.fromkeys(("CORE", "STACK", "MEMLOCK"), -1) if isinstance(limits, dict) else {}
    text = json.dumps({**limits, **rest} if rest else limits)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"ALLRANKS_LIMITS": text, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == printed, done.stderr
