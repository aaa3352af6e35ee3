from allranks.agent.transport.outbox import Outbox, read
from allranks.events import Kind


def test_what_is_said_is_on_disk_in_order_until_the_server_has_it(tmp_path):
    outbox = Outbox(tmp_path, launch=2, node=1)
    outbox.say(Kind.HELLO, 1, pid=7)
    outbox.say(Kind.ENDED, 1, rank=3, reason="DONE")
    assert [event.seq for event in outbox.unacknowledged()] == [1, 2]
    outbox.acknowledged(1)
    outbox.close()
    assert [event.kind for event in outbox.unacknowledged()] == [Kind.ENDED]
    found = read(tmp_path)
    assert [(e.seq, e.kind, e.launch, e.node, e.rank) for e in found] == [
        (1, Kind.HELLO, 2, 1, None),
        (2, Kind.ENDED, 2, 1, 3),
    ]
    assert found[1].data == {"reason": "DONE"}


def test_a_torn_line_was_never_said(tmp_path):
    outbox = Outbox(tmp_path, 1, 0)
    outbox.say(Kind.HELLO, 1)
    with (tmp_path / "outbox.jsonl").open("a") as file:
        file.write('\n{"kind": "ready", "at": 1.0, "seq"')
    outbox.say(Kind.BYE, 1)
    outbox.close()
    assert [event.kind for event in read(tmp_path)] == [Kind.HELLO, Kind.BYE]


def test_lines_of_the_job_without_end_are_not_all_read(tmp_path, monkeypatch):
    monkeypatch.setattr("allranks.agent.transport.outbox._MOST", 3)
    outbox = Outbox(tmp_path, 1, 0)
    outbox.say(Kind.HELLO, 1)
    with (tmp_path / "outbox.jsonl").open("a") as file:
        file.write("\n\n")
    outbox.say(Kind.BYE, 1)
    outbox.close()
    assert [event.kind for event in read(tmp_path)] == [Kind.HELLO]


def test_a_disk_that_has_no_room_for_it_yet(tmp_path):
    """The server hears it all the same; what died has left all of it, once there was room."""
    folder = tmp_path / "not yet"
    outbox = Outbox(folder, 1, 0)
    outbox.say(Kind.HELLO, 1)
    assert [event.kind for event in outbox.unacknowledged()] == [Kind.HELLO]
    folder.mkdir()
    for kind in (Kind.DRAINED, Kind.BYE):
        outbox.say(kind, 1)
    outbox.close()
    assert [event.kind for event in read(folder)] == [Kind.HELLO, Kind.DRAINED, Kind.BYE]


def test_nothing_was_said(tmp_path):
    assert read(tmp_path) == []


def test_a_server_with_an_older_record_is_told_again(tmp_path):
    outbox = Outbox(tmp_path, 1, 0)
    for kind in (Kind.HELLO, Kind.READY, Kind.STARTED):
        outbox.say(kind, 1)
    outbox.acknowledged(3)
    assert outbox.unacknowledged() == []
    outbox.acknowledged(1)
    assert [event.kind for event in outbox.unacknowledged()] == [Kind.READY, Kind.STARTED]
    outbox.close()
