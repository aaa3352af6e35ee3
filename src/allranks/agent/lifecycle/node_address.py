"""The address and the ports of this node, which the ranks of all nodes learn."""

from __future__ import annotations

import os
import socket

from allranks.agent.lifecycle.parts import Part, Run
from allranks.agent.network import interfaces, ports
from allranks.agent.transport.identity import AgentIdentity, interface_to
from allranks.core.distributions import topology
from allranks.core.distributions.fixed_ports import fixed_ports
from allranks.core.plan import Place, Task


class Ports(Part):
    """Those that the ranks of all nodes learn, and those that the user fixes, of which no other job
    of this host gets one."""

    def __init__(self, where: AgentIdentity) -> None:
        self._where = where
        self._claimed: list[socket.socket] = []

    def begin(self, run: Run) -> None:
        """Raises PortConflict if another job of this host has one."""
        run.held = _reserve(run.task, self._where)
        run.closing.callback(ports.release, run.held)
        self._claimed = _claim_fixed(run.task, self._where.node)
        run.closing.callback(ports.release, self._claimed)
        run.place = _place(self._where, run.held)._replace(python=run.python)

    def finish(self, run: Run) -> str:
        ports.release(self._claimed)  # another job may use them while files are sent
        return ""


def _reserve(task: Task, where: AgentIdentity) -> list[socket.socket]:
    """Hold the ports that this node's part of the job needs, until its ranks start."""
    helpers = topology.helper_ports(task, where.node)
    held = ports.hold(topology.ports_needed(task, where.node) - helpers)
    return held + ports.hold(helpers, where.address)


def _claim_fixed(task: Task, node: int) -> list[socket.socket]:
    """Those that the user fixes, on the node whose ranks listen there."""
    fixed = fixed_ports(task.command, task.variables) if node == 0 else ()
    return ports.claim(fixed, task.job) if fixed else []


def _place(where: AgentIdentity, held: list[socket.socket]) -> Place:
    """Where the others find this node."""
    interface = interface_to(where.address, ())
    name = "" if interface is None else interface.name
    ports_of_rdma = interfaces.fabric()
    return Place(
        where.address,
        os.uname().nodename,
        ports.numbers(held),
        name,
        where.cpus,
        rdma=ports_of_rdma is not None and bool(ports_of_rdma.ports),
        end=where.end,
    )
