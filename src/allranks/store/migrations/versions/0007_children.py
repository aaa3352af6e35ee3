"""the type of a job, and the children of sweeps and pipelines"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "jobs", sa.Column("type", sa.String(20), nullable=False, server_default="command")
    )
    op.add_column("jobs", sa.Column("parent", sa.String(255)))
    op.add_column("jobs", sa.Column("number", sa.Integer))
    op.add_column("jobs", sa.Column("notes", sa.JSON))
    op.create_index("jobs_parent", "jobs", ["parent", "number"], unique=True)
