"""How a node of a Ray job is started: the words after `ray`. Pure; source: `ray start --help`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from allranks.core.plan import Place, Task

# Ray takes this share of a machine's memory for its objects, and refuses less than so many bytes.
OBJECT_SHARE = 0.3
LEAST_OBJECTS = 80_000_000


# Starts the head, whose words are "$@". Only with the packages of `ray[client]` it has a server for
# clients, on a port that is the same on the whole machine unless it is set; without them it does
# not take the option.
HEAD = """\
if python -c 'import grpc' 2>/dev/null; then
    set -- "$1" "$2" --ray-client-server-port PORT "${@:3}"
fi
exec "$@\""""


def port(task: Task, places: Sequence[Place]) -> int | str:
    """Where the head listens: as the job says, else the job's own port."""
    return task.options.get("port") or places[0].ports[0]


def start(task: Task, node: int, places: Sequence[Place], folder: str, memory: int) -> list[str]:
    """The head on node 0, workers on the others. ``memory`` (bytes) is the machine's; nodes that
    share a host share it. Every port that Ray would fix for the whole machine is left to the
    kernel: several Ray jobs may run on one."""
    here = places[node]
    arguments = ["start", "--block", "--disable-usage-stats", "--node-ip-address", here.address]
    arguments += ["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"]
    if here.cpus is not None:
        arguments.append(f"--num-cpus={here.cpus}")
    together = sum(place.host == here.host for place in places)
    if together > 1:
        share = int(memory * OBJECT_SHARE / together)
        arguments.append(f"--object-store-memory={max(LEAST_OBJECTS, share)}")
    if node > 0:
        arguments += ["--address", f"{places[0].address}:{port(task, places)}"]
        return [*arguments, *shlex.split(task.options.get("worker_node_additional_args", ""))]
    arguments += ["--head", "--port", str(port(task, places)), "--include-dashboard=false"]
    arguments += ["--temp-dir", folder]
    return [*arguments, *shlex.split(task.options.get("head_node_additional_args", ""))]
