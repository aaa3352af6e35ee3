"""Ranks that start warm behave as those that start cold."""

import contextlib
import ctypes
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.agent import programs
from allranks.agent.launch import warm_ranks
from allranks.agent.launch.start_ranks import with_sitecustomize
from allranks.agent.launch.warm_ranks import Where
from allranks.agent.processes import hold as holding
from allranks.agent.processes import keeper
from allranks.agent.processes.ranks import SHELL, Ended, Process, Running
from allranks.core.environments.warm_start import Cold
from allranks.core.plan import Task
from allranks.engines.local import warm_processes
from tests.agent.launch.warm_scripts import SCRIPTS
from tests.support import until

MODULES = (
    "argparse",
    "dataclasses",
    "multiprocessing.pool",
    "numpy",
    "pickle",
    "logging",
    "tempfile",
)
MODULES += ("random", "concurrent.futures", "asyncio", "inspect", "ctypes", "warnings", "runpy")


class Node:
    """Starts ranks as an agent does, from servers that live as long as the test's module."""

    def __init__(self, folder: Path, modules: tuple[str, ...] = MODULES) -> None:
        self.folder, self.modules, self.attempt = folder, modules, folder / "attempt"
        self.said: list[str] = []
        # A folder with a blank, a quote, and more than a socket's path may have.
        self.agent = folder / ("it's a long name " + "x" * 120)
        self.agent.mkdir()

    def env(self, cwd: Path) -> dict[str, str]:
        folders = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        named = {"HOME": str(cwd), "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "RANK": "3"}
        return {"PATH": folders, **named}

    def wait(self, fd: int | None = None, seconds: float | None = None) -> None:
        select.select([] if fd is None else [fd], [], [], 60 if seconds is None else seconds)

    def open(self, command: str, cwd: Path, **env: str) -> warm_ranks.WarmRanks:
        task = Task("j", "e", command, warm=self.modules)
        where = Where(self.agent, self.attempt, cwd)
        return warm_ranks.prepare(
            task, command, self.whole(cwd, **env), where, self.wait, self.said.append
        )

    def warm(self, command: str, cwd: Path, **env: str) -> tuple[bytes, Ended]:
        ranks = self.open(command, cwd, **env)
        with contextlib.closing(ranks):
            running, process = Running(), Process("rank 3", cwd.with_suffix(".log"), 3)
            ranks.start(running, process, command, cwd, self.whole(cwd, **env))
            return _finish(running, process)

    def cold(self, command: str, cwd: Path, **env: str) -> tuple[bytes, Ended]:
        running, process = Running(), Process("rank 3", cwd.with_suffix(".log"), 3)
        running.start(process, [SHELL, "-c", command], cwd, self.whole(cwd, **env))
        return _finish(running, process)

    def whole(self, cwd: Path, **env: str) -> dict[str, str]:
        return with_sitecustomize(self.env(cwd) | env)


def _finish(running: Running, process: Process) -> tuple[bytes, Ended]:
    ended: list[Ended] = []
    until(lambda: ended.extend(running.reap()) or ended)
    return process.log.read_bytes(), ended[0]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    yield node
    end_servers(node)


def end_servers(node: Node) -> None:
    warm_processes.end(node.agent / "warm")
    until(lambda: not warm_processes.pids(node.agent / "warm"))
    keeper.children_left()  # reaps
    keeper.SPARED.clear()


def lay_out(cwd: Path, files: dict[str, str]) -> None:
    shutil.rmtree(cwd, ignore_errors=True)
    for path, text in files.items():
        (cwd / path).parent.mkdir(parents=True, exist_ok=True)
        (cwd / path).write_text(text)
    if "real/t.py" in files:
        (cwd / "link.py").symlink_to("real/t.py")


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_warm_rank_shows_what_a_cold_one_shows(name: str, node: Node, tmp_path: Path):
    compare(node, *SCRIPTS[name], tmp_path)


@pytest.mark.slow
def test_a_warm_rank_that_fails_waits_for_a_debugger(node: Node, tmp_path: Path):
    cwd = tmp_path / "work"
    lay_out(cwd, {"t.py": "secret = 42\n1 / 0\n"})
    env = {"ALLRANKS_HOLD": f"3:{tmp_path / holding.FOLDER}"}
    hold, ranks = holding.Hold(tmp_path), node.open("python t.py", cwd)
    with contextlib.closing(hold), contextlib.closing(ranks):
        running, process = Running(), Process("rank 3", cwd.with_suffix(".log"), 3)
        ranks.start(running, process, "python t.py", cwd, node.whole(cwd, **env))
        until(lambda: select.select(hold.fds, [], [], 0)[0])
        failed = hold.failed()
        assert failed is not None
        assert (failed.rank, failed.code) == (3, 1)
        assert json.loads((hold.folder / f"{failed.pid}.json").read_text())["rank"] == 3
        hold.let_go()
        output, ended = _finish(running, process)
    assert ended.code == 1
    assert b"ZeroDivisionError" in output


def compare(node: Node, command: str, files: dict[str, str], tmp_path: Path) -> str:
    """Run it cold and warm, and compare all that can be seen. Return the output."""
    cwd = tmp_path / "work"
    lay_out(cwd, files)
    output, ended = node.cold(command, cwd)
    cold_files = written(cwd)
    shutil.rmtree(cwd)
    (tmp_path / "work.log").unlink()
    lay_out(cwd, files)
    warm_output, warm_ended = node.warm(command, cwd)
    assert steady(warm_output) == steady(output)
    assert (warm_ended.code, warm_ended.signal) == (ended.code, ended.signal)
    assert written(cwd) == cold_files
    return steady(output)


def written(cwd: Path) -> dict[str, str]:
    """The files below a folder, with the text of those that scripts wrote as text."""
    found = (each for each in sorted(cwd.rglob("*")) if "__pycache__" not in str(each))
    return {str(each): each.read_text() if each.suffix == ".txt" else "" for each in found}


def steady(output: bytes) -> str:
    """Without addresses and process ids."""
    return re.sub(r"0x[0-9a-f]+|(?<=Process-)\d+", "…", output.decode(errors="backslashreplace"))


# ---------------------------------------------------------------- torch

_DDP = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
print(torch.get_num_threads(), torch.manual_seed(5).initial_seed())
store = "file://" + os.path.abspath("store")
dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(5):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).pow(2).sum().backward()
    optimizer.step()
