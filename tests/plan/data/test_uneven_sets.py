"""Which files of a set are older than the others."""

from hypothesis import given
from hypothesis import strategies as st

from allranks.plan.data.state_manifest import Entry, uneven_sets


def entries(**seconds: float) -> dict[str, Entry]:
    return {path: Entry("file", "x", 1, int(at * 1e9)) for path, at in seconds.items()}


def ranks(*seconds: float, name: str = "shared/rank-{}.pt") -> dict[str, Entry]:
    return entries(**{name.format(rank): at for rank, at in enumerate(seconds)})


def test_a_rank_whose_file_was_not_sent_in_time():
    (found,) = uneven_sets(ranks(16.0, 16.1, 0.0, 16.2), {2, 4})
    assert found == ("shared/rank-*.pt", 4, (2,), 16.2)
    assert str(found).startswith(
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
    (found,) = uneven_sets(ranks(9.0, 3.0, name="shared/step-7/__{:02d}_0.distcp"), {2})
    assert (found.name, found.older) == ("shared/step-7/__*_0.distcp", (1,))
    (found,) = uneven_sets(ranks(9.0, 3.0, 9.0, name="node-{}/rng"), {3})
    assert (found.name, found.older) == ("node-*/rng", (1,))


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=9))
def test_the_newest_is_never_older(seconds):
    for found in uneven_sets(ranks(*seconds), {len(seconds)}):
        assert seconds.index(max(seconds)) not in found.older
        assert found.seconds <= max(seconds) - min(seconds) + 1e-6
