"""Jobs with an image under a real podman; nothing of theirs is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from allranks.sdk.jobs import interrupt
from tests.containers import registry
from tests.containers.conftest import IMAGE, Podman, write_program
from tests.containers.image import PYTHON
from tests.support import CLI, Allranks, environment, until

pytestmark = [pytest.mark.slow, pytest.mark.containers, pytest.mark.timeout(400)]
IN_IMAGE = ("--image", IMAGE)
# What a script leaves behind, told from that of other tests that run meanwhile.
SLEEP = f"300.{os.getpid()}"
# Says when it is up, saves something when told to end, and leaves a process to somebody else.
STAYS = (
    "import signal, subprocess, sys, time\n"
    "def end(*_):\n    open('outputs/saved', 'w').write('saved'); sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, end)\n"
    f"subprocess.Popen(['sleep', '{SLEEP}'], start_new_session=True)\n"
    "print('up', flush=True)\ntime.sleep(200)\n"
)

# Puts links to a folder that it does not see in the place of all that it may write to.
ESCAPES = """\
import contextlib, os, sys
outside = sys.argv[1]
record = os.path.dirname(os.path.dirname(os.path.realpath("outputs")))
deadline = os.environ["ALLRANKS_DEADLINE_FILE"]

def link(path, target):
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.lexists(path):
            os.rename(path, path + ".was")
        os.symlink(target, path)

os.mkdir("sub")
for name in ("sub/new", "secret", "outputs/secret"):
    open(name, "w").write("evil")
open(".netrc", "w").write("is not kept, which a list says")
for folder in (record, os.path.dirname(deadline)):
    for above, _, files in os.walk(folder):
        for name in files:
            link(os.path.join(above, name), outside + "/secret")
link(deadline + ".new", outside + "/secret")
link(os.path.join(os.path.dirname(os.environ["ALLRANKS_STATE_DIR"]), "coming"), outside)
for path in ("artifacts/work/sub", "artifacts/system_logs", "working-folder/0/work/sub"):
    link(os.path.join(record, path), outside)
for number in ("1", "2"):
    for name in ("work", "work-not-kept", "system_logs"):
        link(os.path.join(record, "attempts", number, name), outside)
