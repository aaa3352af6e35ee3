"""What a job says of its nodes' network."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.core.insights.insight import Insight, Kind
from allranks.core.insights.job_facts import Facts


def without_rdma(job: Facts) -> Iterator[Insight]:
    """A size that has RDMA in its cloud, on hosts here that have none."""
    if len({*job.hosts}) < 2 or not job.size_with_rdma:
        return
    lacking = [node for node, rdma in enumerate(job.rdma) if rdma is False]
    if not lacking:
        return
    sentence = (
        f"{job.size_with_rdma} has RDMA in its cloud, and {len(lacking)} of {job.nodes} nodes here "
        "have no active port of InfiniBand or RoCE: ranks of different nodes exchange data over TCP"
    )
    hint = "compare with fewer nodes: allranks report scaling; or choose a compute with InfiniBand"
    yield Insight(Kind.NETWORK, sentence, {"without": len(lacking)}, hint)
