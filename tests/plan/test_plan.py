"""Tasks on their way between versions."""

from allranks.plan.plan import Task, pack


def test_an_agent_of_the_previous_version_gets_no_field_that_it_does_not_know():
    task = Task("j", "x", "true")
    assert "sends_files" not in pack(task)
    assert Task.load(pack(task)) == task
    own = task._replace(sends_files=True)
    assert Task.load(pack(own)) == own


def test_fields_of_a_newer_version_are_ignored():
    task = Task("j", "x", "true")
    assert Task.load({**pack(task), "fields_to_come": True}) == task
