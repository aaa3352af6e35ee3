"""`allranks compute …` where no cluster is needed: names, limits, files, what cannot be."""

from pathlib import Path

import pytest
import yaml

from tests.engines.kubernetes import api_server
from tests.support import Allranks, answer

pytestmark = pytest.mark.slow


def names(allranks: Allranks) -> dict[str, bool]:
    listing = answer(allranks, "compute", "list")
    return {each["name"]: each["is_default"] for each in listing["computes"]}


def options(allranks: Allranks, name: str) -> dict[str, object]:
    return dict(answer(allranks, "compute", "show", name)["options"])


def test_the_life_of_a_compute(allranks: Allranks):
    assert names(allranks) == {"local": True}
    made = answer(allranks, "compute", "create", "two", "--type", "local", "--max-instances", 2)
    assert made["max_instances"] == 2
    again = allranks("compute", "create", "two", "--type", "local")
    assert again.returncode == 2
    assert "a compute named 'two' already exists" in again.stderr

    assert allranks("run", "-c", "two", "-n", 2, "--", "true").returncode == 0
    large = allranks("run", "-c", "two", "-n", 3, "--", "true")
    assert large.returncode == 2
    assert "3 nodes exceed the limit of 2 of the compute 'two'" in large.stderr
    assert "--max-instances 3" in large.stderr
    assert allranks("compute", "update", "two", "--max-instances", 3).returncode == 0
    assert allranks("run", "-c", "two", "-n", 3, "--", "true").returncode == 0

    assert allranks("compute", "set-default", "two").returncode == 0
    assert names(allranks) == {"local": False, "two": True}
    done = allranks("run", "--name", "there", "-c", "azureml:cpu-cluster", "--", "true")
    assert done.returncode == 0, done.stderr
    assert answer(allranks, "job", "show", "there")["compute"] == "two"

    mapped = {"gpu-cluster": "local", "serverless": "local"}
    assert answer(allranks, "compute", "map", *map("=".join, mapped.items())) == mapped
    assert answer(allranks, "compute", "map")["gpu-cluster"] == "local"
    listed = allranks("compute", "list").stderr
    assert "gpu-cluster, serverless: mapped to local" in listed
    assert "cpu-cluster: mapped to two" in listed
    allranks("compute", "map", "gpu-cluster=")
    assert "gpu-cluster: mapped to two" in allranks("compute", "list").stderr

    assert allranks("compute", "delete", "--yes", "two").returncode == 0
    assert names(allranks) == {"local": True}
    gone = allranks("run", "-c", "two", "--", "true")
    assert gone.returncode == 2
    assert "no compute named 'two'" in gone.stderr


def test_a_file_has_azures_keys_and_the_engines_options(allranks: Allranks, code: Path):
    (code / "compute.yml").write_text(
        "$schema: https://azuremlschemas.azureedge.net/latest/amlCompute.schema.json\n"
        "name: here\ntype: local\nsize: STANDARD_D2\ntier: Dedicated\nlocation: westus\ncpus: 1.5\n"
    )
    done = allranks("compute", "create", "-f", "compute.yml", "--set", "cpus=1.25")
    assert done.returncode == 0, done.stderr
    assert "`location` has no effect" in done.stderr
    shown = answer(allranks, "compute", "show", "here")
    assert (shown["tier"], shown["options"]) == ("dedicated", {"cpus": 1.25})
    (host,) = shown["hosts"]
    assert host["ready"]
    assert host["cpus"] >= 1
    wait = ("compute", "wait", "here", "--timeout", 5)
    assert allranks(*wait).returncode == 0
    assert allranks(*wait, "--min-nodes", 2, "--timeout", 0.1).returncode == 124


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("name: a\ntype: lokal\n", 2, "no engine named 'lokal'"),
        ("name: a\ntype: local\ncpu: 2\n", 3, "unknown option 'cpu'"),
        ("name: a\ntype: local\ncpus: many\n", 3, "'many' is not a positive number"),
        ("name: a\ntype: local\ntier: gold\n", 3, "must be one of"),
        ("name: a/b\ntype: local\n", 1, "must have 1 to 63 letters"),
        ("name: a\ntype: local\noptions: foo\n", 3, "must be a mapping"),
    ],
)
def test_errors_in_a_file_have_its_lines(allranks, code: Path, text, line, said):
    (code / "c.yml").write_text(text)
    done = allranks("compute", "create", "-f", "c.yml")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: c.yml:{line}: ")
    assert said in done.stderr
    assert "hint" in done.stderr
    assert names(allranks) == {"local": True}


