"""A failed Python stays for a debugger, wherever its exception was raised; others end as ever."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from allranks.agent.launch.start_ranks import with_sitecustomize
from allranks.agent.processes import hold as holding
from allranks.agent.processes.hold import Hold
from allranks.unix_sockets import short_path
from tests.support import PATIENCE

INSIDE = Path(holding.__file__).parents[1] / "inside"


class Case(NamedTuple):
    """``secret`` is a local of the frame where it failed, with the value 42 there; ``code`` is the
    exit code that it is about to have. ``words`` come before the script's name."""

    script: str
    code: int = 1
    secret: str = "secret"
    words: tuple[str, ...] = ()


FAIL = "def fail(secret):\n    raise ValueError('no')\n"
THREADS = "import threading, sys, os, time, _thread\n" + FAIL
CASES = {
    "module level": Case("secret = 42\n1 / 0"),
    "nested functions": Case(FAIL + "def a():\n    def b():\n        fail(42)\n    b()\na()"),
    "lambda": Case("(lambda secret: 1 / 0)(42)"),
    "generator": Case("def g():\n    secret = 42\n    yield 1\n    1 / 0\nsum(g())"),
    "comprehension": Case(FAIL + "[fail(x) for x in [42]]"),
    "class body": Case("class A:\n    secret = 42\n    1 / 0"),
    "property": Case(
        "class A:\n    @property\n    def x(self):\n        secret = 42\n        1 / 0\nA().x"
    ),
    "context manager": Case(
        FAIL + "import contextlib\n@contextlib.contextmanager\ndef c():\n    yield\nwith c():\n"
        "    fail(42)"
    ),
    "decorated": Case(FAIL + "import functools\nfunctools.lru_cache(fail)(42)"),
    "recursion": Case("def f(secret):\n    f(42)\nf(42)"),
    "raise from": Case(
        "def f(secret):\n    try:\n        1 / 0\n    except Exception as e:\n"
        "        raise RuntimeError('x') from e\nf(42)"
    ),
    "exception group": Case(
        "def f(secret):\n    raise ExceptionGroup('x', [ValueError('no')])\nf(42)"
    ),
    "syntax error of an import": Case("def f(secret):\n    compile('1 +', 'x.py', 'exec')\nf(42)"),
    "below sorted": Case("def key(secret):\n    return 1 / 0\nsorted([42], key=key)"),
    "below numpy": Case(
        "import numpy\ndef f(secret):\n    return 1 / 0\n"
        "numpy.apply_along_axis(lambda a: f(42), 0, numpy.ones(3))"
    ),
    "below json": Case(
        "import json\ndef f(secret):\n    1 / 0\njson.loads('{}', object_hook=lambda d: f(42))"
    ),
    "below reduce": Case(
        "import functools\ndef f(secret, b):\n    1 / 0\nfunctools.reduce(f, [42, 2])"
    ),
    "asyncio": Case(
        FAIL + "import asyncio\nasync def a():\n    await asyncio.sleep(0)\n    fail(42)\n"
        "asyncio.run(a())"
    ),
    "thread of an executor": Case(
        FAIL + "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor() as e:\n    e.submit(fail, 42).result()"
    ),
    "thread, then exit": Case(
        THREADS + "t = threading.Thread(target=fail, args=(42,))\nt.start(); t.join(); sys.exit(3)",
        code=3,
    ),
    "thread, then interrupt": Case(
        THREADS + "threading.excepthook = (lambda h: lambda a: (h(a), _thread.interrupt_main()))"
        "(threading.excepthook)\nthreading.Thread(target=fail, args=(42,)).start()\n"
        "while True: time.sleep(0.02)"
    ),
    "os._exit in a thread": Case(
        THREADS + "def f():\n    try:\n        fail(42)\n    except ValueError:\n"
        "        os._exit(4)\nthreading.Thread(target=f).start()\ntime.sleep(60)",
        code=4,
    ),
    "sys.exit after an exception": Case(
        FAIL + "import sys\ntry:\n    fail(42)\nexcept ValueError:\n    sys.exit(5)", code=5
    ),
    "sys.exit": Case("import sys\ndef f(secret):\n    sys.exit('bad')\nf(42)"),
    "exit": Case("def f(secret):\n    exit(6)\nf(42)", code=6),
    "argparse": Case(
        "import argparse\nsecret = 42\nargparse.ArgumentParser().parse_args(['--x'])",
        code=2,
        secret="status * 21",
    ),
    "own excepthook": Case(FAIL + "import sys\nsys.excepthook = lambda *a: None\nfail(42)"),
    "module": Case(FAIL + "fail(42)", words=("-m",)),
    "handler of a signal": Case(
        "import signal, os\ndef f(number, frame):\n    secret = 42\n    1 / 0\n"
        "signal.signal(signal.SIGUSR1, f)\nos.kill(os.getpid(), signal.SIGUSR1)"
    ),
    "__del__ above": Case(
        FAIL + "class A:\n    def __enter__(s): return s\n    def __exit__"
        "(s, *a): return False\nwith A():\n    fail(42)"
    ),
}
TORCH = {
    "DataLoader's worker": Case(
        "import torch\nfrom torch.utils.data import DataLoader, Dataset\nclass D(Dataset):\n"
        "    def __len__(self): return 4\n    def __getitem__(self, i):\n        secret = 42\n"
        "        return 1 / 0\nif __name__ == '__main__':\n"
        "    for batch in DataLoader(D(), num_workers=1): pass"
    ),
    "collate function": Case(
        "import torch\nfrom torch.utils.data import DataLoader\ndef collate(x):\n"
        "    secret = 42\n    return 1 / 0\n"
        "for batch in DataLoader([1, 2], num_workers=0, collate_fn=collate): pass"
    ),
    "backward": Case(
        "import torch\nclass F(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, x): return x * 2\n    @staticmethod\n    def backward(ctx, g):\n"
        "        secret = 42\n        return 1 / 0\n"
        "F.apply(torch.ones(1, requires_grad=True)).backward()"
    ),
    "module's forward": Case(
        "import torch\nclass M(torch.nn.Module):\n    def forward(self, x):\n"
        "        secret = 42\n        return x @ torch.ones(3, 3)\nM()(torch.ones(2, 2))"
    ),
    "torch's spawn": Case(
        FAIL + "import torch.multiprocessing as mp\ndef run(rank):\n    fail(42)\n"
        "if __name__ == '__main__':\n    mp.spawn(run, nprocs=1)"
    ),
    "torchrun": Case(FAIL + "fail(42)", words=("-m", "torch.distributed.run", "--standalone")),
}


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Hold]:
    hold = Hold(tmp_path)
    yield hold
    hold.close()


