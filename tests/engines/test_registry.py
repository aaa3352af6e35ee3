"""The engines by name."""

from allranks.engines.registry import KINDS


def test_each_engine_has_the_name_by_which_it_is_found() -> None:
    assert {name: kind.name for name, kind in KINDS.items()} == {name: name for name in KINDS}
    assert [name for name, kind in KINDS.items() if not kind.remote] == [next(iter(KINDS))]
    assert "none" not in KINDS
