"""Exceptions about memory, disks, processes and files.

Order matters: narrower patterns come first.
"""

from __future__ import annotations

from allranks.core.diagnosis.causes import Cause
from allranks.core.diagnosis.error_pattern import ErrorPattern

_OS = r"(?:OSError|IOError|BlockingIOError|RuntimeError|InternalError): (?:[^\n]{0,200})"

SYSTEM = (
    ErrorPattern(
        Cause.SHARED_MEMORY_FULL,
        r"RuntimeError: DataLoader worker \(pid \d+\) is killed by signal: Bus error",
    ),
    ErrorPattern(
        Cause.TOO_MANY_OPEN_FILES,
        r"(?:RuntimeError|OSError): [^\n]*(?:Too many open files|received 0 items of ancdata)|"
        r"OSError: \[Errno 24\]",
    ),
    ErrorPattern(
        Cause.SHARED_MEMORY_FULL,
        r"RuntimeError: unable to \w+[^\n]*shared memory[^\n]*No space left|"
        r"RuntimeError: unable to (?:write to|resize|allocate|mmap)[^\n]*/torch_\w+[^\n]*"
        r"(?:No space left|Cannot allocate|\(28\))|"
        r"OSError: \[Errno 28\] [^\n]*'/dev/shm/",
    ),
    ErrorPattern(
        Cause.MEMORY_REFUSED,
        r"_?(?:Array)?MemoryError(?:$|: [^\n]*(?i:alloc|out of memory|enough memory))|"
        r"RuntimeError: (?:[^\n]*DefaultCPUAllocator: (?:can't allocate|not enough) memory|"
        r"std::bad_alloc)|OSError: \[Errno 12\]|XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory|"
        r"ResourceExhaustedError: [^\n]*OOM when allocating [^\n]*CPU",
    ),
    ErrorPattern(
        Cause.DISK_FULL,
        _OS + r"(?:\[Errno 28\]|No space left on device|errno = 28|Not enough free space to write)",
    ),
    ErrorPattern(
        Cause.WRITE_FAILED,
        r"RuntimeError: (?:\[enforce fail at inline_container\.cc:\d+\] ?\. (?:unexpected pos|"
        r"PytorchStreamWriter failed writing)|PytorchStreamWriter failed writing|basic_ios::clear: "
        r"iostream error$)|OSError: \d+ requested and \d+ written",
    ),
    ErrorPattern(Cause.QUOTA_EXCEEDED, r"OSError: (?:\[Errno 122\]|[^\n]*Disk quota exceeded)"),
    ErrorPattern(Cause.READ_ONLY_DISK, r"OSError: \[Errno 30\]"),
    ErrorPattern(
        Cause.TOO_MANY_PROCESSES,
        r"BlockingIOError: \[Errno 11\]|RuntimeError: can't start new thread",
        file=r"(?:subprocess|threading|popen_fork|thread|process)\.py$",
    ),
    ErrorPattern(
        Cause.COMMAND_NOT_FOUND,
        r"FileNotFoundError: \[Errno 2\] No such file or directory: '([^']+)'",
        "`{0}` is not found or not on the PATH, or the interpreter in its first line is missing "
        "(check for Windows line endings)",
        file=r"subprocess\.py$",
    ),
    ErrorPattern(
        Cause.NOT_EXECUTABLE,
        r"PermissionError: \[Errno 13\] Permission denied: '([^']+)'",
        "make `{0}` executable (`chmod +x`), or run it with its interpreter",
        file=r"subprocess\.py$",
    ),
    ErrorPattern(Cause.NOT_EXECUTABLE, r"OSError: \[Errno 8\] Exec format error"),
)

GENERAL = (
    ErrorPattern(Cause.FILE_MISSING, r"FileNotFoundError\b"),
    ErrorPattern(Cause.PERMISSION_DENIED, r"PermissionError: \[Errno (?:1|13)\]"),
    ErrorPattern(Cause.NAN_LOSS, r"FloatingPointError: [^\n]*(?:loss|grad|minimum loss scale)"),
    ErrorPattern(
        Cause.NAN_LOSS,
        r"(?:ValueError|RuntimeError|AssertionError|ArithmeticError|FloatingPointError|Exception|"
        r"\w*(?:NaN|Nan|NAN|Diverge)\w*): (?:[^\n]{0,80}\b(?i:loss|gradients?|grad[ _]norm)"
        r"\b[^\n]{0,40}\b(?:nan|NaN|NAN|inf|Inf|infinite|non-?finite|not finite)\b(?!-)|"
        r"[^\n]{0,80}\b(?:nan|NaN|NAN|Non-finite|non-finite|Infinite|infinite)\b(?!-)[^\n]{0,30}"
        r"\b(?i:loss|gradients?|grad[ _]norm)\b|Function '\w+' returned nan values)",
    ),
    ErrorPattern(
        Cause.NAN_LOSS,
        r"(?:AssertionError|ValueError|RuntimeError|FloatingPointError)\b",
        source=r"assert\b.*(?:isnan|isfinite|isinf)\b.*\b\w*(?:loss|grad)",
    ),
    ErrorPattern(Cause.ASSERTION, r"AssertionError\b"),
)
