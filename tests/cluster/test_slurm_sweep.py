"""A sweep of gangs on Slurm, one of which loses its host."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.test_slurm import hosts, ready, show, slurm
from tests.support import Allranks, until

__all__ = ["slurm"]  # the fixture

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(800)]

# The first attempt of the first trial waits for its end.
SCRIPT = (
    'echo "$ALLRANKS_ATTEMPT of $ALLRANKS_JOB on $(hostname)"; echo "loss $(( 10 - $1 ))";'
    ' [ "$ALLRANKS_ATTEMPT$1" != 11 ] || sleep 600'
)


def test_a_trial_that_loses_its_host_runs_again(slurm: Allranks, cluster: Cluster):
    words = ("run", "--detach", "--name", "s", "-n", 2, "--sweep", "x=choice(1, 2, 3)")
    words += (
        "--sampler",
        "grid",
        "--concurrent",
        1,
        "--minimize",
        "loss",
        "-m",
        r"loss=loss (\d+)",
    )
    done = slurm(*words, "--", "bash", "-c", SCRIPT, "trial", "${{search_space.x}}")
    assert done.returncode == 0, done.stderr
    until(lambda: slurm("job", "logs", "s_0").stdout.count(" on ") == 2, 60)
    cluster("kill-host", hosts(slurm, "s_0")[1])
    until(lambda: show(slurm, "s_0")["attempts"] == 2, 60)
    ready(cluster)
    assert slurm("job", "wait", "s", "--timeout", 120, timeout=130).returncode == 0
    sweep = show(slurm, "s")
    assert sweep["counts"] == {"Completed": 3}
    assert [each["value"] for each in sweep["trials"]] == [7, 8, 9]
    assert (sweep["best"]["job"], sweep["best"]["parameters"]) == ("s_2", {"x": 3})
    assert [show(slurm, f"s_{number}")["attempts"] for number in range(3)] == [2, 1, 1]
