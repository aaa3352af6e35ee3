"""Computes as files have them: Azure's keys, an engine's options beside them."""

import pytest

from allranks.errors import SpecError
from allranks.spec.compute import Compute, parse
from allranks.spec.yaml.load import read

AZURE = """
$schema: https://azuremlschemas.azureedge.net/latest/amlCompute.schema.json
name: cpu-cluster
type: slurm
size: STANDARD_DS3_v2
min_instances: 0
max_instances: 4
idle_time_before_scale_down: 120
tier: LowPriority
location: westus2
partition: main
time: 60
"""


def test_azures_keys_are_ours_and_the_rest_are_options():
    data, lines = read(AZURE)
    compute, idle = parse(data, lines)
    assert (compute.name, compute.tier, compute.max_instances) == ("cpu-cluster", "low_priority", 4)
    assert compute.options == {"partition": "main", "time": 60}
    assert idle == ("size", "idle_time_before_scale_down", "location")


def test_it_comes_back_as_it_went_in():
    compute, _ = parse({"name": "a", "type": "x", "options": {"p": "q"}, "partition": "main"})
    assert parse(compute.to_dict())[0] == compute
    assert compute == Compute(name="a", type="x", options={"p": "q", "partition": "main"})


@pytest.mark.parametrize(
    ("text", "where", "line"),
    [
        ("name: a b\ntype: x\n", "name", 1),
        ("name: a\n", "type", None),
        ("name: a\ntype: x\nmax_instances: 0\n", "max_instances", 3),
        ("name: a\ntype: x\ntier: gold\n", "tier", 3),
        ("name: a\ntype: x\nmin_instances: 4\nmax_instances: 2\n", "", None),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text, where, line):
    data, lines = read(text)
    with pytest.raises(SpecError) as caught:
        parse(data, lines)
    (problem,) = caught.value.problems
    assert (problem.where, problem.line) == (where, line)
