"""Every door of a job answers its own exit code: `run`, `--stream`, `job stream` and `job wait`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support import Allranks, answer


@pytest.mark.slow
def test_all_doors_answer_the_jobs_code(shared: Allranks, code: Path) -> None:
    (code / "job.yml").write_text("command: exit 7\nname: seven\n")
    doors = (
        ("run", "--", "sh", "-c", "exit 7"),
        ("job", "create", "-f", "job.yml", "--stream"),
        ("job", "create", "-f", "job.yml", "--name", "seven-json", "--stream", "--json"),
        ("job", "restart", "-", "--stream"),
        ("job", "restart", "seven", "--stream", "--json"),
        ("job", "stream", "-"),
        ("job", "stream", "seven", "--json"),
        ("job", "wait", "-"),
        ("job", "wait", "seven", "--json"),
    )
    assert {words: shared(*words).returncode for words in doors} == dict.fromkeys(doors, 7)
    assert answer(shared, "job", "show", "seven")["exit_code"] == 7
    # Not a door of the job: it shows logs.
    assert shared("job", "logs", "-f", "seven").returncode == 0
    killed = ("run", "--name", "killed", "--", "sh", "-c", "kill -9 $$")
    assert shared(*killed).returncode == 137
    assert shared("job", "wait", "killed").returncode == 137
    assert shared("job", "stream", "killed").returncode == 137
    # az knows only whether it failed.
    assert shared("az", "ml", "job", "stream", "-n", "seven").returncode == 1


@pytest.mark.slow
def test_a_pipe_that_hides_a_failure_is_noted(shared: Allranks, code: Path) -> None:
    (code / "fails.py").write_text("import sys; print('x'); sys.exit(7)\n")
    hid = "note: the pipe in the command hid exit code 7 of rank 0"
    (code / "job.yml").write_text("code: .\ncommand: python fails.py | tee log\n")
    done = shared("job", "create", "-f", "job.yml", "--stream")
    assert (done.returncode, hid in done.stderr) == (0, True)
    done = shared("run", "--", "bash", "-c", "env -u X python fails.py 2>&1 | tee log")
    assert (done.returncode, hid in done.stderr) == (0, True)
    for line in (
        "yes | head -1",
        "python fails.py | cat; true",
        "bash -c 'python fails.py | cat' && env | grep -c BASH_ENV || true",
    ):
        (code / "job.yml").write_text(f"code: .\ncommand: {line}\n")
        done = shared("job", "create", "-f", "job.yml", "--stream")
        assert (done.returncode, "hid exit code" in done.stderr) == (0, False), line
    assert done.stdout == "x\n0\n"


@pytest.mark.slow
def test_a_job_that_no_rank_of_gave_a_code_answers_1(shared: Allranks) -> None:
    shared("run", "--detach", "--name", "stopped", "--", "sleep", "60")
    assert shared("job", "wait", "stopped", "--timeout", "0.1").returncode == 124
    shared("job", "cancel", "stopped")
    assert shared("job", "wait", "stopped").returncode == 1
    assert shared("job", "stream", "stopped").returncode == 1


@pytest.mark.slow
def test_a_parents_code_is_that_of_the_child_that_failed_first(
    shared: Allranks, code: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    wait = 'until [ "$(cat {} 2>/dev/null)" = x ]; do sleep 0.05; done; '
    steps = {
        "a": {"command": wait.format(second) + "exit 5"},
        "b": {"type": "pipeline", "jobs": {"inner": {"command": wait.format(first) + "exit 9"}}},
        "c": {"command": "true"},
    }
    pipeline = {"type": "pipeline", "name": "two-fail", "jobs": steps}
    (code / "p.yml").write_text(yaml.safe_dump(pipeline))
    shared("job", "create", "-f", "p.yml")
    first.write_text("x")
    shared("job", "wait", "two-fail_b")
    second.write_text("x")
    assert shared("job", "wait", "two-fail").returncode == 9
    assert shared("job", "stream", "two-fail").returncode == 9
    assert answer(shared, "job", "show", "two-fail")["exit_code"] == 9
    # Restarted, it fails with the code of what failed then.
    assert shared("job", "restart", "two-fail", "--stream").returncode in (5, 9)

    sweep = ("run", "--sweep", "x=choice(3, 4)", "--sampler", "grid", "--concurrent", "1")
    sweep += ("--maximize", "acc", "--name", "all-fail")
    assert shared(*sweep, "--", "sh", "-c", "exit ${{search_space.x}}").returncode == 3
    assert shared("job", "wait", "all-fail").returncode == 3
    silent = ("run", "--sweep", "x=choice(3)", "--sampler", "grid", "--maximize", "acc")
    assert shared(*silent, "--", "true").returncode == 1


@pytest.mark.slow
def test_a_pipelines_stream_prints_every_rank_of_its_steps(shared: Allranks, code: Path) -> None:
    steps = {
        "talk": {
            "command": "echo rank $RANK",
            "distribution": {"type": "pytorch", "process_count_per_instance": 2},
        },
        "inner": {"type": "pipeline", "jobs": {"deep": {"command": "printf 'no end'"}}},
    }
    (code / "talks.yml").write_text(yaml.safe_dump({"type": "pipeline", "jobs": steps}))
    created = ("job", "create", "-f", "talks.yml", "--name", "talks", "--stream")
    done = shared(*created)
    named = ["inner_deep | no end", "talk rank 1 | rank 1", "talk | rank 0"]
    assert sorted(done.stdout.splitlines()) == named, "in a pipe too"
    assert "talk: Completed" in done.stderr
    plain = shared("job", "stream", "talks", "--no-prefix").stdout.splitlines()
    assert sorted(plain) == ["no end", "rank 0", "rank 1"]
    assert shared("job", "stream", "talks", "--rank", "1").stdout == "talk rank 1 | rank 1\n"
    # Unchanged steps are reused, and print nothing again.
    again = shared("job", "restart", "talks", "--stream")
    assert again.stderr.splitlines()[0] == (
        "talks-r2 runs anew, because talks is Completed; unchanged steps are reused"
    )
    assert again.stdout == ""
    assert answer(shared, "job", "show", "talks-r2")["steps"]["talk"]["reused"] == "talks_talk"
    fresh = shared("job", "restart", "talks", "--fresh", "--stream")
    assert fresh.stderr.splitlines()[0] == "talks-r3 runs anew; all steps run"
    assert sorted(fresh.stdout.splitlines()) == named


@pytest.mark.slow
def test_the_cause_is_found_behind_a_pipe(shared: Allranks, code: Path) -> None:
    """What `tee` passes on follows the traceback, which Python prints past it."""
    (code / "train.py").write_text("print('a\\n' * 30 + 'a')\nprint({}['lr'])\n")
    (code / "late.sh").write_text("until grep -qs KeyError error; do sleep 0.01; done; cat\n")
    line = "python train.py 2> >(tee error >&2) | bash late.sh"
    (code / "run.sh").write_text(f"#!/bin/bash\nset -o pipefail\n{line}\n")
    (code / "run.sh").chmod(0o755)
    for words in (
        ("bash", "-o", "pipefail", "-c", line),
        ("bash", "-c", f"set -eo pipefail; {line}"),
        ("bash", "run.sh"),
        ("./run.sh", "--lr", "0.1"),
        ("bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"),
    ):
        done = shared("run", "--", *words)
        assert done.stdout.endswith("a\n"), words
        assert "KeyError: 'lr'\n" in done.stderr, words
        assert "hint: check train.py:2" in done.stderr, words
