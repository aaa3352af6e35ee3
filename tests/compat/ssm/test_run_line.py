"""Lines and programs of simple-sagemaker, on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from allranks.compat.ssm import task
from allranks.compat.ssm.parser import arguments_of, read
from allranks.compat.ssm.task import Channel, Request, Task, distribution, environment
from allranks.core.environments.dockerfile import environment_of
from allranks.errors import UsageError
from tests.support import Allranks, answer

WORKER = """
import json, os, sys
from worker_toolkit import worker_lib
config = worker_lib.WorkerConfig()
def tree(folder):
    return sorted(os.path.relpath(os.path.join(top, name), folder)
                  for top, _, names in os.walk(folder) for name in names)
print("argv", sys.argv[1:], "hps", config.hps, "host", config.host_rank, config.num_nodes)
print("channels", {name: tree(getattr(config, "channel_" + name)) for name in config.channels})
print("state", tree(config.state))
host = "algo-%d" % (config.host_rank + 1)
with open(os.path.join(config.model_dir, "model_" + host), "w") as file:
    file.write("model")
with open(os.path.join(config.output_data_dir, "output_" + host), "w") as file:
    file.write("output")
with open(os.path.join(config.instance_state, "state_" + host), "w") as file:
    file.write("state")
print("Score=%d;" % config.host_rank)
"""
ROOT = os.geteuid() == 0
OUTPUT = "${SSM_OUTPUT%processing/output}output"


def tree(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


@pytest.mark.slow
@pytest.mark.end_to_end
def test_tasks_follow_one_another(allranks: Allranks, code: Path) -> None:
    (code / "worker.py").write_text(WORKER)
    (code / "beside").mkdir()
    (code / "beside" / "lib.py").write_text("x = 1")
    (code / "data").mkdir()
    for name in ("a", "b"):
        (code / "data" / name).write_text(name)
    first = (
        *("ssm", "run", "-p", "birds", "--prefix", "try/", "-t", "one", "-e", "worker.py"),
        *("-o", "one", "--download_state", "--download_model", "--download_output"),
        *(
            "--ic",
            "2",
            "-i",
            "data",
            "ShardedByS3Key",
            "-d",
            "beside",
            "--lr",
            "0.1",
            "--size",
            "x",
        ),
        *("--md", "score", "Score=(.*?);", "--tag", "team", "vision", "--", "--first", "word"),
    )
    done = allranks(*first)
    assert done.returncode == 0, done.stderr
    assert tree(code / "one") == [
        "logs/logs0",
        "logs/logs1",
        "model/model_algo-1",
        "model/model_algo-2",
        "output/output_algo-1",
        "state/algo-1/state_algo-1",
        "state/algo-2/state_algo-2",
    ]
    said = (code / "one" / "logs" / "logs1").read_text().splitlines()
    hps = {"lr": "0.1", "size": "x"}
    assert f"argv ['--first', 'word', '--lr', '0.1', '--size', 'x'] hps {hps} host 1 2" in said
    assert "channels {'data': ['b']}" in said
    (job,) = answer(allranks, "job", "list", "--tag", "team=vision")
    assert job["experiment_name"] == "try-birds"
    assert list(answer(allranks, "job", "metrics", job["name"])) == ["score"]

    again = allranks(*first)
    assert again.returncode == 0
    assert f"was completed by the job {job['name']}: not run again" in again.stderr

    chained = allranks(
        *("ssm", "run", "-p", "birds", "--prefix", "try/", "-t", "two", "-e", "worker.py"),
        *("-o", "two", "--iit", "m", "one", "model", "--iit", "o", "one", "output"),
        *("--iit", "s", "one", "state", "FullyReplicated", "algo-2", "--iit", "c", "one", "source"),
    )
    assert chained.returncode == 0, chained.stderr
    channels = {
        "c": ["sourcedir.tar.gz"],
        "m": ["model.tar.gz"],
        "o": ["output.tar.gz"],
        "s": ["state_algo-2"],
    }
    assert f"channels {channels}" in (code / "two" / "logs" / "logs0").read_text()

    # The state is kept for the next job of a task, unless it is cleared.
    kept = allranks(*first[:10], "--fr", "-o", "kept")
    assert "state ['algo-1/state_algo-1', 'algo-2/state_algo-2']" in kept.stdout
    cleared = allranks(*first[:10], "--fr", "--cs")
    assert "state []" in cleared.stdout, cleared.stderr


@pytest.mark.medium
@pytest.mark.parametrize(
    ("line", "code_"),
    [
        (("process", "--entrypoint", "/bin/bash", "--", "-c", "exit 0"), 0),
        (("process", "--entrypoint", "/bin/bash", "--", "-c", "exit 3"), 1),
        (("shell", "--ic", "2", "--cmd_line", "exit $SSM_HOST_RANK"), 1),
        (("shell", "--cmd", "echo why > $SAGEMAKER_BASE_DIR/output/failure"), 1),
        (("process", "--entrypoint", "sh", "--", "-c", f"echo why > {OUTPUT}/message"), 1),
        (("shell", "--cmd", 'test $(ls | wc -l) = 2 && test -n "$SM_HPS"'), 0),
        (("shell", "--cmd", "kill -9 $$"), 1),
    ],
)
def test_exit_codes(
    line: tuple[str, ...], code_: int, shared: Allranks, request: pytest.FixtureRequest
) -> None:
    name = "".join(each for each in request.node.name if each.isalnum())[-30:]
    done = shared("ssm", line[0], "-p", "exit", "-t", name, *line[1:])
    assert done.returncode == code_, done.stderr
    if code_:
        assert f"the task {name} failed:" in done.stderr
        assert "hint: allranks job explain" in done.stderr


@pytest.mark.medium
@pytest.mark.skipif(not ROOT, reason="only root has a mount namespace of its own")
def test_the_paths_are_real_and_seen_by_nobody_else(shared: Allranks, code: Path) -> None:
    line = (
        "pwd && echo mine > /opt/ml/model/m && echo s > /state/s && getent hosts algo-2 && "
        "ls /opt/ml/input/config && cat /opt/ml/input/config/resourceconfig.json"
    )
    words = ("-p", "real", "-t", "paths", "--ic", "2", "-o", "o", "--download_model")
    done = shared("ssm", "shell", *words, "--cmd_line", line)
    assert done.returncode == 0, done.stderr
    log = (code / "o" / "logs" / "logs0").read_text()
    assert log.startswith("/opt/ml/code\n127.0.0.3 ")
    assert "hyperparameters.json\ninputdataconfig.json\nresourceconfig.json" in log
    assert '"hosts": ["algo-1", "algo-2"]' in log
    assert (code / "o" / "model" / "m").read_text() == "mine\n"
    assert not Path("/opt/ml/model").exists()
    assert not Path("/state/s").exists()


@pytest.mark.medium
def test_a_processing_task(shared: Allranks, code: Path) -> None:
    (code / "it's.py").write_text(
        "import os, sys, lib\nfrom worker_toolkit import worker_lib\n"
        "print('args', sys.argv[1:], lib.x, os.environ['KIND'], worker_lib.WorkerConfig().hosts)\n"
        "open(os.environ['SSM_OUTPUT'] + '/out', 'w').write('o')\n"
        "open(os.environ['SSM_STATE'] + '/st', 'w').write('s')\n"
    )
    (code / "lib.py").write_text("x = 1")
    done = shared(
        *("ssm", "process", "-p", "proc", "-t", "one", "--code", "it's.py", "-d", "lib.py"),
        *("--env", "KIND", "a b", "-o", "o", "--download_output", "--download_state"),
        *("--", "arg1", "--arg 2"),
    )
    assert done.returncode == 0, done.stderr
    assert "args ['arg1', '--arg 2'] 1 a b [" in (code / "o" / "logs" / "logs0").read_text()
    assert tree(code / "o") == ["logs/logs0", "output/out", "state/st"]
    words = ("--iit", "x", "one", "output", "--cmd_line", "ls $SM_CHANNEL_X")
    chained = shared("ssm", "shell", "-p", "proc", "-t", "two", *words)
    assert chained.stdout == "out\n", chained.stderr  # no archive: it was a processing task


@pytest.mark.medium
def test_what_was_there_is_downloaded_later(shared: Allranks, code: Path) -> None:
    line = ("-p", "later", "-t", "one")
    assert shared("ssm", "data", *line, "-o", "o").returncode == 2
    shared("ssm", "shell", *line, "--cmd_line", "echo x > $SM_OUTPUT_DATA_DIR/x")
    assert shared("ssm", "data", *line, "-o", "o", "--download_output").returncode == 0
    assert tree(code / "o") == ["logs/logs0", "output/x"]


PROGRAM = """
import sys
from simple_sagemaker.sm_project import SageMakerProject
project = SageMakerProject("birds", prefix="api/")
project.setDefaultCodeParams(source_dir="src", entry_point="worker.py", dependencies=["beside"])
project.setDefaultInstanceParams(instance_count=2, volume_size=999999, max_run_mins=15)
project.setDefaultImageParams(aws_repo_name="r", repo_name="r", image_tag="latest")
image = project.buildOrGetImage(instance_type=project.defaultInstanceParams.instance_type)
project.runTask("one", image, hyperparameters={"stage": 1}, input_data_path="data",
                input_distribution="ShardedByS3Key", clean_state=True)
