"""Find the compute of a job, and keep one engine for each cluster.

Several computes may belong to one cluster (for example its partitions). They share an engine, so
that one poll per tick serves all their jobs. The plan names the cluster, so a job continues even if
its compute is changed or deleted.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from allranks.core.plan import Plan
from allranks.engines import options
from allranks.engines.base import Host, Kind, Target
from allranks.engines.registry import KINDS
from allranks.errors import AllranksError, Problem, SpecError
from allranks.settings import Home
from allranks.spec.compute import Compute
from allranks.spec.fields.problems import nearest
from allranks.spec.job import CommandJob
from allranks.store.computes import Computes

# Compute names in Azure ML examples; they mean the default compute unless mapped otherwise.
STAND_FOR_DEFAULT = ("cpu-cluster", "gpu-cluster", "serverless")
# Compute types of Azure ML.
_AZURES = ("amlcompute", "computeinstance", "virtualmachine", "synapsespark")


class Cluster(NamedTuple):
    """The identity of a cluster: the kind of its engine, and its connection options as JSON."""

    kind: str
    connection: str = "{}"


class KnownComputes(NamedTuple):
    """The computes by name, the built-in one first; the name of the default; and ``stands_for``,
    other names that are mapped to a compute."""

    computes: Mapping[str, Compute]
    default: str
    stands_for: Mapping[str, str]

    def find(self, name: str | None) -> Compute:
        """The compute of that name, or that the name is mapped to; without a name the default.

        Raises SpecError.
        """
        plain_name = (name or self.default).removeprefix("azureml:")
        compute = self.computes.get(self.stands_for.get(plain_name, plain_name))
        if compute is None:
            message = f"no compute named {plain_name!r}"
            raise SpecError(Problem(message, "compute", hint=self._hint(plain_name)))
        return compute

    def _hint(self, missing: str) -> str:
        """Similar or all names, and how to map or create the missing one."""
        available = [*self.computes, *self.stands_for]
        near = get_close_matches(missing, available, n=3)
        means = f"allranks compute map {shlex.quote(missing)}={self.default}"
        makes = f"allranks compute create {shlex.quote(missing)} --type …"
        ways = ([f"map it: {means}"] if "=" not in missing else []) + [f"create it: {makes}"]
        either = " or ".join(f"`{name}`" for name in near)
        names = f"did you mean {either}?" if near else f"available: {', '.join(available)}."
        return f"{names} Or {', or '.join(ways)}"


class Clusters:
    """The computes of a home; ``computes`` is None if it has no database yet. ``own`` are kinds of
    engines that no compute can have. Thread-safe."""

    def __init__(
        self,
        home: Home,
        computes: Computes | None,
        kinds: Mapping[str, Kind] = KINDS,
        own: Mapping[str, Kind] | None = None,
    ) -> None:
        self._home, self._computes, self.kinds = home, computes, kinds
        self._own = own or {}
        self._read: tuple[int, KnownComputes] | None = None
        self._engines: dict[Cluster, Target] = {}
        self._lock = threading.Lock()
        self.host_gpus = HostGpus()
        # The first kind needs no options, and has a built-in compute of its name.
        self.first = next(iter(kinds))
        # The engines that have an option, by its name.
        self._have: dict[str, list[str]] = {}
        for kind in kinds.values():
            for option in kind.options:
                self._have.setdefault(option.name, []).append(kind.name)

    def known(self) -> KnownComputes:
        """The computes, default and mapped names, read once for each change of them."""
        changes = -1 if self._computes is None else self._computes.changes
        if self._read is None or self._read[0] != changes:
            self._read = changes, self._known()
        return self._read[1]

    def _known(self) -> KnownComputes:
        builtin = Compute(name=self.first, type=self.first, description=self.kinds[self.first].help)
        by_name, chosen, sent = {self.first: builtin}, "", {}
        if self._computes is not None:
            stored = [Compute.model_validate(row.spec) for row in self._computes.list()]
            by_name |= {each.name: each for each in stored}
            chosen = self._computes.default()
            sent = self._computes.aliases()
        default = chosen if chosen in by_name else self.first
        goals = {name: default for name in STAND_FOR_DEFAULT if name not in by_name}
        goals |= {name: to for name, to in sent.items() if name not in by_name and to in by_name}
        return KnownComputes(by_name, default, goals)

    def find(self, name: str | None) -> Compute:
        """As ``KnownComputes.find``."""
        return self.known().find(name)

    def instances(self) -> dict[str, int]:
        """The GPU counts of instance types that are configured in this home."""
        return {} if self._computes is None else self._computes.instances()

    def kind(self, compute: Compute) -> Kind:
        """The compute's kind of engine. Raises SpecError for an unknown one."""
        if compute.type not in self.kinds:
            hint = nearest(compute.type, self.kinds) or f"available: {', '.join(self.kinds)}"
            if compute.type.lower() in _AZURES:
                remote = " or ".join(name for name in self.kinds if name != self.first)
                hint = f"Azure ML types are not available; use --type {remote}"
            raise SpecError(Problem(f"no engine named {compute.type!r}", "type", hint=hint))
        return self.kinds[compute.type]

    def options(self, compute: Compute, spec: CommandJob | None = None) -> dict[str, Any]:
        """The engine's options: defaults, overridden by the compute, overridden by the job.

        Raises SpecError with every invalid option.
        """
        kind = self.kind(compute)
        declared = (*kind.options, *options.COMMON)
        checked = options.check(declared, compute.options, "", elsewhere=self._have)
        result = {**options.defaults(declared), **checked}
        if spec is None:
            return result
        by_engine = spec.resources.properties or {}
        for name in by_engine:
            if name not in self.kinds and (hint := nearest(name, self.kinds)):
                place = f"resources.properties.{name}"
                raise SpecError(Problem(f"no engine named {name!r}", place, hint=hint))
        own = by_engine.get(kind.name) or {}
        where = f"resources.properties.{kind.name}"
        if not isinstance(own, Mapping):
            hint = "write `key: value` lines below it"
            raise SpecError(Problem("must be a mapping of options", where, hint=hint))
        checked = options.check(declared, own, where, of_job=True, elsewhere=self._have)
        return {**result, **checked}

    def options_now(self, plan: Plan, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """The options of the plan's gang, live ones as its compute has them now; those that the job
        sets itself stay."""
        kind = self.kind_of(plan.engine)
        own = ((spec.get("resources") or {}).get("properties") or {}).get(kind.name) or {}
        live = [option.name for option in kind.options if option.live and option.name not in own]
        compute = self.known().computes.get(plan.compute) if live else None
        if compute is None or compute.type != kind.name:
            return plan.gang.options
        options = self.options(compute)
        kept = {name: value for name, value in plan.gang.options.items() if name not in live}
        return kept | {name: options[name] for name in live if name in options}

    def engine_of(self, compute: Compute) -> Target:
        kind = self.kind(compute)
        return self.engine(self._cluster(kind.name, self.options(compute)))

    def cluster(self, plan: Plan) -> Cluster:
        return self._cluster(plan.engine, plan.gang.options)

    def engine(self, cluster: Cluster) -> Target:
        with self._lock:
            if cluster not in self._engines:
                kind = self.kind_of(cluster.kind)
                made = kind.make(self._home, json.loads(cluster.connection))
                self._engines[cluster] = made
            return self._engines[cluster]

    def prepare(self, name: Any) -> None:
        """A job for that compute is about to be submitted: start what its gang would wait for."""
        with contextlib.suppress(AllranksError):  # the submission reports it
            compute = self.find(name if isinstance(name, str) else None)
            if (prepare := self.kind(compute).prepare) is not None:
                prepare(self.engine_of(compute))

    def on_this_machine(self) -> list[Cluster]:
        """The clusters whose gangs run on this machine: at most that of the first kind."""
        return [] if self.kinds[self.first].remote else [Cluster(self.first)]

    def runs_here(self, plan: Plan) -> bool:
        return not self.kind_of(plan.engine).remote

    def kind_of(self, engine: str) -> Kind:
        """The kind of a plan's engine."""
        return self._own[engine] if engine in self._own else self.kinds[engine]

    def _cluster(self, kind: str, values: Mapping[str, Any]) -> Cluster:
        where = options.connection(self.kind_of(kind).options, values)
        return Cluster(kind, json.dumps(where, sort_keys=True))


# Seconds: how long a submission waits for an answer, how long an answer is valid, and how long to
# wait after a failed query.
_PATIENCE, _FRESH, _PAUSE = 1.0, 60.0, 10.0
# The most cached answers; jobs may have options of their own.
_KEPT = 64


class HostGpus:
    """Caches the GPUs of each host of clusters. Queries run in the background, so that a slow
    cluster delays a submission by a second, and only once. Thread-safe."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._answers: dict[str, _Answer] = {}

    def of(self, key: str, ask: Callable[[], Sequence[Host]]) -> tuple[int, ...] | None:
        """The GPUs of each host that ``ask`` lists, maybe cached; None without an answer yet."""
        with self._lock:
            answer = self._answers.pop(key, None) or _Answer()
            self._answers[key] = answer
            if len(self._answers) > _KEPT:
                del self._answers[next(iter(self._answers))]
            answer.refresh(ask)
        if answer.counts is None:
            answer.done.wait(max(0.0, answer.began + self._patience - time.monotonic()))
        return answer.counts


class _Answer:
    """The last answer of one cluster."""

    def __init__(self) -> None:
        self.counts: tuple[int, ...] | None = None
        self.began = -_FRESH
        self.done = threading.Event()
        self.done.set()

    def refresh(self, ask: Callable[[], Sequence[Host]]) -> None:
        age = time.monotonic() - self.began
        if self.done.is_set() and age >= (_PAUSE if self.counts is None else _FRESH):
            self.began = time.monotonic()
            self.done.clear()
            threading.Thread(target=self._ask, args=(ask,), daemon=True).start()

    def _ask(self, ask: Callable[[], Sequence[Host]]) -> None:
        try:
            self.counts = tuple(host.gpus for host in ask())
        except (AllranksError, OSError, ValueError, LookupError):
            pass  # the previous answer stays valid
        finally:
            self.done.set()
