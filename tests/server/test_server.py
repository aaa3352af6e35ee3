"""The home's server: found or started, never twice, and what is said when it cannot be had."""

import argparse
import concurrent.futures
import contextlib
import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from allranks import file_locks, settings
from allranks.agent.network import ports
from allranks.api import routes
from allranks.cli.admin import server as server_commands
from allranks.errors import Unauthorized
from allranks.http_client import Client
from tests.support import (
    answer,
    command_line,
    environment,
    leave_nothing,
    on_a_terminal,
    processes_of,
    until,
)

# Real servers and processes, about half a second a test.
pytestmark = pytest.mark.slow


def told(home: Path) -> dict:
    return json.loads((home / "server.json").read_text())


def kill(home: Path) -> None:
    process = psutil.Process(told(home)["pid"])
    process.kill()
    process.wait(10)


@pytest.mark.end_to_end
def test_the_first_command_starts_it_and_later_ones_find_it(allranks, home):
    assert allranks("server", "status").returncode == 1
    assert allranks("run", "--", "true").returncode == 0
    status = json.loads(allranks("server", "status", "--json").stdout)
    assert (status["home"], status["url"]) == (str(home), told(home)["url"])
    assert status["pid"] == told(home)["pid"]
    assert allranks("job", "list").returncode == 0
    assert told(home)["pid"] == status["pid"]
    assert stat.S_IMODE((home / "token").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "jobs").stat().st_mode) == 0o700
    for name in ("allranks.db", "allranks.db-wal"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600


def test_many_commands_at_once_start_one_server(allranks, home):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: allranks("job", "list", "--json"), range(4)))
    assert [each.returncode for each in done] == [0] * 4, [each.stderr for each in done]

    def servers() -> int:
        found = 0
        for each in processes_of(home):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += "allranks.server" in " ".join(each.cmdline())
        return found

    until(lambda: servers() == 1)  # those that found another one there end by themselves


def test_one_whose_command_was_interrupted_meanwhile_serves_the_next(allranks, home):
    read, write = os.pipe()
    os.close(read)  # nobody hears that it is ready
    argv = [sys.executable, "-P", "-m", "allranks.server", "--ready-fd", str(write)]
    with subprocess.Popen(argv, env=environment(home), pass_fds=[write]) as server:
        os.close(write)
        until(lambda: (home / "server.json").exists())
        assert allranks("run", "--", "true").returncode == 0
        assert told(home)["pid"] == server.pid
        server.terminate()


def test_a_killed_server_is_replaced_on_the_same_port(allranks, home):
    allranks("server", "start")
    before = told(home)
    kill(home)
    assert allranks("server", "status").returncode == 1
    assert allranks("job", "list").returncode == 0
    assert told(home)["port"] == before["port"]
    assert told(home)["pid"] != before["pid"]


def test_a_killed_server_does_not_run_although_it_has_its_lock_for_a_moment(allranks, home, capsys):
    for _ in range(3):
        allranks("server", "start")
        os.kill(told(home)["pid"], signal.SIGKILL)
        assert server_commands.status(argparse.Namespace(json=True)) == 1
        assert not json.loads(capsys.readouterr().out)["running"]


@pytest.mark.end_to_end
def test_a_job_does_not_notice_that_the_server_was_killed(allranks, home):
    script = "for i in $(seq 200); do echo $RANK $i; sleep 0.01; done"
    name = allranks("run", "--detach", "-n", 2, "--", "bash", "-c", script).stdout.strip()
    until(lambda: allranks("job", "logs", name).stdout)
    kill(home)
    done = allranks("job", "stream", name)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        mine = [line for line in done.stdout.splitlines() if line.startswith(f"{rank} ")]
        assert mine == [f"{rank} {i}" for i in range(1, 201)]
        assert allranks("job", "logs", name, "--rank", rank).stdout.splitlines() == mine
    assert json.loads(allranks("job", "show", name, "--json").stdout)["attempts"] == 1


