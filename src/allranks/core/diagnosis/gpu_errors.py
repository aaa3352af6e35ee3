"""Exceptions about GPUs and their frameworks.

Order matters: narrower patterns come first.
"""

from __future__ import annotations

from allranks.core.diagnosis.causes import Cause
from allranks.core.diagnosis.error_pattern import ErrorPattern

GPU_MEMORY = (
    ErrorPattern(
        Cause.CUDA_OUT_OF_MEMORY,
        r"(?:OutOfMemoryError|RuntimeError|AcceleratorError): (?:CUDA|HIP) (?:error: )?out of mem",
    ),
    ErrorPattern(
        Cause.CUDA_OUT_OF_MEMORY,
        r"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED|"
        r"ResourceExhaustedError: [^\n]*OOM when allocating [^\n]*GPU|"
        r"OutOfMemoryError: Out of memory allocating [\d,]+ bytes \(allocated so far|"
        r"(?:Jax|Xla)RuntimeError: RESOURCE_EXHAUSTED: [^\n]*(?:allocator GPU_|on GPU)",
    ),
)

GPUS = (
    ErrorPattern(
        Cause.DRIVER_TOO_OLD,
        r"RuntimeError: (?:The NVIDIA driver on your system is too old|[^\n]*CUDA driver version is"
        r" insufficient for CUDA runtime)",
    ),
    ErrorPattern(
        Cause.NO_CUDA,
        r"(?:AssertionError|RuntimeError): Torch not compiled with CUDA enabled",
        "this PyTorch is a CPU build: install a CUDA build in the job's environment and request "
        "GPUs (--gpus G), or let the script run on the CPU",
    ),
    ErrorPattern(
        Cause.NO_CUDA,
        r"(?:RuntimeError|AcceleratorError): (?:CUDA error: )?invalid device ordinal|"
        r"RuntimeError: (?:CUDA error: )?device_index[^\n]*out of range",
        "a rank selects a GPU that it does not have: use LOCAL_RANK modulo "
        "torch.cuda.device_count(), and request as many GPUs as ranks per node",
    ),
    ErrorPattern(
        Cause.NO_CUDA,
        r"RuntimeError: (?:Found no NVIDIA driver|No CUDA GPUs are available|[^\n]*no CUDA-capable "
        r"device is detected)|RuntimeError: Attempting to deserialize object on a CUDA device but|"
        r"ValueError: ProcessGroupNCCL is only supported with GPUs|"
        r"RuntimeError: ProcessGroupNCCL is only supported with GPUs|"
        r"AcceleratorError: CUDA error: no CUDA-capable device|"
        r"RuntimeError: Unable to initialize backend '(?:cuda|gpu)'",
    ),
    ErrorPattern(
        Cause.SCRIPT_EXCEPTION,
        r"RuntimeError: Cannot re-initialize CUDA in forked subprocess",
        "keep CUDA out of what DataLoader's workers run (datasets, collate functions), or start "
        "them with multiprocessing_context='spawn'",
    ),
    ErrorPattern(
        Cause.NO_KERNEL_IMAGE,
        r"(?:RuntimeError|AcceleratorError): CUDA error: no kernel image is available",
    ),
    ErrorPattern(
        Cause.DEVICE_ASSERT,
        r"(?:RuntimeError|AcceleratorError): CUDA error: device-side assert triggered",
    ),
    ErrorPattern(
        Cause.ILLEGAL_GPU_ACCESS,
        r"(?:RuntimeError|AcceleratorError): CUDA error: (?:an illegal memory access|misaligned "
        r"address|an illegal instruction)",
    ),
    ErrorPattern(
        Cause.GPU_FAULT,
        r"(?:RuntimeError|AcceleratorError): CUDA error: (?:uncorrectable (?:NVLink|ECC) error|"
        r"[^\n]*hardware|GPU is lost)",
    ),
    ErrorPattern(
        Cause.BACKEND_MISSING,
        r"RuntimeError: Distributed package doesn't have (MPI|NCCL) built in",
        "this PyTorch was built without {0}: use the gloo backend on CPUs, or a build with nccl on "
        "GPUs",
    ),
    ErrorPattern(
        Cause.BACKEND_MISSING,
        r"RuntimeError: Distributed package doesn't have (\w+) built in",
        "this PyTorch was built without {0}: use the gloo backend",
    ),
)
