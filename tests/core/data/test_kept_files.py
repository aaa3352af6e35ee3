"""Which files of a working folder are kept, and what is told of the others."""

import json

from allranks.core.data.kept_files import (
    FILES,
    File,
    LeftOut,
    Missed,
    Summary,
    Why,
    choose,
    left_out,
    listing,
    note,
    sentences,
    summary,
)
from allranks.masking import holds_secrets


def test_the_newest_checkpoints_are_kept_first_and_then_the_smallest_files():
    files = [
        File("checkpoints/1.ckpt", 60, 1.0),
        File("checkpoints/3.ckpt", 60, 3.0),
        File("checkpoints/2.ckpt", 60, 2.0),
        File("b.log", 20, 9.0),
        File("a.log", 20, 9.0),
        File("movie.mp4", 30, 9.0),
    ]
    kept, too_large, too_many = choose(files, 100)
    assert [file.path for file in kept] == ["checkpoints/3.ckpt", "a.log", "b.log"]
    assert {file.path for file in too_large} == {
        "checkpoints/2.ckpt",
        "checkpoints/1.ckpt",
        "movie.mp4",
    }
    assert too_many == []
    assert {*choose(files, None).kept} == {*files}


def test_more_files_than_the_most_are_those_that_matter_least():
    many = [File(f"{number}", 1) for number in range(FILES)]
    kept, _, too_many = choose([*many, File("last.ckpt", 1)], 10**9)
    assert kept[0].path == "last.ckpt"
    assert len(too_many) == 1


def test_files_named_as_secrets_are():
    for name in (
        ".env",
        "deep/.env.local",
        ".netrc",
        ".git-credentials",
        ".pypirc",
        "id_rsa",
        "keys/id_ed25519.bak",
        "id_work",
        "server.PEM",
        "tls.key",
        ".aws/credentials",
        "home/.ssh/config",
        ".kube/cache/x",
    ):
        assert holds_secrets(name), name
    for name in ("model.pt", "environment.txt", "id_map.json", "id_7/model.pt", "keys/a", "a.keys"):
        assert not holds_secrets(name), name


def test_all_files_are_listed_where_an_event_cannot_name_them():
    few = Missed(Why.SECRET, [File(".env", 1)])
    assert listing([few]) == ""
    many = Missed(Why.LIMIT, [File(f"{number}\n.ckpt", number) for number in range(50)])
    lines = listing([few, many]).splitlines()
    assert len(lines) == 51
    assert lines[0].split() == ["1", ".env", "(named", "as", "secrets", "are)"]
    (group,) = left_out([many, Missed(Why.COUNT, [])])
    assert len(group.named) == 20
    assert "and 30 more, listed in not-kept/; " in sentences(Summary(0, 0, (group,)))[0]


def test_what_is_told_of_all_nodes_adds_up():
    names = [File("\udcff\0", 3), File("x" * 300, 2), *[File(f"{n}", 1) for n in range(29)]]
    one = Summary(2, 10, left_out([Missed(Why.LIMIT, names)]))
    two = Summary(1, 5, left_out([Missed(Why.LIMIT, [File("last", 7)])]))
    # As it comes out of the record.
    events = [
        {"attempt": attempt, "data": json.loads(json.dumps({"about": "work", **note(each)}))}
        for attempt, each in ((1, two), (2, one), (2, two))
    ]
    events.append({"attempt": 2, "data": {"about": "metrics"}})
    found = summary(events, 2)
    assert (found.files, found.size) == (3, 15)
    (missing,) = found.left_out
    assert (missing.files, missing.size) == (32, 41)
    assert missing.named[0] == File("last", 7)
    assert missing.named[1].path == "\ufffd?"
    assert missing.named[2].path == "x" * 200 + "…"
    assert "32 files (41 bytes)" in sentences(found)[0]
    assert " and 12 more" in sentences(found)[0]


def test_a_flag_is_named_that_keeps_them_the_next_time():
    def told(*missing: LeftOut) -> str:
        return sentences(Summary(1, 10, missing))[0]

    big = LeftOut(Why.LIMIT, 1, 11 << 30, (File("a", 11 << 30),))
    assert "--keep-work 12g (keep_work: 12g in a job file) keeps" in told(big)
    assert "--keep-work all " in told(LeftOut(Why.IGNORED, 1, 1, (File("a", 1),)))  # of 0.1.0
    assert "./outputs" in told(LeftOut(Why.SECRET, 1, 1, (File(".env", 1),)))
    cache = LeftOut(Why.CACHE, 1, 0, (File(".hub/", 0),))
    assert told(cache).startswith("not kept: 1 folder of the working folder, a cache")
    assert "no space left on device" in told(
        LeftOut(Why.FAILED, 1, 1, (File("a", 1),), "no space left on device")
    )
    assert sentences(Summary(3, 9)) == []


def test_of_a_job_that_can_go_on_nothing_counts_as_lost():
    left = (LeftOut(Why.LIMIT, 1, 90, (File("last.ckpt", 90),)),)
    data = {"about": "work", **note(Summary(1, 5, left, continues=True))}
    last = {"about": "work", **note(Summary(1, 5, left))}
    (sentence,) = sentences(summary([{"attempt": 1, "data": data}], 1))
    assert sentence.startswith("not among the job's files, but a restart finds it: 1 file")
    both = [{"attempt": 1, "data": each} for each in (data, last)]
    assert sentences(summary(both, 1))[0].startswith("not kept: 2 files")
