"""What Slurm is sent: a batch script that starts one agent on each node. Pure."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from allranks.engines.options import Option, Type
from allranks.errors import Refused
from allranks.plan.plan import Gang

OPTIONS = (
    Option(
        "conf",
        "path of its slurm.conf (SLURM_CONF, else the system's own)",
        Type.PATH,
        connects=True,
        variable="SLURM_CONF",
    ),
    Option("partition", "partition (the cluster's default)"),
    Option("account", "account to charge"),
    Option("qos", "quality of service"),
    Option("spot_partition", "partition for jobs of tier spot, where others may take their place"),
    Option("spot_qos", "quality of service for jobs of tier spot"),
    Option("time", "time limit as sbatch takes it: minutes, or D-HH:MM:SS"),
    Option("gres", "generic resources of each node, such as gpu:a100:4; GPUs are asked for anyway"),
    Option("constraint", "features the nodes must have"),
    Option("reservation", "reservation to run in"),
    Option("exclusive", "whole nodes, shared with no other job", Type.SWITCH),
    Option("extra", "one more option of sbatch, as it takes it: --mail-type=END", Type.LINES),
    Option("modules", "environment module to load on the nodes", Type.LINES),
    Option("prologue", "line of shell to run before the agents", Type.LINES),
    Option("python", "the Python of the agents on the nodes (the server's own, by its path)"),
    Option(
        "ship_agent",
        "copy the agent to each node: allranks need not be on a disk they share",
        Type.SWITCH,
    ),
    Option(
        "requeue",
        "leave it to operators to requeue a job that has begun; that is a loss to its attempt",
        Type.SWITCH,
    ),
    Option(
        "warning",
        "seconds before the time limit at which ranks are told to end",
        Type.NUMBER,
        default=60,
    ),
)
# Seconds that agents take to hand in what they have once their ranks have ended.
_TO_END = 5
# What the script and the agents print, in the gang's folder: they are silent as a rule.
LOG = "batch.log"
# Beginning of the names of files that say which node's agent has ended.
ENDED = "ended-"
# There while the site's own lines run and no agent can be expected yet.
PROLOGUE = "prologue-runs"
_PLAIN = ("partition", "account", "qos", "time", "constraint", "reservation", "gres")
# Of sbatch's options those that a gang is known by, or that make something else of it.
_OURS = re.compile(
    r"--(array|chdir|comment|error|export|export-file|help|het-group|"
    r"input|job-name|kill-on-invalid-dep|no-requeue|nodes|ntasks|ntasks-per-node|open-mode|output|"
    r"parsable|requeue|signal|test-only|usage|version|wait|wrap)(=|\s|$)|-[aDeiJnNoVW]"
)

# Told by Slurm that time is up or that the job is preempted, the first node's agent hears of it,
# and by the server all others. Slurm would signal every process of every rank, each once more than
# the agents do. Which of the two it is, only the time left says.
_TOLD = r"""left() {
    left=${SLURM_JOB_END_TIME:+$((SLURM_JOB_END_TIME - $(date +%s)))}
    if [ -z "$left" ] && [[ $(timeout 5 squeue -h -j "$SLURM_JOB_ID" -o %L) =~ ^(([0-9]+)-)?(([0-9]+):)?([0-9]+):([0-9]+)$ ]]; then
        left=$(((((10#0${BASH_REMATCH[2]} * 24 + 10#0${BASH_REMATCH[4]}) * 60 + 10#${BASH_REMATCH[5]}) * 60) + 10#${BASH_REMATCH[6]}))
    fi
}
told() {
    local signal=TERM
    left
    [ "${left:-SOON1}" -gt SOON ] || signal=XCPU
    kill -s "$signal" "$(cat "$folder/0/pid")"
}
trap told TERM
left
[ -z "$left" ] || export ALLRANKS_AGENT_END=$(($(date +%s) + left))"""  # noqa: E501
# The shell stays, to say on the shared disk that its agent is no more: others may be, and only
# srun would know. It outlasts the SIGTERM that Slurm sends to all. What runs below the agent has a
# mark of the node's own, which neither this shell nor the batch script carries: a keeper that was
# killed leaves ranks behind, and nobody may take those for ended while they still write. Twice
# nothing is found: one that is just being executed has no environment for a moment.
_AGENT = """\
cd "$ALLRANKS_AGENT_DIR" || exit 1
trap : TERM
mark=ALLRANKS_GANG=$ALLRANKS_GANG.$SLURM_PROCID
([ "$SLURM_PROCID" != 0 ] || echo $BASHPID >pid; export "$mark"; exec "$@")
code=$?
for ((none = tries = 0; code > 128 && none < 2 && tries < 100; none++, tries++)); do
    for each in $(grep -slzxF "$mark" /proc/[0-9]*/environ); do
        kill -s KILL "${each//[!0-9]/}" 2>/dev/null
        none=-1
    done
    sleep 0.05
done
echo $code 2>/dev/null >"$0/ENDED$SLURM_PROCID"
exit $code"""


def script(gang: Gang, mark: str, folder: str, ship: str | None = None) -> str:
    """The script of a gang: ``folder`` holds one for each agent, ``mark`` is how we know it again,
    ``ship`` the archive with the agent's code where that is to be copied.

    Raises Refused for options that would make something else of it.
    """
    gang = placed(gang)
    options = gang.options
    lines = ["#!/bin/bash -l" if options.get("modules") else "#!/bin/bash"]
    lines += [f"#SBATCH {line}" for line in _directives(gang, mark, folder)]
    lines += ["", "umask 077", f"folder={shlex.quote(folder)}", 'mkdir -p "$folder"']
    lines.append(f'rm -f "$folder/0/pid" "$folder/{ENDED}"*')
    if not options.get("requeue"):
        # A host that does not boot is no loss: until here, Slurm is to try others by itself.
        lines.append('scontrol update JobId="$SLURM_JOB_ID" Requeue=0')
    if has_site(options):
        # So that the agents can tell what these lines changed: the ranks are to have it as well.
        noted = "env -0 | grep -zv ^ALLRANKS_"
        lines += [f'{noted} >"$folder/before"', *_site(options), f'{noted} >"$folder/after"']
        lines += ['export ALLRANKS_AGENT_SITE="$folder"', f'rm -f "$folder/{PROLOGUE}"']
    soon = _warning(gang) + 60  # Slurm may be a minute early
    lines.append(_TOLD.replace("SOON1", str(soon + 1)).replace("SOON", str(soon)))
    lines += _start(gang, ship)
    return "\n".join(lines) + "\n"


def placed(gang: Gang) -> Gang:
    """A spot gang where those have a place of their own."""
    own = {name: gang.options.get(f"spot_{name}") for name in ("partition", "qos")}
    if not gang.spot or not any(own.values()):
        return gang
    return gang._replace(options={**gang.options, **{k: v for k, v in own.items() if v}})


def has_site(options: Mapping[str, Any]) -> bool:
    return bool(options.get("modules") or options.get("prologue"))


def cpus(gang: Gang) -> int:
    """Of each node. Slurm counts nodes full by them: a gang that names none has one a process."""
    return math.ceil(gang.cpus or gang.processes)


def _warning(gang: Gang) -> int:
    """Seconds, enough for the ranks' grace; never most of a short job's time."""
    wanted: int = math.ceil(max(gang.options.get("warning", 60), (gang.grace or 0) + _TO_END))
    limit = _seconds(str(gang.options.get("time") or ""))
    return wanted if limit is None else max(1, min(wanted, limit // 4))


def _seconds(limit: str) -> int | None:
    """Of a time as sbatch takes it: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S. None for what is none."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", limit)
    if found is None:
        return None
    days, first, second, third = (int(part or 0) for part in found.groups())
    if found[1] or found[4]:  # hours first
        return ((days * 24 + first) * 60 + second) * 60 + third
    return first * 60 + second


def _directives(gang: Gang, mark: str, folder: str) -> Iterator[str]:
    options = dict(gang.options)
    options["gres"] = _gres(gang)
    yield f"--job-name={gang.key}"
    yield f"--comment={_quoted(mark)}"
    yield f"--nodes={gang.nodes}"
    yield f"--ntasks={gang.nodes}"
    yield "--ntasks-per-node=1"
    if not (options.get("exclusive") and gang.cpus is None):
        yield f"--cpus-per-task={cpus(gang)}"
    if gang.memory is not None:
        yield f"--mem={math.ceil(gang.memory / (1 << 20))}M"
    yield from (f"--{name}={_quoted(options[name])}" for name in _PLAIN if options.get(name))
    if options.get("exclusive"):
        yield "--exclusive"
    yield "--requeue"
    yield f"--signal=B:TERM@{_warning(gang)}"
    # In a file's name Slurm takes `%` for a field.
    yield f"--output={_quoted(f'{folder}/{LOG}'.replace('%', '%%'))}"
    yield "--open-mode=append"
    for each in options.get("extra", ()):
        if _OURS.match(each) or not each.startswith("-"):
            raise Refused(
                f"{each!r} is not one of sbatch's options that may be added",
                where="extra",
                hint="write one to an item, as in --mail-type=END; what a job is known and placed "
                "by is allranks' own, or has an option of its own",
            )
        yield each


def _quoted(text: str) -> str:
    """As a word for sbatch, to which a backslash is one within quotes, too."""
    return shlex.quote(text.replace("\\", "\\\\"))


def _gres(gang: Gang) -> str:
    given = [each for each in (gang.options.get("gres") or "").split(",") if each]
    counted = any(each.removeprefix("gres/").startswith("gpu") for each in given)
    ours = [f"gpu:{gang.gpus}"] if gang.gpus and not counted else []
    return ",".join([*ours, *given])


def gpus_of(options: Mapping[str, Any]) -> int | None:
    """The GPUs of each node that the options alone ask for; None where they ask for none. What
    options of sbatch's own ask for is not counted: Slurm gives it, and nothing is added."""
    gres = [each.removeprefix("gres/") for each in (options.get("gres") or "").split(",")]
    ours = [each for each in gres if re.match(r"gpu(:|$)", each)]
    if ours:
        return sum(int(each) if each.isdigit() else 1 for each in (g.split(":")[-1] for g in ours))
    extra = options.get("extra") or ()
    return 0 if any(re.match(r"--(gpus|gres|tres-per)|-G", each) for each in extra) else None


def _site(options: Mapping[str, Any]) -> list[str]:
    """The lines of the site and of the user that come before the agents."""
    modules = options.get("modules") or []
    load = [f"module load {shlex.join(modules)} || exit 1"] if modules else []
    return [*load, *(options.get("prologue") or [])]


def _start(gang: Gang, ship: str | None) -> Iterator[str]:
    python = gang.options.get("python")
    argv = [python, *gang.argv[1:]] if python else list(gang.argv)
    agent = [
        "export ALLRANKS_AGENT_NODE=$SLURM_PROCID ALLRANKS_AGENT_CPUS=$SLURM_CPUS_ON_NODE",
        'export ALLRANKS_AGENT_DIR="$0/$SLURM_PROCID"',
        'mkdir -p "$ALLRANKS_AGENT_DIR"',
    ]
    if ship is not None:
        # In each node's own memory, /tmp may be a disk they share; of a name nobody can guess.
        yield "export shipped=/dev/shm/allranks-$(od -An -N8 -tx8 /dev/urandom | tr -d ' ').tar"
        yield f'sbcast {shlex.quote(ship)} "$shipped" || exit 1'
        agent += [
            'export PYTHONPATH="$ALLRANKS_AGENT_DIR/code"',
            'mkdir -p "$PYTHONPATH" && tar -xf "$shipped" -C "$PYTHONPATH" || exit 1',
            'rm "$shipped"',
        ]
    # The agents' own: one that fails leaves the others to hand in what they have.
    step = f"srun --nodes={gang.nodes} --ntasks={gang.nodes} --ntasks-per-node=1"
    step += " --cpu-bind=none --mpi=none --kill-on-bad-exit=0 --input=none"
    text = "\n".join([*agent, _AGENT.replace("ENDED", ENDED)])
    yield f'{step} /bin/bash -c {shlex.quote(text)} "$folder" {shlex.join(argv)} &'
    # A signal ends `wait` before what it waits for.
    yield 'agents=$!\nwhile wait "$agents"; code=$?; kill -0 "$agents" 2>/dev/null; do :; done'
    yield 'exit "$code"'
