"""Slurm's own commands: run, their answers taken apart, their refusals in one sentence."""

from __future__ import annotations

import math
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import datetime

from allranks.engines.base import Host
from allranks.errors import EngineError, Refused

# Longer than a busy controller takes; the loop of this cluster waits for it, and no other.
PATIENCE = 20.0
# What a user shares with every job of theirs; agents add what the job's own environment is.
_HANDED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG")
# What commands say when nobody could answer them; all else is an answer.
_NO_ANSWER = re.compile(
    r"contact slurm controller|timed out|connection (refused|failure)|zero bytes|not responding|"
    r"temporarily un|backup controller|communication|authentication|credential|"
    r"unexpected message|receive failure|i/o error|configuration source",
    re.IGNORECASE,
)
# A host that can take a node now or once others end; `-` and `+` say what it is planned for.
_READY = re.compile(r"(idle|mixed|allocated|completing|planned)[-+]?")


class Commands:
    """Called with the words of one of them. ``conf`` is a slurm.conf, the system's own if None."""

    def __init__(self, conf: str | None = None) -> None:
        self._env = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
        if conf := conf or os.environ.get("SLURM_CONF"):
            self._env["SLURM_CONF"] = conf

    def __call__(
        self,
        *words: str,
        input: str = "",
        env: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> str:
        """Run it; what it printed.

        Raises Refused with Slurm's own words, EngineError when nobody answered.
        """
        conf = self._env.get("SLURM_CONF")
        if conf is not None and not os.path.exists(conf):
            # Slurm would look for a controller that hands one out, for longer than we wait.
            raise Refused(
                f"there is no file {conf!r}",
                where="conf",
                hint="name the cluster's slurm.conf, or leave it out (SLURM_CONF counts, too)",
            )
        try:
            done = subprocess.run(
                words,
                input=input,
                env={**self._env, **(env or {})},
                capture_output=True,
                text=True,
                errors="replace",
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

    def age(self, patience: float = PATIENCE) -> float:
        """Seconds since its controller started; infinite where it does not say."""
        said = self("scontrol", "show", "config", patience=patience)
        found = re.search(r"^BOOT_TIME\s*=\s*(\S+)", said, re.MULTILINE)
        try:
            return time.time() - datetime.fromisoformat(found[1] if found else "").timestamp()
        except ValueError:
            return math.inf

    def hosts(self, partition: str | None, patience: float = PATIENCE) -> Sequence[Host]:
        """Those of a partition, of all if None."""
        fields = ("NodeHost", "NodeAddr", "StateLong", "CPUsState", "Memory", "Gres", "GresUsed")
        form = ",".join(f"{field}:|" for field in (*fields, "Reason"))
        where = [f"--partition={partition}"] if partition else []
        words = ("sinfo", "--noheader", "--Node", f"--Format={form}", *where)
        rows = (line.split("|") for line in self(*words, patience=patience).splitlines())
        # One that is in several partitions is told of for each.
        return list({row[0]: _host(row) for row in rows if len(row) > len(fields) + 1}.values())


def number(text: str) -> float:
    """0 for `N/A`, and for whatever else is none."""
    found = re.match(r"\d+(\.\d+)?", text)
    return float(found[0]) if found else 0.0


def gpus(gres: str) -> int:
    """How many in `gpu:a100:4(S:0-1),shard:8`."""
    counted = re.findall(r"(?:^|,)gpu(?::[^:,(]+)*:(\d+)", gres)
    return sum(int(each) for each in counted)


def _host(row: Sequence[str]) -> Host:
    name, address, state, counts, memory, gres, used, why = row[:8]
    _, idle, _, total = map(number, (counts.split("/") + [""] * 4)[:4])
    return Host(
        name,
        address,
        state,
        ready=bool(_READY.fullmatch(state)),
        cpus=total,
        free_cpus=idle,
        gpus=gpus(gres),
        free_gpus=max(0, gpus(gres) - gpus(used)),
        memory=int(number(memory)) << 20,
        why="" if why == "none" else why,
    )


def _sentence(command: str, said: str) -> str:
    """The last thing it said, without the names of who says it."""
    lines = [line for line in said.splitlines() if line.strip() and "--help" not in line]
    text = lines[-1] if lines else ""
    return re.sub(rf"^({command}: )?((error|fatal|allocation failure): )*", "", text).strip()
