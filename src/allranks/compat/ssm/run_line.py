"""Runs a line of simple-sagemaker."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from allranks.compat.ssm import download_results
from allranks.compat.ssm.parser import idle_notes, read, request_of
from allranks.compat.ssm.task import Task, volume_note
from allranks.sdk import Client, Job
from allranks.sdk.jobs.follow import submission_notes


def run(words: Sequence[str]) -> int:
    """Run a line; returns 0 if the task is completed, else 1. Raises AllranksError."""
    options, hps, behind = read(words)
    for note in idle_notes(options):
        _say(note)
    task = Task(options.project_name, options.task_name, options.prefix)
    if options.kind == "data":
        if options.clean_state:
            task.clean()
        job = task.completed() if options.output_path else None
    else:
        job = task.last()
        if options.force_running or job is None or job.status != "Completed":
            job = task.submit(request_of(options, hps, behind, task))
            if note := volume_note(job, options.volume_size):
                _say(note)
            job = _finished(job)
        else:
            _say(f"the task {task.name} was completed by the job {job.name}: not run again")
    if job is None:
        return 0
    if options.output_path:
        _download(options, task, job)
    if job.status != "Completed":
        reason = job.error["message"] if job.error else job.status
        _say(f"the task {task.name} failed: {reason}")
        _say(f"hint: allranks job explain {job.name}")
    return int(job.status != "Completed")


def _finished(job: Job) -> Job:
    submission_notes(job.to_dict(), sys.stderr)
    _say(f"job {job.name}")
    return Client().jobs.stream(job.name)


def _download(options: argparse.Namespace, task: Task, job: Job) -> None:
    kinds = [each for each in ("state", "model", "output") if getattr(options, f"download_{each}")]
    is_local = "local" in getattr(options, "instance_type", "")
    download_results.download(task, job, Path(options.output_path), kinds, is_local)
    _say(f"its results are in {options.output_path}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
