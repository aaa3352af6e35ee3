"""A rank that is slow, not stuck: it is named with what slows it down, and never as a failure."""

import json
from pathlib import Path

import pytest

from tests.support import Allranks, until

pytestmark = pytest.mark.slow

# A process stops rank 1 again and again, until there is a file.
SCRIPT = """\
import os, signal, time
import torch, torch.distributed as dist
import torch.distributed.nn  # before the process group: examples/digits/train.py says why
dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 1 and os.fork() == 0:
    parent = os.getppid()
    while os.getppid() == parent and not os.path.exists("fast"):
        os.kill(parent, signal.SIGSTOP); time.sleep(0.1)
        os.kill(parent, signal.SIGCONT); time.sleep(0.05)
    os._exit(0)
while True:
    over = torch.tensor([os.path.exists("over")], dtype=torch.int)
    dist.all_reduce(over)
    if over.item(): break
    time.sleep(0.02)
dist.destroy_process_group()
"""


@pytest.mark.torch
def test_a_slow_rank_is_named_with_its_cause(
    allranks: Allranks, code: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ALLRANKS_PACE", "1")
    (code / "train.py").write_text(SCRIPT)
    words = ("-p", 2, "--in-place", "--detach", "--name", "slow")
    assert allranks("run", *words, "--", "python", "train.py").returncode == 0

    def slow() -> list[dict[str, object]]:
        shown = json.loads(allranks("job", "show", "slow", "--json").stdout)
        assert shown["error"] is None
        return list(shown["slow_ranks"])

    until(slow, 90)
    (one,) = slow()
    assert one["rank"] == 1
    assert one["until"] is None
    assert one["share"] > 0.3  # type: ignore[operator]
    assert "a signal keeps it stopped" in str(one["evidence"])
    table = json.loads(allranks("top", "slow", "--json").stdout)
    assert [rank["slow"] for rank in table["ranks"]] == [False, True]
    assert table["ranks"][0]["waiting"] > table["ranks"][1]["waiting"]
    for command in (("job", "explain"), ("job", "show"), ("report",), ("top", "--once")):
        done = allranks(*command, "slow")
        assert done.returncode == 0, done.stderr
        assert "rank 1 on node 0 holds the others" in done.stdout + done.stderr
    (code / "fast").touch()
    until(lambda: slow()[0]["until"], 60)
    (code / "over").touch()
    assert allranks("job", "wait", "slow").returncode == 0
