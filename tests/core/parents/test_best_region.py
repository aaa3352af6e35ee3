"""Where the best trials of a sweep lie."""

from __future__ import annotations

from allranks.core.parents.best_region import Region, best_regions


def test_ranges_and_the_most_frequent_values():
    ranked = [{"x": n / 10, "o": "adam" if n % 3 else "sgd", "b": 16} for n in range(20)]
    regions = best_regions(ranked)
    assert regions == {
        "x": Region(4, 0.0, 0.3),
        "o": Region(4, values=("adam", "sgd")),
        "b": Region(4, 16, 16),
    }


def test_a_nested_parameter_counts_where_it_is_drawn():
    ranked = [{"o": "sgd"}, {"o": {"name": "adam"}, "o.beta": 0.9}, *[{"o": "sgd"}] * 5]
    regions = best_regions(ranked)
    assert regions["o"] == Region(3, values=("sgd",))
    assert regions["o.beta"] == Region(1, 0.9, 0.9)


def test_too_few_trials_say_nothing():
    assert best_regions([{"x": 1}] * 5) == {}
    assert best_regions([]) == {}
