"""Programs of Azure ML's guides (train a model, PyTorch life cycle, distributed GPU training), of
which only the imports were changed: `azure.ai.ml` became `allranks`. Scripts and data are small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import Allranks, environment

# Real servers and jobs.
pytestmark = pytest.mark.slow

CONNECT = """
from allranks import MLClient

class DefaultAzureCredential:  # azure.identity's, which a program may go on importing
    pass

credential = DefaultAzureCredential()
ml_client = MLClient(
    credential=credential,
    subscription_id="<SUBSCRIPTION_ID>",
    resource_group_name="<RESOURCE_GROUP>",
    workspace_name="<AML_WORKSPACE_NAME>",
)
"""

LIFE_CYCLE = """
from allranks.entities import AmlCompute

gpu_compute_target = "gpu-cluster"

try:
    # let's see if the compute target already exists
    gpu_cluster = ml_client.compute.get(gpu_compute_target)
    print(f"You already have a cluster named {gpu_compute_target}, we'll reuse it as is.")
except Exception:
    print("Creating a new gpu compute target...")
    gpu_cluster = AmlCompute(
        name="gpu-cluster",
        type="amlcompute",
        size="STANDARD_NC6s_v3",
        min_instances=0,
        max_instances=4,
        idle_time_before_scale_down=180,
        tier="Dedicated",
    )
    gpu_cluster = ml_client.begin_create_or_update(gpu_cluster).result()

print(f"AMLCompute with name {gpu_cluster.name} is created, the compute size is {gpu_cluster.size}")

import os
from allranks.entities import Environment

job_env = Environment(
    name="pytorch-env",
    description="Custom environment for pytorch image classification",
    conda_file=os.path.join("dependencies", "conda.yaml"),
    image="mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04:latest",
)
job_env = ml_client.environments.create_or_update(job_env)
print(
    f"Environment with name {job_env.name} is registered to workspace, "
    f"the environment version is {job_env.version}"
)
assert ml_client.environments.get(job_env.name, version=job_env.version).name == "pytorch-env"

from allranks import command
from allranks import Input

job = command(
    inputs=dict(
        num_epochs=30, learning_rate=0.001, momentum=0.9, output_dir="./outputs"
    ),
    compute=gpu_compute_target,
    environment="current",
    code="./src/",  # location of source code
    command="python pytorch_train.py --num_epochs ${{inputs.num_epochs}} "
            "--output_dir ${{inputs.output_dir}}",
    experiment_name="pytorch-birds",
    display_name="pytorch-birds-image",
)
returned_job = ml_client.jobs.create_or_update(job)
returned_job.studio_url
returned_job.services["Studio"].endpoint
ml_client.jobs.stream(returned_job.name)

from allranks.entities import Model
from allranks.constants import AssetTypes

model = Model(
    path=f"azureml://jobs/{returned_job.name}/outputs/artifacts/paths/outputs/model/",
    name="run-model-example",
    description="Model created from run.",
    type=AssetTypes.CUSTOM_MODEL,
)
registered = ml_client.models.create_or_update(model)
ml_client.jobs.download(name=returned_job.name, download_path="./got", all=True)
one = ml_client.jobs.download(returned_job.name, "./one", path="outputs/model/model.pt")
found = {
    "status": ml_client.jobs.get(returned_job.name).status,
    "experiment": returned_job.experiment_name,
    "model": [registered.name, registered.version, registered.type, registered.files],
    "got": os.path.exists("got/artifacts/outputs/model/model.pt"),
    "one": [str(one), open(one).read()],
}
"""

TRAIN_MODEL = """
from allranks import command, Input, Output
from allranks.constants import AssetTypes, InputOutputModes
from allranks.entities import Data

my_data = Data(
    path="./data/iris.csv",
    type=AssetTypes.URI_FILE,
    description="Iris",
    name="iris",
    version="1",
)
ml_client.data.create_or_update(my_data)
data_asset = ml_client.data.get("iris", version="1")

