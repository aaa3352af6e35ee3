"""`allranks job tensorboard`, with a program in the place of TensorBoard; the real one is in
tests/frameworks."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from allranks.api import routes
from allranks.cli.job import tensorboard
from allranks.errors import NotFound
from allranks.sdk.connection import find_server
from tests.support import CLI, environment, until

# Real servers and processes.
pytestmark = pytest.mark.slow

# Serves its own words and the files below its folder, as TensorBoard sees them: through links.
FAKE = """#!/bin/sh
exec "{python}" - "$@" <<'END'
import http.server, json, os, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        top = words["--logdir"]
        found = [os.path.join(a, f) for a, _, b in os.walk(top, followlinks=True) for f in b]
        files = [os.path.relpath(each, top) for each in found if os.path.exists(each)]
        self.send_response(200); self.end_headers()
        self.wfile.write(json.dumps([sorted(words), sorted(files)]).encode())
http.server.HTTPServer((words["--host"], int(words["--port"])), Answer).serve_forever()
END
"""
JOB = """
import os, pathlib, sys
for place in ("logs/run1", "outputs/tb", os.environ["SSM_TENSORBOARD_DIR"]):
    os.makedirs(place, exist_ok=True)
    pathlib.Path(place, "events.out.tfevents.1").write_text("1")
print("written", flush=True)
if len(sys.argv) > 1:
    import time
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
    pathlib.Path("logs/later").mkdir()
    pathlib.Path("logs/later/events.out.tfevents.2").write_text("2")
    time.sleep(60)
