"""A host of a Slurm cluster that does not see the server's home: an empty disk lies over it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from tests.cluster import ray_bed
from tests.cluster.conftest import Cluster, number_of
from tests.cluster.ray_bed import RayBed
from tests.cluster.test_slurm import ended, slurm  # noqa: F401 (a fixture)
from tests.support import CLI, Allranks, environment, until
from tests.wheels import wheel

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(800)]


@pytest.fixture
def blind(slurm: Allranks, cluster: Cluster, home: Path) -> Iterator[Allranks]:  # noqa: F811
    """The command line, in a cluster whose n2 has an empty disk at the path of the home."""
    cluster("exec", "n2", "mount", "-t", "tmpfs", "none", home)
    yield slurm
    cluster("exec", "n2", "umount", home)


def needs_home(allranks: Allranks) -> None:
    done = allranks("compute", "update", "s", "--shared-home", "yes")
    assert done.returncode == 0, done.stderr


def test_the_host_is_named_and_its_outputs_are_not_lost_in_silence(blind: Allranks, home: Path):
    needs_home(blind)
    script = "echo $RANK > outputs/$RANK"
    done = blind("run", "--name", "j", "-n", 3, "--", "bash", "-c", script, timeout=120)
    assert done.returncode == 1, done.stdout
    job = ended(blind, "j")
    assert (job["status"], job["error"]["reason"]) == ("Failed", "SETUP_FAILED")
    assert job["error"]["node"] == 1
    message = "node 1 on n2 does not see the server's ALLRANKS_HOME (no such file or directory)"
    assert message in job["error"]["message"]
    assert f"mount the disk with {home} on n2" in done.stderr
    alone = ("run", "--set", "resources.properties.slurm.extra=--exclude=n2", "--", "true")
    assert blind(*alone, timeout=120).returncode == 0, "the others see it"


def test_doctor_tells_which_host(blind: Allranks, tmp_path: Path):
    needs_home(blind)
    file = tmp_path / "job.yml"
    file.write_text("command: 'true'\nresources: {instance_count: 3}\n")
    done = blind("doctor", "--job", file, "--timeout", 60, "--json", timeout=120)
    found = json.loads(done.stdout)
    assert "node 1 on n2 does not see the server's ALLRANKS_HOME" in json.dumps(found)
    assert done.returncode == 1


# Reads an input of the store and one of this machine, and writes what there is to write.
ALL = """
n=$RANK; cat "$0" "$1"/* "$2"/*; hostname
echo $n > outputs/of-$n; echo $n > "$3/$n"; echo $n > "$4/$n"
echo $n > "$ALLRANKS_STATE_DIR/of-$n"; echo work > new-$n
"""


def run_all(allranks: Allranks, home: Path, data: Path, job: str, *words: object) -> Any:
    """A job that uses all that travels, on three hosts; its outputs by path."""
    stored = home / "data" / "set"
    for folder in (stored, data):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "f").write_text(f"of {folder.name}\n")
    done = allranks(
        *("run", "--name", job, "-n", 3, "-d", "pytorch", *words),
        *("--set", "inputs.stored.path=azureml://datastores/default/paths/set"),
        *("--set", f"inputs.local.path={data}", "--set", "outputs.named={}"),
        *("--set", f"outputs.stored.path=azureml://datastores/default/paths/{job}"),
        *("--", "bash", "-c", ALL, "script.txt"),
        *("${{inputs.stored}}", "${{inputs.local}}", "${{outputs.named}}", "${{outputs.stored}}"),
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = home / "jobs" / job
    for n in range(3):
        assert (record / f"artifacts/outputs/of-{n}").read_text() == f"{n}\n"
        assert (record / f"named-outputs/named/{n}").read_text() == f"{n}\n"
        assert (home / f"data/{job}/{n}").read_text() == f"{n}\n"
    assert len([*record.rglob("new-*")]) == 3
    return sorted(done.stdout.split("\n"))


def test_hosts_without_the_home_get_all_from_the_server_and_send_all(
    blind: Allranks, cluster: Cluster, code: Path, home: Path, tmp_path: Path
):
    (code / "script.txt").write_text("the code\n")
    data = tmp_path / "local"
    # An empty folder of that name is not the data.
    data.mkdir()
    cluster("exec", "n2", "mount", "-t", "tmpfs", "none", data)
    try:
        some = run_all(blind, home, data, "some")
    finally:
        cluster("exec", "n2", "umount", data)
    assert some.count("of local") == some.count("of set") == some.count("the code") == 3
    assert [host for host in some if host in ("n1", "n2", "n3")] == ["n1", "n2", "n3"]
    never = run_all(
        blind, home, data, "never", "--set", "resources.properties.slurm.shared_home=no"
    )
    assert never == some
    # Nothing of a job stays on a host.
    find = ("find", "/var/tmp/allranks-0/nodes", "-path", "*never*")
    until(lambda: cluster("exec", "n2", *find) == "")


FAR = """
import os, pathlib, sys, apple
data, out = map(pathlib.Path, sys.argv[1:])
said = "".join(sorted(file.read_text() for file in data.rglob("*") if file.is_file()))
(out / os.environ["RANK"]).write_text(f"{apple.version} {sys.prefix} {said}")
"""


def test_a_client_elsewhere_brings_its_data_and_its_python(
    blind: Allranks, cluster: Cluster, home: Path, tmp_path: Path
):
    """Neither the server nor a host sees its disk, and one host does not see the home."""
    far = tmp_path / "far"
    far.mkdir()
    file = wheel(tmp_path, "apple")
    env = environment(home) | {
        "ALLRANKS_SERVER": json.loads((home / "server.json").read_text())["url"],
        "ALLRANKS_TOKEN": (home / "token").read_text().strip(),
        "ALLRANKS_HOME": str(tmp_path / "home of the client"),
        "VIRTUAL_ENV": str(far / "venv"),
    }
    install = f"'{find_uv_bin()}' pip install --no-index --python venv/bin/python '{file}'"
    command = "python far.py '${{inputs.d}}' '${{outputs.o}}'"
    run = f"run -n 3 -d pytorch -i d=data -o o=results --name far -C code -- {command}"
    script = f"""
        mount -t tmpfs none '{far}' && cd '{far}' && mkdir -p data/sub code
        '{sys.executable}' -m venv --without-pip venv; {install}
        echo one > data/1; echo two > data/sub/2; ln -s 1 data/link
        cat > code/far.py; '{sys.executable}' -c '{CLI}' {run} >&2
        cat results/*; '{sys.executable}' -c '{CLI}' job restart far --stream >&2
    """
    argv = ["unshare", "--mount", "bash", "-ec", script]
    done = subprocess.run(
        argv, env=env, input=FAR, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("1.0") == 3, done.stdout
    assert done.stdout.count("one\none\ntwo") == 3, "the link, too"
    assert "/var/tmp/allranks-0" in done.stdout, "on the host without the home"
    for name in ("far", "far-r2"):
        record = home / "jobs" / name / "named-outputs" / "o"
        assert sorted(each.name for each in record.iterdir()) == ["0", "1", "2"]


def test_the_first_host_may_be_the_one_without_it(
    slurm: Allranks,  # noqa: F811
    cluster: Cluster,
    code: Path,
    home: Path,
    tmp_path: Path,
):
    """With modules, which the script loads on that host for all."""
    (code / "script.txt").write_text("the code\n")
    prologue = ("--set", "resources.properties.slurm.prologue=export MADE=by-prologue")
    cluster("exec", "n1", "mount", "-t", "tmpfs", "none", home)
    try:
        run_all(slurm, home, tmp_path / "local", "j")
        line = 'echo "$(hostname) $MADE"'
        done = slurm("run", "-n", 3, *prologue, "--", "bash", "-c", line, timeout=200)
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == [f"n{n} by-prologue" for n in (1, 2, 3)]
    finally:
        cluster("exec", "n1", "umount", home)


def test_an_output_that_only_its_host_sees_is_noted(
    blind: Allranks, cluster: Cluster, tmp_path: Path
):
    for folder in ("apart", "shared"):
        (tmp_path / folder).mkdir()
    cluster("exec", "n2", "mount", "-t", "tmpfs", "none", tmp_path / "apart")
    try:
        outputs = [f"outputs.{name}.path={tmp_path / name}" for name in ("apart", "shared")]
        command = ("ls", "${{outputs.apart}}", "${{outputs.shared}}")
        sets = [word for output in outputs for word in ("--set", output)]
        done = blind("run", "--name", "j", "-n", 3, *sets, "--", *command, timeout=120)
    finally:
        cluster("exec", "n2", "umount", tmp_path / "apart")
    assert done.returncode == 0, done.stderr
    events = json.loads(blind("job", "events", "j", "--json").stdout)
    notes = [each["data"].get("message", "") for each in events if each["kind"] == "note"]
    stays = [note for note in notes if "stays on" in note]
    assert stays == [f"the output apart stays on n2: the server does not see {tmp_path / 'apart'}"]


def test_a_host_without_a_python_is_named(blind: Allranks, cluster: Cluster, tmp_path: Path):
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    cluster("exec", "n2", "mount", "--bind", old, sys.executable)
    names = ["python3", *(f"python3.{minor}" for minor in (11, 12, 13, 14))]
    others = [path for path in map(shutil.which, names) if path and path != sys.executable]
    for path in dict.fromkeys(map(os.path.realpath, others)):
        if path != os.path.realpath(sys.executable):
            cluster("exec", "n2", "mount", "--bind", old, path)
    try:
        done = blind("run", "--name", "j", "-n", 3, "--", "true", timeout=120)
    finally:
        cluster("exec", "n2", "umount", sys.executable)
        for path in dict.fromkeys(map(os.path.realpath, others)):
            cluster("exec", "n2", "umount", path, check=False)
    assert done.returncode == 1
    job = ended(blind, "j")
    assert job["error"]["reason"] == "SETUP_FAILED"
    assert "node 1 on n2 has no Python 3.11 or newer" in job["error"]["message"]


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[RayBed]:
    with ray_bed.static(tmp_path_factory.mktemp("ray"), number_of("ray", worker_id)) as found:
        yield found


@pytest.mark.ray
def test_nodes_of_ray_without_the_home_get_all_from_the_server_and_send_all(
    allranks: Allranks, bed: RayBed, code: Path, home: Path, tmp_path: Path
):
    (code / "script.txt").write_text("the code\n")
    address, token = bed.options["address"], bed.options["token_file"]
    make = ("compute", "create", "r", "--type", "ray", "--default", "--address", address)
    done = allranks(*make, "--token-file", token)
    assert done.returncode == 0, done.stderr
    bed.cluster("exec", "n2", "mount", "-t", "tmpfs", "none", home)
    try:
        said = run_all(allranks, home, tmp_path / "local", "some")
        assert said.count("of local") == said.count("of set") == said.count("the code") == 3
        assert bed.cluster("exec", "n2", "ls", "-A", home) == ""
    finally:
        bed.cluster("exec", "n2", "umount", home)
        allranks("server", "stop", "--all")
