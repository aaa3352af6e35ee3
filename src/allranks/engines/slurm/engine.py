"""The Slurm engine: a gang is one batch job with one agent per node.

It runs Slurm's commands, so this machine must be a login node of the cluster. One `squeue` per tick
covers all gangs. A job's number does not identify a gang, because a controller that was killed may
reuse it; the job's comment does, with home and key.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from allranks import folder_trees
from allranks.core.amounts import counted
from allranks.core.plan import Gang
from allranks.engines import agent_bundle, pinned_code
from allranks.engines.agent_bundle import archive
from allranks.engines.answers import reads_answers
from allranks.engines.base import MARKER, GangStatus, Handle, Host, Kind, NotYet, QueueFull
from allranks.engines.home_mark import seen_from
from allranks.engines.slurm.batch_script import (
    ENDED,
    LOG,
    OPTIONS,
    PROLOGUE,
    cpus,
    excluded,
    gpus_of,
    has_site,
    placed,
    script,
    shared_home,
)
from allranks.engines.slurm.commands import PATIENCE, Commands, number
from allranks.errors import EngineError, Refused
from allranks.settings import Home
from allranks.statuses import GangState, Reason, SharedHome

# Seconds that a submission waits for Slurm's check of the job.
_SUBMIT_PATIENCE = 3.0
# Seconds after its start in which a controller may still show outdated states of hosts.
_SETTLING = 120.0
# Limits on queued jobs, of a user or a site: they no longer apply when other jobs end.
_FULL = re.compile(r"policy|submit limit|limit reached", re.IGNORECASE)
# Those that count jobs alone, and so hold for all: others may refuse this one for its size.
_SUBMIT_LIMIT = re.compile(r": \w*Submit\w*Limit$")
# A list of hosts, which is a node for each.
_TOO_FEW = re.compile(r"invalid number of nodes \(-N (\d{1,6})-1\)")
_Q, _P, _U, _G = GangState.QUEUED, GangState.PROVISIONING, GangState.UP, GangState.GONE
# Every state of squeue and sacct: our state, why the gang ended, and a description.
STATES: Mapping[str, tuple[GangState, Reason | None, str]] = {
    **dict.fromkeys(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"), (_Q, None, "")),
    **dict.fromkeys(("RESV_DEL_HOLD", "SPECIAL_EXIT"), (_Q, None, "it is on hold")),
    **dict.fromkeys(("CONFIGURING", "POWER_UP_NODE"), (_P, None, "its hosts are being booted")),
    **dict.fromkeys(
        ("RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT"), (_U, None, "")
    ),
    **dict.fromkeys(("SUSPENDED", "STOPPED"), (_U, None, "it is suspended")),
    "COMPLETED": (_G, None, "its agents have ended"),
    # Used only if no agent has reported: an agent's report is more specific.
    "FAILED": (_G, Reason.SETUP_FAILED, "its script failed"),
    "LAUNCH_FAILED": (_G, Reason.SETUP_FAILED, "its script could not be started"),
    "CANCELLED": (_G, Reason.CANCELED, "it was canceled in Slurm, not by allranks"),
    "PREEMPTED": (_G, Reason.PREEMPTED, "a job of higher priority took its nodes"),
    "TIMEOUT": (_G, Reason.TIME_LIMIT, "it reached the cluster's time limit"),
    "DEADLINE": (_G, Reason.TIME_LIMIT, "it reached its deadline"),
    "NODE_FAIL": (_G, Reason.NODE_LOST, "one of its nodes failed"),
    "BOOT_FAIL": (_G, Reason.NODE_LOST, "one of its nodes did not boot"),
    "RECONFIG_FAIL": (_G, Reason.NODE_LOST, "one of its nodes could not be reconfigured"),
    "OUT_OF_MEMORY": (_G, Reason.OUT_OF_MEMORY, "one of its nodes ran out of memory"),
    "REVOKED": (_G, None, "another cluster of the federation runs it"),
}
# States of hosts that are neither down nor drained; hosts that are off are booted on demand. A `*`
# means that the host does not answer.
_HEALTHY = re.compile(
    r"(idle|mixed|allocated|completing|planned|reserved|power(ed|ing)?_\w+)[^*\w]{0,2}"
)
_PAUSED = ("SUSPENDED", "STOPPED")
# A job's number, and how `sbatch --parsable` ends, in a federation with the cluster's name.
_NUMBER, _SUBMITTED = re.compile("[0-9]{1,20}"), re.compile(r"\b([0-9]{1,20})(?:;\S*)?\s*\Z")
# In a gang's folder: its `apart`; and the hosts that its user excludes, if it is kept off those of
# others, too. Seconds that it may wait for that, and that Slurm may take to choose free hosts.
_APART, _ELSEWHERE, _MOST_WAIT, _TO_CHOOSE = "apart", "elsewhere", 60.0, 10.0
# What a job may have written to its gang's folder: bytes that are read, nodes, and hosts.
_LONGEST, _NODE, _HOSTS = 1 << 16, re.compile("[0-9]{1,6}"), re.compile(r"[\w.,\[\]-]*", re.ASCII)


class _Job(NamedTuple):
    """A line of squeue. ``failure``: why the script has failed, if it could write no log."""

    ref: str
    state: str
    reason: str
    nodes: str
    mark: str
    failure: str = ""


@reads_answers
class SlurmEngine:
    """Agents as a Slurm job. ``nodes`` is the agents' folder, on a disk that the nodes share."""

    name = "slurm"
    # Polling at every tick would be a burden for a shared controller.
    pace = 1.0

    def __init__(self, folder: Path, nodes: Path, conf: str | None = None) -> None:
        self._folder, self._nodes = folder, nodes
        self._home = hashlib.sha256(os.path.realpath(nodes).encode()).hexdigest()[:12]
        self._run = Commands(conf)

    # ------------------------------------------------------------ a gang

    def admit(self, gang: Gang) -> None:
        try:
            self._admit(gang, _SUBMIT_PATIENCE)
        except Refused:
            raise
        except EngineError:
            return  # Slurm does not answer now: the job waits in the queue

    def render(self, gang: Gang) -> str:
        ship = str(self._archive()) if gang.options.get("ship_agent") else None
        return script(gang, self._mark(gang.key), str(self._nodes / gang.key), ship)

    def submit(self, gang: Gang) -> Handle:
        if jobs := self._living(gang.key):
            return Handle(gang.key, jobs[-1].ref)
        self.admit(gang)
        if gang.options.get("ship_agent"):
            archive(self._archive())
        if shared_home(gang.options) is not SharedHome.YES:
            agent_bundle.keep(self._folder.parent)
        folder = self._nodes / gang.key
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if has_site(gang.options) and shared_home(gang.options) is not SharedHome.NO:
            (folder / PROLOGUE).touch()
        if gang.apart:
            (folder / _APART).write_text(gang.apart)
            gang = self._elsewhere(gang)
        env = {**gang.env, MARKER: f"{self._home}.{gang.key}"}
        env["ALLRANKS_AGENT_BUNDLE"] = agent_bundle.digest()
        code = pinned_code.pin(Home(self._nodes.parent).pinned)
        if code is not None:
            env["ALLRANKS_AGENT_CODE"] = str(code)
        if shared_home(gang.options) is SharedHome.AUTO:
            env["ALLRANKS_AGENT_HOME"] = seen_from(folder)
        try:
            output = self._run("sbatch", "--parsable", input=self.render(gang), env=env)
        except Refused as error:
            if _SUBMIT_LIMIT.search(error.message):
                raise QueueFull(error.message) from None
            raise self._final(error, gang, PATIENCE) or EngineError(error.message) from None
        if (job := _SUBMITTED.search(output)) is None:  # the next try finds it in the queue
            raise EngineError("`sbatch` did not say the number of the job")
        return Handle(gang.key, job[1])

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, GangStatus]:
        if not handles:
            return {}
        try:
            queue = {job.mark: job for job in self._queue()}
        except EngineError as error:
            return {handle.key: GangStatus(GangState.UNKNOWN, error.message) for handle in handles}
        statuses, missing = {}, []
        for handle in handles:
            job = queue.get(self._mark(handle.key))
            if job is None:
                missing.append(handle)
            else:
                status = self._status(handle.key, job.state, job.reason, job.nodes)
                if status.state is GangState.QUEUED:
                    self._let_anywhere(handle.key, job.ref)
                if job.failure and status.state is GangState.GONE:
                    status = status._replace(
                        why=f"Slurm: {job.failure}", reason=Reason.SETUP_FAILED
                    )
                statuses[handle.key] = status
        return {**statuses, **(self._from_accounting(missing) if missing else {})}

    def stop(self, handle: Handle) -> None:
        if jobs := self._living(handle.key):
            self._run("scancel", "--quiet", *(job.ref for job in jobs))

    # ------------------------------------------------------------ the cluster

    def check(self, options: Mapping[str, Any]) -> None:
        """Have Slurm check a job of one node, or of as many as the options name."""
        gang = Gang("check.1", 1, ("true",), options=options)
        try:
            self._admit(gang, PATIENCE)
        except Refused as error:
            if (least := _TOO_FEW.search(error.message)) is None:
                raise
            self._admit(gang._replace(nodes=int(least[1])), PATIENCE)

    def hosts(self, options: Mapping[str, Any]) -> Sequence[Host]:
        return self._run.hosts(options.get("partition"))

    def _admit(self, gang: Gang, patience: float) -> None:
        """Raise Refused if it can never run there, EngineError if Slurm does not answer."""
        try:
            self._run("sbatch", "--test-only", input=self.render(gang), patience=patience)
        except Refused as error:
            if final := self._final(error, gang, patience):
                raise final from None

    def _final(self, error: Refused, gang: Gang, patience: float) -> Refused | None:
        """Return the refusal to raise, or None if the job may be accepted later: Slurm gives the
        same message for a full queue, for hosts that are down or drained now, and for all hosts
        when its controller has just started."""
        if _FULL.search(error.message):
            return None
        gang = placed(gang)
        if "configuration is not available" not in error.message:
            return self._with_hint(error)
        hosts = self._run.hosts(gang.options.get("partition"), patience)
        fit = sum(_fits(gang, host) for host in hosts)
        hint = "request fewer nodes, or less per node; `allranks compute show` lists the hosts"
        if fit < gang.nodes:
            hint = _cpu_hint(gang, hosts) or hint
            needs = f"{counted(gang.nodes, 'node')} with {_describe(gang)} each, {fit} available"
            message = f"the job can never run on this cluster: it needs {needs}"
            return Refused(message, where="resources", hint=hint)
        healthy = all(_HEALTHY.fullmatch(host.state) for host in hosts)
        if healthy and self._run.age(patience) > _SETTLING:
            return Refused(error.message, where="resources", hint=hint)
        return None

    def _elsewhere(self, gang: Gang) -> Gang:
        """The gang, kept off the hosts of others of its ``apart``, if it can then start now. Raises
        NotYet as long as Slurm is about to choose the host of one."""
        hosts = []
        for job in self._queue():
            file = self._nodes / job.mark.removeprefix(self._mark("")) / _APART
            if _ended(job.state) or _text(file) != gang.apart or job.mark == self._mark(gang.key):
                continue
            if not job.nodes and job.reason == "None" and _age(file) < _TO_CHOOSE:
                raise NotYet("waits until Slurm has chosen the host of another replica")
            hosts += [job.nodes] if job.nodes else []
        if not hosts:
            return gang
        extra = gang.options.get("extra", ())
        with contextlib.suppress(EngineError, Refused, ValueError):
            theirs = excluded(extra)
            if "/" in theirs:  # a file of names, relative to where sbatch runs
                path = os.path.join("/", theirs)
                theirs = self._run("scontrol", "show", "hostlist", path).strip()
            hosts += [theirs] if theirs else []
            # Of several such options the last one counts.
            extra = [*extra, f"--exclude={','.join(hosts)}"]
            elsewhere = gang._replace(options={**gang.options, "extra": extra})
            test = ("sbatch", "--test-only")
            plan = self._run(*test, input=self.render(elsewhere), messages=True)
            start = re.search(r" to start at (\S+) ", plan)
            at = datetime.fromisoformat(start[1] if start else "")
            if at.timestamp() < time.time() + _MOST_WAIT:
                (self._nodes / gang.key / _ELSEWHERE).write_text(theirs)
                return elsewhere
        return gang

    def _let_anywhere(self, key: str, ref: str) -> None:
        """Let a gang that has waited for other hosts than those of others run there, too, but not
        on those that its user excludes."""
        file = self._nodes / key / _ELSEWHERE
        if _age(file) > _MOST_WAIT:
            hosts = _text(file)
            with contextlib.suppress(EngineError, Refused):
                if _HOSTS.fullmatch(hosts):
                    self._run("scontrol", "update", f"JobId={ref}", f"ExcNodeList={hosts}")
                file.unlink()

    # ------------------------------------------------------------ queries

    def _mark(self, key: str) -> str:
        return f"allranks {self._home} {key}"

    def _archive(self) -> Path:
        return self._folder / "agent.tar"

    def _queue(self) -> list[_Job]:
        """The jobs of this home that squeue lists, ended ones first."""
        form = "JobID:|,State:|,Reason:|,NodeList:|,Comment:|"
        user = f"--user={os.getuid()}"
        output = self._run("squeue", "--noheader", "--states=all", user, f"--Format={form}")
        prefix = self._mark("")
        # Comments of other jobs may be any text, so lines without our mark are skipped.
        rows = (line.split("|") for line in output.splitlines())
        jobs = []
        for row in rows:
            if len(row) == 6 and row[4].startswith(prefix) and _NUMBER.fullmatch(row[0]):
                mark, _, failure = row[4].partition(": ")
                jobs.append(_Job(row[0], row[1], row[2], row[3], mark, failure))
        return sorted(jobs, key=lambda job: (not _ended(job.state), number(job.ref)))

    def _living(self, key: str) -> list[_Job]:
        mark = self._mark(key)
        return [job for job in self._queue() if job.mark == mark and not _ended(job.state)]

    def _status(self, key: str, state: str, reason: str, nodes: str) -> GangStatus:
        gang_state, why, text = STATES.get(state, (GangState.UP, None, f"it is {state}"))
        if state == "FAILED":
            text = _last_line(self._nodes / key / LOG) or text
        elif gang_state is GangState.QUEUED and reason not in ("None", ""):
            text = reason
        elif gang_state is GangState.PROVISIONING:
            text = f"{nodes} is being booted"
        elif state == "RUNNING" and (self._nodes / key / PROLOGUE).exists():
            gang_state, text = GangState.PROVISIONING, "its modules and prologue are running"
        lost = _ended_agents(self._nodes / key) if state == "RUNNING" else ()
        return GangStatus(gang_state, text and f"Slurm: {text}", lost, why, state in _PAUSED)

    def _from_accounting(self, handles: Sequence[Handle]) -> Mapping[str, GangStatus]:
        """The status of jobs that squeue no longer lists: from accounting if the cluster has it,
        else from the log of completed jobs. Neither has comments: number and name must match."""
        states: dict[tuple[str, str], str] = {}
        refs = ",".join(handle.ref for handle in handles if handle.ref)
        which = (f"--user={os.getuid()}", f"--jobs={refs}")
        form = ("--noheader", "--parsable2", "--allocations", "--format=JobID,JobName,State")
        for source in ((), ("--completion",)) if refs else ():
            try:
                output = self._run("sacct", *source, *which, *form)
            except EngineError:
                continue
            rows = (line.split("|") for line in output.splitlines() if line.count("|") == 2)
            # The first word of `CANCELLED by 0` is the state.
            # Behind the name's key is whose job it is.
            states = {(e[0], e[1].partition("@")[0]): e[2].partition(" ")[0] for e in rows}
            break
        gone = GangStatus(GangState.GONE, "Slurm: it is no longer in the queue")
        statuses = {}
        for handle in handles:
            state = states.get((handle.ref, handle.key), "")
            ended = _ended(state)
            statuses[handle.key] = self._status(handle.key, state, "", "") if ended else gone
        return statuses

    def _with_hint(self, error: Refused) -> Refused:
        if error.hint:
            return error
        message, hint = error.message.lower(), "`sinfo` shows what the cluster has"
        if "account" in message or "qos" in message:  # first: `account/partition combination`
            hint = "list yours: sacctmgr show assoc user=$USER format=account,partition,qos"
        elif "partition" in message:
            with contextlib.suppress(EngineError):
                names = sorted(set(self._run("sinfo", "--noheader", "--format=%R").split()))
                hint = f"partitions of the cluster: {', '.join(names)}"
        return Refused(error.message, where=error.where, hint=hint)


