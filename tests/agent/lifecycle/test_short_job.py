"""What the record of a job that ends at once has: every event, in order, and its whole output."""

import pytest

from tests.support import answer

pytestmark = pytest.mark.slow  # a real server, half a second

SCRIPT = "sleep 0.$RANK; echo said $RANK"
OF_AGENT = ["hello", "ready", "started", "rank_ended", "ended", "drained", "bye"]


def events(allranks, *words):
    assert allranks("run", "--name", "short", *words).returncode == 0
    told = answer(allranks, "job", "events", "short")
    return [(each["kind"], each["node"]) for each in told if each["kind"] != "seen"]


def test_the_only_node_leaves_by_itself(allranks):
    found = events(allranks, "--", "echo", "said")
    kinds = [kind for kind, _ in found]
    assert kinds == [
        *("created", "submitted", "hello", "ready", "go"),
        *OF_AGENT[2:],
        *("closing", "finished"),
    ]
    assert allranks("job", "logs", "short").stdout == "said\n"


def test_whether_it_waits_is_recorded_together_with_its_submission(allranks):
    """A burst of jobs has a transaction less for each."""
    assert allranks("run", "--name", "submitted", "--", "true").returncode == 0
    kinds = [event["kind"] for event in answer(allranks, "job", "events", "submitted")]
    assert kinds[:3] == ["created", "submitted", "seen"]


def test_one_of_two_nodes_waits_for_the_other(allranks):
    """It may have to run again if the other fails."""
    found = events(allranks, "-n", "2", "--", "bash", "-c", SCRIPT)
    for node in (0, 1):
        assert [kind for kind, of in found if of == node] == OF_AGENT
    kinds = [kind for kind, _ in found]
    assert kinds.index("closing") < kinds.index("bye")
    logs = allranks("job", "logs", "short").stdout
    assert sorted(line.split()[-2:] for line in logs.splitlines()) == [["said", "0"], ["said", "1"]]