print([each.detach() for each in model.parameters()])
dist.destroy_process_group()
"""
_LOADER = """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, at): return torch.full((2,), at), torch.utils.data.get_worker_info().id
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        options = {"num_workers": 2, "multiprocessing_context": method}
        print([each for each in torch.utils.data.DataLoader(Data(), 2, **options)])
"""
_COMPUTE = """
import torch
torch.manual_seed(1)
a = torch.randn(256, 256)
print((a @ a).sum(), torch.fft.fft(a).abs().mean(), torch.linalg.svdvals(a)[:3])
torch.save({"a": a}, "a.pt"); print(torch.load("a.pt")["a"].equal(a))
"""


@pytest.fixture(scope="module")
def torch_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("torch"), ("torch",))
    yield node
    end_servers(node)


@pytest.mark.torch
@pytest.mark.parametrize("script", [_DDP, _LOADER, _COMPUTE], ids=["ddp", "loader", "compute"])
def test_torch_computes_the_same(script: str, torch_node: Node, tmp_path: Path):
    assert "Traceback" not in compare(torch_node, "python s.py", {"s.py": script}, tmp_path)


@pytest.mark.torch
def test_each_rank_has_its_own_random_numbers(torch_node: Node, tmp_path: Path):
    draw = "import random, numpy, torch, uuid\n"
    draw += "for each in random.random(), numpy.random.rand(), torch.rand(1).item(): print(each)"
    lay_out(tmp_path / "w", {"s.py": draw})
    drawn = [torch_node.warm("python s.py", tmp_path / "w")[0] for _ in range(3)]
    lines = drawn[-1].splitlines()
    assert len(lines) == len({*lines}) == 9


@pytest.mark.torch
def test_what_torch_imports_later_is_there_for_the_next_rank(torch_node: Node, tmp_path: Path):
    lay_out(tmp_path / "w", {"s.py": f"import sys\n{_DDP}\nprint('torch._dynamo' in before)"})
    script = (tmp_path / "w" / "s.py").read_text()
    (tmp_path / "w" / "s.py").write_text("import sys; before = {*sys.modules}\n" + script)
    command, cwd = "python s.py", tmp_path / "w"

    def known() -> bool:
        (cwd / "store").unlink(missing_ok=True)
        output, _ = torch_node.warm(command, cwd)
        return output.endswith(b"True\n")

    until(known)


# ---------------------------------------------------------------- servers


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[tuple[Node, Path]]:
    """A node without servers, and a working folder. Modules of tests lie in ``lib``."""
    node = Node(tmp_path, ("mod",))
    lay_out(tmp_path / "work", {"s.py": "import mod; print(mod.x)"})
    lay_out(tmp_path / "lib", {"mod.py": "x = 1"})
    yield node, tmp_path / "work"
    end_servers(node)


def run(fresh: tuple[Node, Path], command: str = "python s.py") -> str:
    node, work = fresh
    work.with_suffix(".log").unlink(missing_ok=True)
    output, _ = node.warm(command, work, PYTHONPATH=str(work.parent / "lib"))
    return output.decode()


def refusal(fresh: tuple[Node, Path], source: str, command: str = "python s.py") -> str:
    (fresh[1].parent / "lib" / "mod.py").write_text(source)
    with pytest.raises(Cold) as caught:
        run(fresh, command)
    return str(caught.value)


@pytest.mark.medium
def test_one_server_serves_several_attempts(fresh: tuple[Node, Path]):
    (fresh[1].parent / "lib" / "mod.py").write_text("import os; x = os.getpid()")
    assert run(fresh) == run(fresh)
    assert len(fresh[0].said) == 1


@pytest.mark.medium
def test_a_changed_module_is_imported_again(fresh: tuple[Node, Path]):
    assert run(fresh) == "1\n"
    (fresh[1].parent / "lib" / "mod.py").write_text("x = 'changed'")
    assert run(fresh) == "changed\n"
    assert len(fresh[0].said) == 2


@pytest.mark.medium
def test_a_killed_server_is_replaced(fresh: tuple[Node, Path]):
    assert run(fresh) == "1\n"
    end_servers(fresh[0])
    assert run(fresh) == "1\n"
    assert len(fresh[0].said) == 2


@pytest.mark.medium
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import nothing_there", "ModuleNotFoundError: No module named 'nothing_there'"),
        ("raise OSError('no licence')", "OSError: no licence"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import os; os._exit(3)", "the process that imports the modules has died"),
        (
            "import os, signal; os.kill(os.getpid(), 9)",
            "the process that imports the modules has died",
        ),
        (
            "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(9,), name='t', daemon=True).start()",
            "importing them starts the thread t",
        ),
        (
            "import _thread, time\n_thread.start_new_thread(time.sleep, (9,))",
            "importing them starts threads",
        ),
        (
            "from multiprocessing import resource_tracker as r\nr.ensure_running()",
            "importing them starts a process",
        ),
        (
            "import subprocess\nx = subprocess.Popen(['sleep', '9'])",
            "importing them starts a process",
        ),
    ],
)
def test_modules_that_cannot_be_forked_are_refused(fresh: tuple[Node, Path], source: str, why: str):
    assert refusal(fresh, source) == why


@pytest.mark.medium
@pytest.mark.parametrize("timeout", [0.5, None])
def test_an_import_that_does_not_end_is_given_up(
    fresh: tuple[Node, Path], timeout: float | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(warm_ranks, "_IMPORTING", 1)
    node, work = fresh
    (work.parent / "lib" / "mod.py").write_text("import time; time.sleep(1000)")
    task = Task("j", "e", "python s.py", warm=("mod",), timeout=timeout)
    where = Where(node.agent, node.attempt, work)
    env = node.whole(work, PYTHONPATH=str(work.parent / "lib"))
    with pytest.raises(Cold) as caught:
        warm_ranks.prepare(task, task.command, env, where, node.wait, node.said.append)
    limit = "1 seconds" if timeout is None else "0.5 seconds, the job's timeout"
    assert str(caught.value) == f"importing takes longer than {limit}"
    (work.parent / "lib" / "mod.py").write_text("x = 'mended'")
    assert run(fresh) == "mended\n"


class Canceled(Exception):
    pass


@pytest.mark.medium
@pytest.mark.parametrize(("timeout", "raised"), [(0.3, Cold), (None, Canceled)])
def test_a_job_that_gives_up_leaves_the_server_of_another(
    fresh: tuple[Node, Path], timeout: float | None, raised: type[Exception]
):
    """The first job starts the server; the second joins while it imports, and again later."""
    node, work = fresh
    gate = work.parent / "gate"
    waits = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    (work.parent / "lib" / "mod.py").write_text(f"{waits}x = os.getpid()")
    env = node.whole(work, PYTHONPATH=str(work.parent / "lib"))
    wait = node.wait

    def cancel(fd: int | None = None, seconds: float | None = None) -> None:
        if raised is Canceled:
            raise Canceled
        wait(fd, seconds)

    def give_up() -> None:
        task = Task("j", "e", "python s.py", warm=("mod",), timeout=timeout)
        where = Where(node.agent, node.attempt, work)
        with pytest.raises(raised):
            warm_ranks.prepare(task, task.command, env, where, cancel, node.said.append)

    def wait_after_the_other(fd: int | None = None, seconds: float | None = None) -> None:
        if fd is not None and not gate.exists():
            give_up()
            gate.touch()
        wait(fd, seconds)

    node.wait = wait_after_the_other  # type: ignore[method-assign]
    server = run(fresh)
    (pid,) = warm_processes.pids(node.agent / "warm")
    assert server == f"{pid}\n"
    if raised is Canceled:
        give_up()
        assert run(fresh) == server
    assert len(node.said) == 1


@pytest.mark.medium
def test_a_module_that_forks_leaves_nothing_behind(fresh: tuple[Node, Path]):
    """The fork has a copy of the server's lock, and would go on as a server."""
    pid = fresh[1].parent / "pid"
    forks = f"import os, time\nif not os.fork(): open('{pid}', 'w').write(str(os.getpid()))"
    assert refusal(fresh, f"{forks}; time.sleep(1000)") == "importing them starts a process"
    until(lambda: not warm_ranks._lives(int(pid.read_text())))
    refusal(fresh, forks)
    (fresh[1].parent / "lib" / "mod.py").write_text("x = 'mended'")
    until(lambda: not warm_processes.pids(fresh[0].agent / "warm"))
    assert run(fresh) == "mended\n"


