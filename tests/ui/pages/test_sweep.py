"""What the parameters of a sweep are worth, drawn."""

from typing import Any, cast

from allranks.ui.pages.sweep import even, worth


def test_where_to_look_next() -> None:
    def summary(importance: float | None, low: float | None, high: float | None, *values: str):
        best = {"trials": 2, "low": low, "high": high, "values": [*values]}
        return {"importance": importance, "best": best}

    trials = [
        {"parameters": {"lr": lr, "drop": drop, "opt": "a"}}
        for lr, drop in ((0.001, 0.0), (0.01, 0.1), (0.1, 0.5))
    ]
    kinds = {"lr": "loguniform", "drop": "uniform", "opt": "choice"}
    job = {
        "trials": trials,
        "spec": {"search_space": {name: {"type": kind} for name, kind in kinds.items()}},
        "parameter_summary": {
            "opt": summary(0.1, None, None, "a"),
            "drop": summary(0.2, 0.1, 0.5),
            "lr": summary(0.7, 0.001, 0.01),
        },
    }
    lr, drop, opt = worth(cast("Any", job))
    assert (lr.name, lr.marks, lr.begin, lr.width) == ("lr", [0, 50, 100], 0, 50)
    assert (drop.marks, drop.begin, drop.width) == ([0, 20, 100], 20, 80)
    assert [lr.next, drop.next, opt.next] == [
        "lr=loguniform(0.001,0.01)",
        "drop=uniform(0.1,0.5)",
        "opt=choice(a)",
    ]
    assert even(cast("Any", job)) == ["drop"]
    assert worth(cast("Any", {**job, "parameter_summary": {}})) == []
