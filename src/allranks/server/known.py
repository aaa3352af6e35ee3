"""What a home knows, for who only looks and needs no server; one that does not exist yet knows what
is always there."""

from __future__ import annotations

from allranks.server import datastores as stores
from allranks.server.clusters import Clusters
from allranks.server.datastores import Datastores
from allranks.server.environments import KIND, Environments
from allranks.server.model_versions import KIND as MODEL
from allranks.server.model_versions import ModelVersions
from allranks.settings import Home
from allranks.store.assets import Assets
from allranks.store.computes import Computes
from allranks.store.db import open_database
from allranks.store.secrets import Secrets
from allranks.store.settings import Settings
from allranks.store.trees import Trees


def clusters(home: Home) -> Clusters:
    """Its computes."""
    there = home.database.exists()
    return Clusters(home, Computes(open_database(home.database)) if there else None)


def environments(home: Home) -> Environments:
    """Its environments."""
    if not home.database.exists():
        return Environments(None, None)
    database = open_database(home.database)
    return Environments(Assets(database, KIND), Settings(database))


def datastores(home: Home) -> Datastores:
    """Its datastores, data assets and models."""
    if not home.database.exists():
        return Datastores(home.data)
    database = open_database(home.database)
    settings = Settings(database)
    secrets = Secrets(settings, home.secrets)
    models = ModelVersions(Assets(database, MODEL), Trees(home.models))
    return Datastores(home.data, settings, Assets(database, stores.KIND), secrets, models)