link(os.path.join(record, "artifacts/outputs/secret"), outside + "/secret")
sys.exit(1)
"""


@pytest.fixture
def here(
    podman: Podman, allranks: Allranks, monkeypatch: pytest.MonkeyPatch, code: Path
) -> Iterator[Allranks]:
    """The command line, with `local` running containers; afterwards there are none."""
    monkeypatch.setenv("PATH", f"{podman.folder}:{os.environ['PATH']}")
    done = allranks("compute", "update", "local", "--container", "podman")
    assert done.returncode == 0, done.stderr
    (code / "stays.py").write_text(STAYS)
    yield allranks
    allranks("server", "stop")
    until(lambda: not podman.names(), 15)
    assert not sleepers()


def sleepers() -> list[psutil.Process]:
    """What the jobs of these tests leave running inside, wherever that is."""
    return [
        each
        for each in psutil.process_iter(["cmdline"])
        if each.info["cmdline"] == ["sleep", SLEEP]
    ]


def begin(here: Allranks, name: str, *words: object) -> None:
    """Have a job of ours running, and its script up."""
    done = here("run", "--detach", "--name", name, *IN_IMAGE, *words, "--", "python", "stays.py")
    assert done.returncode == 0, done.stderr
    until(lambda: "up" in here("job", "logs", name).stdout, 30)


def show(here: Allranks, name: str) -> Any:
    return json.loads(here("job", "show", name, "--json").stdout)


def ended(here: Allranks, name: str) -> Any:
    here("job", "wait", name, "--timeout", 60, timeout=70)
    return show(here, name)


def program(name: str) -> psutil.Process:
    """What runs the container of the first node of the job of that name."""
    return _process(lambda words: any(f".{name}.1-0-1" in word for word in words if word[0] == "-"))


def first(name: str) -> psutil.Process:
    """The first process inside; those that it forks for ranks look the same."""
    return _process(lambda words: words[0] == "/bin/bash" and f"/{name}.1/0/" in words[-1])


def _process(is_it: Callable[[list[str]], bool]) -> psutil.Process:
    found = [
        each
        for each in psutil.process_iter(["cmdline"])
        if (words := list(filter(None, each.info["cmdline"] or []))) and is_it(words)
    ]
    return min(found, key=lambda each: each.create_time())


@pytest.mark.end_to_end
def test_ranks_run_in_the_image_and_find_what_others_find(here: Allranks, code: Path):
    (code / "show.py").write_text(
        "import json, os, socket\n"
        "names = ('RANK', 'LOCAL_RANK', 'NODE_RANK', 'WORLD_SIZE', 'FROM_IMAGE', 'HOME_MADE')\n"
        "told = {name: os.environ.get(name) for name in names}\n"
        "told |= {'host': socket.gethostname(), 'pid': os.getpid(), 'cwd': os.getcwd()}\n"
        "json.dump(told, open(f\"outputs/{os.environ['RANK']}.json\", 'w'))\n"
        "print('rank', os.environ['RANK'])\n"
    )
    odd = "a 'b' \"c\" $HOME\nd"
    done = here(
        *("run", "--name", "seen", "-n", 2, "-p", 2, *IN_IMAGE, "--env", f"HOME_MADE={odd}"),
        *("--set", "environment_variables.my-own=1", "--", "python", "show.py"),
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank}" for rank in range(4)]
    folder = Path(show(here, "seen")["folder"], "artifacts", "outputs")
    told = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(4)]
    assert [each["LOCAL_RANK"] for each in told] == ["0", "1", "0", "1"]
    assert [each["NODE_RANK"] for each in told] == ["0", "0", "1", "1"]
    assert {each["WORLD_SIZE"] for each in told} == {"4"}
    assert {each["FROM_IMAGE"] for each in told} == {"yes"}
    assert {each["HOME_MADE"] for each in told} == {odd}
    assert {each["host"] for each in told} == {os.uname().nodename}
    assert max(each["pid"] for each in told) < 100  # a process table of its own


def test_data_go_in_and_results_come_out_at_the_same_paths(here: Allranks, tmp_path: Path):
    data, results = tmp_path / "da,ta:1 'q\"", tmp_path / "re,s'u"
    data.mkdir()
    (data / "x y").write_text("42\n")
    line = (
        'cat "$AZURE_ML_INPUT_d/x y"; (echo no >"$AZURE_ML_INPUT_d/new") 2>/dev/null || echo kept; '
        'cat "$AZURE_ML_OUTPUT_o/../none" 2>/dev/null; echo 43 >"$AZURE_ML_OUTPUT_o/r"; echo "$0"'
    )
    words = ("-i", f"d={data}", "-o", f"o={results}", "--", "bash", "-c", line, "${{inputs.d}}")
    done = here("run", *IN_IMAGE, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["42", "kept", str(data)]
    assert (results / "r").read_text() == "43\n"


def test_in_place_and_what_else_the_program_is_told(here: Allranks, code: Path):
    sizes = ("--set", "resources.shm_size=96m", "--set", "resources.docker_args=--env X='a b'")
    line = "pwd; df -m /dev/shm; echo $X; echo left >outputs/left"
    done = here("run", "--in-place", *IN_IMAGE, *sizes, "--", "bash", "-c", line)
    assert done.returncode == 0, done.stderr
    where, _, shm, x = done.stdout.splitlines()
    assert (where, shm.split()[1], x) == (str(code), "96", "a b")
    assert (code / "outputs" / "left").exists()


def test_the_launcher_of_deepspeed_reaches_the_containers_of_other_nodes(
    here: Allranks, code: Path
):
    """By ssh and by pdsh, with the image's own programs there and back."""
    (code / "reach.py").write_text(
        "import os, subprocess, time\n"
        "hosts = [line.split()[0] for line in open(os.environ['ALLRANKS_HOSTFILE'])]\n"
        "line = 'echo $NODE_RANK $FROM_IMAGE $HOME_MADE $$; exit 3'\n"
        "if os.environ['RANK'] == '0':\n"
        "    for host in hosts:\n"
        "        done = subprocess.run(['ssh', host, line], capture_output=True, text=True)\n"
        "        print('ssh', done.returncode, *done.stdout.split()[:-1], done.stderr)\n"
        "        assert int(done.stdout.split()[-1]) < 1000, 'a process table of its own'\n"
        "    subprocess.run(['pdsh', '-N', '-w', ','.join(hosts), 'echo pdsh $NODE_RANK'])\n"
        "    subprocess.run(['ssh', hosts[1], ': >over'])\n"
        "while os.environ['RANK'] == '1' and not os.path.exists('over'):\n"
        "    time.sleep(0.05)\n"
    )
    done = here(
        *("run", "-n", 2, "-d", "deepspeed", *IN_IMAGE, "--env", "HOME_MADE=here"),
        *("--", "python", "reach.py"),
    )
    assert done.returncode == 0, done.stderr
    said = sorted(line.strip() for line in done.stdout.splitlines())
    assert said == ["pdsh 0", "pdsh 1", "ssh 3 0 yes here", "ssh 3 1 yes here"]


