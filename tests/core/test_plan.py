"""Tasks on their way to an agent."""

from allranks.core.packing import pack, unpack
from allranks.core.plan import Task


def test_a_task_arrives_as_it_was_sent():
    task = Task("j", "x", "true", sends_files=True, warm=("torch",))
    assert unpack(Task, pack(task)) == task


def test_fields_of_a_newer_version_are_ignored():
    task = Task("j", "x", "true")
    assert unpack(Task, {**pack(task), "fields_to_come": True}) == task
