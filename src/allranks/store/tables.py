"""The tables of the database."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

# What lists filter and sort by. An index has it all: rows are so large that reading those of a
# hundred thousand jobs takes half a second.
LISTED = ("experiment", "status", "name", "created_at", "started_at", "ended_at")

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
    sa.Column("experiment", sa.String(255), nullable=False),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("live", sa.Integer, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("started_at", sa.Float),
    sa.Column("ended_at", sa.Float),
    sa.Column("exit_code", sa.Integer),
    sa.Column("spec", sa.JSON, nullable=False),
    sa.Column("plan", sa.JSON, nullable=False),
    sa.Column("record", sa.JSON, nullable=False),
    sa.Column("error", sa.JSON),
    sa.Column("type", sa.String(20), nullable=False, server_default="command"),
    # A child of a sweep or a pipeline has a parent; a replaced one has no number.
    sa.Column("parent", sa.String(255)),
    sa.Column("number", sa.Integer),
    sa.Column("notes", sa.JSON),
    sa.Index("jobs_live", "live"),
    sa.Index("jobs_parent", "parent", "number", unique=True),
    # To PostgreSQL, entries without a parent are in order of their ids only if these come first.
    sa.Index("jobs_list", "parent", "id", *LISTED).ddl_if("sqlite"),
    sa.Index("jobs_list", "id", "parent", *LISTED).ddl_if("postgresql"),
)

# Changeable properties of a job: see `annotations`.
job_annotations = sa.Table(
    "job_annotations",
    metadata,
    sa.Column(
        "job_id",
        sa.Integer,
        sa.ForeignKey("jobs.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("display_name", sa.Text, nullable=False),
    sa.Column("tags", sa.JSON, nullable=False),
    sa.Column("archived_at", sa.Float),
    # What its script has logged; None for nothing.
    sa.Column("parameters", sa.JSON),
)

# Names are not reused, because outputs, models and runs refer to them.
deleted_jobs = sa.Table(
    "deleted_jobs",
    metadata,
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("deleted_at", sa.Float, nullable=False),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job_id", sa.Integer, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("launch", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("node", sa.Integer),
    sa.Column("rank", sa.Integer),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("data", sa.JSON, nullable=False),
    sa.Index("events_job", "job_id", "id"),
)

# What completed steps of pipelines depended on: see `step_results`.
step_results = sa.Table(
    "step_results",
    metadata,
    sa.Column(
        "job_id",
        sa.Integer,
        sa.ForeignKey("jobs.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("step", sa.String(600), nullable=False),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.Column("parts", sa.JSON, nullable=False),
    sa.Column("outputs", sa.JSON, nullable=False),
    sa.Index("step_results_step", "step", "job_id"),
    sa.Index("step_results_fingerprint", "fingerprint"),
)

# Jobs that are submitted again and again. ``next_at`` is None for a schedule that is over.
schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("spec", sa.JSON, nullable=False),
    sa.Column("submission", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("created_by", sa.String(255), nullable=False),
    sa.Column("enabled", sa.Integer, nullable=False),
    sa.Column("next_at", sa.Float),
    sa.Column("last", sa.JSON),
)

# Endpoints that answer requests, with their deployments: records and what has happened to them.
endpoints = sa.Table(
    "endpoints",
    metadata,
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("record", sa.JSON, nullable=False),
)

endpoint_events = sa.Table(
    "endpoint_events",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column(
        "endpoint",
        sa.String(255),
        sa.ForeignKey("endpoints.name", ondelete="CASCADE"),
        nullable=False,
    ),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    # Empty for the endpoint itself; `by` for the server.
    sa.Column("deployment", sa.String(255), nullable=False),
    sa.Column("by", sa.String(255), nullable=False),
    sa.Column("data", sa.JSON, nullable=False),
    sa.Index("endpoint_events_endpoint", "endpoint", "id"),
)

computes = sa.Table(
    "computes",
    metadata,
    sa.Column("name", sa.String(63), primary_key=True),
    sa.Column("spec", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
)

settings = sa.Table(
    "settings",
    metadata,
    sa.Column("key", sa.String(63), primary_key=True),
    sa.Column("value", sa.JSON, nullable=False),
)

assets = sa.Table(
    "assets",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("version", sa.String(255), nullable=False),
    sa.Column("spec", sa.JSON, nullable=False),
    sa.Column("labels", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("deleted_at", sa.Float),
    sa.Index("assets_one", "kind", "name", "version", unique=True),
)


series = sa.Table(
    "series",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job_id", sa.Integer, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("node", sa.Integer, nullable=False),
    sa.Column("rank", sa.Integer),
    sa.Column("gpu", sa.Integer),
    sa.Column("length", sa.Integer, nullable=False),
    # The last point; and how many points are in blocks, not in rows.
    sa.Column("step", sa.BigInteger),
    sa.Column("at", sa.Float),
    sa.Column("value", sa.Float),
    sa.Column("packed", sa.Integer, nullable=False, server_default="0"),
    # 1 for the series that tells the value of its metric: see `metric_points`.
    sa.Column("leads", sa.Integer, nullable=False, server_default="0"),
    # Those of a node are found without the others of its job, of which there may be thousands.
    sa.Index("series_job", "job_id", "kind", "attempt", "node"),
)
# Indexes of the rows that meet a condition; queries must contain its very words. As text, because
# `Index(postgresql_where=…)` imports that dialect with every start of a server.
for _index in (
    "series_of_metric ON series (name, job_id, value) WHERE leads = 1",
    "series_by_value ON series (name, value, job_id) WHERE leads = 1",
    "series_unpacked ON series (job_id) WHERE packed < length",
):
    sa.event.listen(series, "after_create", sa.DDL(f"CREATE INDEX {_index}"))  # type: ignore[no-untyped-call]

# The key finds every n-th point without reading the others.
points = sa.Table(
    "points",
    metadata,
    sa.Column("series_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("step", sa.BigInteger, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("value", sa.Float),
    sqlite_with_rowid=False,
)

# Points of ended jobs, compressed: see `store/point_blocks.py`. ``first`` is the number of the
# first point; ``earliest`` to ``greatest`` are extremes of their times and finite values.
point_blocks = sa.Table(
    "point_blocks",
    metadata,
    sa.Column("series_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("first", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("length", sa.Integer, nullable=False),
    sa.Column("earliest", sa.Float, nullable=False),
    sa.Column("latest", sa.Float, nullable=False),
    sa.Column("least", sa.Float),
    sa.Column("greatest", sa.Float),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

# Events of ended jobs, compressed: see `store/jobs/event_blocks.py`. ``last`` is the id of the last
# event in it.
event_blocks = sa.Table(
    "event_blocks",
    metadata,
    sa.Column("job_id", sa.Integer, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("last", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

# How many bytes of an agent's file of points have been stored.
feeds = sa.Table(
    "feeds",
    metadata,
    sa.Column("job_id", sa.Integer, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("node", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(20), primary_key=True),
    sa.Column("taken", sa.BigInteger, nullable=False),
)

# A job's run on the MLflow server, and how many points of each series (by id) are there.
mlflow_runs = sa.Table(
    "mlflow_runs",
    metadata,
    sa.Column("job_id", sa.Integer, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("run_id", sa.String(64), nullable=False),
    sa.Column("experiment_id", sa.String(64), nullable=False),
    sa.Column("positions", sa.JSON, nullable=False),
    sa.Column("done", sa.Integer, nullable=False),
)

versions = sa.Table(
    "alembic_version", metadata, sa.Column("version_num", sa.Text, primary_key=True)
)