def test_a_viewer_outlives_the_server_it_watches(allranks, home):
    """`run` itself starts the server again, and prints each line once."""
    script = "for i in $(seq 300); do echo $i; sleep 0.01; done; kill -9 $1"
    allranks("server", "start")
    done = allranks("run", "--", "bash", "-c", script, "x", told(home)["pid"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(i) for i in range(1, 301)]


def test_agents_without_a_server_finish_and_leave_their_word_on_disk(allranks, home, tmp_path):
    clock = {"ALLRANKS_PATIENCE": "1.5"}
    go = tmp_path / "go"
    wait = f"for i in $(seq 1200); do [ -e {shlex.quote(str(go))} ] && break; sleep 0.05; done"
    script = f"{wait}; echo the end of $RANK; echo $RANK >kept-$RANK; echo $RANK >outputs/o-$RANK"
    words = ("run", "--detach", "-n", 2, "--", "bash", "-c", script)
    name = allranks(*words, env=clock).stdout.strip()
    until(lambda: "started" in allranks("job", "events", name).stdout)
    kill(home)
    go.touch()
    until(lambda: not processes_of(home))
    assert (home / "nodes" / f"{name}.1" / "0" / "outbox.jsonl").exists()
    done = allranks("job", "wait", name)
    assert done.returncode == 0, done.stderr
    logs = [allranks("job", "logs", name, "--rank", rank).stdout for rank in (0, 1)]
    assert logs == ["the end of 0\n", "the end of 1\n"]
    files = {path.name for path in (home / "jobs" / name / "artifacts").rglob("*")}
    assert {"kept-0", "kept-1", "o-0", "o-1"} <= files
    until(lambda: not list((home / "nodes").iterdir()))


def test_the_last_state_of_a_job_waits_for_a_server_that_is_away(allranks, home, tmp_path):
    go = shlex.quote(str(tmp_path / "go"))
    wait = f"for i in $(seq 1200); do [ -e {go} ] && break; sleep 0.05; done"
    script = f'{wait}; echo last >"$ALLRANKS_STATE_DIR/last"'
    words = ("run", "--detach", "-n", 2, "--state", "s", "--", "bash", "-c", script)
    name = allranks(*words, env={"ALLRANKS_PATIENCE": "0.2"}).stdout.strip()
    until(lambda: "started" in allranks("job", "events", name).stdout)
    kill(home)
    (tmp_path / "go").touch()
    outboxes = [home / "nodes" / f"{name}.1" / str(node) / "outbox.jsonl" for node in range(2)]
    until(lambda: all("rank_ended" in outbox.read_text() for outbox in outboxes))
    done = allranks("job", "wait", name)
    assert done.returncode == 0, done.stderr
    entries = answer(allranks, "state", "show", "s")["entries"]
    assert "shared/last" in [entry["path"] for entry in entries]


def test_agents_that_wait_for_the_gate_leave_too_when_nobody_opens_it(allranks, home):
    clock = {"ALLRANKS_PATIENCE": "1"}
    allranks("run", "--detach", "--", "true", env=clock)
    kill(home)
    until(lambda: not processes_of(home))


def test_stop_ends_the_jobs_and_leaves_no_process(allranks, home):
    name = allranks("run", "--detach", "-n", 2, "--", "sleep", "300").stdout.strip()
    until(lambda: "started" in allranks("job", "events", name).stdout)
    done = allranks("server", "stop")
    assert "stopped the server and 1 job" in done.stderr
    until(lambda: not processes_of(home), seconds=2)  # its fork server notices a moment later
    job = json.loads(allranks("job", "show", name, "--json").stdout)
    assert (job["status"], job["error"]["message"]) == ("Canceled", "the server was stopped")
    assert "Canceled (the server was stopped)" in allranks("job", "explain", name).stderr
    assert "Canceled after" in (said := allranks("job", "stream", name).stderr)
    assert ": the server was stopped" in said
    assert allranks("server", "stop").returncode == 0


@pytest.mark.slow
def test_stop_asks_on_a_terminal_before_it_cancels_jobs(allranks, home):
    allranks("run", "--name", "asked-for", "--detach", "-q", "--", "sleep", "60")
    code, said = on_a_terminal(home, b"n\n", "server", "stop")
    assert "cancels 1 job (asked-for)" in said
    assert (code, "nothing is stopped" in said) == (1, True)
    assert json.loads(allranks("job", "show", "asked-for", "--json").stdout)["ended_at"] is None
    code, said = on_a_terminal(home, b"", "server", "stop", "--yes")
    assert (code, "stopped the server and 1 job" in said) == (0, True)


@pytest.mark.slow
def test_stop_waits_for_all_jobs_together(allranks, home, monkeypatch):
    options = argparse.Namespace(all=False, quiet=True, json=False)
    script = "trap '' TERM; echo runs; while true; do sleep 300; done"
    names = [allranks("run", "--detach", "--", "bash", "-c", script).stdout.strip() for _ in "1234"]
    for name in names:
        until(lambda name=name: "runs" in allranks("job", "logs", name).stdout)
    monkeypatch.setenv("ALLRANKS_HOME", str(home))
    monkeypatch.setattr(server_commands, "_JOBS_TIMEOUT", 3.0)
    began = time.monotonic()
    assert server_commands._stop_jobs(options) == 0
    assert time.monotonic() - began < 9  # one after another: 12
    assert allranks("server", "stop").returncode == 0
    until(lambda: not processes_of(home))


@pytest.mark.slow
def test_stop_of_a_server_that_hangs(allranks, home):
    allranks("server", "start")
    name = allranks("run", "--detach", "--", "sleep", "300").stdout.strip()
    until(lambda: "started" in allranks("job", "events", name).stdout)
    os.kill(told(home)["pid"], signal.SIGSTOP)
    found = psutil.Process(told(home)["pid"])
    assert allranks("server", "stop").returncode == 0
    until(lambda: not found.is_running() or found.status() == psutil.STATUS_ZOMBIE)
    assert processes_of(home) == []


def test_who_cannot_begin_holds_nothing_once_that_is_told(home):
    """Else the next to start one takes it for a server, and the stranger on its port for it."""
    home.mkdir(exist_ok=True)
    read, write = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as other, open(read) as told:
        argv = ["-m", "allranks.server", "--port", other.getsockname()[1], "--ready-fd", write]
        env = environment(home)
        with subprocess.Popen(
            [sys.executable, *map(str, argv)], env=env, pass_fds=[write], stderr=subprocess.DEVNULL
        ):
            os.close(write)
            assert "cannot listen on port" in told.read()
            assert not file_locks.is_held(home / "server.lock")


def test_the_port_is_in_use(allranks, home):
    allranks("server", "start")
    allranks("server", "stop")
    with socket.socket() as other:
        other.bind(("127.0.0.1", told(home)["port"]))
        other.listen()
        done = allranks("job", "list")
        assert done.returncode == 2
        assert f"port {told(home)['port']}" in done.stderr
        assert f"process {os.getpid()} has it" in done.stderr
        assert f"hint: stop it (kill {os.getpid()})" in done.stderr
        other.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody has taken it for the server
            other.accept()
        held = ports.hold(1)
        (free,) = ports.numbers(held)
        ports.release(held)
        assert allranks("server", "start", "--port", free).returncode == 0
    assert told(home)["port"] == free


def test_a_home_that_cannot_be_used(allranks, home):
    home.parent.mkdir(exist_ok=True)
    home.write_text("a file")
    for words in (["job", "list"], ["run", "--", "true"], ["server", "start"]):
        done = allranks(*words)
        assert done.returncode == 2
        assert "the home cannot be used" in done.stderr
        assert str(home) in done.stderr
        assert "hint: set ALLRANKS_HOME" in done.stderr
    home.unlink()


def test_a_server_of_another_version(allranks, home):
    allranks("server", "start")
    found = told(home)
    (home / "server.json").write_text(json.dumps({**found, "version": "0.0.9"}))
    done = allranks("job", "list")
    assert done.returncode == 2
    assert "0.0.9" in done.stderr
    assert "`allranks server restart`" in done.stderr
    assert allranks("server", "stop").returncode == 0
    assert allranks("job", "list").returncode == 0


def test_a_token_that_does_not_match(allranks, home):
    allranks("server", "start")
    done = allranks("job", "list", env={"ALLRANKS_TOKEN": "wrong"})
    assert done.returncode == 2
    assert "the token does not match" in done.stderr
    assert "set ALLRANKS_TOKEN" in done.stderr


def test_no_token_at_all(allranks, home, tmp_path):
    allranks("server", "start")
    env = {"ALLRANKS_SERVER": told(home)["url"], "ALLRANKS_HOME": str(tmp_path / "elsewhere")}
    done = allranks("job", "list", env=env)
    assert done.returncode == 2
    assert "error: no token was given, and this server asks for one" in done.stderr
    assert "set ALLRANKS_TOKEN" in done.stderr


def test_commands_leave_nothing_in_the_log(allranks, home):
    assert allranks("run", "--", "true").returncode == 0
    assert allranks("job", "list").returncode == 0
    assert (home / "server.log").read_text() == ""


def test_a_stream_that_is_cut_by_the_end_of_the_server_leaves_no_stack_trace(allranks, home):
    name = allranks("run", "--detach", "--", "sleep", 60).stdout.strip()
    server = psutil.Process(told(home)["pid"])
    with Client(told(home)["url"], (home / "token").read_text().strip()) as client:
        lines = client.stream(*routes.stream_job.at(name), {})
        assert next(lines)
        server.terminate()
        server.wait(20)
    assert "Traceback" not in (home / "server.log").read_text()


def test_no_server_at_the_named_address(allranks):
    done = allranks("job", "list", env={"ALLRANKS_SERVER": "http://127.0.0.1:1"})
    assert done.returncode == 2
    assert "no server answers at http://127.0.0.1:1" in done.stderr
    done = allranks("job", "list", env={"ALLRANKS_SERVER": "nonsense"})
    assert "'nonsense' is not the URL of a server" in done.stderr


def test_status_and_doctor_look_at_the_named_server(allranks, home, tmp_path):
    allranks("server", "start")
    env = {
        "ALLRANKS_SERVER": told(home)["url"],
        "ALLRANKS_TOKEN": (home / "token").read_text().strip(),
        "ALLRANKS_HOME": str(tmp_path / "elsewhere"),
    }
    status = allranks("server", "status", env=env)
    assert status.returncode == 0
    assert status.stdout.startswith(f"running   {told(home)['url']} (ALLRANKS_SERVER)")
    assert f"home      {home}\nyou are   owner" in status.stdout
    found = json.loads(allranks("server", "status", "--json", env=env).stdout)
    assert (found["running"], found["home"]) == (True, str(home))
    assert f"{told(home)['url']} (ALLRANKS_SERVER), 0 jobs live" in (
        allranks("doctor", "-v", env=env).stdout
    )
    nowhere = {**env, "ALLRANKS_SERVER": "http://127.0.0.1:1"}
    status = allranks("server", "status", env=nowhere)
    assert status.returncode == 2
    assert status.stderr.endswith("(allranks server start), or leave it: unset ALLRANKS_SERVER\n")
    done = allranks("doctor", env=nowhere)
    assert done.returncode == 1
    assert "no server answers at http://127.0.0.1:1" in done.stdout


def test_a_port_for_other_machines_without_an_address(allranks, home):
    done = allranks("server", "start", "--host-port", 7449)
    assert done.returncode == 2
    assert "without it the server listens on no address of other machines" in done.stderr
    assert not (home / "server.json").exists()


def test_a_named_server_is_used(allranks, home, tmp_path):
    allranks("server", "start")
    token = (home / "token").read_text().strip()
    env = {"ALLRANKS_SERVER": told(home)["url"], "ALLRANKS_TOKEN": token}
    env["ALLRANKS_HOME"] = str(tmp_path / "elsewhere")
    assert allranks("job", "list", env=env).returncode == 0
    assert not (tmp_path / "elsewhere").exists()


def test_a_plan_says_that_it_is_not_of_the_named_server(allranks, home, tmp_path, code):
    allranks("compute", "create", "loc2", "--type", "local")
    env = {
        "ALLRANKS_SERVER": told(home)["url"],
        "ALLRANKS_TOKEN": (home / "token").read_text().strip(),
    }
    plan = ("run", "--dry-run", "-c", "loc2", "--", "true")
    own = allranks(*plan, env=env)
    assert (own.returncode, "of this machine" in own.stderr) == (0, False)
    env["ALLRANKS_HOME"] = str(tmp_path / "elsewhere")
    note = "planned with the computes and assets of this machine, not of "
    note += f"{told(home)['url']} (ALLRANKS_SERVER)"
    other = allranks(*plan, env=env)
    assert (other.returncode, "no compute named 'loc2'" in other.stderr) == (2, True)
    assert f"note: {note}\n" in other.stderr
    (code / "job.yml").write_text("command: 'true'\ncompute: loc3\n")
    assert note in allranks("doctor", "--job", "job.yml", "-v", env=env).stdout


def test_a_damaged_database(allranks, home):
    home.mkdir(parents=True)
    (home / "allranks.db").write_text("this is no database at all, and long enough to be looked at")
    done = allranks("job", "list")
    assert done.returncode == 2
    assert "the database is damaged: file is not a database" in done.stderr
    assert "allranks.db" in done.stderr


def test_two_homes_never_meet(allranks, home, tmp_path):
    assert allranks("run", "--name", "here", "--", "true").returncode == 0
    other = {"ALLRANKS_HOME": str(tmp_path / "other")}
    try:
        assert allranks("job", "show", "here", env=other).returncode == 2
    finally:
        allranks("server", "stop", env=other)


@pytest.mark.parametrize("clock", ["ALLRANKS_LEASE", "ALLRANKS_GRACE"])
def test_a_clock_that_is_no_number(allranks, clock):
    done = allranks("server", "start", env={clock: "soon"})
    assert done.returncode == 2
    assert clock in done.stderr


@pytest.mark.slow
def test_a_full_disk(tmp_path, code):
    """Nothing crashes, nothing that was printed is lost, and it goes on once there is room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", disk]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root, and a container that allows it")
    try:
        allranks = command_line(disk / "home", code)
        script = f"until [ -e '{tmp_path}/room' ]; do sleep 0.05; done; seq 1000"
        name = allranks("run", "--detach", "--", "bash", "-c", script).stdout.strip()
        until(lambda: "started" in allranks("job", "events", name).stdout)
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)
        done = allranks("run", "--", "true")
        assert done.returncode == 2
        assert "full" in done.stderr or "No space" in done.stderr
        assert "hint: free space on that disk" in done.stderr
        assert "Traceback" not in done.stderr
        assert allranks("job", "show", name).returncode == 0
        (disk / "filler").unlink()
        (tmp_path / "room").touch()
        assert allranks("job", "wait", name).returncode == 0
        assert allranks("job", "logs", name).stdout == "".join(f"{i}\n" for i in range(1, 1001))
        leave_nothing(disk / "home")
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def processes_with(word: str, home: Path) -> list[psutil.Process]:
    found = []
    for process in processes_of(home):
        with contextlib.suppress(psutil.Error):
            if word in process.cmdline():
                found.append(process)
    return found


@pytest.mark.slow
def test_a_disk_that_is_full_while_ranks_print(tmp_path, code):
    """They cannot, and die of it with no word in their log; the record says what it was, what came
    before is whole, and the next attempt goes on from there."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", disk]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root, and a container that allows it")
    script = f"""
import os, pathlib, time
kept = pathlib.Path(os.environ["ALLRANKS_STATE_DIR"], "kept")
start = int(kept.read_text()) if kept.exists() else 0
for step in range(start, start + 50):
    print(f"step {{step}} loss {{1 / (step + 1)}}", flush=True)
kept.write_text(str(step + 1))
while not os.path.exists("{tmp_path}/room"):
    print("waits", flush=True)
    time.sleep(0.001)
"""
    (code / "train.py").write_text(script)
    try:
        allranks = command_line(disk / "home", code)
        metric = ("-m", r"loss=step (?P<step>\d+) loss (?P<value>\S+)")
        words = ("run", "--detach", "--name", "full", *metric, "--", "python", "train.py")
        assert allranks(*words).returncode == 0
        until(lambda: "kept" in allranks("state", "show", "full").stdout)
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)
        until(lambda: not processes_with("train.py", disk / "home"))
        assert allranks("job", "show", "full").returncode == 0
        (disk / "filler").unlink()
        (tmp_path / "room").touch()
        assert allranks("job", "wait", "full", timeout=60).returncode == 1
        job = json.loads(allranks("job", "show", "full", "--json").stdout)
        assert job["error"]["cause"] == "DISK_FULL"
        assert "bytes free" in job["error"]["evidence"]["line"]
        again = allranks("job", "restart", "full").stdout.strip()
        assert allranks("job", "wait", again, timeout=60).returncode == 0
        printed = allranks("job", "logs", again).stdout.splitlines()
        assert [line.split()[1] for line in printed] == [str(n) for n in range(50, 100)]
        leave_nothing(disk / "home")
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_stop_ends_what_a_killed_server_left(allranks, home):
    name = allranks("run", "--detach", "--", "bash", "-c", "setsid sleep 300 & wait").stdout.strip()
    until(lambda: "started" in allranks("job", "events", name).stdout)
    kill(home)
    assert len(processes_of(home)) > 2
    done = allranks("server", "stop")
    assert "stopped 1 job of a server that has ended" in done.stderr
    assert processes_of(home) == []