command_job = command(
    code="./src",
    command="python main.py --iris-csv ${{inputs.iris_csv}} "
            "--learning-rate ${{inputs.learning_rate}} --boosting ${{inputs.boosting}} "
            "--out ${{outputs.out}}",
    environment="AzureML-lightgbm-3.3@latest",
    inputs={
        "iris_csv": Input(
            type="uri_file",
            path=data_asset.path,
            mode=InputOutputModes.RO_MOUNT,
        ),
        "learning_rate": 0.9,
        "boosting": "gbdt",
    },
    outputs={"out": Output(type=AssetTypes.URI_FOLDER, mode=InputOutputModes.RW_MOUNT)},
    compute="cpu-cluster",
)
assert command_job.environment == "azureml:AzureML-lightgbm-3.3@latest"
command_job.environment = "current"
command_job.environment_variables = {"GREETING": "hello"}
returned_job = ml_client.create_or_update(command_job)
ml_client.jobs.stream(returned_job.name)
listed = [each.name for each in ml_client.jobs.list()]
ml_client.jobs.download(name=returned_job.name, download_path="./got", output_name="out")
found = {
    "listed": returned_job.name in listed,
    "out": open("got/named-outputs/out/result").read(),
}
"""

DISTRIBUTED = """
import os
from allranks import command, Input, MpiDistribution, PyTorchDistribution, TensorFlowDistribution
from allranks.constants import AssetTypes
from allranks.entities import JobService, ResourceConfiguration, TensorBoardJobService

cifar = command(
    code="./src",
    command="python data.py --data ${{outputs.cifar}}",
    outputs={"cifar": {"type": AssetTypes.URI_FOLDER}},
    environment="current",
)
returned_job = ml_client.jobs.create_or_update(cifar)
ml_client.jobs.stream(returned_job.name)

inputs = {
    "cifar": Input(
        type=AssetTypes.URI_FOLDER, path=returned_job.outputs.cifar.path
    ),
    "epoch": 10,
    "lr": 0.01,
    "output": "./outputs",
}

job = command(
    code="./src",  # local path where the code is stored
    command="python train.py --data-dir ${{inputs.cifar}} --epochs ${{inputs.epoch}} "
            "--learning-rate ${{inputs.lr}} --model-dir ${{inputs.output}}",
    inputs=inputs,
    environment="current",
    instance_count=2,
    distribution={
        "type": "PyTorch",
        "process_count_per_instance": 1,
    },
    services={
        "My_tensorboard": TensorBoardJobService(nodes="all", log_dir="outputs/tblogs"),
        "mine": JobService(type="my_dashboard", port=8501),
    },
)
job.resources = ResourceConfiguration(
    instance_type="Standard_NC6s_v3", instance_count=2
)  # Serverless compute resources
first = ml_client.jobs.create_or_update(job)
job.resources.instance_count = 1
job.distribution = PyTorchDistribution(process_count_per_instance=2)
second = ml_client.jobs.create_or_update(job)
job.command = ["python", "train.py", "--data-dir", "${{inputs.cifar}}"]
job.distribution = TensorFlowDistribution(worker_count=1)
third = ml_client.jobs.create_or_update(job)
job.distribution = MpiDistribution(process_count_per_instance=2)
job.compute = "gpu-cluster"
found = {"mpi": job.distribution.type}
for name, each in {"nodes": first, "ranks": second, "tensorflow": third}.items():
    ml_client.jobs.stream(each.name)
    found[name] = [ml_client.jobs.get(each.name).status, each.nodes, each.processes]
