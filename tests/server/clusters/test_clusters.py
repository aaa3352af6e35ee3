"""Which compute a name means, and what is said of a name that means none."""

import shlex
from pathlib import Path

import pytest

from allranks.errors import SpecError
from allranks.server.clusters.clusters import Clusters
from allranks.settings import Home
from allranks.spec.compute import Compute
from allranks.spec.job import parse
from tests.server.serving import FAKE


def hint_of(folder: Path, name: str) -> str:
    with pytest.raises(SpecError) as caught:
        Clusters(Home(folder), None, {"fake": FAKE}).find(name)
    return caught.value.problems[0].hint or ""


@pytest.mark.parametrize("name", ["gpu-v100-cluster", "azureml:gpu-v100-cluster"])
def test_a_name_that_is_near_others_leads_to_the_map(tmp_path: Path, name: str) -> None:
    hint = hint_of(tmp_path, name)
    assert "`gpu-cluster`" in hint
    assert "`cpu-cluster`" in hint
    assert "allranks compute map gpu-v100-cluster=fake" in hint


def test_a_name_like_no_other_leads_there_too(tmp_path: Path) -> None:
    hint = hint_of(tmp_path, "zzz")
    assert "available: fake, cpu-cluster, gpu-cluster, serverless" in hint
    assert "allranks compute map zzz=fake" in hint
    assert "allranks compute create zzz --type" in hint


@pytest.mark.parametrize("name", ["it's a; rm -rf ~", "$(reboot)", "a=b"])
def test_the_commands_of_a_hint_are_safe_to_paste(tmp_path: Path, name: str) -> None:
    hint = hint_of(tmp_path, name)
    assert shlex.quote(name) in hint
    assert ("compute map" in hint) == ("=" not in name)


def test_a_job_that_is_about_to_come_lets_its_engine_prepare(tmp_path: Path) -> None:
    prepared: list[object] = []
    kind = FAKE._replace(make=lambda home, options: "engine", prepare=prepared.append)
    clusters = Clusters(Home(tmp_path), None, {"fake": kind})
    clusters.prepare(None)
    clusters.prepare("azureml:fake")
    assert prepared == ["engine", "engine"]
    for wrong in ("none-such", 7, {}):
        clusters.prepare(wrong)  # the submission refuses it
    Clusters(Home(tmp_path), None, {"fake": FAKE}).prepare("fake")


def test_an_option_of_another_engine_is_told_as_such(tmp_path: Path) -> None:
    clusters = Clusters(Home(tmp_path), None)
    compute = Compute(name="k", type="kubernetes", options={"partition": "x"})
    with pytest.raises(SpecError, match="unknown option 'partition'") as caught:
        clusters.options(compute)
    assert str(caught.value.hint).startswith("it is an option of slurm; options: kubeconfig, ")
    options = {"address": 1, "resources": 2}
    slurm = compute.model_copy(update={"type": "slurm", "options": options})
    with pytest.raises(SpecError) as several:
        clusters.options(slurm)
    hints = [str(each.hint).partition(";")[0] for each in several.value.problems]
    assert hints == ["it is an option of ray", "it is an option of ray or kubernetes"]
    spec = parse({"command": "true", "resources": {"properties": {"kubernetes": {"qos": "x"}}}})
    with pytest.raises(SpecError) as of_job:
        clusters.options(compute.model_copy(update={"options": {}}), spec)
    assert "it is an option of slurm" in str(of_job.value.hint)
