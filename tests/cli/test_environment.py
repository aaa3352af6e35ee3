"""`allranks environment …` and jobs that are given one: real uv, real wheels, no network."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from allranks import AllranksError, Client, Environment, command
from tests.support import answer, until
from tests.wheels import wheel

pytestmark = pytest.mark.slow


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "whe'els"
    wheel(folder, "apple", "1.0")
    wheel(folder, "apple", "2.0")
    wheel(folder, "pear", requires=["apple<2"])
    return folder


@pytest.fixture
def requirements(code: Path, wheels: Path) -> Path:
    """A file beside the code, of a name that has to be quoted."""
    path = code / "my requirements.txt"
    path.write_text(f"--no-index\n--find-links {wheels}\npear\n")
    return path


PLUM = "import apple\ndef main(): print(apple.version)\n"
PRINT = ["--", "python", "-c", "import apple, sys; print(apple.version, sys.prefix)"]


@pytest.mark.end_to_end
def test_a_job_gets_what_its_file_lists(shared, requirements):
    done = shared("run", "--name", "own-1", "-n", 2, "-e", requirements, *PRINT)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert [version for version, _ in lines] == ["1.0", "1.0"]
    assert len({prefix for _, prefix in lines}) == 2, "each node has a layer of its own"
    job = answer(shared, "job", "show", "own-1")
    assert job["environment"]["requirements"][-1] == "pear"
    # One of the two built it and logged that.
    logs = Path(job["folder"]).rglob("environment_node*")
    assert any("Installed" in log.read_text() for log in logs)


def test_what_a_job_installs_is_the_jobs_alone(shared, requirements, wheels):
    install = f'pip install -q --no-index --find-links "{wheels}" apple==2.0 && '
    look = "python -c 'import apple; print(apple.version)'"
    run = ["run", "-e", requirements, "--", "bash", "-c"]
    assert shared(*run, install + look).stdout.endswith("\n2.0\n")
    assert shared(*run, look).stdout == "1.0\n"


def test_what_a_job_installs_without_an_environment_is_the_jobs_alone(
    shared, shared_home, wheels, tmp_path
):
    """The current Python, a virtual environment with packages and programs, stays as it is."""
    own = tmp_path / "o'wn x"
    subprocess.run([sys.executable, "-m", "venv", own], check=True)
    wheel(wheels, "plum", scripts={"plum": "plum:main"}, modules={"plum.py": PLUM})
    pip = [own / "bin" / "python", "-m", "pip", "install", "-q", "--no-index"]
    subprocess.run([*pip, "--find-links", wheels, "apple==1.0", "plum"], check=True)
    env = {"PATH": f"{own}/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(own)}
    before = sorted(own.rglob("*"))
    install = f'pip install -q --no-index --find-links "{wheels}" apple==2.0 && plum'
    done = shared("run", "-n", 2, "--", "bash", "-c", install, env=env)
    assert done.stdout.splitlines() == ["2.0", "2.0"], done.stdout + done.stderr
    assert "goes into a layer of this job" in done.stderr
    assert sorted(own.rglob("*")) == before
    assert shared("run", "-q", "--", "plum", env=env).stdout == "1.0\n"


def test_a_dockerfile_without_containers(shared, code, wheels):
    docker = code / "dock er"
    docker.mkdir()
    (docker / "needs.txt").write_text(f"--no-index\n--find-links {wheels}\npear\n")
    lines = ["FROM docker.io/python:latest", "ENV FRUIT=basket", "COPY needs.txt /tmp/", ""]
    install = "RUN pip install --no-cache-dir -r /tmp/needs.txt && rm -rf /root/.cache\n"
    (docker / "Dockerfile").write_text("\n".join(lines) + install)
    (code / "job.yml").write_text(
        "command: python -c 'import apple, os; print(apple.version, os.environ[\"FRUIT\"])'\n"
        "environment: {build: {path: dock er}}\n"
    )
    done = shared("job", "create", "-f", "job.yml", "--stream")
    assert done.stdout == "1.0 basket\n", done.stderr
    assert "no image is built" in done.stderr
    with (docker / "Dockerfile").open("a") as file:
        file.write("RUN apt-get install -y ffmpeg\n")
    done = shared("job", "create", "-f", "job.yml")
    assert done.returncode == 2
    assert "Dockerfile:5: `RUN apt-get install -y ffmpeg` has no counterpart" in done.stderr
    assert "hint: enable containers" in done.stderr


def test_variables_of_the_submitters_environment_are_not_passed_on(shared, requirements):
    script = "import os; print(os.environ.get('PYTHONPATH'), os.environ.get('CONDA_PREFIX'))"
    env = {"PYTHONPATH": "/somewhere", "CONDA_PREFIX": "/conda"}
    done = shared("run", "-e", requirements, "--", "python", "-c", script, env=env)
    path, conda = done.stdout.rsplit(" ", 1)
    assert (Path(path).name, conda) == ("inside", "None\n")  # ours, and nothing else


def test_the_life_of_a_named_environment(allranks, requirements, wheels, tmp_path):
    made = answer(allranks, "environment", "create", "fruit", "-f", requirements, "--label", "prod")
    assert (made["name"], made["version"], made["labels"]) == ("fruit", "1", ["prod"])
    again = answer(allranks, "environment", "create", "fruit", "-f", requirements)
    assert again["version"] == "1"
    lines = [f"--pip={line}" for line in ("--no-index", f"--find-links {wheels}", "apple")]
    assert answer(allranks, "environment", "create", "fruit", *lines)["version"] == "2"
    listed = answer(allranks, "environment", "list", "fruit")
    assert [each["version"] for each in listed] == ["1", "2"]

    assert answer(allranks, "environment", "show", "fruit@prod")["made"] is None
    unmade = allranks("environment", "export", "fruit@prod")
    assert unmade.returncode == 2
    assert "allranks environment build fruit:1" in unmade.stderr
    built = allranks("environment", "build", "fruit@prod")
    assert built.returncode == 0
    assert "Installed" in built.stderr
    folder = Path(built.stdout.strip())
    assert folder.is_dir()
    assert answer(allranks, "environment", "build", "fruit:1")["was_there"] is True
    exported = allranks("environment", "export", "fruit@prod").stdout.splitlines()
    assert {"apple==1.0", "pear==1.0"} <= {*exported}
    written = tmp_path / "again.yml"
    written.write_text(allranks("environment", "export", "fruit:1", "--format", "yaml").stdout)
    assert answer(allranks, "environment", "create", "-f", written)["version"] == "1"

    run = ["run", "--name", "named", "-e", "fruit@prod", *PRINT]
    assert allranks(*run).stdout.startswith("1.0 ")
    allranks("environment", "label", "fruit:2", "prod")
    # What has run is run again as it was, whatever the label means by now.
    assert answer(allranks, "job", "show", "named")["spec"]["environment"] == "azureml:fruit:1"
    restarted = answer(allranks, "job", "restart", "named")
    assert restarted["environment"]["name"] == "fruit:1"
    assert allranks("run", "-e", "fruit", *PRINT).stdout.startswith("2.0 ")

    assert answer(allranks, "environment", "clone", "fruit:1", "basket")["version"] == "1"
    assert answer(allranks, "environment", "delete", "--yes", "fruit:2")["version"] == "2"
    gone = allranks("run", "-e", "fruit:2", "--", "true")
    assert gone.returncode == 2
    assert "environment fruit:2 not found" in gone.stderr
    assert "its versions: 1" in gone.stderr


def test_the_map_is_shown_changed_and_applied(allranks, wheels, code):
    (code / "job.yml").write_text(
        "command: python -c 'import apple; print(apple.version)'\n"
        f'environment:\n  pip: ["--no-index", "--find-links {wheels}", "apple==1.6"]\n'
    )
    refused = allranks("job", "create", "-f", "job.yml", "--stream")
    assert refused.returncode == 1
    assert "apple==1.6 cannot be installed" in refused.stderr
    assert "allranks environment map apple==1.6 apple==2.0" in refused.stderr
    assert allranks("environment", "map", "apple==1.6", "apple==2.0").returncode == 0
    taken = allranks("job", "create", "-f", "job.yml", "--stream")
    assert taken.stdout == "2.0\n"
    assert "note: apple==1.6 was requested, using apple==2.0" in taken.stderr
    table = answer(allranks, "environment", "map")
    assert table["own"] == {"apple==1.6": "apple==2.0"}
    assert "pytorch/pytorch:*" in allranks("environment", "map").stdout
    allranks("environment", "map", "apple==1.6")
    assert answer(allranks, "environment", "map")["own"] == {}


def test_the_map_takes_several_pairs_and_leaves_packages_out(allranks, wheels, code):
    (code / "job.yml").write_text(
        "command: python -c 'import apple; print(apple.version)'\n"
        f'environment:\n  pip: ["--no-index", "--find-links {wheels}", "apple==1.6", "plum",'
        ' "azureml-defaults"]\n'
    )
    words = ("apple==1.6", "apple==2.0", "plum", "none")
    mapped = allranks("environment", "map", *words)
    assert "apple==1.6 means apple==2.0" in mapped.stderr
    assert "plum is left out" in mapped.stderr
    assert "none (left out)" in allranks("environment", "map").stdout
    taken = allranks("job", "create", "-f", "job.yml", "--stream")
    assert taken.stdout == "2.0\n", taken.stderr
    assert "note: left out: plum" in taken.stderr
    assert "note: left out: azureml-defaults" in taken.stderr
    allranks("environment", "map", "plum")
    assert answer(allranks, "environment", "map")["own"] == {"apple==1.6": "apple==2.0"}


def test_the_record_keeps_the_requested_name(allranks, home, requirements, capfd):
    allranks("environment", "create", "fruit", "-f", requirements)
    allranks("environment", "map", "AzureML-fruit", "fruit")
    allranks("run", "--name", "old", "-e", "AzureML-fruit@latest", *PRINT)
    for name in ("old", answer(allranks, "job", "restart", "old")["name"]):
        environment = answer(allranks, "job", "show", name)["environment"]
        assert (environment["name"], environment["asked_for"]) == (
            "fruit:1",
            "AzureML-fruit@latest",
        )
        shown = allranks("job", "show", name).stdout
        assert "fruit:1 (requested: AzureML-fruit@latest)" in shown
        Client().jobs.stream(name)
        said = "note: environment: fruit:1 (requested: AzureML-fruit@latest)"
        assert capfd.readouterr().err.count(said) == 1


@pytest.mark.parametrize("asked", [("-e", "azureml:E@latest"), ("--image", "some/image:1")])
def test_a_job_says_that_the_current_python_stands_for_another(allranks, asked):
    allranks("environment", "map", "*", "current")
    said = "using the current Python instead"
    for more in ((), ("--detach",)):
        assert allranks("run", *more, *asked, "--", "true").stderr.count(said) == 1
    dry = allranks("run", "--dry-run", *asked, "--", "true")
    assert (dry.stdout + dry.stderr).count(said) == 1


def test_builds_are_allowed_for_files_alone(allranks):
    for asked in ((), ("-e", "fruit"), ("--image", "some/image:1")):
        refused = allranks("run", *asked, "--allow-builds", "--", "true")
        assert refused.returncode == 2
        assert "--allow-builds needs a requirements or conda file" in refused.stderr


def test_an_image_where_no_containers_run(allranks, requirements):
    allranks("environment", "create", "fruit", "-f", requirements)
    refused = allranks("run", "--image", "some/image:1", *PRINT)
    assert refused.returncode == 2
    assert "no environment is mapped to the image some/image:1" in refused.stderr
    allranks("environment", "map", "some/*", "fruit")
    done = allranks("run", "--image", "some/image:1", *PRINT)
    assert done.stdout.startswith("1.0 ")
    assert "using fruit:1 instead" in done.stderr
    assert answer(allranks, "environment", "create", "pod", "--image", "x/y:1")["image"] == "x/y:1"
    refused = allranks("run", "-e", "pod", "--", "true")
    assert "no environment is mapped to the image x/y:1" in refused.stderr


def test_a_conda_file_of_a_job(shared, code, wheels):
    (code / "conda.yml").write_text(
        "name: x\nchannels: [defaults]\ndependencies:\n  - pip\n  - cudatoolkit=11\n"
        f"  - pip:\n    - --no-index\n    - --find-links {wheels}\n    - apple<2\n"
        "variables:\n  COLOUR: green\n"
    )
    (code / "job.yml").write_text(
        "command: python -c 'import apple, os; print(apple.version, os.environ[\"COLOUR\"])'\n"
        "environment:\n  conda_file: conda.yml\n"
    )
    done = shared("job", "create", "-f", "job.yml", "--stream")
    assert (done.returncode, done.stdout) == (0, "1.0 green\n"), done.stderr
    assert "left out: cudatoolkit=11" in done.stderr
    shown = shared("job", "create", "-f", "job.yml", "--dry-run")
    assert "apple<2" in shown.stdout
    assert "VIRTUAL_ENV=<the attempt's environment>" in shown.stdout
    (code / "conda.yml").write_text("dependencies:\n  - nodejs\n")
    refused = shared("job", "validate", "-f", "job.yml")
    assert refused.returncode == 2
    assert "conda.yml:2" in refused.stderr


def test_a_cancel_does_not_wait_for_the_build(shared, requirements, tmp_path, code):
    """A package whose making would take a minute is built from its source."""
    source = tmp_path / "slow-1.0"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "slow"\nbackend-path = ["."]\n'
        '[project]\nname = "slow"\nversion = "1.0"\n'
    )
    (source / "slow.py").write_text("import time\ntime.sleep(60)\n")
    subprocess.run(["tar", "czf", "slow-1.0.tar.gz", "slow-1.0"], cwd=tmp_path, check=True)
    requirements.write_text(f"--no-index\n--find-links {tmp_path}\nslow\n")
    shared("run", "--detach", "--name", "slow-1", "-e", requirements, "--", "true")
    began = time.monotonic()
    until(lambda: answer(shared, "job", "show", "slow-1")["status"] == "Preparing")
    shared("job", "cancel", "slow-1")
    shared("job", "wait", "slow-1")
    assert time.monotonic() - began < 30
    assert answer(shared, "job", "show", "slow-1")["status"] == "Canceled"


def test_what_the_shell_tells_pip_counts_and_passwords_are_not_shown(allranks, code, wheels):
    (code / "requirements.txt").write_text("apple\n")
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": "/dev/null"}
    nothing = allranks("run", "-e", "requirements.txt", *PRINT, env=env)
    assert "package 'apple' not found in any index" in nothing.stderr
    # The comma is uv's own separator: a folder of such a name cannot be told by variable.
    env["UV_FIND_LINKS"] = str(wheels)
    done = allranks("run", "--name", "told", "-e", "requirements.txt", *PRINT, env=env)
    assert done.stdout.startswith("2.0 "), done.stderr

    lines = "--index-url https://me:hunter2@example.invalid/simple\napple\n"
    (code / "secret.txt").write_text(lines)
    secret = ["run", "-e", "secret.txt", "--dry-run", "--json", "--", "true"]
    shown = allranks(*secret, env={"http_proxy": "http://me:hunter2@proxy.invalid"})
    assert shown.returncode == 0
    assert "hunter2" not in shown.stdout
    allranks("environment", "create", "secret", "-f", "secret.txt")
    assert "hunter2" not in allranks("environment", "show", "secret", "--json").stdout


def test_variables_of_the_shell_do_not_lead_past_the_environment(shared, requirements):
    look = ["--", "bash", "-c", "which python; echo $MINE"]
    for more in (["--env-all"], ["--env", "PATH", "--env", "MINE"]):
        done = shared("run", *more, "-e", requirements, *look, env={"MINE": "yes"})
        assert done.stdout.splitlines()[0].endswith("/environment/bin/python"), done.stderr
        assert done.stdout.splitlines()[1] == "yes"
    # Programs of the Python in front do not stand in for those that are missing.
    path = shared("run", "-e", requirements, "--", "bash", "-c", "echo $PATH").stdout
    assert "/usr/bin" in path
    assert f"{sys.prefix}/bin" not in path


def test_an_empty_file_is_an_empty_environment(shared, code):
    (code / "empty.txt").write_text("# nothing\n--no-index\n")
    script = "import importlib.util as u; print(u.find_spec('pytest'))"
    done = shared("run", "-e", "empty.txt", "--", "python", "-c", script)
    assert done.stdout == "None\n", done.stderr


def test_doctor_reports_whether_it_is_built(allranks, code, requirements):
    (code / "job.yml").write_text(
        "command: python train.py\ncode: .\nenvironment:\n  requirements: my requirements.txt\n"
    )
    (code / "train.py").write_text("import apple, plum\n")
    before = allranks("doctor", "--job", "job.yml", "-v")
    assert "is not built yet" in before.stdout
    assert "plum" not in before.stdout
    allranks("environment", "build", "-f", requirements)
    after = allranks("doctor", "--job", "job.yml", "-v")
    assert "is already built" in after.stdout
    assert "plum" in after.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["create", "a/b", "--pip", "x"], "letters, digits"),
        (["create", "allranks-mine", "--pip", "x"], "are reserved"),
        (["create", "x"], "is empty"),
        (["create", "--pip", "x"], "name: is missing"),
        (["create", "x", "--pip", "numpy>==1"], "is not a requirement"),
        (["create", "x", "-f", "nowhere.yml"], "file not found"),
        (["create", "x", "--requirements", "nowhere.txt"], "requirements file not found"),
        (["show", "nope"], "environment nope@latest not found"),
        (["show", "allranks-pytorch-2.1"], "did you mean"),
        (["show", "a:b:c"], "not a reference to a version"),
        (["build"], "name one environment"),
        (["build", "x", "-f", "y"], "name one environment"),
        (["delete", "--yes", "allranks-sklearn-1:1"], "curated"),
        (["delete", "--yes", "allranks-sklearn-1"], "name the version"),
        (["create", "current", "--pip", "x"], "is a reserved word"),
        (["create", "map", "--pip", "x"], "is a reserved word"),
        (["create", "x", "--pip", "x", "--version", "latest"], "is a reserved word"),
        (["create", "x", "--pip", "./folder"], "an editable folder"),
        (["label", "x:1", "a b"], "are not valid labels"),
        (["label", "x", "7", "good"], "is a version, not a label"),
        (["label", "x", "latest"], "is a reserved label"),
        (["create", "never", "--pip", "x", "--label", "latest"], "is a reserved label"),
        (["show", "never"], "environment never@latest not found"),
        (["map", "six==1", "six==1"], "would replace itself"),
        (["map", "six==1", ">=bad"], "is not a requirement"),
        (["map", "six==1", "six==2", "plum"], "'plum' has no substitute"),
        (["map", "python=3.6", "none"], "needs Python"),
        (["label", "allranks-sklearn-1", "x"], "curated"),
        (["export", "allranks-sklearn-1", "--format", "docker"], "is not a format"),
        (["clone", "nope", "x"], "environment nope@latest not found"),
    ],
)  # fmt: skip
def test_wrong_use(shared, words, said):
    done = shared("environment", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


def test_from_python(home: Path, code: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(code)
    (code / "requirements.txt").write_text(f"--no-index\n--find-links {wheels}\napple<2\n")
    client = Client()
    asked = Environment(name="fruit", requirements="requirements.txt")
    made = client.create_or_update(asked)
    assert (made.name, made.version, made.pip[-1]) == ("fruit", "1", "apple<2")
    assert client.environments.create_or_update(asked) == made
    assert client.environments.get("fruit") == client.environments.get("fruit", "1") == made
    assert client.environments.list("fruit") == [made]
    assert "allranks-sklearn-1" in {each.name for each in client.environments.list()}
    line = "python -c 'import apple; print(apple.version)' > outputs/version"
    for environment in ("azureml:fruit@latest", made):
        job = client.jobs.create_or_update(command(command=line, environment=environment))
        assert client.jobs.wait(job.name).status == "Completed"
        client.jobs.download(job.name, job.name)
        assert (code / job.name / "artifacts/outputs/version").read_text() == "1.0\n"
    with pytest.raises(AllranksError, match=r"environment nope.* not found"):
        client.environments.get("nope")


def test_an_image_that_is_a_plain_python_everywhere(shared, code):
    """In a step and in a sweep, and when the job is restarted: it has no name to refer to."""
    image = f"python:{sys.version_info.major}.{sys.version_info.minor}"
    job = f"command: echo here\nenvironment: {{image: '{image}'}}\n"
    step = "".join(f"    {line}\n" for line in job.splitlines())
    (code / "steps.yml").write_text(f"type: pipeline\njobs:\n  one:\n{step}")
    (code / "sweep.yml").write_text(
        "type: sweep\ntrial:\n"
        + step.replace("echo here", "echo x ${{search_space.a}}")
        + "    metrics: {m: 'x (\\d+)'}\n"
        + "sampling_algorithm: grid\nsearch_space: {a: {type: choice, values: [1]}}\n"
        "objective: {goal: minimize, primary_metric: m}\n"
        "limits: {max_total_trials: 1}\n"
    )
    (code / "job.yml").write_text("name: plain-python\n" + job)
    for file in ("steps.yml", "sweep.yml", "job.yml"):
        done = shared("job", "create", "-f", file, "--stream")
        assert done.returncode == 0, done.stderr
    done = shared("job", "restart", "plain-python", "--stream")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "here\n"