"""
EVENTS = [
    "logs/run1/events.out.tfevents.1",
    "outputs/tb/events.out.tfevents.1",
    "tensorboard/events.out.tfevents.1",
]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "pro grams"
    folder.mkdir()
    (folder / "tensorboard").write_text(FAKE.format(python=sys.executable))
    (folder / "tensorboard").chmod(0o755)
    return folder


def started(home: Path, folder: Path, *words: object) -> "subprocess.Popen[str]":
    """The command, with the folder first on PATH; in a group of its own, as a terminal has it."""
    env = environment(home) | {"PATH": f"{folder}:{os.environ['PATH']}"}
    del env["VIRTUAL_ENV"]
    return subprocess.Popen(
        [sys.executable, "-c", CLI, "job", "tensorboard", *map(str, words)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def asked(url: str) -> list[list[str]]:
    with urllib.request.urlopen(url, timeout=20) as answer:
        found: list[list[str]] = json.load(answer)
    return found


def interrupted(process: "subprocess.Popen[str]") -> tuple[int, str]:
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def test_of_a_job_that_runs_it_sees_what_is_written_now(shared, shared_home, code, programs):
    (code / "train.py").write_text(JOB)
    name = shared(
        "run", "--detach", "-q", "--", "python", "train.py", code / "go on"
    ).stdout.strip()
    process = started(shared_home, programs, name)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    until(lambda: asked(url) == [["--host", "--logdir", "--port"], EVENTS])
    (code / "go on").touch()
    until(lambda: "logs/later/events.out.tfevents.2" in asked(url)[1])
    exit_code, said = interrupted(process)
    assert (exit_code, "Traceback" in said) == (130, False)
    with pytest.raises(OSError):
        asked(url)
    shared("job", "cancel", name)


def test_what_libraries_write_to_the_working_folder(
    shared, shared_home, code, programs, tmp_path, monkeypatch
):
    """Trainer and Lightning, without a setting: while the job runs, from its end, elsewhere."""
    script = (
        "import pathlib, sys, time\n"
        "for place in ('runs/Nov26', 'lightning_logs/version_0', 'out/runs/x'):\n"
        "    pathlib.Path(place).mkdir(parents=True)\n"
        "    pathlib.Path(place, 'events.out.tfevents.1').write_text('1')\n"
        "    pathlib.Path(place, 'model.bin').write_text('1')\n"
        "print('written', flush=True)\n"
        "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)\n"
    )
    (code / "train.py").write_text(script)
    words = ("--name", "board-work", "--detach", "--", "python", "train.py", code / "go on")
    shared("run", *words)
    until(lambda: "written" in shared("job", "logs", "board-work").stdout)
    events = [
        f"{each}/events.out.tfevents.1"
        for each in ("lightning_logs/version_0", "out/runs/x", "runs/Nov26")
    ]

    def events_shown() -> list[str]:
        process = started(shared_home, programs, "board-work")
        assert process.stdout is not None
        shown = [each for each in asked(process.stdout.readline().strip())[1] if "events" in each]
        interrupted(process)
        return shown

    assert events_shown() == events
    (code / "go on").touch()
    assert shared("job", "wait", "board-work").returncode == 0
    assert events_shown() == events
    monkeypatch.setenv("ALLRANKS_HOME", str(shared_home))
    job = find_server.ask(routes.show_job, "board-work")
    artifacts = tensorboard._artifacts({**job, "folder": "/no/such"}, tmp_path)
    files = sorted(each.name for each in artifacts.rglob("*") if each.is_file())
    assert files == ["events.out.tfevents.1"] * 3


def test_of_a_job_that_ended_and_at_a_port_of_choice(shared, shared_home, code, programs):
    (code / "train.py").write_text(JOB)
    name = shared("run", "--name", "board-ended", "--", "python", "train.py") and "board-ended"
    process = started(shared_home, programs, name, "--json")
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    port = told["url"].split(":")[2].strip("/")
    taken = started(shared_home, programs, name, "--port", port)
    _, said = taken.communicate(timeout=60)
    assert (taken.returncode, f"the port {port} cannot be used" in said) == (2, True)
    assert asked(told["url"])[1] == EVENTS
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=60)
    with pytest.raises(OSError):
        asked(told["url"])
    there = shared("run", "--json", "--", "python", "train.py")
    assert shared("job", "download", json.loads(there.stdout)["name"], "-p", "got").returncode == 0
    assert (code / "got" / "artifacts" / EVENTS[2]).exists()


def test_what_a_job_elsewhere_has_logged_is_fetched(
    shared, shared_home, code, tmp_path, monkeypatch
):
    (code / "train.py").write_text(JOB)
    shared("run", "--name", "board-elsewhere", "--", "python", "train.py")
    monkeypatch.setenv("ALLRANKS_HOME", str(shared_home))
    job = find_server.ask(routes.show_job, "board-elsewhere")
    artifacts = tensorboard._artifacts({**job, "folder": "/no/such"}, tmp_path)
    found = sorted(str(each.relative_to(artifacts)) for each in artifacts.rglob("*tfevents*"))
    assert found == EVENTS


def test_what_cannot_be_shown_is_told(shared, shared_home, code, programs):
    shared("run", "--name", "board-none", "--", "true")
    process = started(shared_home, programs, "board-none")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "board-none has no TensorBoard event files" in said
    assert "$SSM_TENSORBOARD_DIR" in said
    (programs / "tensorboard").write_text("#!/bin/sh\necho it is broken >&2; exit 3\n")
    (code / "train.py").write_text(JOB)
    shared("run", "--name", "board-broken", "--", "python", "train.py")
    process = started(shared_home, programs, "board-broken")
    _, said = process.communicate(timeout=60)
    assert "TensorBoard ended with code 3: it is broken" in said


def test_without_tensorboard_the_hint_says_how_to_install_it(tmp_path, monkeypatch):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NotFound, match="no TensorBoard") as caught:
        tensorboard._program()
    assert f"{python} -m pip install tensorboard" in str(caught.value.hint)
    python.write_text("#!/bin/sh\nexit 0\n")
    assert tensorboard._program() == [str(python), "-m", "tensorboard.main"]


def test_submitting_says_how_to_open_services(shared, code):
    (code / "job.yml").write_text(
        "command: 'true'\nname: with-services\nservices:\n  board: {type: TensorBoard}\n"
        "  code: {type: vs_code}\n  mine: {type: MyOwn}\n"
    )
    done = shared("job", "create", "-f", "job.yml")
    assert "note: to open board: allranks job tensorboard with-services" in done.stderr
    assert "note: to open code: allranks job port-forward with-services code" in done.stderr
    assert "mine" in done.stderr
