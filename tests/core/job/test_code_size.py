"""What is named of a code folder that is too large."""

import pytest

from allranks.core.job.code_size import MOST_BYTES, MOST_FILES, Entry, is_too_large, largest


@pytest.mark.parametrize(
    ("files", "size", "found"),
    [(MOST_FILES, MOST_BYTES, False), (MOST_FILES + 1, 0, True), (1, MOST_BYTES + 1, True)],
)
def test_what_is_too_large(files, size, found):
    assert is_too_large(files, size) is found


def test_the_largest_entries_are_named_by_size():
    files = [("train.py", 5), *((f"data/train/{i}", 100) for i in range(50)), ("data/x", 1)]
    files += [("model.bin", 2000), ("two/a/1", 300), ("two/b/1", 300)]
    assert largest(files) == [
        Entry("data/train/", 5000, 50),
        Entry("model.bin", 2000, 1),
        Entry("two/", 600, 2),
        Entry("train.py", 5, 1),
    ]


def test_at_most_ten_are_named():
    assert [each.size for each in largest((f"{i}", i) for i in range(30))] == [*range(29, 19, -1)]


def test_many_files_are_named_by_their_number():
    files = [("huge", MOST_BYTES), *((f"a/b/{i}", 1) for i in range(MOST_FILES))]
    assert largest(files) == [Entry("a/b/", MOST_FILES, MOST_FILES), Entry("huge", MOST_BYTES, 1)]


def test_a_name_cannot_move_the_cursor():
    assert str(Entry("a\x1b[2J\n/", 1000, 1234)) == "   1.0 kB  a?[2J?/ (1,234 files)"
