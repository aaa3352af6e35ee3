"""A port that is lost between being chosen and being used is not the user's error."""

from pathlib import Path
from typing import Any

import pytest

from allranks.agent.network import ports
from tests.support import Allranks, answer, until

# What `squatters` says are the attempts in which another socket is first.
SCRIPT = """
import asyncio, os, socket, sys
port, attempt = int(os.environ["MASTER_PORT"]), os.environ["ALLRANKS_ATTEMPT"]
if os.environ["RANK"] == "0":
    if attempt in sys.argv[1]:
        squatter = socket.socket()
        squatter.bind(("", port))
        squatter.listen()
    async def serve():
        await asyncio.start_server(print, os.environ["MASTER_ADDR"], port)
    asyncio.run(serve())
print("attempt", attempt, flush=True)
"""


def run(shared: Allranks, code: Path, name: str, squatters: str) -> dict[str, Any]:
    (code / "meet.py").write_text(SCRIPT)
    shared("run", "-n", 2, "--name", name, "--", "python", "meet.py", squatters)
    return answer(shared, "job", "show", name)


@pytest.mark.medium
def test_a_lost_port_is_retried_on_the_same_nodes(shared: Allranks, code: Path):
    job = run(shared, code, "race", "12")
    assert (job["status"], job["attempts"], job["launches"]) == ("Completed", 3, 1)
    ended = [
        event["data"]["reason"]
        for event in answer(shared, "job", "events", "race")
        if event["kind"] == "ended" and event["node"] == 0
    ]
    assert ended == ["PORT_TAKEN", "PORT_TAKEN", "DONE"]


@pytest.mark.medium
def test_a_port_that_is_never_free_fails_the_job(shared: Allranks, code: Path):
    job = run(shared, code, "lost-race", "123456")
    assert (job["status"], job["attempts"]) == ("Failed", 4)
    error = job["error"]
    assert (error["reason"], error["blame"]) == ("PORT_TAKEN", "infrastructure")
    assert "rank 0 on node 0 could not listen on port" in error["message"]
    assert "does not listen on MASTER_PORT in two processes" in error["hint"]


# Rank 0 serves what looks like torch's store, at a port that the script fixes. Job A breaks in its
# first attempt when one more client has come and gone; in job B, rank 0 comes late.
FIXED = """
import ctypes, os, socket, sys, threading, time
job, port, attempt = sys.argv[1], int(sys.argv[2]), os.environ["ALLRANKS_ATTEMPT"]
if os.environ["RANK"] == "1":
    client = socket.socket()
    while client.connect_ex((os.environ["MASTER_ADDR"], port)):
        client = socket.socket()
        time.sleep(0.01)
    print(job, "joined", flush=True)
    client.recv(1)
elif job == "late":
    time.sleep(600)
else:
    server = socket.create_server(("", port))
    def store():
        ctypes.CDLL(None).prctl(15, b"pt_tcpstore")
        time.sleep(600)
    threading.Thread(target=store, daemon=True).start()
    own = [socket.create_connection(("127.0.0.1", port))]
    own += [server.accept()[0] for _ in range(2)]
    if job == "breaks" and attempt == "1":
        server.accept()[0].recv(1)
        sys.exit("a peer has gone")
    while not os.path.exists(sys.argv[3]):
        time.sleep(0.01)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [("breaks", "late"), ("healthy", "same")])
def test_two_jobs_of_which_the_scripts_fix_one_port(shared, code, tmp_path, first, second):
    (code / "fixed.py").write_text(FIXED)
    (held,) = ports.hold(1)
    port = held.getsockname()[1]
    ports.release([held])
    rest = "--", "python", "fixed.py"
    shared("run", "--detach", "-n", 2, "--name", first, *rest, first, port, tmp_path / "end")
    until(lambda: f"{first} joined" in shared("job", "logs", first).stdout)
    started = shared("run", "-n", 2, "--name", second, *rest, second, port, tmp_path / "end")
    assert started.returncode == 1
    error = answer(shared, "job", "show", second)["error"]
    assert (error["reason"], error["cause"]) == ("PORT_CONFLICT", "PORT_CONFLICT")
    assert f"port {port}" in error["message"]
    assert f"the job {first} on" in error["message"]
    if first == "breaks":
        until(lambda: answer(shared, "job", "show", first)["attempts"] == 2)
        events = answer(shared, "job", "events", first)
        ends = [each["data"] for each in events if each["kind"] == "ended"]
        joined = f"a rank of the job {second} joined this job's store on port {port}"
        assert {end["reason"] for end in ends if joined in end["message"]} == {"PORT_CONFLICT"}, (
            ends
        )
    (tmp_path / "end").touch()
    assert shared("job", "wait", first).returncode == 0


@pytest.mark.slow
def test_a_port_in_the_command_is_used_by_one_job_at_a_time(shared, code, tmp_path):
    (code / "wait.py").write_text(
        "import os, sys, time\nwhile not os.path.exists(sys.argv[-1]): time.sleep(0.01)\n"
    )
    words = ("--", "python", "wait.py", "--master_port", "29777", tmp_path / "end")
    shared("run", "--detach", "--name", "user", *words)
    shared("run", "--detach", "--name", "next", "--env", "MASTER_PORT=29777", "--", "true")
    why = "waits for port 29777, which the job user uses"
    until(lambda: answer(shared, "job", "show", "next")["status_reason"] == why)
    (tmp_path / "end").touch()
    assert shared("job", "wait", "next").returncode == 0
