"""What the routes have at hand; made once by the app."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple, cast

from fastapi import Request

from allranks.server.auth import Auth
from allranks.server.bell import Bell
from allranks.server.clusters import Clusters
from allranks.server.datastores import Datastores
from allranks.server.door import Door
from allranks.server.environments import Environments
from allranks.server.front import Front
from allranks.server.hangs import Hangs
from allranks.server.mlflow.tracking import Tracking
from allranks.server.models import Models
from allranks.server.names import Names
from allranks.server.pulse import Pulse
from allranks.server.stacks import Stacks
from allranks.server.states import States
from allranks.settings import Clocks, Home
from allranks.store.annotations import Annotations
from allranks.store.assets import Assets
from allranks.store.blobs import Blobs
from allranks.store.computes import Computes
from allranks.store.points import Points
from allranks.store.records import Records

if TYPE_CHECKING:
    from allranks.server.loop import Loops


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
    bell: Bell
    pulse: Pulse
    states: States
    stacks: Stacks
    annotations: Annotations
    hangs: Hangs
    door: Door
    front: Front
    names: Names
    tracking: Tracking | None
    loops: Loops
    coming: threading.Lock
    clearing: threading.Lock

    def __hash__(self) -> int:
        return id(self)


def services(request: Request) -> Services:
    return cast(Services, request.app.state.services)
