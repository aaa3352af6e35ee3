"""Run Slurm's commands, parse their output, and turn their errors into one message."""

from __future__ import annotations

import math
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import datetime

from allranks.engines.answers import output_of
from allranks.engines.base import Host
from allranks.errors import EngineError, Refused

# Seconds; longer than a busy controller takes. Only the loop of this cluster waits for it.
PATIENCE = 20.0
# The variables that each command, and so each batch script, gets.
_HANDED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG")
# Messages that mean that the controller did not answer; all others are answers.
_NO_ANSWER = re.compile(
    r"contact slurm controller|timed out|connection (refused|failure)|zero bytes|not responding|"
    r"temporarily un|backup controller|communication|authentication|credential|"
    r"unexpected message|receive failure|i/o error|configuration source",
    re.IGNORECASE,
)
# States in which a host can run a node now or when other jobs end; `-` and `+` are Slurm's flags.
_READY = re.compile(r"(idle|mixed|allocated|completing|planned)[-+]?")


class Commands:
    """Runs a command when called with its arguments. ``conf``: a slurm.conf, None the system's."""

    def __init__(self, conf: str | None = None) -> None:
        self._env = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
        if conf := conf or os.environ.get("SLURM_CONF"):
            self._env["SLURM_CONF"] = conf

    def __call__(
        self,
        *argv: str,
        input: str = "",
        env: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
        messages: bool = False,
    ) -> str:
        """Run the command and return its output, or its ``messages``.

        Raises Refused with Slurm's message, EngineError if Slurm does not answer.
        """
        conf = self._env.get("SLURM_CONF")
        if conf is not None and not os.path.exists(conf):
            # Slurm would search for a controller that serves the file, for longer than we wait.
            raise Refused(
                f"file {conf!r} not found",
                where="conf",
                hint="set `conf` to the cluster's slurm.conf, or remove it to use the system's; "
                "SLURM_CONF is its default",
            )
        try:
            done = output_of(argv, input, {**self._env, **(env or {})}, patience)
        except FileNotFoundError:
            raise Refused(
                f"Slurm's command `{argv[0]}` is not on the PATH of this server",
                hint="run the server on a login node of the cluster with Slurm's commands on PATH; "
                "`allranks server stop`, then any command, restarts it from your shell",
            ) from None
        except subprocess.TimeoutExpired:
            raise EngineError(
                f"Slurm does not answer: `{argv[0]}` took over {patience:g} s"
            ) from None
        if done.returncode == 0:
            return done.stderr if messages else done.stdout
        message = _message(argv[0], done.stderr) or f"`{argv[0]}` failed"
        if _NO_ANSWER.search(done.stderr):
            raise EngineError(f"Slurm does not answer: {message}")
        raise Refused(f"Slurm rejects the job: {message}")

    def age(self, patience: float = PATIENCE) -> float:
        """Seconds since the controller started; infinite if unknown."""
        config = self("scontrol", "show", "config", patience=patience)
        match = re.search(r"^BOOT_TIME\s*=\s*(\S+)", config, re.MULTILINE)
        try:
            return time.time() - datetime.fromisoformat(match[1] if match else "").timestamp()
        except ValueError:
            return math.inf

    def hosts(self, partition: str | None, patience: float = PATIENCE) -> Sequence[Host]:
        """Return the hosts of a partition, of all partitions if None."""
        fields = ("NodeHost", "NodeAddr", "StateLong", "CPUsState", "Memory", "Gres", "GresUsed")
        form = ",".join(f"{field}:|" for field in (*fields, "Reason"))
        where = [f"--partition={partition}"] if partition else []
        argv = ("sinfo", "--noheader", "--Node", f"--Format={form}", *where)
        rows = (line.split("|") for line in self(*argv, patience=patience).splitlines())
        # sinfo lists a host once for each of its partitions.
        return list({row[0]: _host(row) for row in rows if len(row) > len(fields) + 1}.values())


def number(text: str) -> float:
    """The number that the text begins with; 0 if there is none, as in `N/A`."""
    match = re.match(r"\d+(\.\d+)?", text)
    return float(match[0]) if match else 0.0


def gpus(gres: str) -> int:
    """How many in `gpu:a100:4(S:0-1),shard:8`."""
    counted = re.findall(r"(?:^|,)gpu(?::[^:,(]+)*:(\d+)", gres)
    return sum(int(count) for count in counted)


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


def _message(command: str, errors: str) -> str:
    """The last line of its error output, without prefixes such as `sbatch: error:`; with the name
    of the limit, if an earlier one is that."""
    prefix = rf"^({command}: )?((error|fatal|allocation failure): )*"
    lines = [line for line in errors.splitlines() if line.strip() and "--help" not in line]
    texts = [re.sub(prefix, "", line).strip() for line in lines]
    limits = [f": {text}" for text in texts[:-1] if re.fullmatch(r"\w+Limit", text)]
    errors_alone = [text for text in texts if not text.lower().startswith("warning")]
    return "".join([*(errors_alone or texts)[-1:], *limits[:1]])
