"""The failures of the corpus: what is run, and what its cause is. ``make.py`` lets each happen."""

from typing import NamedTuple

from allranks.core.diagnosis.causes import Cause


class Way(NamedTuple):
    """``command`` is run by ``ranks`` on each of ``nodes``, in a folder with all programs. Where
    the true cause is not to be seen by anybody, ``cause`` is UNKNOWN. ``held``: collected after the
    patterns were written. ``how``: `starved` in a server whose memory is limited, `long` until its
    time limit, `agent-term`, `agent-kill` what befalls an agent; `gpu` needs an NVIDIA GPU."""

    name: str
    cause: Cause
    command: str
    ranks: int = 1
    nodes: int = 1
    how: str = ""
    held: bool = False


# Files that no Python of ours may read, or that are not Python.
ODD = {
    "bad_syntax.py": "def train(:\n    pass\n",
    "bad_indent.py": "def train():\n    x = 1\n  y = 2\n",
    "unclosed.py": "settings = dict(lr=0.1,\nprint(settings)\n",
    "print_2.py": 'print "epoch", 1\n',
    "match.py": "import sys\nmatch len(sys.argv):\n    case _:\n        print(1)\n",
    "list_of.py": "def mean(values: list[float]) -> float:\n    return sum(values)\n",
    "union.py": "def mean(values: int | None) -> float:\n    return 0.0\n",
    "slots.py": "from dataclasses import dataclass\n\n\n"
    "@dataclass(slots=True)\nclass A:\n    x: int\n",
    "self_type.py": "from typing import Self\n",
    "toml.py": "import tomllib\n",
    "fstring.py": "# -*- coding: utf-8 -*-\nname = 'x'\nprint(f'{name}')\n",
    "star_except.py": "try:\n    pass\nexcept* ValueError:\n    pass\n",
    "old_collections.py": "from collections import Mapping\n",
    "no_distutils.py": "import distutils.util\n",
    "no_exec.sh": "#!/bin/bash\necho hello\n",
    "bad_interpreter.sh": "#!/usr/bin/pythn9\nprint(1)\n",
    "windows.sh": "#!/bin/bash\r\necho hello\r\n",
    "env_interpreter.py": "#!/usr/bin/env python9.9\nprint(1)\n",
}
NATIVE = {
    "nothing.c": "int nothing(void) { return 0; }\n",
    "needs.c": "int nothing(void);\nint main(void) { return nothing(); }\n",
    "crash.c": "int main(void) { volatile int *p = 0; return *p; }\n",
    "ill.c": "int main(void) { __builtin_trap(); }\n",
    "div.c": "int main(int n, char **v) { volatile int z = n - 1; return 7 / z; }\n",
    "check.c": "#include <assert.h>\nint main(int n, char **v) { assert(n > 3); return 0; }\n",
    "twice.c": "#include <stdlib.h>\nint main(void) { char *p = malloc(9); free(p); free(p); }\n",
    "stack.c": "int down(int n) { volatile char x[4096]; x[0] = n; return down(n + 1) + x[0]; }\n"
    "int main(void) { return down(0); }\n",
    "threads.cc": "#include <thread>\nint main() { std::thread t([] { for (;;) {} }); }\n",
    "throw.cc": '#include <stdexcept>\nint main() { throw std::runtime_error("odd weights"); }\n',
    "alloc.cc": "#include <vector>\nint main() { std::vector<char> v(1UL << 46); return v[1]; }\n",
}

_SHM = "unshare -m bash -c 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec {}'"
_FULL = "mkdir full && unshare -m bash -c 'mount -t tmpfs -o size=1m tmpfs full && exec {}'"
_FIXED = "mkdir fixed && unshare -m bash -c 'mount -t tmpfs -o ro tmpfs fixed && exec {}'"
_CGROUP = (
    "mkdir -p $OWN && echo 300M > $OWN/memory.limit_in_bytes && "
    "bash -c 'echo $$ > $OWN/cgroup.procs && exec {}'"
)
# Who may not even read the folder that the job runs in.
_NOBODY = (
    "setpriv --reuid=65534 --regid=65534 --clear-groups bash -c "
    '\'ulimit -u 40; exec /usr/bin/python3 -c "$0" {}\' "$(cat ways.py)"'
)
_PY, _TORCH = "python ways.py ", "python torch_ways.py "
_CUDA = "python cuda_ways.py "
_C = Cause

