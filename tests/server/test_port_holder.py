"""Who listens on a port, and who gets no token for it."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from allranks import settings
from allranks.sdk.connection import find_server
from allranks.server.port_holder import holder
from tests.support import Allranks

LISTEN = """\
import socket, sys
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.mark.medium
def test_a_rank_is_named_with_its_job() -> None:
    argv = [sys.executable, "-c", LISTEN]
    env = {**os.environ, "ALLRANKS_JOB": "train-7"}
    with subprocess.Popen(argv, env=env, stdin=-1, stdout=-1, text=True) as rank:
        assert rank.stdout
        assert rank.stdin
        found = holder(int(rank.stdout.readline()))
        rank.stdin.close()
    assert found is not None
    assert (found.pid, found.job) == (rank.pid, "train-7")
    assert found.program.startswith(sys.executable)


def test_nobody_holds_a_port_that_nobody_listens_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        found = holder(port)
        assert found is not None
        assert found.pid == os.getpid()
    assert holder(port) is None


@pytest.mark.medium
def test_nobody_stands_in_for_localhost(allranks: Allranks, home: Path) -> None:
    """A browser asks `::1` first for the names of services' pages."""
    try:
        other = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with other:
        port = other.getsockname()[1]
        refused = allranks("server", "start", "--port", port)
        assert refused.returncode != 0
        assert f"cannot listen on port {port}: " in refused.stderr
        assert f"process {os.getpid()} has it" in refused.stderr
    begun = allranks("server", "start", "--port", port)
    assert begun.returncode == 0, begun.stderr
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("::1", port), family=socket.AF_INET6)
    assert httpx.get(f"http://[::1]:{port}/healthz", trust_env=False).status_code < 500


def test_the_token_is_for_a_server_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLRANKS_HOME", str(tmp_path))
    home, url = settings.home(), "http://127.0.0.1:7"
    home.server.write_text(json.dumps({"pid": 1, "port": 7, "url": url, "version": "1"}))
    home.token.write_text("t")
    assert find_server._token_if_it_is_ours(url) == ""
    monkeypatch.setattr(find_server.file_locks, "is_held", lambda lock: True)
    assert find_server._token_if_it_is_ours(url) == "t"
