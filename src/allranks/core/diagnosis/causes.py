"""The closed set of failure causes: sentence, fix and consequences of each.

The reference page of causes is generated from the table; a test checks that it is complete.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from allranks.statuses import Blame


class Cause(StrEnum):
    """Why a job failed. UNKNOWN is preferred to a guess."""

    UNKNOWN = "UNKNOWN"

    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    MEMORY_REFUSED = "MEMORY_REFUSED"
    CUDA_OUT_OF_MEMORY = "CUDA_OUT_OF_MEMORY"
    SHARED_MEMORY_FULL = "SHARED_MEMORY_FULL"

    DISK_FULL = "DISK_FULL"
    WRITE_FAILED = "WRITE_FAILED"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    READ_ONLY_DISK = "READ_ONLY_DISK"
    FILE_MISSING = "FILE_MISSING"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    TOO_MANY_OPEN_FILES = "TOO_MANY_OPEN_FILES"
    TOO_MANY_PROCESSES = "TOO_MANY_PROCESSES"
    CHECKPOINT_DAMAGED = "CHECKPOINT_DAMAGED"
    CHECKPOINT_MISMATCH = "CHECKPOINT_MISMATCH"
    CHECKPOINT_REFUSED = "CHECKPOINT_REFUSED"

    BREAKPOINT = "BREAKPOINT"
    NO_INPUT = "NO_INPUT"
    SYNTAX_ERROR = "SYNTAX_ERROR"
    WRONG_PYTHON = "WRONG_PYTHON"
    MODULE_MISSING = "MODULE_MISSING"
    IMPORT_FAILED = "IMPORT_FAILED"
    LIBRARY_MISSING = "LIBRARY_MISSING"
    BAD_ARGUMENT = "BAD_ARGUMENT"
    COMMAND_NOT_FOUND = "COMMAND_NOT_FOUND"
    NOT_EXECUTABLE = "NOT_EXECUTABLE"
    NAN_LOSS = "NAN_LOSS"
    ASSERTION = "ASSERTION"
    SCRIPT_EXCEPTION = "SCRIPT_EXCEPTION"
    MINI_BATCH_FAILED = "MINI_BATCH_FAILED"

    NO_CUDA = "NO_CUDA"
    DRIVER_TOO_OLD = "DRIVER_TOO_OLD"
    NO_KERNEL_IMAGE = "NO_KERNEL_IMAGE"
    DEVICE_ASSERT = "DEVICE_ASSERT"
    ILLEGAL_GPU_ACCESS = "ILLEGAL_GPU_ACCESS"
    GPU_FAULT = "GPU_FAULT"
    BACKEND_MISSING = "BACKEND_MISSING"
    NCCL_ERROR = "NCCL_ERROR"

    PORT_TAKEN = "PORT_TAKEN"
    PORT_CONFLICT = "PORT_CONFLICT"
    RENDEZVOUS_TIMEOUT = "RENDEZVOUS_TIMEOUT"
    COLLECTIVE_TIMEOUT = "COLLECTIVE_TIMEOUT"
    COLLECTIVE_MISMATCH = "COLLECTIVE_MISMATCH"
    PEER_LOST = "PEER_LOST"

    NAME_NOT_RESOLVED = "NAME_NOT_RESOLVED"
    CONNECTION_REFUSED = "CONNECTION_REFUSED"
    NETWORK_UNREACHABLE = "NETWORK_UNREACHABLE"
    TLS_FAILED = "TLS_FAILED"
    ACCESS_DENIED = "ACCESS_DENIED"
    RATE_LIMITED = "RATE_LIMITED"

    SEGMENTATION_FAULT = "SEGMENTATION_FAULT"
    ILLEGAL_INSTRUCTION = "ILLEGAL_INSTRUCTION"
    ARITHMETIC_FAULT = "ARITHMETIC_FAULT"
    BUS_ERROR = "BUS_ERROR"
    ABORTED = "ABORTED"
    ABORTED_AT_EXIT = "ABORTED_AT_EXIT"
    KILLED = "KILLED"
    TERMINATED = "TERMINATED"

    SETUP_FAILED = "SETUP_FAILED"
    OUTPUTS_LOST = "OUTPUTS_LOST"
    NODE_LOST = "NODE_LOST"
    PREEMPTED = "PREEMPTED"
    TIME_LIMIT = "TIME_LIMIT"
    NO_PROGRESS = "NO_PROGRESS"
    HANG = "HANG"
    GANG_REFUSED = "GANG_REFUSED"
    PLATFORM_ERROR = "PLATFORM_ERROR"


class CauseInfo(NamedTuple):
    """What follows from a cause.

    ``retryable`` says whether running the same job again may succeed; None if that is not known.
    An ``echo`` may be the consequence of a failure on another rank: any other cause found on
    another rank takes precedence.
    """

    sentence: str
    fix: str
    retryable: bool | None = False
    blame: Blame = Blame.USER
    echo: bool = False


_INFRA = Blame.INFRASTRUCTURE

TABLE: dict[Cause, CauseInfo] = {
    Cause.UNKNOWN: CauseInfo(
        "the cause is unknown", "read the log of the failed rank", None, Blame.NOBODY
    ),
    Cause.OUT_OF_MEMORY: CauseInfo(
        "the node or the job's memory limit ran out of memory, and the kernel killed a process of "
        "the job",
        "use smaller batches, fewer ranks per node or fewer DataLoader workers, or request more "
        "memory",
    ),
    Cause.MEMORY_REFUSED: CauseInfo(
        "the operating system refused a memory allocation",
        "check the size in the message, which may be a mistake; otherwise `ulimit -v` or the "
        "node's memory is too small",
    ),
    Cause.CUDA_OUT_OF_MEMORY: CauseInfo(
        "a GPU ran out of memory",
        "use smaller batches or gradient checkpointing, shard the model over more GPUs, or find "
        "other processes on that GPU with `nvidia-smi`",
    ),
    Cause.SHARED_MEMORY_FULL: CauseInfo(
        "shared memory (/dev/shm) is full",
        "enlarge it (in a container: resources.shm_size; otherwise "
        "`mount -o remount,size=8g /dev/shm`), or use fewer DataLoader workers",
    ),
    Cause.DISK_FULL: CauseInfo(
        "the file system that the job writes to is full",
        "free space there (`allranks gc` removes unreferenced data), or write to another disk",
    ),
    Cause.WRITE_FAILED: CauseInfo(
        "a file could not be written completely; the library hides the reason, usually a full disk",
        "check free space (`df`) and quotas",
        None,
    ),
    Cause.QUOTA_EXCEEDED: CauseInfo(
        "a disk quota is exceeded", "free space there, or have the quota raised"
    ),
    Cause.READ_ONLY_DISK: CauseInfo(
        "the job wrote to a read-only file system",
        "write to an output folder (-o NAME) or ./outputs; inputs are read-only",
    ),
    Cause.FILE_MISSING: CauseInfo(
        "a file or folder was not found",
        "put it into the folder given by --code, where git does not ignore it, on a disk that "
        "every node mounts, or pass it as an input (-i NAME=PATH), which is available on all nodes",
    ),
    Cause.PERMISSION_DENIED: CauseInfo(
        "the job lacks permission for a file or an operation",
        "check the owner and mode (`ls -l`) for the user that runs the job; write outputs to an "
        "output folder (-o NAME)",
    ),
    Cause.TOO_MANY_OPEN_FILES: CauseInfo(
        "a process reached its limit of open files",
        "raise the limit (`ulimit -n 65536` in the command, or on this machine in the shell that "
        "submits), use fewer DataLoader workers, or "
        "call torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    Cause.TOO_MANY_PROCESSES: CauseInfo(
        "the limit of processes or threads was reached",
        "set a lower OMP_NUM_THREADS, start fewer ranks or workers, or raise `ulimit -u`",
    ),
    Cause.CHECKPOINT_DAMAGED: CauseInfo(
        "a file that the script loads is damaged or incomplete",
        "load the previous checkpoint; save to a temporary name and rename it when complete, so "
        "that an interrupted save leaves no partial checkpoint",
    ),
    Cause.CHECKPOINT_MISMATCH: CauseInfo(
        "a checkpoint does not match the model",
        "load it into the model it was saved from; keys that begin with `module.` come from "
        "a model saved inside DDP",
    ),
    Cause.CHECKPOINT_REFUSED: CauseInfo(
        "torch.load refused a file that contains more than weights or is not a checkpoint",
        "check its type (`file NAME`); if you trust it, use torch.load(…, weights_only=False) or "
        "allow its classes with torch.serialization.add_safe_globals",
    ),
    Cause.BREAKPOINT: CauseInfo(
        "the script stopped at a breakpoint (breakpoint(), pdb.set_trace()), and ranks have no "
        "terminal",
        "with `--on-failure hold` allranks job debug JOB opens pdb where it stopped; or take the "
        "breakpoint out",
    ),
    Cause.NO_INPUT: CauseInfo(
        "the script reads its standard input, and ranks have neither a terminal nor input",
        "pass values as arguments, variables (--env) or inputs (-i NAME=PATH)",
    ),
    Cause.SYNTAX_ERROR: CauseInfo(
        "Python cannot parse the code", "fix the line named in the error"
    ),
    Cause.WRONG_PYTHON: CauseInfo(
        "the code needs another version of Python than the one that ran it",
        "request the right version in the environment (-e FILE, for example `python=3.12`)",
    ),
    Cause.MODULE_MISSING: CauseInfo(
        "a Python module is not installed in the job's environment",
        "add it to the environment (-e FILE), or install it there",
    ),
    Cause.IMPORT_FAILED: CauseInfo(
        "a Python module was found, but importing it or a name from it failed",
        "install a version that provides the name; check that none of your files has the name of "
        "a package",
    ),
    Cause.LIBRARY_MISSING: CauseInfo(
        "a shared library is missing or too old",
        "install it on the node, load its module, or add its folder to LD_LIBRARY_PATH",
    ),
    Cause.BAD_ARGUMENT: CauseInfo(
        "the script rejected its command line", "correct the arguments of its command"
    ),
    Cause.COMMAND_NOT_FOUND: CauseInfo(
        "a program was not found", "install it in the job's environment, or give its full path"
    ),
    Cause.NOT_EXECUTABLE: CauseInfo(
        "a program was found but cannot be executed",
        "make it executable (`chmod +x`) and check its first line (#!…), or run it with its "
        "interpreter: `bash run.sh`, `python train.py`",
    ),
    Cause.NAN_LOSS: CauseInfo(
        "the script stopped because the loss or a gradient became NaN or infinite",
        "lower the learning rate, clip gradients, or inspect that batch; "
        "torch.autograd.set_detect_anomaly(True) shows where the NaN appears first",
    ),
    Cause.ASSERTION: CauseInfo(
        "an assertion in the script or a library failed", "check the line named in the error"
    ),
    Cause.SCRIPT_EXCEPTION: CauseInfo(
        "the script ended with an uncaught exception", "check the line named in the error"
    ),
    Cause.MINI_BATCH_FAILED: CauseInfo(
        "`run` of a parallel step or batch deployment failed without an exception",
        "read the lines of its log on mini-batches",
    ),
    Cause.NO_CUDA: CauseInfo(
        "the script needs a GPU, but none is available",
        "request GPUs (--gpus G, resources.gpus_per_instance) on a compute that has them, and "
        "install a CUDA build of the framework in the environment; or run the script on the CPU",
    ),
    Cause.DRIVER_TOO_OLD: CauseInfo(
        "the node's NVIDIA driver is too old for the CUDA version of the framework",
        "install a framework build for an older CUDA, or have the driver updated",
    ),
    Cause.NO_KERNEL_IMAGE: CauseInfo(
        "the framework was built without support for this GPU model",
        "install a build that supports the GPU's compute capability",
    ),
    Cause.DEVICE_ASSERT: CauseInfo(
        "an assertion failed in code on the GPU, usually because of an index out of range, such as "
        "a label not below the number of classes",
        "run once with --env CUDA_LAUNCH_BLOCKING=1 or on the CPU, for a correct traceback",
    ),
    Cause.ILLEGAL_GPU_ACCESS: CauseInfo(
        "code on the GPU made an illegal memory access",
        "run once with --env CUDA_LAUNCH_BLOCKING=1 to see where; check custom kernels first",
        None,
    ),
    Cause.GPU_FAULT: CauseInfo(
        "a GPU has a hardware fault or is no longer reachable",
        "have the node drained and the GPU checked (`nvidia-smi -q`); run on other nodes meanwhile",
        True,
        _INFRA,
    ),
    Cause.BACKEND_MISSING: CauseInfo(
        "PyTorch was built without the communication backend that the script requests",
        "use the gloo backend on CPUs, or nccl with a CUDA build on GPUs",
    ),
    Cause.NCCL_ERROR: CauseInfo(
        "NCCL, the GPU communication library, failed",
        "run once with --env NCCL_DEBUG=WARN: the log line before the error shows the reason",
        None,
        _INFRA,
    ),
    Cause.PORT_TAKEN: CauseInfo(
        "another process already listens on the port that the script uses",
        "do not hard-code ports: use MASTER_PORT, or port 0 for any free port; `ss -ltnp` shows "
        "the process that listens",
        None,
    ),
    Cause.PORT_CONFLICT: CauseInfo(
        "another job on the same host uses the port on which this job's ranks meet",
        "take MASTER_PORT from the environment instead of setting it in the script, or name the "
        "port outside it (--env MASTER_PORT=29500), so that the jobs wait for one another",
        True,
    ),
    Cause.RENDEZVOUS_TIMEOUT: CauseInfo(
        "not all ranks connected to each other in time",
        "check that all ranks reach init_process_group with the same world size and address; "
        "`allranks doctor --job FILE` tests the connections between the nodes",
        None,
        echo=True,
    ),
    Cause.COLLECTIVE_TIMEOUT: CauseInfo(
        "a rank waited in a collective operation longer than its timeout",
        "another rank did not reach it: read the logs of the other ranks and check that all ranks "
        "do the same number of steps; for slow ranks, raise timeout= of init_process_group",
        None,
        echo=True,
    ),
    Cause.COLLECTIVE_MISMATCH: CauseInfo(
        "ranks called different collective operations, or with different shapes",
        "call the same collectives in the same order with the same shapes on all ranks; "
        "--env TORCH_DISTRIBUTED_DEBUG=DETAIL shows which differ",
    ),
    Cause.PEER_LOST: CauseInfo(
        "the connection to another rank broke because that rank ended or the network failed",
        "read the logs of the other ranks and check their nodes; --env NCCL_DEBUG=WARN logs more",
        None,
        echo=True,
    ),
    Cause.NAME_NOT_RESOLVED: CauseInfo(
        "a host name could not be resolved",
        "check that the node has network access; set a proxy if it needs one "
        "(--env https_proxy=…), or download data and models beforehand and pass them as inputs",
        None,
        _INFRA,
    ),
    Cause.CONNECTION_REFUSED: CauseInfo(
        "the script tried to connect to an address where nothing listens",
        "check the address and whether its server is running; `localhost` differs on each node",
        None,
        echo=True,
    ),
    Cause.NETWORK_UNREACHABLE: CauseInfo(
        "a network address could not be reached",
        "check that the node has a route to it; set a proxy if it needs one (--env https_proxy=…)",
        None,
        _INFRA,
    ),
    Cause.TLS_FAILED: CauseInfo(
        "a TLS connection failed because the certificate is not trusted or not valid",
        "behind your own proxy, set --env SSL_CERT_FILE=… and REQUESTS_CA_BUNDLE=… to its "
        "certificate; check the node's clock",
    ),
    Cause.ACCESS_DENIED: CauseInfo(
        "a server denied access: the token is missing, invalid or lacks permission",
        "pass your token to the job (`--env HF_TOKEN` takes it from your shell), and accept the "
        "terms of gated models",
    ),
    Cause.RATE_LIMITED: CauseInfo(
        "a server refused because of too many requests",
        "download once as an input instead of in every rank, or retry later",
        True,
        _INFRA,
    ),
    Cause.SEGMENTATION_FAULT: CauseInfo(
        "native code accessed invalid memory (segmentation fault)",
        "--env PYTHONFAULTHANDLER=1 shows where; check extensions built for other versions of "
        "Python, torch or NumPy",
        None,
    ),
    Cause.ILLEGAL_INSTRUCTION: CauseInfo(
        "native code used an instruction that this CPU does not support",
        "install a build for this CPU: binaries built with -march=native do not run on older CPUs",
    ),
    Cause.ARITHMETIC_FAULT: CauseInfo(
        "native code made an arithmetic error, such as an integer division by zero",
        "--env PYTHONFAULTHANDLER=1 shows where",
    ),
    Cause.BUS_ERROR: CauseInfo(
        "native code accessed memory whose file was truncated, or for which a disk or /dev/shm had "
        "no space",
        "check free space in /dev/shm and on the disks (`df`), and memory-mapped files that "
        "another process writes",
        None,
    ),
    Cause.ABORTED: CauseInfo(
        "native code aborted the process (SIGABRT)",
        "read the lines before it; --env PYTHONFAULTHANDLER=1 shows where",
        None,
    ),
    Cause.ABORTED_AT_EXIT: CauseInfo(
        "the script had ended; a thread of native code that still ran then aborted its process "
        "(SIGABRT)",
        "let the script end its threads before it exits; for PyTorch with gloo: import "
        "torch.distributed.nn before init_process_group(), and in the end delete the DDP model, "
        "then call torch.distributed.destroy_process_group()",
        True,
    ),
    Cause.KILLED: CauseInfo(
        "a process was killed with SIGKILL, from outside or by the job itself; there is no "
        "evidence for or against the out-of-memory killer",
        "check `dmesg -T` on the node for the kernel's out-of-memory killer; otherwise find out "
        "who sent the signal",
        None,
    ),
    Cause.TERMINATED: CauseInfo(
        "a process was ended by SIGTERM, SIGINT or SIGHUP, which allranks did not send",
        "find out who sent it: a person, a supervisor, a limit of the node or the job itself",
        None,
        _INFRA,
    ),
    Cause.SETUP_FAILED: CauseInfo("a node could not prepare the job", "fix what the error names"),
    Cause.OUTPUTS_LOST: CauseInfo(
        "the ranks succeeded, but not everything that they wrote could be saved",
        "fix what the error names; what was saved is kept",
        None,
        _INFRA,
    ),
    Cause.NODE_LOST: CauseInfo(
        "a node was lost", "--max-attempts 2 or more restarts the job automatically", True, _INFRA
    ),
    Cause.PREEMPTED: CauseInfo(
        "the job was preempted: the cluster, or somebody, took its nodes away",
        "--max-attempts 2 or more restarts the job automatically",
        True,
        _INFRA,
    ),
    Cause.TIME_LIMIT: CauseInfo(
        "the job exceeded its time limit",
        "raise limits.timeout (--timeout SECONDS), or the time limit of the compute",
    ),
    Cause.NO_PROGRESS: CauseInfo(
        "attempts reached the time limit of the compute again and again without progress",
        "raise that limit, or save checkpoints to ALLRANKS_STATE_DIR within it",
        False,
    ),
    Cause.HANG: CauseInfo(
        "the ranks made no progress", "the recorded stacks show where each rank waits", None
    ),
    Cause.GANG_REFUSED: CauseInfo(
        "the compute rejected the job",
        "change what the message names: request less, or choose another --compute",
    ),
    Cause.PLATFORM_ERROR: CauseInfo(
        "allranks itself failed on a node",
        "this is a bug in allranks: please report it with the job's events",
        None,
        Blame.PLATFORM,
    ),
}
