"""Why a job failed: which of several ranks, which of several lines, and when nothing is said."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allranks.core.diagnosis import tracebacks
from allranks.core.diagnosis.causes import TABLE, Cause
from allranks.core.diagnosis.explain import (
    FailedAttempt,
    RankEnd,
    as_json,
    context_lines,
    explain,
    other_ranks,
)
from allranks.statuses import Reason

NO_MODULE = """\
Traceback (most recent call last):
  File "/x/attempt-1/work/train.py", line 3, in <module>
    import nosuch
ModuleNotFoundError: No module named 'nosuch'
"""
PEER = """\
Traceback (most recent call last):
  File "/x/attempt-1/work/train.py", line 9, in <module>
    dist.all_reduce(x)
RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:52143
"""
STOPPED = RankEnd(1, 1, 143, "SIGTERM", 11.0)


def rank(index: int, text: str, at: float = 10.0, code: int = 1, start: int = 1) -> RankEnd:
    return RankEnd(index, index, code, None, at, tuple(text.splitlines()), start)


def known(
    *ranks: RankEnd, reason: Reason = Reason.RANK_EXITED, first: int = 0, **more
) -> FailedAttempt:
    return FailedAttempt(reason, first, first, ranks=ranks, **more)


def cause(text: str, code: int = 1, **more) -> Cause:
    return explain(known(rank(0, text, code=code), **more)).cause


def test_every_cause_says_everything():
    assert set(TABLE) == set(Cause)
    for each in TABLE.values():
        assert each.sentence
        assert each.fix


def test_a_cause_has_its_line_and_its_place():
    found = explain(known(rank(0, "hello\n" + NO_MODULE, start=5)))
    assert found.cause is Cause.MODULE_MISSING
    evidence = found.evidence
    assert evidence is not None
    assert (evidence.rank, evidence.number, evidence.where) == (0, 9, "train.py:3")
    assert evidence.line == "ModuleNotFoundError: No module named 'nosuch'"
    assert "`nosuch` is not installed" in found.fix
    assert (
        "/opt/python"
        in explain(known(rank(0, NO_MODULE), facts={0: {"python": "/opt/python"}})).fix
    )


def test_output_that_came_late_through_a_pipe_is_no_work_of_the_program():
    text = NO_MODULE + "epoch 1 loss 0.5\nepoch 2 loss 0.4\n"
    assert cause(text) is Cause.UNKNOWN
    piped = rank(0, text)._replace(behind_pipe=True)
    assert explain(known(piped)).cause is Cause.MODULE_MISSING
    assert explain(known(piped._replace(code=3))).cause is Cause.UNKNOWN
    caught = piped._replace(lines=tuple(text.replace("<module>", "load").splitlines()))
    assert explain(known(caught)).cause is Cause.UNKNOWN


def test_an_echo_is_explained_by_the_rank_behind_it():
    echo, true = rank(0, PEER, 10.0), rank(1, NO_MODULE, 10.2)
    found = explain(known(echo, true))
    assert (found.cause, found.evidence.rank) == (Cause.MODULE_MISSING, 1)
    # Also when that one was stopped on its way out.
    stopped = STOPPED._replace(lines=tuple(NO_MODULE.splitlines()))
    assert explain(known(echo, stopped)).cause is Cause.MODULE_MISSING
    # Alone it is what it says.
    assert explain(known(echo, STOPPED)).cause is Cause.PEER_LOST


def test_the_first_failure_beats_later_ones():
    head = 'Traceback (most recent call last):\n  File "a", line 1, in f\n    x\n'
    first, later = rank(0, head + "KeyError: 'x'"), rank(1, NO_MODULE, 10.1)
    assert explain(known(first, later)).cause is Cause.SCRIPT_EXCEPTION


@pytest.mark.parametrize(
    ("said", "is_"),
    [
        ("AssertionError: loss is not nan-safe; feature disabled", Cause.ASSERTION),
        ("AssertionError: loss is nan at step 3", Cause.NAN_LOSS),
        ("MemoryError: replay memory is empty: collect first", Cause.SCRIPT_EXCEPTION),
        ("MemoryError", Cause.MEMORY_REFUSED),
        ("MemoryError: Unable to allocate 3.1 TiB for an array", Cause.MEMORY_REFUSED),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7 GiB", "MEMORY_REFUSED"),
    ],
)
def test_words_that_only_sound_like_it(said: str, is_: str):
    head = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\n'
    assert cause(head + said) == is_


def test_a_module_whose_package_is_there():
    text = NO_MODULE.replace("nosuch", "utils.metrics")
    fix = explain(known(rank(0, text))).fix
    assert "`utils` is installed but has no `metrics`" in fix


def test_whom_the_launcher_stopped_did_not_fail():
    """Open MPI ends the others when one leaves without a word, and fails itself: no rank did."""
    stopped = RankEnd(1, 1, 143, "SIGTERM", 10.0)
    left = RankEnd(0, 0, 0, None, 9.9)
    assert explain(FailedAttempt(Reason.RANK_EXITED, ranks=(left, stopped))).cause is Cause.UNKNOWN
    named = FailedAttempt(Reason.RANK_KILLED, rank=1, ranks=(left, stopped))
    assert explain(named).cause is Cause.TERMINATED


def test_last_words_that_no_log_had_room_for():
    silent, full = rank(0, "step 128"), {0: {"disk_free": 4096, "shm_free": 1 << 30}}
    found = explain(known(silent, facts=full))
    assert (found.cause, found.evidence.line) == (
        Cause.DISK_FULL,
        "exited with code 1 while the disk of its log had 4096 bytes free",
    )
    assert explain(known(rank(0, NO_MODULE), facts=full)).cause is Cause.MODULE_MISSING
    room = {0: {"disk_free": 1 << 30}}
    assert explain(known(silent, facts=room)).cause is Cause.UNKNOWN


def test_what_a_program_survived_says_nothing():
    went_on = "".join(f"step {n}\n" for n in range(40))
    assert cause(NO_MODULE + went_on) is Cause.UNKNOWN
    assert cause(NO_MODULE, code=3) is Cause.MODULE_MISSING
    assert cause(NO_MODULE + "another word\n", code=3) is Cause.UNKNOWN
    assert cause(NO_MODULE + "\nERROR: the configuration is odd\n") is Cause.UNKNOWN
    assert cause("Exception in thread Thread-1:\n" + NO_MODULE) is Cause.UNKNOWN
    killed = RankEnd(0, 0, 137, "SIGKILL", 10.0, tuple(NO_MODULE.splitlines()))
    assert explain(known(killed, reason=Reason.RANK_KILLED)).cause is Cause.KILLED


def test_who_went_on_after_an_error_of_one_line_survived_it():
    usage = "python -m tool: error: unrecognized arguments: --fast\n"
    for survived, code in ((NO_MODULE, 1), (usage, 2)):
        assert cause(survived + "train\n", code=code) is Cause.UNKNOWN
        for over in ("", "training ended with exit code 1\n", "Sun Nov 22 14:12:08 UTC 2026\n"):
            assert cause(survived + over, code=code) is not Cause.UNKNOWN


def test_a_rank_that_leaves_without_a_word_is_not_explained_by_what_it_left_behind():
    """The others are told to stop then, and what they do of that is their answer."""
    assert explain(known(rank(0, "gate failed", code=6), rank(1, NO_MODULE, 10.1))).cause is (
        Cause.UNKNOWN
    )


def test_an_interrupt_that_ended_no_python_was_a_childs():
    text = NO_MODULE.replace("ModuleNotFoundError: No module named 'nosuch'", "KeyboardInterrupt")
    assert cause(text) is Cause.UNKNOWN


def test_an_interrupt_is_called_what_it_was():
    """Ctrl-C's signal, from a process itself, or through a shell that ends with its code."""
    text = NO_MODULE.replace("ModuleNotFoundError: No module named 'nosuch'", "KeyboardInterrupt")
    ended = RankEnd(0, 0, 130, "SIGINT", 10.0, tuple(text.splitlines()))
    for attempt in (known(ended, reason=Reason.RANK_KILLED), known(rank(0, text, code=130))):
        explanation = explain(attempt)
        assert explanation.cause is Cause.TERMINATED
        assert "ended by SIGINT" in explanation.sentence
        assert "SIGTERM" not in explanation.sentence


