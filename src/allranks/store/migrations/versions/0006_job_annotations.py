"""job annotations, names of deleted jobs"""

import sqlalchemy as sa
from alembic import op

from allranks.store.jobs.annotations import values

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    job = sa.ForeignKey("jobs.id", ondelete="CASCADE")
    table = op.create_table(
        "job_annotations",
        sa.Column("job_id", sa.Integer, job, primary_key=True, autoincrement=False),
        sa.Column("display_name", sa.Text, nullable=False),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("archived_at", sa.Float),
    )
    op.create_table(
        "deleted_jobs",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("deleted_at", sa.Float, nullable=False),
    )
    op.create_index("series_name", "series", ["kind", "name", "job_id"])
    jobs = sa.table("jobs", sa.column("id"), sa.column("name"), sa.column("spec", sa.JSON))
    connection = op.get_bind()
    for job_id, name, spec in connection.execute(sa.select(jobs)).all():
        connection.execute(table.insert().values(job_id=job_id, **values(name, spec)))
