"""Record what agents, clients and the server of a release say to each other.

``python tests/releases/record.py PYTHON [MLFLOW]`` writes the transcript and two files beside it to
``tests/releases/<version>``; as root, for nodes that do not see the home. PYTHON is that of an
environment with the release, MLFLOW that of one with MLflow (without it, no MLflow is recorded).
All processes are the real ones; a proxy between them records. Paths, tokens and names of this
machine become placeholders.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import lzma
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.releases.recording_proxy import MailboxRelay, Proxy, Recording

FOLDER = Path(__file__).parent
CLI = "import sys; from allranks.cli.main import main; sys.exit(main())"
# An agent that is told nothing new asks again: kept only if it was answered with something.
LEASE = 30

# Prints the routes that agents call.
ROUTES = """\
import importlib, json
from allranks.server.agent_api import routes
names = ("channel_routes", "input_routes", "start_routes", "state_routes")
modules = [importlib.import_module(f"allranks.server.agent_api.{name}") for name in names]
app = routes.create_app([route for module in modules for route in module.routes()])
rows = [(min(route.methods), route.path) for route in app.routes if hasattr(route, "methods")]
print(json.dumps([" ".join(row) for row in rows], indent=1))
"""
PLAIN = """\
import os, pathlib, sys, time
rank, attempt = os.environ["RANK"], int(os.environ["ALLRANKS_ATTEMPT"])
state, root = pathlib.Path(os.environ["ALLRANKS_STATE_DIR"]), pathlib.Path(sys.argv[2])
step = state / f"step-{rank}"
before = int(step.read_text()) if step.exists() else 0
print("goes on from", before, "with", pathlib.Path(sys.argv[1]).read_text().strip(), flush=True)
for now in range(before + 1, before + 4):
    print(f"loss: {1 / now}", flush=True)
step.write_text(str(now))
if attempt == 1:
    (state / f"large-{rank}").write_bytes(bytes(1 << 21))
    (root / f"plain-{rank}").touch()
    time.sleep(600)  # until it is preempted
if attempt == 2:
    sys.exit(3)
pathlib.Path("outputs", f"model-{rank}.txt").write_text(f"weights of step {now}")
"""
BUSY = """\
import os, pathlib, sys, threading, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
pathlib.Path(sys.argv[1], f"busy-{dist.get_rank()}").touch()
while True:
    dist.all_reduce(torch.ones(1))
    time.sleep(0.02)
    print("loss: 1", flush=True)
"""
TRACKED = """\
import mlflow, time
mlflow.log_param("lr", 0.1)
for step in range(3):
    mlflow.log_metric("loss", 1 / (step + 1), step=step)
open("notes.txt", "w").write("hello")
mlflow.log_artifact("notes.txt")
mlflow.set_tag("team", "vision")
with mlflow.start_run(run_name="fold", nested=True):
    mlflow.log_metric("accuracy", 0.5)
"""
APART = """\
import os, pathlib, sys, time
attempt, rank = int(os.environ["ALLRANKS_ATTEMPT"]), os.environ["RANK"]
print("attempt", attempt, "reads", pathlib.Path(sys.argv[1], "words.txt").read_text(), flush=True)
notes = pathlib.Path("notes.txt")
print("found", notes.read_text() if notes.exists() else "nothing", flush=True)
notes.write_text(f"of attempt {attempt} {rank}")
pathlib.Path("blob").write_bytes(bytes(1 << 21))
pathlib.Path(sys.argv[2], f"part-{rank}").write_text("part")
if attempt == 1:
    pathlib.Path(sys.argv[3], f"apart-{rank}").touch()
    time.sleep(600)
pathlib.Path("outputs", "model.txt").write_text("weights")
"""
FILES = {
    "code/plain.py": PLAIN,
    "code/busy.py": BUSY,
    "code/apart.py": APART,
    "code/tracked.py": TRACKED,
    "data/words.txt": "words\n",
    "plain.yml": """\