def test_a_program_at_work_is_no_message():
    damaged = NO_MODULE.replace(
        "ModuleNotFoundError: No", "RuntimeError: PytorchStreamReader failed"
    )
    assert cause(damaged + "in the middle\n") is Cause.CHECKPOINT_DAMAGED
    for went_on in ("Epoch 1\n", "  falling back to the first\nstarting over\n", "step 3 loss 1\n"):
        assert cause(damaged + went_on) is Cause.UNKNOWN


def test_messages_of_several_lines_are_whole():
    numpy = "AttributeError: module 'numpy' has no attribute 'float'.\n`np.float` was an alias.\n"
    head = NO_MODULE[: NO_MODULE.index("ModuleNotFound")]
    assert cause(head + numpy + "The aliases were deprecated:\n    https://x\n") is (
        Cause.SCRIPT_EXCEPTION
    )
    pydantic = "pydantic_core._pydantic_core.ValidationError: 1 validation error for C\nbatch\n"
    told = "  Input should be a number\n    For further information visit https://x\n"
    assert cause(head + pydantic + told) is Cause.SCRIPT_EXCEPTION


def test_what_a_program_tells_at_work_is_no_noise():
    for line in ("mean return: 3.5", "clean accuracy 0.9", "GET /v1 status 200", "Cleaned 3 rows"):
        assert cause(NO_MODULE + line + "\n", code=3) is Cause.UNKNOWN, line


