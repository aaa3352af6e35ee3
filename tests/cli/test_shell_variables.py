"""Variables of the submitter's shell: reported when a job does not get them, passed on request."""

import json

import pytest

pytestmark = pytest.mark.slow

SHELL = {"HF_HOME": "/models & more", "WANDB_API_KEY": "s3cret-value", "NCCL_DEBUG": "INFO"}
ECHO = ("--", "bash", "-c", 'echo "${HF_HOME-unset} ${WANDB_API_KEY-unset} ${NCCL_DEBUG-unset}"')


def note(done) -> str:
    assert "s3cret-value" not in done.stderr
    notes = [line for line in done.stderr.splitlines() if "not passed to the job" in line]
    assert len(notes) <= 1
    return "".join(notes)


def test_dropped_variables_are_reported_once_without_values(shared):
    done = shared("run", *ECHO, env=SHELL)
    assert done.stdout == "unset unset unset\n"
    assert note(done).startswith("note: HF_HOME, NCCL_DEBUG, WANDB_API_KEY of your shell are not")
    assert "--env NAME" in note(done)
    assert note(shared("run", "-q", *ECHO, env=SHELL)) == ""


def test_passed_variables_are_not_reported(shared):
    done = shared("run", "--env-all", *ECHO, env=SHELL)
    assert done.stdout == "/models & more unset INFO\n"
    assert note(done).startswith("note: WANDB_API_KEY of your shell is not")
    given = ("--env", "HF_HOME", "--env", "WANDB_API_KEY", "--env", "NCCL_DEBUG=WARN")
    done = shared("run", *given, *ECHO, env=SHELL)
    assert (done.stdout, note(done)) == ("/models & more s3cret-value WARN\n", "")
    # The environment's activation carries these along.
    carried = {"PYTHONPATH": "/x", "https_proxy": "http://p:1", "LD_LIBRARY_PATH": "/y"}
    assert note(shared("run", "--", "true", env=carried)) == ""


def test_allranks_pass_env_passes_variables_by_default(shared, code):
    shell = {**SHELL, "ALLRANKS_PASS_ENV": "HF_*,WANDB_API_KEY,NCCL_*"}
    done = shared("run", "--name", "passed-on", "--env", "NCCL_DEBUG=WARN", *ECHO, env=shell)
    assert (done.stdout, note(done)) == ("/models & more s3cret-value WARN\n", "")
    shown = shared("job", "show", "passed-on", "--json").stdout
    assert "s3cret-value" not in shown
    assert "/models & more" not in shown
    variables = json.loads(shown)["spec"]["environment_variables"]
    assert variables["NCCL_DEBUG"] == "WARN"


def test_job_files_report_dropped_variables_too(allranks, code):
    lines = (
        "environment_variables: {HF_HOME: of the file}\ncommand: |\n  echo $HF_HOME $NCCL_DEBUG\n"
    )
    (code / "job.yml").write_text(lines)
    words = ("job", "create", "-f", "job.yml", "--stream")
    done = allranks(*words, env=SHELL)
    assert done.stdout == "of the file\n"
    assert note(done).startswith("note: NCCL_DEBUG, WANDB_API_KEY of your shell are not")
    assert "`environment_variables`" in note(done)
    done = allranks(*words, env={**SHELL, "ALLRANKS_PASS_ENV": "*"})
    assert done.stdout == "of the file INFO\n"


def test_programs_pass_them_too(shared, code):
    (code / "submit.py").write_text(
        "from azure.ai.ml import MLClient, command\n"
        "jobs = MLClient.from_config().jobs\n"
        "job = command(command='echo $HF_HOME $NCCL_DEBUG', environment='current')\n"
        "job.environment_variables = {'NCCL_DEBUG': 'WARN'}\n"
        "jobs.stream(jobs.create_or_update(job).name)\n"
    )
    done = shared("python", "submit.py", env={**SHELL, "ALLRANKS_PASS_ENV": "HF_*,NCCL_*"})
    assert "/models & more WARN" in done.stdout, done.stderr
