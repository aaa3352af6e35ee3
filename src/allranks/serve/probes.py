"""Whether replicas are ready and alive: a request to each, again and again."""

from __future__ import annotations

import asyncio
import time

from allranks.serve.balance import Deployment, Worker
from allranks.serve.router import Router
from allranks.serve.table import NOT_YET
from allranks.serve.upstream import Broken, Connection, Unsent, head

# Seconds between two looks at a replica that is not ready.
_EAGER = 0.05


async def probe_all(router: Router) -> None:
    """Look at all replicas that are due, until cancelled."""
    due: dict[str, float] = {}
    running: dict[str, asyncio.Task[None]] = {}
    while True:
        now = time.monotonic()
        several = [
            (deployment, worker)
            for place in router.places.values()
            for deployment in place.deployments.values()
            for worker in deployment.workers.values()
        ]
        for deployment, worker in several:
            job = worker.backend.job
            if job not in running and now >= due.get(job, 0.0):
                due[job] = now + (deployment.route.period if worker.ready else _EAGER)
                running[job] = asyncio.create_task(_probe(deployment, worker))
        running = {job: task for job, task in running.items() if not task.done()}
        jobs = {worker.backend.job for _, worker in several}
        due = {job: at for job, at in due.items() if job in jobs}
        for _, worker in several:
            if worker.ready and not worker.pool.has_socket():
                worker.ready, worker.reason = False, NOT_YET
            if not worker.ready:  # it may have failed a request since
                job = worker.backend.job
                due[job] = min(due.get(job, now), now + _EAGER)
        await asyncio.sleep(_EAGER)


async def _probe(deployment: Deployment, worker: Worker) -> None:
    route = deployment.route
    path = route.live_path if worker.ready else route.ready_path
    connection: Connection | None = None
    try:
        async with asyncio.timeout(route.probe_timeout):
            connection = await worker.pool.take()
            request = head("GET", path.encode(), ((b"host", b"localhost"),), None)
            response = await connection.ask(request, b"")
            async for _ in response.pieces():
                pass
        worker.pool.give(connection)
        connection = None
        reason = None if response.status < 400 else f"{path} answered {response.status}"
    except (Unsent, Broken):
        reason = NOT_YET
    except TimeoutError:
        reason = f"{path} did not answer within {route.probe_timeout:g} s"
    finally:
        if connection is not None:
            connection.close()
    _note(deployment, worker, reason)


def _note(deployment: Deployment, worker: Worker, reason: str | None) -> None:
    if reason is None:
        worker.failures, worker.reason = 0, None
        if not worker.ready:
            worker.ready = True
            deployment.wake()
        return
    now = time.monotonic()
    if now - worker.failed_at >= deployment.route.period:  # one that is not ready is asked sooner
        worker.failures += 1
        worker.failed_at = now
    worker.reason = reason
    if worker.ready and worker.failures >= deployment.route.failures:
        worker.ready = False