def _fits(gang: Gang, host: Host) -> bool:
    """Whether the host, in whatever state, has the resources of a node."""
    memory = gang.memory or 0
    return host.cpus >= cpus(gang) and host.gpus >= gang.gpus and host.memory >= memory


def _cpu_hint(gang: Gang, hosts: Sequence[Host]) -> str:
    """What to change if no host has as many CPUs as a node needs; else empty."""
    most = int(max((host.cpus for host in hosts), default=0))
    if not 0 < most < cpus(gang):
        return ""
    key = "resources.properties.slurm.cpus"
    if gang.cpus is not None:
        return f"the largest host has {counted(most, 'CPU')}: lower `cpus` of the compute, or {key}"
    return (
        f"each of the {gang.processes} processes of a node gets a CPU, and the largest host has "
        f"{most}: start fewer (-p {most}), or let them share: --set {key}={most}"
    )


def _describe(gang: Gang) -> str:
    parts = [counted(cpus(gang), "CPU")]
    if gang.gpus:
        parts.append(counted(gang.gpus, "GPU"))
    if gang.memory:
        parts.append(f"{gang.memory / (1 << 30):.3g} GiB of memory")
    return " and ".join(", ".join(parts).rsplit(", ", 1))


def _text(file: Path) -> str:
    """The end of a file of a gang's folder, which its job can write to; '' if there is none."""
    with contextlib.suppress(OSError), folder_trees.open_file(file) as opened:
        opened.seek(max(0, os.fstat(opened.fileno()).st_size - _LONGEST))
        return opened.read(_LONGEST).decode(errors="replace")
    return ""