@pytest.mark.end_to_end
def test_a_rank_that_fails_is_named_and_ends_the_others(here: Allranks):
    line = 'if [ "$RANK" = 1 ]; then echo oops >&2; exit 3; fi; sleep 300'
    done = here("run", "-n", 2, *IN_IMAGE, "--", "bash", "-c", line)
    assert done.returncode == 3
    assert "rank 1 on node 1 exited with code 3; its last line: oops" in done.stderr
    segv = here("run", "-p", 2, *IN_IMAGE, "--", "bash", "-c", "[ $RANK = 0 ] || kill -SEGV $$")
    assert segv.returncode == 128 + signal.SIGSEGV
    assert "rank 1 on node 0 was ended by SIGSEGV" in segv.stderr


def test_a_single_rank_inside_can_be_killed(here: Allranks):
    line = 'trap "" TERM; echo up; sleep 300'
    here("run", "--detach", "--name", "one", "-p", 3, *IN_IMAGE, "--", "bash", "-c", line)
    until(lambda: here("job", "logs", "one").stdout.count("up\n") == 3)
    interrupt.kill("one", 1)
    error = ended(here, "one")["error"]
    assert (error["reason"], error["message"]) == (
        "RANK_KILLED",
        "rank 1 on node 0 was ended by SIGKILL",
    )


def test_a_canceled_job_has_its_grace(here: Allranks):
    begin(here, "saves", "-n", 2)
    assert here("job", "cancel", "saves").returncode == 0
    job = ended(here, "saves")
    assert job["status"] == "Canceled"
    assert Path(job["folder"], "artifacts", "outputs", "saved").read_text() == "saved"


def test_an_image_may_talk_before_anything_of_ours(here: Allranks, podman: Podman):
    """As those do that set BASH_ENV, which every bash reads first."""
    podman("create", "--name=talks", IMAGE, "bash", "-c", "true")
    talks = ("--change", "ENV BASH_ENV=/etc/talk", "--change", f"ENV PATH={PYTHON}:/usr/bin:/bin")
    root = podman("mount", "talks")
    Path(root, "etc").mkdir(exist_ok=True)
    Path(root, "etc", "talk").write_text("printf 'hello from the image'; export TALKED=1\n")
    podman("umount", "talks")
    podman("commit", "--quiet", *talks, "talks", "localhost/talks:1")
    podman("rm", "talks")
    words = ("--env", "UID=7", "--env", "SECONDS=x", "--", "env")
    done = here("run", "--image", "localhost/talks:1", *words)
    assert done.returncode == 0, done.stderr
    assert "TALKED=1" in done.stdout
    assert {"UID=7", "SECONDS=x"} <= set(done.stdout.splitlines())


