"""The process that forks agents."""

import os
import socket
import subprocess
import sys


def test_it_ends_quietly_when_its_engine_is_killed_before_it_reads_an_answer(tmp_path):
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        # What lies unread when the other end closes: the kernel then says "connection reset".
        its.send(b"unread")
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "allranks.agent.fork_server"],
            stdin=its.fileno(),
            env={**os.environ, "ALLRANKS_WARM": str(tmp_path / "warm")},
            stderr=subprocess.PIPE,
            text=True,
        )
    ours.close()
    assert server.communicate(timeout=60) == (None, "")
    assert server.returncode == 0
