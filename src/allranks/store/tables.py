"""The tables of the database."""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    JSON,
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    event,
)

metadata = MetaData()

# What lists filter and sort by. An index has it all: rows are so large that reading those of a
# hundred thousand jobs takes half a second.
LISTED = ("experiment", "status", "name", "created_at", "started_at", "ended_at")

jobs = Table(
    "jobs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(255), nullable=False, unique=True),
    Column("experiment", String(255), nullable=False),
    Column("status", String(20), nullable=False),
    Column("live", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("lease_owner", String(64)),
    Column("lease_until", Float),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("exit_code", Integer),
    Column("spec", JSON, nullable=False),
    Column("plan", JSON, nullable=False),
    Column("record", JSON, nullable=False),
    Column("error", JSON),
    Column("type", String(20), nullable=False, server_default="command"),
    # A child of a sweep or a pipeline has a parent; a replaced one has no number.
    Column("parent", String(255)),
    Column("number", Integer),
    Column("notes", JSON),
    Index("jobs_live", "live"),
    Index("jobs_parent", "parent", "number", unique=True),
    # To PostgreSQL, entries without a parent are in order of their ids only if these come first.
    Index("jobs_list", "parent", "id", *LISTED).ddl_if("sqlite"),
    Index("jobs_list", "id", "parent", *LISTED).ddl_if("postgresql"),
)

# Changeable properties of a job: see `annotations`.
job_annotations = Table(
    "job_annotations",
    metadata,
    Column(
        "job_id",
        Integer,
        ForeignKey("jobs.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("display_name", Text, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("archived_at", Float),
)

# Names are not reused, because outputs, models and runs refer to them.
deleted_jobs = Table(
    "deleted_jobs",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("deleted_at", Float, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("job_id", Integer, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("at", Float, nullable=False),
    Column("kind", String(20), nullable=False),
    Column("launch", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("node", Integer),
    Column("rank", Integer),
    Column("seq", Integer, nullable=False),
    Column("data", JSON, nullable=False),
    Index("events_job", "job_id", "id"),
)

# What completed steps of pipelines depended on: see `step_results`.
step_results = Table(
    "step_results",
    metadata,
    Column(
        "job_id",
        Integer,
        ForeignKey("jobs.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("step", String(600), nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("parts", JSON, nullable=False),
    Column("outputs", JSON, nullable=False),
    Index("step_results_step", "step", "job_id"),
    Index("step_results_fingerprint", "fingerprint"),
)

# Jobs that are submitted again and again. ``next_at`` is None for a schedule that is over.
schedules = Table(
    "schedules",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("spec", JSON, nullable=False),
    Column("submission", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("created_by", String(255), nullable=False),
    Column("enabled", Integer, nullable=False),
    Column("next_at", Float),
    Column("last", JSON),
)

computes = Table(
    "computes",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("spec", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
)

settings = Table(
    "settings",
    metadata,
    Column("key", String(63), primary_key=True),
    Column("value", JSON, nullable=False),
)

assets = Table(
    "assets",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("kind", String(20), nullable=False),
    Column("name", String(255), nullable=False),
    Column("version", String(255), nullable=False),
    Column("spec", JSON, nullable=False),
    Column("labels", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("deleted_at", Float),
    Index("assets_one", "kind", "name", "version", unique=True),
)


series = Table(
    "series",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("job_id", Integer, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("name", String(255), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("node", Integer, nullable=False),
    Column("rank", Integer),
    Column("gpu", Integer),
    Column("length", Integer, nullable=False),
    # The last point; and how many points are in blocks, not in rows.
    Column("step", BigInteger),
    Column("at", Float),
    Column("value", Float),
    Column("packed", Integer, nullable=False, server_default="0"),
    # 1 for the series that tells the value of its metric: see `metric_points`.
    Column("leads", Integer, nullable=False, server_default="0"),
    # Those of a node are found without the others of its job, of which there may be thousands.
    Index("series_job", "job_id", "kind", "attempt", "node"),
)
# Indexes of the rows that meet a condition; queries must contain its very words. As text, because
# `Index(postgresql_where=…)` imports that dialect with every start of a server.
for _index in (
    "series_of_metric ON series (name, job_id, value) WHERE leads = 1",
    "series_by_value ON series (name, value, job_id) WHERE leads = 1",
    "series_unpacked ON series (job_id) WHERE packed < length",
):
    event.listen(series, "after_create", DDL(f"CREATE INDEX {_index}"))  # type: ignore[no-untyped-call]

# The key finds every n-th point without reading the others.
points = Table(
    "points",
    metadata,
    Column("series_id", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("step", BigInteger, nullable=False),
    Column("at", Float, nullable=False),
    Column("value", Float),
    sqlite_with_rowid=False,
)

# Points of ended jobs, compressed: see `store/point_blocks.py`. ``first`` is the number of the
# first point; ``earliest`` to ``greatest`` are extremes of their times and finite values.
point_blocks = Table(
    "point_blocks",
    metadata,
    Column("series_id", Integer, primary_key=True, autoincrement=False),
    Column("first", Integer, primary_key=True, autoincrement=False),
    Column("length", Integer, nullable=False),
    Column("earliest", Float, nullable=False),
    Column("latest", Float, nullable=False),
    Column("least", Float),
    Column("greatest", Float),
    Column("data", LargeBinary, nullable=False),
)

# Events of ended jobs, compressed: see `store/jobs/event_blocks.py`. ``last`` is the id of the last
# event in it.
event_blocks = Table(
    "event_blocks",
    metadata,
    Column("job_id", Integer, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("last", Integer, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)

# How many bytes of an agent's file of points have been stored.
feeds = Table(
    "feeds",
    metadata,
    Column("job_id", Integer, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("node", Integer, primary_key=True),
    Column("name", String(20), primary_key=True),
    Column("taken", BigInteger, nullable=False),
)

# A job's run on the MLflow server, and how many points of each series (by id) are there.
mlflow_runs = Table(
    "mlflow_runs",
    metadata,
    Column("job_id", Integer, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("run_id", String(64), nullable=False),
    Column("experiment_id", String(64), nullable=False),
    Column("positions", JSON, nullable=False),
    Column("done", Integer, nullable=False),
)

versions = Table("alembic_version", metadata, Column("version_num", Text, primary_key=True))
