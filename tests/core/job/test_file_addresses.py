"""One address for one file."""

import pytest

from allranks.core.job.file_addresses import address, downloaded, hint, normal, selects, written_by


@pytest.mark.parametrize(
    ("recorded", "shown", "fetched"),
    [
        ("artifacts/outputs/m.pt", "outputs/m.pt", "artifacts/outputs/m.pt"),
        ("artifacts/work/node-1/m.pt", "work/node-1/m.pt", "artifacts/work/node-1/m.pt"),
        ("attempts/2/user_logs/l", "user_logs/l", "artifacts/user_logs/l"),
        ("attempts/1/user_logs/l", "attempts/1/user_logs/l", "attempts/1/user_logs/l"),
        ("named-outputs/model/m.pt", "named-outputs/model/m.pt", "named-outputs/model/m.pt"),
    ],
)
def test_what_is_shown_and_what_is_fetched_are_one_file(recorded, shown, fetched):
    assert address(recorded, 2) == shown
    assert downloaded(recorded, 2) == fetched
    assert normal(fetched) == normal(shown) == shown


def test_other_ways_to_write_an_address():
    assert normal("./outputs//m.pt") == "outputs/m.pt"
    assert normal("artifacts/outputs/m.pt") == "outputs/m.pt"
    assert normal("outputs.model/m.pt") == "named-outputs/model/m.pt"
    assert normal("outputs.model") == "named-outputs/model"


def test_a_folder_or_a_pattern_means_the_files_in_it():
    assert selects("outputs", "outputs/a/b")
    assert selects("outputs/", "outputs/a/b")
    assert not selects("outputs/a", "outputs/ab")
    assert selects("work/*.pt", "work/a.pt")
    assert selects("outputs.model", "named-outputs/model/x")
    assert selects("work/a[1].pt", "work/a[1].pt")  # a name is a name first


def test_the_node_that_wrote_a_file():
    assert written_by("work/node-3/x", 4) == 3
    assert written_by("outputs/x", 4) is None
    assert written_by("work/x", 1) == 0


def test_a_hint_lists_the_nearest_addresses():
    known = ["named-outputs/model/model.pt", "outputs/other", "user_logs/std_log.txt"]
    assert "it has named-outputs/model/model.pt;" in hint("j", "outputs/model.pt", known)
    assert "it has named-outputs/model/model.pt;" in hint("j", "outputs/modle.pt", known)
    assert "it has named-outputs/model/model.pt;" in hint("j", "model.pt", known)
    assert "outputs/other" in hint("j", "zzz", known)
    assert "job files j" in hint("j", "zzz", [])
    hint("j", "a", ["a\udcff"]).encode()