@pytest.mark.medium
def test_a_server_ends_whose_agent_has_gone_while_it_imports(fresh: tuple[Node, Path]):
    node, work = fresh
    (work.parent / "lib" / "mod.py").write_text("import time; time.sleep(1000)")
    about = {"modules": ["mod"], "folder": str(work), "key": "k", "idle": 1, "most": 1}
    argv = [
        sys.executable,
        programs.path_of("warm_server.py"),
        json.dumps({**about, "attempt": "a"}),
    ]
    env = node.whole(work, PYTHONPATH=str(work.parent / "lib"))
    assert subprocess.run(argv, env=env).returncode == -signal.SIGALRM


@pytest.mark.medium
def test_what_modules_print_is_printed_by_each_rank(fresh: tuple[Node, Path]):
    (fresh[1].parent / "lib" / "mod.py").write_text(
        "import sys; print('e', file=sys.stderr); x = 1"
    )
    assert run(fresh) == run(fresh) == "e\n1\n"


_TELLS = """
import ctypes
libc = ctypes.CDLL(None)
libc.strdup.restype = ctypes.c_void_p
text = ctypes.c_void_p(libc.strdup(b"told at the end"))
getattr(libc, "__cxa_atexit")(libc.puts, text, None)
"""
_ENDS = "class Ends:\n  def __del__(self): print('end')\nmod.ends = Ends()"


