"""Pipelines on this machine: steps, reuse, failures, restart, kills of the server."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from allranks.cli.output.show import seconds
from tests.support import Allranks, answer, kill_server, until

TRAIN = """\
name: train
version: 1
type: command
inputs:
  data: {type: uri_folder}
  lr: {type: number, default: 0.1, max: 1}
  note: {type: string, optional: true}
outputs: {model: {type: uri_folder}}
code: .
command: >-
  python train.py ${{inputs.data}} ${{inputs.lr}} ${{outputs.model}} $[[--note "${{inputs.note}}"]]
"""
INNER = """\
type: pipeline
name: inner
inputs: {data: {type: uri_folder}}
outputs: {best: {type: uri_folder}}
jobs:
  one:
    component: train.yml
    inputs: {data: '${{parent.inputs.data}}', note: 'a b; $HOME'}
    outputs: {model: '${{parent.outputs.best}}'}
"""
PIPELINE: dict[str, Any] = {
    "type": "pipeline",
    "experiment_name": "pipes",
    "inputs": {"n": 3, "rate": 0.5},
    "outputs": {"model": None, "swept": None},
    "jobs": {
        "prep": {
            "command": "python prep.py ${{inputs.n}} ${{outputs.data}}",
            "code": "src",
            "inputs": {"n": "${{parent.inputs.n}}"},
            "outputs": {"data": None},
        },
        "train": {
            "component": "src/train.yml",
            "inputs": {
                "data": "${{parent.jobs.prep.outputs.data}}",
                "lr": "${{parent.inputs.rate}}",
            },
            "outputs": {"model": "${{parent.outputs.model}}"},
        },
        "inner": {
            "type": "pipeline",
            "component": "src/inner.yml",
            "inputs": {"data": "${{parent.jobs.prep.outputs.data}}"},
        },
        "tune": {
            "type": "sweep",
            "trial": {
                "command": "echo acc=${{search_space.x}}; "
                "echo ${{search_space.x}} $AZUREML_SWEEP_x > ${{outputs.m}}/x",
                "metrics": {"acc": "acc=([0-9.]+)"},
            },
            "outputs": {"m": "${{parent.outputs.swept}}"},
            "search_space": {"x": {"type": "choice", "values": [0.25, 0.5]}},
            "sampling_algorithm": "grid",
            "objective": {"goal": "maximize", "primary_metric": "acc"},
            "limits": {"max_total_trials": 2},
        },
        "show": {
            "command": "cat ${{inputs.a}}/model.txt ${{inputs.b}}/model.txt ${{inputs.c}}/x",
            "inputs": {
                "a": "${{parent.jobs.train.outputs.model}}",
                "b": "${{parent.jobs.inner.outputs.best}}",
                "c": "${{parent.jobs.tune.outputs.m}}",
            },
        },
    },
}


@pytest.fixture
def folder(code: Path) -> Path:
    """A folder with code and components; its name has blanks and quotes."""
    (code / "src").mkdir()
    (code / "src/prep.py").write_text(
        "import pathlib, sys\nn, data = sys.argv[1:]\n"
        "pathlib.Path(data, 'd.txt').write_text('x' * int(n))\n"
    )
    (code / "src/train.py").write_text(
        "import pathlib, sys\ndata, lr, model, *rest = sys.argv[1:]\n"
        "text = pathlib.Path(data, 'd.txt').read_text()\n"
        "pathlib.Path(model, 'model.txt').write_text(f'{text} {lr} {rest}\\n')\n"
        "print('trained', text)\n"
    )
    (code / "src/train.yml").write_text(TRAIN)
    (code / "src/inner.yml").write_text(INNER)
    return code


def written(folder: Path, data: dict[str, Any], name: str = "p.yml") -> Path:
    (folder / name).write_text(yaml.safe_dump(data, sort_keys=False))
    return folder / name


def create(allranks: Allranks, file: Path, name: str, *more: object) -> dict[str, Any]:
    """Run a pipeline; returns it."""
    done = allranks("job", "create", "-f", file, "--name", name, "--stream", *more)
    assert done.returncode == 0, done.stderr
    job: dict[str, Any] = answer(allranks, "job", "show", name)
    return job


def reused(job: dict[str, Any]) -> dict[str, str | None]:
    return {name: step["reused"] for name, step in job["steps"].items()}


@pytest.mark.slow
@pytest.mark.end_to_end
def test_steps_run_in_order_and_unchanged_ones_are_reused(
    allranks: Allranks, folder: Path, tmp_path: Path
):
    file = written(folder, PIPELINE)
    assert allranks("job", "validate", "-f", file).returncode == 0
    plan = json.loads(allranks("job", "create", "-f", file, "--dry-run", "--json").stdout)
    assert {each["step"] for each in plan["steps"]} == PIPELINE["jobs"].keys()
    done = allranks("job", "create", "-f", file, "--name", "one", "--stream")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0].startswith("one: 5 steps")
    assert any(line.startswith("prep: Completed after ") for line in done.stderr.splitlines())
    one = answer(allranks, "job", "show", "one")
    assert (one["type"], one["status"], one["total_steps"]) == ("pipeline", "Completed", 5)
    assert {each["status"] for each in one["steps"].values()} == {"Completed"}
    assert one["steps"]["show"]["after"] == ["train", "inner", "tune"]

    # Outputs of steps are read in place, those of the pipeline are downloaded by its name.
    shown = allranks("job", "logs", "one_show").stdout.splitlines()
    assert shown == ["xxx 0.5 []", "xxx 0.1 ['--note', 'a b; $HOME']", "0.5 0.5"]
    got = tmp_path / "got"
    assert allranks("job", "download", "one", "-p", got).returncode == 0
    assert (got / "named-outputs/model/model.txt").read_text() == "xxx 0.5 []\n"
    assert (got / "named-outputs/swept/x").read_text() == "0.5 0.5\n"
    registered = allranks("model", "register", "m", "--job", "one", "--path", "outputs.model")
    assert registered.returncode == 0, registered.stderr
    used = (
        "--name",
        "reads",
        "-i",
        "m=azureml://jobs/one/outputs/model/paths/",
        "--",
        "cat",
        "${{inputs.m}}/model.txt",
    )
    assert allranks("run", *used).stdout == "xxx 0.5 []\n"

    # The trial and the step of the nested pipeline are its grandchildren.
    assert {"inner_one | trained xxx", "tune_1 | acc=0.5"} <= {*done.stdout.splitlines()}
    assert sorted(allranks("job", "stream", "one").stdout) == sorted(done.stdout)
    lines = allranks("job", "stream", "one", "--no-prefix").stdout.splitlines()
    assert {"trained xxx", "acc=0.5"} <= {*lines}
    names = {each["name"] for each in answer(allranks, "job", "list", "--parent", "one")}
    assert names == {"one_prep", "one_train", "one_inner", "one_tune", "one_show"}
    listed = [each["name"] for each in answer(allranks, "job", "list", "--experiment", "pipes")]
    assert listed == ["one"]

    before = {each["name"] for each in answer(allranks, "job", "list", "--all")}
    two = create(allranks, file, "two")
    assert reused(two) == {
        **{name: f"one_{name}" for name in ("prep", "train", "tune", "show")},
        "inner": None,
    }
    assert reused(answer(allranks, "job", "show", "two_inner")) == {"one": "one_inner_one"}
    after = {each["name"] for each in answer(allranks, "job", "list", "--all")} - before
    assert after == {
        *("two", "two_prep", "two_train", "two_inner", "two_tune", "two_show", "two_inner_one")
    }
    assert allranks("job", "logs", "two_show").returncode == 0
    assert allranks("job", "download", "two", "-p", tmp_path / "two").returncode == 0
    assert (tmp_path / "two/named-outputs/model/model.txt").exists()
    assert "reused from one_prep" in allranks("job", "explain", "two").stdout

    three = create(allranks, file, "three", "--set", "inputs.rate=0.75")
    assert three["steps"]["prep"]["reused"] == "one_prep"
    assert three["steps"]["train"]["not_reused"] == "changed since one_train: the input lr"
    assert three["steps"]["show"]["not_reused"] == "changed since one_show: the input a"
    (folder / "src/train.py").write_text((folder / "src/train.py").read_text() + "# changed\n")
    four = create(allranks, file, "four")
    assert (
        four["steps"]["train"]["not_reused"]
        == "changed since three_train: the code and the input lr"
    )
    # The step that reads them finds the same contents.
    assert four["steps"]["show"]["reused"] == "one_show"
    five = create(allranks, file, "five", "--force-rerun")
    assert {*reused(five).values()} == {None}

    refused = allranks("job", "delete", "--yes", "one")
    assert refused.returncode != 0
    assert "outputs of one are needed by reads, two, three, four" in refused.stderr
    assert (
        "hint: delete them together: allranks job delete reads two three four one" in refused.stderr
    )
    assert allranks("job", "show", "one_show").returncode == 0, "nothing is gone"
    deleted = allranks("job", "delete", "--yes", "reads", "two", "three", "four", "one")
    assert deleted.returncode == 0, deleted.stderr


@pytest.mark.slow
def test_the_end_of_a_step_comes_after_its_last_lines(allranks: Allranks, folder: Path):
    script = "printf '%s\\n' first last; printf unfinished"
    steps = {
        "a": {"command": script, "outputs": {"o": None}},
        "b": {
            "command": f"ls ${{{{inputs.o}}}}; {script}",
            "inputs": {"o": "${{parent.jobs.a.outputs.o}}"},
        },
    }
    file = written(folder, {"type": "pipeline", "jobs": steps})
    together = {"capture_output": False, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    allranks("job", "create", "-f", file, "--name", "p")
    live = allranks("job", "stream", "p", "--prefix", **together)
    again = allranks("job", "stream", "p", "--prefix", **together)
    for done in (live, again):
        lines = [each.partition(" after ")[0] for each in done.stdout.splitlines()]
        for step in ("a", "b"):
            own = [each for each in lines if each.startswith((f"{step} | ", f"{step}: "))]
            assert [each for each in own if not each.endswith(": Running")] == [
                f"{step} | first",
                f"{step} | last",
                f"{step} | unfinished",
                f"{step}: Completed",
            ]


@pytest.mark.slow
def test_reuse_is_never_wrong(allranks: Allranks, home: Path, folder: Path, tmp_path: Path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("1")
    job: dict[str, Any] = {
        "type": "pipeline",
        "inputs": {"data": {"type": "uri_folder", "path": str(data)}},
        "jobs": {
            "a": {
                "command": "cat ${{inputs.d}}/x > ${{outputs.o}}/y",
                "inputs": {"d": "${{parent.inputs.data}}"},
                "outputs": {"o": None},
            },
            "b": {
                "component": {"command": "date", "is_deterministic": False, "inputs": {}},
            },
        },
    }
    file = written(folder, job)
    create(allranks, file, "one")
    assert reused(create(allranks, file, "two")) == {"a": "one_a", "b": None}
    # Another terminal, with its own time zone and language.
    env = {"TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8", "LC_ALL": "C", "https_proxy": "http://x:1"}
    allranks("job", "create", "-f", file, "--name", "abroad", "--stream", env=env)
    assert reused(answer(allranks, "job", "show", "abroad")) == {"a": "one_a", "b": None}
    (data / "x").write_text("2")
    three = create(allranks, file, "three")
    assert three["steps"]["a"]["not_reused"] == "changed since one_a: the input d"
    assert three["steps"]["b"]["not_reused"] == "its component says `is_deterministic: false`"
    # Equal contents elsewhere are equal.
    shutil.copytree(data, tmp_path / "copy")
    job["inputs"]["data"]["path"] = str(tmp_path / "copy")
    assert reused(create(allranks, written(folder, job), "four"))["a"] == "three_a"
    # Results that were changed or deleted count as absent.
    (home / "jobs/three_a/named-outputs/o/y").write_text("3")
    five = create(allranks, file, "five")
    assert five["steps"]["a"]["not_reused"] == "the outputs of three_a were changed or deleted"
    assert (home / "jobs/five_a/named-outputs/o/y").read_text() == "2"
    assert reused(create(allranks, file, "six"))["a"] == "five_a"
    for name in ("six", "five"):
        assert allranks("job", "delete", "--yes", name).returncode == 0
    assert reused(create(allranks, file, "seven"))["a"] is None
    # A failure is no result.
    job["jobs"]["a"]["command"] += "; exit 3"
    for name in ("eight", "nine"):
        done = allranks("job", "create", "-f", written(folder, job), "--name", name, "--stream")
        assert done.returncode == 3
        assert "the step a failed" in done.stderr


@pytest.mark.slow
def test_a_failed_pipeline_continues_with_what_did_not_complete(
    allranks: Allranks, folder: Path, tmp_path: Path
):
    good = tmp_path / "good"
    check = f"test -f '{good}'"
    job: dict[str, Any] = {
        "type": "pipeline",
        "jobs": {
            "a": {"command": "echo a"},
            "b": {"command": f"{check} || (echo broken >&2; exit 3)"},
            "c": {
                "command": "cat ${{inputs.x}}/y",
                "inputs": {"x": "${{parent.jobs.d.outputs.o}}"},
            },
            "d": {
                "command": f"({check} && echo hi > ${{{{outputs.o}}}}/y) || exit 3",
                "outputs": {"o": None},
            },
            "n": {
                "type": "pipeline",
                "jobs": {"ok": {"command": "true"}, "no": {"command": f"{check} || exit 3"}},
            },
        },
    }
    file = written(folder, job)
    done = allranks("job", "create", "-f", file, "--name", "f", "--stream")
    assert done.returncode == 3
    assert "(and 2 more failed)" in done.stderr
    assert re.search(
        r"f: Failed after .* s, 1 of 5 steps completed, 3 failed, 1 not run\n", done.stderr
    )
    assert "submit the file again: steps that completed are reused" in done.stderr
    failed = answer(allranks, "job", "show", "f")
    assert failed["error"]["reason"] == "RANK_EXITED"
    assert failed["steps"]["c"]["job"] is None
    assert "5 steps" in allranks("job", "list").stdout, "with those that did not start"
    told = allranks("job", "explain", "f").stdout
    assert "c: not run: it needs d" in told
    assert "b: failed: rank 0 on node 0 exited with code 3; its last line: broken" in told

    good.touch()
    assert answer(allranks, "job", "restart", "f")["name"] == "f"
    ended = allranks("job", "stream", "f")
    assert ended.returncode == 0
    (resumed,) = [
        event["at"]
        for event in answer(allranks, "job", "events", "f")
        if event["kind"] == "resumed"
    ]
    again = answer(allranks, "job", "show", "f")
    assert again["started_at"] == resumed, "its time is that of what ran now"
    took = datetime.fromisoformat(again["ended_at"]) - datetime.fromisoformat(resumed)
    assert f"f: Completed after {seconds(took.total_seconds())}, 5 of 5 steps\n" in ended.stderr
    (listed,) = (each for each in answer(allranks, "job", "list") if each["name"] == "f")
    assert listed["duration"] == pytest.approx(took.total_seconds(), abs=0.01)
    assert {name: each["job"] for name, each in again["steps"].items()} == {
        "a": "f_a",
        "b": "f_b-2",
        "d": "f_d-2",
        "n": "f_n",
        "c": "f_c",
    }
    inner = answer(allranks, "job", "show", "f_n")["steps"]
    assert (inner["ok"]["job"], inner["no"]["job"]) == ("f_n_ok", "f_n_no-2")
    done = allranks("job", "restart", "f", "--resume")
    assert "all steps of f have completed" in done.stderr
    assert allranks("job", "delete", "--yes", "f").returncode == 0
    assert answer(allranks, "job", "list", "--all") == []

    job["settings"] = {"continue_on_step_failure": False}
    good.unlink()
    job["jobs"] = {name: job["jobs"][name] for name in ("b", "d", "c")}
    job["jobs"]["a"] = {"command": "echo", "inputs": {"x": "${{parent.jobs.n.outputs.o}}"}}
    job["jobs"]["n"] = {"command": "sleep 1; true", "outputs": {"o": None}}
    allranks("job", "create", "-f", written(folder, job), "--name", "g", "--stream")
    stopped = answer(allranks, "job", "show", "g")
    assert stopped["status"] == "Failed"
    assert stopped["steps"]["n"]["status"] == "Completed"
    assert stopped["steps"]["a"]["job"] is None


@pytest.mark.slow
def test_cancel_and_timeout_reach_all_steps(allranks: Allranks, folder: Path):
    sleep = {"command": "sleep 60"}
    job = {
        "type": "pipeline",
        "jobs": {"a": sleep, "n": {"type": "pipeline", "jobs": {"x": sleep}}},
    }
    file = written(folder, job)
    assert allranks("job", "create", "-f", file, "--name", "s").returncode == 0
    until(lambda: len(answer(allranks, "job", "list", "--parent", "s_n")) == 1)
    assert allranks("job", "cancel", "s").returncode == 0
    assert allranks("job", "wait", "s").returncode == 1
    assert answer(allranks, "job", "show", "s")["status"] == "Canceled"
    jobs = answer(allranks, "job", "list", "--all")
    assert {each["status"] for each in jobs} == {"Canceled"}
    assert len(jobs) == 4
    file = written(folder, {**job, "limits": {"timeout": 0.5}})
    done = allranks("job", "create", "-f", file, "--name", "t", "--stream")
    assert done.returncode == 1
    assert "the pipeline ran longer than limits.timeout" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_killed_server_loses_and_doubles_no_step(
    allranks: Allranks, home: Path, folder: Path, seed: int
):
    """Killed at random moments, it runs the same steps, each once."""
    rng = random.Random(seed)
    file = written(folder, PIPELINE)
    assert allranks("job", "create", "-f", file, "--name", "k").returncode == 0
    for _ in range(6):
        until(lambda: (home / "server.json").exists())
        signal.sigtimedwait([], rng.uniform(0, 0.3))
        kill_server(home)
        if answer(allranks, "job", "show", "k")["status"] == "Completed":
            break
    assert answer(allranks, "job", "wait", "k")["status"] == "Completed"
    job = answer(allranks, "job", "show", "k")
    assert {name: each["job"] for name, each in job["steps"].items()} == {
        name: f"k_{name}" for name in PIPELINE["jobs"]
    }
    jobs = {each["name"]: each["attempts"] for each in answer(allranks, "job", "list", "--all")}
    own = {"k", "k_inner_one", "k_tune_0", "k_tune_1", *(f"k_{name}" for name in PIPELINE["jobs"])}
    assert jobs.keys() == own
    shown = allranks("job", "logs", "k_show").stdout.splitlines()
    assert shown == ["xxx 0.5 []", "xxx 0.1 ['--note', 'a b; $HOME']", "0.5 0.5"]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("change", "message", "line"),
    [
        (("train.inputs.lr", 3), "`3` is more than 1", True),
        (
            ("train.inputs.data", "${{parent.jobs.perp.outputs.data}}"),
            "there is no step `perp`",
            True,
        ),
        (("train.component", "src/none.yml"), 'none.yml" not found', True),
        (("prep.inputs.n", "${{parent.jobs.show.outputs.x}}"), "has no output `x`", True),
        (("prep.compute", "nowhere"), "'nowhere'", True),
        (("prep.code", "nowhere"), "no such file or folder", False),
        (("prep.environment", "azureml:nothing:1"), "environment nothing:1 not found", True),
        (
            ("tune.search_space.x", {"type": "choice", "values": []}),
            "must hold at least one value",
            True,
        ),
        (("train.component", "azureml:train:1"), "component train:1 not found", True),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(
    shared: Allranks, folder: Path, change: tuple[str, Any], message: str, line: bool
):
    job = json.loads(json.dumps(PIPELINE))
    *path, last = change[0].split(".")
    place = job["jobs"]
    for step in path:
        place = place[step]
    place[last] = change[1]
    file = written(folder, job)
    for words in (("validate",), ("create", "--name", "cannot_run")):
        done = shared("job", words[0], "-f", file, *words[1:])
        assert done.returncode != 0
        assert message in done.stderr
        assert "hint: " in done.stderr
        assert "Traceback" not in done.stderr
        if line:
            assert f"{file}:" in done.stderr
    assert "not found" in shared("job", "show", "cannot_run").stderr


@pytest.mark.slow
def test_other_commands_say_what_a_pipeline_is(allranks: Allranks, folder: Path):
    file = written(folder, {"type": "pipeline", "jobs": {"a": {"command": "true"}}})
    create(allranks, file, "p")
    for words, message in (
        (("job", "logs", "p"), "p is a pipeline and has no output of its own"),
        (("job", "stacks", "p"), "p is a pipeline and has no ranks of its own"),
        (("job", "metrics", "p"), "p is a pipeline; its jobs have metrics"),
        (("report", "p"), "p is a pipeline and trains nothing itself"),
        (("run", "--from", "p", "--", "true"), "p is a pipeline and has no ranks of its own"),
        (("job", "restart", "p", "-C", "."), "a pipeline is restarted with its own code"),
        (("job", "restart", "p", "--trials", 3), "p is not a sweep"),
        (("job", "create", "-f", file, "--rehearse"), "a pipeline is not rehearsed as a whole"),
        (("job", "create", "-f", file, "--in-place"), "a pipeline does not run in place"),
        (("doctor", "--job", file), "doctor checks command jobs, not a pipeline"),
    ):
        done = allranks(*words)
        assert message in done.stderr + done.stdout, (words, done.stderr)
        assert "Traceback" not in done.stderr
    (folder / "c.yml").write_text(
        "$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json\n"
        "command: x\n"
    )
    assert (
        "this is a component, not a job" in allranks("job", "create", "-f", folder / "c.yml").stderr
    )


ENTRY = """\
import argparse, os, pathlib, time
def init():
    global given
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int)
    parser.add_argument("--tries")
    parser.add_argument("--words")
    given, _ = parser.parse_known_args()
