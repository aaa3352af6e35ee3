"""The keys of a command job, and words that others share."""

from __future__ import annotations

from collections.abc import Mapping

NO_EFFECT = "Kept in the record and shown. It has no effect, which is noted."

TAGS = "Tags, as text by name."

PROPERTIES = "Properties, as text by name. Kept and shown."

DESCRIPTION = "A text for people."

VERSION = "The version. The next number if left out."
JOB: Mapping[str, Mapping[str, str]] = {
    "JobKeys": {
        "schema_": "The URL of Azure ML's schema. It tells the job's type if `type` is absent.",
        "name": "The job's name, which is used once. One is made up if left out.",
        "display_name": "A name to show. It need not be unique.",
        "description": DESCRIPTION,
        "experiment_name": "The experiment that the job belongs to. The name of the code folder "
        "if left out.",
        "tags": TAGS,
        "properties": PROPERTIES,
        "compute": "The compute that runs the job. The default compute if left out.",
        "inputs": "The job's inputs by name: data, or a number, a text or a truth value.",
        "outputs": "The job's outputs by name.",
        "identity": f"The identity that the job acts under. {NO_EFFECT}",
        "queue_settings": "Tier and priority of the job.",
    },
    "RankKeys": {
        "environment": "The environment of the ranks: `azureml:NAME:VERSION`, `current`, or an "
        "environment written out. `current` if left out.",
        "environment_variables": "Variables of each rank. Values may use `${{inputs.x}}`. They win "
        "over the variables that allranks sets.",
        "resources": "What the job asks of its compute.",
        "distribution": "How many ranks each node runs and how they find each other.",
        "metrics": "Metrics to read from what ranks print, by name: a regular expression with one "
        "group, or a mapping.",
        "keep_work": "How much of the working folder each node keeps: a size such as `50g`, `all` "
        "or `none`. 10 GB if left out.",
        "warm": "Python modules that ranks find imported: they are forked from a process that has.",
        "retry": "How often the job may start and after which failures it starts again.",
        "hang_timeout": "Seconds without progress of any rank after which the job counts as hung. "
        "Off if left out.",
        "flight_recorder": "Whether torch records its last collectives, so that a hang names the "
        "rank that has not called one. On if left out; `false` turns it off.",
        "on_failure": "What happens when a rank fails: the attempt stays as it is, for "
        "`allranks job debug`. It ends at once if left out.",
    },
    "CommandKeys": {
        "command": "The command that each rank runs, by bash. It may use `${{inputs.x}}`, "
        "`${{outputs.y}}`, `${{name}}` and `$[[…]]`.",
        "code": "The folder, file or Git repository with the code. Relative paths start at the "
        "folder of the job file.",
    },
    "CommandJob": {
        "type": "The type of the job.",
        "session": "Keeps the job's nodes for `job shell` and for other jobs, and ends it if "
        "nobody uses it: see `allranks dev`.",
        "inside": "The session on whose nodes the job runs at once: in its folder unless the job "
        "has code, and in its environment unless it names one.",
        "limits": "Time limits.",
        "services": "Services beside the ranks by name: `jupyter_lab`, `vs_code`, "
        "`tensor_board`, or a `command`. They end with the ranks.",
        "parent_job_name": "The name of the job that this one belongs to. Kept in the record.",
        "search_space": "The values of a sweep's parameters, in its trials. Set by the sweep.",
        "state": "The name of a state folder, which later jobs of that name find again.",
    },
    "Input": {
        "type": "What the input is.",
        "path": "Where the data is: a path, a URI, a datastore path, a data asset, a model or the "
        "output of a job.",
        "mode": "How ranks get the data. `direct` gives them the URI. `stream` gives them a URL on "
        "the node that serves the files.",
        "datastore": f"Azure ML's key. {NO_EFFECT}",
        "unpack": "Whether archives are unpacked.",
        "sharded": "Whether each node gets its share of the files instead of all of them.",
    },
    "Output": {
        "type": "What the output is.",
        "path": "Where the data goes. The job's own record if left out.",
        "mode": "How the data gets there. `direct` gives ranks the URI.",
        "name": "The name of the data asset that the output becomes when the job has completed.",
        "version": "The version of that data asset. The next number if left out.",
    },
    "Metric": {
        "pattern": "A regular expression with a group around the number. `builtin` stands for the "
        "patterns that are known by the metric's name.",
        "rank": "The rank whose output is read, or `all`.",
    },
    "OnFailure": {
        "hold": "The seconds for which the failed attempt stays as it is, unless it is released "
        "before, or a time limit ends it.",
    },
    "Session": {
        "idle_timeout": "The seconds after which it ends if nobody uses it: no shell, program, "
        "connection or job. At least 5; an hour if left out, never with null.",
        "timeout": "The seconds that its command takes. It ends with that; this says so before.",
    },
    "_PerNode": {
        "process_count_per_instance": "The number of ranks on each node.",
    },
    "NoDistribution": {"type": "Independent copies of the command, without rendezvous variables."},
    "PyTorchDistribution": {"type": "torch.distributed: the variables that torchrun sets."},
    "MpiDistribution": {
        "type": "The ranks run under mpirun.",
        "implementation": "`openmpi`, `mpich`, `intel` or the path of an mpirun. The first mpirun "
        "on PATH if left out.",
    },
    "DeepSpeedDistribution": {"type": "DeepSpeed: the variables of PyTorch, and its launcher."},
    "HorovodDistribution": {"type": "Horovod with gloo and a rendezvous store for each job."},
    "JaxDistribution": {"type": "JAX: the variables that `jax.distributed.initialize()` reads."},
    "TensorFlowDistribution": {
        "type": "TensorFlow: TF_CONFIG for each task.",
        "worker_count": "The number of workers. One for each instance if left out.",
        "parameter_server_count": "The number of parameter servers.",
        "chief_count": "1 for a task `chief` on the first instance, as parameter servers of "
        "TensorFlow 2 need it.",
        "evaluator_count": "The number of tasks `evaluator`.",
    },
    "RayDistribution": {
        "type": "A Ray cluster over the job's nodes. The command runs on the head only.",
        "port": "The port of the head. A free one if left out.",
        "address": "Azure ML's key. This version refuses it.",
        "include_dashboard": "Azure ML's key. This version refuses it.",
        "dashboard_port": "Azure ML's key. This version refuses it.",
        "head_node_additional_args": "More options of `ray start` on the head.",
        "worker_node_additional_args": "More options of `ray start` on the other nodes.",
    },
    "Environment": {
        "name": "The environment's name. A registered environment needs one.",
        "version": VERSION,
        "description": DESCRIPTION,
        "tags": TAGS,
        "image": "A container image. Without a container engine, `allranks environment map` says "
        "which environment stands for it.",
        "conda_file": "A conda file: its path, or its content.",
        "build": "A folder with a Dockerfile to build the image from.",
        "os_type": f"Azure ML's key. {NO_EFFECT}",
        "datastore": f"Azure ML's key. {NO_EFFECT}",
        "inference_config": f"Azure ML's key. {NO_EFFECT}",
        "pip": "Requirements, as in a requirements file.",
        "requirements": "The path of a requirements file.",
        "constraints": "Version constraints, as in a constraints file of pip.",
        "python": "The version of Python, such as `3.11`. Quote it in YAML.",
        "torch_backend": "Which builds of PyTorch uv takes: `cpu`, `cu128`, or `auto`: the node's "
        "GPUs decide, also whether `tensorflow[and-cuda]` installs CUDA.",
        "nearest_python": "Whether the nearest Python of the node, with the nearest packages, "
        "serves where it lacks `python`.",
        "allow_builds": "Whether packages without a wheel may be built from source however long "
        "that takes. Without it, quick builds only.",
    },
    "BuildContext": {
        "path": "The folder that the image is built from.",
        "dockerfile_path": "The Dockerfile within that folder. `Dockerfile` if left out.",
        "without_containers": "The environment for computes without containers; read from the "
        "Dockerfile if left out.",
    },
    "Resources": {
        "instance_count": "The number of nodes.",
        "instance_type": "Azure's or AWS's name of a machine size. It tells how many GPUs each "
        "node gets.",
        "max_instance_count": f"Azure ML's key. {NO_EFFECT}",
        "shm_size": "The size of `/dev/shm` in the job's container, such as `8g`.",
        "docker_args": "More options for the container engine.",
        "locations": f"Azure ML's key. {NO_EFFECT}",
        "properties": "The options of an engine by its name, such as "
        "`{slurm: {partition: debug}}`. They win over the compute's.",
        "gpus_per_instance": "The number of GPUs of each node. 0 for none. One for each rank, as "
        "far as the nodes have them, if left out.",
    },
    "Limits": {
        "timeout": "The seconds that the job may run, all attempts together.",
        "grace": "The seconds between SIGTERM and SIGKILL on cancel, preemption and time limit. "
        "The server's if left out.",
    },
    "QueueSettings": {
        "job_tier": "The tier. A `spot` job may be preempted.",
        "priority": f"The priority. {NO_EFFECT}",
    },
    "Retry": {
        "max_attempts": "How often the job may start. Failures of the script and hangs count.",
        "on": "The causes after which the job starts again.",
        "budgets": "The number of restarts after each other cause.",
        "fresh_work": "Whether each attempt, and a restart, starts with a clean working folder "
        "instead of the files that earlier attempts left there.",
        "no_progress": "What follows three attempts in a row that reach the time limit of the "
        "compute and leave no new file and no metric step beyond the best so far: `fail` ends the "
        "job, `warn` only notes it, `ignore` does not look.",
    },
    "Budgets": {
        "node_lost": "Restarts after a lost node. 10 if left out.",
        "preempted": "Restarts after a preemption. 100 if left out.",
        "hang": "Restarts after a hang. As many as `max_attempts` leaves if left out.",
        "setup": "Restarts after a node could not prepare the job. 3 if left out.",
    },
    "JobService": {
        "type": "The type of the service.",
        "command": "allranks only: what starts it, in bash, beside the ranks. It listens on "
        "`$PORT` of 127.0.0.1.",
        "port": "The port that it listens on; any free one if left out.",
        "nodes": "`all`, or the first node if left out.",
        "properties": PROPERTIES,
    },
    "SshJobService": {
        "type": "SSH: `allranks job ssh-config` leads there, with or without this service.",
        "ssh_public_keys": "The public keys that may log in.",
    },
    "JupyterLabJobService": {"type": "JupyterLab, if the environment has it."},
    "TensorBoardJobService": {
        "type": "TensorBoard, if the environment has it.",
        "log_dir": "The folder with the logs, in the working folder. `logs` if left out.",
    },
    "VsCodeJobService": {"type": "code-server or openvscode-server, if the environment has one."},
    "ManagedIdentityConfiguration": {
        "type": "A managed identity of Azure.",
        "client_id": "The identity's client ID.",
        "object_id": "The identity's object ID.",
        "msi_resource_id": "The identity's resource ID.",
    },
    "UserIdentityConfiguration": {"type": "The identity of the user who submits the job."},
    "AmlTokenConfiguration": {"type": "A token of the workspace."},
}
