"""Write the batch script that starts one agent on each node. Pure."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from allranks.core.plan import Gang
from allranks.engines.base import OF
from allranks.engines.options import SHARED_HOME, Option, Type
from allranks.errors import Refused
from allranks.statuses import SharedHome

OPTIONS = (
    Option(
        "conf",
        "path of the cluster's slurm.conf (SLURM_CONF, or the system's)",
        Type.PATH,
        connects=True,
        variable="SLURM_CONF",
    ),
    Option("partition", "partition (the cluster's default)"),
    Option("account", "account to charge"),
    Option("qos", "quality of service"),
    Option("spot_partition", "partition for jobs of tier spot, where others may preempt them"),
    Option("spot_qos", "quality of service for jobs of tier spot"),
    Option("time", "time limit in sbatch's format: minutes, or D-HH:MM:SS"),
    Option("gres", "generic resources per node, such as gpu:a100:4; GPUs of the job are added"),
    Option("constraint", "features the nodes must have"),
    Option("reservation", "reservation to run in"),
    Option("exclusive", "do not share nodes with other jobs", Type.SWITCH),
    Option("extra", "another option of sbatch, such as --mail-type=END", Type.LINES),
    Option("modules", "environment module to load on the nodes", Type.LINES),
    Option("prologue", "shell command to run before the agents", Type.LINES),
    Option("python", "Python that runs the agents on the nodes (the server's, by its path)"),
    SHARED_HOME,
    Option(
        "ship_agent",
        "copy the agent to each node, if allranks is not on a shared disk",
        Type.SWITCH,
    ),
    Option(
        "requeue",
        "let operators requeue a running job; its attempt then counts as lost",
        Type.SWITCH,
    ),
    Option(
        "warning",
        "seconds before the time limit at which ranks get SIGTERM",
        Type.NUMBER,
        default=60,
    ),
)
# Seconds that agents need to send their last data after their ranks have ended.
_TO_END = 5
# The output of the script and the agents, in the gang's folder.
LOG = "batch.log"
# Prefix of the files that mark the nodes whose agent has ended.
ENDED = "ended-"
# This file exists while modules and prologue run, before any agent can start.
PROLOGUE = "prologue-runs"
_PLAIN = ("partition", "account", "qos", "time", "constraint", "reservation", "gres")
# Options of sbatch that identify a gang or would change how it runs.
_OURS = re.compile(
    r"--(array|chdir|comment|error|export|export-file|help|het-group|"
    r"input|job-name|kill-on-invalid-dep|no-requeue|nodes|ntasks|ntasks-per-node|open-mode|output|"
    r"parsable|requeue|signal|test-only|usage|version|wait|wrap)(=|\s|$)|-[aDeiJnNoVW]"
)

# The hosts that a job excludes, or a file of them; the long name may be shortened.
_EXCLUDE = re.compile(r"(?:^|\s)(?:--exclude?[=\s]|-x)\s*(\S+)")

# When the time is up or the job is preempted, Slurm signals this script, which signals the agent of
# node 0; the server tells the others. Otherwise Slurm would signal every process of every rank, in
# addition to the agents. Only the remaining time tells which of the two happened.
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
# The shell outlives its agent, to record its end on the shared disk; otherwise only srun would know
# it. It ignores the SIGTERM that Slurm sends to all. Processes below the agent carry a mark of
# their node, which neither this shell nor the batch script carries. A killed keeper leaves ranks
# behind; the shell kills them first, so that no rank writes after its node counts as ended. It
# searches until it finds none twice, because a process has no environment during its exec.
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


# Where a node does not see the home: the folder that it keeps files in. In /var/tmp others could
# have made it.
_ROOT = """\
root=CACHE
sees() { [ -n "$ALLRANKS_AGENT_HOME" ] && [ -e "$ALLRANKS_AGENT_HOME" ]; }
fail() {
    echo "$1" >&2
    scontrol update JobId="$SLURM_JOB_ID" Comment="MARK: $1"
    scancel --signal=KILL "$SLURM_JOB_ID${SLURM_STEP_ID:+.$SLURM_STEP_ID}"
    exit 1
}
own() {
    mkdir -p -m 700 "$root" 2>/dev/null
    [ -w "$root" ]OURS ||
        fail "$(hostname) sees no ALLRANKS_HOME, and $root is no folder that this user can write to: set another one with --cache"
}"""  # noqa: E501
# Such a node fetches the agent with the program in $1. Its Python may not be where the server's is.
_FETCH = """\
program=$1
shift
if ! sees; then
    me="node $SLURM_PROCID on $(hostname)"
    case $ALLRANKS_AGENT_URL in
    mailbox:*) fail "$me does not see ALLRANKS_HOME, and no network leads to the server" ;;
    esac
    own
    for python in "$1" python3 python3.14 python3.13 python3.12 python3.11 ''; do
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
    done
    [ -n "$python" ] ||
        fail "$me has no Python 3.11 or newer, which agents need: install one, load a module, or name it with --python"
    export ALLRANKS_AGENT_OWN_DISK=1 ALLRANKS_AGENT_CACHE="$root"
    export ALLRANKS_AGENT_DIR="$root/nodes/$ALLRANKS_GANG/$SLURM_PROCID"
    mkdir -p "$ALLRANKS_AGENT_DIR" || fail "$me cannot write to $root"
    if [ -n "$ALLRANKS_SITE_FILES" ]; then
        export ALLRANKS_AGENT_SITE="$ALLRANKS_AGENT_DIR"
        base64 -d <<<"$ALLRANKS_SITE_FILES" | tar -xzC "$ALLRANKS_AGENT_DIR"
    fi
    rm -f "$shipped"
    set -- "$python" -I -c "$program" "${@:2}"