def _age(file: Path) -> float:
    """Seconds since a file was written; 0 if there is none."""
    with contextlib.suppress(OSError):
        return time.time() - file.stat().st_mtime
    return 0.0


def _ended(state: str) -> bool:
    return STATES.get(state, (GangState.UP,))[0] is GangState.GONE


def _ended_agents(folder: Path) -> tuple[int, ...]:
    """The nodes whose agents have ended, by the files they leave on the shared disk."""
    try:
        names = os.listdir(folder)
    except OSError:
        return ()
    numbers = [name.removeprefix(ENDED) for name in names if name.startswith(ENDED)]
    return tuple(sorted(int(number) for number in numbers if _NODE.fullmatch(number)))


def _last_line(log: Path) -> str:
    lines = _text(log).splitlines()
    # Slurm's own messages about ending a failed job follow the line with the cause.
    ours = [
        line for line in lines if line.strip() and not line.startswith(("srun:", "slurmstepd:"))
    ]
    return (ours or [""])[-1].strip()


def _queue(gang: Gang) -> str:
    """Slurm limits what an account, a quality of service or a partition may have queued."""
    options = placed(gang).options
    return " ".join(str(options.get(name) or "") for name in ("account", "qos", "partition"))


def _make(home: Home, options: Mapping[str, Any]) -> SlurmEngine:
    return SlurmEngine(home.engines / SlurmEngine.name, home.nodes, options.get("conf"))


KIND = Kind(
    SlurmEngine.name,
    "a Slurm cluster, with this machine as a login node",
    OPTIONS,
    _make,
    spot=("spot_partition", "spot_qos"),
    gpus=gpus_of,
    shared_home=shared_home,
    queue=_queue,
)