def test_a_home_named_from_where_one_is(allranks, home, code):
    relative = {"ALLRANKS_HOME": "rel home"}
    try:
        assert allranks("run", "--", "true", env=relative).returncode == 0
        assert (code / "rel home" / "server.json").exists()
    finally:
        assert allranks("server", "stop", env=relative).returncode == 0


def test_who_has_no_token_does_not_fill_the_servers_memory(allranks, home):
    allranks("server", "start")
    with Client(told(home)["url"], "wrong") as client, pytest.raises(Unauthorized):
        client.call("PUT", "/api/v1/blobs/x", b"x" * 1000)
    with Client(told(home)["url"], "wrong") as client, pytest.raises(Unauthorized):
        client.json("GET", "/openapi.json")


def test_a_paused_server_blames_nobody(allranks, home):
    clock = {"ALLRANKS_LEASE": "2"}
    name = allranks("run", "--detach", "--", "sleep", "6", env=clock).stdout.strip()
    until(lambda: "started" in allranks("job", "events", name).stdout)
    server = psutil.Process(told(home)["pid"])
    server.suspend()
    time.sleep(3)  # the pause itself is what is tested
    server.resume()
    assert allranks("job", "wait", name).returncode == 0


@pytest.mark.medium
def test_stop_leaves_the_gangs_of_a_server_that_has_started_since(tmp_path):
    home = settings.Home(tmp_path)
    gang = home.engines / "local" / "job.1"
    gang.mkdir(parents=True)
    lock = file_locks.take(home.lock)
    assert lock is not None
    assert server_commands._end_leftovers(home) == (0, [])
    assert gang.is_dir()
    os.close(lock)
    assert server_commands._end_leftovers(home) == (1, [])
    assert not gang.exists()


def test_a_server_that_starts_is_no_server_that_runs(allranks, home):
    """It holds the lock; the file with its process is not there yet, or of the last one."""
    home.mkdir(parents=True, exist_ok=True)
    lock = file_locks.take(settings.Home(home).lock)
    assert lock is not None
    try:
        assert allranks("server", "status").stdout.startswith("starting\n")
        (home / "server.json").write_text(json.dumps({"pid": 1 << 30, "url": "http://127.0.0.1:1"}))
        assert allranks("server", "status").stdout.startswith("starting\n")
    finally:
        os.close(lock)
    assert allranks("server", "status").stdout.startswith("stopped ")
