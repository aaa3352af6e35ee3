"""Jobs on a real Slurm of several hosts: what users see, and what befalls clusters."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from allranks.errors import Unreachable
from allranks.http_client import Client
from tests.cluster.conftest import Cluster
from tests.counting import SCRIPT, STEP
from tests.support import Allranks, until

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(800)]

# Says who it is, then goes on until it is told to end, which it takes a while to do.
STAYS = """
import os, signal, socket, sys, time
def told(*_):
    print("told", flush=True)
    time.sleep(1.0)  # longer than peers of a failure have
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, told)
print(os.environ.get("RANK", "0"), "on", socket.gethostname(), flush=True)
print("until", os.environ.get("ALLRANKS_DEADLINE"), flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    time.sleep(0.1)
"""


@pytest.fixture
def slurm(
    cluster: Cluster, home: Path, allranks: Allranks, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Allranks]:
    """The command line with `s`, a compute of the cluster's main partition, as the default."""
    ready(cluster)
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    make = ("compute", "create", "s", "--type", "slurm", "--partition", "main", "--default")
    until(lambda: allranks(*make).returncode == 0, 30)  # a healed controller hangs up now and then
    yield allranks
    cluster("heal", "ctl")
    allranks("server", "stop", "--all")
    until(lambda: not cluster.slurm("squeue", "-h"), seconds=40)


def ready(cluster: Cluster) -> None:
    """All hosts up again, whatever was done to them."""
    for host in ("ctl", "n1", "n2", "n3"):
        cluster("heal", host)
    until(lambda: cluster.slurm("sinfo", "-h", "-p", "main", "-t", "idle", "-o", "%D") == "3", 60)


def begin(slurm: Allranks, name: str, *options: object, seconds: float = 60) -> None:
    """Submit a job that stays, and wait until all its ranks have said where they are."""
    run = slurm("run", "--detach", "--name", name, *options, "--", "python", "-c", STAYS, seconds)
    assert run.returncode == 0, run.stderr
    size = show(slurm, name)["processes"]
    until(lambda: slurm("job", "logs", name).stdout.count(" on ") == size)


def show(slurm: Allranks, name: str) -> Any:
    return json.loads(slurm("job", "show", name, "--json").stdout)


def ended(slurm: Allranks, name: str, seconds: float = 60) -> Any:
    done = slurm("job", "wait", name, "--timeout", seconds, "--json", timeout=seconds + 10)
    assert done.returncode in (0, 1), done.stderr
    return show(slurm, name)


def events(slurm: Allranks, name: str, kind: str) -> list[Any]:
    told = json.loads(slurm("job", "events", name, "--json").stdout)
    return [event for event in told if event["kind"] == kind]


def hosts(slurm: Allranks, name: str) -> list[str]:
    """The hosts of the present attempt, by node."""
    return [node["host"] for node in show(slurm, name)["node_states"]]


def number(cluster: Cluster) -> str:
    """Slurm's number of the one job there is."""
    return cluster.slurm("squeue", "-h", "-o", "%A").split()[0]


# ---------------------------------------------------------------- running


@pytest.mark.end_to_end
def test_every_node_is_a_host_and_finds_the_others(slurm: Allranks, cluster: Cluster):
    script = (
        'echo "$RANK $LOCAL_RANK $(hostname) $MASTER_ADDR $GLOO_SOCKET_IFNAME"; '
        "echo $RANK >outputs/$RANK; env | grep -c SLURM; true"
    )
    done = slurm("run", "--name", "who", "-n", 3, "-p", 2, "--", "bash", "-c", script)
    assert done.returncode == 0, done.stderr
    first = f"198.18.{cluster.env['CLUSTER_ID']}.11"
    wanted = [f"{rank} {rank % 2} n{rank // 2 + 1} {first} eth0" for rank in range(6)]
    # Of Slurm's own variables ranks see none: JAX and Lightning would take them for their own.
    assert sorted(done.stdout.split("\n")) == sorted([*wanted, *["0"] * 6, ""])
    job = show(slurm, "who")
    assert (job["compute"], hosts(slurm, "who")) == ("s", ["n1", "n2", "n3"])
    assert sorted(p.name for p in Path(job["folder"], "artifacts/outputs").iterdir()) == list(
        "012345"
    )
    until(lambda: not cluster.slurm("squeue", "-h"))


def test_it_goes_on_while_its_server_is_away(slurm: Allranks, home: Path):
    begin(slurm, "long", "-n", 2, seconds=6)
    assert slurm("server", "stop").returncode == 0
    job = ended(slurm, "long")
    assert (job["status"], job["attempts"]) == ("Completed", 1)


def test_cancel_leaves_nothing(slurm: Allranks, cluster: Cluster, home: Path):
    begin(slurm, "stop-me", "-n", 3)
    assert slurm("job", "cancel", "stop-me").returncode == 0
    assert ended(slurm, "stop-me")["status"] == "Canceled"
    assert "saved" in slurm("job", "logs", "stop-me", "--rank", 2).stdout
    until(lambda: not cluster.slurm("squeue", "-h"))
    assert not [p for p in agents() if str(home) in p]


def agents() -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if "allranks.agent" in process.cmdline():
                found.append(process.environ().get("ALLRANKS_AGENT_DIR", ""))
        except psutil.Error:
            continue
    return found


def test_what_the_site_adds_reaches_the_ranks(slurm: Allranks):
    lines = json.dumps(["export SITE=here", "export PATH=/opt/site/bin:$PATH"])
    key = f"resources.properties.slurm.prologue={lines}"
    script = "echo $SITE; echo $PATH"
    done = slurm("run", "--set", key, "--", "bash", "-c", script)
    site, path = done.stdout.splitlines()
    assert site == "here"
    # In front of all but the active environment's own programs.
    assert path.split(":")[1] == "/opt/site/bin"


def test_the_agent_can_be_shipped(slurm: Allranks, cluster: Cluster):
    prefix = "resources.properties.slurm"
    python = os.path.realpath("/proc/self/exe")
    ship = ("--set", f"{prefix}.ship_agent=true", "--set", f"{prefix}.python={python}")
    done = slurm("run", "-n", 2, *ship, "--", "hostname")
    assert sorted(done.stdout.split()) == ["n1", "n2"], done.stderr
    assert "allranks" not in cluster("exec", "n1", "ls", "/dev/shm")


def test_no_secret_is_where_others_can_see_it(slurm: Allranks, cluster: Cluster, home: Path):
    begin(slurm, "secret", "-n", 2)
    job = number(cluster)
    environs = [p.environ() for p in psutil.process_iter() if is_agent(p)]
    token = next(e["ALLRANKS_AGENT_TOKEN"] for e in environs if "ALLRANKS_AGENT_TOKEN" in e)
    commands = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
    assert not [line for line in commands if token in line]
    assert token not in cluster.slurm("scontrol", "show", "job", job)
    assert token not in cluster.slurm("scontrol", "write", "batch_script", job, "-")
    slurm("job", "cancel", "secret")


def is_agent(process: psutil.Process) -> bool:
    try:
        return "allranks.agent" in process.cmdline() and "ALLRANKS_AGENT_DIR" in process.environ()
    except psutil.Error:
        return False


# ---------------------------------------------------------------- the agents' door


def test_the_door_is_for_agents_alone_and_under_its_own_certificate(slurm: Allranks):
    door = json.loads(slurm("compute", "show", "s", "--json").stdout)["door"]
    host, _, port = door.removeprefix("https://").partition(":")
    pem = ssl.get_server_certificate((host, int(port)))
    right = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
    home_token = slurm_home_token(slurm)
    with pytest.raises(Unreachable, match="certificate does not match"):
        Client(door, fingerprint="0" * 64).json("GET", "/agent/v1/0/orders?attempt=1&known=")
    with Client(door, home_token, fingerprint=right) as client:
        for path, status in (("/api/v1/jobs", 404), ("/docs", 404), ("/agent/v1/0/orders", 401)):
            with pytest.raises(Exception) as caught:
                client.json("GET", path)
            assert caught.value.http == status, path
    with socket.create_connection((host, int(port)), 5) as plain:
        plain.sendall(b"GET /api/v1/jobs HTTP/1.1\r\n\r\n")
        assert not plain.recv(100).startswith(b"HTTP/1.1 200")


def slurm_home_token(slurm: Allranks) -> str:
    home = json.loads(slurm("server", "status", "--json").stdout)["home"]
    return Path(home, "token").read_text().strip()


def test_where_no_network_leads_the_disk_does(slurm: Allranks, cluster: Cluster, home: Path):
    slurm("compute", "update", "s", "--server-address", "mailbox")
    assert "mailbox" in json.loads(slurm("compute", "show", "s", "--json").stdout)["door"]
    done = slurm("run", "--name", "mail", "-n", 3, "--", "bash", "-c", "echo $RANK $MASTER_ADDR")
    first = f"198.18.{cluster.env['CLUSTER_ID']}.11"
    assert sorted(done.stdout.splitlines()) == [f"{rank} {first}" for rank in range(3)]
    begin(slurm, "mailed", "-n", 2)
    slurm("job", "cancel", "mailed")
    assert ended(slurm, "mailed")["status"] == "Canceled"
    assert "saved" in slurm("job", "logs", "mailed", "--rank", 1).stdout
    until(lambda: not list((home / "nodes").iterdir()))


# ---------------------------------------------------------------- what befalls a cluster


def test_a_host_without_power_is_named_and_the_job_starts_again(slurm: Allranks, cluster: Cluster):
    begin(slurm, "lost", "-n", 2)
    victim = hosts(slurm, "lost")[1]
    cluster("kill-host", victim)
    job = ended(slurm, "lost")
    assert (job["status"], job["error"]["reason"]) == ("Failed", "NODE_LOST")
    assert job["error"]["message"].startswith(f"node 1 ({victim}) was lost")
    assert f"node 1 ({victim}) was lost" in slurm("job", "show", "lost").stdout


def test_a_failed_node_has_its_host_and_the_job_slurms_number(slurm: Allranks, cluster: Cluster):
    script = "import os, time; time.sleep(2); 1 / (os.environ['RANK'] != '1')"
    words = ("run", "--name", "fails", "-n", 2, "-d", "pytorch", "--max-attempts", 2)
    done = slurm(*words, "--", "python", "-c", script)
    assert done.returncode == 1
    there = f"node 1 ({hosts(slurm, 'fails')[1]})"
    assert f"rank 1 on {there}" in show(slurm, "fails")["error"]["message"]
    assert f"attempt 1 failed (rank 1 on {there}" in done.stderr
    explained = slurm("job", "explain", "fails").stdout
    assert f"rank 1 on {there}, line " in explained
    shown = slurm("job", "show", "fails").stdout
    ref = show(slurm, "fails")["cluster_job"]
    assert cluster.slurm("squeue", "-h", "-t", "all", "-j", ref, "-o", "%j").startswith("fails.")
    assert f"(its job {ref})" in shown
    assert f"{hosts(slurm, 'fails')[1]} 198.18." in shown


def test_a_host_that_is_cut_off_does_not_take_part_any_more(
    slurm: Allranks, cluster: Cluster, home: Path
):
    begin(slurm, "cut", "-n", 2, "--max-attempts", 2, seconds=8)
    cluster("cut", hosts(slurm, "cut")[0])
    job = ended(slurm, "cut", seconds=90)
    assert (job["status"], job["attempts"], job["launches"]) == ("Completed", 2, 2)
    assert job["error"] is None
    ready(cluster)
    until(lambda: not [p for p in agents() if str(home) in p], seconds=60)


def test_a_cancel_by_others_is_one(slurm: Allranks, cluster: Cluster):
    begin(slurm, "theirs", "-n", 2, "--max-attempts", 3)
    cluster.slurm("scancel", number(cluster))
    job = ended(slurm, "theirs")
    assert (job["status"], job["attempts"]) == ("Canceled", 1)
    assert "not by allranks" in job["error"]["message"]


def test_the_clusters_time_limit_is_told_in_time(slurm: Allranks):
    limit = [f"resources.properties.slurm.{each}" for each in ("time=1", "warning=45")]
    begin(slurm, "late", "-n", 2, "--set", limit[0], "--set", limit[1], seconds=200)
    job = ended(slurm, "late", seconds=100)
    assert (job["status"], job["error"]["reason"]) == ("Failed", "TIME_LIMIT")
    assert "compute" in job["error"]["message"]
    began = datetime.fromisoformat(job["started_at"]).timestamp()
    for rank in (0, 1):
        said = slurm("job", "logs", "late", "--rank", rank).stdout.split()
        assert "saved" in said
        assert 30 < float(said[said.index("until") + 1]) - began <= 60


@pytest.mark.end_to_end
def test_a_preempted_job_waits_and_starts_again(slurm: Allranks, cluster: Cluster):
    make = ("compute", "create", "low", "--type", "slurm", "--partition", "main", "--exclusive")
    slurm(*make, "--spot-partition", "low")
    spot = ("--set", "queue_settings.job_tier=spot", "--max-attempts", 2)
    begin(slurm, "weak", "-c", "low", "-n", 3, *spot, seconds=6)
    other = ("-p", "high", "-N", "3", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 3")
    cluster.slurm("sbatch", *other)
    job = ended(slurm, "weak", seconds=90)
    assert (job["status"], job["attempts"], job["launches"]) == ("Completed", 2, 2)
    first = next(e for e in events(slurm, "weak", "closing"))
    assert first["data"]["reason"] == "PREEMPTED"
    waited = [e["data"]["why"] for e in events(slurm, "weak", "seen") if e["launch"] == 2]
    assert any(why.startswith("Slurm: ") for why in waited)


def test_a_rehearsed_preemption_gives_the_hosts_back(slurm: Allranks):
    begin(slurm, "rehearsed", "-n", 3, "--max-attempts", 2, seconds=6)
    assert slurm("job", "preempt", "rehearsed", "--node", 2).returncode == 0
    job = ended(slurm, "rehearsed")
    assert (job["status"], job["attempts"], job["launches"]) == ("Completed", 2, 2)
    for rank in range(3):
        said = slurm("job", "logs", "rehearsed", "--rank", rank, "--attempt", 1).stdout
        assert said.endswith("told\nsaved\n")
    first, second = (e["data"]["ref"] for e in events(slurm, "rehearsed", "submitted"))
    assert first != second


@pytest.mark.parametrize("door", ["", "mailbox"])
def test_a_resume_is_rehearsed_on_its_hosts(slurm: Allranks, code: Path, door: str):
    if door:
        slurm("compute", "update", "s", "--server-address", door)
    (code / "count.py").write_text(SCRIPT)
    words = ("-n", 2, "-m", f"loss={STEP}", "--json", "--", "python", "count.py", "well", 900)
    done = slurm("run", "--rehearse", *words, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["verdict"], told["rank"]) == ("exact", 1)
    assert show(slurm, told["killed"])["launches"] == 1


def test_a_requeued_job_is_a_new_gang_and_never_two(slurm: Allranks, cluster: Cluster, home: Path):
    requeue = "resources.properties.slurm.requeue=true"
    begin(slurm, "again", "-n", 3, "--max-attempts", 2, "--set", requeue, seconds=6)
    cluster.slurm("scontrol", "requeue", number(cluster))
    job = ended(slurm, "again", seconds=90)
    assert (job["status"], job["attempts"]) == ("Completed", 2)
    until(lambda: not cluster.slurm("squeue", "-h"))
    assert not [p for p in agents() if str(home) in p]


def test_a_controller_that_is_down_is_no_verdict(slurm: Allranks, cluster: Cluster):
    begin(slurm, "patient", "-n", 3, seconds=45)
    # One that dies within seconds has not saved that the job runs; a change has it save again.
    began, saved = time.time(), Path(cluster.env["CLUSTER_DIR"], "ctld", "job_state")
    cluster.slurm("scontrol", "update", f"JobId={number(cluster)}", "TimeLimit=1:00:00")
    until(lambda: saved.exists() and saved.stat().st_mtime > began, seconds=30)
    cluster("kill-host", "ctl")
    until(lambda: "does not answer" in (show(slurm, "patient")["status_reason"] or ""), 40)
    # Others are not held up by it, and what is submitted now waits.
    assert slurm("run", "-c", "local", "--", "echo", "here").stdout == "here\n"
    assert slurm("run", "--detach", "--name", "later", "--", "hostname").returncode == 0
    until(lambda: "does not answer" in (show(slurm, "later")["status_reason"] or ""), 40)
    cluster("heal", "ctl")
    later = ended(slurm, "later")
    assert (later["status"], later["error"]) == ("Completed", None)
    job = ended(slurm, "patient")
    assert (job["status"], job["attempts"]) == ("Completed", 1)


def test_a_job_of_a_cluster_that_stays_away_can_be_given_up(slurm: Allranks, cluster: Cluster):
    begin(slurm, "left", "-n", 2, seconds=120)
    for host in ("ctl", "n1", "n2"):
        cluster("kill-host", host)
    try:
        until(lambda: "does not answer" in (show(slurm, "left")["status_reason"] or ""), 40)
        assert "--force" in slurm("job", "cancel", "left").stderr
        # Nobody is left to say that it has ended.
        assert slurm("job", "wait", "left", "--timeout", 15).returncode == 124
        assert slurm("job", "cancel", "left", "--force").returncode == 0
        assert ended(slurm, "left")["status"] == "Canceled"
    finally:
        for host in ("ctl", "n1", "n2"):
            cluster("heal", host)
    # What is left there is ended as soon as it answers again.
    until(lambda: not cluster.slurm("squeue", "-h"), seconds=60)


def test_a_drained_node_finishes_what_it_has(slurm: Allranks, cluster: Cluster):
    begin(slurm, "last", "-n", 3, seconds=4)
    drain = ("scontrol", "update", "nodename=n2", "state=drain", "reason=a new disk")
    cluster.slurm(*drain)
    assert ended(slurm, "last")["status"] == "Completed"
    slurm("run", "--detach", "--name", "next", "-n", 3, "--", "hostname")
    until(lambda: show(slurm, "next")["status_reason"])
    told = json.loads(slurm("compute", "show", "s", "--json").stdout)
    assert [h["why"] for h in told["hosts"] if h["name"] == "n2"] == ["a new disk"]
    assert [(j["name"], j["status"]) for j in told["jobs"]] == [("next", "Queued")]
    cluster.slurm("scontrol", "update", "nodename=n2", "state=resume")
    assert ended(slurm, "next")["status"] == "Completed"


# ---------------------------------------------------------------- hosts that come and go


def test_hosts_are_booted_for_a_job_and_the_record_shows_it(slurm: Allranks, cluster: Cluster):
    slurm("compute", "create", "cloud", "--type", "slurm", "--partition", "cloud")
    off(slurm)
    slurm("run", "--detach", "--name", "boots", "-c", "cloud", "-n", 2, "--", "hostname")
    until(lambda: show(slurm, "boots")["status"] == "Provisioning")
    assert "c[1-2] is being booted" in show(slurm, "boots")["status_reason"]
    job = ended(slurm, "boots", seconds=90)
    assert (job["status"], hosts(slurm, "boots")) == ("Completed", ["c1", "c2"])
    seen = [event["data"]["state"] for event in events(slurm, "boots", "seen")]
    assert "provisioning" in seen
    off(slurm)


def test_a_boot_that_fails_is_told(slurm: Allranks, cluster: Cluster):
    slurm("compute", "create", "cloud", "--type", "slurm", "--partition", "cloud")
    off(slurm)
    fails = Path(cluster.env["CLUSTER_DIR"], "etc", "cloud_fail")
    fails.touch()
    try:
        options = ("--name", "dark", "-c", "cloud", "-n", 2)
        slurm("run", "--detach", *options, "--", "hostname")
        until(lambda: show(slurm, "dark")["status"] == "Provisioning")
        # Nothing ran, so nothing is lost: Slurm gives up on the hosts, the job waits for others.
        until(lambda: "ResumeTimeout" in why(slurm, "cloud"), seconds=90)
        until(lambda: show(slurm, "dark")["status"] == "Queued")
        until(lambda: (show(slurm, "dark")["status_reason"] or "").startswith("Slurm: "))
        slurm("job", "cancel", "dark")
        assert ended(slurm, "dark")["status"] == "Canceled"
    finally:
        fails.unlink()
        update = ("scontrol", "update", "nodename=c[1-2]")
        until(lambda: cluster.slurm(*update, "state=power_down_force", check=False) == "")
        cluster.slurm(*update, "state=resume", check=False)


def off(slurm: Allranks) -> None:
    """Slurm has powered them down."""
    until(lambda: states(slurm, "cloud") == ["idle~", "idle~"], seconds=90)


def states(slurm: Allranks, compute: str) -> list[str]:
    told = json.loads(slurm("compute", "show", compute, "--json").stdout)
    # A busy controller may not answer in time: there are no hosts then.
    return [host["state"] for host in told.get("hosts", ())]


def why(slurm: Allranks, compute: str) -> str:
    told = json.loads(slurm("compute", "show", compute, "--json").stdout)
    return " ".join(host["why"] for host in told["hosts"])


# ---------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("flags", "said", "hint"),
    [
        (
            ("--partition", "nope"),
            "Invalid partition name",
            "partitions of the cluster: cloud, high",
        ),
        (("--reservation", "nope"), "Requested reservation is invalid", "sinfo"),
        (("--constraint", "nope"), "Invalid feature specification", "sinfo"),
        (("--gres", "fpga:1"), "Invalid generic resource", "sinfo"),
        (("--conf", "/nowhere/slurm.conf"), "file '/nowhere/slurm.conf' not found", "SLURM_CONF"),
        (("--set-nothing", "1"), "unrecognized arguments", "--help"),
    ],
)
def test_what_the_cluster_does_not_have_is_refused_at_once(slurm: Allranks, flags, said, hint):
    done = slurm("compute", "create", "wrong", "--type", "slurm", *flags)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.stderr
    assert '"wrong"' not in slurm("compute", "list", "--json").stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-n", 9), "it needs 9 nodes with 1 CPU each, 3 available"),
        (("--gpus", 2), "it needs 1 node with 1 CPU and 2 GPUs each, 0 available"),
        (("--set", "resources.properties.slurm.partition=nope"), "Invalid partition name"),
        (("--set", "resources.properties.slurm.partitoin=main"), "unknown option 'partitoin'"),
        (("--set", "resources.properties.slurm.conf=/x"), "unknown option 'conf'"),
        (("--set", "resources.properties.slurm.exclusive=perhaps"), "is not true or false"),
        (("-c", "nowhere"), "no compute named 'nowhere'"),
    ],
)
def test_a_job_that_can_never_run_is_refused_at_submit(slurm: Allranks, options, said):
    done = slurm("run", *options, "--", "hostname")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "hint" in done.stderr
    assert json.loads(slurm("job", "list", "--json").stdout) == []