@pytest.mark.medium
@pytest.mark.parametrize(
    ("more", "output"),
    [("", ""), (_ENDS, "end\ntold at the end\n"), ("import _lsprof", "told at the end\n")],
    ids=["nothing", "a finalizer", "a library"],
)
def test_libraries_end_only_if_somebody_can_see_it(
    fresh: tuple[Node, Path], more: str, output: str
):
    (fresh[1].parent / "lib" / "mod.py").write_text(_TELLS)
    (fresh[1] / "s.py").write_text(f"import mod\n{more}")
    assert run(fresh) == output


@pytest.mark.medium
def test_a_file_of_a_module_keeps_what_the_script_wrote(fresh: tuple[Node, Path]):
    (fresh[1].parent / "lib" / "mod.py").write_text("x = open(f'{__file__}.txt', 'w')")
    (fresh[1] / "s.py").write_text("import mod; mod.x.write('text')")
    run(fresh)
    assert (fresh[1].parent / "lib" / "mod.py.txt").read_text() == "text"


@pytest.mark.medium
@pytest.mark.parametrize("name", ["mod.py", "json"])
def test_a_module_of_the_job_with_the_same_name_is_not_ignored(fresh: tuple[Node, Path], name: str):
    path = fresh[1] / name
    path.write_text("x = 2") if path.suffix else path.mkdir()
    why = f"the job's {name} has the name of a module that is imported already"
    assert refusal(fresh, "x = 1") == why


