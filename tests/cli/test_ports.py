"""A port that is lost between being chosen and being used is not the user's error."""

from pathlib import Path
from typing import Any

import pytest

from tests.support import Allranks, answer

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