WAYS = (
    # ---------------------------------------------------------------- memory
    Way("starved", _C.OUT_OF_MEMORY, _PY + "eat_memory", how="starved"),
    Way("starved-two-nodes", _C.OUT_OF_MEMORY, _TORCH + "one_eats_memory", 1, 2, how="starved"),
    Way("starved-two-ranks", _C.OUT_OF_MEMORY, _TORCH + "one_eats_memory", 2, how="starved"),
    Way("starved-cgroup", _C.OUT_OF_MEMORY, _CGROUP.format(_PY + "eat_memory")),
    Way("starved-loader", _C.OUT_OF_MEMORY, _CGROUP.format(_TORCH + "loader_eats_memory")),
    Way("starved-pool", _C.OUT_OF_MEMORY, _CGROUP.format(_PY + "pool_eats_memory"), held=True),
    Way("starved-shell", _C.OUT_OF_MEMORY, _PY + "eat_memory; exit $?", how="starved", held=True),
    Way("huge-array", _C.MEMORY_REFUSED, _TORCH + "numpy_huge"),
    Way("huge-tensor", _C.MEMORY_REFUSED, _TORCH + "torch_huge"),
    Way("huge-bytes", _C.MEMORY_REFUSED, _PY + "eat_a_lot"),
    Way("ulimit", _C.MEMORY_REFUSED, "ulimit -v 500000; " + _PY + "eat_until_refused"),
    Way("bad-alloc", _C.MEMORY_REFUSED, "./alloc"),
    Way("huge-two", _C.MEMORY_REFUSED, _TORCH + "numpy_huge", 2, held=True),
    Way("killed", _C.KILLED, _PY + "shoot_oneself"),
    Way("killed-later", _C.KILLED, _PY + "shoot_oneself_later"),
    Way("killed-one", _C.KILLED, _TORCH + "one_is_shot", 2),
    Way("killed-one-node", _C.KILLED, _TORCH + "one_is_shot", 1, 2, held=True),
    Way("killed-loader", _C.KILLED, _TORCH + "loader_is_shot"),
    Way("killed-spawned", _C.KILLED, _TORCH + "spawn_shot", held=True),
    Way("killed-survivor", _C.KILLED, _PY + "survived_then_shot"),
    Way("killed-pool", _C.UNKNOWN, _PY + "pool_is_shot"),
    Way("terminated", _C.TERMINATED, _PY + "be_terminated"),
    Way("interrupted", _C.TERMINATED, _PY + "be_interrupted", held=True),
    Way("shm-loader", _C.SHARED_MEMORY_FULL, _SHM.format(_TORCH + "loader_fills_shared_memory")),
    Way("shm-file", _C.DISK_FULL, _SHM.format(_PY + "fill_shared")),
    Way("shm-map", _C.BUS_ERROR, _SHM.format(_PY + "shared_memory_bus")),
    # ---------------------------------------------------------------- files
    Way("disk-full", _C.DISK_FULL, _FULL.format(_PY + "fill")),
    Way("disk-full-json", _C.DISK_FULL, _FULL.format(_PY + "log_to_full")),
    Way("disk-full-torch", _C.WRITE_FAILED, _FULL.format(_TORCH + "save_to_full")),
    Way("disk-full-numpy", _C.DISK_FULL, _FULL.format(_TORCH + "save_array_to_full"), held=True),
    Way("disk-full-cp", _C.DISK_FULL, _FULL.format("cp /usr/bin/git full/"), held=True),
    Way("disk-full-dd", _C.DISK_FULL, _FULL.format("dd if=/dev/zero of=full/x bs=64k")),
    Way("read-only", _C.READ_ONLY_DISK, _FIXED.format(_PY + "write_read_only")),
    Way("quota", _C.QUOTA_EXCEEDED, _PY + "no_room_by_hand"),
    Way("no-file", _C.FILE_MISSING, _PY + "open_missing"),
    Way("no-file-from", _C.FILE_MISSING, _PY + "open_missing_translated"),
    Way("no-file-wrapped", _C.FILE_MISSING, _PY + "open_missing_wrapped"),
    Way("no-file-fallback", _C.FILE_MISSING, _PY + "fall_back_to_missing"),
    Way("no-file-torch", _C.FILE_MISSING, _TORCH + "load_missing"),
    Way("no-file-numpy", _C.FILE_MISSING, _TORCH + "load_array_missing", held=True),
    Way("no-file-loader", _C.FILE_MISSING, _TORCH + "loader_misses_file"),
    Way("no-file-one-slow", _C.FILE_MISSING, _TORCH + "one_raises_slowly", 2),
    Way("no-file-spawned", _C.FILE_MISSING, _TORCH + "spawn_missing"),
    Way("no-file-atexit", _C.FILE_MISSING, _PY + "exit_handler_talks", held=True),
    Way("no-file-logged", _C.FILE_MISSING, _PY + "logged_and_left", held=True),
    Way("no-script", _C.FILE_MISSING, "python trian.py"),
    Way("no-script-two", _C.FILE_MISSING, "python src/train.py --lr 1", 2, held=True),
    Way("no-folder", _C.FILE_MISSING, _PY + "start_in_missing_folder"),
    Way("denied", _C.PERMISSION_DENIED, _NOBODY.format("not_allowed")),
    Way("denied-write", _C.PERMISSION_DENIED, _NOBODY.format("not_allowed_to_write"), 2),
    Way("files", _C.TOO_MANY_OPEN_FILES, "ulimit -n 64; " + _PY + "open_too_many"),
    Way("sockets", _C.TOO_MANY_OPEN_FILES, "ulimit -n 64; " + _PY + "sockets_too_many", held=True),
    Way("threads", _C.TOO_MANY_PROCESSES, _NOBODY.format("threads_too_many")),
    Way("processes", _C.TOO_MANY_PROCESSES, _NOBODY.format("processes_too_many"), held=True),
    Way("half-checkpoint", _C.CHECKPOINT_DAMAGED, _TORCH + "half_checkpoint"),
    Way("half-old-checkpoint", _C.CHECKPOINT_DAMAGED, _TORCH + "half_old_checkpoint", held=True),
    Way("empty-checkpoint", _C.CHECKPOINT_DAMAGED, _TORCH + "empty_checkpoint"),
    Way("html-checkpoint", _C.CHECKPOINT_REFUSED, _TORCH + "text_as_checkpoint", held=True),
    Way("half-pickle", _C.CHECKPOINT_DAMAGED, _PY + "truncated_pickle"),
    Way("empty-pickle", _C.CHECKPOINT_DAMAGED, _PY + "empty_pickle"),
    Way("half-archive", _C.CHECKPOINT_DAMAGED, _TORCH + "half_archive"),
    Way("empty-array", _C.CHECKPOINT_DAMAGED, _TORCH + "empty_array", held=True),
    Way("state-keys", _C.CHECKPOINT_MISMATCH, _TORCH + "state_of_another"),
    Way("state-ddp", _C.CHECKPOINT_MISMATCH, _TORCH + "state_of_ddp"),
    Way("state-size", _C.CHECKPOINT_MISMATCH, _TORCH + "state_of_other_size", 2, held=True),
    Way("state-optimizer", _C.CHECKPOINT_MISMATCH, _TORCH + "state_of_other_optimizer", held=True),
    Way("state-refused", _C.CHECKPOINT_REFUSED, _TORCH + "refused_checkpoint"),
    # ---------------------------------------------------------------- code and environment
    Way("syntax", _C.SYNTAX_ERROR, "python bad_syntax.py"),
    Way("syntax-imported", _C.SYNTAX_ERROR, _PY + "import_broken_syntax"),
    Way("indent", _C.SYNTAX_ERROR, "python bad_indent.py"),
    Way("unclosed", _C.SYNTAX_ERROR, "python unclosed.py", 2, held=True),
    Way("python-print", _C.WRONG_PYTHON, "python print_2.py"),
    Way("python-match", _C.WRONG_PYTHON, "$PY39 match.py"),
    Way("python-list", _C.WRONG_PYTHON, "$PY38 list_of.py"),
    Way("python-union", _C.WRONG_PYTHON, "$PY39 union.py"),
    Way("python-slots", _C.WRONG_PYTHON, "$PY39 slots.py", held=True),
    Way("python-self", _C.WRONG_PYTHON, "$PY310 self_type.py"),
    Way("python-toml", _C.WRONG_PYTHON, "$PY310 toml.py"),
    Way("python-star", _C.WRONG_PYTHON, "$PY310 star_except.py", held=True),
    Way("python-collections", _C.WRONG_PYTHON, "python old_collections.py", held=True),
    Way("python-distutils", _C.MODULE_MISSING, "$PY312 no_distutils.py", held=True),
    Way("python-pip", _C.WRONG_PYTHON, "$PY39 -m pip install --no-deps ./newer", held=True),
    Way("module", _C.MODULE_MISSING, _PY + "import_missing"),
    Way("module-m", _C.MODULE_MISSING, "python -m nosuchtrainer --lr 1"),
    Way("module-one", _C.MODULE_MISSING, _TORCH + "one_misses_module_later", 2),
    Way("module-one-early", _C.MODULE_MISSING, _TORCH + "one_misses_module", 1, 2),
    Way("module-all", _C.MODULE_MISSING, _TORCH + "all_miss_module", 2, 2, held=True),
    Way(
        "module-torchrun",
        _C.MODULE_MISSING,
        "torchrun --nproc-per-node 2 torch_ways.py all_miss_module",
    ),
    Way("import-name", _C.IMPORT_FAILED, _PY + "import_missing_name"),
    Way("import-circle", _C.IMPORT_FAILED, _PY + "import_circular"),
    Way("library", _C.LIBRARY_MISSING, _PY + "missing_library"),
    Way("library-linked", _C.LIBRARY_MISSING, "./needs"),
    Way("argument", _C.BAD_ARGUMENT, _PY + "wrong_arguments --lr 1 --epocs 3"),
    Way("argument-missing", _C.BAD_ARGUMENT, _PY + "wrong_arguments", 2),
    Way("argument-choice", _C.BAD_ARGUMENT, _PY + "wrong_arguments --lr 1 --model huge", held=True),
    Way("no-command", _C.COMMAND_NOT_FOUND, "trainer --lr 1"),
    Way("no-command-path", _C.COMMAND_NOT_FOUND, "./run.sh", 2),
    Way("no-command-later", _C.COMMAND_NOT_FOUND, "echo begin; nvidia-smi-nosuch", held=True),
    Way("no-program", _C.COMMAND_NOT_FOUND, _PY + "start_missing_program"),
    Way("not-executable", _C.NOT_EXECUTABLE, "./no_exec.sh"),
    Way("bad-interpreter", _C.NOT_EXECUTABLE, "./bad_interpreter.sh"),
    Way("windows-lines", _C.NOT_EXECUTABLE, "./windows.sh", held=True),
    Way("env-interpreter", _C.NOT_EXECUTABLE, "./env_interpreter.py", held=True),
    Way("nan", _C.NAN_LOSS, _PY + "loss_is_nan"),
    Way("nan-assert", _C.NAN_LOSS, _PY + "loss_assertion"),
    Way("nan-torch", _C.NAN_LOSS, _TORCH + "loss_raise"),
    Way("nan-torch-assert", _C.NAN_LOSS, _TORCH + "loss_check", held=True),
    Way("nan-anomaly", _C.NAN_LOSS, _TORCH + "anomaly"),
    Way("assertion", _C.ASSERTION, _PY + "plain_assertion"),
    Way("key", _C.SCRIPT_EXCEPTION, _PY + "pick_key"),
    Way("type", _C.SCRIPT_EXCEPTION, _PY + "wrong_type", held=True),
    Way("shapes", _C.SCRIPT_EXCEPTION, _TORCH + "wrong_shapes"),
    Way("labels", _C.SCRIPT_EXCEPTION, _TORCH + "wrong_labels", held=True),
    Way("own", _C.SCRIPT_EXCEPTION, _PY + "own_exception"),
    Way("recursion", _C.SCRIPT_EXCEPTION, _PY + "deep", held=True),
    Way("group", _C.SCRIPT_EXCEPTION, _PY + "group", held=True),
    Way("loader", _C.SCRIPT_EXCEPTION, _TORCH + "loader_raises"),
    Way("loader-uneven", _C.SCRIPT_EXCEPTION, _TORCH + "loader_uneven", held=True),
    Way("pool", _C.SCRIPT_EXCEPTION, _PY + "pool_raises", held=True),
    Way("fallback", _C.SCRIPT_EXCEPTION, _PY + "fall_back_badly"),
    Way("chatter", _C.SCRIPT_EXCEPTION, _PY + "chatter_then_key"),
    Way("logged", _C.SCRIPT_EXCEPTION, _PY + "logged_and_raised"),
    Way("one-raises", _C.SCRIPT_EXCEPTION, _TORCH + "one_raises", 2),
    Way("one-raises-nodes", _C.SCRIPT_EXCEPTION, _TORCH + "one_raises", 2, 2, held=True),
    Way("spawned", _C.SCRIPT_EXCEPTION, _TORCH + "spawn"),
    Way("torchrun", _C.SCRIPT_EXCEPTION, "torchrun --nproc-per-node 2 torch_ways.py one_raises"),
    Way("torchrun-killed", _C.KILLED, "torchrun --nproc-per-node 2 torch_ways.py one_is_shot"),
    Way(
        "torchrun-crashed",
        _C.SEGMENTATION_FAULT,
        "torchrun --nproc-per-node 2 torch_ways.py one_segfaults",
        held=True,
    ),
    Way("child-python", _C.SCRIPT_EXCEPTION, _PY + "start_failing_python"),
    Way("child-other", _C.UNKNOWN, _PY + "start_failing_program"),
    Way("code", _C.UNKNOWN, _PY + "leaves_with_code"),
    Way("words", _C.UNKNOWN, _PY + "leaves_with_words"),
    Way("silent", _C.UNKNOWN, _PY + "leaves_silently"),
    Way("survived", _C.UNKNOWN, _PY + "survived_then_leaves"),
    Way("thread", _C.UNKNOWN, _PY + "thread_dies_then_leaves", held=True),
    Way("http-404", _C.SCRIPT_EXCEPTION, _PY + "gone_there", held=True),
    # ---------------------------------------------------------------- GPUs that are not there
    Way("gpu", _C.NO_CUDA, _TORCH + "to_gpu"),
    Way("gpu-set", _C.NO_CUDA, _TORCH + "set_gpu", 2),
    Way("gpu-nccl", _C.NO_CUDA, _TORCH + "gpu_backend", 2),
    # ---------------------------------------------------------------- GPUs that are there
    Way("cuda-memory", _C.CUDA_OUT_OF_MEMORY, _CUDA + "exhaust", how="gpu"),
    Way("cuda-memory-share", _C.CUDA_OUT_OF_MEMORY, _CUDA + "exhaust_limited", how="gpu"),
    Way(
        "cuda-memory-backward",
        _C.CUDA_OUT_OF_MEMORY,
        _CUDA + "exhaust_backward",
        how="gpu",
        held=True,
    ),
    Way("cuda-memory-two", _C.CUDA_OUT_OF_MEMORY, _CUDA + "one_exhausts", 2, how="gpu", held=True),
    Way("cuda-memory-jax", _C.CUDA_OUT_OF_MEMORY, _CUDA + "jax_exhausts", how="gpu", held=True),
    Way("cuda-memory-cupy", _C.CUDA_OUT_OF_MEMORY, _CUDA + "cupy_exhausts", how="gpu", held=True),
    Way("cuda-labels", _C.DEVICE_ASSERT, _CUDA + "wrong_labels", how="gpu"),
    Way("cuda-token", _C.DEVICE_ASSERT, _CUDA + "wrong_token", how="gpu", held=True),
    Way("cuda-nan", _C.DEVICE_ASSERT, _CUDA + "nan_probabilities", how="gpu", held=True),
    Way("cuda-wild", _C.ILLEGAL_GPU_ACCESS, _CUDA + "wild_pointer", how="gpu"),
    Way("cuda-wild-triton", _C.ILLEGAL_GPU_ACCESS, _CUDA + "wild_triton", how="gpu", held=True),
    Way("cuda-ordinal", _C.NO_CUDA, _CUDA + "not_there", how="gpu"),
    Way("cuda-ordinal-nccl", _C.NO_CUDA, _CUDA + "each_its_own", 2, how="gpu", held=True),
    Way("cuda-saved", _C.NO_CUDA, _CUDA + "load_saved_there", how="gpu", held=True),
    Way("cuda-none-jax", _C.NO_CUDA, _CUDA + "jax_without", how="gpu", held=True),
    Way("nccl-shared", _C.NCCL_ERROR, _CUDA + "share_one", 2, how="gpu"),
    Way("cuda-loader", _C.SCRIPT_EXCEPTION, _CUDA + "loader_on_gpu", how="gpu", held=True),
    Way("cuda-devices", _C.SCRIPT_EXCEPTION, _CUDA + "two_devices", how="gpu", held=True),
    Way("backend", _C.BACKEND_MISSING, _TORCH + "other_backend", 2),
    # ---------------------------------------------------------------- ranks among themselves
    Way("port", _C.PORT_TAKEN, _PY + "port_bound"),
    Way("port-server", _C.PORT_TAKEN, _PY + "serve_twice", held=True),
    Way("port-store", _C.PORT_TAKEN, _TORCH + "store_port_taken"),
    Way("port-init", _C.PORT_TAKEN, _TORCH + "init_port_taken"),
    Way("nobody-there", _C.RENDEZVOUS_TIMEOUT, _TORCH + "nobody_there"),
    Way("one-late", _C.RENDEZVOUS_TIMEOUT, _TORCH + "one_is_late", 2),
    Way("one-late-node", _C.RENDEZVOUS_TIMEOUT, _TORCH + "one_is_late", 1, 2, held=True),
    Way("one-sleeps", _C.COLLECTIVE_TIMEOUT, _TORCH + "one_sleeps", 2),
    Way("one-leaves", _C.PEER_LOST, _TORCH + "one_leaves", 2),
    Way("one-leaves-node", _C.PEER_LOST, _TORCH + "one_leaves", 1, 3, held=True),
    Way("one-code", _C.UNKNOWN, _TORCH + "one_leaves_with_code", 2),
    Way("mismatch", _C.COLLECTIVE_MISMATCH, _TORCH + "one_more_element", 2),
    Way(
        "mismatch-told",
        _C.COLLECTIVE_MISMATCH,
        "export TORCH_DISTRIBUTED_DEBUG=DETAIL; " + _TORCH + "one_other_operation",
        2,
    ),
    Way("mismatch-model", _C.COLLECTIVE_MISMATCH, _TORCH + "one_other_model", 2),
    # ---------------------------------------------------------------- the network
    Way("no-name", _C.NAME_NOT_RESOLVED, _PY + "unresolved"),
    Way("no-name-plain", _C.NAME_NOT_RESOLVED, _PY + "unresolved_plainly", held=True),
    Way("refused", _C.CONNECTION_REFUSED, _PY + "refused"),
    Way("refused-plain", _C.CONNECTION_REFUSED, _PY + "refused_plainly", held=True),
    Way("no-network", _C.NETWORK_UNREACHABLE, "unshare -n " + _PY + "unreachable"),
    Way("untrusted", _C.TLS_FAILED, _PY + "untrusted"),
    Way("not-tls", _C.TLS_FAILED, _PY + "not_tls", held=True),
    Way("forbidden", _C.ACCESS_DENIED, _PY + "forbidden"),
    Way("unauthorized", _C.ACCESS_DENIED, _PY + "unauthorized", held=True),
    Way("too-often", _C.RATE_LIMITED, _PY + "too_often"),
    # ---------------------------------------------------------------- signals
    Way("crash", _C.SEGMENTATION_FAULT, _PY + "segfault"),
    Way("crash-shown", _C.SEGMENTATION_FAULT, "python -X faulthandler ways.py segfault_in_thread"),
    Way("crash-one", _C.SEGMENTATION_FAULT, _TORCH + "one_segfaults", 2),
    Way("crash-native", _C.SEGMENTATION_FAULT, "./crash", held=True),
    Way("crash-stack", _C.SEGMENTATION_FAULT, "./stack", held=True),
    Way("crash-loader", _C.SEGMENTATION_FAULT, _TORCH + "loader_segfaults", held=True),
    Way("crash-spawned", _C.SEGMENTATION_FAULT, _TORCH + "spawn_segfault"),
    Way("trap", _C.ILLEGAL_INSTRUCTION, "./ill"),
    Way("division", _C.ARITHMETIC_FAULT, "./div"),
    Way("abort", _C.ABORTED, _PY + "abort"),
    Way("abort-assert", _C.ABORTED, "./check"),
    Way("abort-exit", _C.ABORTED_AT_EXIT, "./threads"),
    Way("abort-throw", _C.ABORTED, "./throw", held=True),
    Way("abort-twice", _C.ABORTED, "./twice", held=True),
    Way("bus", _C.BUS_ERROR, _PY + "bus_by_truncation"),
    # ---------------------------------------------------------------- around the ranks
    Way("too-long", _C.TIME_LIMIT, _PY + "sleep_long", 2, how="long"),
    Way("taken-away", _C.PREEMPTED, _PY + "sleep_long", 1, 2, how="agent-term"),
    Way("lost", _C.NODE_LOST, _PY + "sleep_long", 1, 2, how="agent-kill"),
)
