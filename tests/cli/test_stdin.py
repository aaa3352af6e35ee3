"""Standard input: what reads it, and what says that it does not."""

import pytest

# Real processes, about half a second a test.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("group", ["schedule", "endpoint", "deployment", "component"])
def test_every_file_of_a_command_may_be_stdin(shared, group):
    done = shared(group, "create", "-f", "-", input="nonsense: 1\n")
    assert (done.returncode, "file not found" in done.stderr) == (2, False), done.stderr
    assert "nonsense" in done.stderr


def test_input_that_a_job_does_not_get_is_noted(shared):
    done = shared("run", "--dry-run", "--", "cat", input="x\n")
    assert "note: standard input is not passed on" in done.stderr
    assert "standard input" not in shared("run", "--dry-run", "--", "cat").stderr
