"""The Slurm engine: a gang is one batch job with one agent a node; Slurm queues, places, ends it.

It asks with Slurm's own commands, and this machine is a login node of the cluster to them. One
`squeue` a tick tells of all gangs. A job's number is no identity (a controller that was killed may
give it out again): a gang is known by its comment, which names home and key.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from allranks.engines.base import MARKER, Handle, Host, Kind, Seen
from allranks.engines.shipping import archive
from allranks.engines.slurm_script import LOG, OPTIONS, cpus, script
from allranks.engines.words import count, there_are
from allranks.errors import EngineError, Refused
from allranks.plan.plan import Gang
from allranks.settings import Home
from allranks.states import GangState, Reason

# Longer than a busy controller takes; the loop of this cluster waits for it, and no other.
PATIENCE = 20.0
# As long as a person who submits waits to hear that a job can never run.
_AT_ONCE = 3.0
# What Slurm's commands say when nobody answered them; all else is an answer.
_NO_ANSWER = re.compile(
    r"contact slurm controller|timed out|connection (refused|failure)|zero bytes|"
    r"not responding|temporarily unable|backup controller|communication",
    re.IGNORECASE,
)
# What a user shares with every job of theirs; agents add what the job's own environment is.
_HANDED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG")

_WAITS = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
_ENDED: Mapping[str, tuple[Reason | None, str]] = {
    "COMPLETED": (None, "its agents have ended"),
    "FAILED": (None, "its agents have ended"),
    "CANCELLED": (Reason.CANCELED, "it was canceled in the cluster, not by allranks"),
    "PREEMPTED": (Reason.PREEMPTED, "a job of higher priority took its nodes"),
    "TIMEOUT": (Reason.TIME_LIMIT, "the cluster's time limit for the job is over"),
    "DEADLINE": (Reason.TIME_LIMIT, "the deadline of the job is over"),
    "NODE_FAIL": (Reason.NODE_LOST, "a node of it failed"),
    "BOOT_FAIL": (Reason.NODE_LOST, "a node of it did not boot"),
    "OUT_OF_MEMORY": (None, "a node had no memory left for it"),
    "REVOKED": (None, "another cluster of the federation took it"),
}


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

    def __init__(self, folder: Path, nodes: Path, conf: str | None = None) -> None:
        self._folder, self._nodes = folder, nodes
        self._home = hashlib.sha256(os.path.realpath(nodes).encode()).hexdigest()[:12]
        self._env = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
        if conf := conf or os.environ.get("SLURM_CONF"):
            self._env["SLURM_CONF"] = conf

    # ------------------------------------------------------------ a gang

    def admit(self, gang: Gang) -> None:
        try:
            self._ask("sbatch", "--test-only", input=self.render(gang), patience=_AT_ONCE)
        except Refused as error:
            # Slurm says the same of what is only down or drained now.
            if "configuration is not available" not in error.message:
                raise self._refused(error, gang.options) from None
            there = self._fit(gang)
            if there < gang.nodes:
                gpus = f" and {count(gang.gpus, 'GPU')}" if gang.gpus else ""
                needs = f"{count(gang.nodes, 'node')} with {count(cpus(gang), 'CPU')}{gpus} each"
                raise Refused(
                    f"the job can never run on this cluster: it needs {needs}, {there_are(there)}",
                    where="resources",
                    hint="ask for fewer nodes, or less of each; `allranks compute show` has them",
                ) from None
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
        self._nodes.joinpath(gang.key).mkdir(parents=True, exist_ok=True, mode=0o700)
        env = {**gang.env, MARKER: f"{self._home}.{gang.key}"}
        try:
            said = self._ask("sbatch", "--parsable", input=self.render(gang), env=env)
        except Refused as error:
            raise self._refused(error, gang.options) from None
        return Handle(gang.key, said.strip().partition(";")[0])

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, Seen]:
        if not handles:
            return {}
        try:
            queue = {job.mark: job for job in self._queue()}
        except EngineError as error:
            return {handle.key: Seen(GangState.UNKNOWN, error.message) for handle in handles}
        found, missing = {}, []
        for key, _ in handles:
            job = queue.get(self._mark(key))
            if job is None:
                missing.append(key)
            else:
                found[key] = self._seen(key, job.state, job.reason, job.nodes)
        return {**found, **(self._remembered(missing) if missing else {})}

    def stop(self, handle: Handle) -> None:
        found = self._living(handle.key)
        if found:
            self._ask("scancel", "--quiet", *(job.ref for job in found))

    # ------------------------------------------------------------ the cluster

    def check(self, options: Mapping[str, Any]) -> None:
        """As for a job of one node that does nothing."""
        gang = Gang("check.1", 1, ("true",), options=options)
        try:
            self._ask("sbatch", "--test-only", input=self.render(gang))
        except Refused as error:
            raise self._refused(error, options) from None

    def hosts(self, options: Mapping[str, Any]) -> Sequence[Host]:
        fields = ("NodeHost", "NodeAddr", "StateLong", "CPUsState", "Memory", "Gres", "GresUsed")
        form = ",".join(f"{field}:|" for field in (*fields, "Reason"))
        where = [f"--partition={options['partition']}"] if options.get("partition") else []
        lines = self._ask("sinfo", "--noheader", "--Node", f"--Format={form}", *where)
        found = {}
        for line in lines.splitlines():
            name, address, state, cpus, memory, gres, used, why = line.split("|")[:8]
            _, idle, _, total = (float(number) for number in cpus.split("/"))
            word = state.rstrip("*~#!%$@^-+")
            found[name] = Host(
                name,
                address,
                state,
                state == word and word in ("idle", "mixed", "allocated", "completing", "planned"),
                total,
                idle,
                _gpus(gres),
                max(0, _gpus(gres) - _gpus(used)),
                int(memory) << 20,
                "" if why == "none" else why,
            )
        return list(found.values())

    def _fit(self, gang: Gang) -> int:
        """How many hosts have what a node needs, whatever state they are in."""
        return sum(
            host.cpus >= cpus(gang) and host.gpus >= gang.gpus and host.memory >= (gang.memory or 0)
            for host in self.hosts(gang.options)
        )

    # ------------------------------------------------------------ asking

    def _mark(self, key: str) -> str:
        return f"allranks {self._home} {key}"

    def _archive(self) -> Path:
        return self._folder / "agent.tar"

    def _queue(self) -> list[_Job]:
        """Every job of this user that Slurm still knows, ended ones first."""
        form = "JobID:|,State:|,Reason:|,NodeList:|,Comment:|"
        user = f"--user={os.getuid()}"
        said = self._ask("squeue", "--noheader", "--states=all", user, f"--Format={form}")
        found = [_Job(*line.split("|")[:5]) for line in said.splitlines() if line.count("|") >= 5]
        return sorted(found, key=lambda job: (job.state not in _ENDED, int(job.ref)))

    def _living(self, key: str) -> list[_Job]:
        mark = self._mark(key)
        return [job for job in self._queue() if job.mark == mark and job.state not in _ENDED]

    def _seen(self, key: str, state: str, reason: str, nodes: str) -> Seen:
        if state in _ENDED:
            why, words = _ENDED[state]
            said = _last_words(self._nodes / key / LOG) if state == "FAILED" else ""
            return Seen(GangState.GONE, f"Slurm: {said or words}", reason=why)
        if state in _WAITS:
            return Seen(GangState.QUEUED, "" if reason in ("None", "") else f"Slurm: {reason}")
        if state == "CONFIGURING":
            return Seen(GangState.PROVISIONING, f"Slurm: {nodes} is being booted")
        return Seen(GangState.UP)

    def _remembered(self, keys: Sequence[str]) -> Mapping[str, Seen]:
        """Of those that the controller has forgotten: what accounting knows, where there is any,
        else the log of completed jobs."""
        ended: dict[str, str] = {}
        which = (f"--user={os.getuid()}", f"--name={','.join(keys)}", "--starttime=now-30days")
        form = ("--noheader", "--parsable2", "--allocations", "--format=JobName,State")
        for source in ((), ("--completion",)):
            try:
                said = self._ask("sacct", *source, *which, *form)
            except EngineError:
                continue
            # Of `CANCELLED by 0` the word that is the state.
            pairs = (line.split("|") for line in said.splitlines() if line.count("|") == 1)
            ended = {key: state.partition(" ")[0] for key, state in pairs}
            break
        gone = Seen(GangState.GONE, "Slurm: it is not in the queue any more")
        return {
            key: self._seen(key, ended[key], "", "") if ended.get(key) in _ENDED else gone
            for key in keys
        }

    def _ask(
        self,
        *words: str,
        input: str = "",
        env: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> str:
        """Run one of Slurm's commands; what it printed.

        Raises Refused with Slurm's own words, EngineError when nobody answered.
        """
        try:
            done = subprocess.run(
                words,
                input=input,
                env={**self._env, **(env or {})},
                capture_output=True,
                text=True,
                timeout=patience,
                cwd="/",
            )
        except FileNotFoundError:
            raise Refused(
                f"Slurm's command `{words[0]}` is not on the PATH of this server",
                hint="run the server on a login node of the cluster, its commands on PATH; "
                "`allranks server stop`, then any command, starts it anew from your shell",
            ) from None
        except subprocess.TimeoutExpired:
            said = f"Slurm does not answer: `{words[0]}` took over {patience:g} s"
            raise EngineError(said) from None
        if done.returncode == 0:
            return done.stdout
        said = _sentence(words[0], done.stderr) or f"`{words[0]}` failed"
        if _NO_ANSWER.search(done.stderr):
            raise EngineError(f"Slurm does not answer: {said}")
        raise Refused(f"Slurm refuses it: {said}")

    def _refused(self, error: Refused, options: Mapping[str, Any]) -> Refused:
        if error.hint:
            return error
        said, hint = error.message.lower(), "`sinfo` shows what the cluster has"
        if "partition" in said:
            there = self._ask("sinfo", "--noheader", "--format=%R").split()
            hint = f"its partitions: {', '.join(sorted(set(there)))}"
        elif "account" in said or "qos" in said:
            hint = "yours: sacctmgr show assoc user=$USER format=account,partition,qos"
        return Refused(error.message, where=error.where, hint=hint)


def _sentence(command: str, said: str) -> str:
    """The last thing it said, without the names of who says it."""
    lines = [line for line in said.splitlines() if line.strip()]
    text = lines[-1] if lines else ""
    return re.sub(rf"^({command}: )?((error|fatal|allocation failure): )*", "", text).strip()


def _gpus(gres: str) -> int:
    """How many in `gpu:a100:4(S:0-1),shard:8`."""
    counted = re.findall(r"(?:^|,)gpu(?::[^:,(]+)*:(\d+)", gres)
    return sum(int(number) for number in counted)


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


KIND = Kind(SlurmEngine.name, "a Slurm cluster, with this machine as a login node", OPTIONS, _make)
