"""What texts mean which cause. Pure data, and specific enough to be never wrong: a text counts only
as the exception that ended a program, or as the last word of a program that is known to end so.

Groups of a match stand for {0}, {1} … of a fix of its own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from allranks.plan.diagnosis.causes import TABLE, Cause
from allranks.plan.diagnosis.tracebacks import Frame, Raised


class Sign(NamedTuple):
    """A cause, and what to do about it."""

    cause: Cause
    fix: str


class Symptom(NamedTuple):
    """``said`` is matched against the beginning of `Name: text`; where it is given, ``source``
    against the line of code that raised it, and ``file`` against the name of its file."""

    cause: Cause
    said: str
    fix: str = ""
    source: str = ""
    file: str = ""


_OS = r"(?:OSError|IOError|BlockingIOError|RuntimeError|InternalError): (?:[^\n]{0,200})"
_ANY = r"\w+: (?:[^\n]{0,300})"

# The first that fits says it: the narrower ones come first.
EXCEPTIONS: tuple[Symptom, ...] = (
    # ---------------------------------------------------------------- memory, files, modules
    Symptom(
        Cause.CUDA_OUT_OF_MEMORY,
        r"(?:OutOfMemoryError|RuntimeError|AcceleratorError): (?:CUDA|HIP) (?:error: )?out of mem",
    ),
    Symptom(
        Cause.CUDA_OUT_OF_MEMORY,
        r"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED|"
        r"ResourceExhaustedError: [^\n]*OOM when allocating [^\n]*GPU|"
        r"OutOfMemoryError: Out of memory allocating [\d,]+ bytes \(allocated so far",
    ),
    Symptom(
        Cause.SHARED_MEMORY_FULL,
        r"RuntimeError: DataLoader worker \(pid \d+\) is killed by signal: Bus error",
    ),
    Symptom(
        Cause.TOO_MANY_OPEN_FILES,
        r"(?:RuntimeError|OSError): [^\n]*(?:Too many open files|received 0 items of ancdata)|"
        r"OSError: \[Errno 24\]",
    ),
    Symptom(
        Cause.SHARED_MEMORY_FULL,
        r"RuntimeError: unable to \w+[^\n]*shared memory[^\n]*No space left|"
        r"RuntimeError: unable to (?:write to|resize|allocate|mmap)[^\n]*/torch_\w+[^\n]*"
        r"(?:No space left|Cannot allocate|\(28\))|"
        r"OSError: \[Errno 28\] [^\n]*'/dev/shm/",
    ),
    Symptom(
        Cause.MEMORY_REFUSED,
        r"_?(?:Array)?MemoryError(?:$|: [^\n]*(?i:alloc|out of memory|enough memory))|"
        r"RuntimeError: (?:[^\n]*DefaultCPUAllocator: (?:can't allocate|not enough) memory|"
        r"std::bad_alloc)|OSError: \[Errno 12\]|XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory|"
        r"ResourceExhaustedError: [^\n]*OOM when allocating [^\n]*CPU",
    ),
    Symptom(
        Cause.DISK_FULL,
        _OS + r"(?:\[Errno 28\]|No space left on device|errno = 28|Not enough free space to write)",
    ),
    Symptom(
        Cause.WRITE_FAILED,
        r"RuntimeError: (?:\[enforce fail at inline_container\.cc:\d+\] ?\. (?:unexpected pos|"
        r"PytorchStreamWriter failed writing)|PytorchStreamWriter failed writing|basic_ios::clear: "
        r"iostream error$)|OSError: \d+ requested and \d+ written",
    ),
    Symptom(Cause.QUOTA_EXCEEDED, r"OSError: (?:\[Errno 122\]|[^\n]*Disk quota exceeded)"),
    Symptom(Cause.READ_ONLY_DISK, r"OSError: \[Errno 30\]"),
    Symptom(
        Cause.TOO_MANY_PROCESSES,
        r"BlockingIOError: \[Errno 11\]|RuntimeError: can't start new thread",
        file=r"(?:subprocess|threading|popen_fork|thread|process)\.py$",
    ),
    Symptom(
        Cause.COMMAND_NOT_FOUND,
        r"FileNotFoundError: \[Errno 2\] No such file or directory: '([^']+)'",
        "`{0}` is not there, not on the PATH, or its first line names what is not (Windows lines?)",
        file=r"subprocess\.py$",
    ),
    Symptom(
        Cause.NOT_EXECUTABLE,
        r"PermissionError: \[Errno 13\] Permission denied: '([^']+)'",
        "`{0}` cannot be executed: `chmod +x` it, or start it by its interpreter",
        file=r"subprocess\.py$",
    ),
    Symptom(Cause.NOT_EXECUTABLE, r"OSError: \[Errno 8\] Exec format error"),
    Symptom(
        Cause.MODULE_MISSING,
        r"ModuleNotFoundError: No module named '(distutils|imp|asyncore|asynchat|smtpd)'",
        "Python 3.12 and later have no `{0}` any more: use Python 3.11 (`python=3.11` in the "
        "environment), or install setuptools for distutils",
    ),
    Symptom(
        Cause.WRONG_PYTHON,
        r"ModuleNotFoundError: No module named '(?:tomllib|zoneinfo|graphlib|annotationlib)'$|"
        r"ImportError: cannot import name '(?:Self|Annotated|Literal|Protocol|TypedDict|Final|"
        r"ParamSpec|TypeAlias|TypeGuard|override|Never|assert_never|Unpack|Required|NotRequired|"
        r"dataclass_transform|TypeIs)' from 'typing'|"
        r"(?:ImportError: cannot import name|AttributeError: module 'collections' has no attribute)"
        r" '(?:Mapping|MutableMapping|Sequence|MutableSequence|Iterable|Iterator|Callable|Hashable|"
        r"MutableSet)'(?: from 'collections'|$)|"
        r"ImportError: cannot import name '(?:StrEnum|pairwise|batched|cache|cached_property|"
        r"nullcontext|aclosing|UTC|TaskGroup)' from '(?:enum|itertools|functools|contextlib|"
        r"asyncio|datetime)'|"
        r"AttributeError: module '(?:itertools|functools|asyncio|inspect)' has no attribute '(?:"
        r"pairwise|batched|cache|cached_property|run|TaskGroup|timeout|coroutine|getargspec)'|"
        r"TypeError: unsupported operand type\(s\) for \|: '(?:type|_GenericAlias|ABCMeta|_Union"
        r"GenericAlias)' and '(?:NoneType|type|_GenericAlias)'|"
        r"TypeError: dataclass\(\) got an unexpected keyword argument '(?:slots|kw_only)|"
        r"SyntaxError: (?:Missing parentheses in call to 'print'|Non-ASCII|future feature)",
    ),
    Symptom(
        Cause.WRONG_PYTHON,
        r"TypeError: '(?:type|ABCMeta)' object is not subscriptable",
        source=r".*\b(?:list|dict|tuple|set|frozenset|type|Mapping|Sequence|Iterator)\[[\w\"']",
    ),
    # No word of Python's own stands at the beginning of such a line before they were introduced.
    Symptom(
        Cause.WRONG_PYTHON,
        r"SyntaxError: invalid syntax",
        source=r"(?:match\b[^=]*:|except ?\* ?\w.*:|type [A-Za-z_]\w* ?= ?\w.*)$",
    ),
    Symptom(Cause.SYNTAX_ERROR, r"(?:SyntaxError|IndentationError|TabError)\b"),
    Symptom(
        Cause.LIBRARY_MISSING,
        r"(?:ImportError|OSError): (\S+): cannot open shared object file",
        "`{0}` is not found on the node: install what it belongs to, load its module, or put its "
        "folder on LD_LIBRARY_PATH",
    ),
    Symptom(
        Cause.LIBRARY_MISSING,
        r"(?:ImportError|OSError): [^\n]*version [`']?(\w+_[\d.]+)'? not found",
        "the node has no {0}: what needs it was built on a newer system; install a build for this "
        "one, or bring the library along (conda, a container)",
    ),
    Symptom(
        Cause.IMPORT_FAILED,
        r"ImportError: [^\n]*undefined symbol: ",
        "it was built for another version of a package it uses: install it anew for this one",
    ),
    Symptom(
        Cause.IMPORT_FAILED,
        r"ImportError: cannot import name '\w+' from partially initialized module '([\w.]+)'",
        "two modules import each other, or a file of yours is named like the package `{0}`",
    ),
    Symptom(Cause.IMPORT_FAILED, r"ImportError: cannot import name '[\w.]+' from '[\w.]+'"),
    Symptom(
        Cause.IMPORT_FAILED,
        r"ImportError: numpy\.core\.multiarray failed to import|"
        r"ValueError: numpy\.dtype size changed|ImportError: [^\n]*module compiled against",
        "a package was built for another version of NumPy: install it anew, or `numpy<2`",
    ),
    Symptom(
        Cause.MODULE_MISSING,
        r"ModuleNotFoundError: No module named '([\w.]+)\.(\w+)'",
        "there is a `{0}` without a `{1}`: is a file of your code missing? is it another version?",
    ),
    Symptom(
        Cause.MODULE_MISSING,
        r"ModuleNotFoundError: No module named '([\w.]+)'",
        "`{0}` is not installed in the job's environment: install it there, or name it among what "
        "the environment asks for (-e FILE)",
    ),
    Symptom(
        Cause.CHECKPOINT_DAMAGED,
        r"RuntimeError: PytorchStreamReader failed|RuntimeError: unexpected EOF, expected \d+ more"
        r"|BadZipFile: |UnpicklingError: (?:pickle data was truncated|invalid load key|unpickling "
        r"stack underflow)|SafetensorError: Error while deserializing|"
        r"OSError: Unable to (?:synchronously )?open file \((?:truncated|file signature)",
    ),
    Symptom(
        Cause.CHECKPOINT_DAMAGED,
        r"EOFError: (?:Ran out of input|No data left in file)",
    ),
    Symptom(
        Cause.CHECKPOINT_DAMAGED,
        r"EOFError$",
        file=r"torch/(?:serialization|_weights_only\w+)\.py$",
    ),
    Symptom(Cause.CHECKPOINT_REFUSED, r"UnpicklingError: Weights only load failed"),
    Symptom(Cause.CHECKPOINT_MISMATCH, r"RuntimeError: Error\(s\) in loading state_dict for "),
    Symptom(
        Cause.CHECKPOINT_MISMATCH,
        r"ValueError: loaded state dict (?:has a different number|contains a parameter group)",
    ),
    # ---------------------------------------------------------------- GPUs
    Symptom(
        Cause.DRIVER_TOO_OLD,
        r"RuntimeError: (?:The NVIDIA driver on your system is too old|[^\n]*CUDA driver version is"
        r" insufficient for CUDA runtime)",
    ),
    Symptom(
        Cause.NO_CUDA,
        r"(?:AssertionError|RuntimeError): Torch not compiled with CUDA enabled",
        "this PyTorch is a CPU build: install one for CUDA in the job's environment, and ask for "
        "GPUs (--gpus G); or let the script run on the CPU",
    ),
    Symptom(
        Cause.NO_CUDA,
        r"(?:RuntimeError|AcceleratorError): (?:CUDA error: )?invalid device ordinal|"
        r"RuntimeError: (?:CUDA error: )?device_index[^\n]*out of range",
        "a rank asks for a GPU that it does not have: use LOCAL_RANK modulo "
        "torch.cuda.device_count(), and ask for as many GPUs as ranks on each node",
    ),
    Symptom(
        Cause.NO_CUDA,
        r"RuntimeError: (?:Found no NVIDIA driver|No CUDA GPUs are available|[^\n]*no CUDA-capable "
        r"device is detected)|RuntimeError: Attempting to deserialize object on a CUDA device but|"
        r"ValueError: ProcessGroupNCCL is only supported with GPUs|"
        r"RuntimeError: ProcessGroupNCCL is only supported with GPUs|"
        r"AcceleratorError: CUDA error: no CUDA-capable device",
    ),
    Symptom(
        Cause.NO_KERNEL_IMAGE,
        r"(?:RuntimeError|AcceleratorError): CUDA error: no kernel image is available",
    ),
    Symptom(
        Cause.DEVICE_ASSERT,
        r"(?:RuntimeError|AcceleratorError): CUDA error: device-side assert triggered",
    ),
    Symptom(
        Cause.ILLEGAL_GPU_ACCESS,
        r"(?:RuntimeError|AcceleratorError): CUDA error: (?:an illegal memory access|misaligned "
        r"address|an illegal instruction)",
    ),
    Symptom(
        Cause.GPU_FAULT,
        r"(?:RuntimeError|AcceleratorError): CUDA error: (?:uncorrectable (?:NVLink|ECC) error|"
        r"[^\n]*hardware|GPU is lost)",
    ),
    Symptom(
        Cause.BACKEND_MISSING,
        r"RuntimeError: Distributed package doesn't have (MPI|NCCL) built in",
        "this PyTorch was built without {0}: use the backend gloo, or nccl where there are GPUs",
    ),
    Symptom(
        Cause.BACKEND_MISSING,
        r"RuntimeError: Distributed package doesn't have (\w+) built in",
        "this PyTorch was built without {0}: use the backend gloo",
    ),
    # ---------------------------------------------------------------- ranks among themselves
    Symptom(
        Cause.PORT_TAKEN,
        r"DistNetworkError: [^\n]*EADDRINUSE|(?:OSError|PermissionError): \[Errno 98\]|"
        r"RuntimeError: [^\n]*failed to listen[^\n]*ddress already in use",
    ),
    Symptom(
        Cause.RENDEZVOUS_TIMEOUT,
        r"DistStoreError: (?:Timed out after \d+ seconds waiting for clients|wait timeout after)|"
        r"(?:DistNetworkError|DistStoreError|TimeoutError): The client socket has (?:timed out|"
        r"failed to connect)|Rendezvous(?:Timeout|Connection)Error\b|"
        r"(?:XlaRuntimeError|JaxRuntimeError): DEADLINE_EXCEEDED: [^\n]*(?:RegisterTask|connect)",
    ),
    Symptom(
        Cause.COLLECTIVE_MISMATCH,
        r"(?:RuntimeError|DistBackendError): [^\n]*(?:Detected mismatch between collectives|"
        r"op\.preamble\.length <= op\.nbytes)|"
        r"RuntimeError: (?:\[(?:Rank )?\d+\]: )?(?:Params may be mismatched|params?\[\d+\] in "
        r"this process|DDP expects same model across all ranks)|"
        r"RuntimeError: [^\n]*verify params? (?:across|shape)",
    ),
    Symptom(
        Cause.COLLECTIVE_TIMEOUT,
        r"(?:RuntimeError|DistBackendError|DistNetworkError): [^\n]*(?:Timed out waiting \d+ms for "
        r"(?:recv|send)|Watchdog caught collective operation timeout|Application timeout caused)",
    ),
    Symptom(
        Cause.PEER_LOST,
        r"(?:RuntimeError|DistBackendError|DistNetworkError|DistStoreError|ConnectionError): "
        r"[^\n]*(?:Connection closed by peer|Connection reset by peer \[|Connection reset by peer"
        r"$|Broken pipe \[|Connection was likely closed|remote process exited|ncclRemoteError|"
        r"Failed to recv, got 0 bytes|failed to recv, got 0 bytes|closed the connection)|"
        r"DistNetworkError: [^\n]*(?:Broken pipe|Connection reset)|"
        r"DistBackendError: NCCL error(?:[^\n]*\n){1,4}[^\n]*Connection closed by remote peer|"
        r"RuntimeError: [^\n]*gloo[^\n]*(?:Read error|Write error|Connect(?:ion)? (?:error|timeout|"
        r"refused)|writev)",
    ),
    Symptom(
        Cause.NCCL_ERROR,
        r"(?:DistBackendError|RuntimeError): [^\n]*NCCL[^\n]*\n?(?:[^\n]*\n){0,4}[^\n]*"
        r"Duplicate GPU detected",
        "two ranks share one GPU, which NCCL refuses: as many GPUs as ranks on each node (--gpus), "
        "and torch.cuda.set_device(LOCAL_RANK)",
    ),
    Symptom(Cause.NCCL_ERROR, r"(?:DistBackendError|RuntimeError): NCCL error"),
    # ---------------------------------------------------------------- the network
    Symptom(
        Cause.NAME_NOT_RESOLVED,
        r"(?!Dist|Runtime)" + _ANY + r"(?:NameResolutionError|Failed to resolve|\[Errno -[235]\] "
        r"(?:Temporary failure|Name or service|No address)|Could not resolve host|"
        r"Temporary failure in name resolution)",
    ),
    Symptom(
        Cause.NETWORK_UNREACHABLE,
        r"(?:\w*ProxyError|\w*ConnectionError|OSError|URLError): [^\n]{0,300}(?:Tunnel connection "
        r"failed|Cannot connect to proxy|Unable to connect to proxy)",
        "the proxy refused, or is not there: look at https_proxy and no_proxy in the job "
        "(--env https_proxy=…)",
    ),
    Symptom(
        Cause.TLS_FAILED,
        r"SSL\w*Error: |(?!Runtime)" + _ANY + r"(?:CERTIFICATE_VERIFY_FAILED|SSLCertVerification"
        r"Error|SSLError\(|WRONG_VERSION_NUMBER)",
    ),
    Symptom(
        Cause.ACCESS_DENIED,
        r"\w*HTTP\w*Error: (?:HTTP Error |Client error ')?40[13]\b|GatedRepoError|"
        r"OSError: You are trying to access a gated repo|"
        r"(?:LocalTokenNotFoundError|AuthenticationError): |"
        r"RepositoryNotFoundError: 401|ClientError: [^\n]*\((?:AccessDenied|InvalidAccessKeyId|"
        r"SignatureDoesNotMatch|ExpiredToken)|NoCredentialsError: Unable to locate credentials",
    ),
    Symptom(
        Cause.RATE_LIMITED,
        r"\w*HTTP\w*Error: (?:HTTP Error |Client error ')?429\b|RateLimitError\b",
    ),
    Symptom(
        Cause.NETWORK_UNREACHABLE,
        r"(?!Dist|Runtime)" + _ANY + r"(?:\[Errno (?:101|113|110)\]|ConnectTimeoutError|"
        r"Network is unreachable|No route to host)|ConnectTimeout: ",
    ),
    Symptom(
        Cause.CONNECTION_REFUSED,
        r"(?!Dist|Runtime)" + _ANY + r"\[Errno 111\]",
    ),
    # ---------------------------------------------------------------- the rest, by its kind
    Symptom(Cause.FILE_MISSING, r"FileNotFoundError\b"),
    Symptom(Cause.PERMISSION_DENIED, r"PermissionError: \[Errno (?:1|13)\]"),
    Symptom(Cause.NAN_LOSS, r"FloatingPointError: [^\n]*(?:loss|grad|minimum loss scale)"),
    Symptom(
        Cause.NAN_LOSS,
        r"(?:ValueError|RuntimeError|AssertionError|ArithmeticError|FloatingPointError|Exception|"
        r"\w*(?:NaN|Nan|NAN|Diverge)\w*): (?:[^\n]{0,80}\b(?i:loss|gradients?|grad[ _]norm)"
        r"\b[^\n]{0,40}\b(?:nan|NaN|NAN|inf|Inf|infinite|non-?finite|not finite)\b(?!-)|"
        r"[^\n]{0,80}\b(?:nan|NaN|NAN|Non-finite|non-finite|Infinite|infinite)\b(?!-)[^\n]{0,30}"
        r"\b(?i:loss|gradients?|grad[ _]norm)\b|Function '\w+' returned nan values)",
    ),
    Symptom(
        Cause.NAN_LOSS,
        r"(?:AssertionError|ValueError|RuntimeError|FloatingPointError)\b",
        source=r"assert\b.*(?:isnan|isfinite|isinf)\b.*\b\w*(?:loss|grad)",
    ),
    Symptom(Cause.ASSERTION, r"AssertionError\b"),
)


class _Compiled(NamedTuple):
    symptom: Symptom
    said: re.Pattern[str]
    source: re.Pattern[str]
    file: re.Pattern[str]


_COMPILED = tuple(
    _Compiled(each, *(re.compile(p, re.MULTILINE) for p in (each.said, each.source, each.file)))
    for each in EXCEPTIONS
)


def of_exception(raised: Raised) -> Sign:
    """What an exception that nothing caught means."""
    last = raised.frames[-1] if raised.frames else Frame("", 0, "", "")
    said = raised.said[:4000]
    for symptom, text, source, file in _COMPILED:
        found = text.match(said)
        if found is None or (symptom.source and not source.match(last.source)):
            continue
        if symptom.file and not _is_started(file, raised):
            continue
        return sign(symptom.cause, symptom.fix, found)
    return sign(Cause.SCRIPT_EXCEPTION)


def _is_started(file: re.Pattern[str], raised: Raised) -> bool:
    """Whether a program was to be started; one that was given a folder may want for that."""
    last = raised.frames[-1].file if raised.frames else ""
    return bool(file.search(last)) and not any("cwd" in each.source for each in raised.frames)


def sign(cause: Cause, fix: str = "", found: re.Match[str] | None = None) -> Sign:
    """With the fix of the table where there is none of its own."""
    groups = found.groups(default="") if found is not None else ()
    return Sign(cause, fix.format(*groups) if fix and groups else fix or TABLE[cause].fix)
