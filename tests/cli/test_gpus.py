"""`--gpus`, `compute --gpus-per-node` and `allranks instance map`, on a machine of any kind."""

import json
import os
import time
from pathlib import Path

import pytest

from allranks.engines.local.capacity import this_machine
from tests.support import Allranks, answer

pytestmark = pytest.mark.slow

HAS = this_machine().gpus


def planned(allranks: Allranks, *words: str) -> dict[str, object]:
    done = allranks("run", *words, "--dry-run", "--json", "--", "true")
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_instance_types_can_be_seen_and_changed(allranks: Allranks, code: Path) -> None:
    listed = allranks("instance", "map")
    assert listed.returncode == 0, listed.stderr
    rows = {line.split()[0]: line.split()[1:] for line in listed.stdout.splitlines()[1:]}
    assert rows["Standard_NC24rs_v3"] == ["4", "built", "in"]
    assert rows["ml.p4d.24xlarge"][0] == "8"
    assert "no GPU" not in listed.stdout

    done = allranks("instance", "map", "dgx", "--gpus", 8)
    assert (done.returncode, done.stdout) == (0, "")
    assert "dgx has 8 GPUs" in done.stderr
    assert answer(allranks, "instance", "map")["own"] == {"dgx": 8}
    allranks("instance", "map", "dgx", "--reset")
    assert answer(allranks, "instance", "map")["own"] == {}
    for words in (["dgx"], ["--gpus", 1], ["dgx", "--gpus", -1], ["a b", "--gpus", 1]):
        done = allranks("instance", "map", *words)
        assert done.returncode == 2, words
        assert "hint: " in done.stderr
        assert "Traceback" not in done.stderr


def test_the_instance_type_of_a_job_file_is_shown(shared: Allranks, code: Path) -> None:
    (code / "job.yml").write_text(
        "command: test \"$CUDA_VISIBLE_DEVICES\" = ''\n"
        "resources: {instance_type: Standard_DS3_v2}\n"
    )
    dry = shared("job", "create", "-f", "job.yml", "--dry-run")
    assert "size       Standard_DS3_v2" in dry.stdout
    done = shared("job", "create", "-f", "job.yml", "--set", "name=cpu-size", "--stream")
    assert done.returncode == 0, done.stderr
    shown = shared("job", "show", "cpu-size").stdout
    assert "instance    Standard_DS3_v2" in shown
    told = answer(shared, "job", "show", "cpu-size")
    assert (told["instance_type"], told["gpus_per_node"]) == ("Standard_DS3_v2", 0)


@pytest.mark.skipif(HAS > 0, reason="this machine has GPUs, which a job then gets")
def test_nothing_is_said_of_gpus_on_a_machine_without_any(allranks: Allranks, code: Path) -> None:
    done = allranks("run", "-p", 2, "--", "bash", "-c", 'test -z "$CUDA_VISIBLE_DEVICES"')
    assert done.returncode == 0, done.stderr
    assert "GPU" not in done.stderr
    assert planned(allranks, "-p", "2")["notes"] == []
    refused = allranks("run", "--gpus", 1, "--", "true")
    assert refused.returncode == 2
    assert "1 GPU (0 available)" in refused.stderr


def test_gpus_per_node_of_a_compute(allranks: Allranks, code: Path) -> None:
    made = allranks("compute", "create", "g", "--type", "local", "--gpus-per-node", 3)
    assert made.returncode == 0, made.stderr
    assert "gpus        3 per node" in allranks("compute", "show", "g").stdout
    done = allranks("run", "-c", "g", "--dry-run", "--", "true")
    if HAS < 3:
        assert "3 GPUs" in done.stderr
    assert allranks("compute", "update", "g", "--gpus-per-node", 0).returncode == 0
    assert planned(allranks, "-c", "g")["gang"]["gpus"] == 0  # type: ignore[index]
    assert allranks("compute", "update", "g", "--gpus-per-node", "").returncode == 0
    assert "gpus" not in allranks("compute", "show", "g").stdout.lower().replace("gpus free", "")
    wrong = allranks("compute", "update", "g", "--gpus-per-node", "many")
    assert wrong.returncode == 2
    assert "--gpus-per-node: must be a whole number" in wrong.stderr


# Slurm's commands on a login node whose cluster has two hosts of four GPUs, and one that has none.
SBATCH = '#!/bin/sh\ncat > "$(dirname "$0")/sent"\n'
SINFO = """#!/bin/sh
for gres in 'a|gpu:a100:4(S:0-1)' 'b|gpu:a100:4(S:0-1)' 'c|(null)'; do
  host=${gres%%|*}
  echo "$host|127.0.0.1|idle|0/8/0/8|64000|${gres#*|}|gpu:a100:0|none|"
done
"""


def test_a_cluster_is_asked_what_its_hosts_have(allranks: Allranks, code: Path) -> None:
    programs = code / "bin"
    programs.mkdir()
    for name, text in (("sbatch", SBATCH), ("sinfo", SINFO)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    env = {"env": {"PATH": f"{programs}:{os.environ['PATH']}"}}
    made = allranks("compute", "create", "s", "--type", "slurm", **env)
    assert made.returncode == 0, made.stderr

    def sent(*words: str) -> tuple[str, str]:
        done = allranks("run", "-c", "s", *words, "--dry-run", "--", "true", **env)
        assert done.returncode == 0, done.stderr
        return (programs / "sent").read_text(), done.stdout

    script, shown = sent("-n", "2", "-p", "3")
    assert "--gres=gpu:3" in script
    assert "GPUs: 3 per node, one per process (a node has 4); --gpus 0 for none" in shown
    script, shown = sent("-n", "3", "-p", "3")
    assert "--gres" not in script
    assert "need one each" in shown
    script, shown = sent("-p", "3", "--gpus", "0")
    assert "--gres" not in script
    assert "GPUs:" not in shown
    script, _ = sent("--set", "resources.instance_type=NC24rs_v3")
    assert "--gres=gpu:4" in script
    (programs / "sinfo").write_text("#!/bin/sh\nsleep 60\n")
    began = time.monotonic()
    script, shown = sent("-p", "2")
    assert time.monotonic() - began < 40
    assert "--gres" not in script
    assert "does not report how many" in shown
