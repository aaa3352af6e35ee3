"""Ordinary training on pods with and without a volume of the home, ended in ways that a seed draws:
all ranks of each attempt begin at one epoch. See `tests/cluster/test_resumes.py`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.cluster.test_resumes import Round, of_options, play
from tests.kubernetes.bed import Kubernetes
from tests.kubernetes.test_jobs_on_kubernetes import pods
from tests.kubernetes.test_pods_without_a_volume import there as there_without
from tests.support import Allranks

__all__ = ["there_without"]

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.timeout(3600)]


@pytest.fixture(params=["none", "shared"])
def disk(request: pytest.FixtureRequest, allranks: Allranks) -> str:
    allranks("server", "start", env={"ALLRANKS_LOOK": "0.3"})
    request.getfixturevalue("there_without" if request.param == "none" else "there")
    return str(request.param)


def test_all_ranks_begin_at_one_epoch_on_pods(
    disk: str,
    allranks: Allranks,
    home: Path,
    code: Path,
    kubernetes: Kubernetes,
    namespace: str,
    pytestconfig: pytest.Config,
):
    def delete(name: str, dice: random.Random) -> None:
        pod = dice.choice(list(pods(kubernetes, namespace).values()))["metadata"]["name"]
        kubernetes.delete(f"api/v1/namespaces/{namespace}/pods/{pod}")

    for seed in of_options(pytestconfig):
        dice = random.Random(f"pods {seed}")
        ends = tuple(dice.choice(["rank", "pod", "pod", "preempt", "restart"]) for _ in range(3))
        script = dice.choice(["in place", "renamed"])
        nodes, in_code = dice.randint(2, 3), dice.random() < 0.5
        folder = "." if script == "in place" else dice.choice([".", "outputs"])
        drawn = Round("pods", disk, nodes, script, in_code, folder, ends)
        print(f"seed {seed}: {drawn}", flush=True)
        play(seed, drawn, allranks, home, code, None, {"pod": delete})
