"""Which compute a job means, and one engine for each cluster that computes name.

Several computes may be of one cluster (its partitions, say): they share an engine, so that one
question a tick serves all their jobs. A plan says which cluster it is for; a job goes on whatever
becomes of its compute.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from allranks.engines import options
from allranks.engines.base import Kind, Target
from allranks.engines.registry import KINDS
from allranks.errors import Problem, SpecError
from allranks.plan.plan import Plan
from allranks.server.clusters.host_gpus import HostGpus
from allranks.settings import Home
from allranks.spec.compute import Compute
from allranks.spec.fields.problems import nearest
from allranks.spec.job import CommandJob
from allranks.store.computes import Computes

# Names that examples for Azure ML use; they mean the default compute until told otherwise.
STAND_FOR_DEFAULT = ("cpu-cluster", "gpu-cluster", "serverless")
# Types that files for Azure ML have.
_AZURES = ("amlcompute", "computeinstance", "virtualmachine", "synapsespark")


class Cluster(NamedTuple):
    """What tells one cluster from another: the kind of its engine, and where it is."""

    kind: str
    connection: str = "{}"


class KnownComputes(NamedTuple):
    """The computes by name, the one that is always there first; the name of the default; and what
    names mean that are no computes."""

    there: Mapping[str, Compute]
    default: str
    stands_for: Mapping[str, str]

    def find(self, name: str | None) -> Compute:
        """The compute of that name, or that the name stands for; the default one without a name.

        Raises SpecError when there is none.
        """
        wanted = (name or self.default).removeprefix("azureml:")
        found = self.there.get(self.stands_for.get(wanted, wanted))
        if found is None:
            message = f"there is no compute named {wanted!r}"
            raise SpecError(Problem(message, "compute", hint=self._hint(wanted)))
        return found

    def _hint(self, wanted: str) -> str:
        """The names that are near or all there are, and how to let the name mean one of them."""
        known = [*self.there, *self.stands_for]
        near = get_close_matches(wanted, known, n=3)
        means = f"allranks compute map {shlex.quote(wanted)}={self.default}"
        makes = f"allranks compute create {shlex.quote(wanted)} --type …"
        ways = ([f"let it mean one: {means}"] if "=" not in wanted else []) + [f"make it: {makes}"]
        names = f"did you mean {_either(near)}?" if near else f"there are: {', '.join(known)}."
        return f"{names} Or {', or '.join(ways)}"


def _either(names: Sequence[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)


class Clusters:
    """The computes of a home. ``computes`` None: a home that has none yet. Any thread may ask."""

    def __init__(
        self, home: Home, computes: Computes | None, kinds: Mapping[str, Kind] = KINDS
    ) -> None:
        self._home, self._computes, self.kinds = home, computes, kinds
        self._engines: dict[Cluster, Target] = {}
        self._lock = threading.Lock()
        self.host_gpus = HostGpus()
        # The kind that needs nothing has a compute of its name without being asked.
        self.first = next(iter(kinds))

    def known(self) -> KnownComputes:
        """All that is written down of computes, read once."""
        always = Compute(name=self.first, type=self.first, description=self.kinds[self.first].help)
        there, chosen, sent = {self.first: always}, "", {}
        if self._computes is not None:
            found = [Compute.model_validate(row.spec) for row in self._computes.list()]
            there |= {each.name: each for each in found}
            chosen, sent = self._computes.default(), self._computes.aliases()
        default = chosen if chosen in there else self.first
        goals = {name: default for name in STAND_FOR_DEFAULT if name not in there}
        goals |= {name: to for name, to in sent.items() if name not in there and to in there}
        return KnownComputes(there, default, goals)

    def find(self, name: str | None) -> Compute:
        """As ``Known.find``."""
        return self.known().find(name)

    def instances(self) -> dict[str, int]:
        """The GPUs of instance types that were said here."""
        return {} if self._computes is None else self._computes.instances()

    def kind(self, compute: Compute) -> Kind:
        """Raises SpecError when this version has no such engine."""
        if compute.type not in self.kinds:
            hint = nearest(compute.type, self.kinds) or f"there are: {', '.join(self.kinds)}"
            if compute.type.lower() in _AZURES:
                hint = f"that is a cloud's: say where it is to be instead, --type {self._others()}"
            raise SpecError(Problem(f"there is no engine {compute.type!r}", "type", hint=hint))
        return self.kinds[compute.type]

    def options(self, compute: Compute, spec: CommandJob | None = None) -> dict[str, Any]:
        """All options of the engine that are set: by default, by the compute, by the job.

        Raises SpecError with every one that is wrong.
        """
        kind = self.kind(compute)
        declared = (*kind.options, *options.COMMON)
        found = {**options.defaults(declared), **options.check(declared, compute.options, "")}
        if spec is None:
            return found
        given = spec.resources.properties or {}
        for name in given:
            if name not in self.kinds and (hint := nearest(name, self.kinds)):
                place = f"resources.properties.{name}"
                raise SpecError(Problem(f"there is no engine {name!r}", place, hint=hint))
        own = given.get(kind.name) or {}
        where = f"resources.properties.{kind.name}"
        if not isinstance(own, Mapping):
            hint = "write `key: value` lines below it"
            raise SpecError(Problem("must be a mapping of options", where, hint=hint))
        return {**found, **options.check(declared, own, where, of_job=True)}

    def engine_of(self, compute: Compute) -> Target:
        kind = self.kind(compute)
        return self.engine(self._cluster(kind.name, self.options(compute)))

    def cluster(self, plan: Plan) -> Cluster:
        return self._cluster(plan.engine, plan.gang.options)

    def engine(self, cluster: Cluster) -> Target:
        with self._lock:
            if cluster not in self._engines:
                made = self.kinds[cluster.kind].make(self._home, json.loads(cluster.connection))
                self._engines[cluster] = made
            return self._engines[cluster]

    def on_this_machine(self) -> Iterator[Cluster]:
        """Those whose gangs run here."""
        return (Cluster(kind.name) for kind in self.kinds.values() if not kind.remote)

    def runs_here(self, plan: Plan) -> bool:
        return not self.kinds[plan.engine].remote

    def _cluster(self, kind: str, values: Mapping[str, Any]) -> Cluster:
        where = options.connection(self.kinds[kind].options, values)
        return Cluster(kind, json.dumps(where, sort_keys=True))

    def _others(self) -> str:
        return " or ".join(name for name in self.kinds if name != self.first)
