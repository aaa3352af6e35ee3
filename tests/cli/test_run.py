"""`allranks run`, as a user types it: real server, real agents, real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from allranks.http_client import Client
from tests.support import CLI, answer, commit_all, environment, until

# Real servers and processes, about half a second a test.
pytestmark = pytest.mark.slow


def sh(script: str) -> list[str]:
    return ["--", "bash", "-c", script]


def begin(home: Path, folder: Path, *words: str) -> "subprocess.Popen[str]":
    """Start `allranks run` and return once its rank has printed `up`."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    argv = [sys.executable, "-c", CLI, "run", *words, *sh("echo up; sleep 60")]
    process = subprocess.Popen(argv, env=environment(home), cwd=folder, **pipes)
    assert process.stdout.readline() == "up\n"
    return process


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["echo", "hello  world; $(touch x)", "*", "ü"], "hello  world; $(touch x) * ü\n".encode()),
        (["printf", "no end"], b"no end\n"),
        (sh(r"printf 'a\xff\xfeb\n\xc3'; printf '\xa9\n'")[1:], b"a\xff\xfeb\n\xc3\xa9\n"),
    ],
)
def test_output_arrives_byte_for_byte(shared, words, output):
    done = shared("run", "--", *words, text=False)
    assert (done.returncode, done.stdout) == (0, output)


def test_a_word_with_a_value_is_one_argument(shared):
    words = ("printf", "<%s>", "${{inputs.x}}", "--x=${{inputs.x}}", "${{inputs.e}}")
    value = 'a  "b" \\d*'
    sets = ("--set", f"inputs.x={json.dumps(value)}", "--set", "inputs.e=''")
    done = shared("run", *sets, "--", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"<{value}><--x={value}><>\n"


def test_a_job_file_splits_what_is_not_quoted(shared, code):
    (code / "values.yml").write_text(
        """
command: >-
  X=${{inputs.x}} bash -c 'printf "<%s>" "$X" "$@"' -
  ${{inputs.x}} "${{inputs.x}}" ${{inputs.e}}
environment: azureml:current@latest
inputs: {x: 'a  {"b":1} \\d*', e: ''}
"""
    )
    done = shared("job", "create", "-f", "values.yml", "--stream")
    assert done.returncode == 0, done.stderr
    value = 'a  {"b":1} \\d*'
    assert done.stdout == f'<{value}><a><{{"b":1}}><\\d*><{value}>\n'


def test_a_rank_out_of_range_is_refused(shared):
    count = len(answer(shared, "job", "list"))
    for words in (("-n", 2), ("-n", 1, "-p", 2, "--json"), ("-n", 2, "--dry-run")):
        done = shared("run", *words, "--rank", 2, "--", "echo", "hi")
        said = done.stdout + done.stderr
        assert (done.returncode, "the job has no rank 2" in said) == (2, True), said
        assert "its ranks are 0 to 1" in said
    assert len(answer(shared, "job", "list")) == count
    assert shared("run", "-n", 2, "--rank", 1, "--", "bash", "-c", "echo $RANK").stdout == "1\n"
    roles = ("distribution.type=TensorFlow", "distribution.parameter_server_count=1")
    words = [word for each in roles for word in ("--set", each)]
    assert shared("run", *words, "--rank", 1, "--dry-run", "--", "true").returncode == 0
    wrong = shared("run", "--rank", 0, "--set", "resources.instance_count=x", "--", "true")
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False)


