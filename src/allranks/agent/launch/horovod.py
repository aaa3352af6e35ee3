"""Horovod has a rendezvous store on node 0."""

from __future__ import annotations

import os

from allranks.agent import programs
from allranks.agent.launch.remote_start import PYTHON
from allranks.agent.launch.stage import Stage
from allranks.agent.processes.ranks import Running


def start(stage: Stage, running: Running) -> dict[str, str]:
    """Start the store on node 0. Return the ranks' variables for it: none beside the usual."""
    if stage.node == 0:
        fd = stage.held[1].fileno()
        argv = [*PYTHON, programs.path_of("horovod_rendezvous.py"), str(fd)]
        # None of the user's variables; marked for the clean-up.
        env = {"PATH": os.defpath, "ALLRANKS_GANG": os.environ.get("ALLRANKS_GANG", "")}
        running.start(stage.helper("rendezvous store"), argv, stage.folder, env, [fd])
    return {}
