"""The environment variables that users may set and those that ranks find. Data for the reference.

A test checks that it lists exactly the names of ``ALLRANKS_*`` in the code.
"""

from __future__ import annotations

from collections.abc import Mapping

USER: Mapping[str, str] = {
    "ALLRANKS_HOME": "The folder of database, logs, environments and token. `~/.allranks` if "
    "unset. Each has its own context in use.",
    "ALLRANKS_SERVER": "The URL of a server. If unset, that of the context in use; else the server "
    "of the home is found or started.",
    "ALLRANKS_TOKEN": "The token for that server. If unset, that of `allranks login`.",
    "ALLRANKS_FINGERPRINT": "The fingerprint of that server's TLS certificate, likewise.",
    "ALLRANKS_CONTEXT": "The context to use instead of that of `allranks context use`; `local` is "
    "this machine's own server.",
    "ALLRANKS_DATABASE": "The URL of a PostgreSQL database for a new home. SQLite if unset.",
    "ALLRANKS_HOST_NAMES": "Names of the server, with commas, under which it answers besides its "
    "host name; for the server.",
    "ALLRANKS_SERVER_ADDRESS": "The `server_address` of computes that set none; for the server.",
    "ALLRANKS_MAX_RANKS": "The `max_ranks` of local computes that set none; for the server.",
    "ALLRANKS_WARM_PREFETCH": "`1`: at its start, import again what the last job with `warm` "
    "imported on this machine; for the server.",
    "ALLRANKS_PASS_ENV": "Names of variables to pass to every job, such as `HF_*,WANDB_*`.",
    "ALLRANKS_KEEP_WORK": "The `keep_work` of jobs that do not set it.",
    "ALLRANKS_WORK_LIMIT": "How much of a node's working folder the server holds for the next "
    "attempt on another node, and a restart takes along: `10g` if unset; for the server.",
    "ALLRANKS_MLFLOW_PYTHON": "A Python that has MLflow, if the server's own has none.",
    "ALLRANKS_HTTPS_USERNAME": "The user name that `datastore create --credentials-from-env` "
    "takes for an `https` datastore.",
    "ALLRANKS_HTTPS_PASSWORD": "The password that it takes.",
}

# For the server, in seconds. Defaults are in ``settings.Clocks``.
CLOCKS: Mapping[str, str] = {
    "ALLRANKS_TICK": "The time between two runs of the server's loop.",
    "ALLRANKS_LEASE": "How long an agent may be silent before its node is lost.",
    "ALLRANKS_PATIENCE": "How long an agent with nothing left to run waits for a server.",
    "ALLRANKS_UNSENT": "The same of a pod that has run and shares no disk with the server: with it "
    "goes what it has not sent. A job that is done waits so long for space on a full disk, too, "
    "and for a server that has not all of its state.",
    "ALLRANKS_GRACE": "The time between SIGTERM and SIGKILL on cancel, preemption and time limit.",
    "ALLRANKS_PEER_GRACE": "The time between SIGTERM and SIGKILL when another rank has failed.",
    "ALLRANKS_HELLO": "How long the agents of a launch may take to call after the first one.",
    "ALLRANKS_LOOK": "The time between two scans of a state folder.",
    "ALLRANKS_PACE": "The time between two looks at who holds the others; three name it.",
    "ALLRANKS_IDLE": "How long nodes that a sweep or a pipeline keeps may wait for its next job.",
}

