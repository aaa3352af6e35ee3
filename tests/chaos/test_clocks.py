"""The clock of server and agents jumps an hour ahead, and two hours back, while jobs run.

Debian's libfaketime (0.9.10) breaks `time.sleep` of Python 3.11 and newer, so the clock is faked by
a few lines of C: what asks for the time of day is told it with a file's number of seconds added.
"""

import json
import os
import shutil
import subprocess
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support import until

SHIM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *at) {
    int done = syscall(SYS_clock_gettime, clock, at);
    const char *path = getenv("TEST_CLOCK");
    if (done || clock != CLOCK_REALTIME || !path) return done;
    char text[32] = "0";
    int file = open(path, O_RDONLY);
    if (file >= 0) {
        ssize_t size = read(file, text, 31);
        text[size < 0 ? 0 : size] = 0;
        close(file);
    }
    at->tv_sec += atol(text);
    return 0;
}
"""


@pytest.fixture
def clock(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The file that says how wrong the clock is, and the environment of those it is wrong for."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("a C compiler makes the wrong clock")
    source, shim, told = tmp_path / "shim.c", tmp_path / "shim.so", tmp_path / "seconds"
    source.write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, source], check=True)
    told.write_text("0")
    return told, {"LD_PRELOAD": str(shim), "TEST_CLOCK": str(told)}


def at(told: Any, key: str) -> float:
    """A time of the job that a command told of, in seconds."""
    return datetime.fromisoformat(json.loads(told.stdout)[key]).timestamp()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_clock_that_jumps(allranks, home, tmp_path, clock):
    told, wrong = clock
    assert allranks("server", "start", env=wrong | {"ALLRANKS_HELLO": "60"}).returncode == 0
    begun = at(allranks("run", "--detach", "--json", "--", "true"), "created_at")
    job = tmp_path / "job.yml"
    script = f"until [ -e '{tmp_path}/end' ]; do echo x; sleep 0.05; done"
    job.write_text(
        json.dumps(
            {
                "command": script,
                "limits": {"timeout": 1800},
                "resources": {"instance_count": 2},
                "name": "long",
            }
        )
    )
    assert allranks("job", "create", "-f", job).returncode == 0

    def lines(more: int) -> bool:
        return allranks("job", "logs", "long", "--rank", 1).stdout.count("\n") > more

    def has_started(name: str) -> bool:
        return "started" in allranks("job", "events", name).stdout

    for number, jump in enumerate(("3600", "-3600", "0")):
        until(partial(lines, 20 * number + 3))
        told.write_text(jump)
        # Its agents come up, and a cancel works, whatever the time of day.
        name = allranks("run", "--detach", "-n", 2, "--", "sleep", "300").stdout.strip()
        until(partial(has_started, name))
        assert allranks("job", "cancel", name).returncode == 0
        canceled = allranks("job", "wait", name, "--json")
        assert json.loads(canceled.stdout)["status"] == "Canceled"
        times = [at(canceled, each) for each in ("created_at", "started_at", "ended_at")]
        assert times == sorted(times)
        assert abs(times[0] - begun) < 1200
    (tmp_path / "end").touch()
    ended = json.loads(allranks("job", "wait", "long", "--json").stdout)
    assert (ended["status"], ended["attempts"], ended["launches"]) == ("Completed", 1, 1)
    events = json.loads(allranks("job", "events", "long", "--json").stdout)
    assert not [each for each in events if each["kind"] == "lost"]
    times = [datetime.fromisoformat(each["at"]).timestamp() for each in events]
    # Each agent begins with the clock of its own host: what is off by less is no matter.
    assert all(later > earlier - 2.5 for earlier, later in pairwise(times))
    environ = Path(f"/proc/{json.loads((home / 'server.json').read_text())['pid']}/environ")
    assert os.fsencode(str(told)) in environ.read_bytes(), "it was the server's clock, too"
