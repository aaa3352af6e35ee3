"""`allranks job …`: jobs from files, looked at, restarted, fetched."""

import json
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support import CLI, Allranks, environment, on_a_terminal, until

# Real servers and processes, about half a second a test.
pytestmark = pytest.mark.slow

YAML = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
command: >-
  python train.py --data ${{inputs.data}} --lr ${{inputs.lr}} $[[--extra ${{inputs.extra}}]]
  > ${{outputs.model}}/said && cat ${{outputs.model}}/said
code: src
inputs:
  data:
    type: uri_folder
    path: ./in put
  lr: 0.5
outputs:
  model:
environment_variables:
  RATE: ${{inputs.lr}}
environment: azureml:current@latest
distribution:
  type: PyTorch
  process_count_per_instance: 2
  added_property: kept
resources:
  instance_count: 2
experiment_name: from-file
display_name: A job
tags: {a: b}
"""
TRAIN = "import os, sys; print(os.environ['RANK'], os.environ['RATE'], sys.argv[1:])"


@pytest.fixture
def job_file(code):
    (code / "jobs" / "src").mkdir(parents=True)
    (code / "jobs" / "in put").mkdir()
    (code / "jobs" / "src" / "train.py").write_text(TRAIN)
    path = code / "jobs" / "job.yml"
    path.write_text(YAML.replace("${{outputs.model}}/said", "${{outputs.model}}/$RANK"))
    return path


def test_a_file_of_azures_runs_as_it_is(shared, code, job_file):
    done = shared("job", "create", "-f", job_file, "--stream")
    assert done.returncode == 0, done.stderr
    data = str(code / "jobs" / "in put")
    assert sorted(done.stdout.splitlines()) == [
        f"{rank} 0.5 {['--data', data, '--lr', '0.5']}" for rank in range(4)
    ]


def test_create_tells_what_was_made(shared, job_file):
    done = shared(
        "job", "create", "-f", job_file, "--json", "--set", "inputs.lr=0.1", "--name", "n1"
    )
    job = json.loads(done.stdout)
    expected = {
        "name": "n1",
        "type": "command",
        "experiment_name": "from-file",
        "display_name": "A job",
        "compute": "local",
        "attempts": 1,
        "exit_code": None,
        "error": None,
        "ended_at": None,
    }
    assert {key: job[key] for key in expected} == expected
    assert {"status", "created_at", "started_at"} <= job.keys()
    assert shared("job", "wait", "n1").returncode == 0
    assert " 0.1 " in shared("job", "logs", "n1", "--rank", 3).stdout


def test_times_are_those_of_a_clock(shared, tmp_path):
    """As people read them; --json has them whole."""
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert shared("run", "--name", "timed", "-q", "--", "true").returncode == 0
    assert shared("job", "archive", "timed").returncode == 0
    shown = shared("job", "show", "timed").stdout
    assert len(re.findall(f"^(?:created|started|ended|archived) +{time}$", shown, re.M)) == 4
    times = "created,started,ended,archived"
    listed = shared("job", "list", "--archived", "--name", "timed", "--columns", times)
    assert len(re.findall(time, listed.stdout)) == 4


def test_a_job_from_stdin(shared):
    done = shared("job", "create", "-f", "-", "--stream", input="command: echo from stdin\n")
    assert done.stdout == "from stdin\n"


@pytest.mark.parametrize(
    ("text", "line", "where", "hint"),
    [
        (
            "command: x\nresources:\n  instance_cout: 2\n",
            3,
            "resources.instance_cout",
            "instance_count",
        ),
        ("command: x\nlimits: {timeout: soon}\n", 2, "limits.timeout", ""),
        ("code: .\n", None, "command", ""),
        ("command: echo ${{inputs.lrr}}\ninputs: {lr: 1}\n", 1, "command", "lr"),
        ("command: x\ninputs:\n  d: {path: ./nosuch}\n", 3, "inputs.d.path", "start at"),
        ("command: x\nenvironment: azureml:sklearn:1\n", 2, "environment", "current"),
        ("command: x\ncompute: azureml:elsewhere\n", 2, "compute", "local"),
        ("command: x\nresources: {instance_count: 65}\n", None, "resources", "fewer"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(allranks, code, home, text, line, where, hint):
    (code / "job.yml").write_text(text)
    told = json.loads(allranks("job", "validate", "-f", "job.yml", "--json").stdout)
    (error,) = told["errors"]
    assert (told["valid"], error["where"]) == (False, where)
    assert line is None or error["line"] == line
    assert hint in error["hint"]
    done = allranks("job", "create", "-f", "job.yml")
    assert done.returncode == 2
    assert where in done.stderr
    assert "hint: " in done.stderr
    assert not list(home.glob("jobs/*")), "nothing half-made"


def test_validate_asks_the_server_elsewhere(shared, shared_home, job_file, tmp_path):
    assert shared("compute", "create", "only-there", "--type", "local").returncode == 0
    words = ("job", "validate", "-f", job_file, "--set", "compute=only-there")
    assert shared(*words, env={"ALLRANKS_HOME": str(tmp_path)}).returncode == 2
    url = json.loads((shared_home / "server.json").read_text())["url"]
    env = {"ALLRANKS_SERVER": url, "ALLRANKS_TOKEN": (shared_home / "token").read_text()}
    done = shared(*words, env={**env, "ALLRANKS_HOME": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    wrong = shared(*words, "--set", "resources.instance_count=0", env=env)
    assert wrong.returncode == 2


def test_validate_says_that_another_server_may_judge_otherwise(shared, job_file):
    note = "judged by the computes and assets of this machine: http://127.0.0.1:9 (ALLRANKS_SERVER)"
    env = {"ALLRANKS_SERVER": "http://127.0.0.1:9"}
    done = shared("job", "validate", "-f", job_file, env=env)
    assert (done.returncode, f"note: {note}" in done.stderr) == (0, True)
    told = json.loads(shared("job", "validate", "-f", job_file, "--json", env=env).stdout)
    assert told["notes"][0].startswith(note)


def test_validate_prints_the_notes_of_submission(shared, code):
    services = "{lab: {type: jupyter_lab}, a: {type: grafana}}"
    (code / "job.yml").write_text(f"name: noted\ncommand: x\nservices: {services}\n")
    done = shared("job", "validate", "-f", "job.yml")
    assert "note: to open lab: allranks job port-forward noted lab" in done.stderr
    assert "note: the service a (grafana) has neither a command nor a port" in done.stderr


@pytest.mark.parametrize("verb", ["validate", "create"])
def test_notes_of_sweeps_and_pipelines_are_those_of_their_jobs(shared, code, verb):
    sweep = {
        "type": "sweep",
        "trial": {"command": "true"},
        "services": {"lab": {"type": "jupyter_lab"}},
        "search_space": {"lr": {"type": "choice", "values": [1, 2]}},
        "sampling_algorithm": "random",
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {"max_total_trials": 1},
    }
    step = {"command": "true", "services": {"own": {"port": 80}}}
    inner = {"type": "pipeline", "jobs": {"b": step}}
    pipeline = {"type": "pipeline", "jobs": {"a": step, "in": inner, "s": sweep}}
    unused = "note: the command does not use the parameter lr"
    of_steps = [("own", "a"), ("own", "in_b"), ("lab", "s_0")]
    for job, opened in ((sweep, [("lab", "0")]), (pipeline, of_steps)):
        name = f"noted-{job['type']}-{verb}"
        (code / "job.yml").write_text(json.dumps({**job, "name": name}))
        done = shared("job", verb, "-f", "job.yml")
        assert done.returncode == 0, done.stderr
        for service, child in opened:
            note = f"note: to open {service}: allranks job port-forward {name}_{child} {service}"
            assert note in done.stderr
        assert unused in done.stderr


@pytest.mark.parametrize("how", [{"type": "Sweep"}, {"$schema": "https://x/sweepJob.schema.json"}])
def test_a_sweep_that_no_client_has_rewritten_is_taken(shared, shared_home, code, how):
    sweep = {
        "name": f"plain-{len(str(how))}",
        "trial": {"command": "true"},
        "search_space": {"lr": {"type": "choice", "values": [1]}},
        "sampling_algorithm": "random",
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {"max_total_trials": 1},
    }
    url = json.loads((shared_home / "server.json").read_text())["url"]
    token = {"authorization": f"Bearer {(shared_home / 'token').read_text().strip()}"}
    body = {"spec": {**sweep, **how}, "in_place": str(code)}
    for path, status in (("jobs/checks", 200), ("jobs", 201)):
        answer = httpx.post(f"{url}/api/v1/{path}", json=body, headers=token, trust_env=False)
        assert answer.status_code == status, answer.text
        assert "the command does not use the parameter lr" in answer.text
    assert shared("job", "cancel", sweep["name"]).returncode == 0


def test_set_of_a_name_that_the_job_does_not_have_submits_nothing(shared, job_file):
    before = len(json.loads(shared("job", "list", "--json").stdout))
    for words in (("create", "--stream"), ("create", "--dry-run"), ("validate",)):
        done = shared("job", *words, "-f", job_file, "--set", "inputs.lrr=0.7")
        assert (done.returncode, done.stdout) == (2, "")
        assert "inputs.lrr: the job has no input `lrr`" in done.stderr
        assert "hint: did you mean `lr`?" in done.stderr
    done = shared("job", "validate", "-f", job_file, "--json", "--set", "outputs.mdoel.path=/x")
    (found,) = json.loads(done.stdout)["errors"]
    assert (found["where"], found["hint"]) == ("outputs.mdoel", "did you mean `model`?")
    typed = ("--set", "inputs.lrr=0.7", "--", "echo", "$[[--lr ${{inputs.lr}}]]")
    done = shared("run", *typed)
    assert (done.returncode, "did you mean `lr`?" in done.stderr) == (2, True)
    assert len(json.loads(shared("job", "list", "--json").stdout)) == before


@pytest.mark.medium
def test_set_of_an_input_that_nothing_reads(shared, code):
    """Refused at every door if the job does not have it, noted with the literal if it has."""
    (code / "job.yml").write_text("command: echo --lr .03 --wd 1\ninputs: {lr: 0.1}\n")
    steps = "type: pipeline\njobs: {train: {command: echo --lr .03, inputs: {lr: 0.1}}}\n"
    (code / "p.yml").write_text(steps)
    assert shared("job", "create", "-f", "job.yml", "--name", "reads-none", "--stream").stdout
    echo = ("--", "echo", "--wd", "1")
    for words in (
        ("run", "--set", "inputs.wd=2", *echo),
        ("run", "--dry-run", "--set", "inputs.wd=2", *echo),
        ("run", "--sweep", "x=choice(1)", "--maximize", "m", "--set", "inputs.wd=2", *echo),
        ("job", "create", "-f", "job.yml", "--set", "inputs.wd=2"),
        ("job", "validate", "-f", "job.yml", "--set", "inputs.wd=2"),
        ("job", "restart", "reads-none", "--set", "inputs.wd=2"),
        ("az", "ml", "job", "create", "-f", "job.yml", "--set", "inputs.wd=2"),
    ):
        done = shared(*words)
        assert done.returncode == 2, words
        assert "the job has no input `wd`" in done.stderr
        assert "the command says `--wd 1`" in done.stderr
    done = shared("doctor", "--job", "job.yml", "--set", "inputs.wd=2")
    assert (done.returncode, "the job has no input `wd`" in done.stdout) == (1, True)
    done = shared("job", "create", "-f", "p.yml", "--set", "jobs.train.inputs.lrx=1")
    assert "the step `train` has no input `lrx`" in done.stderr

    note = "note: nothing in the command reads the input lr: the command says --lr .03\n"
    for words in (
        ("job", "create", "-f", "job.yml", "--set", "inputs.lr=1", "--stream"),
        ("job", "create", "-f", "job.yml", "--set", "inputs.lr=1", "--dry-run"),
        ("job", "create", "-f", "p.yml", "--set", "jobs.train.inputs.lr=1", "--stream"),
        ("job", "restart", "reads-none", "--set", "inputs.lr=1", "--stream"),
        ("az", "ml", "job", "create", "-f", "job.yml", "--set", "inputs.lr=1", "--stream"),
    ):
        done = shared(*words)
        assert (done.returncode, note in done.stderr) == (0, True), (words, done.stderr)
    read = ("run", "--set", "inputs.lr=1", "--", "echo", "--lr", "${{inputs.lr}}")
    assert "note: nothing" not in shared(*read).stderr


def test_a_good_file_is_valid(allranks, job_file, home):
    done = allranks("job", "validate", "-f", job_file, "--json")
    assert json.loads(done.stdout) == {"valid": True, "errors": [], "notes": []}
    assert not home.exists()


def test_validating_notes_what_has_no_effect(allranks, code):
    (code / "job.yml").write_text(
        "command: echo\nenvironment: current\nidentity: {type: managed}\ninside: dev-x\n"
    )
    done = allranks("job", "validate", "-f", "job.yml")
    assert (done.returncode, done.stdout) == (0, "job.yml is valid\n")
    assert "note: no effect here: identity" in done.stderr
    assert "the session that it runs in is checked when" in done.stderr
    assert (
        "no effect here: identity" in allranks("job", "validate", "-f", "job.yml", "--json").stdout
    )


def test_a_file_that_is_not_there(allranks):
    done = allranks("job", "create", "-f", "nosuch.yml")
    assert done.returncode == 2
    assert "nosuch.yml" in done.stderr
    assert "hint: " in done.stderr


COMMANDS = ("show", "stream", "logs", "cancel", "wait", "download", "events", "restart")
HOSTILE = ("a b/../c;$(id)\n", "ü", "..")


@pytest.mark.parametrize(
    ("command", "name"),
    [*((command, "nosuch") for command in COMMANDS), *(("show", name) for name in HOSTILE)],
)
def test_an_unknown_job(shared, command, name):
    done = shared("job", command, name)
    assert done.returncode == 2
    assert "not found" in done.stderr
    assert "hint: list jobs: allranks job list" in done.stderr


def test_list_and_show(shared):
    shared("run", "--name", "listed", "--experiment", "ex-1", "--", "true")
    listed = json.loads(shared("job", "list", "--experiment", "ex-1", "--json").stdout)
    assert [job["name"] for job in listed] == ["listed"]
    assert json.loads(shared("job", "list", "--experiment", "none", "--json").stdout) == []
    listing = shared("job", "list", "--status", "completed").stdout
    assert re.search(r"^listed +Completed +ex-1 ", listing, re.MULTILINE)
    assert "status      Completed" in shared("job", "show", "listed").stdout


def test_events_are_in_order_and_end_with_the_end(shared):
    shared("run", "--name", "told", "-n", 2, "--", "true")
    events = json.loads(shared("job", "events", "told", "--json").stdout)
    kinds = [event["kind"] for event in events]
    assert kinds[0] == "created"
    assert kinds[-1] == "finished"
    for before, after in (("submitted", "go"), ("go", "started"), ("ended", "closing")):
        assert kinds.index(before) < kinds.index(after)
    assert kinds.count("ready") == kinds.count("bye") == 2
    assert [event["id"] for event in events] == sorted(event["id"] for event in events)


def test_logs_by_rank_node_attempt_and_tail(shared):
    script = "for i in 1 2 3; do echo $RANK.$i; done"
    shared("run", "--name", "loud", "-n", 2, "-p", 2, "--", "bash", "-c", script)
    assert shared("job", "logs", "loud", "--rank", 2).stdout == "2.1\n2.2\n2.3\n"
    assert shared("job", "logs", "loud", "--node", 1, "--tail", 1).stdout == "2.3\n3.3\n"
    refused = shared("job", "logs", "loud", "--node", 0, "--node", 5)
    assert "loud has no node 5\n\nhint: its nodes are 0 to 1\n" in refused.stderr
    assert shared("job", "logs", "loud", "--tail", 0).stdout == ""
    followed = shared("job", "logs", "loud", "-f", "--tail", 1, "--no-prefix").stdout
    assert sorted(followed.split()) == ["0.3", "1.3", "2.3", "3.3"]
    everything = shared("job", "logs", "loud").stdout.splitlines()
    assert everything == [f"{rank}.{i}" for rank in range(4) for i in (1, 2, 3)]
    as_json = json.loads(shared("job", "logs", "loud", "--json").stdout)
    assert [each["rank"] for each in as_json] == [0, 1, 2, 3]
    for wrong in (("--rank", 4), ("--node", 2), ("--attempt", 2)):
        done = shared("job", "logs", "loud", *wrong)
        assert done.returncode == 2
        assert "hint: " in done.stderr


def test_tail_and_follow_print_the_last_lines_and_then_new_ones(shared, shared_home, code):
    script = "echo 1; echo 2; until [ -e go ]; do sleep 0.1; done; echo 3"
    words = ("--in-place", "--detach", "--name", "tailed", "--", "bash", "-c", script)
    shared("run", "-q", *words)
    until(lambda: shared("job", "logs", "tailed").stdout == "1\n2\n")
    argv = [sys.executable, "-c", CLI, "job", "logs", "tailed", "-f", "--tail", "1"]
    env = environment(shared_home)
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout.readline() == "2\n"
        (code / "go").touch()
        assert following.stdout.read() == "3\n"
    assert shared("job", "logs", "tailed", "-f", "--tail", "0").stdout == ""


def test_log_files_are_named_as_azures(shared, code):
    shared("run", "--name", "eleven", "-p", 11, "-d", "none", "--", "echo", "x")
    shared("job", "download", "eleven", "-p", "got")
    names = sorted(p.name for p in (code / "got" / "artifacts" / "user_logs").iterdir())
    assert names == [f"std_log_process_{n:02}.txt" for n in range(11)]


@pytest.mark.end_to_end
def test_restart_makes_a_new_job_of_the_same(shared):
    shared("run", "--name", "once-more", "--", "bash", "-c", "echo ran; exit 4")
    made = shared("job", "restart", "once-more").stdout.strip()
    assert made == "once-more-r2"
    done = shared("job", "wait", made, "--json")
    assert (done.returncode, json.loads(done.stdout)["exit_code"]) == (4, 4)
    assert shared("job", "logs", made).stdout == "ran\n"
    assert shared("job", "restart", made).stdout.strip() == "once-more-r3"
    shared("job", "wait", "once-more-r3")


def test_restart_of_one_that_runs_is_refused(shared):
    shared("run", "--detach", "--name", "busy", "--", "sleep", "60")
    done = shared("job", "restart", "busy")
    assert done.returncode == 2
    assert "hint: cancel it first: allranks job cancel busy" in done.stderr
    shared("job", "cancel", "busy")


def test_download_of_an_output_by_name(shared, code):
    shared(
        "run",
        "--name",
        "outs",
        "-o",
        "a",
        "-o",
        "b",
        "--",
        "bash",
        "-c",
        'echo 1 > "$AZURE_ML_OUTPUT_a/f"',
    )
    done = shared("job", "download", "outs", "--output-name", "a", "-p", "got")
    assert done.stdout == "got/named-outputs/a/f\n"
    wrong = shared("job", "download", "outs", "--output-name", "c")
    assert wrong.returncode == 2
    assert "hint: it has: a, b" in wrong.stderr


def test_a_job_waits_for_room_with_its_reason_shown(shared):
    take = ("run", "--detach", "--set", "resources.properties.local.memory=64m", "-n", 64)
    first = shared(*take, "--", "sleep", "60").stdout.strip()
    second = shared("run", "--detach", "--", "true").stdout.strip()
    until(lambda: json.loads(shared("job", "show", second, "--json").stdout)["status_reason"])
    job = json.loads(shared("job", "show", second, "--json").stdout)
    assert (job["status"], "waits for" in job["status_reason"]) == ("Queued", True)
    shared("job", "cancel", second)
    assert json.loads(shared("job", "wait", second, "--json").stdout)["status"] == "Canceled"
    shared("job", "cancel", first)
    shared("job", "wait", first)


def test_what_a_job_holds_does_not_move_the_cursor(shared):
    """Names, commands and last words are anybody's."""
    evil = "import sys\nsys.exit('\\033[2J\\033]0;x\\007gone')  # \033[31m\tred"
    done = shared("run", "--name", "evil", "--", "python", "-c", evil)
    shown = shared("job", "show", "evil").stdout
    assert "?[31m" in shown
    assert "gone" in done.stderr
    for text in (done.stderr, shown, shared("report", "evil").stdout):
        assert not set(text) & {"\033", "\007"}
    command = next(line for line in shown.splitlines() if line.startswith("command"))
    assert command.endswith("import sys")


