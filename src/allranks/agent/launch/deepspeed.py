"""DeepSpeed's launcher and autotuner reach every node, including their own, by ssh and pdsh."""

from __future__ import annotations

import os

from allranks.agent.launch import remote_start
from allranks.agent.launch.stage import Stage
from allranks.agent.processes.ranks import Running
from allranks.core.distributions.topology import ranks_of


def start(stage: Stage, running: Running) -> dict[str, str]:
    """Start the helper that they reach here. Return the variables with which ranks find our ssh and
    pdsh."""
    from allranks.agent.programs import remote_shell  # lazy: OpenSSL, and few jobs need it

    folder = stage.folder / "bin"
    folder.mkdir()
    names = {place.address: node for node, place in enumerate(stage.places)}
    names["localhost"] = stage.node
    env = stage.env(ranks_of(stage.task, stage.node)[0])
    folders = remote_shell.BETWEEN.decode().join((str(stage.cwd), env.get("VIRTUAL_ENV", "")))
    table = remote_start.write_table(stage, stage.folder / "nodes.json", names, folders)
    for name in ("ssh", "pdsh"):
        remote_start.write_program(stage, folder / name, [name, str(table)])
    more = {remote_start.STAND_INS: str(folder)}
    if stage.container is None:
        more["PATH"] = f"{folder}:{env.get('PATH', os.defpath)}"
    remote_start.serve(stage, running, env | more)
    return more
