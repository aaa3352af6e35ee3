"""Working sets: what their files are called in notes, and how they meet other code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.data import working_set
from allranks.core.data.working_set import About, Merged, SetFile, is_carried, merged


def test_one_line_says_what_an_attempt_finds():
    files = [SetFile("checkpoints/last.ckpt", 5, 9.0), SetFile("log\x1b.csv", 1, 8.0)]
    assert working_set.sentence(2, [files[0]] * 3, 0) == (
        "attempt 2 continues with 3 files of the working folder, newest checkpoints/last.ckpt"
    )
    assert "1 file and 2 removals" in working_set.sentence(3, files[1:], 2)
    assert "\x1b" not in working_set.sentence(3, files[1:], 2)
    assert working_set.sentence(2, [], 0) == "attempt 2 continues with no files of earlier ones"
    assert working_set.sentence(2, files[:1], 0, {2: ["b", "a"], 0: ["c\n"]}, ["own"]) == (
        "attempt 2 continues with 1 file of the working folder, newest checkpoints/last.ckpt; "
        "1 change of node 0: c\\n; 2 changes of node 2: a, b; "
        "changed by several nodes, so each keeps its own: own"
    )


def test_files_that_were_being_written_are_named():
    text = working_set.unfinished_sentence(2, ["a.pt", "b.pt"], ["a.pt"])
    assert "last complete version is used: a.pt" in text
    assert "left out: b.pt" in text
    assert working_set.unfinished_sentence(2, [], []) == ""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("outputs/x", False),
        ("logs", False),
        ("a/logs/x", True),
        ("a/__pycache__/x", False),
        (".git/HEAD", True),
        ("checkpoints/last.ckpt", True),
    ],
)
def test_what_belongs_to_the_set(path, expected):
    assert is_carried(path) is expected


def test_the_new_code_wins():
    old = {"same.py": "1", "both.py": "1", "mended.py": "1", "dropped.py": "1"}
    new = {"same.py": "1", "both.py": "2", "mended.py": "2", "added.py": "2"}
    files = ["same.py", "both.py", "dropped.py", "added.py", "last.ckpt"]
    found = merged(files, ["mended.py", "same.py"], old, new)
    assert found.left_out == {"both.py", "dropped.py", "added.py"}
    assert found.removed == ("same.py",)
    assert "added.py, both.py, dropped.py and 1 more" in found.notes[0]
    assert merged(files, [], old, old) == Merged()


def test_the_new_code_wins_also_if_one_made_a_folder():
    files = ["model", "data", "data/cache", "pkg", "pkg/made"]
    new = {"model/net.py": "2", "data": "2", "pkg/a.py": "2"}
    found = merged(files, [], {}, new, {"data", "pkg"})
    assert found.left_out == {"model", "data", "data/cache"}
    assert "which is used: data, data/cache, model" in found.notes[0]
    assert merged(files, [], new, new, {"data", "pkg"}) == Merged()


paths = st.sampled_from("abcde")
code = st.dictionaries(paths, st.sampled_from("12"))


@given(st.sets(paths), st.sets(paths), code, code)
def test_after_a_merge_no_file_of_the_new_code_is_an_old_one(files, removed, old, new):
    found = merged(files, removed, old, new)
    carried = files - found.left_out
    for path in carried | {*found.removed}:
        assert old.get(path) == new.get(path)
    assert bool(found.notes) == (carried != files or {*found.removed} != removed)


@given(st.lists(st.text()), st.text(), st.integers(0), st.text())
def test_what_the_files_do_not_say_comes_back(removed, folder, over, trouble):
    about = About(tuple(removed), folder, over, trouble)
    assert About.load(about.dump()) == about
