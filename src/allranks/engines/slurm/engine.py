"""The Slurm engine: a gang is one batch job with one agent a node; Slurm queues, places, ends it.

It asks with Slurm's own commands, and this machine is a login node of the cluster to them. One
`squeue` a tick tells of all gangs. A job's number is no identity (a controller that was killed may
give it out again): a gang is known by its comment, which names home and key.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from allranks.engines.agent_bundle import archive
from allranks.engines.base import MARKER, GangStatus, Handle, Host, Kind
from allranks.engines.node_names import available
from allranks.engines.slurm.batch_script import (
    ENDED,
    LOG,
    OPTIONS,
    PROLOGUE,
    cpus,
    gpus_of,
    has_site,
    placed,
    script,
)
from allranks.engines.slurm.commands import PATIENCE, Commands, number
from allranks.errors import EngineError, Refused
from allranks.plan.amounts import counted
from allranks.plan.plan import Gang
from allranks.settings import Home
from allranks.statuses import GangState, Reason

# As long as a person who submits waits to hear that a job can never run.
_AT_ONCE = 3.0
# Seconds in which a new controller hears of its hosts; it shows them as they were before.
_YOUTH = 120.0
# A user's or a site's limit for jobs in the queue, which ends when other jobs do.
_FULL = re.compile(r"policy|submit limit|limit reached", re.IGNORECASE)
_Q, _P, _U, _G = GangState.QUEUED, GangState.PROVISIONING, GangState.UP, GangState.GONE
# Every state that squeue and sacct have a word for, what it is to us, and why it ended.
STATES: Mapping[str, tuple[GangState, Reason | None, str]] = {
    **dict.fromkeys(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"), (_Q, None, "")),
    **dict.fromkeys(("RESV_DEL_HOLD", "SPECIAL_EXIT"), (_Q, None, "it is held")),
    **dict.fromkeys(("CONFIGURING", "POWER_UP_NODE"), (_P, None, "its hosts are being booted")),
    **dict.fromkeys(
        ("RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT"), (_U, None, "")
    ),
    **dict.fromkeys(("SUSPENDED", "STOPPED"), (_U, None, "it is suspended")),
    "COMPLETED": (_G, None, "its agents have ended"),
    # Counts where no agent has said anything: what they say is closer to what happened.
    "FAILED": (_G, Reason.SETUP_FAILED, "its script failed"),
    "LAUNCH_FAILED": (_G, Reason.SETUP_FAILED, "its script could not be started"),
    "CANCELLED": (_G, Reason.CANCELED, "it was canceled in the cluster, not by allranks"),
    "PREEMPTED": (_G, Reason.PREEMPTED, "a job of higher priority took its nodes"),
    "TIMEOUT": (_G, Reason.TIME_LIMIT, "the cluster's time limit for the job is over"),
    "DEADLINE": (_G, Reason.TIME_LIMIT, "the deadline of the job is over"),
    "NODE_FAIL": (_G, Reason.NODE_LOST, "a node of it failed"),
    "BOOT_FAIL": (_G, Reason.NODE_LOST, "a node of it did not boot"),
    "RECONFIG_FAIL": (_G, Reason.NODE_LOST, "a node of it could not be set up"),
    "OUT_OF_MEMORY": (_G, Reason.OUT_OF_MEMORY, "a node had no memory left for it"),
    "REVOKED": (_G, None, "another cluster of the federation took it"),
}


# States of hosts that are neither down nor drained; those that are off are booted when wanted. With
# a `*` they do not answer.
_IN_ORDER = re.compile(
    r"(idle|mixed|allocated|completing|planned|reserved|power(ed|ing)?_\w+)[^*\w]{0,2}"
)
_PAUSED = ("SUSPENDED", "STOPPED")


class _Job(NamedTuple):
    """A line of squeue."""

    ref: str
    state: str
    reason: str
    nodes: str
    mark: str


class SlurmEngine:
    """Agents as one job of Slurm's. ``nodes`` is where they work, on a disk the nodes share."""

    name = "slurm"
    # As often as agents' silence is looked at would be a burden to a controller that many share.
    pace = 1.0

    def __init__(self, folder: Path, nodes: Path, conf: str | None = None) -> None:
        self._folder, self._nodes = folder, nodes
        self._home = hashlib.sha256(os.path.realpath(nodes).encode()).hexdigest()[:12]
        self._ask = Commands(conf)

    # ------------------------------------------------------------ a gang

    def admit(self, gang: Gang) -> None:
        try:
            self._admit(gang, _AT_ONCE)
        except Refused:
            raise
        except EngineError:
            return  # nobody answers: the job waits for that

    def render(self, gang: Gang) -> str:
        ship = str(self._archive()) if gang.options.get("ship_agent") else None
        return script(gang, self._mark(gang.key), str(self._nodes / gang.key), ship)

    def submit(self, gang: Gang) -> Handle:
        found = self._living(gang.key)
        if found:
            return Handle(gang.key, found[-1].ref)
        self.admit(gang)
        if gang.options.get("ship_agent"):
            archive(self._archive())
        folder = self._nodes / gang.key
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if has_site(gang.options):
            (folder / PROLOGUE).touch()
        env = {**gang.env, MARKER: f"{self._home}.{gang.key}"}
        try:
            said = self._ask("sbatch", "--parsable", input=self.render(gang), env=env)
        except Refused as error:
            raise self._never(error, gang, PATIENCE) or EngineError(error.message) from None
        return Handle(gang.key, said.strip().partition(";")[0])

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, GangStatus]:
        if not handles:
            return {}
        try:
            queue = {job.mark: job for job in self._queue()}
        except EngineError as error:
            return {handle.key: GangStatus(GangState.UNKNOWN, error.message) for handle in handles}
        found, missing = {}, []
        for handle in handles:
            job = queue.get(self._mark(handle.key))
            if job is None:
                missing.append(handle)
            else:
                found[handle.key] = self._seen(handle.key, job.state, job.reason, job.nodes)
        return {**found, **(self._remembered(missing) if missing else {})}

    def stop(self, handle: Handle) -> None:
        found = self._living(handle.key)
        if found:
            self._ask("scancel", "--quiet", *(job.ref for job in found))

    # ------------------------------------------------------------ the cluster

    def check(self, options: Mapping[str, Any]) -> None:
        """As for a job of one node that does nothing."""
        self._admit(Gang("check.1", 1, ("true",), options=options), PATIENCE)

    def hosts(self, options: Mapping[str, Any]) -> Sequence[Host]:
        return self._ask.hosts(options.get("partition"))

    def _admit(self, gang: Gang, patience: float) -> None:
        """Raises Refused if it can never run there, EngineError if nobody answers."""
        try:
            self._test(gang, patience)
        except Refused as error:
            never = self._never(error, gang, patience)
            if never is not None:
                raise never from None

    def _test(self, gang: Gang, patience: float) -> None:
        self._ask("sbatch", "--test-only", input=self.render(gang), patience=patience)

    def _never(self, error: Refused, gang: Gang, patience: float) -> Refused | None:
        """What a refusal of Slurm's comes to; None where it may be otherwise in a while. It says
        the same of a full queue, of hosts that are down or drained now, and of all hosts when its
        controller has just started."""
        if _FULL.search(error.message):
            return None
        gang = placed(gang)
        if "configuration is not available" not in error.message:
            return self._refused(error, gang.options)
        hosts = self._ask.hosts(gang.options.get("partition"), patience)
        there = sum(_fits(gang, host) for host in hosts)
        hint = "ask for fewer nodes, or less of each; `allranks compute show` has them"
        if there < gang.nodes:
            needs = f"{counted(gang.nodes, 'node')} with {_words(gang)} each, {available(there)}"
            said = f"the job can never run on this cluster: it needs {needs}"
            return Refused(said, where="resources", hint=hint)
        sure = all(_IN_ORDER.fullmatch(host.state) for host in hosts)
        if sure and self._ask.age(patience) > _YOUTH:
            return Refused(error.message, where="resources", hint=hint)
        return None

    # ------------------------------------------------------------ asking

    def _mark(self, key: str) -> str:
        return f"allranks {self._home} {key}"

    def _archive(self) -> Path:
        return self._folder / "agent.tar"

    def _queue(self) -> list[_Job]:
        """Every job of this home that Slurm still knows, ended ones first."""
        form = "JobID:|,State:|,Reason:|,NodeList:|,Comment:|"
        user = f"--user={os.getuid()}"
        said = self._ask("squeue", "--noheader", "--states=all", user, f"--Format={form}")
        mine = self._mark("")
        # Comments are anybody's text: only lines that are ours are read.
        rows = (line.split("|") for line in said.splitlines())
        found = [_Job(*row[:5]) for row in rows if len(row) == 6 and row[4].startswith(mine)]
        return sorted(found, key=lambda job: (not _ended(job.state), number(job.ref)))

    def _living(self, key: str) -> list[_Job]:
        mark = self._mark(key)
        return [job for job in self._queue() if job.mark == mark and not _ended(job.state)]

    def _seen(self, key: str, state: str, reason: str, nodes: str) -> GangStatus:
        is_, why, words = STATES.get(state, (GangState.UP, None, f"it is {state}"))
        if state == "FAILED":
            words = _last_words(self._nodes / key / LOG) or words
        elif is_ is GangState.QUEUED and reason not in ("None", ""):
            words = reason
        elif is_ is GangState.PROVISIONING:
            words = f"{nodes} is being booted"
        elif state == "RUNNING" and (self._nodes / key / PROLOGUE).exists():
            is_, words = GangState.PROVISIONING, "its modules and prologue run"
        lost = _ended_agents(self._nodes / key) if state == "RUNNING" else ()
        return GangStatus(is_, words and f"Slurm: {words}", lost, why, paused=state in _PAUSED)

    def _remembered(self, handles: Sequence[Handle]) -> Mapping[str, GangStatus]:
        """Of those that the controller has forgotten: what accounting knows, where there is any,
        else the log of completed jobs. Neither names homes: number and name have to agree."""
        known: dict[tuple[str, str], str] = {}
        refs = ",".join(handle.ref for handle in handles if handle.ref)
        which = (f"--user={os.getuid()}", f"--jobs={refs}")
        form = ("--noheader", "--parsable2", "--allocations", "--format=JobID,JobName,State")
        for source in ((), ("--completion",)) if refs else ():
            try:
                said = self._ask("sacct", *source, *which, *form)
            except EngineError:
                continue
            rows = (line.split("|") for line in said.splitlines() if line.count("|") == 2)
            # Of `CANCELLED by 0` the word that is the state.
            known = {(ref, name): state.partition(" ")[0] for ref, name, state in rows}
            break
        gone = GangStatus(GangState.GONE, "Slurm: it is not in the queue any more")
        found = {}
        for handle in handles:
            state = known.get((handle.ref, handle.key), "")
            found[handle.key] = self._seen(handle.key, state, "", "") if _ended(state) else gone
        return found

    def _partitions(self) -> list[str]:
        try:
            return sorted(set(self._ask("sinfo", "--noheader", "--format=%R").split()))
        except EngineError:
            return ["nobody can say"]

    def _refused(self, error: Refused, options: Mapping[str, Any]) -> Refused:
        if error.hint:
            return error
        said, hint = error.message.lower(), "`sinfo` shows what the cluster has"
        if "account" in said or "qos" in said:  # first: `account/partition combination`
            hint = "yours: sacctmgr show assoc user=$USER format=account,partition,qos"
        elif "partition" in said:
            hint = f"its partitions: {', '.join(self._partitions())}"
        return Refused(error.message, where=error.where, hint=hint)