def test_where_ranks_are_is_told_from_inside_and_a_hang_is_noticed(here: Allranks, code: Path):
    (code / "stuck.py").write_text("import time\ndef stuck(): time.sleep(600)\nstuck()\n")
    words = ("--hang-timeout", 6, "--name", "stuck", *IN_IMAGE, "--", "python", "stuck.py")
    done = here("run", *words, timeout=120)
    assert "rank 0 is in stuck (stuck.py:2)" in done.stderr
    begin(here, "well")
    told = json.loads(here("job", "stacks", "well", "--json").stdout)
    assert "stays.py" in {each["file"] for each in told["groups"][0]["stack"]}
    here("job", "cancel", "well")


def test_attempts_each_have_a_container(here: Allranks):
    line = 'if [ "$ALLRANKS_ATTEMPT" = 1 ]; then touch /mark; exit 1; fi; ls /mark'
    done = here("run", "--max-attempts", 2, *IN_IMAGE, "--", "bash", "-c", line)
    assert done.returncode == 2  # what `ls` says: the first one's files went with it
    assert "attempt 2" in done.stderr


@pytest.mark.parametrize("killed", [program, first], ids=["its program", "its first process"])
def test_nothing_outlives_what_is_killed(here: Allranks, killed: Callable[[str], psutil.Process]):
    begin(here, "killed")
    killed("killed").send_signal(signal.SIGKILL)
    job = ended(here, "killed")
    assert job["status"] == "Failed"
    said = "the container of node 0 ended, with all processes in it"
    assert job["error"]["message"] == said


def test_nothing_outlives_a_killed_agent(here: Allranks, podman: Podman):
    begin(here, "orphan")
    above = program("orphan").parents()
    agents = [each for each in above if "allranks.agent" in " ".join(each.cmdline())]
    agents[0].send_signal(signal.SIGKILL)
    job = ended(here, "orphan")
    assert (job["status"], job["error"]["reason"]) == ("Failed", "NODE_LOST")
    assert not sleepers()
    until(lambda: not podman.names(), 15)


def test_what_podman_believes_to_run_is_tidied_up(here: Allranks, podman: Podman):
    """All of it killed at once, as the end of a cgroup does: nobody is left to tell podman."""
    begin(here, "believed")
    whole = [program("believed"), first("believed").parent(), first("believed")]
    above = program("believed").parents()
    agents = [each for each in above if "allranks.agent" in " ".join(each.cmdline())]
    for each in (every := [*agents[:2], *whole]):
        each.suspend()
    for each in every:
        each.kill()
    ended(here, "believed")
    until(lambda: not sleepers(), 15)
    assert "Up" in podman.names()
    assert here("run", *IN_IMAGE, "--", "true").returncode == 0
    until(lambda: not podman.names(), 15)


def test_a_container_is_not_forgotten_in_the_middle_of_its_start(here: Allranks, code: Path):
    """A question to the image that takes long, and a cancel meanwhile."""
    slow = ("--set", "resources.docker_args=--env BASH_ENV=/dev/stdin")  # it reads what is asked
    words = ("run", "--detach", "--name", "slow", *IN_IMAGE, *slow, "--", "true")
    assert here(*words).returncode == 0
    until(lambda: show(here, "slow")["status"] == "Preparing", 20)
    assert here("job", "cancel", "slow").returncode == 0
    assert ended(here, "slow")["status"] == "Canceled"


