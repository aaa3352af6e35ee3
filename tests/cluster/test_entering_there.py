"""Getting into jobs on Slurm: programs, terminals, ports, files, ssh and services of its hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.cli.test_enter import Terminal
from tests.cli.test_ssh import Ssh
from tests.cluster.conftest import Cluster
from tests.cluster.test_slurm import slurm
from tests.support import CLI, Allranks, environment, until

__all__ = ["slurm"]  # the fixture

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(600)]

WEB = "hostname >host; exec python3 -m http.server $PORT --bind 127.0.0.1"


def test_hosts_of_slurm_can_be_entered(
    slurm: Allranks, cluster: Cluster, code: Path, home: Path, tmp_path: Path
) -> None:
    job = {"command": "sleep 600", "environment": "current", "name": "there", "compute": "s"}
    job |= {"resources": {"instance_count": 2}}
    job |= {"services": {"web": {"command": WEB, "nodes": "all"}}}
    (code / "job.yml").write_text(json.dumps(job))
    assert slurm("job", "create", "-f", "job.yml").returncode == 0
    until(lambda: slurm("job", "show", "there").stdout.count(": Running, ") == 2, 120)
    hosts = []
    for rank in (0, 1):
        done = slurm("job", "exec", "there", "--rank", rank, "--", "sh", "-c", "hostname; cat host")
        host, beside = done.stdout.split()
        assert host == beside, done.stderr
        hosts.append(host)
        argv = [
            sys.executable,
            "-c",
            CLI,
            "job",
            "port-forward",
            "there",
            "web",
            "--node",
            str(rank),
        ]
        with subprocess.Popen(
            argv, env=environment(home), stdout=subprocess.PIPE, text=True
        ) as lead:
            assert lead.stdout is not None
            with urllib.request.urlopen(f"{lead.stdout.readline().strip()}host") as answer:
                assert answer.read().decode().strip() == host
            lead.kill()
    assert len({*hosts}) == 2
    terminal = Terminal(home, "job", "shell", "there", "--rank", "1")
    terminal.expect(b"there rank 1")
    terminal.press(b"[ -t 0 ] && echo on `hostname`\r")
    terminal.expect(f"on {hosts[1]}".encode())
    terminal.press(b"exit 3\r")
    assert terminal.ended() == 3
    flood = os.urandom(3_000_000)
    (tmp_path / "flood").write_bytes(flood)
    assert slurm("job", "cp", tmp_path / "flood", "there:in", "--rank", 1).returncode == 0
    ssh = Ssh(slurm, home, "there", "--rank", 1)
    assert ssh("ssh", ssh.host, "cat in", text=False).stdout == flood
    assert ssh("scp", f"{ssh.host}:in", tmp_path / "back").returncode == 0
    assert (tmp_path / "back").read_bytes() == flood
    assert slurm("job", "cancel", "there").returncode == 0
    slurm("job", "wait", "there")
    for host in hosts:
        until(
            lambda host=host: "http.server" not in cluster("exec", host, "ps", "-A", "-o", "args")
        )


FAILS = """\
import os, time
def load_batch():
    while not os.path.exists("go"): time.sleep(0.01)
    [0][int(os.environ["RANK"])]
load_batch()
time.sleep(600)
"""


def test_ranks_on_hosts_of_slurm_are_profiled_and_held(
    slurm: Allranks, code: Path, home: Path
) -> None:
    (code / "train.py").write_text(FAILS)
    words = ("-n", 2, "-c", "s", "--detach", "--name", "kept", "--on-failure", "hold")
    assert slurm("run", *words, "--", "python", "train.py").returncode == 0
    until(lambda: json.loads(slurm("job", "show", "kept", "--json").stdout)["started_at"], 120)
    told = slurm("job", "profile", "kept", "--seconds", 1, "--json")
    assert told.returncode == 0, told.stderr
    ranks = json.loads(told.stdout)["verdict"]["ranks"]
    assert [rank["places"].get("input", "")[:21] for rank in ranks] == ["load_batch (train.py:"] * 2
    assert slurm("job", "exec", "kept", "--rank", 1, "--", "touch", "go").returncode == 0
    until(lambda: "held until" in slurm("job", "show", "kept").stdout, 60)
    stacks = slurm("job", "stacks", "kept").stdout
    assert 'train.py:4 load_batch  [0][int(os.environ["RANK"])]' in stacks
    done = slurm("job", "debug", "kept", input="p os.environ['RANK']\nquit\n")
    assert "'1'" in done.stdout, done.stdout + done.stderr
    assert slurm("job", "release", "kept").returncode == 0
    slurm("job", "wait", "kept")
