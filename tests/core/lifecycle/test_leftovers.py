"""What could not be ended stays in the record, also of an ended job."""

import pytest

from allranks.core.lifecycle.decide import new
from allranks.core.lifecycle.fold import fold
from allranks.events import LEFTOVERS, Event, Kind
from allranks.statuses import JobStatus

SENTENCE = "could not end 77 (python)"


@pytest.mark.parametrize("status", [JobStatus.FINALIZING, JobStatus.CANCELED])
@pytest.mark.parametrize(
    ("kind", "node"), [(Kind.NOTE, 0), (Kind.NOTE, None), (Kind.STOPPING, None)]
)
def test_leftovers_are_recorded_whoever_names_them(status, kind, node):
    job = new(1)._replace(status=status)
    event = Event(kind, 9.0, 1, 1, node, data={"about": LEFTOVERS, "message": SENTENCE})
    assert fold(job, event).leftovers == SENTENCE
    assert fold(job, event).status is status
