"""Programs in the manner of samples for Azure's first SDK (PyTorch, Keras, TensorFlow), with small
scripts and data; they run unmodified."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.support import Allranks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
FILES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
PLACE = "https://azureopendatastorage.blob.core.windows.net/mnist/"

BEGIN = """
import os, shutil
import azureml.core
from azureml.core import Dataset, Environment, Experiment, ScriptRunConfig, Workspace
from azureml.core.compute import AmlCompute, ComputeTarget
from azureml.core.compute_target import ComputeTargetException
from azureml.exceptions import UserErrorException
from azureml.telemetry import set_diagnostics_collection
from azureml.widgets import RunDetails

print("SDK version:", azureml.core.VERSION)
set_diagnostics_collection(send_diagnostics=True)
ws = Workspace.from_config()
print(ws.name, ws.location, ws.subscription_id, ws.resource_group, sep="\\n")
cluster_name = "hd-cluster"
try:
    compute_target = ComputeTarget(workspace=ws, name=cluster_name)
    print("found")
except ComputeTargetException:
    config = AmlCompute.provisioning_configuration(vm_size="Standard_NC6s_v3", max_nodes=4)
    compute_target = ComputeTarget.create(ws, cluster_name, config)
compute_target.wait_for_completion(show_output=True, min_node_count=None, timeout_in_minutes=20)
print(compute_target.get_status().serialize())
assert ws.compute_targets[cluster_name].provisioning_state == "Succeeded"
project_folder = "./project"
os.makedirs(project_folder, exist_ok=True)
shutil.copy("train.py", project_folder)
"""

TRAIN_DISTRIBUTED = """
import argparse, os, torch
import torch.distributed as dist
import torch.distributed.nn  # before the process group: examples/digits/train.py says why
parser = argparse.ArgumentParser()
parser.add_argument("--data-dir"); parser.add_argument("--epochs", type=int)
args = parser.parse_args()
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("gloo")
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(args.epochs):
    optimizer.zero_grad()
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
files = sorted(os.listdir(args.data_dir))
print("Rank %d of %d on %d: Finished Training on %s" % (rank, world_size, local_rank, files))
if rank == 0:
    os.makedirs("outputs", exist_ok=True)
    torch.save(model.state_dict(), "outputs/cifar_net.pt")
del model, optimizer
dist.destroy_process_group()
"""
DISTRIBUTED = """
from azureml.core.runconfig import PyTorchConfiguration
os.makedirs("cifar-10", exist_ok=True)
open("cifar-10/batch_1", "w").write("1")
datastore = ws.get_default_datastore()
dataset = Dataset.File.upload_directory(src_dir="cifar-10", target=(datastore, "cifar-10"))
environment = Environment("torch")
environment.python.user_managed_dependencies = True
src = ScriptRunConfig(
    source_directory=project_folder, script="train.py",
    arguments=["--data-dir", dataset.as_download(), "--epochs", 2],
    compute_target=compute_target, environment=environment,
    distributed_job_config=PyTorchConfiguration(process_count=2, node_count=2),
)
run = Experiment(ws, name="pytorch-distr").submit(src)
print(run)
RunDetails(run).show()
run.wait_for_completion(show_output=True)
print(run.get_file_names())
launched = [
    "python -m torch.distributed.run --nproc_per_node 1 --nnodes 2 --node_rank $NODE_RANK "
    "--master_addr $MASTER_ADDR --master_port $MASTER_PORT train.py --data-dir",
    dataset.as_download(), "--epochs 1",
]
src = ScriptRunConfig(
    source_directory=project_folder, command=launched, compute_target=compute_target,
    environment=environment, distributed_job_config=PyTorchConfiguration(node_count=2),
)
run = Experiment(ws, name="pytorch-distr").submit(src)
run.wait_for_completion(show_output=True)
"""

TRAIN_KERAS = """
import argparse, glob, gzip, os
from azureml.core import Run
parser = argparse.ArgumentParser()
parser.add_argument("--data-folder", type=str, dest="data_folder")
for name in ("--batch-size", "--first-layer-neurons"):
    parser.add_argument(name, type=int, default=10)
parser.add_argument("--learning-rate", type=float)
parser.add_argument("--resume-from")
args = parser.parse_args()
files = glob.glob(os.path.join(args.data_folder, "**/*-ubyte.gz"), recursive=True)
print("read", sorted(gzip.open(each).read().decode() for each in files))
if args.resume_from:
    print("resumed", open(os.path.join(args.resume_from, "model", "model.h5")).read())
    print(os.environ[[e for e in os.environ if e.startswith("AZUREML_DATAREFERENCE_")][0]])
run = Run.get_context()
for epoch in range(3):
    run.log("Accuracy", 1 - 1 / (epoch + args.batch_size))