@pytest.mark.end_to_end
def test_each_rank_finds_torchs_variables(shared):
    names = (
        "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK MASTER_ADDR PET_NNODES"
    )
    done = shared(
        "run", "-n", 2, "-p", 2, *sh(f"for n in {names}; do printf '%s ' ${{!n}}; done; echo")
    )
    lines = sorted(line.split() for line in done.stdout.splitlines())
    assert lines == [
        [str(rank), "4", str(rank % 2), "2", str(rank // 2), str(rank // 2), "127.0.0.2", "2"]
        for rank in range(4)
    ]
    own = shared("run", "--env", "RANK=17", "-d", "pytorch", *sh("echo $RANK"))
    assert own.stdout == "17\n", "the user's own value wins"


def test_the_port_of_rank_0_is_free_for_it(shared):
    bind = (
        "import os,socket; s=socket.socket(); "
        "s.bind((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))); print('bound')"
    )
    done = shared("run", "-p", 1, "-d", "pytorch", "--", "python", "-c", bind)
    assert done.stdout == "bound\n", done.stderr


def test_tensorflow_gets_a_cluster_and_its_servers_are_stopped(shared):
    script = 'echo "$TF_CONFIG"; test $AZ_BATCHAI_TASK_TYPE = worker || sleep 300'
    done = shared("run", "-n", 2, "-d", "tensorflow", "--parameter-servers", 1, *sh(script))
    assert done.returncode == 0, done.stderr
    configs = [json.loads(line) for line in done.stdout.splitlines()]
    cluster = configs[0]["cluster"]
    assert all(config["cluster"] == cluster for config in configs)
    assert [len(cluster["worker"]), len(cluster["ps"])] == [2, 1]
    assert {address.split(":")[0] for address in cluster["worker"]} == {"127.0.0.2", "127.0.0.3"}
    tasks = sorted((c["task"]["type"], c["task"]["index"]) for c in configs)
    assert tasks == [("ps", 0), ("worker", 0), ("worker", 1)]


def test_nothing_leaks_in_from_the_shell(shared):
    env = {"LEAK": "1", "PASSED": "a b", "MY_TOKEN": "s3cret"}
    words = ["run", "--env", "PASSED", "--env", "GIVEN=x=y", *sh("env")]
    done = shared(*words, env=env)
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert "LEAK" not in found
    assert (found["PASSED"], found["GIVEN"]) == ("a b", "x=y")
    (job,) = answer(shared, "job", "list", "--limit", 1)
    shown = answer(shared, "job", "show", job["name"])["spec"]
    assert shown["environment_variables"] == {"PASSED": "********", "GIVEN": "x=y"}
    everything = shared("run", "--env-all", *sh("env"), env=env).stdout
    assert "LEAK=1" in everything
    assert "s3cret" not in everything


def test_the_first_failure_is_the_one_reported(shared):
    script = "if [ $RANK = 1 ]; then echo boom >&2; exit 7; fi; sleep 60"
    began = time.monotonic()
    done = shared("run", "-n", 3, "--name", "boom", *sh(script))
    assert time.monotonic() - began < 30
    assert done.returncode == 7
    assert "error: rank 1 on node 1 exited with code 7; its last line: boom" in done.stderr
    assert "hint: " in done.stderr
    error = answer(shared, "job", "show", "boom")["error"]
    assert (error["reason"], error["blame"]) == ("RANK_EXITED", "user")
    assert (error["node"], error["rank"]) == (1, 1)


@pytest.mark.parametrize(
    ("script", "exit_code", "reason"),
    [
        ("kill -9 $$", 137, "RANK_KILLED"),
        ("kill -SEGV $$", 139, "RANK_KILLED"),
        ("bash -c 'kill -9 $$'; exit $?", 137, "RANK_KILLED"),
        ("kill -USR1 $$", 138, "RANK_KILLED"),
        ("exit 3", 3, "RANK_EXITED"),
        ("nosuchprogram", 127, "RANK_EXITED"),
    ],
)
def test_the_exit_code_is_the_jobs_own(shared, script, exit_code, reason):
    done = shared("run", "--json", *sh(script))
    job = json.loads(done.stdout)
    assert (done.returncode, job["exit_code"], job["error"]["reason"]) == (
        exit_code,
        exit_code,
        reason,
    )
    assert job["status"] == "Failed"
    assert exit_code != 138 or "SIGUSR1" in job["error"]["message"]


def test_a_failure_with_attempts_left_starts_again_in_the_same_allocation(shared):
    script = "echo attempt $ALLRANKS_ATTEMPT; test $ALLRANKS_ATTEMPT = 2"
    done = shared("run", "-n", 2, "--max-attempts", 2, "--name", "again", *sh(script))
    assert done.returncode == 0
    # The first to fail ends the other, which may not have said a word yet.
    first, *second = sorted(set(done.stdout.splitlines()))
    assert (first, second) == ("attempt 1", ["attempt 2"])
    assert done.stdout.count("attempt 2") == 2
    assert "again: attempt 1 failed (rank " in done.stderr
    assert "attempt 2 starts on the same nodes" in done.stderr
    job = answer(shared, "job", "show", "again")
    assert (job["attempts"], job["launches"]) == (2, 1)
    logs = [shared("job", "logs", "again", "--attempt", 1, "--rank", r).stdout for r in range(2)]
    assert "attempt 1\n" in logs
    assert shared("job", "logs", "again", "--rank", 1).stdout == "attempt 2\n"


def test_inputs_outputs_and_the_jobs_own_folders(shared, code):
    (code / "data.txt").write_text("42")
    (code / "outputs").mkdir()
    (code / "outputs" / "old.txt").write_text("stale")
    script = (
        'cp "$1" "$2/copy"; cp "$1" outputs/here; echo log > logs/l; ls outputs; '
        'echo "$AZURE_ML_INPUT_data" "$AZURE_ML_OUTPUT_model"'
    )
    done = shared(
        *("run", "--name", "io", "-i", "data=data.txt", "-o", "model"),
        *("--", "bash", "-c", script, "x", "${{inputs.data}}", "${{outputs.model}}"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "here"
    assert done.stdout.splitlines()[1].startswith(str(code / "data.txt"))
    assert "left out of the code: outputs/" in done.stderr
    shared("job", "download", "io", "--all", "-p", "got")
    got = code / "got"
    assert (got / "artifacts" / "outputs" / "here").read_text() == "42"
    assert (got / "artifacts" / "logs" / "l").read_text() == "log\n"
    assert (got / "named-outputs" / "model" / "copy").read_text() == "42"
    assert (got / "artifacts" / "user_logs" / "std_log.txt").read_text() == done.stdout


def test_a_downloaded_input_is_a_copy(shared, code):
    (code / "d").mkdir()
    (code / "d" / "f").write_text("kept")
    script = 'echo changed > "$1/f"; cat "$1/f"'
    done = shared("run", "-i", "d=d:download", "--", "bash", "-c", script, "x", "${{inputs.d}}")
    assert done.stdout == "changed\n", done.stderr
    assert (code / "d" / "f").read_text() == "kept"


@pytest.mark.end_to_end
def test_the_code_travels_as_it_is_now_but_for_what_is_ignored(shared, code):
    (code / "pkg").mkdir()
    (code / "pkg" / "a b.py").write_text("print('code')")
    (code / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (code / "run.sh").chmod(0o755)
    (code / "big.bin").write_text("x")
    (code / ".gitignore").write_text("*.bin\n")
    (code / "link").symlink_to("run.sh")
    done = shared("run", *sh("find . | sort; ./link; python 'pkg/a b.py'"))
    assert done.returncode == 0, done.stderr
    assert "big.bin" not in done.stdout
    assert done.stdout.endswith("ran\ncode\n")
    written = shared("run", *sh("echo new > pkg/new; pwd")).stdout.strip()
    assert not (code / "pkg" / "new").exists()
    assert written != str(code)


def test_in_place_runs_where_it_is_and_still_collects(shared, code):
    done = shared("run", "--in-place", "--name", "inplace", *sh("pwd; echo 1 > outputs/o"))
    assert done.stdout.strip() == str(code)
    assert (code / "outputs" / "o").read_text() == "1\n"
    shared("job", "download", "inplace", "-p", "got")
    assert (code / "got" / "artifacts" / "outputs" / "o").read_text() == "1\n"


def test_what_ranks_leave_behind_ends_with_the_job(shared):
    script = "(setsid sleep 4711 &); (setsid env -i sleep 4712 &); sleep 0.2; echo done"
    assert shared("run", "--name", "litter", *sh(script)).stdout == "done\n"
    listed = subprocess.run(["pgrep", "-f", "^sleep 471[12]"], capture_output=True, text=True)
    assert listed.stdout == ""


@pytest.mark.end_to_end
def test_detach_cancel_and_wait(shared):
    made = shared("run", "--detach", "--json", "-n", 2, "--", "sleep", "100")
    name = json.loads(made.stdout)["name"]
    until(lambda: answer(shared, "job", "show", name)["status"] == "Running")
    assert shared("job", "wait", name, "--timeout", "0.1").returncode == 124
    assert shared("job", "cancel", name).returncode == 0
    done = shared("job", "wait", name, "--json")
    job = json.loads(done.stdout)
    assert (done.returncode, job["status"], job["error"]["reason"]) == (1, "Canceled", "CANCELED")
    assert shared("job", "cancel", name).returncode == 0, "twice is once"


def test_the_time_limit_ends_it(shared):
    done = shared("run", "--timeout", 0.5, "--json", "--", "sleep", "100")
    assert json.loads(done.stdout)["error"]["reason"] == "TIME_LIMIT"
    assert done.returncode == 1


def test_ctrl_c_leaves_the_job_running(shared_home, shared, code):
    process = begin(shared_home, code, "--name", "goes-on")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Detached; goes-on is still running" in errors
    assert "hint: allranks job stream goes-on" in errors
    assert answer(shared, "job", "show", "goes-on")["status"] == "Running"
    shared("job", "cancel", "goes-on")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_cancels_on_request(shared_home, code, number):
    process = begin(shared_home, code, "--cancel-on-interrupt")
    process.send_signal(number)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Canceled" in errors
    assert output == "", "no output is printed twice"


INTERRUPTED = """
import os, signal, sys
from allranks import http_client
from allranks.cli.main import main

signal.signal(signal.SIGINT, signal.default_int_handler)
call = http_client.Client.call

def interrupted(self, method, path, *rest, **more):
    if (method, path) == ("POST", "/api/v1/jobs"):
        os.kill(os.getpid(), signal.SIGINT)
    return call(self, method, path, *rest, **more)

http_client.Client.call = interrupted
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("words", "exits", "says", "status"),
    [
        ([], 130, "Detached; {} is still running", "Running"),
        (["--cancel-on-interrupt"], 1, "canceling {}", "Canceled"),
        (["--detach"], 130, "interrupted", "Running"),
    ],
)
def test_ctrl_c_while_the_server_takes_the_job(
    shared_home, shared, tmp_path, words, exits, says, status
):
    """What became of the job is said: the server may have taken it."""
    environ = {**os.environ, "ALLRANKS_HOME": str(shared_home)}

    def run(name):
        argv = ["run", "--name", name, *words, "--", "sleep", "60"]
        return subprocess.run(
            [sys.executable, "-c", INTERRUPTED, *argv],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
        )

    name = f"interrupted-{'-'.join(words).strip('-') or 'follow'}"
    (tmp_path / f"{name}.txt").write_text("code that the server does not have")
    early = run(f"{name}-early")
    assert early.returncode == 130
    assert shared("job", "show", f"{name}-early").returncode == 2, (
        "code was missing: none was taken"
    )
    shared("run", "-q", "--code", tmp_path, "--", "true")
    done = run(name)
    assert done.returncode == exits, done.stderr
    assert says.format(name) in done.stderr
    until(lambda: answer(shared, "job", "show", name)["status"] == status)
    shared("job", "cancel", name)


def test_an_ignored_ctrl_c_stays_ignored_while_the_server_takes_the_job(shared_home, code):
    """A shell starts the background programs of a script so."""
    script = INTERRUPTED.replace("default_int_handler", "SIG_IGN")
    environ = {**os.environ, "ALLRANKS_HOME": str(shared_home)}
    argv = [sys.executable, "-c", script, "run", "-q", "--", "echo", "ran"]
    done = subprocess.run(argv, cwd=code, env=environ, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


@pytest.mark.parametrize("kind", ["pytorch", "tensorflow", "mpi", "horovod", "jax", "ray"])
def test_a_dry_run_of_every_distribution(allranks, kind):
    done = allranks("run", "-n", 2, "-d", kind, "--dry-run", "--", "true")
    assert (done.returncode, done.stderr) == (0, "")
    assert "<" in done.stdout


def test_every_problem_of_a_foreign_job_file_is_reported_at_once(allranks, code):
    (code / "job.yml").write_text(
        "command: x\nenvironment: azureml:e@latest\ncompute: azureml:elsewhere\n"
    )
    done = allranks("job", "create", "-f", "job.yml")
    assert done.returncode == 2
    assert "no compute named 'elsewhere'" in done.stderr
    assert "local" in done.stderr
    assert "allranks environment map e ENVIRONMENT (or current)" in done.stderr


def test_where_named_outputs_are(allranks, home):
    done = allranks("run", "--name", "a", "-o", "kept", "--", "touch", "${{outputs.kept}}/x")
    folder = home / "jobs" / "a" / "named-outputs" / "kept"
    assert f"output kept: {folder}" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["x"]
    assert str(folder) in allranks("job", "show", "a").stdout


def test_a_dry_run_starts_nothing_and_prints_everything(allranks, home, code):
    done = allranks(
        "run", "-n", 2, "--dry-run", "--json", "--env", "API_KEY=x", "--", "python", "t.py"
    )
    plan = json.loads(done.stdout)
    assert [rank["node"] for rank in plan["ranks"]] == [0, 1]
    assert plan["ranks"][1]["argv"] == ["/bin/bash", "-c", "python t.py"]
    assert plan["ranks"][1]["environment"]["RANK"] == "1"
    assert "node 0" in plan["ranks"][1]["environment"]["MASTER_ADDR"]
    assert plan["ranks"][0]["environment"]["API_KEY"] == "********"
    assert "x" not in plan["task"]["variables"].values()
    assert {"PATH", "OMP_NUM_THREADS", "ALLRANKS_ATTEMPT"} <= plan["ranks"][0]["environment"].keys()
    assert not home.exists()
    assert "  RANK={rank}\n" in allranks("run", "-n", 2, "--dry-run", "--", "true").stdout


def test_the_plan_of_a_job_is_that_of_its_dry_run(shared, shared_home):
    words = ("run", "-n", 2, "--name", "planned", "--env", "API_KEY=x")
    dry = json.loads(shared(*words, "--dry-run", "--json", "--", "true").stdout)
    assert shared(*words, "-q", "--", "true").returncode == 0
    url = json.loads((shared_home / "server.json").read_text())["url"]
    with Client(url, (shared_home / "token").read_text().strip()) as client:
        plan = client.json("GET", "/api/v1/jobs/planned/plan")
    assert plan["ranks"][0]["environment"]["API_KEY"] == "********"
    for rank, of_dry_run in zip(plan["ranks"], dry["ranks"], strict=True):
        assert rank["argv"] == of_dry_run["argv"]
        assert rank["environment"].keys() == of_dry_run["environment"].keys()


def test_json_alone_on_stdout(shared):
    done = shared("run", "--json", "--", "echo", "hi")
    assert json.loads(done.stdout)["status"] == "Completed"
    assert "hi\n" in done.stderr


def test_names_are_safe_in_paths_and_used_once(shared):
    for name in ("../x", "a b", "x;y", "$(id)", "", "ü", "x\ny", "-x"):
        done = shared("run", f"--name={name}", "--", "true")
        assert done.returncode == 2, name
        assert "name" in done.stderr
        assert "hint: " in done.stderr
    assert shared("run", "--name", "once", "--", "true").returncode == 0
    done = shared("run", "--name", "once", "--", "true")
    assert (done.returncode, "already exists" in done.stderr) == (2, True)


def test_hostile_paths_and_values_are_data(shared, code):
    folder = Path(code, "in put'; touch pwned $(touch pwned) `touch pwned`\nü")
    folder.mkdir()
    (folder / "f").write_text("safe")
    done = shared(
        *("run", "-i", f"d={folder}", "--", "bash", "-c", 'cat "$1/f"; ls', "x", "${{inputs.d}}")
    )
    assert (
        done.stdout
        == "safe" + "in put'; touch pwned $(touch pwned) `touch pwned`\nü\nlogs\noutputs\n"
        or (done.stdout.startswith("safe") and "\npwned" not in done.stdout)
    ), done.stderr
    assert not os.path.exists(code / "pwned")


def test_a_job_that_takes_its_own_log_away_still_ends(shared):
    assert shared("run", "--", "bash", "-c", "rm ../rank-0.log; echo x").returncode == 0


def test_where_the_code_is_from_is_in_the_record_and_restarts_with_it(shared, code):
    (code / "a.txt").write_text("first\n")
    commit_all(code)
    (code / "a.txt").write_text("second\n")
    done = shared("run", "--name", "from-git", "--", "cat", "a.txt")
    assert done.stdout == "second\n"
    told = answer(shared, "job", "show", "from-git")
    assert told["spec"]["properties"]["azureml.git.branch"] == "main"
    assert told["spec"]["properties"]["azureml.git.dirty"] == "True"
    shared("job", "restart", "from-git")
    for name in ("from-git", "from-git-r2"):
        shared("job", "download", name, "-p", name)
        diff = (code / name / "artifacts/system_logs/uncommitted.diff").read_text()
        assert "+second" in diff


def test_code_from_a_repository(shared, code, tmp_path):
    repository = tmp_path / "far away"
    (repository / "src").mkdir(parents=True)
    (repository / "src" / "train.sh").write_text("echo trained\n")
    commit_all(repository)
    (code / "job.yml").write_text(
        f"command: bash train.sh\ncode: git+file://{repository}@main#src\n"
    )
    done = shared("job", "create", "-f", "job.yml", "--stream")
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    # What has run runs again, whatever became of the repository.
    repository.rename(tmp_path / "gone")
    name = done.stderr.partition(":")[0]
    assert json.loads(shared("job", "restart", name, "--json").stdout)["experiment_name"] == (
        "far away"
    )
    assert shared("job", "wait", f"{name}-r2").returncode == 0