def test_what_cannot_be_is_told_in_one_sentence(here: Allranks, monkeypatch: pytest.MonkeyPatch):
    def told(*words: str) -> tuple[int, str]:
        done = here("run", *words, "--", "true")
        assert "Traceback" not in done.stderr
        assert "hint: " in done.stderr
        return done.returncode, done.stderr

    code, said = told("--image", "nowhere:1")
    assert (code, "cannot pull the image 'nowhere:1': " in said) == (1, True)
    assert "include the registry" in said
    code, said = told(*IN_IMAGE, "--set", "resources.docker_args=--nonsense")
    assert (code, "podman cannot start the container: unknown flag: --nonsense" in said) == (
        1,
        True,
    )
    code, said = told(*IN_IMAGE, "--set", "resources.docker_args=--detach")
    assert (code, "'--detach' cannot be set" in said) == (2, True)
    code, said = told(*IN_IMAGE, "--set", "resources.shm_size=lots")
    assert (code, "resources.shm_size: 'lots' is not an amount" in said) == (2, True)
    code, said = told(*IN_IMAGE, "--set", "resources.docker_args=--env A=b other:1")
    assert (code, "'other:1' does not belong to an option" in said) == (2, True)
    code, said = told("--image", "a bad name")
    assert (code, "must be the name of an image" in said) == (2, True)
    assert here("compute", "create", "plain", "--type", "local").returncode == 0
    code, said = told(*IN_IMAGE, "-c", "plain")
    assert (code, "the compute 'plain' runs no containers" in said) == (2, True)
    assert "allranks compute update plain --container podman" in said
    done = here("compute", "update", "local", "--container", "lxc")
    assert (done.returncode, "'lxc' is not podman or docker" in done.stderr) == (2, True)


def test_a_node_without_the_program_says_so(allranks: Allranks, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable) + ":/usr/bin:/bin")
    if shutil.which("docker"):
        pytest.skip("this machine has one where every PATH leads")
    assert allranks("compute", "update", "local", "--container", "docker").returncode == 0
    done = allranks("run", *IN_IMAGE, "--", "true")
    assert done.returncode == 1
    assert f"`docker` not found on the PATH of {os.uname().nodename}" in done.stderr


class TestAnImageThatIsNotThereYet:
    @pytest.fixture
    def remote(self, podman: Podman, tmp_path: Path) -> Iterator[tuple[str, Any]]:
        podman("push", "--quiet", "--compress=false", IMAGE, f"dir:{tmp_path / 'pushed'}")
        conf = podman.folder / "registries.conf"
        with registry.serving(tmp_path / "pushed") as (name, gate):
            location = name.partition("/")[0]
            conf.write_text(f'[[registry]]\nlocation = "{location}"\ninsecure = true\n')
            yield name, gate
        podman("rmi", "--force", f"{name}:1", check=False)

    def test_it_is_pulled_in_sight_of_the_user(self, here: Allranks, remote: Any):
        name, gate = remote
        image = ("--image", f"{name}:1")
        done = here("run", "--detach", "--name", "far", *image, "--", "bash", "-c", "echo $RANK .")
        assert done.returncode == 0, done.stderr
        doing = f"node 0 pulls the image {name}:1"
        until(lambda: show(here, "far")["status_reason"] == doing, 30)
        assert show(here, "far")["status"] == "Preparing"
        gate.set()
        assert ended(here, "far")["status"] == "Completed"

    def test_a_pull_is_not_waited_for_by_who_is_canceled(self, here: Allranks, remote: Any):
        name, _ = remote
        image = ("--image", f"{name}:1")
        assert here("run", "--detach", "--name", "far", *image, "--", "true").returncode == 0
        until(lambda: "pulls" in (show(here, "far")["status_reason"] or ""), 30)
        began = time.monotonic()
        here("job", "cancel", "far")
        assert ended(here, "far")["status"] == "Canceled"
        assert time.monotonic() - began < 30  # the gate is closed for a minute

    def test_one_that_the_registry_has_not(self, here: Allranks, remote: Any):
        name, gate = remote
        gate.set()
        done = here("run", "--image", f"{name}:2", "--", "true")
        assert done.returncode == 1
        assert f"cannot pull the image '{name}:2': " in done.stderr
        assert "hint: check the name and the tag" in done.stderr


def pause(home: Path) -> None:
    """End what a podman without root leaves, to hold its user's namespace."""
    for each in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            if "podman" in each.name() and each.environ().get("HOME") == str(home):
                each.kill()


