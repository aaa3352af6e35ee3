"""Read-only access to a home without starting the server. A home that does not exist yet has the
built-in computes, environments and datastore."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from allranks.server.assets import components as registered
from allranks.server.assets import datastores as stores
from allranks.server.assets.components import Components
from allranks.server.assets.datastores import Datastores
from allranks.server.assets.environments import KIND, Environments
from allranks.server.assets.model_versions import KIND as MODEL
from allranks.server.assets.model_versions import ModelVersions
from allranks.server.assets.planning_assets import PlanningAssets
from allranks.server.clusters.clusters import Clusters
from allranks.settings import Home, database, has_record
from allranks.store.assets import Assets
from allranks.store.computes import Computes
from allranks.store.database import opened_database
from allranks.store.files.trees import Trees
from allranks.store.key_values import Settings
from allranks.store.secrets import Secrets


@contextlib.contextmanager
def read_only_home(home: Home) -> Iterator[PlanningAssets]:
    """Open the database of a home, if it has one, and close it in the end: what it yields can be
    used until then. Raises ServerError if it cannot be opened."""
    if not has_record(home):
        yield PlanningAssets(
            home,
            Clusters(home, None),
            Environments(None, None),
            Datastores(home.data),
            Components(None),
        )
        return
    with opened_database(database(home)) as engine:
        settings = Settings(engine)
        secrets = Secrets(settings, home.secrets)
        models = ModelVersions(Assets(engine, MODEL), Trees(home.models))
        yield PlanningAssets(
            home,
            Clusters(home, Computes(engine)),
            Environments(Assets(engine, KIND), settings),
            Datastores(home.data, settings, Assets(engine, stores.KIND), secrets, models),
            Components(Assets(engine, registered.KIND)),
        )


def is_registered(home: Home, kind: str, name: str, version: str | None = None) -> bool:
    """Whether a home has a version of an asset; None is any."""
    if not has_record(home):
        return False
    with opened_database(database(home)) as engine:
        rows = Assets(engine, kind).versions(name)
    return any(version in (None, row.version) for row in rows)