def test_the_built_in_compute_can_be_changed_and_reset(allranks: Allranks):
    nothing = allranks("compute", "delete", "--yes", "local")
    assert (nothing.returncode, "built in" in nothing.stderr) == (2, True)
    assert allranks("compute", "update", "local", "--max-instances", 2).returncode == 0
    done = allranks("run", "-n", 3, "--", "true")
    assert (done.returncode, "3 nodes exceed the limit of 2" in done.stderr) == (2, True)
    assert allranks("compute", "update", "local", "--container", "podman").returncode == 0
    assert options(allranks, "local") == {"container": "podman"}
    deleted = allranks("compute", "delete", "--yes", "local")
    assert "local is reset to its defaults" in deleted.stderr
    assert options(allranks, "local") == {}
    assert names(allranks) == {"local": True}


def test_an_address_that_pods_cannot_call_is_noted(allranks: Allranks, tmp_path: Path):
    note = "note: the nodes have a network of their own, where 127.0.0.1 is not this machine"
    with api_server.running() as cluster:
        file = api_server.kubeconfig(tmp_path, cluster)["kubeconfig"]
        make = ("--type", "kubernetes", "--image", "x", "--kubeconfig", file)
        for number, address in enumerate(("127.0.0.1", "localhost")):
            made = allranks("compute", "create", f"k{number}", *make, "--server-address", address)
            assert (made.returncode, note in made.stderr) == (0, True), made.stderr
        changed = allranks("compute", "update", "k0", "--host-network")
        assert (changed.returncode, note in changed.stderr) == (0, False), changed.stderr
        make += ("--home-volume", "host", "--server-address", "mailbox")
        there = answer(allranks, "compute", "create", "k2", *make)
        assert there["notes"] == []


def test_an_address_is_found_without_a_node_that_the_selector_matches(
    allranks: Allranks, tmp_path: Path
):
    """A pool scaled to zero has no nodes; a user of one namespace may not list any."""
    with api_server.running() as cluster:
        file = api_server.kubeconfig(tmp_path, cluster)["kubeconfig"]
        make = ("--type", "kubernetes", "--image", "x", "--kubeconfig", file)
        empty = (*make, "--node-selector", "gpu=h100")
        made = answer(allranks, "compute", "create", "a", *empty)
        assert made["server_address"] == "127.0.0.1"
        note = "jobs are refused unless nodes are added: no node of it has the label gpu=h100"
        assert note in made["notes"]
        grown = answer(allranks, "compute", "create", "b", *empty, "--autoscaling")
        assert grown["server_address"] == "127.0.0.1"
        assert note not in grown["notes"]
        cluster.fail("GET", "/api/v1/nodes", *[api_server.answers(403, "forbidden")] * 2)
        assert answer(allranks, "compute", "create", "c", *make)["server_address"] == "127.0.0.1"


def test_doctor_fails_for_a_label_that_no_node_has(allranks: Allranks, code: Path, tmp_path: Path):
    """Also with the printed role, which may not read the autoscaler's status."""
    job = "type: command\ncommand: echo hi\ncompute: a\n"
    (code / "job.yml").write_text(
        f"{job}resources: {{properties: {{kubernetes: {{node_selector: [gpu=h100]}}}}}}\n"
    )
    with api_server.running() as cluster:
        file = api_server.kubeconfig(tmp_path, cluster)["kubeconfig"]
        make = ("--type", "kubernetes", "--image", "x", "--kubeconfig", file)
        assert allranks("compute", "create", "a", *make).returncode == 0
        denied = [api_server.answers(403, "forbidden")] * 20
        cluster.fail("GET", "cluster-autoscaler-status", *denied)
        done = allranks("doctor", "--job", "job.yml", "--timeout", 60)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "no node of it has the label gpu=h100" in done.stdout


def test_a_quota_that_is_used_up_is_noted(allranks: Allranks, tmp_path: Path):
    full = (
        'jobs.batch "x" is forbidden: exceeded quota: team, requested: a=1, used: a=0, limited: a=0'
    )
    with api_server.running() as cluster:
        file = api_server.kubeconfig(tmp_path, cluster)["kubeconfig"]
        make = ("--type", "kubernetes", "--image", "x", "--kubeconfig", file, "--host-network")
        note = "note: jobs will wait: the quota 'team' of the namespace is used up: requested a=1"
        for verb in ("create", "update"):
            cluster.fail("POST", "/jobs", api_server.answers(403, full))
            done = allranks("compute", verb, "k", *(make if verb == "create" else make[2:]))
            assert (done.returncode, note in done.stderr) == (0, True), done.stderr