def test_without_slurms_commands_it_says_so(cluster: Cluster, allranks: Allranks, tmp_path: Path):
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("bash", "env"):
        (bare / name).symlink_to(f"/bin/{name}")
    done = allranks("compute", "create", "s", "--type", "slurm", env={"PATH": str(bare)})
    assert done.returncode == 2
    assert "`sbatch` is not on the PATH" in done.stderr


def test_one_question_a_tick_whatever_the_number_of_jobs(
    cluster: Cluster, home: Path, allranks: Allranks, tmp_path: Path, monkeypatch
):
    asked = tmp_path / "asked"
    spy = tmp_path / "bin" / "squeue"
    spy.parent.mkdir()
    spy.write_text(f'#!/bin/bash\necho "$*" >>{asked}\nexec /usr/bin/squeue "$@"\n')
    spy.chmod(0o755)
    ready(cluster)
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    monkeypatch.setenv("PATH", f"{spy.parent}:{os.environ['PATH']}")
    allranks("compute", "create", "s", "--type", "slurm", "--default")
    hold = "resources.properties.slurm.extra=--hold"
    for n in range(12):
        assert allranks("run", "--detach", "--set", hold, "--", "true").returncode == 0, n
    listed = ("job", "list", "--status", "Queued", "--json")
    until(lambda: len(json.loads(allranks(*listed).stdout)) == 12)
    before = len(asked.read_text().splitlines())
    began = time.monotonic()
    until(lambda: len(asked.read_text().splitlines()) >= before + 6)
    # A tick is half a second: twelve jobs asked for one by one would be there six times as fast.
    assert time.monotonic() - began > 2.0
    allranks("server", "stop", "--all")
    until(lambda: not cluster.slurm("squeue", "-h"), seconds=40)


def test_the_names_of_examples_mean_the_default_compute(slurm: Allranks):
    done = slurm("run", "-c", "azureml:gpu-cluster", "--", "hostname")
    assert done.stdout == "n1\n", done.stderr
    slurm("compute", "map", "gpu-cluster=local")
    done = slurm("run", "-c", "azureml:gpu-cluster", "--", "hostname")
    assert done.stdout == f"{os.uname().nodename}\n"
