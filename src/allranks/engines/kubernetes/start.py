"""How the agents of pods start: from a volume with the server's home, or fetched from the server.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple

from allranks.core.plan import Gang
from allranks.engines.kubernetes import options as option

# Where pods without the home have the folders of agents.
OWN = "/allranks"
# A pod leaves one of these in the gang's folder when it starts.
PLACED = "placed-"

# The agents start when all pods run: until then a gang that does not fit can release its nodes
# without a trace. The shell is process 1, which without a handler would ignore SIGTERM. The two
# lists of variables give the ranks the environment of the image.
_SHELL = f"""\
umask 077
trap 'exit 143' TERM
cd "$ALLRANKS_AGENT_DIR" || exit 1
: >"../{PLACED}$ALLRANKS_AGENT_NODE"
while set -- "$PWD/../{PLACED}"*; [ "$#" -lt "$ALLRANKS_AGENT_PODS" ]; do sleep 0.1; done
env -0 >after && : >before && export ALLRANKS_AGENT_SITE="$ALLRANKS_AGENT_DIR"
PYTHONPATH="$ALLRANKS_AGENT_CODE" exec "$ALLRANKS_AGENT_PYTHON" ARGUMENTS"""


def literal(text: str) -> str:
    """Write text for a command or a variable of a container, where Kubernetes replaces $(NAME), and
    $$ by $."""
    return text.replace("$", "$$")


class Shared(NamedTuple):
    """From the volume that the pods share with the server: ``home`` is its mount point, ``folder``
    the gang's, ``code`` the agent's code."""

    home: str
    folder: str
    code: str

    def command(self, gang: Gang, python: str) -> list[str]:
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in gang.argv[1:])
        return ["/bin/bash", "-c", _SHELL.replace("ARGUMENTS", literal(quoted))]

    def variables(self, gang: Gang, python: str) -> list[dict[str, Any]]:
        return [
            {
                "name": "ALLRANKS_AGENT_DIR",
                "value": f"{literal(self.folder)}/$(ALLRANKS_AGENT_NODE)",
            },
            {"name": "ALLRANKS_AGENT_PYTHON", "value": literal(python)},
            {"name": "ALLRANKS_AGENT_PODS", "value": str(gang.nodes)},
            {"name": "ALLRANKS_AGENT_CODE", "value": literal(self.code)},
        ]

    def volumes(self, options: Mapping[str, Any]) -> dict[str, option.Volume]:
        spec = str(options["home_volume"])
        host = {"hostPath": {"path": self.home}}
        source = host if spec == "host" else option.source("home_volume", spec)
        return {"home": option.Volume(source, self.home)}


class Fetched(NamedTuple):
    """From the server, by the agents' listener. ``bundle`` names the agent's code there."""

    bundle: str

    def command(self, gang: Gang, python: str) -> list[str]:
        # -I: nothing is imported from the folder that the image starts in.
        program = resources.files("allranks.engines").joinpath("agent_fetch.py").read_text()
        return [*map(literal, (python, "-I", "-c", program, *gang.argv[1:]))]

    def variables(self, gang: Gang, python: str) -> list[dict[str, Any]]:
        return [
            {"name": "ALLRANKS_AGENT_DIR", "value": f"{OWN}/node"},
            {"name": "ALLRANKS_AGENT_CACHE", "value": f"{OWN}/cache"},
            {"name": "ALLRANKS_AGENT_BUNDLE", "value": self.bundle},
        ]

    def volumes(self, options: Mapping[str, Any]) -> dict[str, option.Volume]:
        volumes = {"allranks": option.Volume({"emptyDir": {}}, OWN)}
        if options.get("cache_volume"):
            source = option.source("cache_volume", str(options["cache_volume"]))
            volumes["cache"] = option.Volume(source, f"{OWN}/cache")
        return volumes


Start = Shared | Fetched