@contextlib.contextmanager
def running(folder: Path, case: Case) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "script.py").write_text(case.script)
    name = "script" if case.words == ("-m",) else "script.py"
    kept = {"PATH": os.environ["PATH"], "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    env = with_sitecustomize({**kept, "ALLRANKS_HOLD": f"7:{folder / holding.FOLDER}"})
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *case.words, name],
            cwd=folder,
            env=env,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def debug(folder: Path, commands: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-I", "-S", str(INSIDE / "allranks_debug.py"), str(folder / "hold")]
    return subprocess.run(
        [*argv, "7", *words], input=commands, capture_output=True, text=True, timeout=60 * PATIENCE
    )


def first(kept: Hold) -> holding.Failed:
    assert select.select(kept.fds, [], [], 60 * PATIENCE)[0]
    failed = kept.failed()
    assert failed is not None
    return failed


def check(case: Case, kept: Hold, folder: Path) -> None:
    with running(folder, case) as process:
        failed = first(kept)
        assert (failed.rank, failed.code) == (7, case.code)
        shown = debug(folder, f"p {case.secret}\nup\nq\n")
        assert "(Pdb) 42\n" in shown.stdout, (shown, (folder / "log").read_text())
        assert shown.returncode == 0
        # Let go, it ends as it would have.
        kept.let_go()
        assert process.wait(60 * PATIENCE) == case.code


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_failure_can_be_debugged_where_it_happened(name: str, kept: Hold, tmp_path: Path):
    check(CASES[name], kept, tmp_path)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("name", TORCH)
def test_a_failure_in_torch_can_be_debugged(name: str, kept: Hold, tmp_path: Path):
    check(TORCH[name], kept, tmp_path)


@pytest.mark.parametrize(
    "words",
    ["1e400", "10000000000", "null", "NaN", '"1"', "[" * 2000, "9" * 3000, "{}", ""],
)
def test_a_bad_message_costs_only_itself(words: str, kept: Hold, tmp_path: Path):
    for request in (f'{{"rank": 0, "code": {words}}}', f'{{"rank": {words}, "code": 1}}', words):
        assert _asked(kept, request) is None
    assert _asked(kept, '{"rank": 0, "code": 3}') == (0, 3)


def _asked(kept: Hold, request: str) -> tuple[int, int] | None:
    with socket.socket(socket.AF_UNIX) as peer, short_path(kept.folder / "agent") as path:
        peer.connect(path)
        peer.sendall(request.encode() or b" ")
        failed = kept.failed()
    return None if failed is None else (failed.rank, failed.code)