def test_torchruns_root_cause_is_read_at_once_whatever_stands_there():
    head = NO_MODULE[: NO_MODULE.index("ModuleNotFound")]
    child = head + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    table = (
        "Root Cause (first):\n[0]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : -9 (pid: 3)\n"
    )
    assert cause(child + "=====\n" + table + "=====\n") is Cause.KILLED
    hostile = "\n".join([" Root Cause rank: 1" * 104] * 60)
    assert cause(child + hostile) in (Cause.UNKNOWN, Cause.SCRIPT_EXCEPTION)


def test_one_of_a_group_is_quoted_without_its_frame():
    head = '    | Traceback (most recent call last):\n    |   File "t.py", line 3, in a\n'
    group = f"{head}    |     open('x')\n    | FileNotFoundError: [Errno 2] No such file\n"
    found = explain(known(rank(0, group + "    +------------------------------------\n")))
    assert (found.cause, found.evidence.line) == (
        Cause.FILE_MISSING,
        "FileNotFoundError: [Errno 2] No such file",
    )


def test_what_a_program_caught_is_no_cause():
    """Neither of one that then said itself why it gives up, nor of one that was stopped."""
    text = 'Traceback (most recent call last):\n  File "t.py", line 3, in {}\n    f()\n{}\n'
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    in_main, in_step = (text.format(where, oom) for where in ("<module>", "step"))
    low = "accuracy 0.9 not reached: 0.81\n"
    assert cause(in_step + low) is Cause.UNKNOWN
    assert cause(in_main + "\n" + low) is Cause.UNKNOWN
    for went_on in ("epoch 2 loss 0.3\n", "epoch 2\nepoch 3\n"):
        assert cause("epoch 1\n" + in_main + went_on + low) is Cause.UNKNOWN
    # The rest of its message, and what was said on the way out.
    assert cause("epoch 1\n" + in_main + "closing the writer\n") is Cause.CUDA_OUT_OF_MEMORY
    assert cause("epoch 1\n" + in_step) is Cause.CUDA_OUT_OF_MEMORY
    hydra = "\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
    assert cause(in_step + hydra) is Cause.CUDA_OUT_OF_MEMORY
    bar = "Epoch 1:  10%|#   | {}/20 [00:07<00:09,  1.2it/s]"
    drawn = bar.format(2) + in_main + bar
    assert cause(drawn.format(2)) is Cause.CUDA_OUT_OF_MEMORY
    assert cause(drawn.format(3)) is Cause.UNKNOWN
    silent = rank(0, "bad config: lr missing")
    for survived in (in_main + "epoch 1 loss 3\n", in_step):
        stopped = STOPPED._replace(lines=tuple(survived.splitlines()))
        assert explain(known(silent, stopped)).cause is Cause.UNKNOWN


