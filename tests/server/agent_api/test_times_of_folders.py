"""The newest checkpoint by the times of folders, on two nodes that share no disk, with real
agents: both pick the same, however often they start again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.server.agent_api.test_own_disks import OWN, Nodes, can_hide, job_of, submit
from tests.server.serving import served
from tests.support import until

# As scripts do: in its state, its outputs and beside itself, each rank looks for the newest folder
# and writes its part of the next, in an order that is neither that of names nor of either node's
# first write. The first of each is not the last that is written to.
SCRIPT = """
n=$ALLRANKS_ATTEMPT
for place in "$ALLRANKS_STATE_DIR" outputs ckpts; do
  mkdir -p "$place"
  cd "$place"
  echo "picks $(ls -dt step_*/ 2>/dev/null | head -1)" \\
    "of $(stat -c '%n %.9Y' step_* 2>/dev/null | sort | tr '\\n' ' ')"
  for step in $((n * 7 % 5)) $((n * 3 % 5)); do
    mkdir -p step_$step
    echo $n > step_$step/$ALLRANKS_JOB-$n-of-rank-$RANK
    [ $RANK = 1 ] || echo $n > step_$step/model
    sleep 0.02
  done
  cd "$OLDPWD"
done
# The first to fail ends the other.
touch "MEET/$ALLRANKS_JOB-$n-$RANK"
until [ -e "MEET/$ALLRANKS_JOB-$n-$((1 - RANK))" ]; do sleep 0.02; done
exit 3
"""
RESTARTS = int(os.environ.get("ALLRANKS_RESTARTS", "4"))


@pytest.mark.slow
@pytest.mark.timeout(60 + 15 * RESTARTS)
def test_two_nodes_pick_the_same_checkpoint_by_time(tmp_path: Path, request: pytest.FixtureRequest):
    """The same as the last attempt wrote to last, with the same times of all folders: three
    attempts of the same agents, then one of a new job."""
    if not can_hide():
        pytest.skip("this user may not have mount namespaces")
    home = tmp_path / "home"
    rows = list[list[str]]()
    wrong = list[list[str]]()

    def printed(job: str, attempt: int) -> list[str]:
        logs = sorted((home / "jobs" / job / f"attempts/{attempt}/user_logs").glob("*"))
        lines = (line for log in logs for line in log.read_text().splitlines())
        return [line.removeprefix("picks ") for line in lines if line.startswith("picks ")]

    with served(home, OWN, look=0.1) as server:
        distribution = {"type": "pytorch", "process_count_per_instance": 1}
        (tmp_path / "meet").mkdir()
        script = SCRIPT.replace("MEET", str(tmp_path / "meet"))
        submit(server, script, 2, retry={"max_attempts": 4}, distribution=distribution)
        job = "j"
        while len(rows) < RESTARTS:
            nodes = Nodes(server, tmp_path / job, job)
            request.addfinalizer(nodes.kill)
            nodes.start(0)
            nodes.start(1)
            nodes.end()
            until(lambda job=job: job_of(server, job)["ended_at"])
            for attempt in range(2 if job == "j" else 1, 5):
                row = printed(job, attempt)
                last = f"step_{(attempt - 1 or 4) * 3 % 5}/ of "
                is_right = len(row) == 6 and row[:3] == row[3:]
                rows.append(row)
                if not (is_right and all(line.startswith(last) for line in row)):
                    wrong.append([f"attempt {attempt} of {job} expects {last}", *row])
            made = server.people.post(f"/api/v1/jobs/{job}/restart", json={})
            assert made.is_success, made.text
            job = made.json()["name"]
            until(lambda job=job: job_of(server, job)["status"] == "Provisioning")
    texts = ["\n".join(row) for row in wrong]
    assert not wrong, f"{len(wrong)} of {len(rows)} rows:\n" + "\n\n".join(texts)