name: plain
display_name: A plain job
experiment_name: birds
tags: {team: vision}
command: python plain.py ${{inputs.words}} @ROOT@ --lr ${{inputs.lr}}
code: code
inputs: {words: {type: uri_file, path: "azureml:words:1"}, lr: 0.1}
metrics: {loss: 'loss: ([0-9.]+)'}
resources: {instance_count: 2}
distribution: {type: pytorch, process_count_per_instance: 1}
state: plain
retry: {max_attempts: 3}
""",
    "pipe.yml": """\
type: pipeline
name: pipe
jobs:
  make:
    command: echo made > ${{outputs.made}}/file
    outputs: {made: {type: uri_folder}}
  use:
    command: cat ${{inputs.made}}/file
    inputs: {made: "${{parent.jobs.make.outputs.made}}"}
""",
    "component.yml": "type: command\nname: say\nversion: 1\ncommand: echo ${{inputs.word}}\n"
    "inputs: {word: {type: string, default: hello}}\n",
    "schedule.yml": "name: nightly\ntrigger: {type: cron, expression: '0 3 * * *'}\n"
    "create_job: pipe.yml\n",
    "endpoint.yml": "name: birds\nauth_mode: key\n",
}
# Asked once there is something to answer.
QUESTIONS = (
    *("job list", "job list --metric loss<0.4 --all", "job show plain", "job show apart"),
    *("job metrics plain", "job events plain", "job files plain", "job logs plain"),
    *("job explain held", "job compare plain apart", "job show pipe", "job show search"),
    *("job download plain -p fetched", "job wait plain", "job stream plain", "job logs apart"),
    *("job tag plain team=birds", "job archive mailed", "job restore mailed", "job delete mailed"),
    *("report plain", "report goodput", "report sweep search", "top --json", "server status"),
    *("state list", "state show plain", "state download plain -p fetched", "state delete held"),
    *("model register birds --job plain --path outputs/model-0.txt", "model list"),
    *("model show birds:1", "model label birds:1 best", "model download birds -p fetched"),
    *("data list", "data show words:1", "data download words -p fetched", "data map"),
    *("data label words:1 best", "data delete words:2", "gc --dry-run"),
    *("environment create train --pip packaging==24.2", "environment list"),
    *("environment show train:1", "environment map", "environment export train"),
    *("component create -f component.yml", "component list", "component show say:1"),
    *("schedule create -f schedule.yml", "schedule list", "schedule show nightly"),
    *("schedule pause nightly", "schedule resume nightly", "schedule delete nightly"),
    *("endpoint create -f endpoint.yml", "endpoint list", "endpoint show birds"),
    *("endpoint get-credentials birds", "endpoint delete birds --yes", "batch-endpoint list"),
    *("compute list", "compute show local", "compute map", "instance map", "datastore list"),
    *("compute update local --max-ranks 64", "datastore show default"),
    *("compute map gpu-cluster=local", "compute set-default local", "instance map NC6=1"),
    *("environment label train:1 prod", "environment clone train:1 other"),
    *("environment delete other:1", "component label say:1 prod"),
    *("component delete say:1", "model delete birds:1", "data map s3://old/ /data/"),
    *("datastore create birds --type s3 --bucket birds", "datastore delete birds"),
    *("server token create ann --role member", "server token list", "server token revoke ann"),
)


class Release:
    """A home of the release, its server behind the proxies, and its command line."""

    def __init__(self, python: str, mlflow: str, root: Path) -> None:
        self.python, self.mlflow = python, mlflow
        self.root, self.home = root, root / "home"
        self.recording = Recording()
        self.files: dict[str, str] = {}
        self.env = {
            "PATH": f"{root}/venv/bin:/usr/bin:/bin",
            "HOME": str(root),
            "LANG": "C.UTF-8",
            "VIRTUAL_ENV": f"{root}/venv",
            "ALLRANKS_HOME": str(self.home),
            "TMPDIR": str(root),
            "ALLRANKS_MAX_RANKS": "0",
            "ALLRANKS_LEASE": str(LEASE),
            "ALLRANKS_LOOK": "0.3",
            "ALLRANKS_PACE": "1",
            "USER": "ann",
            "LOGNAME": "ann",
        }
        if mlflow:
            self.env["ALLRANKS_MLFLOW_PYTHON"] = mlflow

    def start(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.port = port
        self.agents = Proxy(port, self.recording)
        read, write = os.pipe()
        program = FOLDER / "recorded_server.py"
        argv = [
            self.python,
            program,
            self.agents.url,
            "--ready-fd",
            str(write),
            "--port",
            str(port),
        ]
        with open(self.root / "server.log", "wb") as log:
            self.server = subprocess.Popen(
                argv, env=self.env, cwd=self.root, pass_fds=[write], stdout=log, stderr=log
            )
        os.close(write)
        with open(read) as ready:
            assert "url" in ready.read(), (self.root / "server.log").read_text()
        self.relay = MailboxRelay(self.home / "nodes", "relayed", self.recording)

    def stop(self) -> None:
        self.run("server", "stop", "--all", recorded=False, code=None)
        self.server.wait(30)
        self.agents.close()
        self.relay.close()

    @contextlib.contextmanager
    def command(self, *words: str, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
        """A command that runs beside others."""
        proxy = Proxy(self.port, self.recording, " ".join(words))
        env = self.env | {"ALLRANKS_SERVER": proxy.url, "ALLRANKS_TOKEN": self.token}
        argv = [self.python, "-c", CLI, *words]
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        options |= {"stderr": subprocess.STDOUT, **more}
        with subprocess.Popen(argv, env=env, cwd=self.root, **options) as running:
            yield running
        proxy.close()

    def run(self, *words: str, code: int | None = 0, recorded: bool = True) -> str:
        if recorded:
            with self.command(*words) as running:
                text = running.communicate(timeout=120)[0].decode()
        else:
            argv = [self.python, "-c", CLI, *words]
            running = subprocess.Popen(
                argv, env=self.env, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            text = running.communicate(timeout=120)[0].decode()
        print(f"{time.strftime('%X')} {running.returncode} {' '.join(words)[:110]}", flush=True)
        assert code is None or running.returncode == code, f"{words}: {running.returncode}\n{text}"
        return text

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def wait_for(self, *names: str) -> None:
        """Wait for files that ranks create."""
        until = time.monotonic() + 60
        for name in names:
            while not (self.root / name).exists():
                assert time.monotonic() < until, f"{name} did not come"
                time.sleep(0.05)


def preempt_when_ready(release: Release, name: str) -> None:
    release.wait_for(f"{name}-0", f"{name}-1")
    time.sleep(1.5)  # its state and its files are sent
    release.run("job", "preempt", name)


def fill(release: Release, mlflow: str) -> None:
    run, root = release.run, release.root
    run("data", "upload", "data/words.txt", "--name", "words", "--version", "1")
    run("data", "upload", "data", "--name", "words", "--version", "2")
    for kind, more in (("apart", ()), ("mailed", ("--server-address", "mailbox"))):
        text = f"name: {kind}\ntype: {kind}\n"
        text += f"server_address: {more[1]}\n" if more else ""
        (root / f"{kind}.yml").write_text(text)
        run("compute", "create", "-f", f"{kind}.yml")
    # Two nodes, a state, a preemption and a failure: two launches, three attempts.
    with release.command("job", "create", "-f", "plain.yml", "--stream") as streamed:
        preempt_when_ready(release, "plain")
        text = streamed.communicate(timeout=120)[0].decode()
        assert "goes on from 6" in text, text
    # Nodes with disks of their own.
    argv = ("python", "apart.py", "${{inputs.words}}", "${{outputs.parts}}", str(root))
    apart = ("-n", "2", "-c", "apart", "-C", "code", "--max-attempts", "2", "--name", "apart")
    apart += ("-i", "words=azureml:words:2", "-o", "parts", "--detach")
    run("run", *apart, "--", *argv)
    preempt_when_ready(release, "apart")
    run("job", "wait", "apart")
    # No network.
    script = "echo loss: 1; echo out > outputs/file"
    loss = ("-C", "code", "-m", "loss=loss: ([0-9.]+)")
    run("run", "-c", "mailed", "--name", "mailed", *loss, "--", "sh", "-c", script)
    busy(release)
    held(release)
    session(release)
    if mlflow:
        interpreter = (
            "--env",
            f"PYTHONPATH={Path(mlflow).parents[1]}/lib/python3.11/site-packages",
        )
        run("run", "-C", "code", "--name", "tracked", *interpreter, "--", "python", "tracked.py")
    run("run", "-C", "code", "--name", "quiet", "--hang-timeout", "6", "--", "sleep", "5")
    search = ("--sweep", "lr=uniform(0,1)", "--seed", "1", "--trials", "2", "--minimize", "loss")
    script = "echo loss: ${{search_space.lr}}"
    run("run", "--name", "search", *search, *loss, "--", "sh", "-c", script)
    run("job", "create", "-f", "pipe.yml", "--stream")
    run("job", "restart", "search", "--trials", "3", "--stream")
    (root / "apart.yml").unlink()
    release.files = files_of_ranks(release)
    for question in QUESTIONS:
        words = question.split()
        text = run(*words, code=None)
        if "--yes" in text and "--yes" not in words:  # a release that asks before it deletes
            run(*words, "--yes", code=None)


def files_of_ranks(release: Release) -> dict[str, str]:
    """What ranks wrote to the record on a disk that they share with the server."""
    jobs = release.home / "jobs"
    files = [
        file for part in ("artifacts", "named-outputs") for file in jobs.glob(f"*/{part}/**/*")
    ]
    names = {str(file.relative_to(jobs)): file for file in files if file.is_file()}
    return {
        name: file.read_text()
        for name, file in sorted(names.items())
        if not name.startswith("apart/") and file.stat().st_size < 1000
    }


def busy(release: Release) -> None:
    """A job that runs while people look at it and enter it, until it is cancelled."""
    run = release.run
    words = ("-p", "2", "-C", "code", "--name", "busy", "-m", "loss=loss: ([0-9.]+)", "--detach")
    run("run", *words, "--", "python", "busy.py", str(release.root))
    release.wait_for("busy-0", "busy-1")
    with release.command("job", "logs", "-f", "busy") as followed:
        run("job", "exec", "busy", "--", "sh", "-c", "echo inside; echo error >&2; exit 3", code=3)
        with release.command(
            "job", "exec", "busy", "--", "tr", "a-z", "A-Z", stdin=subprocess.PIPE
        ) as piped:
            assert piped.communicate(b"typed\n")[0] == b"TYPED\n"
        run("job", "cp", "data/words.txt", "busy:words.txt")
        run("job", "cp", "busy:words.txt", "fetched-words.txt")
        shell(release)
        port_forward(release)
        run("job", "stacks", "busy")
        run("job", "stacks", "busy", "--collectives", code=None)
        run("job", "profile", "busy", "--seconds", "1", code=None)
        run("job", "profile", "busy", "--last", code=None)
        run("job", "metrics", "busy")
        run("top", "busy", "--json")
        time.sleep(3)  # reports on the pace of ranks
        run("job", "cancel", "busy")
        followed.communicate(timeout=60)


def shell(release: Release) -> None:
    ours, theirs = pty.openpty()
    with release.command("job", "shell", "busy", stdin=theirs, stdout=theirs, stderr=theirs) as it:
        os.close(theirs)
        text = b""
        while b"$" not in text and b"#" not in text:  # before its prompt, input is dropped
            text += os.read(ours, 4096)
        os.write(ours, b"echo from $((40 + 2)); exit 5\n")
        with contextlib.suppress(OSError):  # the end of a terminal
            while text := os.read(ours, 4096):
                pass
        assert it.wait(60) == 5
    os.close(ours)


def port_forward(release: Release) -> None:
    """A connection to a listener of this machine, which the job's nodes are on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with release.command("job", "port-forward", "busy", f"0:{port}") as forwarded:
            assert forwarded.stdout is not None
            line = forwarded.stdout.readline().decode()
            ours = int(re.findall(r"127\.0\.0\.1:(\d+)", line)[0])
            with socket.create_connection(("127.0.0.1", ours)) as near:
                near.sendall(b"ping")
                far, _ = listening.accept()
                with far:
                    assert far.recv(4) == b"ping"
                    far.sendall(b"pong")
                    assert near.recv(4) == b"pong"
            forwarded.terminate()