else"""  # noqa: E501
_CLEAN = """\
if [ -n "$ALLRANKS_AGENT_OWN_DISK" ]; then
    trap '' TERM # of scancel, which would end rm
    cd / && rm -rf "$ALLRANKS_AGENT_DIR-code"
    rmdir "$ALLRANKS_AGENT_DIR" "${ALLRANKS_AGENT_DIR%/*}" 2>/dev/null
fi"""


def script(gang: Gang, mark: str, folder: str, ship: str | None = None) -> str:
    """Return the batch script of a gang. ``folder`` is the parent of the agents' folders, ``mark``
    identifies the gang, ``ship`` is the archive with the agent's code if nodes need a copy.

    Raises Refused for options in `extra` that would change how the gang runs.
    """
    gang = placed(gang)
    options = gang.options
    lines = ["#!/bin/bash -l" if options.get("modules") else "#!/bin/bash"]
    lines += [f"#SBATCH {line}" for line in _directives(gang, mark, folder)]
    looks = shared_home(options) is not SharedHome.YES
    lines += ["", "umask 077", f"folder={shlex.quote(folder)}"]
    if looks:
        lines += [
            _root(options, mark),
            'shared="$folder"',
            'sees || { own; folder="$root/nodes/$ALLRANKS_GANG"; }',
        ]
    lines.append('mkdir -p "$folder"')
    if looks:
        lines.append(f'exec >>"$folder/{LOG}" 2>&1')
    lines.append(f'rm -f "$folder/0/pid" "$folder/{ENDED}"*')
    if not options.get("requeue"):
        # Until here Slurm may requeue the job: if a host does not boot, nothing is lost.
        lines.append('scontrol update JobId="$SLURM_JOB_ID" Requeue=0')
    if has_site(options):
        # Agents compare both files to find what these lines changed, and pass it on to the ranks.
        save = "env -0 | grep -zv ^ALLRANKS_"
        lines += [f'{save} >"$folder/before"', *_site(options), f'{save} >"$folder/after"']
        lines += ['export ALLRANKS_AGENT_SITE="$folder"', f'rm -f "$folder/{PROLOGUE}"']
        if looks:
            packed = '$(tar -C "$folder" -cz before after | base64 -w0)'
            lines.append(f'export ALLRANKS_SITE_FILES="{packed}"')
    soon = _warning(gang) + 60  # Slurm may be a minute early
    lines.append(_TOLD.replace("SOON1", str(soon + 1)).replace("SOON", str(soon)))
    lines += _start(gang, ship, _root(options, mark) if looks else "")
    return "\n".join(lines) + "\n"


def shared_home(options: Mapping[str, Any]) -> SharedHome:
    return SharedHome(options.get("shared_home") or SharedHome.AUTO)


def _root(options: Mapping[str, Any], mark: str) -> str:
    cache = options.get("cache")
    text = _ROOT.replace("CACHE", shlex.quote(cache) if cache else "/var/tmp/allranks-$UID")
    text = text.replace("OURS", "" if cache else ' && [ -O "$root" ] && [ ! -L "$root" ]')
    return text.replace("MARK", mark)


def placed(gang: Gang) -> Gang:
    """Return the gang with the spot partition and QOS as its own, if it is a spot gang."""
    spot = {name: gang.options.get(f"spot_{name}") for name in ("partition", "qos")}
    if not gang.spot or not any(spot.values()):
        return gang
    return gang._replace(options={**gang.options, **{k: v for k, v in spot.items() if v}})


def has_site(options: Mapping[str, Any]) -> bool:
    return bool(options.get("modules") or options.get("prologue"))


def cpus(gang: Gang) -> int:
    """Return the CPUs of each node: one per process if the gang requests none."""
    return math.ceil(gang.cpus or gang.processes)


def _warning(gang: Gang) -> int:
    """Seconds, enough for the ranks' grace, but at most a quarter of the time limit."""
    seconds: int = math.ceil(max(gang.options.get("warning", 60), (gang.grace or 0) + _TO_END))
    limit = _seconds(str(gang.options.get("time") or ""))
    return seconds if limit is None else max(1, min(seconds, limit // 4))


def _seconds(limit: str) -> int | None:
    """Parse a time in sbatch's format: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S. None if invalid."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", limit)
    if match is None:
        return None
    days, first, second, third = (int(part or 0) for part in match.groups())
    if match[1] or match[4]:  # hours first
        return ((days * 24 + first) * 60 + second) * 60 + third
    return first * 60 + second


def job_name(gang: Gang) -> str:
    """The gang's key, and behind an @ whose job it is: all of a home's are one user's."""
    member = re.sub(r"[^\w.-]", "_", gang.env.get(OF, ""), flags=re.ASCII)[:40]
    return f"{gang.key}@{member}" if member else gang.key


def _directives(gang: Gang, mark: str, folder: str) -> Iterator[str]:
    options = dict(gang.options)
    options["gres"] = _gres(gang)
    yield f"--job-name={job_name(gang)}"
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
    # Slurm expands `%` in file names.
    if shared_home(options) is SharedHome.YES:
        yield f"--output={_quoted(f'{folder}/{LOG}'.replace('%', '%%'))}"
    else:  # Slurm fails a job whose file cannot be opened; the script opens it
        yield "--output=/dev/null"
    yield "--open-mode=append"
    for argument in options.get("extra", ()):
        if _OURS.match(argument) or not argument.startswith("-"):
            raise Refused(
                f"sbatch option {argument!r} is not allowed in `extra`",
                where="extra",
                hint="write one option per item, such as --mail-type=END; options that identify or "
                "place a job are set by allranks or by other options of the compute",
            )
        yield argument


def _quoted(text: str) -> str:
    """Quote for sbatch, which treats a backslash as an escape within single quotes, too."""
    return shlex.quote(text.replace("\\", "\\\\"))


def _gres(gang: Gang) -> str:
    requested = [gres for gres in (gang.options.get("gres") or "").split(",") if gres]
    counted = any(gres.removeprefix("gres/").startswith("gpu") for gres in requested)
    ours = [f"gpu:{gang.gpus}"] if gang.gpus and not counted else []
    return ",".join([*ours, *requested])


def gpus_of(options: Mapping[str, Any]) -> int | None:
    """Return the GPUs per node that the options alone request, None if they request none. GPUs
    requested in `extra` are not counted (0): Slurm allocates them, and nothing is added."""
    gres = [word.removeprefix("gres/") for word in (options.get("gres") or "").split(",")]
    ours = [word for word in gres if re.match(r"gpu(:|$)", word)]
    if ours:
        return sum(int(word) if word.isdigit() else 1 for word in (g.split(":")[-1] for g in ours))
    extra = options.get("extra") or ()
    return 0 if any(re.match(r"--(gpus|gres|tres-per)|-G", word) for word in extra) else None


def excluded(extra: Sequence[str]) -> str:
    """The hosts that options of sbatch exclude, or a file of them; empty if none."""
    lists = _EXCLUDE.findall("\n".join(extra))
    return lists[-1].strip("\"'") if lists else ""


def _site(options: Mapping[str, Any]) -> list[str]:
    """The lines that load modules and run the prologue, before the agents."""
    modules = options.get("modules") or []
    load = [f"module load {shlex.join(modules)} || exit 1"] if modules else []
    return [*load, *(options.get("prologue") or [])]


def _start(gang: Gang, ship: str | None, root: str) -> Iterator[str]:
    python = gang.options.get("python")
    argv = [python, *gang.argv[1:]] if python else list(gang.argv)
    agent = [
        "export ALLRANKS_AGENT_NODE=$SLURM_PROCID ALLRANKS_AGENT_CPUS=$SLURM_CPUS_ON_NODE",
        *([root, _FETCH] if root else ()),
        'export ALLRANKS_AGENT_DIR="$0/$SLURM_PROCID"',
        'mkdir -p "$ALLRANKS_AGENT_DIR"',
    ]
    if ship is not None:
        # In memory, because nodes may share /tmp; under a name that nobody can guess.
        yield "export shipped=/dev/shm/allranks-$(od -An -N8 -tx8 /dev/urandom | tr -d ' ').tar"
        yield f'sbcast {shlex.quote(ship)} "$shipped" || exit 1'
        agent += [
            'export PYTHONPATH="$ALLRANKS_AGENT_DIR/code"',
            'mkdir -p "$PYTHONPATH" && tar -xf "$shipped" -C "$PYTHONPATH" || exit 1',
            'rm "$shipped"',
        ]
    else:  # what is installed may be replaced while the job runs
        code = '"$ALLRANKS_AGENT_CODE${PYTHONPATH:+:$PYTHONPATH}"'
        agent.append(f'[ -z "$ALLRANKS_AGENT_CODE" ] || export PYTHONPATH={code}')
    if root:
        agent.append("fi")
        argv = [resources.files("allranks.engines").joinpath("agent_fetch.py").read_text(), *argv]
    # If one agent fails, the others keep running to send their data.
    step = f"srun --nodes={gang.nodes} --ntasks={gang.nodes} --ntasks-per-node=1"
    step += " --cpu-bind=none --mpi=none --kill-on-bad-exit=0 --input=none"
    run, last = _AGENT.replace("ENDED", ENDED), "exit $code"
    if root:
        run = f"{run.removesuffix(last)}{_CLEAN}\n{last}"
    text = "\n".join([*agent, run])
    where = "$shared" if root else "$folder"
    yield f'{step} /bin/bash -c {shlex.quote(text)} "{where}" {shlex.join(argv)} &'
    # A signal interrupts `wait`.
    yield 'agents=$!\nwhile wait "$agents"; code=$?; kill -0 "$agents" 2>/dev/null; do :; done'
    if root:
        yield f'sees || {{ rm -f "$folder/{LOG}"; rmdir "$folder" 2>/dev/null; }}'
    yield 'exit "$code"'
