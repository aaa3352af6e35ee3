"""`azureml.core.Workspace`: stands for the server, which has one record."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from allranks.api import routes
from allranks.compat.azure.absent import Absent
from allranks.compat.azure.tracking import arm_id, mlflow_tracking_uri
from allranks.compat.azure.v1 import compute, environment, experiment, model, webservice
from allranks.compat.azure.v1.data import datasets as datasets_
from allranks.compat.azure.v1.data import datastore
from allranks.compat.azure.v1.exceptions import UserErrorException
from allranks.errors import AllranksError
from allranks.sdk import Client
from allranks.sdk.connection import find_server

_CONFIG = ("config.json", ".azureml/config.json", "aml_config/config.json")


class Workspace(Absent):
    """Every workspace is this server: names, subscriptions and groups are kept and change
    nothing."""

    sku = "Basic"

    def __init__(
        self,
        subscription_id: str = "",
        resource_group: str = "",
        workspace_name: str = "allranks",
        auth: object = None,
        **_: Any,
    ) -> None:
        self.name = workspace_name
        self.subscription_id, self.resource_group = subscription_id, resource_group
        self.location = "here"

    @classmethod
    def from_config(cls, path: str | None = None, auth: object = None, **_: Any) -> Workspace:
        """The workspace of a `config.json` here or above; without one, the server all the same.
        Raises UserErrorException for a ``path`` without a readable one."""
        file = _config(path)
        if file is None:
            if path is not None:
                hint = "leave the path out: the workspace is this server"
                raise UserErrorException(f"no config.json found at {path}", hint=hint)
            return cls()
        try:
            config = json.loads(file.read_text())
            names = {key: str(config[key]) for key in ("workspace_name",) if key in config}
            ids = (str(config.get("subscription_id", "")), str(config.get("resource_group", "")))
        except (ValueError, AttributeError, OSError) as error:
            hint = "leave it out: the workspace is this server"
            raise UserErrorException(f"{file} is not a config.json: {error}", hint=hint) from None
        return cls(*ids, **names)

    @classmethod
    def get(
        cls,
        name: str,
        auth: object = None,
        subscription_id: str = "",
        resource_group: str = "",
        **_: Any,
    ) -> Workspace:
        return cls(subscription_id, resource_group, name)

    @classmethod
    def create(cls, name: str, *_: Any, **more: Any) -> Workspace:
        """Creates nothing."""
        ids = (more.get("subscription_id") or "", more.get("resource_group") or "")
        return cls(*ids, name)

    def write_config(self, path: str | None = None, file_name: str | None = None) -> None:
        """Write what ``from_config`` reads."""
        file = Path(path or ".", ".azureml", file_name or "config.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({**self._place(), "workspace_name": self.name}, indent=4))

    def _place(self) -> dict[str, str]:
        return {"subscription_id": self.subscription_id, "resource_group": self.resource_group}

    def get_details(self) -> dict[str, str]:
        names = {"id": self.id, "name": self.name, "location": self.location, "sku": self.sku}
        return {**self._place(), **names}

    @property
    def compute_targets(self) -> dict[str, compute.ComputeTarget]:
        """The computes, and the names that stand for one."""
        told = find_server.ask(routes.list_computes)
        names = [*(each["name"] for each in told["computes"]), *told["stands_for"]]
        return {name: compute.ComputeTarget(self, name) for name in names}

    @property
    def environments(self) -> dict[str, environment.Environment]:
        return environment.Environment.list(self)

    @property
    def datasets(self) -> dict[str, datasets_.TabularDataset]:
        return datasets_.Dataset.get_all(self)

    @property
    def datastores(self) -> dict[str, datastore.Datastore]:
        return {
            each.name: datastore.Datastore(self, each.name) for each in Client().datastores.list()
        }

    @property
    def experiments(self) -> dict[str, experiment.Experiment]:
        names = {each.experiment_name for each in Client().jobs.list(limit=1000, archived=None)}
        return _Experiments({name: experiment.Experiment(self, name) for name in sorted(names)})

    @property
    def models(self) -> dict[str, model.Model]:
        return {each.name: model.Model(self, each.name) for each in Client().models.list()}

    @property
    def webservices(self) -> dict[str, webservice.Webservice]:
        return {service.name: service for service in webservice.Webservice.list(self)}

    @property
    def id(self) -> str:
        """As Azure writes it, of the names that it was given."""
        return arm_id(self.subscription_id, self.resource_group, self.name)

    def get_mlflow_tracking_uri(self, **_: Any) -> str:
        """Where MLflow's clients log; sets MLFLOW_TRACKING_TOKEN of this process."""
        return mlflow_tracking_uri()

    def get_default_datastore(self) -> datastore.Datastore:
        return datastore.Datastore(self, "workspaceblobstore")

    def get_default_compute_target(self, type: str = "CPU") -> compute.ComputeTarget | None:
        computes = Client().compute.list()
        return compute.ComputeTarget(self, computes[0].name) if computes else None

    def __repr__(self) -> str:
        return f"Workspace.create(name={self.name!r})"


def _config(path: str | None) -> Path | None:
    if path is not None and Path(path).is_file():
        return Path(path)
    start = Path(path or os.getcwd()).absolute()
    for folder in (start, *start.parents):
        for name in _CONFIG:
            if (folder / name).is_file():
                return folder / name
    return None


class _Experiments(dict[str, "experiment.Experiment"]):
    """Those of jobs; asked by name, also one that only MLflow's clients log to."""

    def __missing__(self, name: str) -> experiment.Experiment:
        query = urlencode({"experiment_name": name})
        where = f"/mlflow/api/2.0/mlflow/experiments/get-by-name?{query}"
        try:
            with find_server.connect() as client:
                client.json("GET", where)
        except AllranksError:
            raise KeyError(name) from None
        return experiment.Experiment(Workspace(), name)
