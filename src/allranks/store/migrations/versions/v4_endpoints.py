"""Endpoints and their deployments as records with events; before, they were two single values."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "v4"
down_revision = "v3"
branch_labels = None
depends_on = None

_REPLICA = ("job", "revision", "address", "started_at", "was_ready", "drains_since", "model")
_settings = sa.table("settings", sa.column("key", sa.String), sa.column("value", sa.JSON))


def upgrade() -> None:
    endpoints = op.create_table(
        "endpoints",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("record", sa.JSON, nullable=False),
    )
    events = op.create_table(
        "endpoint_events",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column(
            "endpoint",
            sa.String(255),
            sa.ForeignKey("endpoints.name", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("deployment", sa.String(255), nullable=False),
        sa.Column("by", sa.String(255), nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
    )
    op.create_index("endpoint_events_endpoint", "endpoint_events", ["endpoint", "id"])
    connection = op.get_bind()
    values = {row.key: row.value for row in connection.execute(sa.select(_settings))}
    rows: list[dict[str, Any]] = [*(values.get("deployments") or {}).values()]
    # A deleted one is there until its replicas have ended.
    deployments = [_deployment(row) for row in rows if row["replicas"] or not row.get("is_deleted")]
    before: dict[str, dict[str, Any]] = values.get("endpoints") or {}
    for name in sorted({*before, *(item["endpoint"] for item in deployments)}):
        mine = [item for item in deployments if item["endpoint"] == name]
        record, history = _endpoint(name, before.get(name), mine)
        version = record["version"]
        connection.execute(endpoints.insert().values(name=name, version=version, record=record))
        connection.execute(events.insert(), history)
    connection.execute(_settings.delete().where(_settings.c.key.in_(("endpoints", "deployments"))))


def _endpoint(
    name: str, row: dict[str, Any] | None, deployments: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The record and the events of an endpoint; one that was deleted while replicas stop has no
    row."""
    is_deleted = row is None
    if row is None:
        at, by = deployments[0]["created_at"], deployments[0]["created_by"]
        row = {"name": name, "spec": {"name": name}, "created_at": at, "created_by": by, "keys": []}
    about = {"endpoint": name, "at": row["created_at"], "by": row["created_by"]}
    data = {key: row[key] for key in ("name", "spec", "keys")}
    events = [{**about, "kind": "created", "deployment": "", "data": data}]
    events += [
        {**about, "at": item["created_at"], "by": "", "kind": "adopted"}
        | {"deployment": item["name"], "data": item}
        for item in deployments
    ]
    if is_deleted:
        events.append({**about, "by": "", "kind": "deleted", "deployment": "", "data": {}})
    by_name = {item["name"]: item for item in deployments}
    record = {**row, "is_deleted": is_deleted, "deployments": by_name, "version": len(events)}
    return record, events


def _deployment(data: dict[str, Any]) -> dict[str, Any]:
    """0.1.0 did not write down which revision was ready, and `True` where all traffic moves."""
    replicas = [dict(zip(_REPLICA, values, strict=False)) for values in data["replicas"]]
    ready = [item["revision"] for item in replicas if item.get("was_ready")]
    made = {**data, "replicas": replicas}
    if data.get("takes_traffic") is True:
        made["takes_traffic"] = 100
    if data["revision"] in ready:
        made["ready_revision"] = data["revision"]
    return made
