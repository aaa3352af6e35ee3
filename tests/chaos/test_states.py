"""`kill -9` of the server, of an agent or of all, again and again, while checkpoints are written.

After all of it: the newest that the home had said it has is there, or a newer, and none is torn.
"""

import json
import random
import sys
from pathlib import Path

import pytest

from tests.chaos.test_kills import chaos_home, is_agent, kill, of_job, run  # noqa: F401
from tests.support import Allranks, answer, until

# Numbered checkpoints of two files and then `latest`; what is found must be whole.
SCRIPT = """
import hashlib, os, sys, time
os.chdir(os.environ["ALLRANKS_STATE_DIR"])

def whole(number):
    data = open(f"{number}.bin", "rb").read()
    return hashlib.sha256(data).hexdigest() == open(f"{number}.sum").read()

latest = int(open("latest").read()) if os.path.exists("latest") else 0
print("found", latest, flush=True)
assert latest == 0 or whole(latest), latest
for number in range(latest + 1, 1_000_000):
    data = os.urandom(50_000)
    with open(f"{number}.bin", "wb") as file:
        for at in range(0, len(data), 10_000):
            file.write(data[at : at + 10_000])
            file.flush()
    with open(f"{number}.sum", "w") as file:
        file.write(hashlib.sha256(data).hexdigest())
    with open("latest.new", "w") as file:
        file.write(str(number))
    os.rename("latest.new", "latest")
    for old in (f"{number - 3}.bin", f"{number - 3}.sum"):
        if os.path.exists(old):
            os.unlink(old)
    if len(sys.argv) > 1:
        break
    time.sleep(0.4)
"""


def agents(home: Path, job: str, launch: int) -> list[int]:
    return [pid for pid in of_job_in(home, job, launch) if is_agent(pid)]


def of_job_in(home: Path, job: str, launch: int) -> list[int]:
    from allranks.engines.local.end_gang import marked
    from allranks.engines.local.engine import LocalEngine

    engine = LocalEngine(home / "engines" / "local", home / "nodes")
    key = f"{job}.{launch}"
    return marked(engine.mark(key), home / "engines" / "local" / key)


def acknowledged(home: Path) -> int:
    """The newest checkpoint that the home has: as who starts next would find it."""
    folder = home / "states" / "named" / "s"
    try:
        entries = json.loads((folder / "head").read_bytes().partition(b"\n")[2])["entries"]
        return int((folder / "content" / entries["shared/latest"][1]).read_text())
    except (FileNotFoundError, KeyError, ValueError):
        return 0  # not yet, or replaced just now


def newer(home: Path, than: int) -> int:
    """The newest checkpoint that the home has, once there is a newer one."""
    until(lambda: acknowledged(home) > than, 60)
    return acknowledged(home)


@pytest.mark.slow
@pytest.mark.timeout(800)
@pytest.mark.parametrize("seed", range(2))
def test_no_checkpoint_is_lost_or_torn(run: Allranks, chaos_home: Path, tmp_path: Path, seed: int):  # noqa: F811
    dice = random.Random(seed)
    (tmp_path / "w.py").write_text(SCRIPT)
    run("server", "stop")
    run("server", "start", env={"ALLRANKS_LOOK": "0.1"})
    run("state", "delete", "--yes", "s")
    words = ("--state", "s", "--max-attempts", 20, "--detach", "--", sys.executable, "w.py")
    name = run("run", *words).stdout.strip()
    sure = 0
    for _ in range(5):
        sure = newer(chaos_home, sure)
        if dice.random() < 0.5:
            kill([json.loads((chaos_home / "server.json").read_text())["pid"]])
            run("server", "start", env={"ALLRANKS_LOOK": "0.1"})
        else:
            launch = shown(run, name)["launches"]
            kill(agents(chaos_home, name, launch))
            until(lambda launch=launch: shown(run, name)["launches"] > launch, 60)
            until(lambda: shown(run, name)["status"] == "Running", 60)
        logs = run("job", "logs", name).stdout
        assert "Error" not in logs, logs
    run("job", "cancel", name)
    run("job", "wait", name)
    done = run("run", "--state", "s", "--", sys.executable, "w.py", "once")
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[1]) >= sure
    found = [int(line.split()[1]) for line in run("job", "logs", name).stdout.splitlines()]
    assert found == sorted(found)


def shown(run: Allranks, name: str) -> dict:  # noqa: F811
    return json.loads(run("job", "show", name, "--json").stdout)


# In the first attempt it is killed in the middle of its second checkpoint.
IN_PLACE = """
import os, signal, sys, time
path = os.environ["ALLRANKS_STATE_DIR"] + "/ckpt"
if os.path.exists(path):
    data = open(path, "rb").read()
    sys.exit(f"{len(data)} bytes" if data != b"1" * 300_000 else 0)
with open(path, "wb") as file:
    file.write(b"1" * 300_000)
time.sleep(float(sys.argv[1]))
file = open(path, "wb")
file.write(b"2" * 150_000)
file.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_checkpoint_in_place_that_a_kill_cuts_short(allranks: Allranks, tmp_path: Path) -> None:
    script = tmp_path / "in_place.py"
    script.write_text(IN_PLACE)
    clocks = {"ALLRANKS_LOOK": "0.3"}
    assert allranks("server", "start", env=clocks).returncode == 0
    argv = ["run", "--name", "cut", "--max-attempts", "2", "--", sys.executable, script, "3"]
    done = allranks(*argv)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "note: 'shared/ckpt', or a file beside it, was being written when a rank" in done.stderr
    versions = answer(allranks, "state", "show", "cut")["versions"]
    sizes = {each["version"]: (each["size"], each["torn"]) for each in versions}
    assert (150_000, ["shared/ckpt"]) in sizes.values()
    assert versions[0]["size"] == 300_000
