"""Which files of a set are older than the others."""

from hypothesis import given
from hypothesis import strategies as st

from allranks.core.data.state_manifest import Entry, uneven_sets


def entries(**seconds: float) -> dict[str, Entry]:
    return {path: Entry("file", "x", 1, int(at * 1e9)) for path, at in seconds.items()}


def ranks(*seconds: float, name: str = "shared/rank-{}.pt") -> dict[str, Entry]:
    return entries(**{name.format(rank): at for rank, at in enumerate(seconds)})


def test_a_rank_whose_file_was_not_sent_in_time():
    (sentence,) = uneven_sets(ranks(16.0, 16.1, 0.0, 16.2), {2, 4})
    assert sentence.startswith(
        "of the 4 files shared/rank-*.pt, number 2 is up to 16.2 s older than the newest; if each "
    )


def test_files_written_together_are_even():
    assert uneven_sets(ranks(16.0, 16.1, 15.9, 16.2), {4}) == []


def test_only_a_set_of_all_ranks_or_nodes_is_one():
    steps = entries(**{f"shared/step-{step}.pt": step * 10.0 for step in (100, 200, 300, 400)})
    assert uneven_sets(steps, {4}) == []
    assert uneven_sets(ranks(1.0, 2.0, 3.0), {4}) == []
    assert uneven_sets(ranks(1.0), {1}) == []


def test_names_with_several_numbers_and_parts_of_nodes():
    (sentence,) = uneven_sets(ranks(9.0, 3.0, name="shared/step-7/__{:02d}_0.distcp"), {2})
    assert "files shared/step-7/__*_0.distcp, number 1 is up to 6.0 s older" in sentence
    (sentence,) = uneven_sets(ranks(9.0, 3.0, 9.0, name="node-{}/rng"), {3})
    assert "the 3 files node-*/rng, number 1 is" in sentence


def test_many_that_are_older():
    (sentence,) = uneven_sets(ranks(*[0.0] * 9, 5.0), {10})
    assert "number 0, 1, 2, 3, 4, 5, 6, 7 … is up to 5.0 s older" in sentence


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=8))
def test_exactly_those_that_are_older(seconds):
    newest = max(seconds)
    older = [str(rank) for rank, at in enumerate(seconds) if newest - at > 0.5 + 1e-6]
    even = all(newest - at < 0.5 - 1e-6 for at in seconds)
    sentences = uneven_sets(ranks(*seconds), {len(seconds)})
    assert len(sentences) <= 1
    if older:
        numbers = sentences[0].partition("number ")[2].partition(" is ")[0].split(", ")
        assert {*older} <= {*numbers}
        assert str(seconds.index(newest)) not in numbers
    elif even:
        assert sentences == []