def test_the_rights_that_a_cluster_grants_are_printed(allranks: Allranks):
    done = allranks("compute", "render", "kubernetes", "--namespace", "team")
    kinds = [each["kind"] for each in yaml.safe_load_all(done.stdout)]
    assert kinds[:4] == ["Namespace", "ServiceAccount", "Role", "RoleBinding"]
    assert "namespace: team" in done.stdout
    assert "namespace: allranks" in answer(allranks, "compute", "render", "kubernetes")["manifest"]
    for bad in ("Bad_Name!", "-team", "a.b", "x" * 64):
        for more in ((), ("--server", "--image", "x")):
            wrong = allranks("compute", "render", "kubernetes", f"--namespace={bad}", *more)
            assert (wrong.returncode, wrong.stdout) == (2, "")
            assert f"namespace: {bad!r} is not valid\n\nhint: write lower-case" in wrong.stderr
    other = allranks("compute", "render", "slurm")
    assert (other.returncode, "need nothing in the cluster" in other.stderr) == (2, True)


def test_wrong_use(allranks: Allranks):
    assert "a compute needs a name" in allranks("compute", "create", "--type", "local").stderr
    assert "nothing to change" in allranks("compute", "update", "local").stderr
    assert "NAME=COMPUTE" in allranks("compute", "map", "x").stderr
    nothing = allranks("compute", "show", "nothing")
    assert (nothing.returncode, "no compute named 'nothing'" in nothing.stderr) == (2, True)
    taken = allranks("compute", "create", "local", "--type", "local")
    assert (taken.returncode, "built in" in taken.stderr) == (2, True)
    assert "is a compute" in allranks("compute", "map", "local=local").stderr
    wrong = allranks("compute", "create", "a", "--type", "local", "--memory", "4x")
    assert "memory: '4x' is not an amount of memory" in wrong.stderr
    cloud = allranks("compute", "create", "a", "--type", "amlcompute")
    assert "--type slurm or ray" in cloud.stderr
    mode = allranks("compute", "render", "kubernetes", "--server", "--access-mode", "Banana")
    assert (mode.returncode, "ReadWriteOnce" in mode.stderr) == (2, True), mode.stderr
    for key, said in (("lokal.cpus=1", "engine 'lokal' not found"), ("local.memory=4", "4g")):
        done = allranks("run", "--set", f"resources.properties.{key}", "--", "true")
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_file_of_a_compute_that_exists_updates_it(allranks: Allranks, code: Path):
    """It is what the file says, and nothing of before: as if it were new."""
    (code / "c.yml").write_text("name: a\ntype: local\ncpus: 1\nmax_instances: 2\n")
    assert "a is created" in allranks("compute", "create", "-f", "c.yml", "--default").stderr
    (code / "c.yml").write_text("name: a\ntype: local\nmemory: 1g\n")
    done = allranks("compute", "create", "-f", "c.yml")
    assert (done.returncode, "a is updated: local, memory=1g" in done.stderr) == (0, True), done
    assert answer(allranks, "compute", "show", "a")["max_instances"] is None
    assert names(allranks) == {"local": False, "a": True}
    # A typing mistake in a name still overwrites nothing.
    taken = allranks("compute", "create", "a", "--type", "local")
    assert (taken.returncode, "'a' already exists" in taken.stderr) == (2, True)
    (code / "c.yml").write_text("name: local\ntype: local\n")
    assert "built in" in allranks("compute", "create", "-f", "c.yml").stderr


def test_the_command_line_wins_over_the_file_and_empty_is_unset(allranks: Allranks, code: Path):
    (code / "c.yml").write_text("name: a\ntype: local\ncpus: 1\nmemory: 1g\n")
    done = allranks("compute", "create", "b", "-f", "c.yml", "--cpus", 2)
    assert done.returncode == 0, done.stderr
    assert options(allranks, "b") == {"cpus": 2, "memory": "1g"}
    assert allranks("compute", "update", "b", "--memory", "").returncode == 0
    assert options(allranks, "b") == {"cpus": 2}


def test_deleting_the_default_names_the_next_one(allranks: Allranks):
    allranks("compute", "create", "mine", "--type", "local", "--default")
    assert (
        "local is now the default compute" in allranks("compute", "delete", "--yes", "mine").stderr
    )
