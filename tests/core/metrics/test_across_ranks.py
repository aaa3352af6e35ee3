"""A metric of many ranks: the band, and who differs."""

import math
import sys

import pytest

from allranks.core.metrics import across_ranks
from allranks.core.metrics.across_ranks import Track


def _tracks(count, places, value):
    steps = range(places)
    return [Track([*steps], [value(rank, step) for step in steps]) for rank in range(count)]


def test_a_band_has_the_extremes_and_says_whose_they_are():
    tracks = _tracks(3, 4, lambda rank, step: rank + 10.0 * step)
    tracks[2].values[1] = math.nan
    for track in tracks:
        track.values[3] = math.inf
    band = across_ranks.band(tracks, 100)
    assert band.places == [0, 1, 2, 3]
    assert band.mean == [1.0, 10.5, 21.0, None]
    assert band.least == [0.0, 10.0, 20.0, None]
    assert band.greatest_track == [2, 1, 2, None]


def test_the_mean_of_the_largest_numbers_is_a_number():
    largest = sys.float_info.max
    tracks = _tracks(3, 4, lambda rank, step: -largest if step == 3 else largest)
    assert across_ranks.band(tracks, 4).mean == [largest] * 3 + [-largest]
    assert across_ranks.band(tracks, 1).mean == [pytest.approx(largest / 2)]
    assert across_ranks.mean([largest, 1.0]) == largest / 2


def test_a_spike_of_one_rank_stays_however_few_places_are_asked_for():
    tracks = _tracks(5, 1000, lambda rank, step: 50.0 if (rank, step) == (3, 777) else 1.0)
    for most in (1, 7, 300, 1000):
        band = across_ranks.band(tracks, most)
        assert len(band.places) <= most
        assert max(band.greatest) == 50.0
        assert band.greatest_track[band.greatest.index(50.0)] == 3


def test_steps_out_of_order_and_repeated_after_a_resume():
    tracks = [Track([3, 1, 2, 2], [3.0, 1.0, 2.0, 4.0]), Track([1, 2, 3], [1.0, 2.0, 3.0])]
    band = across_ranks.band(tracks, 3)
    assert band.places == [1, 2, 3]
    assert band.greatest == [1.0, 4.0, 3.0]


def test_times_of_nodes_whose_clocks_differ_share_columns():
    tracks = [Track([n + node / 100 for n in range(100)], [1.0] * 100) for node in range(8)]
    columns, cells, _ = across_ranks.grid(tracks, 300)
    assert len(columns) <= 100
    assert not any(cell is None for row in cells for cell in row)


@pytest.mark.parametrize("length", [2, 5, 30])
def test_two_nodes_are_no_saw(length):
    """A short job, whose nodes were measured at different times."""
    levels = (100.0, 300.0)
    tracks = [
        Track([at + node / 7 * (at % 3) for at in range(length)], [level] * length)
        for node, level in enumerate(levels)
    ]
    tracks[1] = tracks[1]._replace(places=[place + 0.1 for place in tracks[1].places])
    band = across_ranks.band(tracks, 400)
    assert len(band.places) >= length - 1
    assert set(band.mean) == {200.0}
    assert (set(band.least), set(band.greatest)) == ({100.0}, {300.0})


def test_a_node_that_ended_early_has_no_value_in_later_columns():
    tracks = [
        Track([at + node / 100 for at in range(length)], [1.0] * length)
        for node, length in enumerate((100, 50))
    ]
    assert across_ranks.grid(tracks, 300).cells[1][-1] is None


def test_a_late_rank_is_named_and_since_when():
    tracks = _tracks(16, 100, lambda rank, step: 1.0 + 0.5 * (rank == 5 and step >= 60))
    standings = across_ranks.standings(across_ranks.grid(tracks, 300).cells)
    late = standings[5]
    assert [each.outlier for each in standings] == [rank == 5 for rank in range(16)]
    assert (late.late, late.longest, late.begin, late.worst, late.at) == (0.4, 40, 60, 0.5, 60)
    assert standings[0].longest == 0