def test_a_chain_is_as_old_as_it_is_one_failure():
    head = 'Traceback (most recent call last):\n  File "/w/train.py", line {}, in {}\n    {}\n{}\n'
    caught = head.format(2, "main", "open(p)", "FileNotFoundError: [Errno 2] No such file: 'p'")
    during = "\nDuring handling of the above exception, another exception occurred:\n\n"
    again = head.format(4, "main", "raise ValueError('x')", "ValueError: x")
    other = head.format(4, "main", "1 / 0", "ZeroDivisionError: division by zero")
    assert cause(caught + during + again) is Cause.FILE_MISSING
    assert cause(caught + during + other) is Cause.SCRIPT_EXCEPTION


def test_what_was_said_long_before_the_end_is_not_said_last():
    argument = "helper.py: error: unrecognized arguments: --x\n"
    went_on = "".join(f"epoch {n} loss 1\n" for n in range(35))
    assert cause(argument, code=2) is Cause.BAD_ARGUMENT
    assert cause(argument + went_on, code=2) is Cause.UNKNOWN
    assert cause(argument + "srun: error: x: task 0: Exited with exit code 2\n" * 9, code=2) is (
        Cause.BAD_ARGUMENT
    )


def test_a_script_of_the_shell_tells_its_name():
    for shell in ("run.sh: line 3:", "./my/run.sh: line 3:", "bash: line 1:", "/bin/sh: 1:"):
        assert cause(f"{shell} foo: command not found", code=127) is Cause.COMMAND_NOT_FOUND
        assert cause(f"{shell} ./foo: Permission denied", code=126) is Cause.NOT_EXECUTABLE


def test_a_shell_that_reads_a_script_with_windows_lines():
    blank = "run.sh: line 4: $'\\r': command not found\n"
    for line, code in (
        ("run.sh: line 10: syntax error: unexpected end of file\n", 2),
        ("run.sh: line 9: $'--name x\\r': command not found\n", 127),
    ):
        assert "sed -i 's/\\r$//' run.sh" in fix(f"start 1\n{blank}{line}", code=code)
    token = "run.sh: line 1: syntax error near unexpected token `$'do\\r''\n"
    assert "Windows" in fix(token + "run.sh: line 1: `for i in 1; do\n", code=2)
    # It was read to its end, and something else failed.
    head = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    x()\n'
    assert cause(f"{blank}{head}ValueError: x\n") is Cause.SCRIPT_EXCEPTION
    assert "Windows" not in fix("run.sh: line 10: syntax error: unexpected end of file\n", code=2)


def test_a_job_file_is_no_program() -> None:
    told = fix("/bin/bash: line 1: job.yml: command not found\n", code=127)
    assert "`allranks run -f job.yml`" in told


def test_an_option_on_a_line_of_its_own_is_no_program_to_install():
    told = fix("/bin/bash: line 2: --lr: command not found\n", code=127)
    assert "end the line before it with `\\`" in told
    assert "command: >" in told


def test_two_ranks_that_make_one_database():
    """MLflow without a server; SQLAlchemy prints what it sent, and a link, twice."""
    head = 'Traceback (most recent call last):\n  File "m.py", line {}, in <module>\n    x()\n'
    text = "rank 1 ERR duplicate column name: a\n(Background on this error at: https://x)\n"
    text += head.format(1) + "sqlite3.OperationalError: duplicate column name: a\n\n"
    text += "The above exception was the direct cause of the following exception:\n\n"
    text += head.format(2)
    text += "sqlalchemy.exc.OperationalError: (sqlite3.OperationalError) duplicate column name: a\n"
    text += "[SQL: ALTER TABLE t ADD COLUMN a]\n(Background on this error at: https://x)\n"
    found = explain(known(rank(1, text)))
    assert found.cause is Cause.SCRIPT_EXCEPTION
    assert "several ranks made the same SQLite database" in found.fix