def run(mini_batch):
    assert 1 <= len(mini_batch) <= 4
    numbers = [int(pathlib.Path(each).read_text()) for each in mini_batch]
    tried = pathlib.Path(given.tries, str(numbers[0]))
    if numbers[0] % 3 == 1 and not tried.exists():
        tried.touch()
        if numbers[0] % 2:
            time.sleep(60)
        raise ValueError("not at once")
    if 17 in numbers:
        raise ValueError("never")
    return [f"{each * given.times} {given.words}" for each in numbers]
"""


@pytest.mark.slow
def test_a_parallel_step_takes_every_file_once(allranks: Allranks, folder: Path, tmp_path: Path):
    for name in ("in", "in/below", "tries"):
        (tmp_path / name).mkdir()
    for number in range(1, 24):
        place = "below/" if number > 20 else ""
        (tmp_path / f"in/{place}{number:02} a.txt").write_text(str(number))
    (folder / "src/entry.py").write_text(ENTRY)
    component = {
        "name": "score",
        "version": "1",
        "type": "parallel",
        "inputs": {"data": {"type": "uri_folder"}, "words": {"type": "string", "optional": True}},
        "outputs": {"rows": {"type": "uri_file"}},
        "input_data": "${{inputs.data}}",
        "mini_batch_size": "4",
        "mini_batch_error_threshold": 0,
        "max_concurrency_per_instance": 2,
        "resources": {"instance_count": 2},
        "retry_settings": {"max_retries": 1, "timeout": 2},
        "task": {
            "type": "run_function",
            "code": "src",
            "entry_script": "entry.py",
            "program_arguments": f"--times 2 --tries '{tmp_path}/tries' "
            '$[[--words "${{inputs.words}}"]]',
            "append_row_to": "${{outputs.rows}}",
        },
    }
    written(folder, component, "score.yml")
    step: dict[str, Any] = {
        "type": "parallel",
        "component": "score.yml",
        "inputs": {"data": {"path": str(tmp_path / "in")}, "words": "a b;"},
        "mini_batch_error_threshold": 1,
    }
    job = {"type": "pipeline", "outputs": {"all": {"type": "uri_file"}}, "jobs": {"s": step}}
    step["outputs"] = {"rows": "${{parent.outputs.all}}"}
    made = create(allranks, written(folder, job), "p")
    # The batch with 17 fails twice; all others are there in the order of the files.
    rows = Path(made["outputs"]["all"]).read_text().splitlines()
    numbers = [n for n in range(1, 24) if n not in (17, 18, 19, 20)]
    assert rows == [f"{2 * n} a b;" for n in numbers]
    assert answer(allranks, "job", "show", "p_s")["processes"] == 4
    said = allranks("job", "logs", "p_s").stdout
    assert "23 files in 6 mini-batches" in said
    assert "run() took longer than 2 s" in said
    assert "6 mini-batches, 1 failed" in said

    # The same written in place, with the component's own threshold.
    for name in ("name", "version", "inputs", "outputs"):
        component.pop(name)
    inline = {**component, **{key: step[key] for key in ("inputs", "outputs")}}
    file = written(folder, {**job, "jobs": {"s": inline}})
    done = allranks("job", "create", "-f", file, "--name", "q", "--stream")
    assert done.returncode == 1, done.stderr
    assert "1 mini-batch failed; the limit is 0" in allranks("job", "logs", "q_s").stdout
    for key, value, message in (
        ("input_data", "data", "`data` is not an input"),
        ("mini_batch_size", "1 box", "`1 box` is not a number of files"),
        ("task", {**component["task"], "entry": "x"}, "`entry` is not a key"),
        ("input_data", "${{inputs.dta}}", "`${{inputs.dta}}` is not defined"),
    ):
        file = written(folder, {**job, "jobs": {"s": {**inline, key: value}}})
        assert message in allranks("job", "validate", "-f", file).stderr


def test_errors_in_a_component_name_its_file_and_line(allranks: Allranks, folder: Path):
    (folder / "src/train.yml").write_text(TRAIN.replace("max: 1", "max: one"))
    done = allranks("job", "create", "-f", written(folder, PIPELINE))
    assert done.returncode == 2
    assert f"{folder / 'src/train.yml'}:6" in done.stderr


@pytest.mark.medium
def test_the_default_artifacts_of_a_step(shared: Allranks, code: Path) -> None:
    """Azure's output `artifacts` is all that a job leaves, unless it writes to an own one."""
    (code / "artifacts.yml").write_text(
        """\
type: pipeline
jobs:
  left:
    command: echo left > ./outputs/x
    environment: current
    outputs: {artifacts: null}
  wrote:
    command: echo wrote > ${{outputs.artifacts}}/x
    environment: current
    outputs: {artifacts: null}
  read:
    command: cat ${{inputs.a}}/outputs/x ${{inputs.b}}/x
    environment: current
    inputs:
      a: ${{parent.jobs.left.outputs.artifacts}}
      b: ${{parent.jobs.wrote.outputs.artifacts}}
"""
    )
    words = ("--name", "default-artifacts", "--stream")
    done = shared("job", "create", "-f", "artifacts.yml", *words)
    assert done.returncode == 0, done.stderr
    logs = shared("job", "logs", "default-artifacts_read")
    assert logs.stdout == "left\nwrote\n"
