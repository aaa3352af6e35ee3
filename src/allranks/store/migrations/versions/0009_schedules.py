"""schedules"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("submission", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("created_by", sa.String(255), nullable=False),
        sa.Column("enabled", sa.Integer, nullable=False),
        sa.Column("next_at", sa.Float),
        sa.Column("last", sa.JSON),
    )