"""

SOURCES = {
    "src/pytorch_train.py": "import os; os.makedirs('outputs/model', exist_ok=True)\n"
    "open('outputs/model/model.pt', 'w').write('weights')\n",
    "src/main.py": "import os, sys\nwords = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
    "text = [os.environ['GREETING'], open(words['--iris-csv']).read(), words['--boosting']]\n"
    "open(words['--out'] + '/result', 'w').write(' '.join(text))\n",
    "src/data.py": "import sys; open(sys.argv[2] + '/batch', 'w').write('1')\n",
    "src/train.py": "import os, sys; assert os.listdir(sys.argv[2]) == ['batch']\n"
    "assert 'RANK' in os.environ or 'TF_CONFIG' in os.environ\n",
    "dependencies/conda.yaml": "dependencies: [python=3.11, pip, {pip: [numpy]}]\n",
    "data/iris.csv": "1,2",
}
EXPECTED: dict[str, tuple[str, dict[str, Any]]] = {
    "life-cycle": (
        LIFE_CYCLE,
        {
            "status": "Completed",
            "experiment": "pytorch-birds",
            "model": ["run-model-example", "1", "custom_model", 1],
            "got": True,
            "one": ["one/artifacts/outputs/model/model.pt", "weights"],
        },
    ),
    "train-model": (TRAIN_MODEL, {"listed": True, "out": "hello 1,2 gbdt"}),
    "distributed": (
        DISTRIBUTED,
        {
            "mpi": "mpi",
            "nodes": ["Completed", 2, 2],
            "ranks": ["Completed", 1, 2],
            "tensorflow": ["Completed", 1, 1],
        },
    ),
}


@pytest.fixture
def sources(code: Path) -> Path:
    for name, text in SOURCES.items():
        (code / name).parent.mkdir(exist_ok=True)
        (code / name).write_text(text)
    return code


def ran(program: str, folder: Path, home: Path) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    return subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.parametrize("name", EXPECTED)
def test_a_program_of_a_guide(name: str, sources: Path, shared_home: Path) -> None:
    snippet, expected = EXPECTED[name]
    program = f"{CONNECT}\n{snippet}\nimport json\nprint(json.dumps(found))\n"
    done = ran(program, sources, shared_home)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == expected


def test_computes(sources: Path, shared: Allranks, shared_home: Path) -> None:
    program = """
from allranks import MLClient
from allranks.entities import AmlCompute, Compute

client = MLClient()
made = client.compute.begin_create_or_update(Compute(name="two", type="local")).result()
changed = client.begin_create_or_update(Compute(name="two", type="local", max_instances=2))
assert changed.done() and changed.status() == "Succeeded"
print(made.name, made.max_instances, changed.result().max_instances)
print(client.compute.get("two").max_instances, client.compute.get("gpu-cluster").name)
print([each.name for each in client.compute.list() if each.name in ("local", "two")])
client.compute.begin_delete("two").result()
print([each.name for each in client.compute.list() if each.name in ("local", "two")])
v100 = AmlCompute(name="v100", size="STANDARD_NC6s_v3")
print(client.begin_create_or_update(v100).result().name, client.compute.get("v100").name)
"""
    done = ran(program, sources, shared_home)
    assert done.returncode == 0, done.stderr
    told = ["two None 2", "2 local", "['local', 'two']", "['local']", "local local"]
    assert done.stdout.splitlines() == told
    assert "v100" in shared("compute", "map").stdout
    assert shared("compute", "map", "v100=").returncode == 0


def test_one_file_of_a_job(sources: Path, shared_home: Path) -> None:
    program = """
from allranks import AllranksError, Client, Output, command

client = Client()
made = client.jobs.create_or_update(command(
    command="echo a > outputs/a; mkdir outputs/d; echo b > outputs/d/b; echo c > ${{outputs.o}}/c",
    outputs={"o": Output()},
)).wait()
for path in ("outputs/a", "artifacts/outputs/a", "outputs/d", "outputs.o/c", "named-outputs/o/c"):
    print(made.download("got", path=path))
try:
    made.download("got", path="outputs/d/c")
except AllranksError as error:
    print(error.hint.partition(";")[0])
"""
    done = ran(program, sources, shared_home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "got/artifacts/outputs/a",
        "got/artifacts/outputs/a",
        "got/artifacts/outputs/d",
        "got/named-outputs/o/c",
        "got/named-outputs/o/c",
        "it has named-outputs/o/c",
    ]
    left = sorted(each.name for each in (sources / "got").rglob("*") if each.is_file())
    assert left == ["a", "b", "c"]