def test_a_traceback_of_ipython_names_its_exception():
    """Notebooks run as scripts, `ultratb`, papermill: colours are taken off before."""
    text = (
        "----------------\nmy.BadLabel                  Traceback (most recent call last)\n"
        "File ~/w/train.py:12, in main(a, b)\n     10 x\n---> 12 load(d)\n     13 \n\n"
        "File ~/w/data.py:4, in load(d)\n----> 4 raise BadLabel(d)\n\nBadLabel: bad label 17\n"
    )
    explained = explain(known(rank(0, text)))
    assert explained.cause is Cause.SCRIPT_EXCEPTION
    assert (explained.exception, explained.evidence.where) == ("BadLabel", "~/w/data.py:4")
    old = (
        "ValueError     Traceback (most recent call last)\ntrain.py in <module>\nValueError: bad\n"
    )
    assert explain(known(rank(0, old))).exception == "ValueError"
    head = text.splitlines()[1]
    assert cause(f"{head}\nValueError: another\n") is Cause.UNKNOWN
    began = time.process_time()
    assert cause(f"{head}\n" * 9_999) is Cause.UNKNOWN
    assert time.process_time() - began < 4.0  # it took 15 s


def fix(text: str, code: int = 1) -> str:
    return explain(known(rank(0, text, code=code))).fix


def test_a_line_in_one_quoted_word_is_no_program_to_install():
    words = ("echo hi $RANK", "python src/train.py", "./run.sh --lr 1", "torchrun -m a.b")
    words += ("./run.sh config.yml", "./train --data /data", "./train lr=1")
    for word in words:
        for said in ("command not found", "No such file or directory"):
            told = fix(f"/bin/bash: line 1: {word}: {said}\n", code=127)
            assert told.startswith(f"`{word}` is one quoted word, and")
            assert "leave out the quotes, or write `bash -c '…'`" in told
    for path in ("train", "/opt/my tools/train", "./run me.sh", "/opt/my tools - new/train"):
        told = fix(f"/bin/bash: line 1: {path}: No such file or directory\n", code=127)
        assert "install it, or give its full path" in told
    for said in ("cd: /data", "source: env.sh", "pushd: /my data", "cd: lr=1/a.sh -x"):
        line = f"bash: line 3: {said}: No such file or directory\n"
        assert cause(line, code=127) is cause(line, code=1) is Cause.FILE_MISSING
        assert "quote" not in fix(line, code=127)


NO_VARIABLE = """\
Traceback (most recent call last):
  File "/x/attempt-1/work/train.py", line 2, in <module>
    print(os.environ["{0}"])
          ~~~~~~~~~~^^^^^^^^
  File "{1}", line 679, in __getitem__
{2}KeyError: '{0}'
"""
NO_RANK_IN_TORCH = """\
Traceback (most recent call last):
  File "/x/attempt-1/work/t.py", line 2, in <module>
    d.init_process_group("gloo")
  File "/v/lib/python3.11/site-packages/torch/distributed/rendezvous.py", line 254, in _env
    raise _env_error(env_var)
ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable \
RANK expected, but not set
"""


