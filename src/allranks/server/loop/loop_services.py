"""The services of the server that every loop uses."""

from __future__ import annotations

from typing import NamedTuple

from allranks.server.assets.node_files import NodeFiles
from allranks.server.assets.state_folders import States
from allranks.server.assets.working_folders import WorkingFolders
from allranks.server.clusters.clusters import Clusters
from allranks.server.loop.agent_variables import AgentVariables
from allranks.server.loop.hang_watch import Hangs
from allranks.server.loop.heartbeats import Heartbeats
from allranks.server.loop.subscriptions import Subscriptions
from allranks.server.loop.wakeups import Wakeups
from allranks.settings import Clocks, Home
from allranks.store.assets import Assets
from allranks.store.jobs.records import Records
from allranks.store.metric_points import Points


class LoopServices(NamedTuple):
    home: Home
    records: Records
    points: Points
    clusters: Clusters
    agent_variables: AgentVariables
    wakeups: Wakeups
    subscriptions: Subscriptions
    heartbeats: Heartbeats
    clocks: Clocks
    data: Assets
    hangs: Hangs
    states: States
    node_files: NodeFiles
    working_folders: WorkingFolders
