"""The closed set of causes that a failure is explained by, and all that follows from each.

Total: a test holds the table complete, and the reference (docs/generate.py) prints it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from allranks.statuses import Blame


class Cause(StrEnum):
    """Why a job failed, as closely as can be said without ever being wrong."""

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

    NO_CUDA = "NO_CUDA"
    DRIVER_TOO_OLD = "DRIVER_TOO_OLD"
    NO_KERNEL_IMAGE = "NO_KERNEL_IMAGE"
    DEVICE_ASSERT = "DEVICE_ASSERT"
    ILLEGAL_GPU_ACCESS = "ILLEGAL_GPU_ACCESS"
    GPU_FAULT = "GPU_FAULT"
    BACKEND_MISSING = "BACKEND_MISSING"
    NCCL_ERROR = "NCCL_ERROR"

    PORT_TAKEN = "PORT_TAKEN"
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
    KILLED = "KILLED"
    TERMINATED = "TERMINATED"

    SETUP_FAILED = "SETUP_FAILED"
    OUTPUTS_LOST = "OUTPUTS_LOST"
    NODE_LOST = "NODE_LOST"
    PREEMPTED = "PREEMPTED"
    TIME_LIMIT = "TIME_LIMIT"
    HANG = "HANG"
    GANG_REFUSED = "GANG_REFUSED"
    PLATFORM_ERROR = "PLATFORM_ERROR"


class Told(NamedTuple):
    """What a cause means: one sentence, what to do, and who can. ``retryable``: whether the same
    job may well succeed when it is run again, None where that cannot be said. An ``echo`` may be
    what a failure elsewhere did to this rank: any other cause on another rank beats it."""

    sentence: str
    fix: str
    retryable: bool | None = False
    blame: Blame = Blame.USER
    echo: bool = False


_INFRA = Blame.INFRASTRUCTURE

TABLE: dict[Cause, Told] = {
    Cause.UNKNOWN: Told("the cause is not known", "its log may tell more", None, Blame.NOBODY),
    Cause.OUT_OF_MEMORY: Told(
        "the machine, or the memory limit the job ran under, had no memory left, and a process of "
        "the job was killed for it",
        "use smaller batches, fewer ranks on each node or fewer loader workers, or ask for more "
        "memory",
    ),
    Cause.MEMORY_REFUSED: Told(
        "the system refused a process of the job the memory that it asked for",
        "ask for less at once: the size in the message may be a mistake; else `ulimit -v` on the "
        "node may be too low, or its memory too small",
    ),
    Cause.CUDA_OUT_OF_MEMORY: Told(
        "a GPU had no memory left",
        "use smaller batches or gradient checkpointing, shard the model over more GPUs, or look "
        "with `nvidia-smi` who else uses that GPU",
    ),
    Cause.SHARED_MEMORY_FULL: Told(
        "shared memory (/dev/shm) was full",
        "give it more (in a container resources.shm_size; else "
        "`mount -o remount,size=8g /dev/shm`), or use fewer loader workers",
    ),
    Cause.DISK_FULL: Told(
        "a disk, or another place that the job writes to, was full",
        "make room there (`allranks gc` removes what no job needs), or write to another one",
    ),
    Cause.WRITE_FAILED: Told(
        "a file could not be written to its end, and the library hides why: most often its disk "
        "is full",
        "look at the room there (`df`), and at quotas",
        None,
    ),
    Cause.QUOTA_EXCEEDED: Told(
        "a disk quota was used up", "make room there, or have the quota raised"
    ),
    Cause.READ_ONLY_DISK: Told(
        "the job wrote to a place that is read-only",
        "write to an output folder (-o NAME) or ./outputs; inputs are read-only",
    ),
    Cause.FILE_MISSING: Told(
        "a file or folder was not there",
        "is it in the folder that --code sends along, or on a disk that every node has? An input "
        "(-i NAME=PATH) is there on all nodes",
    ),
    Cause.PERMISSION_DENIED: Told(
        "the job may not read, write or do something that it tried",
        "look who owns it (`ls -l`) and whether the job's user may; outputs belong in an output "
        "folder (-o NAME)",
    ),
    Cause.TOO_MANY_OPEN_FILES: Told(
        "a process had more files open than it may",
        "raise the limit (`ulimit -n 65536` before the command), use fewer loader workers, or "
        "torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    Cause.TOO_MANY_PROCESSES: Told(
        "no more processes or threads could be started",
        "set OMP_NUM_THREADS lower, start fewer ranks or workers, or raise `ulimit -u`",
    ),
    Cause.CHECKPOINT_DAMAGED: Told(
        "a file that the script loads is damaged or only half written",
        "use the one before it; write to another name first and rename it when it is whole, so "
        "that no half one is ever found",
    ),
    Cause.CHECKPOINT_MISMATCH: Told(
        "a checkpoint does not fit the model",
        "load it into the model that it was saved from; keys that begin with `module.` come from "
        "a model saved inside DDP",
    ),
    Cause.CHECKPOINT_REFUSED: Told(
        "torch.load refuses a file: it holds more than weights, or is no checkpoint at all",
        "look at what it is (`file NAME`); torch.load(…, weights_only=False) if you trust it, or "
        "allow its classes by torch.serialization.add_safe_globals",
    ),
    Cause.SYNTAX_ERROR: Told("Python cannot read the code", "mend the line that it names"),
    Cause.WRONG_PYTHON: Told(
        "the code is written for another version of Python than the one that ran it",
        "run it in an environment of the right version (-e FILE may ask for `python=3.12`)",
    ),
    Cause.MODULE_MISSING: Told(
        "a Python module is not installed in the job's environment",
        "install it there, or name it among what the environment asks for (-e FILE)",
    ),
    Cause.IMPORT_FAILED: Told(
        "a Python module is there, but has not got what is imported from it",
        "install the version that has it; a file of yours that is named like a package hides it",
    ),
    Cause.LIBRARY_MISSING: Told(
        "a shared library that native code needs is missing or too old",
        "install it on the node, load its module, or put its folder on LD_LIBRARY_PATH",
    ),
    Cause.BAD_ARGUMENT: Told(
        "the script refused its command line", "mend the arguments after `--`"
    ),
    Cause.COMMAND_NOT_FOUND: Told(
        "a program was not found", "install it in the job's environment, or give its whole path"
    ),
    Cause.NOT_EXECUTABLE: Told(
        "a program is there but cannot be executed",
        "`chmod +x` it and look at its first line (#!…), or start it by its interpreter: "
        "`bash run.sh`, `python train.py`",
    ),
    Cause.NAN_LOSS: Told(
        "the loss or a gradient became NaN or infinite, and the script stopped for it",
        "lower the learning rate, clip gradients, look at that batch; "
        "torch.autograd.set_detect_anomaly(True) shows where it began",
    ),
    Cause.ASSERTION: Told(
        "an assertion of the script or of a library does not hold", "look at the line it names"
    ),
    Cause.SCRIPT_EXCEPTION: Told(
        "an exception that nothing caught ended the script", "look at the line it names"
    ),
    Cause.NO_CUDA: Told(
        "the script wants a GPU and finds none",
        "ask for GPUs (--gpus G, resources.gpus_per_instance) on a compute that has some, and "
        "have a CUDA build of the framework in the environment; or let it run on the CPU",
    ),
    Cause.DRIVER_TOO_OLD: Told(
        "the node's NVIDIA driver is older than the CUDA that the framework was built for",
        "install a build for an older CUDA, or have the driver updated",
    ),
    Cause.NO_KERNEL_IMAGE: Told(
        "the framework's build holds no code for this kind of GPU",
        "install a build that supports the GPU's compute capability",
    ),
    Cause.DEVICE_ASSERT: Told(
        "an assertion failed in code on the GPU: most often an index out of range, as a label "
        "that is not below the number of classes",
        "run it once with --env CUDA_LAUNCH_BLOCKING=1, or on the CPU: then the line is right",
    ),
    Cause.ILLEGAL_GPU_ACCESS: Told(
        "code on the GPU touched memory that is not its own",
        "run it once with --env CUDA_LAUNCH_BLOCKING=1 to see where; suspect custom kernels",
        None,
    ),
    Cause.GPU_FAULT: Told(
        "a GPU is broken or has fallen off its bus",
        "have the node drained and the GPU looked at (`nvidia-smi -q`); run elsewhere meanwhile",
        True,
        _INFRA,
    ),
    Cause.BACKEND_MISSING: Told(
        "PyTorch was built without the backend that the script asks for",
        "use the backend gloo, or nccl with a CUDA build where there are GPUs",
    ),
    Cause.NCCL_ERROR: Told(
        "NCCL, which moves data between GPUs, failed",
        "run it once with --env NCCL_DEBUG=WARN: the line before the error says why",
        None,
        _INFRA,
    ),
    Cause.PORT_TAKEN: Told(
        "another process listens on the port that the script wants",
        "do not fix ports in the script: use MASTER_PORT, or port 0 for any free one; `ss -ltnp` "
        "shows who listens",
        None,
    ),
    Cause.RENDEZVOUS_TIMEOUT: Told(
        "the ranks did not all find one another in time",
        "do all ranks reach init_process_group with the same world size and address? "
        "`allranks doctor --job FILE` tries every way between the nodes",
        None,
        echo=True,
    ),
    Cause.COLLECTIVE_TIMEOUT: Told(
        "a rank waited in a collective operation longer than its timeout",
        "some rank did not get there: look at the logs of the others, and whether all ranks do "
        "the same number of steps; a longer timeout= of init_process_group helps slow ones",
        None,
        echo=True,
    ),
    Cause.COLLECTIVE_MISMATCH: Told(
        "ranks called different collective operations, or with different shapes",
        "all ranks have to call the same ones in the same order on tensors of the same shape; "
        "--env TORCH_DISTRIBUTED_DEBUG=DETAIL names them",
    ),
    Cause.PEER_LOST: Told(
        "the connection to another rank broke: that one ended, or the network between them failed",
        "look at the logs of the other ranks, and whether their nodes are well; NCCL tells more "
        "with --env NCCL_DEBUG=WARN",
        None,
        echo=True,
    ),
    Cause.NAME_NOT_RESOLVED: Told(
        "a host name could not be resolved",
        "has the node a way to the network, or does it need a proxy (--env https_proxy=…)? "
        "Without one, fetch data and models before, as inputs",
        None,
        _INFRA,
    ),
    Cause.CONNECTION_REFUSED: Told(
        "nothing listens at the address that the script tried to connect to",
        "is the address right, and the server there running? `localhost` is each node itself",
        None,
        echo=True,
    ),
    Cause.NETWORK_UNREACHABLE: Told(
        "an address on the network could not be reached",
        "has the node a way there, or does it need a proxy (--env https_proxy=…)?",
        None,
        _INFRA,
    ),
    Cause.TLS_FAILED: Told(
        "a secure connection failed: its certificate is not trusted, or not valid",
        "behind a proxy of your own: --env SSL_CERT_FILE=… and REQUESTS_CA_BUNDLE=… name its "
        "certificate; is the node's clock right?",
    ),
    Cause.ACCESS_DENIED: Told(
        "a server refused access: a token is missing, wrong, or may not do that",
        "pass your token on (`--env HF_TOKEN` takes yours), and accept the terms of gated models",
    ),
    Cause.RATE_LIMITED: Told(
        "a server refused because it was asked too often",
        "fetch once as an input instead of in every rank, or wait and try again",
        True,
        _INFRA,
    ),
    Cause.SEGMENTATION_FAULT: Told(
        "native code touched memory that is not there (a segmentation fault)",
        "--env PYTHONFAULTHANDLER=1 shows where; suspect extensions built for other versions of "
        "Python, torch or NumPy",
        None,
    ),
    Cause.ILLEGAL_INSTRUCTION: Told(
        "native code used an instruction that the CPU has not got",
        "install a build for this CPU: binaries made with -march=native run on no older one",
    ),
    Cause.ARITHMETIC_FAULT: Told(
        "native code divided integers by zero, or the like",
        "--env PYTHONFAULTHANDLER=1 shows where",
    ),
    Cause.BUS_ERROR: Told(
        "native code used memory whose file was cut, or that no disk or /dev/shm had room for",
        "look at the room in /dev/shm and on the disks (`df`), and at files read by mmap that "
        "another process writes",
        None,
    ),
    Cause.ABORTED: Told(
        "native code gave up (abort)",
        "the lines before say why; --env PYTHONFAULTHANDLER=1 shows where",
        None,
    ),
    Cause.KILLED: Told(
        "a process was killed by SIGKILL, from outside or by the job itself; that it was for "
        "memory is not seen, and not excluded",
        "`dmesg -T` on the node tells of the kernel's out-of-memory killer; else ask who ended it",
        None,
    ),
    Cause.TERMINATED: Told(
        "a process was asked to end (SIGTERM), not by allranks",
        "ask who did: a person, a supervisor, a limit of the node, the job itself",
        None,
        _INFRA,
    ),
    Cause.SETUP_FAILED: Told("a node could not prepare the job", "mend what the error names"),
    Cause.OUTPUTS_LOST: Told(
        "not all of what the job left could be brought where it was to go",
        "what was brought is there, and the ranks had ended well; mend what the error names",
        None,
        _INFRA,
    ),
    Cause.NODE_LOST: Told(
        "a node was lost", "--max-attempts 2 or more starts again by itself", True, _INFRA
    ),
    Cause.PREEMPTED: Told(
        "the nodes were taken away for other work",
        "--max-attempts 2 or more starts again by itself",
        True,
        _INFRA,
    ),
    Cause.TIME_LIMIT: Told(
        "the job ran longer than it may",
        "raise limits.timeout (--timeout SECONDS), or the time the compute gives its jobs",
    ),
    Cause.HANG: Told(
        "the ranks stood still", "the stacks in its record show where each of them waits", None
    ),
    Cause.GANG_REFUSED: Told(
        "the compute refused the job",
        "ask for fewer nodes, GPUs, CPUs or less memory, or name another --compute",
    ),
    Cause.PLATFORM_ERROR: Told(
        "allranks itself failed on a node",
        "this is a defect of allranks: please report it with the job's events",
        None,
        Blame.PLATFORM,
    ),
}
