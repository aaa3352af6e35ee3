"""Programs for `azure.ai.ml`, unmodified, by `allranks python`, without Azure's packages."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from allranks.compat.azure.finder import FirstFinder
from allranks.compat.azure.names import ABSENT, NAMES
from allranks.compat.azure.partial_support import PARTLY
from allranks.sdk.submit.current_environment import current
from tests.support import Allranks

SUBMIT = """
from azure.ai.ml import Input, MLClient, command, dsl
from azure.ai.ml.constants import AssetTypes
from azure.ai.ml.entities import AmlCompute, Environment
from azure.core.exceptions import ResourceNotFoundError
from azure.identity import DefaultAzureCredential

credential = DefaultAzureCredential()
credential.get_token("https://management.azure.com/.default")
ml_client = MLClient(credential, "subscription", "group", "workspace")
try:
    cluster = ml_client.compute.get("my-cluster")
except ResourceNotFoundError:
    print("creating a cluster")
    cluster = AmlCompute(name="my-cluster", size="STANDARD_DS3_v2", max_instances=4)
    cluster = ml_client.compute.begin_create_or_update(cluster).result()
job = command(
    command="cat ${{inputs.data}} && echo ${{inputs.rate}}",
    inputs={"data": Input(type=AssetTypes.URI_FILE, path="data.txt"), "rate": 0.1},
    environment="current",
    compute="my-cluster",
)
job.experiment_name = "unmodified"
returned = ml_client.jobs.create_or_update(job)
ml_client.jobs.stream(returned.name)
print(ml_client.jobs.get(returned.name).status)

@dsl.pipeline(default_compute="my-cluster")
def two(rate):
    step = command(command="echo ${{inputs.r}}", environment="current", inputs={"r": 1})
    step(r=rate)

done = ml_client.jobs.create_or_update(two(rate=5))
ml_client.jobs.stream(done.name)
print(ml_client.jobs.get(done.name).status)
"""


@pytest.mark.medium
@pytest.mark.end_to_end
def test_a_program_runs_unmodified(allranks: Allranks, code: Path) -> None:
    (code / "data.txt").write_text("some data\n")
    (code / "submit.py").write_text(SUBMIT)
    done = allranks("python", "submit.py")
    assert done.returncode == 0, done.stderr
    assert "creating a cluster" in done.stdout
    assert "some data\n0.1\n" in done.stdout
    assert done.stdout.count("Completed") >= 2
    assert "my-cluster" in allranks("compute", "map").stdout


def python(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-m", "allranks.cli.main", "python", *words]
    env = {"PATH": "/usr/bin:/bin", **more}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)


_CLIENT = "from azure.ai.ml import MLClient as C; C.from_config(None)"
_WORKSPACE = "from azureml.core import Workspace as W; W.from_config()"


@pytest.mark.medium
@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            "from azure.ai.ml import automl; automl.classification()",
            "hint: there is no AutoML",
        ),
        ("from azure.ai.ml import comand", "did you mean `command`?"),
        (
            "from azure.ai.ml.entities import ModelPackage as M; M(target='x')",
            "hint: give the deployment",
        ),
        ("from azureml.core.compute import RemoteCompute as R; R.attach_configuration()", "create"),
        (f"{_CLIENT}.data.share('a', '1')", "DataAssets.share is not there in allranks: there are"),
        (f"{_CLIENT}.models.package('a', '1')", "Models.package is not there in allranks: give"),
        ("import azure.ai.ml.finetuning", "azure.ai.ml.finetuning is not there in allranks"),
        ("import azure.ai.ml; azure.ai.ml.Nope", "azure.ai.ml.Nope is not there in allranks"),
        (f"{_CLIENT}.job", "did you mean `jobs`?"),
        (f"{_WORKSPACE}.experimnts", "did you mean `experiments`?"),
        ("import azure.storage.blob", "No module named 'azure.storage'"),
    ],
)
def test_what_is_not_there_is_said_at_once(program: str, said: str) -> None:
    done = python("-c", program)
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]


@pytest.mark.medium
def test_it_is_python(tmp_path: Path) -> None:
    show = "import json, os, sys; print(json.dumps([sys.argv, os.environ.get('PYTHONPATH')]))"
    assert json.loads(python("-c", show, "a", "--b").stdout)[0] == ["-c", "a", "--b"]
    # Pythons that the program starts, such as a notebook's, answer too; jobs do not get it.
    _, there = json.loads(python("-c", show, PYTHONPATH=str(tmp_path)).stdout)
    assert there.endswith(f"/azure/inside:{tmp_path}")
    assert current({"PYTHONPATH": there})["PYTHONPATH"] == str(tmp_path)
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import azure.ai.ml'])"
    assert python("-c", child).stderr == ""
    assert python("-c", "raise SystemExit(7)").returncode == 7
    assert "usage: python -m json.tool" in python("-m", "json.tool", "--help").stdout
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    # Once for the command line, once for the program.
    assert python("-c", "", PYTHONPATH=str(tmp_path)).stdout == "mine\n" * 2
    done = python("-c", f"{_CLIENT}.components.archive('a', version='1')")
    assert (done.returncode, done.stderr.count("no effect here: Components.archive")) == (0, 1)
    unused = "from azure.ai.ml import automl; from azureml.core.compute import RemoteCompute"
    assert python("-c", unused).returncode == 0
    ours = "import azure.ai.ml as a; print(dir(a) and a.entities.Model, a.__name__)"
    assert python("-c", ours).stdout == "<class 'allranks.spec.model.Model'> azure.ai.ml\n"
    versions = "import azureml.core as c; assert c.VERSION == c.__version__; c.__file__"
    assert "AttributeError: __file__" in python("-c", versions).stderr
    has = "from azureml.core import Workspace; print(hasattr(Workspace(), 'images'))"
    assert python("-c", has).stdout == "False\n"


@pytest.mark.medium
def test_what_is_installed_wins_only_if_it_is_told_to(tmp_path: Path) -> None:
    """A notebook's `%pip install azure-ai-ml` leaves it to the next notebook."""
    site = tmp_path / "lib" / "site-packages"
    for name, text in {
        "azure/ai/ml/__init__.py": "MLClient = 'theirs'",
        "azure/core/__init__.py": "from ._match import MatchConditions; __version__ = '1.30'",
        "azure/core/_match.py": "MatchConditions = 'theirs'",
        "azure/core/exceptions.py": "ResourceNotFoundError = OddError = 'theirs'",
        "azure/core/pipeline.py": "PIPELINE = 'theirs'",
        "azure/storage/blob.py": "from azure.core import MatchConditions as BLOB",
    }.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    program = """
from azure.ai.ml import MLClient
from azure.core.exceptions import OddError, ResourceNotFoundError
from azure.core.pipeline import PIPELINE
from azure.storage.blob import BLOB
import azure.core
print(MLClient, ResourceNotFoundError, OddError, PIPELINE, BLOB, azure.core.__version__)
"""
    done = python("-c", program, PYTHONPATH=str(site))
    ours = "<class 'allranks.compat.azure.v2.MLClient'> <class 'allranks.errors.NotFound'>"
    assert done.stdout == f"{ours} theirs theirs theirs 1.30\n", done.stderr
    assert "azure.ai.ml is installed here, too: allranks answers" in done.stderr
    loaded = "import allranks.azure as a; a.load_ipython_extension(0); import azure.ai.ml as m; "
    words = [sys.executable, "-P", "-c", f"{loaded} print(m.MLClient)"]
    env = {"PYTHONPATH": str(site)}
    assert ours.startswith(subprocess.check_output(words, env=env, text=True).strip())
    done = python("-c", program, PYTHONPATH=str(site), ALLRANKS_IMPORTS="0")
    assert done.stdout == "theirs theirs theirs theirs theirs 1.30\n", done.stderr
    assert "azure.ai.ml is installed here: the program uses it" in done.stderr
    assert "azureml.core is installed here" not in done.stderr
    # One's own modules are not installed.
    own = (site / "azure").rename(tmp_path / "azure").parent
    done = python("-c", "from azure.ai.ml import MLClient as C; print(C)", PYTHONPATH=str(own))
    assert done.stdout == "theirs\n", done.stderr


