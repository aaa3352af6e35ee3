"""The program of parallel steps, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from allranks.agent import inside
from allranks.core.diagnosis.causes import Cause
from allranks.core.diagnosis.log_tail import Ending, finding

PROGRAM = Path(inside.__path__[0]) / "allranks_parallel_step.py"
SCRIPT = """
def run(mini_batch):
    for file in mini_batch:
        if "bad" in file: raise ValueError("no image")
    return mini_batch
"""
OPTIONS = {
    "entry_script": "score.py",
    "mini_batch_size": 12,
    "mini_batch_error_threshold": -1,
    "error_threshold": 0,
    "max_retries": 1,
    "timeout": 60,
    "file_name": "rows",
}


def score(folder: Path, script: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    (folder / "score.py").write_text(script)
    (folder / "out").mkdir()
    words = [sys.executable, str(PROGRAM), json.dumps(OPTIONS), "in", "out", "--"]
    rank = {"RANK": "0", "WORLD_SIZE": "1", "ALLRANKS_JOB": "j", "MASTER_PORT": "0"}
    return subprocess.run(
        words, cwd=folder, env={**os.environ, **rank}, capture_output=True, text=True, timeout=60
    )


def test_a_mini_batch_that_fails_is_the_cause_and_its_files_are_named(tmp_path: Path):
    (tmp_path / "in").mkdir()
    for name in ["bad one", *(f"{number:02}" for number in range(13))]:
        (tmp_path / "in" / name).touch()
    done = score(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "mini-batch 1, attempt 1: ValueError: no image; trying again\n"
        "mini-batch 1 failed in 2 attempts: ValueError: no image; its files: 12, bad one\n"
    )
    assert done.stderr.count("Traceback") == 1
    assert "2 files failed; the limit is 0\n" in done.stderr
    cause = finding(done.stderr.splitlines(), Ending(1))
    assert cause is not None
    assert (cause.cause, cause.where) == (Cause.SCRIPT_EXCEPTION, f"{tmp_path}/score.py:4")


@pytest.mark.parametrize(
    ("body", "code", "cause", "fix"),
    [
        ("return files[1:]", 1, Cause.MINI_BATCH_FAILED, "it returned 1 result for 2 files"),
        ("pass", 1, Cause.MINI_BATCH_FAILED, "it returned 0 results for 2 files"),
        ("sys.exit(3)", 3, Cause.MINI_BATCH_FAILED, "it called sys.exit(3) in mini-batch 0"),
        ("sys.exit()", 1, Cause.MINI_BATCH_FAILED, "it called sys.exit(None) in mini-batch 0"),
        ("sys.exit('no model')", 1, Cause.MINI_BATCH_FAILED, "it called sys.exit('no model')"),
        ("os._exit(3)", 3, Cause.MINI_BATCH_FAILED, "it called os._exit(3) in mini-batch 0"),
        ("os._exit(0)", 1, Cause.MINI_BATCH_FAILED, "it called os._exit(0) in mini-batch 0"),
        ("while True: time.sleep(1)", 1, Cause.SCRIPT_EXCEPTION, ""),
    ],
)
def test_what_is_known_of_a_mini_batch_without_an_exception(
    tmp_path: Path, body: str, code: int, cause: Cause, fix: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(OPTIONS, "timeout", 0.5)
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / "in" / name).touch()
    done = score(tmp_path, f"import os, sys, time\ndef run(files):\n    {body}\n")
    assert done.returncode == code, done.stderr
    known = finding(done.stderr.splitlines(), Ending(code))
    assert known is not None, done.stderr
    assert (known.cause, known.fix[: len(fix)]) == (cause, fix)
    if cause is Cause.SCRIPT_EXCEPTION:
        assert (known.exception, known.where) == ("TimeoutError", f"{tmp_path}/score.py:3")


def test_each_failure_of_a_mini_batch_is_shown_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(OPTIONS, "max_retries", 3)
    monkeypatch.setitem(OPTIONS, "error_threshold", 1)
    monkeypatch.setitem(OPTIONS, "mini_batch_size", 1)
    (tmp_path / "in").mkdir()
    for name in ("bad", "flaky", "worse"):
        (tmp_path / "in" / name).touch()
    script = """
        count = 0
        def run(files):
            global count
            count += 1
            if "flaky" in files[0] and count % 4 != 0: raise OSError(f"no {count}")
            if "flaky" not in files[0] and count % 4 == 1: raise RuntimeError("first")
            if "flaky" not in files[0]: raise ValueError(f"no {count}")
            return files
    """
    done = score(tmp_path, textwrap.dedent(script))
    assert done.returncode == 1
    texts = [line for line in done.stderr.splitlines() if not line.startswith(("Trace", " "))]
    again = "mini-batch 0, attempt {}: {}; trying again".format
    first = [again(1, "RuntimeError: first"), again(2, "ValueError: no 2")]
    assert texts[:2] == first
    assert texts[3:] == [
        "mini-batch 0 failed in 4 attempts: ValueError: no 4; its files: bad",
        "RuntimeError: first",
        "ValueError: no 4",
        *(f"mini-batch 1, attempt {n}: OSError: no {n + 4}; trying again" for n in (1, 2, 3)),
        "mini-batch 1 succeeded in attempt 4; before that:",
        "OSError: no 7",
        "mini-batch 2, attempt 1: RuntimeError: first; trying again",
        "mini-batch 2, attempt 2: ValueError: no 10; trying again",
        "mini-batch 2, attempt 3: ValueError: no 11; trying again",
        "mini-batch 2 failed in 4 attempts: ValueError: no 12; its files: worse",
        "2 files failed; the limit is 1",
        "RuntimeError: first",
        "ValueError: no 12",
    ]
    cause = finding(done.stderr.splitlines(), Ending(1))
    assert cause is not None
    assert cause.exception == "ValueError"


def test_the_cause_is_known_if_the_message_has_several_lines(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").touch()
    message = "two problems:\nno image\n\nstep 3 was last\nValueError: not the last"
    script = f"""
        def run(files):
            print("no image was read")
            raise RuntimeError({message!r})
    """
    done = score(tmp_path, textwrap.dedent(script))
    assert done.returncode == 1
    cause = finding((done.stdout + done.stderr).splitlines(), Ending(1))
    assert cause is not None, done.stderr
    assert (cause.cause, cause.exception) == (Cause.SCRIPT_EXCEPTION, "RuntimeError")
    assert cause.where == f"{tmp_path}/score.py:4"


def test_processes_that_run_forks_may_end(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").touch()
    script = """
        import multiprocessing
        def run(files):
            child = multiprocessing.get_context("fork").Process(target=str)
            child.start()
            child.join()
            return [child.exitcode]
    """
    done = score(tmp_path, textwrap.dedent(script))
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out" / "rows").read_text() == "0\n"


def test_the_files_of_a_rank_that_ends_are_named(tmp_path: Path):
    (tmp_path / "in").mkdir()
    for name in "abc":
        (tmp_path / "in" / name).touch()
    (tmp_path / "score.py").write_text(
        "import os, time\ndef run(files):\n"
        "    if os.environ['RANK'] == '1': os._exit(3)\n    while True: time.sleep(1)\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    options = json.dumps({**OPTIONS, "mini_batch_size": 1})
    words = [sys.executable, str(PROGRAM), options, "in", "out", "--"]
    common = {"WORLD_SIZE": "2", "ALLRANKS_JOB": "j", "MASTER_PORT": port}
    where: dict[str, Any] = {"cwd": tmp_path, "stderr": subprocess.PIPE, "text": True}
    env = {**os.environ, **common, "MASTER_ADDR": "127.0.0.1"}
    with subprocess.Popen(words, env={**env, "RANK": "0"}, **where) as first:
        try:
            other = subprocess.run(words, env={**env, "RANK": "1"}, timeout=60, **where)
            assert other.returncode == 3
            assert first.stderr is not None
            line = first.stderr.readline()
            assert re.fullmatch(
                r"mini-batch \d: the process of its rank ended; its files: [abc]\n", line
            )
        finally:
            first.kill()


def test_who_knows_the_name_of_a_job_gets_none_of_its_mini_batches(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").touch()
    (tmp_path / "score.py").write_text(
        "import time\ndef init(): time.sleep(60)\ndef run(files): return files\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "WORLD_SIZE": "2", "ALLRANKS_JOB": "j", "RANK": "0"}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ALLRANKS_STEP_SECRET": "s"}
    words = [sys.executable, str(PROGRAM), json.dumps(OPTIONS), "in", "out", "--"]
    with subprocess.Popen(words, env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as first:
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == "1 files in 1 mini-batches\n"
            for secret, answered in (("j", False), ("s", True)):
                with socket.create_connection(("127.0.0.1", port)) as stranger:
                    stranger.sendall(json.dumps({"job": secret, "do": "take"}).encode() + b"\n")
                    answer = b""
                    with contextlib.suppress(ConnectionResetError):
                        answer = stranger.recv(1000)
                    assert bool(answer) == answered
        finally:
            first.kill()


def test_a_batch_without_files_is_an_error(tmp_path: Path):
    (tmp_path / "in").mkdir()
    done = score(tmp_path)
    assert done.returncode == 1
    assert done.stderr == "the input of the batch endpoint has no files\n"