def test_a_variable_of_distributed_jobs_comes_with_its_distribution():
    old = ("/usr/lib/python3.10/os.py", "    raise KeyError(key) from None\n")
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        for file, source in (("<frozen os>", ""), old):
            assert fix(NO_VARIABLE.format(name, file, source)).startswith(
                "`-d pytorch` (in a job file: `distribution: {type: pytorch}`) sets " + name
            )
    assert "sets RANK, also for one rank" in fix(NO_RANK_IN_TORCH)
    assert "job restart JOB --set distribution.type=pytorch" in fix(NO_RANK_IN_TORCH)
    read = NO_MODULE.replace("import nosuch", 'rank = int(os.getenv("RANK"))').replace(
        "ModuleNotFoundError: No module named 'nosuch'",
        "TypeError: int() argument must be a string, a bytes-like object or a real number, not "
        "'NoneType'",
    )
    assert fix(read).startswith("`-d pytorch` sets the variable that this line reads")
    assert "-d" not in fix(read.replace("RANK", "EPOCHS"))
    assert "-d" not in fix(NO_VARIABLE.format("DATA", "<frozen os>", ""))
    # A dictionary of the script's own.
    assert "-d" not in fix(NO_VARIABLE.format("RANK", "/x/attempt-1/work/own.py", ""))


def test_a_variable_of_mlflow_comes_with_a_server_that_has_it():
    assert "`allranks[mlflow]`" in fix(NO_VARIABLE.format("MLFLOW_RUN_ID", "<frozen os>", ""))
    unset = NO_MODULE.replace("import nosuch", 'os.environ["MLFLOW_RUN_ID"] = RUN').replace(
        "ModuleNotFoundError: No module named 'nosuch'", "TypeError: str expected, not NoneType"
    )
    assert fix(unset).startswith("jobs get this variable from a server that has MLflow")
    assert "mlflow" not in fix(unset.replace("MLFLOW_RUN_ID", "EPOCHS"))


def test_a_name_that_numpy_has_removed():
    removed = NO_MODULE.replace("import nosuch", "x = np.float(best)").replace(
        "ModuleNotFoundError: No module named 'nosuch'",
        "AttributeError: module 'numpy' has no attribute 'float'.\n`np.float` was a deprecated "
        "alias for the builtin `float`.",
    )
    assert fix(removed).startswith("NumPy 1.24 has removed `np.float`: install `numpy<1.24`")
    assert "1.24" not in fix(removed.replace("attribute 'float'", "attribute 'floaty'"))


def test_what_a_shell_or_tool_could_not_open():
    missing, code = Cause.FILE_MISSING, 127
    assert cause("bash: nope.sh: No such file or directory\n", code=code) is missing
    assert cause("/bin/bash: a b.sh: No such file or directory\n", code=code) is missing
    assert cause("bash: /opt/app/train: No such file or directory\n", code=code) is missing
    assert cause("sh: 0: cannot open nope.sh: No such file\n", code=2) is missing
    for said in ("cat: /x", "run.sh: line 3: /x", "bash: line 1: /x", "/bin/sh: 1: /x"):
        assert cause(f"{said}: No such file or directory\n", code=1) is missing
        assert cause(f"{said}: Permission denied\n", code=1) is Cause.PERMISSION_DENIED
        assert cause(f"{said}: Read-only file system\n", code=1) is Cause.READ_ONLY_DISK
        # It went on, or ended otherwise.
        for rest, code in (("then more\n", 1), ("", 3)):
            said_last = f"{said}: No such file or directory\n{rest}"
            assert cause(said_last, code=code) is Cause.UNKNOWN
    for asked in ("cat: /proc/driver/x", "run.sh: line 3: /dev/tty", "a.yaml: line 12: include /x"):
        assert cause(f"{asked}: No such file or directory\n", code=1) is Cause.UNKNOWN
    limit = "bash: line 1: ulimit: open files: cannot modify limit: Permission denied\n"
    assert cause(limit, code=1) is Cause.UNKNOWN
    denied = "sh: 0: cannot open nope.sh: Permission denied\n"
    assert cause(denied, code=2) is Cause.PERMISSION_DENIED
    locale = "bash: warning: setlocale: cannot change locale (x): No such file or directory\n"
    assert cause(f"{locale}working\n", code=127) is Cause.UNKNOWN