def held(release: Release) -> None:
    script = "import sys; print('fails', flush=True); raise ValueError('no such bird')"
    words = ("-C", "code", "--name", "held", "--on-failure", "hold=10m", "--detach")
    release.run("run", *words, "--", "python", "-c", script)
    until = time.monotonic() + 60
    while '"held"' not in release.run("job", "events", "held", "--json", recorded=False):
        assert time.monotonic() < until
        time.sleep(0.2)
    release.run("job", "show", "held")
    release.run("job", "exec", "held", "--", "echo", "inside")
    release.run("job", "release", "held", code=None)
    release.run("job", "wait", "held", code=None)


def session(release: Release) -> None:
    """A job on the nodes of another."""
    release.run("dev", "-C", "code", "--name", "here", "--no-jupyter", "--detach")
    release.run("run", "--in", "here", "-C", "code", "--name", "guest", "--", "echo", "a guest")
    release.run("dev", "list")
    release.run("dev", "stop", "here")


def neutral(release: Release, text: str) -> str:
    """Without what belongs to this machine; tokens are named by what they are for."""
    text = re.sub(r"(\d+):([\w.-]+):[0-9a-f]{64}", r"@TOKEN@\1:\2@", text)
    text = re.sub(r"allranks_[\w-]{43}", "allranks_" + 43 * "t", text)
    text = re.sub(r'((?:primary|secondary)\\*":\s*\\*")[\w-]{43}', rf"\g<1>{43 * 'k'}", text)
    urls = sorted({*re.findall(r"127\.0\.0\.1:(\d{4,5})", text)})
    for port in urls:
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{'1' * len(port)}")
    real = os.path.realpath(release.python)
    names = {
        release.token: "@TOKEN@",
        str(release.home): "@HOME@",
        str(release.root): "@ROOT@",
        str(Path(release.python).parents[1]): "@ENVIRONMENT@",
        **({str(Path(release.mlflow).parents[1]): "@MLFLOW@"} if release.mlflow else {}),
        str(Path(real).parents[1]): "@PYTHON@",
        **({getpass.getuser(): "root"} if len(getpass.getuser()) > 3 else {}),
    }
    for name, word in names.items():
        text = text.replace(name, word)
    return re.sub(rf"\b{re.escape(os.uname().nodename)}\b", "@HOST@", text)


