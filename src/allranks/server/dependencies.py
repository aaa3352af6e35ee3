"""What the routes have at hand; made once by the app."""

from __future__ import annotations

import threading
from typing import NamedTuple, cast

from fastapi import Request

from allranks.server.assets.datastores import Datastores
from allranks.server.assets.environments import Environments
from allranks.server.assets.state_folders import States
from allranks.server.auth.identity import Auth
from allranks.server.clusters.clusters import Clusters
from allranks.server.http.agents_listener import AgentsListener
from allranks.server.http.host_header_check import HostNames
from allranks.server.http.public_listener import PublicListener
from allranks.server.jobs.register_model import Models
from allranks.server.loop.hangs import Hangs
from allranks.server.loop.heartbeats import Heartbeats
from allranks.server.loop.reconcile import Loops
from allranks.server.loop.stacks import Stacks
from allranks.server.loop.wakeups import Wakeups
from allranks.server.mlflow.tracking import Tracking
from allranks.settings import Clocks, Home
from allranks.store.annotations import Annotations
from allranks.store.assets import Assets
from allranks.store.computes import Computes
from allranks.store.files.blobs import Blobs
from allranks.store.metric_points import Points
from allranks.store.records import Records


class Services(NamedTuple):
    """``coming`` is held while a job or a model is taken in, and while something goes that none
    needs: neither sees the other half done. ``clearing``: while a home is looked through for that.
    ``tracking``: None where there is no MLflow."""

    home: Home
    clocks: Clocks
    records: Records
    blobs: Blobs
    computes: Computes
    clusters: Clusters
    assets: Assets
    environments: Environments
    data: Assets
    datastores: Datastores
    points: Points
    models: Models
    auth: Auth
    bell: Wakeups
    pulse: Heartbeats
    states: States
    stacks: Stacks
    annotations: Annotations
    hangs: Hangs
    door: AgentsListener
    front: PublicListener
    names: HostNames
    tracking: Tracking | None
    loops: Loops
    coming: threading.Lock
    clearing: threading.Lock

    def __hash__(self) -> int:
        return id(self)


def services(request: Request) -> Services:
    return cast(Services, request.app.state.services)