project.downloadResults("one", "out")
inputs = {"m": project.getInputConfig("one", "model", distribution="ShardedByS3Key")}
project.runTask("two", image, {"stage": 2}, additional_inputs=inputs, clean_state=True,
                model_uri=project.tasks["one"].getOutputTargetUri(model=True))
task, job = project.runTask("four", image, {"stage": 4}, instance_count=1, entry_point="other.py")
print("four", type(task).__name__, job.startswith("four-"))
for wrong in ({"input_data_path": "nowhere"}, {"instance_cont": 3}, {"task_type": "Processing"}):
    try:
        project.runTask("three", image, {"stage": 3}, **wrong)
    except Exception as error:
        print(type(error).__name__, str(error).partition("\\n")[0])
"""


@pytest.mark.slow
def test_a_program(allranks: Allranks, code: Path) -> None:
    for name in ("src", "data", "beside"):
        (code / name).mkdir()
    (code / "src" / "worker.py").write_text(WORKER)
    (code / "src" / "other.py").write_text("import os\nprint('other', os.environ['SSM_NUM_NODES'])")
    (code / "data" / "a").write_text("a")
    (code / "data" / "b").write_text("b")
    (code / "submit.py").write_text(PROGRAM)
    done = allranks("python", "submit.py")
    assert done.returncode == 0, done.stderr
    assert "argv ['--stage', '1'] hps {'stage': 1} host 0 2" in done.stdout
    assert "channels {'m': ['model.tar.gz'], 'model': ['model.tar.gz']}" in done.stdout
    assert "channels {'m': [], 'model': ['model.tar.gz']}" in done.stdout
    assert done.stdout.splitlines()[-5:] == [
        "other 1",
        "four SageMakerTask True",
        "UsageError nowhere not found",
        "UsageError instance_cont is not a parameter of runTask",
        "UsageError runTask runs no Processing task",
    ]
    assert "output/output_algo-1" in tree(code / "out")
    assert "note: volume_size is 999999 GB, and " in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run -p p -t t", "the following arguments are required: --entry_point/-e"),
        ("run -p p -t t -e x --instance_cont 2", "--instance_cont is not an option of `ssm run`"),
        ("shell -p p -t t --cmd x --force_runing y", "--force_runing is not an option"),
        ("run -p p -t t -e x --lr", "not understood: --lr"),
        ("run -p p -t t -e x word 3", "not understood: word 3"),
        ("shell -p p -t t --cmd x -- more", None),
        ("run -p p -t t -e x --distribution {", "'{' is not JSON"),
        ("fly -p p", "invalid choice: 'fly'"),
        ("shell -p p -t t --cmdline x", "--cmdline is not an option of `ssm shell`"),
        ("run -p p -t t -e x --instance_cont=2", "--instance_cont is not an option of `ssm run`"),
        ("shell -p p -t t --cmd x -f mxnet", "invalid choice: 'mxnet'"),
        ("shell -p p -t= --cmd x", "--task_name/-t: is empty"),
    ],
)
def test_wrong_lines(words: str, said: str | None) -> None:
    if said is None:
        assert read(words.split())[2] == ["more"]
        return
    with pytest.raises(UsageError) as caught:
        read(words.split())
    assert said in caught.value.message
    assert caught.value.hint


@pytest.mark.medium
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run -e gone.py", "gone.py not found"),
        ("run -e .", ". is a folder"),
        ("shell --cmd x -i gone", "gone not found"),
        ("shell --cmd x -i . Halved", "'Halved' is no distribution"),
        ("shell --cmd x --iis d /local", "/local is no S3 address"),
        ("shell --cmd x --iit d gone model", "the task gone of p has no job"),
        ("shell --cmd x --iit d gone weights", "a task leaves no 'weights'"),
        ("process", "nothing to run"),
        ("shell --cmd x -- y", "a shell task takes no arguments: y"),
        ('shell --cmd x --distribution {"smdistributed":{}}', "'smdistributed' is not there"),
    ],
)
def test_what_cannot_run_says_why(words: str, said: str, shared: Allranks) -> None:
    kind, *rest = words.split()
    done = shared("ssm", kind, "-p", "p", "-t", "wrong", *rest)
    assert done.returncode == 2
    assert said in done.stderr
    assert "hint:" in done.stderr


def test_a_wrong_line_names_the_help_to_read() -> None:
    for words, line in (("", "ssm"), ("fly", "ssm"), ("shell -p p", "ssm shell")):
        with pytest.raises(UsageError) as caught:
            read(words.split())
        assert caught.value.hint == f"see `allranks {line} --help`"


@pytest.mark.medium
def test_an_instance_type_that_nobody_mapped_is_told(shared: Allranks) -> None:
    words = ("-p", "p", "-t", "odd", "--cmd", "echo hi", "--it", "ml.nosuch")
    done = shared("ssm", "shell", *words)
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert "note: the instance type nosuch is not known" in done.stderr


@pytest.mark.medium
def test_what_has_no_effect_is_noted(shared: Allranks, code: Path) -> None:
    words = ("-p", "p", "-t", "notes", "--cmd", "echo hi", "-v", "999999", "-b", "bucket")
    done = shared("ssm", "shell", *words)
    assert done.returncode == 0, done.stderr
    assert "note: no effect here: --bucket_name (there is no bucket)" in done.stderr
    assert "note: volume_size is 999999 GB, and " in done.stderr
    (code / "submit.py").write_text(
        "from simple_sagemaker.sm_project import SageMakerProject as P\n"
        "P('p', bucket_name='b', prefix='x').setDefaultImageParams(repo_name='r', framework='')\n"
    )
    noted = shared("python", "submit.py").stderr.splitlines()
    assert noted == [
        "note: no effect here: bucket_name of SageMakerProject",
        "note: no effect here: repo_name of SageMakerProject.setDefaultImageParams",
    ]


def test_requirements_are_resolved_with_a_dockerfile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requirements.txt").write_text("six")
    monkeypatch.setattr(task, "_kept", lambda name: tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    request = Request(kind="run", dockerfile="RUN pip install tabulate==0.9.0")
    assert environment(request, tmp_path / "requirements.txt")["build"]["path"] == str(
        tmp_path / "kept"
    )
    made = environment_of((tmp_path / "kept" / "Dockerfile").read_text())
    assert made["pip"] == ["tabulate==0.9.0", "-r requirements.txt"]
    assert (tmp_path / "kept" / "requirements.txt").read_text() == "six"
    request = Request(kind="run", framework="tensorflow")
    environment(request, tmp_path / "requirements.txt")
    made = environment_of((tmp_path / "kept" / "Dockerfile").read_text())
    assert (made["image"], made["pip"]) == ("tensorflow/tensorflow", ["-r requirements.txt"])


def test_a_script_for_pytorch_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.py").write_text("import os\nfrom torch import nn\n")
    request = Request(kind="run", entry=str(tmp_path / "t.py"))
    monkeypatch.setattr(task, "find_spec", lambda name: None)
    assert environment(request) == {"image": "pytorch/pytorch"}
    monkeypatch.setattr(task, "find_spec", lambda name: name)
    assert environment(request) == "current"


@pytest.mark.medium
def test_an_instance_type_local_is_the_local_compute(shared: Allranks, code: Path) -> None:
    line = "echo hi; echo o > $SM_OUTPUT_DATA_DIR/o; echo m > $SM_MODEL_DIR/m"
    words = ("ssm", "shell", "-p", "p", "-t", "here", "--cmd", line, "--it", "local")
    done = shared(*words, "-o", "out", "--download_output", "--download_model")
    assert (done.returncode, done.stdout) == (0, "hi\n"), done.stderr
    # Local mode of SageMaker has all of /opt/ml/output in the archive.
    assert tree(code / "out") == ["logs/logs0", "model/m", "output/data/o"]


@pytest.mark.medium
def test_a_program_beside_its_own_simple_sagemaker_gets_ours(shared: Allranks, code: Path) -> None:
    """As simple-sagemaker's examples do; the real one needs boto3."""
    package = code / "src" / "simple_sagemaker"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "sm_project.py").write_text("import boto3")
    (code / "submit.py").write_text(
        "import os, sys\n"
        "sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'src'))\n"
        "from simple_sagemaker.sm_project import SageMakerProject\n"
        "print(SageMakerProject.__module__)\n"
    )
    done = shared("python", "submit.py")
    assert done.stdout == "allranks.compat.ssm.project\n", done.stderr
    (code / "src" / "boto3.py").write_text("")
    (package / "sm_project.py").write_text("import boto3\nSageMakerProject = type('P', (), {})")
    assert shared("python", "submit.py").stdout == "simple_sagemaker.sm_project\n"


def test_distributions() -> None:
    assert distribution(None) == {"type": "none"}
    given = json.loads('{"mpi": {"enabled": true, "processes_per_host": 2}}')
    assert distribution(given) == {"type": "mpi", "process_count_per_instance": 2}
    assert distribution({"mpi": {"enabled": False}}) == {"type": "none"}
    assert distribution({"torch_distributed": {"enabled": True}})["type"] == "pytorch"
    assert arguments_of({"b": 1, "a-b": "x", "c": True}) == ["--a-b", "x", "-b", "1", "-c", "true"]


def test_names_of_projects_are_names() -> None:
    task = Task("my project", "task/1", " tests/ ")
    assert (task.project, task.name) == ("tests-my-project", "task-1")
    assert Request("run").channels == {}
    assert Channel("x").distribution == "FullyReplicated"
