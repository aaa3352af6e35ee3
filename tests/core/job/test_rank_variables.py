"""The summary of a dry run determines every variable of every rank."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.job.rank_variables import ABSENT, Summary, summarize

NAMES = st.sampled_from(["RANK", "NODE_RANK", "TF_CONFIG", "HOST", "é {rank}"])
VALUES = st.text(alphabet="01219ab{}<\n", max_size=6)


def expanded(found: Summary, row: int) -> dict[str, str]:
    """The variables of a rank, derived from the summary."""
    cells = dict(zip(found.columns, found.rows[row], strict=True))
    variables = dict(found.shared)
    for name, (before, column, after) in found.templates.items():
        if (before, cells[column], after) != ("", ABSENT, ""):
            variables[name] = before + cells[column] + after
    return variables


@given(st.lists(st.dictionaries(NAMES, VALUES), min_size=1, max_size=5), st.integers(1, 3))
def test_every_variable_of_every_rank_follows_from_the_summary(environments, procs):
    ranks = [
        {"rank": n, "node": n // procs, "local_rank": n % procs, "role": "worker", "environment": e}
        for n, e in enumerate(environments)
    ]
    found = summarize(ranks)
    for row, environment in enumerate(environments):
        assert expanded(found, row) == environment


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [pytest.param("pytorch", marks=pytest.mark.end_to_end), "tensorflow", "mpi", "horovod", "jax"],
)
def test_a_dry_run_of_many_ranks_is_short_and_complete(shared, kind):
    each = ["-p", 8] if kind != "tensorflow" else ["--parameter-servers", 1]
    words = ["run", "--name", "same", "-n", 3, "-d", kind, *each, "--dry-run"]
    told = shared(*words, "--", "true").stdout
    ranks = json.loads(shared(*words, "--json", "--", "true").stdout)["ranks"]
    found = summarize(ranks)
    assert len(told.splitlines()) < 80 + len(ranks)
    assert [expanded(found, n) for n in range(len(ranks))] == [r["environment"] for r in ranks]
    for name, value in found.shared.items():
        assert f"  {name}={value}\n" in told
    for name, (before, column, after) in found.templates.items():
        assert f"  {name}={before}{{{column}}}{after}\n" in told
    assert all(
        "  ".join(row[:2]).split() in [r.split()[:2] for r in told.splitlines()]
        for row in found.rows
    )


def test_columns_are_chosen_by_the_name_of_the_variable():
    ranks = [
        {
            "rank": n,
            "node": n,
            "local_rank": 0,
            "role": "worker",
            "environment": {"RANK": f"{n}", "NODE_RANK": f"{n}", "A": f"<host of node {n}>"},
        }
        for n in range(12)
    ]
    found = summarize(ranks)
    assert found.columns == ("rank", "node", "local_rank", "role")
    assert {name: column for name, (_, column, _) in found.templates.items()} == {
        "RANK": "rank",
        "NODE_RANK": "node",
        "A": "node",
    }