@pytest.mark.medium
@pytest.mark.parametrize("name", ["app.pyz", "app.zip", "app"])
def test_an_archive_starts_cold(fresh: tuple[Node, Path], name: str):
    with zipfile.ZipFile(fresh[1] / name, "w") as archive:
        archive.writestr("__main__.py", "print('in the archive')")
    assert refusal(fresh, "x = 1", f"python {name}") == f"{name} is no script"


@pytest.mark.medium
def test_a_variable_that_modules_read_gets_a_server_of_its_own(fresh: tuple[Node, Path]):
    (fresh[1].parent / "lib" / "mod.py").write_text(
        "import os; x = os.environ.get('OMP_NUM_THREADS')"
    )
    assert run(fresh, "OMP_NUM_THREADS=3 python s.py") == "3\n"
    assert run(fresh, "OMP_NUM_THREADS=4 python s.py") == "4\n"
    assert run(fresh, "LR=4 OMP_NUM_THREADS=4 python s.py") == "4\n"
    assert len(fresh[0].said) == 2


@pytest.mark.medium
def test_modules_that_ask_torch_for_gpus_do_not_initialize_cuda(fresh: tuple[Node, Path]):
    """By a variable that only the server has, unless the user sets it."""
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    (fresh[1].parent / "lib" / "mod.py").write_text(f"import os; x = os.environ['{name}']")
    (fresh[1] / "s.py").write_text(f"import mod, os; print(mod.x, os.environ.get('{name}'))")
    assert run(fresh) == "1 None\n"
    assert run(fresh, f"{name}=0 python s.py") == "0 0\n"


