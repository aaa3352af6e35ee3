"""The tables of the first release."""

from alembic import op

revision = "v1"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = """
CREATE TABLE jobs (id INTEGER NOT NULL, name VARCHAR(255) NOT NULL,
    experiment VARCHAR(255) NOT NULL, status VARCHAR(20) NOT NULL, live INTEGER NOT NULL,
    version INTEGER NOT NULL, lease_owner VARCHAR(64), lease_until FLOAT,
    created_at FLOAT NOT NULL, started_at FLOAT, ended_at FLOAT, exit_code INTEGER,
    spec JSON NOT NULL, "plan" JSON NOT NULL, record JSON NOT NULL, error JSON,
    type VARCHAR(20) DEFAULT 'command' NOT NULL, parent VARCHAR(255), number INTEGER, notes JSON,
    PRIMARY KEY (id), UNIQUE (name));
CREATE INDEX jobs_live ON jobs (live);
CREATE INDEX jobs_list ON jobs (parent, id, experiment, status, name, created_at, started_at,
    ended_at);
CREATE UNIQUE INDEX jobs_parent ON jobs (parent, number);
CREATE TABLE deleted_jobs (name VARCHAR(255) NOT NULL, deleted_at FLOAT NOT NULL,
    PRIMARY KEY (name));
CREATE TABLE schedules (name VARCHAR(255) NOT NULL, spec JSON NOT NULL, submission JSON NOT NULL,
    created_at FLOAT NOT NULL, created_by VARCHAR(255) NOT NULL, enabled INTEGER NOT NULL,
    next_at FLOAT, last JSON, PRIMARY KEY (name));
CREATE TABLE computes (name VARCHAR(63) NOT NULL, spec JSON NOT NULL, created_at FLOAT NOT NULL,
    PRIMARY KEY (name));
CREATE TABLE settings ("key" VARCHAR(63) NOT NULL, value JSON NOT NULL, PRIMARY KEY ("key"));
CREATE TABLE assets (id INTEGER NOT NULL, kind VARCHAR(20) NOT NULL, name VARCHAR(255) NOT NULL,
    version VARCHAR(255) NOT NULL, spec JSON NOT NULL, labels JSON NOT NULL,
    created_at FLOAT NOT NULL, deleted_at FLOAT, PRIMARY KEY (id));
CREATE UNIQUE INDEX assets_one ON assets (kind, name, version);
CREATE TABLE points (series_id INTEGER NOT NULL, number INTEGER NOT NULL, step BIGINT NOT NULL,
    at FLOAT NOT NULL, value FLOAT, PRIMARY KEY (series_id, number)) WITHOUT ROWID;
CREATE TABLE point_blocks (series_id INTEGER NOT NULL, first INTEGER NOT NULL,
    length INTEGER NOT NULL, earliest FLOAT NOT NULL, latest FLOAT NOT NULL, least FLOAT,
    greatest FLOAT, data BLOB NOT NULL, PRIMARY KEY (series_id, first));
CREATE TABLE job_annotations (job_id INTEGER NOT NULL, display_name TEXT NOT NULL,
    tags JSON NOT NULL, archived_at FLOAT, PRIMARY KEY (job_id),
    FOREIGN KEY (job_id) REFERENCES jobs (id) ON DELETE CASCADE);
CREATE TABLE events (id INTEGER NOT NULL, job_id INTEGER NOT NULL, at FLOAT NOT NULL,
    kind VARCHAR(20) NOT NULL, launch INTEGER NOT NULL, attempt INTEGER NOT NULL, node INTEGER,
    rank INTEGER, seq INTEGER NOT NULL, data JSON NOT NULL, PRIMARY KEY (id),
    FOREIGN KEY (job_id) REFERENCES jobs (id) ON DELETE CASCADE);
CREATE INDEX events_job ON events (job_id, id);
CREATE TABLE step_results (job_id INTEGER NOT NULL, step VARCHAR(600) NOT NULL,
    fingerprint VARCHAR(64) NOT NULL, parts JSON NOT NULL, outputs JSON NOT NULL,
    PRIMARY KEY (job_id), FOREIGN KEY (job_id) REFERENCES jobs (id) ON DELETE CASCADE);
CREATE INDEX step_results_fingerprint ON step_results (fingerprint);
CREATE INDEX step_results_step ON step_results (step, job_id);
CREATE TABLE series (id INTEGER NOT NULL, job_id INTEGER NOT NULL, kind VARCHAR(20) NOT NULL,
    name VARCHAR(255) NOT NULL, attempt INTEGER NOT NULL, node INTEGER NOT NULL, rank INTEGER,
    gpu INTEGER, length INTEGER NOT NULL, step BIGINT, at FLOAT, value FLOAT,
    packed INTEGER DEFAULT '0' NOT NULL, leads INTEGER DEFAULT '0' NOT NULL, PRIMARY KEY (id),
    FOREIGN KEY (job_id) REFERENCES jobs (id) ON DELETE CASCADE);
CREATE INDEX series_job ON series (job_id, kind, attempt, node);
CREATE INDEX series_of_metric ON series (name, job_id, value) WHERE leads = 1;
CREATE INDEX series_by_value ON series (name, value, job_id) WHERE leads = 1;
CREATE INDEX series_unpacked ON series (job_id) WHERE packed < length;
CREATE TABLE event_blocks (job_id INTEGER NOT NULL, last INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (job_id, last), FOREIGN KEY (job_id) REFERENCES jobs (id) ON DELETE CASCADE);
CREATE TABLE feeds (job_id INTEGER NOT NULL, attempt INTEGER NOT NULL, node INTEGER NOT NULL,
    name VARCHAR(20) NOT NULL, taken BIGINT NOT NULL, PRIMARY KEY (job_id, attempt, node, name),
    FOREIGN KEY (job_id) REFERENCES jobs (id) ON DELETE CASCADE);
CREATE TABLE mlflow_runs (job_id INTEGER NOT NULL, run_id VARCHAR(64) NOT NULL,
    experiment_id VARCHAR(64) NOT NULL, positions JSON NOT NULL, done INTEGER NOT NULL,
    PRIMARY KEY (job_id), FOREIGN KEY (job_id) REFERENCES jobs (id) ON DELETE CASCADE);
"""
_ON_POSTGRESQL = {
    "(id INTEGER": "(id SERIAL",
    " BLOB ": " BYTEA ",
    " WITHOUT ROWID": "",
    "jobs (parent, id, ": "jobs (id, parent, ",
}


def upgrade() -> None:
    tables = _TABLES
    if op.get_bind().dialect.name == "postgresql":
        for name, other in _ON_POSTGRESQL.items():
            tables = tables.replace(name, other)
    for statement in tables.strip().removesuffix(";").split(";"):
        op.execute(statement)
