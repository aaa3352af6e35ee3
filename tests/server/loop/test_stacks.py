"""Stacks in the record: what cannot be read keeps nobody from the rest."""

import json

from allranks.core.diagnosis.stacks import Frame, Process
from allranks.core.packing import pack
from allranks.server.loop.stacks import Stacks
from allranks.server.loop.wakeups import Wakeups
from allranks.settings import Home


def test_a_record_with_odd_stacks_is_passed_over(tmp_path):
    home = Home(tmp_path)
    process = pack(Process(0, 0, 7, "python", frames=(Frame("/w/a.py", 1, "f"),)))
    odd = {**process, "frames": [{"file": 1, "line": 1, "function": "f"}]}
    stacks = Stacks(home, Wakeups())
    records = [
        {"at": 1.0, "attempt": 1, "missing": [], "processes": [process]},
        {"at": 2.0, "attempt": 2, "missing": [], "processes": [odd]},
        {"at": 3.0, "attempt": 3, "missing": [], "processes": [3]},
        {"at": [], "attempt": 4, "missing": [], "processes": [process]},
        [],
    ]
    assert stacks.saved("j") is None
    for number, told in enumerate(records, 1):
        folder = home.jobs / "j" / "attempts" / str(number) / "system_logs"
        folder.mkdir(parents=True)
        (folder / "stacks.json").write_text(json.dumps(told))
    found = stacks.saved("j")
    assert found is not None
    assert (found["attempt"], found["groups"][0]["doing"]) == (1, "in f (a.py:1)")
