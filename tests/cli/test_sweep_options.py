"""What `allranks run --sweep` makes of its options."""

import pytest

from allranks.cli.parser import parser_of
from allranks.cli.submit.run import spec_of
from allranks.cli.submit.sweep import sweep_spec

CHOICES = ("--sweep", "lr=choice(1,2)", "--sweep", "b=choice(x,y)", "--minimize", "loss")


@pytest.mark.parametrize(
    ("words", "sampler", "trials", "note"),
    [
        ((), "grid", 4, ""),
        (("--trials", "10"), "grid", 10, ""),  # a grid ends after its last combination
        (("--trials", "3"), None, 3, ""),
        (("--sampler", "random"), "random", 10, "4 combinations of choices for 10 trials"),
        (("--sampler", "bayesian", "-q"), "bayesian", 10, ""),
        (("--sweep", "c=uniform(0,1)"), None, 10, ""),
    ],
)
def test_choices_are_not_repeated(words, sampler, trials, note, capsys):
    options = parser_of("run").parse_args([*CHOICES, *words, "--", "python", "train.py"])
    options.nodes = options.procs_per_node = 1
    spec = sweep_spec(spec_of(options), options)
    assert (spec.get("sampling_algorithm") or {}).get("type") == sampler
    assert spec["limits"]["max_total_trials"] == trials
    assert note in capsys.readouterr().err
