"""The Kubernetes engine: a gang is one Indexed Job, and a node of it a pod with an agent.

`poll` answers from two watches, of the home's Jobs and of their pods, however many gangs there are.
The only stored state is the mark of the home, by which its Jobs are found.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from allranks.core.plan import Gang
from allranks.engines import agent_bundle, pinned_code
from allranks.engines.answers import reads_answers
from allranks.engines.base import GangStatus, Handle, Host, Kind
from allranks.engines.home_mark import HomeMark
from allranks.engines.kubernetes import cluster, manifest, quota, server_manifest
from allranks.engines.kubernetes.api import Api, QuotaExceeded
from allranks.engines.kubernetes.cache import Cache
from allranks.engines.kubernetes.holding import Hold, Step, decide
from allranks.engines.kubernetes.kubeconfig import Denied
from allranks.engines.kubernetes.manifest import HOME, Names
from allranks.engines.kubernetes.options import OPTIONS, expect_namespace, mounts
from allranks.engines.kubernetes.setup import rights
from allranks.engines.kubernetes.start import PLACED, Fetched, Shared, Start
from allranks.engines.kubernetes.status import status
from allranks.engines.kubernetes.views import JobView, PodView, job_view, pod_view
from allranks.errors import AllranksError, EngineError, Refused
from allranks.settings import Home
from allranks.statuses import GangState, Reason, SharedHome

log = logging.getLogger("allranks.kubernetes")

# Seconds that a poll waits for the first answer of the cluster.
_FIRST = 5.0
# Seconds between two questions for events of Jobs without pods and pods without nodes; and of a
# Job without pods of which there is none yet.
_WARNINGS, _NEW_WARNINGS = 30.0, 5.0
# Seconds that a pod may take to start before its node is looked at, and between two looks.
_STARTING, _LOOKS = 15.0, 10.0
# Seconds between two looks for an autoscaler.
_GROWTH = 300.0
# Gangs whose deleted pods are kept.
_MOST = 1000


@reads_answers
class KubernetesEngine:
    """Agents in pods. ``folder`` is the engine's own in the home ``root``, ``nodes`` that of the
    agents, if the pods share a volume with the server."""

    name = "kubernetes"
    pace = 0.5

    def __init__(self, root: Path, folder: Path, nodes: Path, options: Mapping[str, Any]) -> None:
        self._root, self._folder, self._nodes = root, folder, nodes
        self._api = Api(options)
        self._holds: dict[str, Hold] = {}
        # When the cluster was last asked whether it adds nodes, and its answer.
        self._growth: tuple[float, bool] = (-_GROWTH, False)
        self._seen: set[str] = set()
        # Pods that were deleted while they lived, by gang and node, in the order of their end.
        self._removed: dict[str, dict[int, PodView]] = {}
        self._warnings: tuple[float, Mapping[str, cluster.Warned]] = (0.0, {})
        # Since when a pod with a node has not started, and which of such nodes are down.
        self._starting: dict[str, float] = {}
        self._down: tuple[float, frozenset[str]] = (0.0, frozenset())

    # ------------------------------------------------------------ a gang

    def admit(self, gang: Gang) -> None:
        # Raises Refused for invalid options.
        job = manifest.job(gang, Names(gang.key, "…"), self._start(gang))
        _require(gang.options)
        try:
            shortage = cluster.shortage(self._api, gang) or cluster.quota_excess(self._api, job)
        except EngineError:
            return  # it does not answer now, or denies it: the job waits in the queue
        if shortage:
            message = f"the job can never run on this cluster: {shortage.message}"
            raise Refused(message, where=shortage.where, hint=shortage.hint)

    def render(self, gang: Gang) -> str:
        from allranks.engines.kubernetes.yaml_text import documents  # lazy: YAML takes 60 ms

        mark = HomeMark(self._folder).shown()
        names = Names(gang.key, mark)
        start = self._start(gang)
        objects = [
            manifest.job(gang, names, start),
            manifest.secret(names, dict.fromkeys(gang.env, "…")),
            manifest.service(names),
        ]
        return documents(objects)

    def submit(self, gang: Gang) -> Handle:
        try:
            return self._submit(gang)
        except Denied as error:
            # A changed token or role is not this job's fault: it is retried.
            raise EngineError(error.message, where=error.where, hint=error.hint) from error

    def _submit(self, gang: Gang) -> Handle:
        """Create the Job, suspended; then what it needs, owned by it; then start it. Each step may
        be repeated."""
        names = self._names(gang.key)
        path = self._api.path("jobs", names.name)
        answer = self._api.request("GET", path)
        if answer.status == 404:
            self.admit(gang)
            self._lay_out(gang)
            made = manifest.job(gang, names, self._start(gang))
            job = self._api.create("jobs", made, fieldValidation="Strict")
        else:
            job = self._api.good(answer, "read the job").body
        job = job or self._api.get(path)
        self._api.create("secrets", manifest.secret(names, gang.env, job))
        self._api.create("services", manifest.service(names, job))
        if job["spec"].get("suspend") and not gang.options.get("queue"):
            job = self._suspend(names.name, False) or job
        self._jobs.add(job)
        return Handle(gang.key, names.name)

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, GangStatus]:
        if not handles:
            return {}
        jobs = self._jobs.read(_FIRST)
        pods = self._read_pods(_FIRST)
        trouble = self._jobs.trouble or self._pods.trouble
        if trouble:
            return {handle.key: GangStatus(GangState.UNKNOWN, trouble) for handle in handles}
        by_gang: dict[str, list[PodView]] = {}
        for pod in pods:
            by_gang.setdefault(pod.gang, []).append(pod)
        statuses = {}
        for handle in handles:
            name = self._names(handle.key).name
            job = jobs.get(name)
            own = _newest(by_gang.get(name, []))
            event = self._warning(job, own)
            if job is not None:
                self._seen.add(handle.key)
                self._release(handle.key, job, own, event)
                hold = self._holds.get(handle.key, Hold())
                if job.suspended and hold.never and not own:
                    words = f"Kubernetes: {hold.words}"
                    refused = GangStatus(GangState.GONE, words, reason=Reason.GANG_REFUSED)
                    statuses[handle.key] = refused
                    continue
                event = hold.words if job.suspended else event
            removed = [*self._removed.get(name, {}).values()]
            statuses[handle.key] = status(job, own, handle.key in self._seen, event, removed)
        return statuses

    def stop(self, handle: Handle) -> None:
        """Delete the Job; its pods, Secret and Service go with it. The gang is GONE when the last
        pod is."""
        names = self._names(handle.key)
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
        answer = self._api.request("DELETE", self._api.path("jobs", names.name), body)
        if answer.status != 404:
            self._api.good(answer, "delete the job")
        if answer.body.get("kind") != "Job":
            self._jobs.discard(names.name)
        # Their agents have been told to leave.
        self._delete_silent([pod for pod in self._read_pods(0.0) if pod.gang == names.name])
        self._holds.pop(handle.key, None)
        self._removed.pop(names.name, None)

    # ------------------------------------------------------------ the cluster

    def check(self, options: Mapping[str, Any]) -> str | None:
        _require(options)
        api = Api(options)
        cluster.check_version(api)
        cluster.check_rights(api)
        gang = Gang("check.1", 1, ("python3", "-c", "pass"), options=options)
        made = manifest.job(gang, Names("check.1", "check"), self._start(gang))
        try:
            api.create("jobs", made, dryRun="All", fieldValidation="Strict")
        except QuotaExceeded as error:
            return f"jobs will wait: {error.message}"
        unmatched = "" if options.get("autoscaling") else cluster.unmatched(api, options)
        return f"jobs are refused unless nodes are added: {unmatched}" if unmatched else None

    def hosts(self, options: Mapping[str, Any]) -> Sequence[Host]:
        return cluster.hosts(Api(options), options)

    # ------------------------------------------------------------ all or none

    def _release(self, key: str, job: JobView, pods: Sequence[PodView], event: str) -> None:
        """Suspend a gang that holds only a part of its nodes, and resume it later. Its agents have
        not started: they wait until all pods run."""
        refusal = quota.refusal(event, job.nodes)
        hold = self._holds.get(key, Hold())
        try:
            limit = job.hold_limit
            if limit is None and refusal is None and any(pod.refused for pod in pods):
                limit = manifest.HOLD if self._may_grow() else None
            hold, step = decide(hold, job, pods, time.monotonic(), limit, refusal)
            if job.suspended and not job.queue:
                self._removed.pop(job.name, None)
                self._delete_silent(pods)
            if step is Step.RELEASE:
                self._suspend(job.name, True)
            elif step is Step.RESUME:
                self._clear(key)
                self._suspend(job.name, False)
            self._holds[key] = hold
        except AllranksError as error:
            log.warning("%s: cannot release its nodes: %s", key, error)

    def _may_grow(self) -> bool:
        """Whether there is a sign of an autoscaler."""
        now = time.monotonic()
        if now - self._growth[0] >= _GROWTH:
            self._growth = now, cluster.may_grow(self._api, None)
        return self._growth[1]

    def _read_pods(self, patience: float) -> list[PodView]:
        """The pods. One that does not start because its node is down is as silent as if it had: the
        cluster changes nothing in it."""
        pods = [*self._pods.read(patience).values()]
        now = time.monotonic()
        starting = {p.name: p.host for p in pods if p.host and not p.started and not p.over}
        self._starting = {name: self._starting.get(name, now) for name in starting}
        late = {name for name, since in self._starting.items() if now - since > _STARTING}
        if late and now - self._down[0] > _LOOKS:
            self._down = (now, cluster.down(self._api, {starting[name] for name in late}))
        return [
            pod._replace(silent=True, started=True)
            if pod.name in late and pod.host in self._down[1]
            else pod
            for pod in pods
        ]

    def _pod(self, pod: Mapping[str, Any]) -> PodView:
        """What is kept of a pod. Between two polls one may be deleted and gone."""
        view = pod_view(pod)
        removed = self._removed.get(view.gang, {})
        if view.deleted and (not view.over or view.node in removed):
            self._removed.setdefault(view.gang, removed)[view.node] = view
            if len(self._removed) > _MOST:  # those of stopped gangs come after the stop
                self._removed.pop(next(iter(self._removed)), None)
        return view

    def _clear(self, key: str) -> None:
        for file in (self._nodes / key).glob(f"{PLACED}*"):
            file.unlink(missing_ok=True)

    def _suspend(self, name: str, value: bool) -> dict[str, Any] | None:
        path = self._api.path("jobs", name)
        answer = self._api.request("PATCH", path, {"spec": {"suspend": value}})
        return None if answer.status == 404 else self._api.good(answer, "start the job").body

    def _delete_silent(self, pods: Sequence[PodView]) -> None:
        """Delete those of the pods whose kubelet, which should confirm their end, is gone."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        for pod in pods:
            if not pod.silent:
                continue
            answer = self._api.request("DELETE", self._api.path("pods", pod.name), body)
            if answer.status != 404:
                self._api.good(answer, "delete a pod of a lost node")

    def _warning(self, job: JobView | None, pods: Sequence[PodView]) -> str:
        """What the cluster says of a Job whose pods it does not create, because of a quota for
        example; or its autoscaler of a pod without a node. One request for all Jobs."""
        if job is None or job.suspended or job.end:
            return ""
        missing = len(pods) < job.nodes
        names = [job.name] if missing else [p.name for p in pods if not p.host and not p.over]
        if not names:
            return ""
        at, warnings = self._warnings
        pace = _NEW_WARNINGS if missing and job.name not in warnings else _WARNINGS
        if time.monotonic() - at > pace:
            try:
                warnings = cluster.warnings(self._api)
            except AllranksError:
                warnings = {}
            self._warnings = (time.monotonic(), warnings)
        # A resumed Job's earlier warnings are about its earlier pods.
        since = job.start[: cluster.TO_SECONDS]
        later = (warnings[name] for name in names if name in warnings)
        return next((warning.message for warning in later if warning.at >= since), "")

    # ------------------------------------------------------------ names and files

    def _names(self, key: str) -> Names:
        return Names(key, self._mark)

    def mark(self, key: str) -> str:
        """Return the marker that a gang's processes carry."""
        return f"{self._mark}.{key}"

    def _start(self, gang: Gang) -> Start:
        if _own_disks(gang.options):
            return Fetched(agent_bundle.digest())
        nodes = str(self._nodes / gang.key)
        return Shared(str(self._root), nodes, str(pinned_code.path(Home(self._root).pinned)))

    def _lay_out(self, gang: Gang) -> None:
        """Keep the agent's code for pods that fetch it; or write it and the agents' folders to the
        shared volume."""
        if _own_disks(gang.options):
            agent_bundle.keep(self._folder.parent)
            return
        for node in range(gang.nodes):
            (self._nodes / gang.key / str(node)).mkdir(parents=True, exist_ok=True, mode=0o700)
        pinned_code.make(Home(self._root).pinned)

    @functools.cached_property
    def _jobs(self) -> Cache[JobView]:
        return Cache(self._api, "jobs", f"{HOME}={self._mark}", job_view)

    @functools.cached_property
    def _pods(self) -> Cache[PodView]:
        return Cache(self._api, "pods", f"{HOME}={self._mark}", self._pod)

    @functools.cached_property
    def _mark(self) -> str:
        return HomeMark(self._folder).get()


