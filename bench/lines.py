"""Three ranks print many numbered lines, the server is killed; is every line there once?"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench import procs
from bench.home import Home
from bench.report import Result, table

RANKS = 3

# Python's own print, line by line, as training scripts do it. The pauses let the kill fall between
# the first line and the last on any machine; DONE tells when a rank wrote its last.
_SCRIPT = """\
import os, sys, time
rank, lines, pause, done = os.environ["RANK"], int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
for i in range(lines):
    print(f"rank {rank} line {i} loss 0.69314718 lr 0.00100000 images/s 1234.5")
    if i % 2000 == 1999:
        time.sleep(pause)
with open(os.path.join(done, rank), "w") as file:
    file.write(str(time.time()))
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lines", type=int, default=200_000, metavar="N", help="lines of each rank (200000)"
    )
    parser.add_argument(
        "--pause",
        type=float,
        default=0.02,
        metavar="SECONDS",
        help="each rank's pause after 2000 lines (0.02)",
    )


def run(given: argparse.Namespace) -> Result:
    with Home() as home:
        home.allranks("run", "--", "true")
        found = _followed(home, given.lines, given.pause)
        name = found["job"]
        checks = [check(home.work / "stdout", given.lines, range(RANKS), "run's stdout")]
        for rank in range(RANKS):
            path, began = home.work / f"logs-{rank}", time.perf_counter()
            with path.open("wb") as output:
                subprocess.run(
                    home.argv("job", "logs", name, "--rank", str(rank)),
                    env=home.env,
                    cwd=home.work,
                    stdout=output,
                    check=True,
                )
            found["logs_s"].append(time.perf_counter() - began)
            checks.append(check(path, given.lines, [rank], f"job logs --rank {rank}"))
        job = home.told("job", "show", name, "--json")
    found |= {"status": job["status"], "attempts": job["attempts"]}
    wrong = [fault for faults in checks for fault in faults]
    wrong += _faults(found)
    return Result(
        name="lines",
        text=_table(found, given.lines),
        samples={
            "s": {
                "the server is back": [found["server_back_after_s"]],
                "run ended": [found["run_ended_after_s"]],
                "job logs of a rank": found["logs_s"],
            },
            "lines/s": {
                "allranks run": [given.lines * RANKS / found["run_ended_after_s"]],
                "the ranks": [given.lines * RANKS / _ranks_done(found)],
            },
        },
        data={"lines": given.lines, "ranks": RANKS, "pause": given.pause, **found},
        wrong=[*wrong, *home.left],
    )


def _followed(home: Home, lines: int, pause: float) -> dict[str, Any]:
    """Run the job with its output in ``work/stdout``, and kill the server once a third is there."""
    code, done, out = (home.work / each for each in ("code", "done", "stdout"))
    code.mkdir()
    done.mkdir()
    (code / "print_lines.py").write_text(_SCRIPT)
    whole = (
        lines
        * RANKS
        * len(f"rank 0 line {lines // 2} loss 0.69314718 lr 0.00100000 images/s 1234.5\n")
    )
    words = [sys.executable, "print_lines.py", str(lines), str(pause), str(done)]
    with out.open("wb") as output, (home.work / "stderr").open("wb") as errors:
        began = time.time()
        process = subprocess.Popen(
            home.argv("run", "--name", "lines", "-n", str(RANKS), "--", *words),
            cwd=code,
            env=home.env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
        )
        try:
            while out.stat().st_size < whole / 3 and process.poll() is None:
                time.sleep(0.005)
            killed, printed = time.time(), out.stat().st_size
            pid = json.loads((home.folder / "server.json").read_text())["pid"]
            os.kill(pid, signal.SIGKILL)
            home.allranks("job", "list")  # any next command brings it back
            back = time.time()
            code_of_run = process.wait(procs.LIMIT)
            ended = time.time()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    said = (home.work / "stderr").read_text()
    wrote = [float((done / str(r)).read_text()) for r in range(RANKS) if (done / str(r)).exists()]
    return {
        "job": "lines",
        "run_said": said.splitlines(),
        "run_exit_code": code_of_run,
        "bytes": out.stat().st_size,
        "bytes_at_kill": printed,
        "killed_after_s": killed - began,
        "server_back_after_s": back - killed,
        "ranks_done_after_s": [at - began for at in wrote],
        "run_ended_after_s": ended - began,
        "logs_s": [],
    }


def check(path: Path, lines: int, ranks: Iterable[int], where: str) -> list[str]:
    """What is wrong with the numbered lines in a file; empty when each rank's are all there, once,
    in order, and nothing else is."""
    following = dict.fromkeys(map(str, ranks), 0)
    faults: list[str] = []
    with path.open(errors="replace") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if len(words) != 10 or words[1] not in following or not words[3].isdigit():
                faults.append(f"{where}, line {number}: {line[:80]!r} is no rank's line")
            elif int(words[3]) != following[words[1]]:
                faults.append(
                    f"{where}, line {number}: rank {words[1]} line {words[3]}, "
                    f"where line {following[words[1]]} should be"
                )
                following[words[1]] = int(words[3]) + 1
            else:
                following[words[1]] += 1
    faults += [
        f"{where}: rank {rank} ends after line {count - 1} of {lines}"
        for rank, count in following.items()
        if count != lines
    ]
    return faults if len(faults) <= 5 else [*faults[:5], f"{where}: {len(faults) - 5} faults more"]


def _faults(found: dict[str, Any]) -> list[str]:
    faults = []
    if (found["status"], found["attempts"]) != ("Completed", 1):
        faults.append(f"the job is {found['status']} after {found['attempts']} attempts")
    if found["run_exit_code"] != 0:
        faults.append(f"allranks run exited with {found['run_exit_code']}: {found['run_said']}")
    if len(found["ranks_done_after_s"]) < RANKS or any(
        at <= found["killed_after_s"] for at in found["ranks_done_after_s"]
    ):
        faults.append(
            "the server was not killed while every rank was printing: try a longer --pause"
        )
    return faults


def _ranks_done(found: dict[str, Any]) -> float:
    return float(max(found["ranks_done_after_s"], default=found["run_ended_after_s"]))


def _table(found: dict[str, Any], lines: int) -> str:
    total, ended = lines * RANKS, found["run_ended_after_s"]
    done = _ranks_done(found)
    slowest = max(found["logs_s"])
    rows = [
        (
            "server killed after",
            f"{found['killed_after_s']:.2f} s",
            f"{found['bytes_at_kill'] / 1e6:.1f} MB printed",
        ),
        ("next command done, server back", f"+{found['server_back_after_s']:.2f} s", ""),
        ("last rank wrote its last line", f"{done:.2f} s", f"{total / done:,.0f} lines/s"),
        ("allranks run ended", f"{ended:.2f} s", f"{total / ended:,.0f} lines/s"),
        ("behind the ranks", f"{ended - done:.2f} s", ""),
        ("job logs --rank R, slowest", f"{slowest:.2f} s", f"{lines / slowest:,.0f} lines/s"),
    ]
    return table((f"{RANKS} ranks × {lines:,} lines", "time", ""), rows)