RANK: Mapping[str, Mapping[str, str]] = {
    "Every job": {
        "ALLRANKS_JOB": "The job's name.",
        "ALLRANKS_ATTEMPT": "The number of the attempt, from 1.",
        "ALLRANKS_NODE_RANK": "The number of the node, from 0.",
        "ALLRANKS_NODES": "All nodes as JSON: a list of `{node, address, host}`.",
        "ALLRANKS_HOSTFILE": "A file with a line `ADDRESS slots=P` for each node.",
        "ALLRANKS_STATE_DIR": "A folder that every attempt finds again, and with "
        "`state: NAME` every later job with that state.",
        "ALLRANKS_PREVIOUS_REASON": "The reason why the previous attempt ended, such as "
        "`NODE_LOST`. Empty in the first.",
        "ALLRANKS_CONTINUES": "The job whose files this one goes on from, after `job restart` and "
        "`run --from`. Empty if there is none, as after `job restart --fresh`. How that job ended "
        "is the previous reason of the first attempt.",
        "ALLRANKS_DEADLINE": "When the job's time is over, in seconds since the epoch: "
        "`limits.timeout` from the first start of ranks, or the cluster's limit, whichever comes "
        "first. Unset without a limit.",
        "ALLRANKS_DEADLINE_FILE": "A file that exists once SIGTERM is sent. It says when SIGKILL "
        "follows, in seconds since the epoch, and why: `1795330837.962 PREEMPTED`.",
        "ALLRANKS_METRICS_FILE": 'A file of the node. A line `{"points": [[NAME, RANK, STEP, '
        "SECONDS SINCE THE EPOCH, VALUE]]}` appended to it is recorded as metric points; "
        '`{"tags": {KEY: VALUE}}` tags the job, `{"parameters": {NAME: VALUE}}` records what it '
        "was run with.",
        "ALLRANKS_GRACE": "The seconds between SIGTERM and SIGKILL on cancel, preemption and time "
        "limit.",
        "WANDB_MODE": "`offline`, unless the job sets it or a key, or `wandb login` left one.",
        "TRACKIO_DIR": "`trackio` in the working folder.",
        "OMP_NUM_THREADS": "The node's CPUs divided among its ranks.",
        "PYTHONUNBUFFERED": "1, so that output appears as it happens.",
        "NO_PROXY": "With a proxy and MLflow or streamed inputs: the node's own address is added. "
        "The same for `no_proxy`.",
        "PYTHONPATH": "A folder of allranks before your own, by which `allranks job stacks` finds "
        "where each Python is. Its `sitecustomize.py` runs before the environment's own, and "
        "answers imports of `azureml.core`.",
        "ALLRANKS_IMPORTS": "Only if packages in development came along: a file that lists the "
        "folders of the submitter's whose copies each Python imports, each before its copy, with "
        "NUL between them.",
        "ALLRANKS_IMAGE_PROGRAM": "Only in replicas that start what their image does: a line of "
        "shell that does it, from the image's entry point, command and working folder.",
        "CUDA_VISIBLE_DEVICES": "The GPUs that the job has on the node, the same for each rank: "
        "scripts choose by `LOCAL_RANK`. Empty if it has none.",
    },
    "Azure ML": {
        "AZUREML_RUN_ID": "The job's name.",
        "AZUREML_ROOT_RUN_ID": "The job's name; of a trial or a step, its sweep's or pipeline's.",
        "AZUREML_EXPERIMENT_NAME": "The experiment.",
        "AZUREML_NODE_COUNT": "The number of nodes.",
        "AZUREML_CR_NODE_RANK": "The number of the node, from 0.",
        "AZUREML_CR_EXECUTION_WORKING_DIR_PATH": "The working folder.",
        "AZUREML_PROCESS_NAME": "`rank_N`, or `main` if there is one rank.",
        "AZ_BATCH_NODE_LIST": "The nodes' addresses, separated by `;`.",
        "AZ_BATCH_HOST_LIST": "The nodes' addresses, separated by `,`.",
        "AZ_BATCH_MASTER_NODE": "Address and port of the first node.",
        "AZUREML_PARAMETER_x": "The value of the literal input `x`.",
        "AZUREML_SWEEP_x": "The value of the parameter `x` of a sweep's search space.",
        "AZURE_ML_INPUT_x": "The path or URI of the input `x`. An input `my-x` is also "
        "`AZURE_ML_INPUT_my_x`, for shells.",
        "AZURE_ML_OUTPUT_x": "The path or URI of the output `x`.",
    },
    "pytorch and deepspeed": {
        "MASTER_ADDR": "The address of the first node.",
        "MASTER_PORT": "A port of the first node that is free when the ranks start.",
        "WORLD_SIZE": "The number of ranks.",
        "RANK": "The number of the rank, from 0.",
        "LOCAL_RANK": "The number of the rank on its node, from 0.",
        "LOCAL_WORLD_SIZE": "The number of ranks on the node.",
        "NODE_RANK": "The number of the node, from 0.",
        "GROUP_RANK": "The number of the node, from 0.",
        "PET_NNODES": "torchrun's `--nnodes`.",
        "PET_NPROC_PER_NODE": "torchrun's `--nproc-per-node`.",
        "PET_NODE_RANK": "torchrun's `--node-rank`.",
        "PET_MASTER_ADDR": "torchrun's `--master-addr`.",
        "PET_MASTER_PORT": "torchrun's `--master-port`.",
        "ALLRANKS_STAND_INS": "With deepspeed: the folder of the `ssh` and `pdsh` that its "
        "launcher uses.",
    },
    "tensorflow": {
        "TF_CONFIG": "`cluster` (worker, ps, chief, evaluator), `task` and `environment`, as JSON.",
        "AZ_BATCHAI_TASK_TYPE": "The type of the task: `worker`, `ps`, `chief` or `evaluator`.",
        "AZ_BATCHAI_TASK_INDEX": "The number of the task among those of its type.",
    },
    "mpi": {
        "OMPI_COMM_WORLD_*": "Open MPI's own variables. MPICH and Intel MPI set `PMI_*` and "
        "`MPI_LOCALRANKID`. There is no `RANK` and no `MASTER_*`.",
        "ALLRANKS_LEAVING": "A file that each Python runs at its start, so that a failing rank "
        "ends the others.",
    },
    "horovod": {
        "HOROVOD_RANK": "The number of the rank.",
        "HOROVOD_SIZE": "The number of ranks.",
        "HOROVOD_LOCAL_RANK": "The number of the rank on its node.",
        "HOROVOD_LOCAL_SIZE": "The number of ranks on the node.",
        "HOROVOD_CROSS_RANK": "The number of the node.",
        "HOROVOD_CROSS_SIZE": "The number of nodes.",
        "HOROVOD_HOSTNAME": "The node's address.",
        "HOROVOD_CONTROLLER": "`gloo`.",
        "HOROVOD_CPU_OPERATIONS": "`gloo`.",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "The address of the rendezvous store.",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "The port of the rendezvous store.",
    },
    "jax": {
        "JAX_COORDINATOR_ADDRESS": "Address and port of the coordinator.",
        "JAX_COORDINATOR_PORT": "The port of the coordinator.",
        "JAX_NUM_PROCESSES": "The number of ranks.",
        "JAX_PROCESS_ID": "The number of the rank.",
        "OMPI_MCA_orte_hnp_uri": "The coordinator, in the form that JAX reads from Open MPI.",
        "OMPI_COMM_WORLD_SIZE": "The number of ranks, for JAX.",
        "OMPI_COMM_WORLD_RANK": "The number of the rank, for JAX.",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "The number of ranks on the node, for JAX.",
        "OMPI_COMM_WORLD_LOCAL_RANK": "The number of the rank on its node, for JAX.",
    },
    "Ray": {"RAY_ADDRESS": "Address and port of the Ray cluster."},
    "SageMaker": {
        "SM_HOSTS": "The nodes' addresses, as JSON.",
        "SM_CURRENT_HOST": "The node's address.",
        "SM_NUM_CPUS": "The number of CPUs of the node.",
        "SM_NUM_GPUS": "The number of GPUs that the job has on the node.",
        "SM_CHANNELS": "The names of the inputs that are data, as JSON.",
        "SM_CHANNEL_X": "The path of the input `x`.",
        "SM_MODEL_DIR": "A folder of the job's record: `model/…` among its files.",
        "SM_OUTPUT_DATA_DIR": "A folder of the job's record: `data/…` among its files.",
        "SM_HPS": "The literal inputs, as JSON.",
        "SM_HP_X": "The value of the literal input `x`.",
        "SM_RESOURCE_CONFIG": "Nodes, current node and network interface, as JSON.",
        "SM_NETWORK_INTERFACE_NAME": "The network interface that reaches the other nodes.",
    },
    "simple-sagemaker": {
        "SSM_NUM_NODES": "The number of nodes.",
        "SSM_HOST_RANK": "The number of the node, from 0.",
        "SSM_OUTPUT": "The same as SM_OUTPUT_DATA_DIR.",
        "SSM_TENSORBOARD_DIR": "`artifacts/tensorboard` of the job's record, which "
        "`allranks job tensorboard` shows.",
        "SSM_STATE": "The same as ALLRANKS_STATE_DIR.",
        "SSM_INSTANCE_STATE": "The part of the state folder that is the node's own.",
        "SSM_CHANNEL_X": "The path of the input `x`.",
    },
    "MLflow": {
        "MLFLOW_TRACKING_URI": "The tracking server, where the server has MLflow.",
        "MLFLOW_TRACKING_TOKEN": "The token for it, valid for this job.",
        "MLFLOW_RUN_ID": "The run of the job.",
        "MLFLOW_EXPERIMENT_NAME": "The experiment of the job.",
    },
    "Networks": {
        "NCCL_SOCKET_IFNAME": "The interface that reaches the other nodes; `=eth0` where another "
        "interface's name begins with `eth0`, because NCCL takes a prefix.",
        "GLOO_SOCKET_IFNAME": "The same for gloo.",
        "TP_SOCKET_IFNAME": "The same for torch.distributed.rpc.",
        "HOROVOD_GLOO_IFACE": "The same for Horovod's gloo.",
        "NCCL_IB_HCA": "The active InfiniBand or RoCE ports, such as `=mlx5_0:1,mlx5_1:1`.",
        "UCX_NET_DEVICES": "The InfiniBand ports and the interface.",
        "OMPI_MCA_btl_tcp_if_include": "For Open MPI's messages: the network "
        "(`10.1.0.0/16`) if all nodes are in it, else the interface.",
        "OMPI_MCA_oob_tcp_if_include": "The interface of Open MPI 4's daemons.",
        "PRTE_MCA_prte_if_include": "The interface of Open MPI 5's daemons.",
        "OMPI_MCA_btl": "`^openib`, where there is InfiniBand: UCX drives its ports.",
        "HYDRA_IFACE": "The interface of MPICH's mpirun.",
        "I_MPI_HYDRA_IFACE": "The interface of Intel MPI's mpirun.",
        "FI_TCP_IFACE": "The interface of libfabric's TCP.",
    },
}

