"""A heat map's shades tell ranks apart, whatever a few values are."""

import pytest

from allranks.core.metrics.heat_map import SHADES, heat_map


def test_a_rank_that_differs_is_seen_and_a_spike_does_not_take_the_colours():
    cells = [[1.0 + rank / 1000] * 300 for rank in range(512)]
    cells[137][200:] = [1.8] * 100
    cells[3][5] = 1e9
    cells[4][6] = None
    low, high, shades = heat_map(cells)
    assert (low, high) == (1.0, 1.8)
    assert shades[137 * 300 + 200] == shades[3 * 300 + 5] == SHADES
    assert shades[4 * 300 + 6] == 0
    assert shades[0] == 1
    assert 1 < shades[511 * 300] < SHADES


@pytest.mark.parametrize(
    ("cells", "shades"),
    [
        ([[1.0, 1.0], [1.0, None]], [1, 1, 1, 0]),
        ([[None]], [0]),
        ([[-1e308], [0.0], [1e308]], [1, 128, 255]),
        ([[0.0], [5e-324]], [1, 1]),
        ([[0.0], [1e-306]], [1, 1]),
    ],
)
def test_values_at_the_edges_of_numbers(cells, shades):
    assert [*heat_map(cells).shades] == shades
