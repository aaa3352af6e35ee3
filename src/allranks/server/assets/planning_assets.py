"""What a submission is planned with."""

from __future__ import annotations

from typing import NamedTuple

from allranks.server.assets.components import Components
from allranks.server.assets.data_locations import Find
from allranks.server.assets.datastores import Datastores
from allranks.server.assets.environments import Environments
from allranks.server.clusters.clusters import Clusters
from allranks.settings import Home


class PlanningAssets(NamedTuple):
    """What planning a job reads. ``find`` looks up other jobs; without it, or if it returns None,
    their outputs are assumed to exist."""

    home: Home
    clusters: Clusters
    environments: Environments
    datastores: Datastores
    components: Components
    find: Find | None = None
