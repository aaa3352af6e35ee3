"""Which paths of its job's record a node may write."""

import pytest

from allranks.core.data.node_files import WRITTEN, may_write, parts


@pytest.mark.parametrize(
    "path",
    [
        "artifacts/outputs/model.pt",
        "artifacts/outputs/deep/er\n/x",
        "artifacts/work",
        "artifacts/work/node-7/x",
        "artifacts/system_logs/environment_node_1.txt",
        "attempts/2",
        "attempts/2/work",
        "attempts/2/work/x",
        "named-outputs/model",
        "unbrought/node-1",
        "unbrought/node-1/model/x",
    ],
)
def test_a_node_writes_what_ranks_leave_and_the_log_of_its_environment(path: str):
    assert may_write(path, 1)
    assert any(path == each or path.startswith(f"{each}/") for each in WRITTEN)


@pytest.mark.parametrize(
    "path",
    [
        "artifacts",
        "artifacts/outputs",
        "artifacts/outputs2/x",
        "artifacts/user_logs/std_log.txt",
        "artifacts/system_logs/environment_node_0.txt",
        "artifacts/system_logs/uncommitted.diff",
        "attempts/2/user_logs/std_log.txt",
        "attempts/x/work/y",
        "attempts/٢/work/y",
        "attempts/2\n",
        "artifacts/work\n",
        "attempts/12345678/work",
        "named-outputs",
        "unbrought/node-0/x",
        "unbrought/node-10/x",
        "user_logs/std_log.txt",
        "x/artifacts/outputs/y",
        "",
    ],
)
def test_a_node_does_not_write_what_the_server_or_another_node_writes(path: str):
    assert not may_write(path, 1)


def test_a_nodes_folders_are_in_its_own_part():
    assert parts(3)[0] == "node-3/artifacts/outputs"
