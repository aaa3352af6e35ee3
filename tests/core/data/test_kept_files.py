"""Which files of a working folder are kept, and what is told of the others."""

import json

from allranks.core.data.kept_files import (
    File,
    LeftOut,
    Summary,
    Why,
    choose,
    left_out,
    note,
    sentences,
    summary,
)


def test_the_smallest_files_are_kept_first():
    found = [File("big", 60), File("b", 20), File("a", 20), File("huge", 900)]
    kept, above = choose(found, 100)
    assert kept == [File("a", 20), File("b", 20), File("big", 60)]
    assert above == [File("huge", 900)]
    assert choose(found, None) == (sorted(found, key=lambda file: (file.size, file.path)), [])


def test_what_is_told_of_all_nodes_adds_up():
    names = [File("\udcff\0", 3), File("x" * 300, 2), *[File(f"{n}", 1) for n in range(9)]]
    one = Summary(2, 10, tuple(left_out(Why.LIMIT, names)))
    two = Summary(1, 5, tuple(left_out(Why.LIMIT, [File("last", 7)])))
    # As it comes out of the record.
    events = [
        {"attempt": attempt, "data": json.loads(json.dumps({"about": "work", **note(each)}))}
        for attempt, each in ((1, two), (2, one), (2, two))
    ]
    events.append({"attempt": 2, "data": {"about": "metrics"}})
    found = summary(events, 2)
    assert (found.files, found.size) == (3, 15)
    (missing,) = found.left_out
    assert (missing.files, missing.size) == (12, 21)
    assert missing.named[0] == File("last", 7)
    assert missing.named[1].path == "\ufffd?"
    assert missing.named[2].path == "x" * 200 + "…"
    assert "12 files (21 bytes)" in sentences(found)[0]
    assert " and 7 more" in sentences(found)[0]


def test_a_flag_is_named_that_keeps_them_the_next_time():
    def told(*missing: LeftOut) -> str:
        return sentences(Summary(1, 10, missing))[0]

    big = LeftOut(Why.LIMIT, 1, 11 << 30, (File("a", 11 << 30),))
    assert "--keep-work 12g (keep_work: 12g in a job file) keeps" in told(big)
    assert "--keep-work all " in told(LeftOut(Why.IGNORED, 1, 1, (File("a", 1),)))
    assert "no space left on device" in told(
        LeftOut(Why.FAILED, 1, 1, (File("a", 1),), "no space left on device")
    )
    assert sentences(Summary(3, 9)) == []