def _fits(gang: Gang, host: Host) -> bool:
    """Whether it has what a node needs, whatever state it is in."""
    memory = gang.memory or 0
    return host.cpus >= cpus(gang) and host.gpus >= gang.gpus and host.memory >= memory


def _words(gang: Gang) -> str:
    parts = [counted(cpus(gang), "CPU")]
    if gang.gpus:
        parts.append(counted(gang.gpus, "GPU"))
    if gang.memory:
        parts.append(f"{gang.memory / (1 << 30):.3g} GiB of memory")
    return " and ".join(", ".join(parts).rsplit(", ", 1))


def _ended(state: str) -> bool:
    return STATES.get(state, (GangState.UP,))[0] is GangState.GONE


def _ended_agents(folder: Path) -> tuple[int, ...]:
    """The nodes whose agents are no more, as far as this disk tells."""
    try:
        names = os.listdir(folder)
    except OSError:
        return ()
    numbers = [name.removeprefix(ENDED) for name in names if name.startswith(ENDED)]
    return tuple(sorted(int(each) for each in numbers if each.isdigit()))


def _last_words(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    # Slurm's own about ending what has failed follow the line that says why.
    said = [
        line for line in lines if line.strip() and not line.startswith(("srun:", "slurmstepd:"))
    ]
    return (said or [""])[-1].strip()


def _make(home: Home, options: Mapping[str, Any]) -> SlurmEngine:
    return SlurmEngine(home.engines / SlurmEngine.name, home.nodes, options.get("conf"))


KIND = Kind(
    SlurmEngine.name,
    "a Slurm cluster, with this machine as a login node",
    OPTIONS,
    _make,
    spot=("spot_partition", "spot_qos"),
    gpus=gpus_of,
)