@pytest.mark.medium
def test_nothing_is_left_when_the_attempt_ends(fresh: tuple[Node, Path]):
    (fresh[1] / "s.py").write_text(
        "import os, subprocess, sys\n"
        "print(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid)"
    )
    left = int(run(fresh))
    assert not Path(f"/proc/{left}").exists()


@contextlib.contextmanager
def going(fresh: tuple[Node, Path], script: str) -> Iterator[tuple[Running, Process]]:
    """A warm rank of that script."""
    node, work = fresh
    (work / "s.py").write_text(script)
    path = {"PYTHONPATH": str(work.parent / "lib")}
    running, process = Running(), Process("rank 0", work.with_suffix(".log"), 0)
    with contextlib.closing(node.open("python s.py", work, **path)) as ranks:
        ranks.start(running, process, "python s.py", work, node.whole(work, **path))
        yield running, process


@pytest.mark.medium
def test_a_rank_ends_with_a_killed_job_server(fresh: tuple[Node, Path]):
    script = "import os, time; print(os.getppid(), flush=True); time.sleep(1000)"
    with going(fresh, script) as (running, process):
        until(lambda: process.log.read_text().endswith("\n"))
        os.kill(int(process.log.read_text()), signal.SIGKILL)
        _, ended = _finish(running, process)
    assert (ended.code, ended.signal) == (137, "SIGKILL")


@pytest.mark.medium
@pytest.mark.parametrize("more", ["", "import os; os.fork() or os.setsid()\n"])
def test_a_killed_job_server_leaves_nothing(fresh: tuple[Node, Path], more: str):
    """Neither a program in a session of its own, nor a fork."""
    script = (
        f"{more}import os, subprocess, time\n"
        "sleeps = subprocess.Popen(['sleep', '1000'], start_new_session=True).pid\n"
        "print(os.getpid(), os.getppid(), sleeps, flush=True); time.sleep(1000)"
    )
    lines = 2 if more else 1
    with going(fresh, script) as (_, process):
        until(lambda: process.log.read_text().count("\n") == lines)
        said = [[*map(int, line.split())] for line in process.log.read_text().splitlines()]
        parents, mine = {each[1] for each in said}, {each[0] for each in said}
        (job_server,) = parents - mine
        os.kill(job_server, signal.SIGKILL)
        left = {pid for each in said for pid in each} - {job_server}
        until(lambda: not any(map(warm_ranks._lives, left)))


@pytest.mark.medium
def test_a_server_goes_on_while_an_orphan_cannot_end(fresh: tuple[Node, Path]):
    """A process that is traced stays until the tracer, here this test, has seen its end."""
    script = (
        "import os, subprocess, time\n"
        "sleeps = subprocess.Popen(['sleep', '1000'], start_new_session=True).pid\n"
        "print(os.getppid(), sleeps, flush=True); time.sleep(1000)"
    )
    with going(fresh, script) as (_, process):
        until(lambda: process.log.read_text().endswith("\n"))
        job_server, sleeps = map(int, process.log.read_text().split())
        if ctypes.CDLL(None).ptrace(_PTRACE_SEIZE, sleeps, None, None):
            pytest.skip("this system does not let a test trace a process")
        os.kill(job_server, signal.SIGKILL)
        until(lambda: _state(sleeps) == "Z")
    try:
        assert run(fresh, "python -c 'import mod; print(mod.x)'") == "1\n"
        assert len(fresh[0].said) == 1
    finally:
        os.waitpid(sleeps, 0)
    until(lambda: not Path(f"/proc/{sleeps}").exists())


_PTRACE_SEIZE = 0x4206  # from <linux/ptrace.h>


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.medium
def test_a_signal_reaches_the_group_of_a_rank(fresh: tuple[Node, Path]):
    script = (
        "import signal, subprocess\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('told', flush=True) or exit(5))\n"
        "child = subprocess.Popen(['sleep', '1000'])\nprint('up', flush=True)\nchild.wait()"
    )
    with going(fresh, script) as (running, process):
        until(lambda: process.log.read_text() == "up\n")
        running.send(signal.SIGTERM)
        output, ended = _finish(running, process)
    assert (output, ended.code) == (b"up\ntold\n", 5)