def test_what_the_program_installs_does_not_win(tmp_path: Path) -> None:
    package = tmp_path / "azure" / "ai" / "ml"
    program = f"""
import os, sys
from azure.ai.ml import MLClient
os.makedirs({str(package)!r})
open({str(package / "entities.py")!r}, "w").write("Data = 'theirs'")
open({str(package / "__init__.py")!r}, "w").write("")
from azure.ai.ml.entities import Data
print(Data)
"""
    done = python("-c", program, PYTHONPATH=str(tmp_path))
    assert done.stdout == "<class 'allranks.spec.data.Data'>\n", done.stderr


def test_every_name_is_there() -> None:
    for names in NAMES.values():
        for ours in names.values():
            module, _, name = ours.partition(":")
            assert getattr(import_module(module), name)
    ours = {each for names in NAMES.values() for each in names.values()}
    assert set(PARTLY) <= ours
    for module, names in ABSENT.items():
        assert not names.keys() & NAMES[module].keys()


_OWN = """
import sys
from azureml.core import Run
from azure.core import VALUE
from azureml.helpers import HELP
from mldesigner import command_component
print(Run, VALUE, HELP, command_component)
"""


@pytest.mark.medium
@pytest.mark.parametrize("is_warm", [False, True])
def test_own_packages_beside_a_script_win(
    shared: Allranks, code: Path, tmp_path: Path, is_warm: bool
) -> None:
    for name, text in {
        "azureml/__init__.py": "",
        "azureml/core.py": "Run = 'my run'",
        "azureml/helpers.py": "HELP = 'my help'",
        "azure/core.py": "VALUE = 'my value'",
        "mldesigner.py": "command_component = 'my component'",
        "script.py": _OWN,
    }.items():
        (code / name).parent.mkdir(exist_ok=True)
        (code / name).write_text(text)
    mine = "my run my value my help my component\n"
    done = python(str(code / "script.py"))
    assert (done.stdout, done.stderr) == (mine, "")
    warm = ("--warm", "json") if is_warm else ()
    for _ in range(1 + is_warm):
        done = shared("run", *warm, "python", "script.py")
        assert done.returncode == 0, done.stderr
        assert mine in done.stdout
        assert "ranks start cold" not in done.stderr


@pytest.mark.medium
def test_a_folder_without_init_has_own_modules_beside_azures(tmp_path: Path) -> None:
    for name, text in {
        "azureml/helpers.py": "HELP = 'my help'",
        "script.py": "import azureml.core\nfrom azureml.helpers import HELP\nprint(HELP)",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = python(str(tmp_path / "script.py"))
    assert (done.stdout, done.stderr) == ("my help\n", "")


def test_a_path_among_the_folders_of_modules_is_passed_over(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", [Path("/none"), *sys.path])
    assert FirstFinder({"azure.ai.ml"}).find_spec("azure.ai.ml") is not None