# Internal variables. They may change.
INTERNAL = frozenset(
    {
        "ALLRANKS_AGENT_",
        "ALLRANKS_LIMITS",
        "ALLRANKS_AGENT_ADDRESS",
        "ALLRANKS_AGENT_BUNDLE",
        "ALLRANKS_AGENT_CACHE",
        "ALLRANKS_AGENT_CODE",
        "ALLRANKS_AGENT_CPUS",
        "ALLRANKS_AGENT_DIR",
        "ALLRANKS_AGENT_END",
        "ALLRANKS_AGENT_FINGERPRINT",
        "ALLRANKS_AGENT_GUEST",
        "ALLRANKS_AGENT_HOME",
        "ALLRANKS_AGENT_LAUNCH",
        "ALLRANKS_AGENT_LOCK",
        "ALLRANKS_AGENT_MEMORY",
        "ALLRANKS_AGENT_NODE",
        "ALLRANKS_AGENT_OF",
        "ALLRANKS_AGENT_OWN_DISK",
        "ALLRANKS_AGENT_PATIENCE",
        "ALLRANKS_AGENT_PLACE",
        "ALLRANKS_AGENT_PODS",
        "ALLRANKS_AGENT_PYTHON",
        "ALLRANKS_AGENT_SITE",
        "ALLRANKS_AGENT_TOKEN",
        "ALLRANKS_AGENT_URL",
        "ALLRANKS_CHANNEL",
        "ALLRANKS_FORK_SERVER",
        "ALLRANKS_ENDPOINT",
        "ALLRANKS_GANG",
        "ALLRANKS_HOLD",
        "ALLRANKS_HOLD_OWNER",
        "ALLRANKS_IMAGE",
        "ALLRANKS_MLFLOW",
        "ALLRANKS_MODEL_NAME",
        "ALLRANKS_PYTHON",
        "ALLRANKS_RANKS",
        "ALLRANKS_RAY_GANG",
        "ALLRANKS_RAY_SECRETS",
        "ALLRANKS_REMOTE_SECRET",
        "ALLRANKS_SERVE_SOCKET",
        "ALLRANKS_SITE_FILES",
        "ALLRANKS_STEP_SECRET",
        "ALLRANKS_SYS_CLASS",
        "ALLRANKS_UI",
        "ALLRANKS_WARM",
    }
)
