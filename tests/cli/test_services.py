"""Services beside the ranks: they start, say how they go, can be reached, and end with the job."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_enter import entries, processes
from tests.support import CLI, Allranks, environment, until

pytestmark = pytest.mark.slow

JOB = """\
command: until [ -e end ]; do sleep 0.1; done
environment: current
name: served
resources: {instance_count: 2}
services:
  web: {command: "echo at $PWD; exec python3 -m http.server $PORT --bind 127.0.0.1", nodes: all}
  bad: {command: "echo oh no; exit 3"}
  code: {type: vs_code}
  own: {type: my_dashboard, port: 5999}
  my_ssh: {job_service_type: SSH}
  mute: {command: "echo busy; sleep 600"}
"""


def services(allranks: Allranks, name: str) -> dict[tuple[str, int], dict[str, Any]]:
    job = json.loads(allranks("job", "show", name, "--json").stdout)
    return {(each["name"], each["node"]): each for each in job["services"]}


def test_services_of_a_job(shared: Allranks, shared_home: Path, code: Path):
    (code / "job.yml").write_text(JOB)
    made = shared("job", "create", "-f", "job.yml")
    assert "to open web: allranks job port-forward served web" in made.stderr
    assert "code cannot start: the ranks' PATH has no code-server" in made.stderr

    def settled() -> bool:
        states = [each["state"] for each in services(shared, "served").values()]
        started = ["Running", "Running", "Failed", "Failed", "Unchecked", "Running", "Starting"]
        return states == started

    until(settled, seconds=60)
    shown = services(shared, "served")
    assert shown["bad", 0]["message"] == "exited with code 3: oh no"
    assert "code-server" in shown["code", 0]["message"]
    text = shared("job", "show", "served").stdout
    assert "web on node 1: Running" in text
    assert "own (my_dashboard): Unchecked: a program of the job listens on port 5999" in " ".join(
        text.split()
    )
    line = ("az", "ml", "job", "show-services", "-n", "served", "-i", "1", "--query", "web.status")
    assert json.loads(shared(*line).stdout) == "Running"
    # The working folder of each node.
    put = ("sh", "-c", "echo from 1 >here")
    assert shared("job", "exec", "served", "--rank", 1, "--", *put).returncode == 0
    argv = [sys.executable, "-c", CLI, "job", "port-forward", "served", "web", "--node", "1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        argv, env=environment(shared_home), stdout=pipe, stderr=pipe, text=True
    ) as lead:
        assert lead.stdout is not None
        with urllib.request.urlopen(f"{lead.stdout.readline().strip()}here") as answer:
            assert answer.read() == b"from 1\n"
        lead.send_signal(signal.SIGINT)
        assert lead.wait(60) == 130
    assert entries(shared, "served")[-1]["data"]["message"] == "service web"
    for words, why in (
        (("served", "nonsuch"), "it has web, bad, code, own, my_ssh, mute"),
        (("served", "my_ssh"), "allranks job ssh-config served"),
        (("served", "bad", "--node", 1), "does not run on node 1"),
        (("served", "bad"), "the service bad has failed: exited with code 3: oh no"),
    ):
        refused = shared("job", "port-forward", *words)
        assert (refused.returncode, why in refused.stderr) == (2, True), refused.stderr
    late = ("it does not listen on 127.0.0.1:", " yet: busy")
    until(lambda: all(one in services(shared, "served")["mute", 0]["message"] for one in late))
    # They end with the ranks, and no failed one fails the job.
    for rank in (0, 1):
        assert shared("job", "exec", "served", "--rank", rank, "--", "touch", "end").returncode == 0
    assert shared("job", "wait", "served").returncode == 0
    assert services(shared, "served")["web", 0]["state"] == "Ended"
    until(lambda: not processes("http.server") and not processes("service_process"))