@pytest.mark.slow
def test_several_jobs_and_all_are_canceled(allranks: Allranks) -> None:
    words = ("--detach", "-q", "--", "sleep", "60")
    for name in ("cancel-a", "cancel-b", "cancel-c"):
        allranks("run", "--name", name, *words)
    done = allranks("job", "cancel", "cancel-a", "cancel-b")
    assert done.stderr == "cancel-a canceling\ncancel-b canceling\n"
    assert allranks("job", "wait", "cancel-b").returncode == 1
    assert "name the jobs to cancel, or give --all" in allranks("job", "cancel").stderr
    assert allranks("job", "cancel", "cancel-c", "--all").returncode == 2
    # Nobody is there to answer.
    done = allranks("job", "cancel", "--all")
    assert (done.returncode, "hint: add --yes" in done.stderr) == (2, True)
    assert "cancel-c" in done.stderr
    assert "cancel-a" not in done.stderr
    done = allranks("job", "cancel", "--all", "--yes")
    assert "cancel-c canceling" in done.stderr
    assert allranks("job", "wait", "cancel-c").returncode == 1
    assert allranks("job", "cancel", "--all").stderr == "no job of yours is running or waiting\n"


@pytest.mark.slow
def test_a_job_that_cannot_be_canceled_does_not_keep_the_others_from_it(shared: Allranks) -> None:
    for name in ("tried-a", "tried-c"):
        shared("run", "--name", name, "--detach", "-q", "--", "sleep", "60")
    done = shared("job", "cancel", "tried-a", "typo", "tried-c", "typo-2", "--json")
    jobs, error = map(json.loads, _documents(done.stdout))
    assert [job["name"] for job in jobs] == ["tried-a", "tried-c"]
    assert (done.returncode, error["where"]) == (2, "typo, typo-2")
    assert error["message"].startswith("cannot cancel 2 jobs: job 'typo' not found; ")
    for name in ("tried-a", "tried-c"):
        assert json.loads(shared("job", "wait", name, "--json").stdout)["status"] == "Canceled"
    done = shared("job", "cancel", "typo", "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]) == (2, "not_found")


def _documents(text: str) -> list[str]:
    """JSON documents that follow one another."""
    documents = []
    while text := text.lstrip():
        _, end = json.JSONDecoder().raw_decode(text)
        documents.append(text[:end])
        text = text[end:]
    return documents


@pytest.mark.slow
def test_a_no_cancels_nothing_and_says_so(allranks: Allranks, home: Path) -> None:
    allranks("run", "--name", "kept", "--detach", "-q", "--", "sleep", "60")
    code, said = on_a_terminal(home, b"n\n", "job", "cancel", "--all")
    assert (code, "nothing is changed" in said) == (1, True)
    assert json.loads(allranks("job", "show", "kept", "--json").stdout)["ended_at"] is None
