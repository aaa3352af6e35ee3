"""What happened to a job, as marks on its time axis."""

from typing import Any, cast

from allranks.events import Event, Kind
from allranks.ui.pages.timeline import _MARKS, Mark, _lane, _marks


def test_marks_lead_to_what_happened() -> None:
    failure = {"reason": "RANK_EXITED", "message": "rank 3 exited", "failed_at": 9.5}
    events = [
        Event(Kind.ENDED, 10, node=1, rank=3, data=failure),
        Event(Kind.ENDED, 10, node=0, data={"reason": "PEER_FAILED", "message": ""}),
        Event(Kind.CLOSING, 11, data={"purpose": "regroup", "reason": "RANK_EXITED"}),
        Event(Kind.REGROUPED, 12),
        Event(Kind.ENDED, 20, attempt=2, node=0, data={"reason": "PREEMPTED", "message": ""}),
        Event(Kind.CLOSING, 20, attempt=2, data={"purpose": "relaunch", "reason": "PREEMPTED"}),
        Event(Kind.RELAUNCHED, 21, attempt=2),
        Event(Kind.LOST, 30, attempt=3, node=1, data={"why": "silent", "heard": 25.0}),
        Event(Kind.ENDED, 40, attempt=4, node=0, data={"reason": "DONE", "message": ""}),
        Event(Kind.CLOSING, 41, attempt=4, data={"purpose": "finish", "reason": "DONE"}),
    ]
    marks = list(_marks(cast("Any", {"name": "a"}), events))
    assert [(mark.kind, mark.moment, mark.page.removeprefix("/ui/jobs/a/")) for mark in marks] == [
        ("failure", 9.5, "logs?rank=3&attempt=1"),
        ("restart", 12, "logs?rank=all&attempt=2"),
        ("eviction", 20, "details#events"),
        ("restart", 21, "logs?rank=all&attempt=3"),
        ("failure", 25.0, "logs?rank=all&attempt=3"),
    ]


def test_the_last_of_many_marks_is_drawn() -> None:
    marks = [(float(at), Mark("checkpoint", at, "", "")) for at in range(1000)]
    lane = _lane("checkpoint", marks)
    assert (lane.total, lane.marks[-1][0], len(lane.marks) <= _MARKS) == (1000, 999, True)
