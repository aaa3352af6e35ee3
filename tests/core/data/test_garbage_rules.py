"""What may go: whatever jobs there are, nothing that one which stays refers to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.data.garbage_rules import (
    DAY,
    HOUR,
    RULES,
    Found,
    Job,
    Kind,
    goes,
    kept,
    needs,
    span,
)

NOW = 1000 * DAY
NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f"])
KEYS = st.sampled_from(["k", "l", "m", "n"])
TIMES = st.sampled_from([0.0, NOW - 40 * DAY, NOW - 2 * DAY, NOW - 90 * 60, NOW - 1, NOW, NOW + 9])
AGES = st.sampled_from([0.0, HOUR, 30 * DAY])


@st.composite
def job(draw: st.DrawFn, name: str) -> Job:
    live = draw(st.booleans())
    return Job(
        name,
        live,
        draw(TIMES),
        None if live else draw(st.none() | TIMES),
        draw(st.frozensets(KEYS, max_size=2)),
        draw(st.none() | KEYS),
        draw(st.none() | KEYS),
        draw(st.frozensets(NAMES, max_size=2)),
        draw(st.frozensets(KEYS, max_size=2)),
    )


JOBS = st.sets(NAMES).flatmap(lambda names: st.tuples(*map(job, sorted(names))))
FOUND = st.builds(
    Found, st.sampled_from(Kind), st.just("x"), st.just("/x"), TIMES, KEYS | NAMES | st.just("")
)
PARTS = st.dictionaries(KEYS, st.frozensets(KEYS, max_size=2))


@given(JOBS, PARTS, st.frozensets(KEYS, max_size=2), FOUND, AGES)
@pytest.mark.medium
def test_nothing_goes_that_a_job_which_stays_refers_to(jobs, parts, models, found, older_than):
    if not goes(found, needs(jobs, parts, models), older_than, NOW):
        return
    if found.kind is Kind.MODEL:
        assert found.key not in models
    for each in jobs:
        if found.kind is Kind.CODE:
            assert found.key not in each.codes
            assert all(found.key not in parts.get(code, ()) for code in each.codes)
        if found.kind is Kind.CHECKOUT:
            assert found.key != each.in_place
        if each.live and found.kind is Kind.NODE:
            assert found.key != each.name
        if each.live and found.kind is Kind.MODEL:
            assert found.key not in each.models
        if each.live and each.recipe is not None and found.kind is Kind.ENVIRONMENT:
            assert found.key not in (each.recipe, "")


@given(JOBS, st.frozensets(NAMES, max_size=2), AGES)
def test_what_a_job_that_stays_reads_stays(jobs, protected, older_than):
    names = {each.name for each in jobs}
    stay = kept(jobs, protected, older_than, NOW)
    assert stay <= names
    assert protected & names <= stay
    for each in jobs:
        lately = each.ended_at is None or NOW - each.ended_at < max(older_than, 60)
        if each.live or lately:
            assert each.name in stay
        if each.name in stay:
            assert each.refers & names <= stay


@given(FOUND, AGES)
def test_what_was_used_since_stays(found, older_than):
    idle = NOW - found.used
    if idle < RULES[found.kind].least or (RULES[found.kind].older_than and idle < older_than):
        assert goes(found, {}, older_than, NOW) == ""
    else:
        assert goes(found, {}, older_than, NOW)


def test_every_kind_has_its_rule():
    assert {*RULES} == {*Kind}


def test_a_chain_of_jobs_ages_as_its_youngest():
    old = NOW - 40 * DAY
    chain = [
        Job("raw", False, old, old),
        Job("clean", False, old, old, refers={"raw"}),
        Job("train", False, old, NOW - DAY, refers={"clean"}),
        Job("other", False, old, old, refers={"train"}),
    ]
    assert kept(chain, frozenset(), 30 * DAY, NOW) == {"raw", "clean", "train"}
    assert kept(chain, frozenset(), HOUR, NOW) == set()
    assert kept(chain, {"other"}, 0, NOW) == {"raw", "clean", "train", "other"}


def test_of_which_nothing_is_known_stays_while_any_job_may_use_it():
    unknown = Found(Kind.ENVIRONMENT, "x", "/x", 0.0)
    running = Job("a", True, NOW, None, recipe="r")
    assert not goes(unknown, needs([running], {}), 0, NOW)
    assert goes(unknown, needs([running._replace(live=False)], {}), 0, NOW)
    assert goes(unknown, needs([running._replace(recipe=None)], {}), 0, NOW)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 seconds"), (1, "1 second"), (90, "1 minute"), (7200, "2 hours"), (31 * DAY, "31 days")],
)
def test_times_in_words(seconds, said):
    assert span(seconds) == said