# Texts of the projects themselves, for want of a GPU where this was made.
GPU = (
    (
        Cause.CUDA_OUT_OF_MEMORY,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00",
    ),
    (Cause.CUDA_OUT_OF_MEMORY, "RuntimeError: CUDA error: out of memory"),
    (Cause.DEVICE_ASSERT, "torch.AcceleratorError: CUDA error: device-side assert triggered"),
    (Cause.NO_KERNEL_IMAGE, "RuntimeError: CUDA error: no kernel image is available for execution"),
    (
        Cause.ILLEGAL_GPU_ACCESS,
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
    (Cause.GPU_FAULT, "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    (Cause.NO_CUDA, "RuntimeError: CUDA error: invalid device ordinal"),
    (Cause.DRIVER_TOO_OLD, "RuntimeError: The NVIDIA driver on your system is too old (found 1)."),
    (Cause.NO_CUDA, "AssertionError: Torch not compiled with CUDA enabled"),
    (
        Cause.NCCL_ERROR,
        "torch.distributed.DistBackendError: NCCL error in: ../csrc/distributed/c10d/NCCLUtils"
        ".hpp:219, unhandled system error (run with NCCL_DEBUG=INFO for details)",
    ),
    (
        Cause.PEER_LOST,
        "torch.distributed.DistBackendError: NCCL error in: ../x.cpp:1, remote process exited or "
        "there was a network error, NCCL version 2.18.1",
    ),
    (
        Cause.PEER_LOST,
        "torch.distributed.DistBackendError: NCCL error in: ../x.cpp:1, internal error, NCCL "
        "2.14\nncclInternalError: Internal check failed.\nLast error:\nNet : Connection closed by "
        "remote peer host<50260>",
    ),
    (
        Cause.NCCL_ERROR,
        "torch.distributed.DistBackendError: NCCL error in: ../x.hpp:268, invalid usage\n"
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
        "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 10",
    ),
    (
        Cause.ACCESS_DENIED,
        "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: R",
    ),
    (Cause.LIBRARY_MISSING, "ImportError: /lib/libstdc++.so.6: version `GLIBCXX_3.4.29' not found"),
)


def test_texts_of_gpus():
    for true, text in GPU:
        head = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    x()\n'
        assert cause(head + text) is true, text


def test_an_abort_takes_its_exception_along():
    oom = (
        'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    x()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  NCCL watchdog thread terminated\n"
    )
    aborted = RankEnd(0, 0, 134, "SIGABRT", 10.0, tuple(oom.splitlines()))
    assert explain(known(aborted, reason=Reason.RANK_KILLED)).cause is Cause.CUDA_OUT_OF_MEMORY


@pytest.mark.parametrize("raised", [True, False])
def test_a_thread_left_at_exit(raised: bool):
    """gloo's threads, seldom: only the exit aborts, not what was before."""
    lines = ["epoch 4 loss 0.1"]
    if raised:
        lines += ["Traceback (most recent call last):", '  File "t.py", line 1, in <module>']
        lines += ["    x()", "RuntimeError: a crash"]
    lines += ["terminate called without an active exception"]
    found = explain(known(RankEnd(0, 0, 134, "SIGABRT", 10.0, tuple(lines))))
    assert found.cause is (Cause.SCRIPT_EXCEPTION if raised else Cause.ABORTED_AT_EXIT)
    assert raised or found.sentence.startswith("the script had ended")
    assert raised or "destroy_process_group" in found.fix


def test_an_abort_for_another_reason_does_not():
    lines = ("CUDA out of memory, trying a smaller batch", "free(): invalid pointer")
    aborted = RankEnd(0, 0, 134, "SIGABRT", 10.0, lines)
    found = explain(known(aborted, reason=Reason.RANK_KILLED))
    assert (found.cause, found.evidence.line) == (Cause.ABORTED, lines[1])


def test_the_kernels_word_is_the_evidence():
    line = "Memory cgroup out of memory: Killed process 42 (python)"
    end = RankEnd(0, 0, 137, "SIGKILL", 10.0)
    facts = {0: {"oom_kills": 1, "oom_line": line}}
    found = explain(known(end, reason=Reason.OUT_OF_MEMORY, facts=facts))
    assert found.cause is Cause.OUT_OF_MEMORY
    assert found.evidence.line == line
    # Who may not read the kernel's log has its count.
    blind = explain(known(end, reason=Reason.OUT_OF_MEMORY, facts={0: {"oom_kills": 2}}))
    assert "kernel counted at that time: 2" in blind.evidence.line


def test_what_is_around_the_ranks_is_told_by_the_reason():
    for reason in Reason:
        if reason not in (Reason.DONE, Reason.CANCELED):
            assert explain(FailedAttempt(reason, message="why")).cause in Cause
    full = FailedAttempt(Reason.SETUP_FAILED, message="No space left on device: /x")
    assert explain(full).cause is Cause.DISK_FULL


def test_what_followed_and_what_stands_around():
    made = known(rank(0, "one\n" + NO_MODULE), rank(1, PEER, 10.1), STOPPED._replace(rank=2))
    found = explain(made)
    said = [each.said for each in other_ranks(made, found)]
    assert said[0].startswith("exited with code 1: RuntimeError: [../gloo")
    assert said[1] == "was stopped"
    assert context_lines(made, found)[1][-1].startswith("ModuleNotFoundError")
    evidence = as_json(found, lambda node: f"host-{node}")["evidence"]
    assert evidence is not None
    assert evidence["number"] == 5
    assert evidence["host"] == f"host-{evidence['node']}"
    assert "at" not in evidence


def test_no_blank_lines_follow_the_line_of_the_cause():
    made = known(rank(0, NO_MODULE + "\n\n\n"))
    assert context_lines(made, explain(made))[1][-1].startswith("ModuleNotFoundError")


def test_an_unknown_cause_comes_with_the_last_lines_of_the_rank_that_failed_first():
    made = known(rank(0, "fine\n\n", 10.1), rank(1, "line\n" * 99 + "sums differ\n\n"), first=1)
    found = explain(made)
    assert found.cause is Cause.UNKNOWN
    number, lines = context_lines(made, found)
    assert (number, len(lines), lines[-1]) == (1, 12, "sums differ")


WORDS = st.sampled_from(
    [
        "CUDA out of memory",
        "Killed",
        "No space left on device",
        "Address already in use",
        "Error:",
        "Connection closed by peer",
        "NaN loss",
        "ModuleNotFoundError",
        "Traceback",
        "usage: x",
        ":",
        "ValueError: loss is nan",
        "FileNotFoundError: [Errno 2]",
        "Segmentation fault",
        "\n",
        " ",
        "error: unrecognized arguments: --x",
    ]
)


@given(st.lists(st.one_of(st.text(), WORDS)), st.sampled_from([1, 3, 7, 134, 255]))
def test_random_text_has_no_cause(parts: list[str], code: int):
    assert cause(" ".join(parts), code=code) in (Cause.UNKNOWN, Cause.SCRIPT_EXCEPTION)


_HEAD = "Traceback (most recent call last):"
_PARTS = [
    _HEAD,
    '  File "x.py", line 3, in f',
    "    f()",
    "    ^^^",
    "ValueError: a",
    "KeyError",
    "",
    "During handling of the above exception, another exception occurred:",
    "  + Exception Group " + _HEAD,
    "  | OSError: b",
    "  +-+---------------- 1 ----------------",
    f"[rank0]: {_HEAD}",
    '[rank0]:   File "y.py", line 1, in <module>',
    "[rank0]: OSError: b",
    "step 3, loss 0.1",
]


@example([_HEAD, *_PARTS[11:14]])
@given(st.lists(st.one_of(st.sampled_from(_PARTS), st.text(max_size=20)), max_size=30))
def test_any_text_is_read(parts: list[str]):
    """What is read is where it says, and no text before a traceback hides it."""
    lines = "\n".join(parts).splitlines()
    for each in tracebacks.raised(lines):
        assert 0 <= each.at <= each.end < len(lines)
        assert each.name in lines[each.at]
    end = [_HEAD, '  File "train.py", line 7, in <module>', "    main()", "RuntimeError: last"]
    (*_, last) = tracebacks.raised([*lines, "", *end])
    assert (last.name, last.text, last.at) == ("RuntimeError", "last", len(lines) + 4)
    assert last.frames[-1].line == 7