os.makedirs("./outputs/model", exist_ok=True)
for name in ("model.json", "model.h5"):
    with open("./outputs/model/" + name, "w") as file:
        file.write(name)
"""
KERAS = f"""
from azureml.train.hyperdrive import (
    BanditPolicy, HyperDriveConfig, PrimaryMetricGoal, RandomParameterSampling, choice, loguniform,
)
from azureml.data.datapath import DataPathComputeBinding
files = {FILES}
dataset = Dataset.File.from_files(path=["{PLACE}" + each + "-ubyte.gz" for each in files])
try:
    dataset = Dataset.get_by_name(workspace=ws, name="mnist-dataset")
except UserErrorException:
    dataset = dataset.register(workspace=ws, name="mnist-dataset", create_new_version=True)
print(dataset.to_path())
environment = Environment("keras")
environment.python.user_managed_dependencies = True
environment.docker.enabled = True
environment.docker.base_image = "mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.1-cudnn8-ubuntu20.04"
exp = Experiment(workspace=ws, name="keras-mnist")
args = ["--data-folder", dataset.as_named_input("mnist").as_mount(), "--learning-rate", 0.001]
where = dict(compute_target=compute_target, environment=environment)
src = ScriptRunConfig(source_directory=project_folder, script="train.py", arguments=args, **where)
run = exp.submit(src)
run.wait_for_completion(show_output=True)
os.makedirs("./model", exist_ok=True)
for f in run.get_file_names():
    if f.startswith("outputs/model"):
        run.download_file(name=f, output_file_path=os.path.join("./model", f.split("/")[-1]))

checkpoint = run._get_outputs_datapath()
binding = DataPathComputeBinding(mode="mount")
reference = checkpoint.create_data_reference(datapath_compute_binding=binding)
again = ScriptRunConfig(
    source_directory=project_folder, script="train.py",
    arguments=["--data-folder", dataset.as_mount(), "--resume-from", str(reference)], **where,
)
again.run_config.data_references = {{reference.data_reference_name: reference.to_config()}}
exp.submit(again).wait_for_completion(show_output=True)

ps = RandomParameterSampling({{
    "--batch-size": choice(25, 50), "--first-layer-neurons": choice(10, 50),
    "--learning-rate": loguniform(-6, -1),
}})
src = ScriptRunConfig(
    source_directory=project_folder, script="train.py", arguments=args[:2], **where
)
config = HyperDriveConfig(
    run_config=src, hyperparameter_sampling=ps,
    policy=BanditPolicy(evaluation_interval=2, slack_factor=0.1), resume_child_runs=[],
    primary_metric_name="Accuracy", primary_metric_goal=PrimaryMetricGoal.MAXIMIZE,
    max_total_runs=2, max_concurrent_runs=2,
)
hyperdrive_run = exp.submit(config=config)
RunDetails(hyperdrive_run).show()
hyperdrive_run.wait_for_completion(show_output=True)
assert hyperdrive_run.get_status() == "Completed"
best_run = hyperdrive_run.get_best_run_by_primary_metric()
print("best", best_run.get_details()["runDefinition"]["arguments"])
best_run.register_model(model_name="keras-mlp-mnist", model_path="outputs/model")
print("registered", ws.models["keras-mlp-mnist"].id)
"""


@pytest.mark.torch
def test_distributed_pytorch(allranks: Allranks, code: Path) -> None:
    (code / "train.py").write_text(TRAIN_DISTRIBUTED)
    (code / "submit.py").write_text(BEGIN + DISTRIBUTED)
    done = allranks("python", "submit.py", timeout=400)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        said = f"Rank {rank} of 2 on 0: Finished Training on ['batch_1']"
        assert done.stdout.count(said) == 2
    assert "'outputs/cifar_net.pt'" in done.stdout


def test_keras_and_tensorflow(allranks: Allranks, code: Path, tmp_path: Path) -> None:
    data = tmp_path / "mnist"
    data.mkdir()
    for each in FILES:
        (data / f"{each}-ubyte.gz").write_bytes(gzip.compress(each.encode()))
    assert allranks("data", "map", PLACE, f"{data}/").returncode == 0
    (code / "train.py").write_text(TRAIN_KERAS)
    (code / "submit.py").write_text(BEGIN + KERAS)
    done = allranks("python", "submit.py", timeout=400)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"read {sorted(FILES)}") == 4
    assert "resumed model.h5\n/" in done.stdout
    best = "best ['--data-folder', 'DatasetConsumptionConfig:mnist', '--batch-size', '"
    assert best in done.stdout
    assert "registered keras-mlp-mnist:1" in done.stdout
    assert sorted(each.name for each in (code / "model").iterdir()) == ["model.h5", "model.json"]
