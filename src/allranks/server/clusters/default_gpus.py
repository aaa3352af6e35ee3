"""How many GPUs a job gets if it does not say: gathers what the compute has, for
`core/job/gpu_allocation.py` to decide."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from allranks.core.distributions.topology import GIVES_OUT
from allranks.core.job.gpu_allocation import Choice, Request, choose
from allranks.server.clusters.clusters import Clusters
from allranks.spec.compute import Compute
from allranks.spec.job import CommandJob


def choice(
    spec: CommandJob, compute: Compute, options: Mapping[str, Any], clusters: Clusters
) -> Choice:
    """The GPUs of each node of the job. An unreachable compute raises no error."""
    resources, kind = spec.resources, clusters.kind(compute)
    request = Request(
        resources.gpus_per_instance,
        resources.instance_type,
        nodes=resources.instance_count,
        processes=_processes(spec),
        shared=not kind.remote,
        options=kind.gpus(options),
    )
    if request.requested is not None or request.options is not None:
        return choose(request)
    default = compute.gpus_per_node
    hosts: tuple[int, ...] | None = ()
    if default is None or request.instance_type is not None:
        key = json.dumps([kind.name, options], sort_keys=True, default=str)
        engine = clusters.engine_of(compute)
        hosts = clusters.host_gpus.of(key, lambda: engine.hosts(options))
    return choose(request._replace(default=default, hosts=hosts, sizes=clusters.instances()))


def _processes(spec: CommandJob) -> int | None:
    """The processes of a node that take a GPU each; None for Ray, which assigns GPUs to tasks."""
    if spec.distribution is None:
        return 1
    if str(spec.distribution.type) in GIVES_OUT:
        return None
    return getattr(spec.distribution, "process_count_per_instance", 1) or 1
