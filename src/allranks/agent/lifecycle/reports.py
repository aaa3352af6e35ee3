"""What the ranks of an attempt do, as people see it: logs, metrics, usage, stacks."""

from __future__ import annotations

from functools import partial

from allranks.agent.launch import tracker_variables
from allranks.agent.lifecycle.parts import Part, Run
from allranks.agent.monitoring.attempt_reports import AttemptReports
from allranks.events import Kind


class Reports(Part):
    """Also enforces the memory limit of the node, because that needs the usage."""

    _reports: AttemptReports

    def start(self, run: Run) -> None:
        where, attempt, limit = self._calls.where, run.attempt, None
        others = tracker_variables.folders(run.task, run.work.paths, run.folder)
        self._reports = AttemptReports(
            run.task,
            run.number,
            run.folder,
            run.work.folder,
            self._calls.link,
            others,
            self._calls.clocks.pace,
        )
        attempt.before_stopping = self._reports.keep_stacks
        if where.memory is not None:
            from allranks.agent.monitoring.memory_limit import MemoryLimit  # lazy: rare

            limit = MemoryLimit(where.memory, attempt.exceed)
        begin = partial(self._reports.begin, roots=attempt.pids, limit=limit, met=attempt.met)
        run.when_begun.append(begin)

    def finish(self, run: Run) -> str:
        self._reports.over()
        run.closing.callback(self._note_rest)  # once the end is reported
        return ""

    def _note_rest(self) -> None:
        for note in self._reports.finish():
            self._calls.say(Kind.NOTE, **note)
