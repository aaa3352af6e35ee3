"""The address and the ports of this node, which the ranks of all nodes learn."""

from __future__ import annotations

import os
import socket

from allranks.agent.lifecycle.parts import Part, Run
from allranks.agent.network import interfaces, ports
from allranks.agent.transport.identity import AgentIdentity, interface_to
from allranks.core.distributions import topology
from allranks.core.distributions.fixed_ports import fixed_ports
from allranks.core.plan import Place


class Ports(Part):
    """Those that the ranks of all nodes learn, and those that the user fixes, of which no other job
    of this host gets one."""

    def __init__(self, where: AgentIdentity) -> None:
        self._where = where
        self._claimed: list[socket.socket] = []

    def begin(self, run: Run) -> None:
        """Raises PortConflict if another job of this host has one that the user fixes."""
        task, where = run.task, self._where
        helpers = topology.helper_ports(task, where.node)
        run.held = ports.hold(topology.ports_needed(task, where.node) - helpers)
        run.closing.callback(ports.release, run.held)
        run.held += ports.hold(helpers, where.address)
        # Ranks listen at those on the first node.
        fixed = fixed_ports(task.command, task.variables) if where.node == 0 else ()
        self._claimed = ports.claim(fixed, task.job) if fixed else []
        run.closing.callback(ports.release, self._claimed)
        interface = interface_to(where.address, ())
        ports_of_rdma = interfaces.fabric()
        run.place = Place(
            where.address,
            os.uname().nodename,
            ports.numbers(run.held),
            "" if interface is None else interface.name,
            where.cpus,
            run.python,
            rdma=ports_of_rdma is not None and bool(ports_of_rdma.ports),
            end=where.end,
        )

    def finish(self, run: Run) -> str:
        ports.release(self._claimed)  # another job may use them while files are sent
        return ""
