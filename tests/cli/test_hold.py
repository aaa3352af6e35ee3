"""`run --on-failure hold`, `job debug` and `job release`: a failed job stays as it is, and goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.test_enter import Terminal
from tests.support import Allranks, kill_server, until

pytestmark = pytest.mark.slow

TRAIN = """\
import os, sys, time
print("up", flush=True)
if os.environ["RANK"] == "1":
    secret = 41
    while not os.path.exists(PEER): time.sleep(0.01)
    if sys.argv[1:]:
        os.kill(os.getpid(), 11)
    [0][secret]
open(PEER, "w"); time.sleep(600)
"""


def write_script(code: Path) -> None:
    """Rank 1 fails when rank 0 waits: until then that one's stack is one of a start."""
    peer = code / "up"
    peer.unlink(missing_ok=True)
    (code / "held.py").write_text(TRAIN.replace("PEER", repr(str(peer))))


def start(allranks: Allranks, code: Path, name: str, *words: object, script: str = "") -> None:
    write_script(code)
    options = ("-n", 2, "--detach", "--name", name, "--on-failure", "hold", *words)
    command = ("python", "held.py", *([script] if script else []))
    assert allranks("run", *options, "--", *command).returncode == 0
    until(lambda: "held until" in (show(allranks, name)["status_reason"] or ""))


def show(allranks: Allranks, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(allranks("job", "show", name, "--json").stdout)
    return shown


def states(name: str) -> list[str]:
    """The states of the ranks' processes of that job."""
    found = []
    for each in psutil.process_iter(["cmdline", "cwd", "status"]):
        if "held.py" in (each.info["cmdline"] or ()) and f"/{name}." in (each.info["cwd"] or ""):
            found.append(each.info["status"])
    return sorted(found)


def is_held(allranks: Allranks, name: str) -> bool:
    return str(show(allranks, name)["status_reason"]).startswith("held until")


def test_a_failed_job_stays_for_a_debugger_until_it_is_released(
    allranks: Allranks, code: Path, home: Path
):
    start(allranks, code, "two")
    until(lambda: states("two") == ["sleeping", "stopped"])
    shown = show(allranks, "two")
    assert shown["status"] == "Running"
    assert "IndexError" in shown["status_reason"]
    assert "SCRIPT_EXCEPTION" in allranks("job", "explain", "two").stdout
    # The others are shown where they were, and may be entered.
    stacks = allranks("job", "stacks", "two").stdout
    assert "held.py:9" in stacks
    assert "held.py:8 <module>  [0][secret]" in stacks
    assert "allranks_hold" not in stacks
    done = allranks("job", "exec", "two", "--rank", 0, "--", "python", "-c", "1 / 0")
    assert done.returncode == 1
    # Two debuggers: the second one waits for the first, and Ctrl-C is pdb's.
    first = Terminal(home, "job", "debug", "two")
    first.expect(b"(Pdb) ")
    first.press(b"secret + 1\r")
    first.expect(b"42")
    first.expect(b"(Pdb) ")
    first.press(b"\x03")
    first.expect(b"--KeyboardInterrupt--")
    second = Terminal(home, "job", "debug", "two", "--rank", "1")
    second.expect(b"another debugger is open")
    first.press(b"q\r")
    assert first.ended() == 0
    second.expect(b"(Pdb) ")
    second.press(b"\r~.")
    assert second.ended() == 0
    assert allranks("job", "debug", "two", input="p 6 * 7\n").stdout.count("42") == 1
    refused = allranks("job", "debug", "two", "--rank", 0)
    assert (refused.returncode, "rank 0 has not failed" in refused.stderr) == (2, True)
    assert " Held " in allranks("top", "--once").stdout
    url = json.loads(allranks("server", "status", "--json").stdout)["url"]
    for role in ("reader", "member"):
        made = allranks("server", "token", "create", f"a-{role}", "--role", role, "--json")
        env = {"ALLRANKS_SERVER": url, "ALLRANKS_TOKEN": json.loads(made.stdout)["token"]}
        assert allranks("job", "debug", "two", env=env).returncode == 2
        assert allranks("job", "release", "two", env=env).returncode == 2
    assert allranks("job", "release", "two", "--retry").returncode == 0
    until(lambda: show(allranks, "two")["attempts"] == 2 and is_held(allranks, "two"))
    assert allranks("job", "release", "two").returncode == 0
    assert allranks("job", "wait", "two").returncode == 1
    assert (states("two"), show(allranks, "two")["error"]["cause"]) == ([], "SCRIPT_EXCEPTION")
    (job,) = json.loads(allranks("report", "goodput", "two", "--json").stdout)["jobs"]
    assert job["seconds"]["holding"] > 0
    refused = allranks("job", "release", "two")
    assert (refused.returncode, "is not held: it is Failed" in refused.stderr) == (2, True)


def test_a_hold_ends_with_its_time_and_with_a_cancel(allranks: Allranks, code: Path, home: Path):
    write_script(code)
    words = ("-n", 2, "--name", "short", "--on-failure", "hold=3", "--", "python", "held.py")
    done = allranks("run", *words)
    assert done.returncode == 1
    assert "short is held until" in done.stderr
    assert states("short") == []
    start(allranks, code, "crash", script="crash")
    refused = allranks("job", "debug", "crash")
    assert (refused.returncode, "no Python of rank 1 has failed" in refused.stderr) == (2, True)
    assert allranks("job", "exec", "crash", "--rank", 1, "--", "ls", "held.py").returncode == 0
    assert allranks("job", "cancel", "crash").returncode == 0
    allranks("job", "wait", "crash")
    assert (states("crash"), show(allranks, "crash")["status"]) == ([], "Canceled")
    # A debugger that is open ends with a preemption, which is not why the job failed.
    start(allranks, code, "taken")
    terminal = Terminal(home, "job", "debug", "taken")
    terminal.expect(b"(Pdb) ")
    assert allranks("job", "preempt", "taken").returncode == 0
    terminal.expect(b"the hold of taken has ended")
    assert terminal.ended() == 2
    allranks("job", "wait", "taken")
    assert show(allranks, "taken")["error"]["reason"] == "RANK_EXITED"


def test_a_hold_ends_with_its_time_without_a_server(allranks: Allranks, code: Path, home: Path):
    start(allranks, code, "alone", "--on-failure", "hold=4")
    until(lambda: states("alone") == ["sleeping", "stopped"])
    kill_server(home)
    until(lambda: states("alone") == [], 30)
    assert allranks("job", "wait", "alone").returncode == 1
    assert show(allranks, "alone")["error"]["reason"] == "RANK_EXITED"
