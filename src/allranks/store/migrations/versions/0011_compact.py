"""the last point of each series; blocks of points and events of ended jobs"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# One statement for all: a home may have a hundred thousand series.
_LAST = """
UPDATE series SET (step, at, value) = (
    SELECT points.step, points.at, points.value FROM points
    WHERE points.series_id = series.id AND points.number = series.length - 1
)"""
_LEADS = """
UPDATE series SET leads = 1 WHERE id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (
            PARTITION BY job_id, name ORDER BY attempt DESC, rank IS NULL, rank, node, id
        ) AS place FROM series WHERE kind = 'metric'
    ) AS placed WHERE place = 1
)"""


def upgrade() -> None:
    op.add_column("series", sa.Column("step", sa.BigInteger))
    op.add_column("series", sa.Column("at", sa.Float))
    op.add_column("series", sa.Column("value", sa.Float))
    for name in ("packed", "leads"):
        op.add_column("series", sa.Column(name, sa.Integer, nullable=False, server_default="0"))
    op.execute(_LAST)
    op.execute(_LEADS)
    op.drop_index("series_name", "series")
    for name, condition, columns in (
        ("series_of_metric", "leads = 1", ["name", "job_id", "value"]),
        ("series_by_value", "leads = 1", ["name", "value", "job_id"]),
        ("series_loose", "packed < length", ["job_id"]),
    ):
        where = sa.text(condition)
        op.create_index(name, "series", columns, sqlite_where=where, postgresql_where=where)
    op.create_table(
        "point_blocks",
        sa.Column("series_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("first", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("length", sa.Integer, nullable=False),
        sa.Column("earliest", sa.Float, nullable=False),
        sa.Column("latest", sa.Float, nullable=False),
        sa.Column("least", sa.Float),
        sa.Column("greatest", sa.Float),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    job = sa.ForeignKey("jobs.id", ondelete="CASCADE")
    op.create_table(
        "event_blocks",
        sa.Column("job_id", sa.Integer, job, primary_key=True),
        sa.Column("last", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
