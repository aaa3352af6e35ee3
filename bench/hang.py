"""Hangs: is one that is slow and well ever taken for one, and how soon is one noticed?"""

from __future__ import annotations

import argparse
import contextlib
import json
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.home import Home
from bench.report import Bar, Result, spreads, table

# Rank 0 is slow, the others wait for it at a socket of its own, as in a barrier. None prints; what
# works does so for a fifth of the time, so that many jobs find room on a small machine.
PRELUDE = """\
import os, socket, subprocess, sys, threading, time
rank, until = int(os.environ["RANK"]), time.monotonic() + float(sys.argv[1])
path = os.path.join(os.environ["ALLRANKS_STATE_DIR"], "meet")
def barrier():
    while True:
        try:
            door = socket.socket(socket.AF_UNIX); door.connect(path)
            return door.recv(1)
        except OSError:
            time.sleep(0.05)
def meet(others):
    server = socket.socket(socket.AF_UNIX); server.bind(path); server.listen(64)
    return [server.accept()[0] for _ in range(others)]
others = int(os.environ["WORLD_SIZE"]) - 1
if rank and "--alone" not in sys.argv: barrier(); sys.exit()
met = [] if "--alone" in sys.argv else meet(others)
"""
HEALTHY = {
    "validates": """
while time.monotonic() < until:
    burst = time.monotonic() + 0.1
    while time.monotonic() < burst: sum(range(1000))
    time.sleep(0.4)
""",
    "compiles": """
while time.monotonic() < until:
    subprocess.run(["bash", "-c", "for i in {1..20000}; do :; done"])
    time.sleep(0.4)
""",
    "downloads": """
server = socket.create_server(("127.0.0.1", 0))
def trickle(door):
    while True: door.sendall(b"x" * 2000); time.sleep(0.1)
def serve(): trickle(server.accept()[0])
threading.Thread(target=serve, daemon=True).start()
door = socket.create_connection(server.getsockname())
while time.monotonic() < until: door.recv(4096)
""",
    "prints": """
while time.monotonic() < until:
    print(".", flush=True); time.sleep(float(sys.argv[2]) / 2)
""",
}
HANGS = """
def load_batch():
    print("stuck", flush=True)
    while True: time.sleep(600)
load_batch()
"""


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--healthy", type=int, default=200, metavar="N", help="slow but healthy jobs (200)")
    add("--hung", type=int, default=10, metavar="N", help="jobs of 8 ranks that hang (10)")
    add("--hang-timeout", type=float, default=10.0, metavar="S", help="theirs (10)")
    add("--at-once", type=int, default=10, metavar="N", help="jobs at the same time (10)")


def run(given: argparse.Namespace) -> Result:
    wrong: list[str] = []
    with Home() as home:
        for name, text in {**HEALTHY, "hangs": HANGS}.items():
            (home.work / f"{name}.py").write_text(PRELUDE + text)
        home.allranks("run", "-q", "--", "true")
        alarms = _healthy(home, given, wrong)
        late, grouped = _hung(home, given, wrong)
    rows = [(kind, str(count), str(alarms.get(kind, 0))) for kind, count in _kinds(given).items()]
    text = table((f"slow jobs, {given.hang_timeout:g} s", "jobs", "alarms"), rows)
    samples = {
        "the last line to the end, less the timeout": late,
        "the question for stacks to the end": grouped,
    }
    text += "\n\n" + spreads(f"{given.hung} jobs of 8 ranks that hang, seconds", samples)
    return Result(
        name="hang",
        text=text,
        samples={"s": samples},
        data={"alarms": alarms, "slow_jobs": sum(_kinds(given).values())},
        bars=[
            Bar(what="false alarms", found=sum(alarms.values()), most=0),
            Bar(what="detection beyond the timeout, seconds", found=max(late), most=2.0),
            Bar(what="stacks of 8 ranks grouped, seconds", found=max(grouped), most=2.0),
        ],
        wrong=wrong + home.left,
    )


def _kinds(given: argparse.Namespace) -> dict[str, int]:
    kinds = list(HEALTHY)
    several = [kinds[index % len(kinds)] for index in range(given.healthy)]
    return {kind: several.count(kind) for kind in kinds}


def _healthy(home: Home, given: argparse.Namespace, wrong: list[str]) -> dict[str, int]:
    """How many of each kind were taken for hung ones."""
    left = [kind for kind, count in _kinds(given).items() for _ in range(count)]
    alarms: dict[str, int] = {}
    while left:
        # Of every kind some at once: what one does is not to hide what another lacks.
        batch, left = left[:: max(1, len(left) // given.at_once)][: given.at_once], left
        for kind in batch:
            left.remove(kind)
        names = [_submit(home, kind, 2, given) for kind in batch]
        for kind, name in zip(batch, names, strict=True):
            job = _ended(home, name)
            if job["error"] and job["error"]["reason"] == "HANG":
                alarms[kind] = alarms.get(kind, 0) + 1
                print(f"false alarm: {kind}: {job['error']['message']}", flush=True)
            elif job["status"] != "Completed":
                wrong.append(f"{name} ({kind}) ended as {job['error'] or job['status']}")
    return alarms


def _hung(
    home: Home, given: argparse.Namespace, wrong: list[str]
) -> tuple[list[float], list[float]]:
    late, grouped = [], []
    for _ in range(given.hung):
        job = _ended(home, _submit(home, "hangs", 8, given))
        name = job["name"]
        if not job["error"] or "in load_batch (hangs.py:" not in job["error"]["message"]:
            wrong.append(f"{name} was to hang in load_batch and ended as {job['error']}")
            continue
        events = home.told("job", "events", name, "--json")
        closing = next(each for each in events if each["kind"] == "closing")
        end = datetime.fromisoformat(closing["at"]).timestamp()
        attempt = Path(job["folder"], "attempts", "1")
        printed = (attempt / "user_logs" / "std_log_process_0.txt").stat().st_mtime
        asked = json.loads((attempt / "system_logs" / "hang-stacks.json").read_text())["at"]
        late.append(end - printed - given.hang_timeout)
        grouped.append(end - asked)
    return late, grouped


def _submit(home: Home, kind: str, ranks: int, given: argparse.Namespace) -> str:
    words = ("--hang-timeout", str(given.hang_timeout), "-p", str(ranks), "-d", "pytorch")
    times = (str(2.5 * given.hang_timeout), str(given.hang_timeout))
    script = ("--", "python", f"{kind}.py", *times)
    found: str = home.told("run", "--detach", "--json", *words, *script)["name"]
    return found


def _ended(home: Home, name: str) -> Any:
    job = None
    while job is None or job["ended_at"] is None:
        job = home.told("job", "show", name, "--json")
        if job["ended_at"] is None:
            _wait(home, name)
    return job


def _wait(home: Home, name: str) -> None:
    with contextlib.suppress(RuntimeError):  # it has failed, which is what is looked at
        home.allranks("job", "wait", name, "--timeout", "300")