@pytest.mark.medium
def test_a_rank_that_is_gone_before_the_agent_looks_runs_once(
    fresh: tuple[Node, Path], monkeypatch: pytest.MonkeyPatch
):
    node, work = fresh
    (work / "s.py").write_text("print('ran'); raise SystemExit(7)")
    receive = warm_ranks.WarmConnection._receive

    def late(self: warm_ranks.WarmConnection, seconds: float) -> dict[str, object] | None:
        reply = receive(self, seconds)
        if reply is not None and "pid" in reply:
            until(lambda: not Path(f"/proc/{reply['pid']}").exists())
        return reply

    monkeypatch.setattr(warm_ranks.WarmConnection, "_receive", late)
    output, ended = node.warm("python s.py", work, PYTHONPATH=str(work.parent / "lib"))
    assert (output, ended.code) == (b"ran\n", 7)


@pytest.mark.medium
@pytest.mark.parametrize("command", ["cd gone && python -c 1", "cd gone && python -c 1 $RANK"])
def test_a_folder_that_is_not_there_is_left_to_the_shell(fresh: tuple[Node, Path], command: str):
    why = "the rank cannot start warm: No such file or directory"
    assert refusal(fresh, "x = 1", command) == why


@pytest.mark.medium
def test_a_server_that_cannot_be_started_is_done_without(fresh: tuple[Node, Path]):
    (fresh[0].agent / "warm").write_text("no folder")
    why = "the warm server cannot be used: File exists"
    assert refusal(fresh, "x = 1") == why


@pytest.mark.medium
def test_a_python_without_newer_functions_starts_ranks(fresh: tuple[Node, Path]):
    """Python 3.9 has no orig_argv, and one for an old libc not the others."""
    (fresh[1].parent / "lib" / "sitecustomize.py").write_text(
        "import os, sys; del sys.orig_argv, os.memfd_create, os.pidfd_open"
    )
    assert run(fresh) == "1\n"
    assert run(fresh, "python -c 'import os; print(hasattr(os, \"pidfd_open\"))'") == "False\n"


_LATER = """
import os, time
if os.path.exists("FOLDER/slow"):
    with open("FOLDER/successor", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
"""


def package(fresh: tuple[Node, Path]) -> Path:
    """Make `mod` a package with a module that ranks import later. It writes its process id to
    `successor` and takes long once there is `slow`, both in the folder that this returns."""
    lib = fresh[1].parent / "lib"
    (lib / "mod.py").unlink()
    lay_out(lib / "mod", {"__init__.py": "x = 1", "later.py": _LATER.replace("FOLDER", str(lib))})
    (fresh[1] / "s.py").write_text("import mod.later")
    return lib


@pytest.mark.medium
def test_a_successor_that_still_imports_ends_with_its_server(fresh: tuple[Node, Path]):
    lib = package(fresh)
    (fresh[1] / "s.py").write_text(f"import mod.later; open('{lib}/slow', 'w')")
    run(fresh)
    until(lambda: (lib / "successor").exists() and (lib / "successor").read_text())
    (server,) = warm_processes.pids(fresh[0].agent / "warm")
    os.kill(server, signal.SIGKILL)
    successor = int((lib / "successor").read_text())
    until(lambda: not warm_ranks._lives(successor))


@pytest.mark.medium
def test_a_successor_is_spared_as_its_server_was(fresh: tuple[Node, Path]):
    package(fresh)
    run(fresh)
    first = min(keeper.SPARED)  # its successor may be there already
    until(lambda: warm_processes.pids(fresh[0].agent / "warm") not in ([], [first]))
    run(fresh)
    assert {*warm_processes.pids(fresh[0].agent / "warm")} <= keeper.SPARED