def test_without_root(podman: Podman):
    """As a user of no rights at all: the podman of its own, rootless."""
    user = "games"
    base = Path("/tmp", f"allranks-games-{os.getpid()}")
    base.mkdir(mode=0o755)
    try:
        home, run, code = base / "home", base / "run", base / "code"
        for folder in (home, run, code):
            folder.mkdir(mode=0o700)
            shutil.chown(folder, user)
        write_program(base, home / "root", home / "runroot")
        shutil.copy(podman.folder.parent / "image.tar", base / "image.tar")
        (base / "image.tar").chmod(0o644)
        env = environment(home / "all ranks") | {
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(run),
            "PATH": f"{base}:/usr/bin:/bin:/usr/sbin:/sbin",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]

        def by_user(*words: str) -> subprocess.CompletedProcess[str]:
            argv = [*become, *words]
            options: Any = {"capture_output": True, "text": True, "timeout": 120}
            return subprocess.run(argv, env=env, cwd=code, **options)

        def allranks(*words: str) -> subprocess.CompletedProcess[str]:
            return by_user(sys.executable, "-c", CLI, *words)

        here = by_user(sys.executable, "-c", "import allranks, sys; print(sys.base_prefix)")
        if here.stdout.strip() != sys.base_prefix:
            pytest.skip(f"{user} may not read this Python")
        made = by_user(
            "podman",
            "import",
            "--change",
            f"ENV PATH={PYTHON}:/usr/bin:/bin",
            f"{base}/image.tar",
            IMAGE,
        )
        assert made.returncode == 0, made.stderr
        try:
            assert allranks("compute", "update", "local", "--container", "podman").returncode == 0
            pause(home)  # a fresh node has none: it is then the agent's
            line = "id -u; echo mine >outputs/mine"
            began = time.monotonic()
            done = allranks("run", "--name", "mine", *IN_IMAGE, "--", "bash", "-c", line)
            assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
            assert time.monotonic() - began < 9  # what stays is not waited for
            told = json.loads(allranks("job", "show", "mine", "--json").stdout)
            kept = Path(told["folder"], "artifacts", "outputs", "mine")
            assert kept.owner() == user  # root inside is who began it outside
        finally:
            allranks("server", "stop")
            by_user("podman", "rm", "--all", "--force")
            by_user("podman", "rmi", "--all", "--force")
            pause(home)
    finally:
        shutil.rmtree(base, ignore_errors=True)


@pytest.mark.skipif(shutil.which("docker") is None, reason="needs docker's command line")
def test_under_dockers_command_line(
    here: Allranks, podman: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With podman's service in the place of docker's daemon: it speaks docker's API."""
    host = f"unix://{tmp_path}/api"
    monkeypatch.setenv("DOCKER_HOST", host)
    here("server", "stop")
    service = subprocess.Popen(
        [str(podman.folder / "podman"), "system", "service", "--time=0", host],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: (tmp_path / "api").exists())
        made = here("compute", "create", "d", "--type", "local", "--container", "docker")
        assert made.returncode == 0, made.stderr
        done = here("run", "-c", "d", "-p", 2, *IN_IMAGE, "--", "bash", "-c", "echo $FROM_IMAGE")
        assert (done.returncode, done.stdout) == (0, "yes\nyes\n"), done.stderr
        begin(here, "ends", "-c", "d")
        here("job", "cancel", "ends")
        job = ended(here, "ends")
        assert job["status"] == "Canceled"
        assert Path(job["folder"], "artifacts", "outputs", "saved").exists()
        begin(here, "killed", "-c", "d")
        program("killed").send_signal(signal.SIGKILL)
        assert ended(here, "killed")["status"] == "Failed"
        until(lambda: not sleepers(), 15)
    finally:
        here("server", "stop")
        until(lambda: not podman.names(), 15)
        service.terminate()
        service.wait(10)


def test_no_link_of_a_job_leads_those_outside_to_what_it_does_not_see(
    here: Allranks, code: Path, tmp_path: Path
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("of the owner")
    (code / "escapes.py").write_text(ESCAPES)
    words = ("--name", "escapes", "--max-attempts", 2, *IN_IMAGE, "--keep-work", "all")
    here("run", *words, "--", "python", "escapes.py", outside, timeout=90)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret": "of the owner"}
    assert "owner" not in here("job", "logs", "escapes", "--attempt", 1).stdout
    assert show(here, "escapes")["status"] == "Failed"