def _newest(pods: Sequence[PodView]) -> list[PodView]:
    """One pod per index: a living one if there is one. A resumed Job leaves none of its first."""
    by_node: dict[int, PodView] = {}
    for pod in sorted(pods, key=lambda pod: not pod.over):
        by_node[pod.node] = pod
    return sorted(by_node.values(), key=lambda pod: pod.node)


def _require(options: Mapping[str, Any]) -> None:
    """Raise Refused without an image, which every pod needs, and for an impossible namespace."""
    if options.get("namespace"):
        expect_namespace(options["namespace"])
    if not options.get("image"):
        hint = "set one with your framework and Python 3.11 or newer: --image IMAGE"
        raise Refused("no image for the pods is set", where="image", hint=hint)


def _own_disks(options: Mapping[str, Any]) -> bool:
    """Whether the pods share no volume with the server."""
    return not options.get("home_volume")


def _own_networks(options: Mapping[str, Any]) -> bool:
    return not options.get("host_network")


def _make(home: Home, options: Mapping[str, Any]) -> KubernetesEngine:
    return KubernetesEngine(home.root, home.engines / KubernetesEngine.name, home.nodes, options)


def _server(namespace: str, fields: Mapping[str, str]) -> str:
    return server_manifest.server(namespace, server_manifest.ServerOptions(**fields))


KIND = Kind(
    KubernetesEngine.name,
    "a Kubernetes cluster; each node is a pod of an Indexed Job",
    OPTIONS,
    _make,
    spot=("spot_tolerations", "spot_node_selector"),
    images=True,
    setup=rights,
    server=_server,
    shared_home=lambda options: SharedHome.NO if _own_disks(options) else SharedHome.YES,
    mounts=mounts,
    own_networks=_own_networks,
    address=lambda options: Api(options).host,
)