def is_repeated_poll(exchange: dict[str, Any]) -> bool:
    """Whether an agent was told what it knew."""
    known = re.search(r"[?&]known=([^&]+)", exchange["path"])
    if not known or exchange["status"] != 200:
        return False
    order = json.loads(exchange["answer"])
    news = {"stacks", "channels", "profile", "guests"} & order.keys()
    return order["id"] == known[1] and not news


def write(release: Release, version: str) -> None:
    exchanges = [each.to_json() for each in release.recording.exchanges if each.answered]
    exchanges = [each for each in exchanges if not is_repeated_poll(each)]
    lines = "\n".join(json.dumps(each, ensure_ascii=False) for each in exchanges)
    path = FOLDER / version / "transcript.xz"
    path.write_bytes(lzma.compress(neutral(release, lines).encode() + b"\n", preset=9))
    text = json.dumps(release.files, indent=1, ensure_ascii=False) + "\n"
    (path.parent / "files_of_ranks.json").write_text(neutral(release, text))
    routes = subprocess.run([release.python, "-c", ROUTES], check=True, capture_output=True)
    (path.parent / "agent_routes.json").write_bytes(routes.stdout)
    print(f"{path}: {len(exchanges)} exchanges, {len(lines)} bytes, {path.stat().st_size} stored")


def main(python: str, mlflow: str = "") -> None:
    words = [python, "-c", "from allranks.version import __version__ as v; print(v)"]
    version = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    # As long on every machine, and short: sockets lie below.
    root = Path(f"/tmp/allranks-{version}-recorded")
    if root.exists():
        sys.exit(f"{root} exists: remove it first")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text.replace("@ROOT@", str(root)))
    (root / "venv").symlink_to(Path(python).parents[1])
    release = Release(python, mlflow, root)
    release.start()
    try:
        fill(release, mlflow)
    finally:
        release.stop()
        write(release, version)
    shutil.rmtree(root)


if __name__ == "__main__":
    main(*sys.argv[1:])
