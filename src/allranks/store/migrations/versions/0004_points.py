"""points"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    job = sa.ForeignKey("jobs.id", ondelete="CASCADE")
    op.create_table(
        "series",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("job_id", sa.Integer, job, nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("node", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer),
        sa.Column("gpu", sa.Integer),
        sa.Column("length", sa.Integer, nullable=False),
        sa.Index("series_job", "job_id", "kind"),
    )
    op.create_table(
        "points",
        sa.Column("series_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("value", sa.Float),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "feeds",
        sa.Column("job_id", sa.Integer, sa.ForeignKey("jobs.id", ondelete="CASCADE")),
        sa.Column("attempt", sa.Integer),
        sa.Column("node", sa.Integer),
        sa.Column("name", sa.String(20)),
        sa.Column("taken", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "attempt", "node", "name"),
    )
