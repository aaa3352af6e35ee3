"""What slowed a job down: `report JOB` and `report goodput JOB` as a page."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from allranks.core.insights.analyze import Report
from allranks.core.insights.analyze import report as insights
from allranks.core.insights.goodput import Activity
from allranks.sdk.jobs.goodput_facts import JobTimes, job_times
from allranks.sdk.jobs.report_facts import observed
from allranks.ui import render
from allranks.ui.api import Session, named_job


async def page(request: Request) -> Response:
    session, job = await named_job(request)
    analysis, times = await run_in_threadpool(_read, session, job["name"])
    goodput = times.goodput
    seconds = {str(each): goodput.seconds(each) for each in Activity}
    return render.page(
        request,
        "report.html",
        tab="report",
        job=job,
        report=analysis,
        share=goodput.share,
        seconds={key: value for key, value in seconds.items() if value},
    )


def _read(session: Session, name: str) -> tuple[Report, JobTimes]:
    with session.client() as client:
        return insights(observed(client, name)), job_times(client, name)
