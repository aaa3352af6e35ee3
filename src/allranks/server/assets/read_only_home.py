"""Read-only access to a home without starting the server. A home that does not exist yet has the
built-in computes, environments and datastore."""

from __future__ import annotations

from allranks.server.assets import components as registered
from allranks.server.assets import datastores as stores
from allranks.server.assets.components import Components
from allranks.server.assets.datastores import Datastores
from allranks.server.assets.environments import KIND, Environments
from allranks.server.assets.model_versions import KIND as MODEL
from allranks.server.assets.model_versions import ModelVersions
from allranks.server.clusters.clusters import Clusters
from allranks.settings import Home, database, has_record
from allranks.store.assets import Assets
from allranks.store.computes import Computes
from allranks.store.database import open_database
from allranks.store.files.trees import Trees
from allranks.store.key_values import Settings
from allranks.store.secrets import Secrets


def clusters(home: Home) -> Clusters:
    return Clusters(home, Computes(open_database(database(home))) if has_record(home) else None)


def environments(home: Home) -> Environments:
    if not has_record(home):
        return Environments(None, None)
    found = open_database(database(home))
    return Environments(Assets(found, KIND), Settings(found))


def datastores(home: Home) -> Datastores:
    if not has_record(home):
        return Datastores(home.data)
    found = open_database(database(home))
    settings = Settings(found)
    secrets = Secrets(settings, home.secrets)
    models = ModelVersions(Assets(found, MODEL), Trees(home.models))
    return Datastores(home.data, settings, Assets(found, stores.KIND), secrets, models)


def components(home: Home) -> Components:
    if not has_record(home):
        return Components(None)
    return Components(Assets(open_database(database(home)), registered.KIND))
